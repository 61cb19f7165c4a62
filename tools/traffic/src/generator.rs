//! The run of a generator: find the device, learn the translations, flood. One thread, both sides.

/// Calls a method of the generator in the form of the traffic: address families, length of the
/// tunnel header, TCP or UDP. All of them are known at compile time in the method.
macro_rules! in_form {
    ($traffic:expr, $this:ident . $method:ident ( $($argument:expr),* )) => {{
        use $crate::families::{BothFamilies, Families, OnlyIpv4, OnlyIpv6};
        use $crate::packet::{GRE, GRE6, PLAIN};
        use $crate::scenario::{Access, Protocol};
        macro_rules! of_families {
            ($set:ty) => {
                match ($traffic.access, $traffic.protocol) {
                    (Access::Gre, Protocol::Udp) => $this.$method::<$set, GRE, false>($($argument),*),
                    (Access::Gre, Protocol::Tcp) => $this.$method::<$set, GRE, true>($($argument),*),
                    (Access::GreOverIpv6, Protocol::Udp) => $this.$method::<$set, GRE6, false>($($argument),*),
                    (Access::GreOverIpv6, Protocol::Tcp) => $this.$method::<$set, GRE6, true>($($argument),*),
                    (Access::Plain, Protocol::Udp) => $this.$method::<$set, PLAIN, false>($($argument),*),
                    (Access::Plain, Protocol::Tcp) => $this.$method::<$set, PLAIN, true>($($argument),*),
                }
            };
        }
        match $traffic.families {
            Families::Ipv4 => of_families!(OnlyIpv4),
            Families::Ipv6 => of_families!(OnlyIpv6),
            Families::Both => of_families!(BothFamilies),
        }
    }};
}

mod attack;
mod flood;
mod learn;
mod templates;
mod validate;

use std::net::Ipv4Addr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weir_dpdk::{Mbuf, tsc, tsc_hz};
use weir_wire::ethernet::Mac;

pub use self::attack::{AttackAccount, AttackLoad};
pub use self::flood::{Flood, FloodPlan, Load};
pub use self::learn::Learned;
use self::templates::Templates;
pub use self::templates::{SIZES, Size, Traffic, TrafficError};
pub use self::validate::Validated;
use crate::packet::Direction;
use crate::side::{SPARE_MAX, Side};
use crate::table::Table;

#[derive(Debug, thiserror::Error)]
pub enum GeneratorError {
    #[error("the {side} port has no link")]
    NoLink { side: &'static str },
    #[error("the device does not answer ARP for {address} on the {side} side")]
    NoDevice { side: &'static str, address: Ipv4Addr },
    #[error("the device and its IPv6 gateway on the {side} side do not find each other")]
    NoDevice6 { side: &'static str },
    #[error(
        "{missing} of {flows} flows were not translated in {attempts} attempts ({wrong} wrong answers)"
    )]
    NotLearned { missing: u32, flows: u32, attempts: u32, wrong: u64 },
    #[error("{count} flows share a public endpoint with another flow")]
    SharedEndpoints { count: usize },
}

/// Progress of a long phase, reported about once a second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "phase")]
pub enum Progress {
    Learn {
        learned: u32,
        of: u32,
    },
    /// The warm-up is over in which each flow was sent an answer.
    Settled,
    /// `seconds` of `of_seconds`, warm-up included; the rate of the last second.
    Flood {
        seconds: f64,
        of_seconds: f64,
        rate_mpps: f64,
        lost: u64,
        wrong: u64,
    },
}

/// The unit of the time stamps in packets: 2^3 cycles, so that 32 bits hold ten seconds and more.
const STAMP_SHIFT: u32 = 3;

#[inline(always)]
fn stamp(cycle: u64) -> u32 {
    (cycle >> STAMP_SHIFT) as u32
}

#[derive(Debug)]
pub struct Generator {
    access: Side,
    internet: Side,
    table: Table,
    /// Buffers between receiving and sending.
    spare: Vec<Mbuf>,
    traffic: Traffic,
    upstream: Templates,
    downstream: Templates,
    /// The first lap that no packet has used yet.
    next_lap: u32,
}

impl Generator {
    pub fn new(access: Side, internet: Side, table: Table, traffic: Traffic) -> Self {
        let (ours, theirs) = (access.gateway.mac, internet.gateway.mac);
        Generator {
            upstream: Templates::new(traffic, ours, Mac::BROADCAST, Direction::Upstream),
            downstream: Templates::new(traffic, theirs, Mac::BROADCAST, Direction::Downstream),
            access,
            internet,
            table,
            spare: Vec::with_capacity(SPARE_MAX),
            traffic,
            next_lap: 1,
        }
    }

    /// Waits until both ports have a link: packets sent earlier are lost.
    pub fn connect(&self, patience: Duration) -> Result<(), GeneratorError> {
        let give_up = Deadline::after(patience);
        for (side, port) in [("access", &self.access), ("internet", &self.internet)] {
            while !port.link_up() {
                if give_up.is_over() {
                    return Err(GeneratorError::NoLink { side });
                }
                // Links come up on a thread of DPDK that may share this core.
                std::thread::yield_now();
            }
        }
        Ok(())
    }

    /// Requests the device's addresses on both sides until it has answered, and where there is IPv6
    /// has asked for the gateway. Not needed for a device
    /// that only forwards.
    pub fn resolve(&mut self, patience: Duration) -> Result<(), GeneratorError> {
        let give_up = Deadline::after(patience);
        let mut next_request = Deadline::after(Duration::ZERO);
        loop {
            for side in [&mut self.access, &mut self.internet] {
                if !side.gateway.is_ready() && next_request.is_over() {
                    let requests = [Some(side.gateway.request()), side.gateway.request6()];
                    requests.iter().flatten().for_each(|request| side.send_link(request));
                }
                side.receive(&mut self.spare, |_| false);
            }
            if next_request.is_over() {
                next_request = Deadline::after(Duration::from_millis(100));
            }
            let sides = [("access", &self.access), ("internet", &self.internet)];
            match sides.iter().find(|(_, side)| !side.gateway.is_ready()) {
                None => break,
                Some((side, Side { gateway, .. })) if give_up.is_over() => {
                    let address = Ipv4Addr::from_bits(gateway.device_address);
                    return Err(match gateway.device_mac {
                        None => GeneratorError::NoDevice { side, address },
                        Some(_) => GeneratorError::NoDevice6 { side },
                    });
                }
                Some(_) => {}
            }
        }
        if let (Some(access), Some(internet)) =
            (self.access.gateway.device_mac, self.internet.gateway.device_mac)
        {
            let (ours, theirs) = (self.access.gateway.mac, self.internet.gateway.mac);
            self.upstream = Templates::new(self.traffic, ours, access, Direction::Upstream);
            self.downstream = Templates::new(self.traffic, theirs, internet, Direction::Downstream);
        }
        Ok(())
    }
}

/// A point of time on the cycle counter: reading it needs no system call.
#[derive(Clone, Copy, Debug)]
struct Deadline {
    cycle: u64,
}

impl Deadline {
    fn after(duration: Duration) -> Self {
        Deadline { cycle: tsc() + (duration.as_secs_f64() * tsc_hz() as f64) as u64 }
    }

    #[inline]
    fn is_over(self) -> bool {
        tsc() >= self.cycle
    }
}

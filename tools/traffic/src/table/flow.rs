//! One flow, and the addresses of its packets in its family. Hot path.

use super::Lesson;
use crate::packet::{Addresses, Direction, Family, Ipv4, Ipv6, Seen};
use crate::scenario::{Endpoint, FlowPlan};

/// The port of every remote host, as a wire word.
pub(super) const REMOTE_PORT: u16 = 443u16.swap_bytes();
/// The first halves of all IPv6 addresses: those of homes, without octets 4 to 8, and those of
/// remote hosts. Wire words.
const HOMES6: u64 = 0x2001_0db8_0000_0000_u64.swap_bytes();
const REMOTES6: u64 = 0x2001_0db8_8000_0000_u64.swap_bytes();
/// In place of the public address of an IPv6 flow whose packets came through.
const LEARNED6: u32 = 1;

/// One flow, half a cache line. Addresses and ports are wire words. Its number says which family it
/// is of.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(32))]
pub(super) struct Flow {
    /// Public address; 0 until learned. IPv6: [`LEARNED6`] then.
    pub(super) public: u32,
    /// IPv6: the last four octets.
    pub(super) remote: u32,
    /// IPv6: octets 4 to 8.
    pub(super) inside: u32,
    pub(super) home: u32,
    pub(super) tunnel: u32,
    /// IPv6: the last two octets of the inside address.
    pub(super) public_port: u16,
    pub(super) inside_port: u16,
    /// The last lap seen on the internet side and on the access side; 0 for none.
    pub(super) laps_seen: [u32; 2],
}

const _: () = assert!(size_of::<Flow>() == 32);

/// What the addresses of a flow are in its family.
pub(super) trait FlowFamily: Family {
    /// Returns source and destination of a packet, before or after translation.
    fn pair(flow: &Flow, way: Direction, is_translated: bool) -> Self::Pair;

    /// Returns the port of the inside endpoint, before or after translation.
    fn port(flow: &Flow, is_translated: bool) -> u16;

    /// Learns what the device made of the inside endpoint of a flow, of which nothing is known yet.
    fn learn(flow: &mut Flow, seen: &Seen<Self>);
}

impl Flow {
    pub(super) const NONE: Flow = Flow {
        public: 0,
        remote: 0,
        inside: 0,
        home: 0,
        tunnel: 0,
        public_port: 0,
        inside_port: 0,
        laps_seen: [0; 2],
    };

    /// Makes an IPv4 flow. `public`: what is known of its public endpoint.
    pub(super) fn new(plan: &FlowPlan, public: Endpoint) -> Self {
        Flow {
            public: public.address.swap_bytes(),
            remote: plan.remote.address.swap_bytes(),
            inside: plan.inside.address.swap_bytes(),
            home: plan.home.swap_bytes(),
            tunnel: plan.tunnel.swap_bytes(),
            public_port: public.port.swap_bytes(),
            inside_port: plan.inside.port.swap_bytes(),
            laps_seen: [0; 2],
        }
    }

    /// Makes an IPv6 flow.
    pub(super) fn new6(plan: &FlowPlan) -> Self {
        Flow {
            public: 0,
            remote: (plan.remote6 as u32).swap_bytes(),
            inside: ((plan.inside6 >> 64) as u32).swap_bytes(),
            home: plan.home.swap_bytes(),
            tunnel: plan.tunnel.swap_bytes(),
            public_port: (plan.inside6 as u16).swap_bytes(),
            inside_port: plan.inside.port.swap_bytes(),
            laps_seen: [0; 2],
        }
    }

    /// Returns the addresses of an upstream packet as a home sends it.
    #[inline(always)]
    pub(super) fn sent_by_home<F: FlowFamily>(&self) -> Addresses<F> {
        Addresses {
            outer: pair(self.home, self.tunnel),
            inner: F::pair(self, Direction::Upstream, false),
            ports: ports(F::port(self, false), REMOTE_PORT),
        }
    }

    /// Returns the same after translation.
    #[inline(always)]
    pub(super) fn reaching_remote<F: FlowFamily>(&self) -> Addresses<F> {
        Addresses {
            outer: 0,
            inner: F::pair(self, Direction::Upstream, true),
            ports: ports(F::port(self, true), REMOTE_PORT),
        }
    }

    /// Returns the addresses of a downstream packet as a remote host sends it.
    #[inline(always)]
    pub(super) fn sent_by_remote<F: FlowFamily>(&self) -> Addresses<F> {
        Addresses {
            outer: 0,
            inner: F::pair(self, Direction::Downstream, true),
            ports: ports(REMOTE_PORT, F::port(self, true)),
        }
    }

    /// Returns the same after translation.
    #[inline(always)]
    pub(super) fn reaching_home<F: FlowFamily>(&self) -> Addresses<F> {
        Addresses {
            outer: pair(self.tunnel, self.home),
            inner: F::pair(self, Direction::Downstream, false),
            ports: ports(REMOTE_PORT, F::port(self, false)),
        }
    }

    pub(super) fn learn<F: FlowFamily>(&mut self, seen: &Seen<F>) -> Lesson {
        let was_known = self.public != 0;
        let before = *self;
        if !was_known && seen.checksums_right {
            F::learn(self, seen);
        }
        let is_right = seen.checksums_right && self.public != 0;
        if !is_right || seen.addresses != self.reaching_remote() {
            *self = before;
            return Lesson::Wrong;
        }
        if was_known { Lesson::Known } else { Lesson::Learned }
    }
}

impl FlowFamily for Ipv4 {
    #[inline(always)]
    fn pair(flow: &Flow, way: Direction, is_translated: bool) -> u64 {
        let inside = if is_translated { flow.public } else { flow.inside };
        match way {
            Direction::Upstream => pair(inside, flow.remote),
            Direction::Downstream => pair(flow.remote, inside),
        }
    }

    #[inline(always)]
    fn port(flow: &Flow, is_translated: bool) -> u16 {
        if is_translated { flow.public_port } else { flow.inside_port }
    }

    #[inline(always)]
    fn learn(flow: &mut Flow, seen: &Seen<Self>) {
        (flow.public, flow.public_port) =
            (seen.addresses.inner as u32, seen.addresses.ports as u16);
    }
}

/// Nothing is translated.
impl FlowFamily for Ipv6 {
    #[inline(always)]
    fn pair(flow: &Flow, way: Direction, _: bool) -> [u64; 4] {
        let inside = [HOMES6 | u64::from(flow.inside) << 32, u64::from(flow.public_port) << 48];
        let remote = [REMOTES6, u64::from(flow.remote) << 32];
        let ([a, b], [c, d]) = match way {
            Direction::Upstream => (inside, remote),
            Direction::Downstream => (remote, inside),
        };
        [a, b, c, d]
    }

    #[inline(always)]
    fn port(flow: &Flow, _: bool) -> u16 {
        flow.inside_port
    }

    #[inline(always)]
    fn learn(flow: &mut Flow, _: &Seen<Self>) {
        flow.public = LEARNED6;
    }
}

#[inline(always)]
fn pair(source: u32, destination: u32) -> u64 {
    u64::from(source) | u64::from(destination) << 32
}

#[inline(always)]
fn ports(source: u16, destination: u16) -> u32 {
    u32::from(source) | u32::from(destination) << 16
}

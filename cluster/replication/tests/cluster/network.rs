//! A network in virtual time, from a seed.

use std::collections::BTreeMap;
use std::net::{SocketAddr, SocketAddrV4};

use weir_stream::Transmit;

/// Random numbers of a seed (SplitMix64).
#[derive(Clone, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// Faults of the network.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Faults {
    pub(crate) loss_percent: u64,
    pub(crate) repeat_percent: u64,
    pub(crate) delay_us: u64,
    /// Upper bound of a random extra delay, which reorders datagrams.
    pub(crate) jitter_us: u64,
}

impl Faults {
    pub(crate) const NONE: Self =
        Self { loss_percent: 0, repeat_percent: 0, delay_us: 100, jitter_us: 0 };
    pub(crate) const MANY: Self =
        Self { loss_percent: 10, repeat_percent: 5, delay_us: 100, jitter_us: 2_000 };
}

#[derive(Debug)]
pub(crate) struct Datagram {
    pub(crate) from: SocketAddrV4,
    pub(crate) to: SocketAddrV4,
    pub(crate) bytes: Vec<u8>,
}

impl Datagram {
    /// True if it is a packet that a worker redirects: kind 4 of replication.
    pub(crate) fn is_redirect(&self) -> bool {
        self.bytes[3] & 0x7f == 4
    }
}

/// Datagrams on their way, by arrival time.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) faults: Faults,
    pub(crate) random: Random,
    flights: BTreeMap<(u64, u64), Datagram>,
    count: u64,
    /// Workers cut off in both directions.
    pub(crate) parted: Vec<SocketAddrV4>,
    /// Workers that send nothing and hear everything.
    pub(crate) muted: Vec<SocketAddrV4>,
    /// Directions that are cut: from one worker to another.
    pub(crate) cut: Vec<(SocketAddrV4, SocketAddrV4)>,
}

impl Network {
    pub(crate) fn new(seed: u64, faults: Faults) -> Self {
        let flights = BTreeMap::new();
        Self {
            faults,
            random: Random(seed),
            flights,
            count: 0,
            parted: Vec::new(),
            muted: Vec::new(),
            cut: Vec::new(),
        }
    }

    pub(crate) fn port(&mut self, from: SocketAddrV4, now_us: u64) -> Port<'_> {
        Port { network: self, from, now_us }
    }

    /// Takes the next datagram that has arrived by now.
    pub(crate) fn arrived(&mut self, now_us: u64) -> Option<Datagram> {
        let first = self.flights.first_entry()?;
        (first.key().0 <= now_us).then(|| first.remove())
    }

    fn send(&mut self, from: SocketAddrV4, to: SocketAddrV4, bytes: &[u8], now_us: u64) {
        let is_parted = self.parted.contains(&from) || self.parted.contains(&to);
        if is_parted || self.muted.contains(&from) || self.cut.contains(&(from, to)) {
            return;
        }
        let copies = 1 + u64::from(self.random.below(100) < self.faults.repeat_percent);
        for _ in 0..copies {
            if self.random.below(100) >= self.faults.loss_percent {
                let delay_us = self.faults.delay_us + self.random.below(self.faults.jitter_us + 1);
                self.count += 1;
                let datagram = Datagram { from, to, bytes: bytes.to_vec() };
                self.flights.insert((now_us + delay_us, self.count), datagram);
            }
        }
    }
}

/// The network port of a worker.
pub(crate) struct Port<'a> {
    network: &'a mut Network,
    from: SocketAddrV4,
    now_us: u64,
}

impl Transmit for Port<'_> {
    fn send(&mut self, to: SocketAddr, datagram: &[u8]) -> bool {
        let SocketAddr::V4(to) = to else { panic!("workers have IPv4 addresses") };
        allocation_counter::opt_out(|| self.network.send(self.from, to, datagram, self.now_us));
        true
    }
}

//! A NAT, homes behind it and servers outside, for tests of what both sides see.
#![allow(dead_code, reason = "each test file uses its part")]

pub(crate) mod ipv6;
pub(crate) mod pair;

use weir_nat::*;

pub(crate) const SYN: u8 = 0x02;
pub(crate) const ACK: u8 = 0x10;
pub(crate) const SYN_ACK: u8 = SYN | ACK;
pub(crate) const FIN_ACK: u8 = 0x11;
pub(crate) const RST: u8 = 0x04;

pub(crate) const SHARD: ShardIndex = ShardIndex(0);

/// Two shards: 203.0.113.0/30 and 198.51.100.0/30.
pub(crate) fn config() -> NatConfig {
    NatConfig {
        flows_max: 10_000,
        subscribers: vec!["10.200.0.0/16".parse().unwrap()],
        shards: vec![shard(11, "203.0.113.0/30"), shard(12, "198.51.100.0/30")],
        seed: [1, 2, 3, 4],
        ..NatConfig::default()
    }
}

pub(crate) fn shard(id: u32, public: &str) -> NatShardConfig {
    NatShardConfig {
        id: ShardId(id),
        public: vec![public.parse().unwrap()],
        public6: Vec::new(),
        subscribers_max: 256,
    }
}

pub(crate) fn address(text: &str) -> u32 {
    text.parse::<std::net::Ipv4Addr>().unwrap().into()
}

/// Parses an endpoint such as `10.0.0.1:80`.
pub(crate) fn at(text: &str) -> Endpoint {
    let (ip, port) = text.split_once(':').unwrap();
    Endpoint::new(address(ip), port.parse().unwrap())
}

/// Returns the n-th home of the first shard.
pub(crate) fn home(n: u32) -> Home {
    Home { shard: SHARD, outer: address("10.200.0.0") + n, gre_key: None }
}

/// Returns the n-th inside endpoint of a home; all homes use the same addresses.
pub(crate) fn inside(n: u16) -> Endpoint {
    Endpoint::new(address("192.168.1.10"), 10_000 + n)
}

/// Returns the n-th server.
pub(crate) fn server(n: u32) -> Endpoint {
    Endpoint::new(address("192.0.2.1") + n, 443)
}

/// The NAT with a clock of its own.
pub(crate) struct World {
    pub(crate) nat: Nat,
    pub(crate) now: Tick,
}

impl World {
    pub(crate) fn new(config: NatConfig) -> Self {
        Self { nat: Nat::new(config).unwrap(), now: Tick(1000) }
    }

    pub(crate) fn out(
        &mut self,
        home: Home,
        inside: Endpoint,
        remote: Endpoint,
        protocol: Protocol,
        tcp_flags: u8,
    ) -> Result<Endpoint, Refusal> {
        let hash = self.nat.outbound_hash(&home, inside, protocol);
        let packet = Outbound { home, inside, remote, protocol, tcp_flags };
        self.nat.outbound(hash, &packet, self.now).map(|translated| translated.to)
    }

    pub(crate) fn back(
        &mut self,
        public: Endpoint,
        remote: Endpoint,
        protocol: Protocol,
        tcp_flags: u8,
    ) -> Result<Delivery, Refusal> {
        let hash = self.nat.inbound_hash(public, protocol);
        let packet = Inbound { public, remote, protocol, tcp_flags };
        self.nat.inbound(hash, &packet, self.now).map(|translated| translated.to)
    }

    pub(crate) fn udp_out(
        &mut self,
        home: Home,
        inside: Endpoint,
        remote: Endpoint,
    ) -> Result<Endpoint, Refusal> {
        self.out(home, inside, remote, Protocol::Udp, 0)
    }

    pub(crate) fn udp_back(
        &mut self,
        public: Endpoint,
        remote: Endpoint,
    ) -> Result<Delivery, Refusal> {
        self.back(public, remote, Protocol::Udp, 0)
    }

    pub(crate) fn tcp_out(
        &mut self,
        home: Home,
        inside: Endpoint,
        remote: Endpoint,
        flags: u8,
    ) -> Result<Endpoint, Refusal> {
        self.out(home, inside, remote, Protocol::Tcp, flags)
    }

    pub(crate) fn tcp_back(
        &mut self,
        public: Endpoint,
        remote: Endpoint,
        flags: u8,
    ) -> Result<Delivery, Refusal> {
        self.back(public, remote, Protocol::Tcp, flags)
    }

    /// Establishes a TCP connection of the first home.
    pub(crate) fn connect(&mut self, inside: Endpoint, remote: Endpoint) -> Endpoint {
        let public = self.tcp_out(home(1), inside, remote, SYN).unwrap();
        self.tcp_back(public, remote, SYN_ACK).unwrap();
        self.tcp_out(home(1), inside, remote, ACK).unwrap();
        public
    }

    /// Lets time pass, without the walk: the fate of a packet must not depend on it.
    pub(crate) fn wait(&mut self, seconds: u32) {
        self.now = Tick(self.now.0 + seconds);
    }

    /// Lets time pass, and the walk visit every slot.
    pub(crate) fn wait_and_collect(&mut self, seconds: u32) {
        self.wait(seconds);
        self.nat.expire(self.now, usize::MAX, usize::MAX);
    }

    pub(crate) fn flows(&self) -> u32 {
        self.nat.admin().gauges().flows
    }

    pub(crate) fn events(&mut self) -> Vec<BlockEvent> {
        std::iter::from_fn(|| self.nat.admin_mut().next_event()).collect()
    }

    /// Lists all sessions, in pages of the smallest size.
    pub(crate) fn list(&self, filter: &SessionFilter) -> Vec<SessionView> {
        let (mut cursor, mut sessions) = (PageCursor::default(), Vec::new());
        while self.nat.admin().sessions(&mut cursor, 1, filter, &mut sessions) {}
        sessions
    }

    /// Checks that nothing is held any more: no record, port, block or subscriber.
    pub(crate) fn assert_empty(&self) {
        let gauges = self.nat.admin().gauges();
        assert_eq!((gauges.flows, gauges.quarantined, gauges.subscribers), (0, 0, 0));
        for shard in [ShardIndex(0), ShardIndex(1)] {
            let gauges = self.nat.admin().shard_gauges(shard);
            assert_eq!((gauges.ports_used, gauges.subscribers), (0, 0));
            assert_eq!(gauges.blocks_free, gauges.blocks_total);
        }
    }
}

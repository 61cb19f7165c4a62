//! A worker of a node of its own: 2,000 homes in eight shards, their flows, and the two networks.

use std::time::{Duration, Instant};

use weir_engine::{
    AccessMode, BURST_MAX, Engine, EngineConfig, FragmentLimits, MssClamp, ResourceLimits,
    ShardConfig, Side, SideConfig,
};
use weir_nat::{NatConfig, NatShardConfig, ShardId};
use weir_wire::build;
use weir_wire::ethernet::{Ethernet, Mac};
use weir_worker::{LocalLink, Worker};

use crate::frame::BufferFrame;
use crate::source::{Source, gateway_mac};

const SHARDS: u32 = 8;
const HOMES_PER_SHARD: u32 = 250;
const START: Duration = Duration::from_secs(1000);
const PAYLOAD: [u8; 18] = [7; 18];
/// Primes: multiples of one, modulo the number of flows, visit every flow in a scattered order.
const OPENING_STRIDE: u64 = 15_485_863;
const STRIDE: u64 = 32_452_843;

/// The worker of one core, with everything that it touches.
pub(crate) struct Node {
    worker: Worker<BufferFrame, LocalLink>,
    ports: Source,
    flows: u32,
    began: Instant,
}

impl Node {
    /// Makes a worker with room for `flows` flows. The first packet of each waits.
    pub(crate) fn new(flows: u32) -> Self {
        let engine = Engine::new(config(flows)).expect("the configuration is valid");
        let (worker, ports) = (Worker::new(engine, None), Source::default());
        let mut node = Self { worker, ports, flows, began: Instant::now() };
        node.ports.now = START;
        node.worker.start(START, &mut node.ports);
        node.turn();
        assert!(node.worker.engine.admin().is_ready(), "both gateways have answered");
        node.ports.supply(Side::Access, scattered(flows, OPENING_STRIDE).map(upstream));
        node
    }

    /// Opens every flow of a [new](Self::new) worker; returns how many there are.
    ///
    /// # Panics
    /// When a packet is not forwarded.
    pub(crate) fn open(&mut self) -> u64 {
        while self.ports.received < u64::from(self.flows) {
            self.turn();
        }
        assert_eq!(self.ports.sent, self.ports.received, "every packet passes");
        u64::from(self.flows)
    }

    /// Opens every flow of a [new](Self::new) worker and sends packets of both directions through
    /// each, so that all are established. Such packets wait after that, in an order that is not the
    /// one of the records.
    pub(crate) fn establish(&mut self) {
        self.ports.record = Some(Default::default());
        self.open();
        let opened = self.ports.record.take().expect("it is there");
        let numbers: Vec<_> = scattered(self.flows, OPENING_STRIDE).collect();
        let order = || scattered(self.flows, STRIDE).map(|place| place as usize);
        self.ports.supply(Side::Access, order().map(|place| upstream(numbers[place])));
        // Both directions of a flow are half a round apart.
        let order = order().cycle().skip(self.flows as usize / 2).take(self.flows as usize);
        self.ports.supply(Side::Internet, order.map(|place| answer(&opened[place])));
        for _ in 0..2 * self.flows.div_ceil(BURST_MAX as u32) {
            self.turn();
        }
    }

    /// Runs turns until `end`, and returns the packets forwarded from `start` on and the time that
    /// they took; none if the thread did not run between the two.
    ///
    /// # Panics
    /// When a packet is not forwarded.
    pub(crate) fn forward(&mut self, start: Instant, end: Instant) -> Option<(u64, Duration)> {
        let mut begun = None;
        loop {
            let now = Instant::now();
            if now >= end {
                assert_eq!(self.ports.sent, self.ports.received, "every packet passes");
                return begun.map(|(since, sent)| (self.ports.sent - sent, now - since));
            }
            if now >= start && begun.is_none() {
                begun = Some((now, self.ports.sent));
            }
            self.ports.now = START + (now - self.began);
            self.worker.turn(self.ports.now, &mut self.ports);
        }
    }

    fn turn(&mut self) {
        self.ports.now = START + self.began.elapsed();
        self.worker.turn(self.ports.now, &mut self.ports);
    }
}

/// Returns the numbers of all flows; neighbours are far apart.
fn scattered(flows: u32, stride: u64) -> impl Iterator<Item = u32> + Clone {
    (0..u64::from(flows)).map(move |step| (step * stride % u64::from(flows)) as u32)
}

/// Returns the home's packet of a flow, in its tunnel.
fn upstream(number: u32) -> Vec<u8> {
    let (shard, home) = (number % SHARDS, number / SHARDS % HOMES_PER_SHARD);
    let port = 10_000 + (number / (SHARDS * HOMES_PER_SHARD)) as u16;
    let server = u32::from_be_bytes([198, 51, 100, 1]) + number % 7;
    let inner = build::ipv4(u32::from_be_bytes([192, 168, 1, 10]), server).udp(port, 443, PAYLOAD);
    let home = u32::from_be_bytes([10, 200, 0, 1]) + (shard << 8) + home;
    let outer = build::ipv4(home, endpoint(shard)).gre(build::gre(), inner);
    build::ethernet(worker_mac(Side::Access), gateway_mac(Side::Access), &outer)
}

/// Returns the server's answer to a packet that the worker sent.
fn answer(sent: &[u8]) -> Vec<u8> {
    let ip = &sent[Ethernet::LEN..];
    let word = |at: usize| u32::from_be_bytes([ip[at], ip[at + 1], ip[at + 2], ip[at + 3]]);
    let port = u16::from_be_bytes([ip[20], ip[21]]);
    let packet = build::ipv4(word(16), word(12)).udp(443, port, PAYLOAD);
    build::ethernet(worker_mac(Side::Internet), gateway_mac(Side::Internet), &packet)
}

fn worker_mac(side: Side) -> Mac {
    build::mac(1 + side as u8)
}

/// Returns the address of the worker and that of its gateway.
fn addresses(side: Side) -> [u32; 2] {
    let net = u32::from_be_bytes([10, 1 + side as u8, 0, 0]);
    [net + 1, net + 2]
}

fn endpoint(shard: u32) -> u32 {
    u32::from_be_bytes([10, 100, 0, 1]) + shard
}

fn config(flows: u32) -> EngineConfig {
    let side = |side: Side| {
        let [worker, gateway] = addresses(side).map(std::net::Ipv4Addr::from);
        SideConfig {
            mac: worker_mac(side),
            address: format!("{worker}/24").parse().expect("a prefix"),
            gateways: vec![gateway],
            gateway_macs: Vec::new(),
            ipv6: None,
            vlan: None,
            mtu: 1500,
        }
    };
    let shards = (0..SHARDS).map(|shard| ShardConfig {
        id: ShardId(shard),
        endpoint: Some(endpoint(shard)),
        endpoint6: None,
        subscribers: vec![],
    });
    let nat_shards = (0..SHARDS).map(|shard| NatShardConfig {
        id: ShardId(shard),
        public: vec![format!("203.0.113.{}/28", 16 * shard).parse().expect("a prefix")],
        public6: Vec::new(),
        subscribers_max: HOMES_PER_SHARD,
    });
    EngineConfig {
        mode: AccessMode::Gre,
        access: side(Side::Access),
        internet: side(Side::Internet),
        mss_clamp: MssClamp::Auto,
        shards: shards.collect(),
        nat: NatConfig {
            flows_max: flows,
            subscribers: vec!["10.200.0.0/16".parse().expect("a prefix")],
            shards: nat_shards.collect(),
            seed: [1, 2, 3, 4],
            ..NatConfig::default()
        },
        fragments: FragmentLimits { datagrams_max: 64, held_max: 64, ..FragmentLimits::default() },
        limits: ResourceLimits::default(),
        forward_source_routes: false,
        peers_max: 0,
        replication_port: None,
    }
}

//! A node without DPDK for tests: real stats and mailboxes, a thread of the test in the worker's
//! place.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use ipnet::Ipv6Net;
use weir_engine::{Direction, EngineCounters, Side};
use weir_nat::{
    BlockView, ClaimView, Endpoint, Endpoint6, FlowClass, HomeLimits, HomeSelector, HomeView,
    Protocol, SessionEnds, SessionEnds4, SessionEnds6, SessionView, ShardId, SubscriberPart,
    SubscriberView,
};
use weir_process::Log;

use crate::clock::Clock;
use crate::collectors::Collectors;
use crate::counted_rules::CountedRules;
use crate::generations::Generations;
use crate::node::{Node, PortHandle, PortSample, ShardHandle, ShardHandles, WorkerHandle};
use crate::rates::Rates;
use crate::request::{HomesPage, Mailbox, SubscriberPage, mailbox};
use crate::turns::Turns;
use crate::worker_stats::WorkerStats;

const TSC_HZ: u64 = 2_000_000_000;
/// The home that the node knows: 10.200.0.1.
pub(crate) const HOME: u32 = 0x0ac8_0001;
const SAMPLE_HOME: HomeView = HomeView::Ipv4 { outer: HOME, gre_key: None };
/// What the home has claimed.
const CLAIM: ClaimView = ClaimView {
    prefix: Ipv6Net::new_assert(Ipv6Addr::new(0x2001, 0xdb8, 0x1000, 1, 0, 0, 0, 0), 64),
    flows: 1,
};

/// The file of a single node with one worker.
pub(crate) const SAMPLE_FILE: &str = r#"[[worker]]
core = 1
access = { device = "net_null0", address = "10.1.0.1/24", gateway = "10.1.0.2", mtu = 1524 }
internet = { device = "net_null1", address = "10.2.0.1/24", gateway = "10.2.0.2" }
[access]
subscribers = ["10.200.0.0/16"]
[[shard]]
id = 1
endpoint = "10.100.0.1"
public = ["203.0.113.0/28"]
"#;

/// Returns a node with one worker, one shard and some traffic, and the worker's mailbox for the
/// test.
pub(crate) fn sample_node() -> (Arc<Node>, Mailbox) {
    let clock = Clock::start();
    let counters = Arc::new(EngineCounters::default());
    counters.count(Side::Access, Direction::Receive, 5, 500);
    let stats = WorkerStats::new(counters, 1, TSC_HZ);
    stats.seen_ms.set(u64::try_from(clock.now().as_millis()).unwrap());
    stats.flows.set(3);
    stats.family_flows[0].set(2);
    stats.family_flows[1].set(1);
    stats.flow_creates.set(5);
    stats.family_flow_creates[0].set(3);
    stats.family_flow_creates[1].set(2);
    stats.flows_max.set(1000);
    stats.memory_bytes.set(64_000);
    stats.page_bytes[0].set(1 << 30);
    stats.table_bytes[0].set(64_000);
    stats.uses[0].name.get_or_init(|| "sessions");
    stats.uses[0].used.set(95);
    stats.uses[0].max.set(100);
    stats.homes_displaced.set(2);
    stats.turn_max_ns.set(250_000);
    stats.turns.enter(TSC_HZ / 4_000);
    stats.ticks.enter(TSC_HZ / 500);
    stats.shards[0].ports_used.set(4);
    stats.shards[0].blocks_free.set(60);
    stats.shards[0].blocks_total.set(64);
    stats.shards[0].addresses_out_of_service.set(2);
    stats.shards[0].ports_out_of_service.set(3);
    stats.shards[0].blocks_awaited.set(1);
    stats.tx_dropped[Side::Internet as usize].set(2);
    let (requester, mailbox) = mailbox();
    let worker = WorkerHandle {
        worker: 0,
        core: 1,
        stats: Arc::new(stats),
        requester,
        ports: [port("net_null0"), port("net_null1")],
        shards: Arc::new(ShardHandles::new([ShardHandle {
            id: 7,
            endpoint: Some(Ipv4Addr::new(10, 100, 0, 1)),
            public: vec!["203.0.113.0/28".into()],
            public6: vec!["2001:db8:7::/48".into()],
            subscribers_max: 256,
        }])),
    };
    let node = Node {
        name: "n1".into(),
        clock,
        has_huge_pages: false,
        workers: vec![worker],
        block_log: None,
        collectors: Collectors::default(),
        log: Log::default(),
        turns: Arc::new(Turns::new(clock, None)),
        frame_max: 1518,
        has_been_ready: AtomicBool::new(false),
        is_block_log_failing: AtomicBool::new(false),
        generations: Generations::none(),
        counted_rules: CountedRules::default(),
        rates: Rates::default(),
        http: Arc::default(),
        member: OnceLock::new(),
    };
    (Arc::new(node), mailbox)
}

fn port(device: &str) -> PortHandle {
    PortHandle {
        device: device.into(),
        mac: "02:00:00:00:00:01".into(),
        address: "10.1.0.1/24".into(),
        gateways: vec!["10.1.0.2".into()],
        gateways6: Vec::new(),
        hint: String::new(),
        sample: Box::new(|| PortSample { is_link_up: true, rx_missed_total: 9 }),
    }
}

/// Returns a session of [`HOME`].
pub(crate) fn session(number: u16) -> SessionView {
    SessionView {
        shard: ShardId(7),
        home: SAMPLE_HOME,
        protocol: Protocol::Udp,
        ends: SessionEnds::Ipv4(SessionEnds4 {
            inside: Endpoint::new(0xc0a8_0102, number),
            public: Endpoint::new(0xcb00_7101, number),
            remote: Endpoint::new(0x0101_0101, 53),
            asked: None,
        }),
        state: "stream",
        age_sec: 2,
        idle_sec: 1,
        timeout_sec: 300,
        class: FlowClass::NONE,
    }
}

/// Returns an IPv6 flow of [`HOME`].
pub(crate) fn session6(number: u16) -> SessionView {
    let inside = Endpoint6::new(0x2001_0db8_1000_0001_0000_0000_0000_0007, number);
    let remote = Endpoint6::new(0x2001_0db8_0009_0000_0000_0000_0000_0001, 443);
    let ends = SessionEnds::Ipv6(SessionEnds6 { inside, remote });
    SessionView { ends, ..session(number) }
}

/// Fills in a worker's answer about a home.
pub(crate) fn show_subscriber(name: HomeSelector, page: &mut SubscriberPage) {
    let is_it = match name {
        HomeSelector::Ipv4(outer) => outer == HOME,
        HomeSelector::Ipv6(net) => CLAIM.prefix.contains(&net),
    };
    let parts = if is_it { subscriber_parts() } else { Vec::new() };
    page.parts.extend(parts);
    page.has_more = false;
}

/// Fills in the homes of a worker.
pub(crate) fn show_homes(shard: Option<ShardId>, page: &mut HomesPage) {
    page.homes.extend(shard.is_none_or(|shard| shard == ShardId(7)).then(home));
    page.has_more = false;
}

fn home() -> SubscriberView {
    SubscriberView {
        shard: ShardId(7),
        home: SAMPLE_HOME,
        public_address: Some(0xcb00_7101),
        blocks: Vec::new(),
        claims: Vec::new(),
        ports_used: 3,
        mappings: 2,
        flows: 4,
        flows6: 1,
        sessions: 2,
        blocks_held: 1,
        new_flows_left: 9,
        refused_total: 7,
        limits: HomeLimits { blocks: 16, flows: 4, sessions: u32::MAX, new_flows_per_sec: 10 },
    }
}

fn subscriber_parts() -> Vec<SubscriberPart> {
    let home = home();
    let block = BlockView { public_address: 0xcb00_7101, port_first: 1024, port_last: 1279 };
    vec![SubscriberPart::Home(home), SubscriberPart::Block(block), SubscriberPart::Claim(CLAIM)]
}

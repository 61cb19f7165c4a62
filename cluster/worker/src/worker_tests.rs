//! The turn over recorded ports and a recorded link: its steps, packets that wait during a stall,
//! and the end.

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;

use weir_engine::{
    AccessMode, CommitLimits, EngineConfig, FragmentLimits, MssClamp, PacketTrace, ResourceLimits,
    SideConfig, TraceFilter, Uncommitted,
};
use weir_map::{LaneSet, ShardId};
use weir_nat::{NatConfig, ShardIndex, ShardRoom};
use weir_replication::CommitOptions;
use weir_replication::command::{CopyOrder, ShardDuties, ShardSetup};
use weir_replication::{PeerId, Replication, WorkerCommand, WorkerEvent};
use weir_stream::{
    BootId, ClusterKeys, Fingerprint, Identity, PeerIndex, PeerSigns, StreamOptions,
};
use weir_wire::Misses;
use weir_wire::arp::Arp;
use weir_wire::build;
use weir_wire::ethernet::Mac;
use weir_wire::frame::{VecFrame, VecPool};

use super::*;
use crate::{LocalLink, Rings};

const SHARD: ShardId = ShardId(3);
const ENDPOINT: &str = "10.100.0.1";
const PORT: u16 = 7473;
const START: Duration = Duration::from_secs(1000);
const PEER: PeerId = PeerId(2);

type Steps = Rc<RefCell<Vec<&'static str>>>;

/// Ports or a link that record their calls.
struct Recorded<T> {
    inner: T,
    steps: Steps,
    traces: Vec<PacketTrace>,
    /// Packets that a trace wants.
    traces_max: usize,
}

impl<T> Recorded<T> {
    fn new(inner: T, steps: &Steps) -> Self {
        Self { inner, steps: Rc::clone(steps), traces: Vec::new(), traces_max: 0 }
    }

    fn note(&self, step: &'static str) {
        self.steps.borrow_mut().push(step);
    }
}

fn name(side: Side, access: &'static str, internet: &'static str) -> &'static str {
    match side {
        Side::Access => access,
        Side::Internet => internet,
    }
}

impl Ports for Recorded<Rings<VecPool>> {
    type Frame = VecFrame;
    type Pool = VecPool;

    fn pool(&mut self) -> &mut VecPool {
        self.inner.pool()
    }

    fn now(&mut self) -> Duration {
        self.inner.now()
    }

    fn receive(&mut self, side: Side, frames: &mut Vec<VecFrame>) -> usize {
        self.note(name(side, "receive access", "receive internet"));
        self.inner.receive(side, frames)
    }

    fn send(&mut self, side: Side, frames: &mut Vec<VecFrame>) {
        self.note(name(side, "send access", "send internet"));
        self.inner.send(side, frames);
    }

    fn observe(&mut self, _: Side, direction: Direction, _: Duration, frames: &[VecFrame]) -> bool {
        assert!(!frames.is_empty());
        self.note(match direction {
            Direction::Receive => "observe received",
            Direction::Transmit => "observe sent",
        });
        self.traces_max > 0
    }

    fn trace_filter(&self) -> Option<TraceFilter> {
        let side = Some(Side::Access);
        let is_wanted = self.traces.len() < self.traces_max;
        is_wanted.then_some(TraceFilter { side, ..TraceFilter::default() })
    }

    fn take_trace(&mut self, trace: PacketTrace) {
        self.traces.push(trace);
    }

    fn run_timers(&mut self, timers: impl FnOnce(&mut VecPool)) {
        self.note("timers");
        timers(self.inner.pool());
    }
}

impl RolesLink for Recorded<LocalLink> {
    fn beat(&mut self) {
        self.note("beat");
        self.inner.beat();
    }

    fn is_fenced(&self) -> bool {
        self.note("fence");
        self.inner.is_fenced()
    }

    fn rejoin(&mut self, waited: usize) {
        self.note("rejoin");
        self.inner.rejoin(waited);
    }

    fn is_ordered(&self) -> bool {
        self.inner.is_ordered()
    }

    fn next_command(&mut self) -> Option<WorkerCommand> {
        self.note("command");
        self.inner.next_command()
    }

    fn has_room(&mut self) -> bool {
        self.inner.has_room()
    }

    fn send_event(&mut self, event: WorkerEvent, shard_index: Option<ShardIndex>) {
        self.note("event");
        self.inner.send_event(event, shard_index);
    }

    fn busy(&mut self, shard: ShardId) {
        self.note("busy");
        self.inner.busy(shard);
    }

    fn signs(&mut self, peer: PeerIndex, signs: Option<PeerSigns>) {
        self.inner.signs(peer, signs);
    }

    fn end_slot(&mut self) {
        self.note("slot");
        self.inner.end_slot();
    }

    fn report(&mut self, _: &Replication, _: u64) {
        self.note("report");
    }
}

struct Case {
    worker: Worker<VecFrame, Recorded<LocalLink>>,
    ports: Recorded<Rings<VecPool>>,
    now: Duration,
}

fn mac(side: Side) -> Mac {
    build::mac(1 + side as u8)
}

fn gateway_mac(side: Side) -> Mac {
    build::mac(11 + side as u8)
}

fn on_link(side: Side, host: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 1 + side as u8, 0, host)
}

fn engine() -> Engine<VecFrame> {
    let side = |side: Side| SideConfig {
        mac: mac(side),
        address: format!("{}/24", on_link(side, 1)).parse().unwrap(),
        gateways: vec![on_link(side, 250)],
        gateway_macs: Vec::new(),
        ipv6: None,
        vlan: None,
        mtu: 1500,
    };
    Engine::new(EngineConfig {
        mode: AccessMode::Gre,
        access: side(Side::Access),
        internet: side(Side::Internet),
        mss_clamp: MssClamp::Auto,
        shards: vec![],
        nat: NatConfig {
            flows_max: 16_384,
            subscribers: vec!["10.200.0.0/16".parse().unwrap()],
            room: ShardRoom { shards: 2, public_addresses: 32, subscribers: 512 },
            port_block: 64,
            replicas: 1,
            ..NatConfig::default()
        },
        fragments: FragmentLimits { datagrams_max: 64, held_max: 64, ..FragmentLimits::default() },
        limits: ResourceLimits::default(),
        forward_source_routes: false,
        peers_max: 4,
        replication_port: Some(PORT),
    })
    .unwrap()
}

fn replication() -> Replication {
    let identity = Identity { worker: PeerId(1), boot: BootId(7), secret: [1; 32] };
    let keys = ClusterKeys::parse(&"5a".repeat(32)).unwrap();
    let options = StreamOptions { peers_max: 4, copies_max: 64, ..StreamOptions::default() };
    Replication::new(options, identity, Fingerprint::default(), keys, 2).unwrap()
}

fn add_shard() -> WorkerCommand {
    let id = SHARD;
    let endpoint: Ipv4Addr = ENDPOINT.parse().unwrap();
    WorkerCommand::AddShard(Box::new(ShardSetup {
        engine: weir_engine::ShardConfig {
            id,
            endpoint: Some(endpoint.to_bits()),
            endpoint6: None,
            subscribers: vec![],
        },
        nat: weir_nat::NatShardConfig {
            id,
            public: vec!["203.0.113.0/28".parse().unwrap()],
            public6: Vec::new(),
            subscribers_max: 256,
        },
        awaits_replicas: true,
    }))
}

impl Case {
    /// A worker whose gateways have answered.
    fn new(engine: Engine<VecFrame>, replication: Replication) -> Self {
        let steps = Steps::default();
        let link = Recorded::new(LocalLink::default(), &steps);
        let member = Box::new(ClusterMember::new(replication, link));
        let ports = Recorded::new(Rings::new(VecPool::new()), &steps);
        let mut case = Self { worker: Worker::new(engine, Some(member)), ports, now: START };
        case.worker.start(START, &mut case.ports);
        for side in Side::ALL {
            let (own, gateway) = (on_link(side, 1).to_bits(), on_link(side, 250).to_bits());
            let reply = Arp::reply(gateway_mac(side), gateway, mac(side), own);
            case.ports.inner.arrive(side, VecFrame::new(&build::arp(reply)));
        }
        case.turn(Duration::ZERO);
        assert!(case.worker.engine.admin().is_ready());
        case.sent(Side::Access);
        case.sent(Side::Internet);
        case
    }

    /// A worker that opens flows of a shard; a worker of another node is to have copies of it.
    fn serving(engine: Engine<VecFrame>, replication: Replication) -> Self {
        let mut case = Self::new(engine, replication);
        let address = SocketAddrV4::new(on_link(Side::Access, 2), PORT);
        let copy = CopyOrder {
            peer: PEER,
            boot: BootId(8),
            lanes: LaneSet::ALL,
            is_awaited: true,
            is_guest: false,
        };
        let duties = ShardDuties {
            serves_hits: true,
            lanes: LaneSet::ALL,
            misses: Misses::Create,
            copies: vec![copy],
            ..ShardDuties::none(SHARD)
        };
        let commands = [
            WorkerCommand::AddPeer { peer: PEER, address },
            add_shard(),
            WorkerCommand::Duties(Box::new(duties)),
        ];
        case.link().commands.extend(commands);
        while !case.link().commands.is_empty() {
            case.turn(Duration::from_millis(1));
        }
        case
    }

    fn link(&mut self) -> &mut LocalLink {
        &mut self.worker.member.as_mut().unwrap().link.inner
    }

    fn turn(&mut self, after: Duration) -> Turn {
        self.now += after;
        self.ports.inner.now = self.now;
        self.worker.turn(self.now, &mut self.ports)
    }

    fn steps(&mut self) -> Vec<&'static str> {
        self.ports.steps.take()
    }

    /// Receives a packet of the n-th flow of the homes.
    fn ask(&mut self, n: u16) {
        let inner = build::ipv4("192.168.1.10", "198.51.100.1").udp(10_000 + n, 443, b"request");
        let home = format!("10.200.0.{}", 1 + n % 16);
        let outer = build::ipv4(home.as_str(), ENDPOINT).gre(build::gre(), inner);
        let frame = build::ethernet(mac(Side::Access), gateway_mac(Side::Access), outer);
        self.ports.inner.arrive(Side::Access, VecFrame::new(&frame));
    }

    /// Returns how many IP packets were sent to a side since the last call.
    fn sent(&mut self, side: Side) -> usize {
        let frames = self.ports.inner.sent[side as usize].drain(..);
        frames.filter(|frame| frame.data()[12..14] == [8, 0]).count()
    }
}

#[test]
fn a_turn_takes_its_steps_in_order() {
    let mut case = Case::new(engine(), replication());
    let first = case.steps();
    let beat = first.iter().position(|step| *step == "beat").unwrap();
    assert_eq!(first[beat..], ["beat", "slot", "report", "timers"]);

    case.link().commands.push_back(add_shard());
    let turn = case.turn(Duration::from_millis(10));
    assert_eq!(turn, Turn { is_busy: true, ..Turn::default() });
    assert_eq!(case.link().events, [WorkerEvent::ShardAdded(SHARD)]);
    let ordered = [
        "fence",
        "receive internet",
        "receive access",
        "beat",
        "command",
        "event",
        "slot",
        "timers",
    ];
    assert_eq!(case.steps(), ordered);

    for side in Side::ALL {
        let (own, gateway) = (on_link(side, 1).to_bits(), on_link(side, 250).to_bits());
        let request = Arp::request(gateway_mac(side), gateway, own);
        case.ports.inner.arrive(side, VecFrame::new(&build::arp(request)));
    }
    let turn = case.turn(Duration::from_millis(1));
    assert_eq!(turn, Turn { packets: 2, ..Turn::default() });
    let both_ways = [
        "fence",
        "receive internet",
        "observe received",
        "receive access",
        "observe received",
        "beat",
        "timers",
        "observe sent",
        "send access",
        "observe sent",
        "send internet",
    ];
    assert_eq!(case.steps(), both_ways);
}

#[test]
fn a_turn_with_a_full_burst_of_one_side_is_full() {
    let mut case = Case::serving(engine(), replication());
    for packets in [BURST_MAX - 1, BURST_MAX, BURST_MAX + 1] {
        (0..packets).for_each(|_| case.ask(1));
        let turn = case.turn(Duration::from_millis(1));
        assert_eq!((turn.packets, turn.is_full), (packets.min(BURST_MAX), packets >= BURST_MAX));
    }
    let turn = case.turn(Duration::from_millis(1));
    assert_eq!((turn.packets, turn.is_full), (1, false));
}

#[test]
fn a_worker_on_its_own_skips_the_cluster_steps_of_its_turn() {
    let steps = Steps::default();
    let mut ports = Recorded::new(Rings::new(VecPool::new()), &steps);
    let mut worker = Worker::<_, Recorded<LocalLink>>::new(engine(), None);
    worker.start(START, &mut ports);
    steps.take();
    // A stall does not matter to it: no other worker serves its shards.
    assert_eq!(worker.turn(START + Duration::from_secs(9), &mut ports).discarded, 0);
    assert_eq!(steps.take()[..3], ["receive internet", "receive access", "timers"]);
}

#[test]
fn a_fenced_worker_forwards_waiting_packets_and_acknowledges_the_fence() {
    let mut case = Case::serving(engine(), replication());
    case.ask(1);
    case.turn(Duration::from_millis(1));
    assert_eq!(case.sent(Side::Internet), 1);
    // More packets of a known flow than a burst, and one that would open a flow.
    (0..70).for_each(|_| case.ask(1));
    case.ask(2);
    case.link().fence = 5;
    case.steps();
    let turn = case.turn(Duration::from_millis(1));
    assert_eq!((turn.late, turn.discarded, turn.packets), (71, 0, 0));
    assert_eq!(case.sent(Side::Internet), 70, "no flow begins");
    assert_eq!(case.link().rejoined.take(), Some((5, 71)));
    let steps = case.steps();
    let position = |wanted| steps.iter().position(|step| *step == wanted).unwrap();
    assert!(
        position("send internet") < position("rejoin") && position("rejoin") < position("beat")
    );
    case.ask(2);
    let turn = case.turn(Duration::from_millis(1));
    assert_eq!((turn.late, turn.packets), (0, 1));
    assert_eq!(case.sent(Side::Internet), 1);
    assert_eq!(case.link().rejoined, None, "the fence is acknowledged once");
}

#[test]
fn only_a_short_stall_lets_waiting_packets_with_a_mapping_pass() {
    let mut case = Case::serving(engine(), replication());
    case.ask(1);
    case.turn(Duration::from_millis(1));
    assert_eq!(case.sent(Side::Internet), 1);
    for (pause_ms, late, discarded, sent) in [(49, 0, 0, 2), (50, 2, 0, 1), (1_000, 2, 0, 1)] {
        case.ask(1);
        case.ask(100 + pause_ms);
        let turn = case.turn(Duration::from_millis(pause_ms.into()));
        assert_eq!((turn.late, turn.discarded), (late, discarded), "{pause_ms} ms");
        assert_eq!(case.sent(Side::Internet), sent, "{pause_ms} ms");
    }
    (0..70).for_each(|_| case.ask(1));
    let turn = case.turn(Duration::from_millis(1_001));
    assert_eq!((turn.late, turn.discarded, turn.packets), (0, 70, 0));
    assert_eq!(case.sent(Side::Internet), 0);
    case.ask(1);
    case.turn(Duration::from_millis(1));
    assert_eq!(case.sent(Side::Internet), 1, "new packets are forwarded again");
}

#[test]
fn let_go_sends_all_packets_that_wait_for_replicas() {
    let (mut engine, mut replication) = (engine(), replication());
    engine.setup().hold_uncommitted(CommitLimits {
        held_max: 4096,
        changes_max: 16_384,
        timeout_ms: 10_000,
        policy: Uncommitted::Release,
    });
    replication.await_replicas(CommitOptions {
        replicas: 1,
        is_strict: true,
        changes_max: 16_384,
        pace_us: 120,
    });
    let mut case = Case::serving(engine, replication);
    // More packets than one output has room for.
    let packets = weir_engine::OUTPUT_MAX + 100;
    for first in (0..packets).step_by(BURST_MAX) {
        (first..packets.min(first + BURST_MAX)).for_each(|n| case.ask(n as u16));
        assert!(case.turn(Duration::from_millis(1)).is_holding);
    }
    assert_eq!((case.sent(Side::Internet), case.worker.engine.held()), (0, packets));
    case.worker.let_go(case.now, &mut case.ports);
    assert_eq!((case.sent(Side::Internet), case.worker.engine.held()), (packets, 0));
}

#[test]
fn traced_packets_are_processed_alone_and_the_others_as_a_burst() {
    let mut case = Case::serving(engine(), replication());
    case.ports.traces_max = 2;
    (0..5).for_each(|n| case.ask(n));
    let turn = case.turn(Duration::from_millis(1));
    assert_eq!((turn.packets, case.sent(Side::Internet)), (5, 5));
    let homes = case.ports.traces.iter().map(|trace| trace.home.unwrap().ipv4().unwrap() & 0xff);
    assert_eq!(homes.collect::<Vec<_>>(), [1, 2]);
    assert!(case.ports.traces.iter().all(|trace| trace.outputs_total == 1));
    case.ask(5);
    case.turn(Duration::from_millis(1));
    assert_eq!((case.ports.traces.len(), case.sent(Side::Internet)), (2, 1));
}

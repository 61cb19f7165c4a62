//! Cost of the roles of a worker with 4,000 shards, in microseconds.
//!
//! `cargo bench -p weir-roles --bench roles`: the worker is primary of half of the shards, with
//! packets in every slot, and a replica of eight other workers in the other half. A slot has 10,000
//! us. Each figure is the best of some rounds.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};

use weir_map::{BootId, Incarnation, LaneSet, NodeId, ShardEntry, ShardId, Transition, WorkerId};
use weir_replication::command::ShardSetup;
use weir_replication::{PeerId, WorkerCommand, WorkerEvent};
use weir_roles::role::Role;
use weir_roles::{
    DesiredShard, LocalWorker, NodeWorker, Roles, RolesConfig, RolesInput, RolesOptions, SidesUp,
};
use weir_stream::{Fingerprint, PeerIndex, PeerSigns};

const SHARDS: u32 = 4_000;
const OTHERS: u16 = 8;
const ROUNDS: usize = 9;
const SLOTS: u32 = 200;

fn address(node: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1 + node as u8), 7473)
}

fn life(node: u16) -> Incarnation {
    let name = NodeId::new(&format!("n{node}")).expect("a name");
    let worker = WorkerId { node: name, index: 0 };
    Incarnation { worker, boot_id: BootId(1 + u128::from(node)) }
}

fn desired(id: u32) -> DesiredShard {
    let public = vec![Ipv4Addr::from(0xc612_0000 + id).into()];
    let engine = weir_engine::ShardConfig {
        id: ShardId(id),
        endpoint: Some(0x0a09_0000 + id),
        endpoint6: None,
        subscribers: vec![],
    };
    let nat = weir_nat::NatShardConfig {
        id: ShardId(id),
        public,
        public6: Vec::new(),
        subscribers_max: 100,
    };
    let access = Ipv4Addr::from(0x0a09_0000 + id);
    DesiredShard {
        id: ShardId(id),
        access,
        access6: None,
        setup: ShardSetup { engine, nat, awaits_replicas: false },
    }
}

/// A primary and a synced replica at rest: this worker is primary of the even shards.
fn entry(id: u32) -> ShardEntry {
    let other = life(1 + (id / 2) as u16 % OTHERS);
    let (primary, replica) = if id.is_multiple_of(2) { (life(0), other) } else { (other, life(0)) };
    let steps = [
        Transition::AddReplica(replica.clone()),
        Transition::Synced(replica.clone()),
        Transition::Settle { by: replica, lanes: LaneSet(0b10) },
    ];
    steps.iter().fold(ShardEntry::create(primary), |entry, step| {
        entry.after(entry.epoch(), step).expect("it applies")
    })
}

/// Takes the commands as they come out and answers those that let the roles begin.
fn answer(roles: &mut Roles, now_ms: u64) -> usize {
    let mut commands = 0;
    while let Some(command) = roles.next_command(0) {
        commands += 1;
        let event = match command {
            WorkerCommand::AddShard(setup) => WorkerEvent::ShardAdded(setup.nat.id),
            WorkerCommand::AddPeer { peer, .. } => {
                let node = (1..=OTHERS).find(|&node| PeerId::at(address(node)) == peer);
                let node = node.expect("one of the others");
                let boot = life(node).boot_id;
                WorkerEvent::PeerMet { peer, peer_index: PeerIndex(node), boot }
            }
            _ => continue,
        };
        roles.on(now_ms, RolesInput::Worker { worker: 0, event });
    }
    commands
}

/// Returns a worker at rest, and how long it took from nothing.
fn begin() -> (Roles, u64, Duration) {
    let worker = LocalWorker { boot_id: life(0).boot_id, replication: address(0), former: None };
    let mut roles = Roles::new(RolesConfig {
        node: life(0).worker.node,
        workers: vec![worker],
        known_epochs: Default::default(),
        options: RolesOptions::default(),
    });
    let shards = (1..=SHARDS).map(desired).collect();
    let entries: Vec<Box<ShardEntry>> = (1..=SHARDS).map(|id| Box::new(entry(id))).collect();
    let began = Instant::now();
    roles.on(0, RolesInput::Desired { shards, fingerprint: Fingerprint::default() });
    let sides = SidesUp { is_ready: true, is_access_up: true, is_internet_up: true };
    roles.on(0, RolesInput::Sides { worker: 0, sides });
    for node in 1..=OTHERS {
        register(&mut roles, 0, node);
    }
    for (id, entry) in (1..=SHARDS).zip(entries) {
        roles.on(0, RolesInput::Entry { shard: ShardId(id), entry });
        answer(&mut roles, 0);
    }
    for id in (1..=SHARDS).filter(|id| !id.is_multiple_of(2)) {
        roles.on(0, RolesInput::Worker { worker: 0, event: WorkerEvent::CopyDone(ShardId(id)) });
        let event = WorkerEvent::Announced { shard: ShardId(id), term: weir_map::Term(1) };
        roles.on(0, RolesInput::Worker { worker: 0, event });
    }
    let number = roles.routes_number(0);
    roles.on(0, RolesInput::RoutesOut { worker: 0, number });
    answer(&mut roles, 0);
    roles.on(0, RolesInput::Fresh);
    let took = began.elapsed();
    assert!(roles.take_changes(1).is_empty() && roles.has_settled(), "at rest");
    let mut now_ms = 0;
    for _ in 0..20 {
        slot(&mut roles, &mut now_ms, OTHERS, 0);
    }
    (roles, now_ms, took)
}

fn register(roles: &mut Roles, now_ms: u64, node: u16) {
    let life = life(node);
    let worker = NodeWorker { index: 0, boot_id: life.boot_id, replication: address(node) };
    roles.on(now_ms, RolesInput::Node { node: life.worker.node, workers: Some(vec![worker]) });
}

/// Plays one slot in which the first `present` other workers are heard, and packets come for this
/// worker's shards and those of the worker `lost`.
fn slot(roles: &mut Roles, now_ms: &mut u64, present: u16, lost: u16) -> Duration {
    *now_ms += 10;
    let is_lost = |id: u32| 1 + (id / 2) as u16 % OTHERS == lost;
    let shards =
        (1..=SHARDS).filter(|&id| id.is_multiple_of(2) || is_lost(id)).map(ShardId).collect();
    let began = Instant::now();
    for node in 1..=present {
        let peer_index = PeerIndex(node);
        let signs = PeerSigns { silent_ms: 3, seen_ms: Some(4), is_witness: true };
        roles.on(*now_ms, RolesInput::Heartbeats { worker: 0, peer_index, signs });
    }
    roles.on(*now_ms, RolesInput::Traffic { worker: 0, shards });
    roles.on(*now_ms, RolesInput::Tick);
    assert!(roles.take_changes(16).is_empty());
    began.elapsed()
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn main() {
    let mut quiet = f64::INFINITY;
    let mut start = f64::INFINITY;
    let mut node = f64::INFINITY;
    let mut failover = f64::INFINITY;
    for _ in 0..ROUNDS {
        let (mut roles, mut now_ms, took) = begin();
        start = start.min(micros(took));
        let slots: Duration = (0..SLOTS).map(|_| slot(&mut roles, &mut now_ms, OTHERS, 0)).sum();
        quiet = quiet.min(micros(slots) / f64::from(SLOTS));
        assert!(roles.next_command(0).is_none(), "nothing has happened");

        let began = Instant::now();
        let record = RolesInput::Node { node: life(3).worker.node, workers: None };
        roles.on(now_ms, record);
        node = node.min(micros(began.elapsed()));
        register(&mut roles, now_ms, 3);

        // The last worker falls silent; the longest of the slots until all of its shards are taken
        // over.
        let slots = (0..6).map(|_| {
            let took = slot(&mut roles, &mut now_ms, OTHERS - 1, OTHERS);
            let began = Instant::now();
            answer(&mut roles, now_ms);
            micros(took + began.elapsed())
        });
        failover = failover.min(slots.fold(0.0, f64::max));
        let acting = roles.statuses().filter(|status| status.role == Role::Acting).count();
        assert_eq!(acting, SHARDS as usize / 2 / usize::from(OTHERS));
    }
    println!("{SHARDS} shards from nothing              {start:10.1}");
    println!("a slot in which nothing happens     {quiet:10.1}");
    println!("a node's registration ends          {node:10.1}");
    println!("the longest slot of a failover      {failover:10.1}");
}

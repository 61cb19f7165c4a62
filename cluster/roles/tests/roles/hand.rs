//! One node, driven by hand: its inputs, and how a worker would answer.

pub(crate) use std::collections::BTreeMap;
use std::net::SocketAddrV4;

pub(crate) use weir_map::*;
pub(crate) use weir_replication::command::{CopyOrder, Misses, ShardDuties, WorkerCommand};
pub(crate) use weir_replication::{PeerId, WorkerEvent};
pub(crate) use weir_roles::role::{Metric, Role};
pub(crate) use weir_roles::*;
pub(crate) use weir_stream::{Fingerprint, PeerIndex, PeerSigns};

pub(crate) const SHARD: ShardId = ShardId(1);

/// The incarnation `boot_id` of the only worker of a node.
pub(crate) fn life(node: usize, boot_id: u128) -> Incarnation {
    let node = NodeId::new(&format!("n{node}")).expect("a name");
    Incarnation { worker: WorkerId { node, index: 0 }, boot_id: BootId(boot_id) }
}

/// The worker of the node under test, n0.
pub(crate) fn us() -> Incarnation {
    life(0, 1)
}

/// The worker of the other node, n1.
pub(crate) fn them() -> Incarnation {
    life(1, 2)
}

/// The address at which the only worker of a node is reached.
fn address(node: usize) -> SocketAddrV4 {
    SocketAddrV4::new([10, 0, node as u8, 1].into(), 7473)
}

pub(crate) fn peer(node: usize) -> PeerId {
    PeerId::at(address(node))
}

/// This many shards, each with an endpoint and a public address of its own.
pub(crate) fn desired(shards: u32) -> Vec<DesiredShard> {
    let shard = |id: u32| {
        let access = [10, 9, (id >> 8) as u8, id as u8].into();
        let public = vec![format!("198.18.{}.{}/32", id >> 8, id & 255).parse().expect("a prefix")];
        let engine = weir_engine::ShardConfig {
            id: ShardId(id),
            endpoint: Some(u32::from(access)),
            endpoint6: None,
            subscribers: Vec::new(),
        };
        let nat = weir_nat::NatShardConfig {
            id: ShardId(id),
            public,
            public6: Vec::new(),
            subscribers_max: 100,
        };
        let setup = weir_replication::command::ShardSetup { engine, nat, awaits_replicas: false };
        DesiredShard { id: ShardId(id), access, access6: None, setup }
    };
    (1..=shards).map(shard).collect()
}

pub(crate) fn after(entry: &ShardEntry, transition: Transition) -> ShardEntry {
    entry.after(entry.epoch(), &transition).expect("it applies")
}

/// n1 is primary, n0 copies.
pub(crate) fn copying() -> ShardEntry {
    after(&ShardEntry::create(them()), Transition::AddReplica(us()))
}

pub(crate) fn settled(entry: &ShardEntry, who: &Incarnation) -> ShardEntry {
    let (_, member) = entry.member(who).expect("a member");
    let is_mine = |lane: &usize| {
        let lane = entry.lanes()[*lane];
        lane.owner == member.slot && lane.moving.is_some()
    };
    let lanes = (0..LANES).filter(is_mine).fold(LaneSet::EMPTY, LaneSet::with);
    after(entry, Transition::Settle { by: who.clone(), lanes })
}

/// n1 is primary, n0 has a full copy and lane 1.
pub(crate) fn pair() -> ShardEntry {
    settled(&after(&copying(), Transition::Synced(us())), &us())
}

/// Heartbeats of a peer that reports which nodes it hears, while no node reports hearing its node.
pub(crate) fn signs(silent_ms: u64) -> PeerSigns {
    PeerSigns { silent_ms, seen_ms: None, is_witness: true }
}

pub(crate) struct Hand {
    pub(crate) roles: Roles,
    pub(crate) now_ms: u64,
    /// The newest duties.
    pub(crate) duties: Option<ShardDuties>,
    /// All other commands.
    pub(crate) commands: Vec<WorkerCommand>,
    pub(crate) has_room: bool,
}

impl Hand {
    pub(crate) fn new() -> Self {
        Self::with(RolesOptions::default(), &[])
    }

    pub(crate) fn with(options: RolesOptions, known_epochs: &[(ShardId, Epoch)]) -> Self {
        let worker = LocalWorker {
            boot_id: us().boot_id,
            replication: address(0),
            former: Some(life(0, 9).boot_id),
        };
        let roles = Roles::new(RolesConfig {
            node: us().worker.node,
            workers: vec![worker],
            known_epochs: known_epochs.iter().copied().collect(),
            options,
        });
        let mut hand =
            Self { roles, now_ms: 1_000, duties: None, commands: Vec::new(), has_room: true };
        let up = SidesUp { is_ready: true, is_access_up: true, is_internet_up: true };
        hand.on(RolesInput::Sides { worker: 0, sides: up });
        hand.desired(1);
        hand
    }

    /// Hands in an input, and answers the commands that follow as a worker would.
    pub(crate) fn on(&mut self, input: RolesInput) {
        self.roles.on(self.now_ms, input);
        while let Some(command) = self.roles.next_command(0) {
            match command {
                WorkerCommand::Duties(duties) => self.duties = Some(*duties),
                WorkerCommand::AddShard(_) if self.has_room => {
                    self.commands.push(command);
                    self.worker_event(WorkerEvent::ShardAdded(SHARD));
                }
                WorkerCommand::AddShard(_) => {
                    self.commands.push(command);
                    let why = "it is full".to_string();
                    self.worker_event(WorkerEvent::ShardRefused { shard: SHARD, why });
                }
                _ => self.commands.push(command),
            }
        }
    }

    pub(crate) fn worker_event(&mut self, event: WorkerEvent) {
        self.on(RolesInput::Worker { worker: 0, event });
    }

    pub(crate) fn entry(&mut self, entry: &ShardEntry) {
        self.on(RolesInput::Entry { shard: SHARD, entry: Box::new(entry.clone()) });
    }

    pub(crate) fn desired(&mut self, shards: u32) {
        let fingerprint = Fingerprint::default();
        self.on(RolesInput::Desired { shards: desired(shards), fingerprint });
    }

    pub(crate) fn registered(&mut self, node: usize, boot_id: u128) {
        let worker = NodeWorker { index: 0, boot_id: BootId(boot_id), replication: address(node) };
        let node = life(node, boot_id).worker.node;
        self.on(RolesInput::Node { node, workers: Some(vec![worker]) });
    }

    /// Sets up a session with an incarnation of a node, at the peer index of the node's number.
    pub(crate) fn met(&mut self, node: usize, boot_id: u128) {
        let (peer, peer_index) = (peer(node), PeerIndex(node as u16));
        self.worker_event(WorkerEvent::PeerMet { peer, peer_index, boot: BootId(boot_id) });
    }

    pub(crate) fn ticks(&mut self, ms: u64) {
        for _ in 0..ms / 10 {
            self.now_ms += 10;
            self.on(RolesInput::Tick);
        }
    }

    /// Reports that the kernel has the routes.
    pub(crate) fn routes_are_out(&mut self) {
        let number = self.roles.routes_number(0);
        self.on(RolesInput::RoutesOut { worker: 0, number });
    }

    pub(crate) fn duties(&self) -> &ShardDuties {
        self.duties.as_ref().expect("duties have been sent")
    }

    pub(crate) fn role(&self) -> Role {
        self.roles.statuses().next().map_or(Role::None, |status| status.role)
    }

    pub(crate) fn trouble(&self) -> Option<Trouble> {
        self.roles.statuses().next()?.trouble
    }

    pub(crate) fn metric(&self) -> Option<Metric> {
        self.roles.wanted_routes(0).first().map(|route| route.metric)
    }

    pub(crate) fn count(&self, is_it: impl Fn(&WorkerCommand) -> bool) -> usize {
        self.commands.iter().filter(|command| is_it(command)).count()
    }

    /// n0 as a replica with a full copy of what n1 wrote.
    pub(crate) fn synced() -> Self {
        let mut hand = Self::new();
        hand.registered(1, 2);
        hand.entry(&copying());
        hand.met(1, 2);
        hand.worker_event(WorkerEvent::CopyDone(SHARD));
        hand.entry(&pair());
        assert_eq!(hand.role(), Role::Synced);
        hand
    }
}

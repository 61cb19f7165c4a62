//! A worker with an engine and, in a cluster, its replication. The bench carries the datagrams
//! between workers.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use weir_engine::{
    AccessMode, CommitLimits, Engine, EngineConfig, FragmentLimits, MssClamp, ResourceLimits, Side,
    SideConfig, Uncommitted,
};
use weir_map::{Epoch, LANES, LaneSet};
use weir_nat::{NatConfig, ShardId, ShardRoom};
use weir_replication::CommitOptions;
use weir_replication::command::{CopyOrder, Misses, ShardDuties, ShardSetup};
use weir_replication::{PeerId, Replication, WorkerCommand, WorkerEvent};
use weir_stream::{BootId, ClusterKeys, Fingerprint, Identity, StreamOptions};
use weir_wire::arp::{self, Arp};
use weir_wire::build;
use weir_wire::ethernet::{Ethernet, Mac};
use weir_wire::frame::Frame;
use weir_worker::{ClusterMember, LocalLink, Rings};

use crate::frame::{BufferFrame, Buffers};

pub(crate) const BURST: usize = 64;
/// Sizes of the tables.
#[derive(Clone, Copy)]
pub(crate) struct Room {
    pub(crate) flows_max: u32,
    /// Homes of a shard, at most 4,096.
    pub(crate) homes: u32,
}

/// A group of workers, each with copies of all others' flows.
#[derive(Clone, Copy)]
pub(crate) struct Group {
    /// Number of workers; 1: a worker on its own.
    pub(crate) workers: u32,
    /// Packets wait until all copies have the changes that they depend on; changes go to a copy at
    /// most once per this many microseconds.
    pub(crate) commit_pace_us: Option<u64>,
    /// Flows are copied; otherwise the workers only hear each other.
    pub(crate) is_copied: bool,
}

impl Group {
    pub(crate) const ALONE: Self = Self { workers: 1, commit_pace_us: None, is_copied: true };
    pub(crate) const PAIR: Self = Self { workers: 2, commit_pace_us: None, is_copied: true };

    fn others(self, host: u32) -> impl Iterator<Item = u32> + Clone {
        (1..=self.workers).filter(move |&other| other != host)
    }

    /// Returns the lanes of a shard that a worker writes: one in reserve, or all that no other has.
    fn lanes(self, shard: u32, host: u32) -> LaneSet {
        let reserve = |host: u32| 1_u8 << self.others(shard).take_while(|&it| it != host).count();
        match shard == host {
            true => LaneSet(self.others(shard).fold(0xff, |lanes, other| lanes & !reserve(other))),
            false => LaneSet(reserve(host)),
        }
    }

    fn owner(self, shard: u32, lane: usize) -> u32 {
        let mut hosts = 1..=self.workers;
        hosts.find(|&host| self.lanes(shard, host).contains(lane)).expect("a lane has an owner")
    }
}

const CHANGES_MAX: usize = 16_384;

const PORT: u16 = 7473;
const GATEWAY: u32 = 250;

pub(crate) struct Worker {
    core: weir_worker::Worker<BufferFrame, LocalLink>,
    ports: Rings<Buffers>,
    host: u32,
}

fn address(side: Side, host: u32) -> u32 {
    u32::from_be_bytes([10, 1 + side as u8, 0, 0]) + host
}

pub(crate) fn mac(side: Side, host: u32) -> Mac {
    build::mac(10 * (1 + side as u8) + host as u8)
}

pub(crate) fn gateway_mac(side: Side) -> Mac {
    build::mac(100 + side as u8)
}

/// Returns the tunnel endpoint of a worker's own shard; `home` returns its n-th home.
pub(crate) fn endpoint(host: u32) -> u32 {
    u32::from_be_bytes([10, 100, 0, 0]) + host
}

pub(crate) fn home(host: u32, n: u32) -> u32 {
    u32::from_be_bytes([10, 200, 0, 0]) + (host << 12) + n
}

fn setup(host: u32, homes: u32) -> ShardSetup {
    let (id, public) = (ShardId(host), format!("203.0.{host}.0/24"));
    ShardSetup {
        engine: weir_engine::ShardConfig {
            id,
            endpoint: Some(endpoint(host)),
            endpoint6: None,
            subscribers: vec![],
        },
        nat: weir_nat::NatShardConfig {
            id,
            public: vec![public.parse().expect("a prefix")],
            public6: Vec::new(),
            subscribers_max: homes,
        },
        awaits_replicas: true,
    }
}

fn access(host: u32) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::from(address(Side::Access, host)), PORT)
}

fn peer_id(host: u32) -> PeerId {
    PeerId::at(access(host))
}

fn boot(host: u32) -> BootId {
    BootId(u128::from(host) << 64 | 7)
}

fn config(host: u32, group: Group, room: Room) -> EngineConfig {
    let (workers, is_replicated) = (group.workers, group.workers > 1);
    let side = |side: Side| SideConfig {
        mac: mac(side, host),
        address: format!("{}/24", Ipv4Addr::from(address(side, host))).parse().expect("a prefix"),
        gateways: vec![Ipv4Addr::from(address(side, GATEWAY))],
        gateway_macs: Vec::new(),
        ipv6: None,
        vlan: None,
        mtu: 1500,
    };
    let own = setup(host, room.homes);
    let (shards, nat_shards) =
        if is_replicated { (vec![], vec![]) } else { (vec![own.engine], vec![own.nat]) };
    EngineConfig {
        mode: AccessMode::Gre,
        access: side(Side::Access),
        internet: side(Side::Internet),
        mss_clamp: MssClamp::Auto,
        shards,
        nat: NatConfig {
            flows_max: room.flows_max,
            subscribers: vec!["10.200.0.0/16".parse().expect("a prefix")],
            shards: nat_shards,
            room: ShardRoom {
                shards: workers as u16,
                public_addresses: 256 * workers,
                subscribers: workers * room.homes,
            },
            replicas: workers as u8 - 1,
            seed: [1, 2, 3, u64::from(host)],
            ..NatConfig::default()
        },
        fragments: FragmentLimits { datagrams_max: 64, held_max: 64, ..FragmentLimits::default() },
        limits: ResourceLimits::default(),
        forward_source_routes: false,
        peers_max: workers as usize - 1,
        replication_port: is_replicated.then_some(PORT),
    }
}

impl Worker {
    /// Returns a worker of a group. Alone it has its own shard; with others it has most lanes of
    /// that and one of each of theirs.
    pub(crate) fn new(host: u32, group: Group, room: Room, now_us: u64) -> Self {
        let mut engine = Engine::new(config(host, group, room)).expect("a good configuration");
        let member = (group.workers > 1).then(|| {
            let replication = join(&mut engine, host, group, room.homes, now_us);
            Box::new(ClusterMember::new(replication, LocalLink::default()))
        });
        let core = weir_worker::Worker::new(engine, member);
        let mut worker = Self { core, ports: Rings::new(Buffers::default()), host };
        worker.core.start(Duration::from_micros(now_us), &mut worker.ports);
        worker.answer();
        worker.turn(now_us);
        worker.answer();
        worker.clear();
        assert!(worker.core.engine.admin().is_ready(), "the gateways have answered");
        worker
    }

    pub(crate) fn flows(&self) -> u32 {
        self.core.engine.nat().admin().gauges().flows
    }

    /// Takes the events that the worker has reported since the last call.
    pub(crate) fn take_events(&mut self) -> Vec<WorkerEvent> {
        let member = self.core.member.as_deref_mut().expect("the worker is one of a cluster");
        std::mem::take(&mut member.link.events)
    }

    pub(crate) fn arrive(&mut self, side: Side, frames: impl IntoIterator<Item = BufferFrame>) {
        frames.into_iter().for_each(|frame| self.ports.arrive(side, frame));
    }

    pub(crate) fn filled(&mut self, bytes: &[u8]) -> BufferFrame {
        self.ports.pool.filled(bytes)
    }

    /// Runs turns of the worker's loop until its ports have received everything: packets, and
    /// datagrams of other workers.
    pub(crate) fn turn(&mut self, now_us: u64) {
        loop {
            self.turn_once(now_us);
            if self.ports.is_empty() {
                break;
            }
        }
    }

    /// Runs one turn of the worker's loop, which receives a burst at most from each side.
    pub(crate) fn turn_once(&mut self, now_us: u64) {
        let now = Duration::from_micros(now_us);
        self.ports.now = now;
        self.core.turn(now, &mut self.ports);
    }

    /// Answers for all stations that the worker has asked for.
    pub(crate) fn answer(&mut self) {
        for side in Side::ALL {
            let sent = &mut self.ports.sent[side as usize];
            let requests: Vec<_> = sent.extract_if(.., |frame| is_arp(frame)).collect();
            for frame in requests {
                let answer = answer(side, self.host, frame.data());
                self.ports.pool.give_back(frame);
                if let Some(answer) = answer {
                    let answer = self.ports.pool.filled(&answer);
                    self.ports.arrive(side, answer);
                }
            }
        }
    }

    /// Returns the frames sent to a side, besides ARP requests once these are answered.
    pub(crate) fn sent(&self, side: Side) -> &[BufferFrame] {
        &self.ports.sent[side as usize]
    }

    pub(crate) fn take_sent(&mut self, side: Side) -> Vec<BufferFrame> {
        self.ports.sent[side as usize].drain(..).collect()
    }

    /// Takes the frames sent to other workers.
    pub(crate) fn take_datagrams(&mut self) -> Vec<BufferFrame> {
        let is_datagram =
            |frame: &mut BufferFrame| frame.data()[..6] != gateway_mac(Side::Access).0;
        self.ports.sent[Side::Access as usize].extract_if(.., is_datagram).collect()
    }

    pub(crate) fn give_back(&mut self, frame: BufferFrame) {
        self.ports.pool.give_back(frame);
    }

    /// Discards all sent frames.
    pub(crate) fn clear(&mut self) {
        for side in Side::ALL {
            self.take_sent(side).into_iter().for_each(|frame| self.give_back(frame));
        }
    }
}

fn is_arp(frame: &BufferFrame) -> bool {
    frame.data()[12..14] == [8, 6]
}

fn answer(side: Side, host: u32, request: &[u8]) -> Option<Vec<u8>> {
    let request = arp::parse(&request[Ethernet::LEN..]).ok()?;
    let target = request.target_ip.get();
    let other = target - address(side, 0);
    let of = if other == GATEWAY { gateway_mac(side) } else { mac(side, other) };
    let own = (mac(side, host), address(side, host));
    let is_asked = request.is_request() && !request.is_gratuitous();
    is_asked.then(|| build::arp(Arp::reply(of, target, own.0, own.1)))
}

fn join(
    engine: &mut Engine<BufferFrame>,
    host: u32,
    group: Group,
    homes: u32,
    now_us: u64,
) -> Replication {
    let identity = Identity { worker: peer_id(host), boot: boot(host), secret: [host as u8; 32] };
    let keys = ClusterKeys::parse(&"1f".repeat(32)).expect("a key");
    let peers_max = group.workers as u16 - 1;
    let mut options = StreamOptions { peers_max, copies_max: 256, ..StreamOptions::default() };
    if group.commit_pace_us.is_some() {
        options.acknowledge_us = 0;
    }
    let shards = group.workers as usize;
    let mut replication = Replication::new(options, identity, Fingerprint::default(), keys, shards)
        .expect("good options");
    if let Some(pace_us) = group.commit_pace_us {
        let policy = Uncommitted::Release;
        engine.setup().hold_uncommitted(CommitLimits {
            held_max: 4096,
            changes_max: CHANGES_MAX,
            timeout_ms: 100,
            policy,
        });
        replication.await_replicas(CommitOptions {
            replicas: usize::from(peers_max),
            is_strict: false,
            changes_max: CHANGES_MAX,
            pace_us,
        });
    }
    for other in group.others(host) {
        let (peer, address) = (peer_id(other), access(other));
        replication.obey(WorkerCommand::AddPeer { peer, address }, &mut engine.setup(), now_us);
    }
    for shard in 1..=group.workers {
        let setup = Box::new(setup(shard, homes));
        replication.obey(WorkerCommand::AddShard(setup), &mut engine.setup(), now_us);
        let lanes = group.lanes(shard, host);
        let is_source = |owner: &u32| group.is_copied && *owner != host;
        let source = |lane| Some(group.owner(shard, lane)).filter(is_source);
        let sources: [_; LANES] = std::array::from_fn(|lane| source(lane).map(peer_id));
        let copy = |other| CopyOrder {
            peer: peer_id(other),
            boot: boot(other),
            lanes,
            is_awaited: true,
            is_guest: false,
        };
        let duties = ShardDuties {
            shard: ShardId(shard),
            begins_empty: false,
            serves_hits: true,
            lanes,
            misses: Misses::Create,
            copies: group.others(host).filter(|_| group.is_copied).map(copy).collect(),
            sources,
            grants: vec![],
            announced: None,
            lanes_since: [Epoch(0); LANES],
        };
        replication.obey(WorkerCommand::Duties(Box::new(duties)), &mut engine.setup(), now_us);
    }
    replication
}

//! A worker with an engine and, in a cluster, its part in it. What goes between two workers is carried by the bench.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use weir_engine::{
    AccessMode, Engine, EngineConfig, FragmentLimits, MssClamp, Now, Output, Post, Side, SideConfig,
};
use weir_member::order::{CopyOrder, MissOrder, ShardDuties, ShardSetup};
use weir_member::{Order, PeerId, Replication};
use weir_nat::{NatConfig, ShardId, ShardRoom};
use weir_replica::{BootId, ClusterKeys, Fingerprint, Identity, Options, Transmit};
use weir_shard::{LANES, LaneSet};
use weir_wire::arp::Arp;
use weir_wire::build;
use weir_wire::ethernet::Mac;

use crate::frame::{BufferFrame, Buffers};

pub(crate) const BURST: usize = 64;
/// How large the tables are.
#[derive(Clone, Copy)]
pub(crate) struct Room {
    pub(crate) flows_max: u32,
    /// Homes of a shard, at most 4,096.
    pub(crate) homes: u32,
}

const PORT: u16 = 7473;
const GATEWAY: u32 = 250;

/// The way out for datagrams.
struct Exit<'a> {
    post: Post<'a>,
    pool: &'a mut Buffers,
    out: &'a mut Output<BufferFrame>,
}

impl Transmit for Exit<'_> {
    fn send(&mut self, to: SocketAddr, datagram: &[u8]) -> bool {
        let SocketAddr::V4(to) = to else { return false };
        self.post.send(to, datagram, self.pool, self.out)
    }
}

pub(crate) struct Worker {
    pub(crate) engine: Engine<BufferFrame>,
    pub(crate) replication: Option<Replication>,
    pub(crate) pool: Buffers,
    pub(crate) out: Output<BufferFrame>,
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

/// The tunnel endpoint of a worker's own shard, and its n-th home.
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
            subscribers: vec![],
        },
        nat: weir_nat::ShardConfig {
            id,
            public: vec![public.parse().expect("a prefix")],
            subscribers_max: homes,
        },
    }
}

fn access(host: u32) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::from(address(Side::Access, host)), PORT)
}

fn peer_id(host: u32) -> PeerId {
    let access = access(host);
    weir_replica::WorkerId(u64::from(u32::from(*access.ip())) << 16 | u64::from(PORT))
}

fn boot(host: u32) -> BootId {
    BootId(u128::from(host) << 64 | 7)
}

fn config(host: u32, is_replicated: bool, room: Room) -> EngineConfig {
    let side = |side: Side| SideConfig {
        mac: mac(side, host),
        address: format!("{}/24", Ipv4Addr::from(address(side, host))).parse().expect("a prefix"),
        gateways: vec![Ipv4Addr::from(address(side, GATEWAY))],
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
            room: ShardRoom { shards: 2, public_addresses: 512, subscribers: 2 * room.homes },
            replicas: u8::from(is_replicated),
            seed: [1, 2, 3, u64::from(host)],
            ..NatConfig::default()
        },
        fragments: FragmentLimits { datagrams_max: 64, held_max: 64, ..FragmentLimits::default() },
        peers_max: usize::from(is_replicated),
        replication_port: is_replicated.then_some(PORT),
    }
}

impl Worker {
    /// Worker 1 or 2. Alone it has its own shard; in a cluster it has seven lanes of that and one of the other's.
    pub(crate) fn new(host: u32, is_replicated: bool, room: Room, now_us: u64) -> Self {
        let mut worker = Self {
            engine: Engine::new(config(host, is_replicated, room)).expect("a good configuration"),
            replication: None,
            pool: Buffers::default(),
            out: Output::new(),
        };
        let now = Now { ms: now_us / 1000 };
        worker.engine.start(now, &mut worker.pool, &mut worker.out);
        for side in Side::ALL {
            let to = (mac(side, host), address(side, host));
            let reply = Arp::reply(gateway_mac(side), address(side, GATEWAY), to.0, to.1);
            worker.receive(side, &build::arp(reply), now_us);
        }
        if is_replicated {
            worker.join(host, room.homes, now_us);
            // As the other would answer.
            let (other, side) = (3 - host, Side::Access);
            let to = (mac(side, host), address(side, host));
            worker.engine.tick(now, &mut worker.pool, &mut worker.out);
            let reply = Arp::reply(mac(side, other), address(side, other), to.0, to.1);
            worker.receive(side, &build::arp(reply), now_us);
        }
        worker.out.access.clear();
        worker.out.internet.clear();
        assert!(worker.engine.is_ready(), "the gateways have answered");
        worker
    }

    fn receive(&mut self, side: Side, frame: &[u8], now_us: u64) {
        let mut frames = vec![self.pool.filled(frame)];
        let now = Now { ms: now_us / 1000 };
        self.engine.receive(side, now, &mut frames, &mut self.pool, &mut self.out);
    }

    fn join(&mut self, host: u32, homes: u32, now_us: u64) {
        let other = 3 - host;
        let identity =
            Identity { worker: peer_id(host), boot: boot(host), secret: [host as u8; 32] };
        let keys = ClusterKeys::parse(&"1f".repeat(32), 0o600, 0, 0).expect("a key");
        let options = Options { peers_max: 1, copies_max: 64, ..Options::default() };
        let mut replication = Replication::new(options, identity, Fingerprint::default(), keys, 2)
            .expect("good options");
        let (peer, address) = (peer_id(other), access(other));
        replication.obey(Order::AddPeer { peer, address }, &mut self.engine, now_us);
        for shard in [1, 2] {
            let setup = Box::new(setup(shard, homes));
            replication.obey(Order::AddShard(setup), &mut self.engine, now_us);
            // The first lane is the replica's.
            let lanes = LaneSet(if shard == host { 0xfe } else { 0x01 });
            let mut sources = [Some(peer); LANES];
            lanes.iter().for_each(|lane| sources[lane] = None);
            let duties = ShardDuties {
                shard: weir_shard::ShardId(shard),
                serves_hits: true,
                lanes,
                misses: MissOrder::Create,
                copies: vec![CopyOrder { peer, boot: boot(other), lanes }],
                sources,
                grants: vec![],
                announced: None,
            };
            replication.obey(Order::Duties(Box::new(duties)), &mut self.engine, now_us);
        }
        self.replication = Some(replication);
    }

    /// A turn of the worker's loop: packets of homes or of the internet, then what came from the other worker. Leaves what
    /// is for it in `out.access`, if the packets were from homes.
    pub(crate) fn turn(
        &mut self,
        side: Side,
        packets: &mut Vec<BufferFrame>,
        from_other: &mut Vec<BufferFrame>,
        now_us: u64,
    ) {
        let Self { engine, replication, pool, out } = self;
        let now = Now { ms: now_us / 1000 };
        engine.receive(side, now, packets, pool, out);
        let Some(replication) = replication else { return };
        if !from_other.is_empty() {
            engine.receive(Side::Access, now, from_other, pool, out);
        }
        while let Some((from, mut frame)) = engine.take_datagram() {
            let datagram = weir_wire::frame::Frame::data_mut(&mut frame);
            let _ = replication.receive(from, datagram, now_us, engine.nat_mut());
            pool.give_back(frame);
        }
        let (nat, post) = engine.nat_and_post();
        replication.poll(now_us, nat, &mut Exit { post, pool, out });
    }
}

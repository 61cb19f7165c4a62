//! A worker of a cluster with its engine: packets in, packets out, datagrams over a network in virtual time.

use std::net::{Ipv4Addr, SocketAddrV4};

use weir_engine::{
    AccessMode, CommitLimits, Engine, EngineConfig, FragmentLimits, Limits, MssClamp, Now, Output,
    Side, SideConfig,
};
use weir_member::order::{CopyOrder, Misses, ShardDuties, ShardSetup};
use weir_member::replication::CommitOptions;
use weir_member::{Order, PeerId, Replication};
use weir_nat::{NatConfig, ShardId, ShardRoom};
use weir_replica::{BootId, ClusterKeys, Fingerprint, Identity, Options};
use weir_shard::{LANES, LaneSet};
use weir_wire::arp::Arp;
use weir_wire::build;
use weir_wire::ethernet::Mac;
use weir_wire::frame::{VecFrame, VecPool};

use crate::network::Network;

pub(crate) const SHARD: u32 = 3;
pub(crate) const ENDPOINT: u32 = u32::from_be_bytes([10, 100, 0, 1]);
const PORT: u16 = 7473;
const GATEWAY: u8 = 250;

pub(crate) struct Member {
    pub(crate) engine: Engine<VecFrame>,
    pub(crate) replication: Replication,
    number: usize,
    pool: VecPool,
    out: Output<VecFrame>,
}

/// How a cluster commits; none: it does not wait.
pub(crate) type Commit = Option<(CommitLimits, CommitOptions)>;

pub(crate) fn address(member: usize) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 1, 0, 1 + member as u8), PORT)
}

fn peer_id(member: usize) -> PeerId {
    PeerId::at(address(member))
}

fn boot(member: usize) -> BootId {
    BootId(7 << 64 | member as u128)
}

fn own_mac(side: Side) -> Mac {
    build::mac(1 + side as u8)
}

fn gateway_mac(side: Side) -> Mac {
    build::mac(11 + side as u8)
}

fn on_link(side: Side, host: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 1 + side as u8, 0, host)
}

fn config(member: usize, seed: u64) -> EngineConfig {
    let side = |side: Side| SideConfig {
        mac: own_mac(side),
        address: format!("{}/24", on_link(side, 1 + member as u8)).parse().unwrap(),
        gateways: vec![on_link(side, GATEWAY)],
        gateway_macs: Vec::new(),
        vlan: None,
        mtu: 1500,
    };
    EngineConfig {
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
            replicas: 4,
            seed: [seed, 2, 3, member as u64],
            ..NatConfig::default()
        },
        fragments: FragmentLimits { datagrams_max: 64, held_max: 64, ..FragmentLimits::default() },
        limits: Limits::default(),
        forward_source_routes: false,
        peers_max: 4,
        replication_port: Some(PORT),
    }
}

fn setup() -> ShardSetup {
    let id = ShardId(SHARD);
    let public = vec!["203.0.113.0/28".parse().unwrap()];
    ShardSetup {
        engine: weir_engine::ShardConfig { id, endpoint: Some(ENDPOINT), subscribers: vec![] },
        nat: weir_nat::ShardConfig { id, public, subscribers_max: 256 },
        awaits_replicas: true,
    }
}

/// The first member has all lanes but one for each of the others.
fn owner(lane: usize, members: usize) -> usize {
    if lane + 1 < members { lane + 1 } else { 0 }
}

fn lanes_of(member: usize, members: usize) -> LaneSet {
    let own = (0..LANES).filter(|&lane| owner(lane, members) == member);
    own.fold(LaneSet::EMPTY, LaneSet::with)
}

impl Member {
    /// One of so many, which knows the others and no shard yet.
    pub(crate) fn new(
        number: usize,
        members: usize,
        commit: Commit,
        network: &mut Network,
        now_us: u64,
    ) -> Self {
        let mut engine = Engine::new(config(number, network.random.next())).unwrap();
        let mut secret = [0; 32];
        secret[..8].copy_from_slice(&network.random.next().to_be_bytes());
        let identity = Identity { worker: peer_id(number), boot: boot(number), secret };
        let keys = ClusterKeys::parse(&"5a".repeat(32)).unwrap();
        let options =
            Options { peers_max: 4, copies_max: 64, acknowledge_us: 0, ..Options::default() };
        let mut replication =
            Replication::new(options, identity, Fingerprint::default(), keys, 2).unwrap();
        if let Some((limits, options)) = commit {
            engine.hold_uncommitted(limits);
            replication.await_replicas(options);
        }
        let (pool, out) = (VecPool::new(), Output::new());
        let mut member = Self { engine, replication, number, pool, out };
        member.start(now_us);
        for other in (0..members).filter(|&other| other != number) {
            let (peer, address) = (peer_id(other), address(other));
            member.order(Order::AddPeer { peer, address }, now_us);
        }
        member
    }

    /// It gets the shard, as one of so many that have it.
    pub(crate) fn join(&mut self, members: usize, now_us: u64) {
        self.order(Order::AddShard(Box::new(setup())), now_us);
        self.serve(members, false, now_us);
    }

    /// It does what it does for the shard, while the others stay or leave it.
    pub(crate) fn serve(&mut self, members: usize, is_leaving: bool, now_us: u64) {
        let number = self.number;
        let others = (0..members).filter(|&other| other != number);
        let lanes = lanes_of(number, members);
        let copies = others.map(|other| {
            let (peer, boot) = (peer_id(other), boot(other));
            CopyOrder { peer, boot, lanes, is_leaving }
        });
        let source = |lane| Some(owner(lane, members)).filter(|&owner| owner != number);
        let duties = ShardDuties {
            serves_hits: true,
            lanes,
            misses: Misses::Create,
            copies: copies.collect(),
            sources: std::array::from_fn(|lane| source(lane).map(peer_id)),
            ..ShardDuties::none(ShardId(SHARD))
        };
        self.order(Order::Duties(Box::new(duties)), now_us);
    }

    /// It keeps its lanes, and nobody has copies any more.
    pub(crate) fn be_alone(&mut self, members: usize, now_us: u64) {
        let duties = ShardDuties {
            serves_hits: true,
            lanes: lanes_of(self.number, members),
            misses: Misses::Create,
            ..ShardDuties::none(ShardId(SHARD))
        };
        self.order(Order::Duties(Box::new(duties)), now_us);
    }

    fn start(&mut self, now_us: u64) {
        self.engine.start(Now { ms: now_us / 1000 }, &mut self.pool, &mut self.out);
        for side in Side::ALL {
            let own = on_link(side, 1 + self.number as u8).to_bits();
            let gateway = on_link(side, GATEWAY).to_bits();
            let reply = Arp::reply(gateway_mac(side), gateway, own_mac(side), own);
            self.frames(side, [build::arp(reply)], now_us);
        }
        assert!(self.engine.is_ready());
        self.sent();
    }

    fn order(&mut self, order: Order, now_us: u64) {
        self.replication.obey(order, &mut self.engine, now_us);
    }

    fn frames(&mut self, side: Side, frames: impl IntoIterator<Item = Vec<u8>>, now_us: u64) {
        let mut frames = frames.into_iter().map(|frame| VecFrame::new(&frame)).collect();
        let now = Now { ms: now_us / 1000 };
        self.engine.receive(side, now, &mut frames, &mut self.pool, &mut self.out);
    }

    /// Packets of one side, from its gateway.
    pub(crate) fn packets(&mut self, side: Side, packets: Vec<Vec<u8>>, now_us: u64) {
        let frame = |packet| build::ethernet(own_mac(side), gateway_mac(side), packet);
        self.frames(side, packets.into_iter().map(frame), now_us);
    }

    pub(crate) fn datagram(&mut self, from: SocketAddrV4, bytes: &mut [u8], now_us: u64) {
        let _ = self.replication.receive(from, bytes, now_us, self.engine.nat_mut());
    }

    /// The end of a turn.
    pub(crate) fn poll(&mut self, network: &mut Network, now_us: u64) {
        let mut port = network.port(address(self.number), now_us);
        self.replication.poll(now_us, self.engine.nat_mut(), &mut port);
        let committed = self.replication.committed(now_us, self.engine.nat());
        let now = Now { ms: now_us / 1000 };
        self.engine.release_committed(committed, now, &mut self.out);
        self.engine.tick(now, &mut self.pool, &mut self.out);
        while self.replication.next_news().is_some() {}
    }

    /// IP packets that have left, those to homes without their tunnel: of the access side, of the internet side.
    pub(crate) fn sent(&mut self) -> [Vec<Vec<u8>>; 2] {
        let Output { access, internet } = &mut self.out;
        let ip = |frame: VecFrame| {
            let bytes = weir_wire::frame::Frame::data(&frame).to_vec();
            (bytes[12..14] == [8, 0]).then(|| bytes[14..].to_vec())
        };
        let inner = |packet: Vec<u8>| (packet[9] == 47).then(|| packet[24..].to_vec());
        let access = access.drain(..).filter_map(ip).filter_map(inner).collect();
        [access, internet.drain(..).filter_map(ip).collect()]
    }

    /// Every lane of ours is complete at all others, and theirs here.
    pub(crate) fn is_whole(&self, members: usize) -> bool {
        let status = self.replication.status(0);
        let wanted = lanes_of(self.number, members).iter().count() * (members - 1);
        status.outgoing.synced == wanted
            && status.lanes_awaited > 0
            && status.lanes_followed == status.lanes_awaited
    }
}

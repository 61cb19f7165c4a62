//! A worker of a cluster with its engine: packets in, packets out, datagrams over a network in virtual time.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use weir_engine::{
    AccessMode, CommitLimits, Engine, EngineConfig, FragmentLimits, Limits, MssClamp, Side,
    SideConfig,
};
use weir_member::order::{CopyOrder, Misses, ShardDuties, ShardSetup};
use weir_member::replication::CommitOptions;
use weir_member::{Order, PeerId, Replication};
use weir_nat::{NatConfig, ShardId, ShardRoom};
use weir_replica::{BootId, ClusterKeys, Fingerprint, Identity, Options, Transmit};
use weir_shard::{LANES, LaneSet};
use weir_wire::arp::{self, Arp};
use weir_wire::build;
use weir_wire::ethernet::{self, ETHERTYPE_ARP, Ethernet, Mac};
use weir_wire::frame::{Frame, VecFrame, VecPool};
use weir_wire::ipv4::{self, Ipv4, PROTOCOL_UDP};
use weir_wire::udp::Udp;
use weir_worker::{LocalLink, Rings, Worker};

use crate::network::Network;

pub(crate) const SHARD: u32 = 3;
pub(crate) const ENDPOINT: u32 = u32::from_be_bytes([10, 100, 0, 1]);
const PORT: u16 = 7473;
const GATEWAY: u8 = 250;

pub(crate) struct Member {
    worker: Worker<VecFrame, LocalLink>,
    ports: Rings<VecPool>,
    number: usize,
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

fn mac(member: usize, side: Side) -> Mac {
    build::mac(10 * (1 + side as u8) + member as u8)
}

fn gateway_mac(side: Side) -> Mac {
    build::mac(100 + side as u8)
}

/// Whoever has an address of a link.
fn neighbor(side: Side, address: u32) -> Mac {
    match address as u8 {
        GATEWAY => gateway_mac(side),
        host => mac(usize::from(host) - 1, side),
    }
}

fn on_link(side: Side, host: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 1 + side as u8, 0, host)
}

fn config(member: usize, seed: u64) -> EngineConfig {
    let side = |side: Side| SideConfig {
        mac: mac(member, side),
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
        let part = weir_worker::Member::new(replication, LocalLink::default());
        let worker = Worker::new(engine, Some(Box::new(part)));
        let mut member = Self { worker, ports: Rings::new(VecPool::new()), number };
        member.start(network, now_us);
        for other in (0..members).filter(|&other| other != number) {
            let (peer, address) = (peer_id(other), address(other));
            member.order(Order::AddPeer { peer, address });
        }
        member
    }

    pub(crate) fn engine(&mut self) -> &mut Engine<VecFrame> {
        &mut self.worker.engine
    }

    fn part(&self) -> &weir_worker::Member<LocalLink> {
        self.worker.member.as_deref().expect("it is one of a cluster")
    }

    pub(crate) fn replication(&self) -> &Replication {
        &self.part().replication
    }

    /// How much of its journal may leave, and how much there is.
    pub(crate) fn committed(&mut self, now_us: u64) -> (u64, u64) {
        let Worker { engine, member, .. } = &mut self.worker;
        let part = member.as_deref_mut().expect("it is one of a cluster");
        let committed = part.replication.committed(now_us, engine.nat());
        (committed, engine.nat().journal_taken())
    }

    /// It gets the shard, as one of so many that have it.
    pub(crate) fn join(&mut self, members: usize) {
        self.order(Order::AddShard(Box::new(setup())));
        self.serve(members, false);
    }

    /// It does what it does for the shard, while the others stay or leave it.
    pub(crate) fn serve(&mut self, members: usize, is_leaving: bool) {
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
        self.order(Order::Duties(Box::new(duties)));
    }

    /// It keeps its lanes, and nobody has copies any more.
    pub(crate) fn be_alone(&mut self, members: usize) {
        let duties = ShardDuties {
            serves_hits: true,
            lanes: lanes_of(self.number, members),
            misses: Misses::Create,
            ..ShardDuties::none(ShardId(SHARD))
        };
        self.order(Order::Duties(Box::new(duties)));
    }

    fn start(&mut self, network: &mut Network, now_us: u64) {
        self.worker.start(Duration::from_micros(now_us), &mut self.ports);
        // Its requests go out, and the answers come in.
        self.deliver(network, now_us);
        self.turn(network, now_us);
        assert!(self.worker.engine.is_ready());
        self.sent();
    }

    /// Obeyed in the next turn, after packets that wait.
    fn order(&mut self, order: Order) {
        let part = self.worker.member.as_deref_mut().expect("it is one of a cluster");
        part.link.orders.push_back(order);
    }

    /// Packets of one side, from its gateway, for the next turn.
    pub(crate) fn packets(&mut self, side: Side, packets: Vec<Vec<u8>>) {
        for packet in packets {
            let frame = build::ethernet(mac(self.number, side), gateway_mac(side), packet);
            self.ports.arrive(side, VecFrame::new(&frame));
        }
    }

    /// A datagram of another worker, for the next turn.
    pub(crate) fn datagram(&mut self, from: SocketAddrV4, bytes: &[u8]) {
        let to = address(self.number).ip().to_bits();
        let packet = build::ipv4(from.ip().to_bits(), to).udp(PORT, PORT, bytes);
        let source = neighbor(Side::Access, from.ip().to_bits());
        let frame = build::ethernet(mac(self.number, Side::Access), source, packet);
        self.ports.arrive(Side::Access, VecFrame::new(&frame));
    }

    pub(crate) fn turn(&mut self, network: &mut Network, now_us: u64) {
        self.work(now_us);
        self.deliver(network, now_us);
    }

    /// The turn of the worker alone.
    pub(crate) fn work(&mut self, now_us: u64) {
        let now = Duration::from_micros(now_us);
        self.ports.now = now;
        self.worker.turn(now, &mut self.ports);
    }

    /// Gives the network the datagrams that were sent, and answers for all neighbours.
    pub(crate) fn deliver(&mut self, network: &mut Network, now_us: u64) {
        for side in Side::ALL {
            let sent = std::mem::take(&mut self.ports.sent[side as usize]);
            let (links, rest): (Vec<_>, Vec<_>) = sent.into_iter().partition(is_arp_or_datagram);
            self.ports.sent[side as usize].extend(rest);
            for frame in links {
                let payload = &frame.data()[Ethernet::LEN..];
                if is_arp(&frame) {
                    self.answer(side, arp::parse(payload).expect("an ARP message"));
                } else {
                    let (ip, ..) = ipv4::parse(payload).expect("an IPv4 packet");
                    let to = SocketAddrV4::new(ip.destination.get().into(), PORT);
                    let datagram = &payload[Ipv4::LEN + Udp::LEN..];
                    network.port(address(self.number), now_us).send(to.into(), datagram);
                }
            }
        }
        let part = self.worker.member.as_deref_mut().expect("it is one of a cluster");
        part.link.news.clear();
    }

    fn answer(&mut self, side: Side, request: &Arp) {
        let target = request.target_ip.get();
        if !request.is_request() || request.is_gratuitous() {
            return;
        }
        let (asker, address) = (mac(self.number, side), request.sender_ip.get());
        let reply = Arp::reply(neighbor(side, target), target, asker, address);
        self.ports.arrive(side, VecFrame::new(&build::arp(reply)));
    }

    /// IP packets that have left, those to homes without their tunnel: of the access side, of the internet side.
    pub(crate) fn sent(&mut self) -> [Vec<Vec<u8>>; 2] {
        let ip = |frame: VecFrame| frame.data()[Ethernet::LEN..].to_vec();
        let [access, internet] = &mut self.ports.sent;
        let homes = access.drain(..).map(ip).map(|packet| packet[24..].to_vec()).collect();
        [homes, internet.drain(..).map(ip).collect()]
    }

    /// Every lane of ours is complete at all others, and theirs here.
    pub(crate) fn is_whole(&self, members: usize) -> bool {
        let status = self.replication().status(0);
        let wanted = lanes_of(self.number, members).iter().count() * (members - 1);
        status.outgoing.synced == wanted
            && status.lanes_awaited > 0
            && status.lanes_followed == status.lanes_awaited
    }
}

fn is_arp(frame: &VecFrame) -> bool {
    let header = ethernet::parse(frame.data()).expect("an Ethernet header");
    header.ethertype.get() == ETHERTYPE_ARP
}

/// Whether a frame concerns the link, or is for another worker.
fn is_arp_or_datagram(frame: &VecFrame) -> bool {
    let header = ethernet::parse(frame.data()).expect("an Ethernet header");
    let is_udp = frame.data()[Ethernet::LEN + 9] == PROTOCOL_UDP;
    is_arp(frame) || is_udp && header.destination != gateway_mac(Side::Internet)
}

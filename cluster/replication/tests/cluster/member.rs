//! One incarnation of a worker in a cluster: packets in, packets out, datagrams over a network in
//! virtual time.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use weir_engine::{
    AccessMode, CommitLimits, Direction, DropReason, Engine, EngineConfig, FragmentLimits,
    MssClamp, ResourceLimits, Side, SideConfig,
};
use weir_map::ShardId;
use weir_nat::{NatConfig, PageCursor, SessionFilter, SessionView, ShardRoom};
use weir_replication::command::ShardSetup;
use weir_replication::{CommitOptions, ReplicationReport};
use weir_replication::{PeerId, Replication, WorkerCommand, WorkerEvent};
use weir_stream::{
    BootId, ClusterKeys, DatagramRefusal, Fingerprint, Identity, Received, StreamOptions, Transmit,
};
use weir_wire::arp::{self, Arp};
use weir_wire::build;
use weir_wire::ethernet::{self, ETHERTYPE_ARP, Ethernet, Mac};
use weir_wire::frame::{Frame, Pool, VecFrame, VecPool};
use weir_wire::ipv4::{self, Ipv4, PROTOCOL_UDP};
use weir_wire::udp::Udp;
use weir_worker::{LocalLink, Rings, Worker};

use crate::network::Network;

pub(crate) const SHARD: u32 = 3;
/// Tunnel endpoint of the shard.
pub(crate) const ENDPOINT: u32 = u32::from_be_bytes([10, 100, 0, SHARD as u8]);
pub(crate) const HOMES: u32 = u32::from_be_bytes([10, 200, 0, 1]);
pub(crate) const INSIDE: u32 = u32::from_be_bytes([192, 168, 1, 10]);
pub(crate) const SERVERS: u32 = u32::from_be_bytes([198, 51, 100, 1]);
const PORT: u16 = 7473;
const GATEWAY: u8 = 250;
/// Workers with room for more shards than this have one address and few homes for each.
const FEW: u16 = 8;
/// Frames in a worker's hands at once, at most.
const FRAMES_MAX: usize = 1024;

/// Settings of output commit; None: packets do not wait.
pub(crate) type Commit = Option<(CommitLimits, CommitOptions)>;

/// Settings of a worker.
#[derive(Clone)]
pub(crate) struct Make {
    pub(crate) flows_max: u32,
    pub(crate) shards_max: u16,
    pub(crate) options: StreamOptions,
    pub(crate) commit: Commit,
}

/// A flow of a home: its outer address, its port, and the public endpoint that it got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Flow {
    pub(crate) outer: u32,
    pub(crate) inside_port: u16,
    pub(crate) public: (u32, u16),
}

pub(crate) struct Member {
    pub(crate) boot: BootId,
    /// All events that the worker has reported.
    pub(crate) events: Vec<WorkerEvent>,
    worker: Worker<VecFrame, LocalLink>,
    pub(crate) number: usize,
    ports: Rings<VecPool>,
}

pub(crate) fn address(member: usize) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 1, 0, 1 + member as u8), PORT)
}

pub(crate) fn peer_id(member: usize) -> PeerId {
    PeerId::at(address(member))
}

pub(crate) fn keys() -> ClusterKeys {
    ClusterKeys::parse(&"5a".repeat(32)).unwrap()
}

fn mac(member: usize, side: Side) -> Mac {
    build::mac(10 * (1 + side as u8) + member as u8)
}

fn gateway_mac(side: Side) -> Mac {
    build::mac(100 + side as u8)
}

/// Returns the station that has an address of a link.
fn neighbor(side: Side, address: u32) -> Mac {
    match address as u8 {
        GATEWAY => gateway_mac(side),
        host => mac(usize::from(host) - 1, side),
    }
}

fn on_link(side: Side, host: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 1 + side as u8, 0, host)
}

fn config(number: usize, seed: u64, make: &Make) -> EngineConfig {
    let side = |side: Side| SideConfig {
        mac: mac(number, side),
        address: format!("{}/24", on_link(side, 1 + number as u8)).parse().unwrap(),
        gateways: vec![on_link(side, GATEWAY)],
        gateway_macs: Vec::new(),
        ipv6: None,
        vlan: None,
        mtu: 1500,
    };
    let (addresses, homes) = if make.shards_max > FEW { (1, 4) } else { (16, 256) };
    let shards = u32::from(make.shards_max);
    EngineConfig {
        mode: AccessMode::Gre,
        access: side(Side::Access),
        internet: side(Side::Internet),
        mss_clamp: MssClamp::Auto,
        shards: vec![],
        nat: NatConfig {
            flows_max: make.flows_max,
            subscribers: vec!["10.200.0.0/16".parse().unwrap()],
            room: ShardRoom {
                shards: make.shards_max,
                public_addresses: addresses * shards,
                subscribers: homes * shards,
            },
            port_block: 64,
            replicas: 4,
            seed: [seed, 2, 3, number as u64],
            ..NatConfig::default()
        },
        fragments: FragmentLimits { datagrams_max: 64, held_max: 64, ..FragmentLimits::default() },
        limits: ResourceLimits::default(),
        forward_source_routes: false,
        peers_max: 4,
        replication_port: Some(PORT),
    }
}

/// Returns the setup of a shard: a tunnel endpoint and a /28.
pub(crate) fn setup(number: u32, awaits_replicas: bool) -> ShardSetup {
    let id = ShardId(number);
    let prefix = format!("203.0.{}.{}/28", 113 + number / 16, number % 16 * 16);
    let endpoint = Some(ENDPOINT - SHARD + number);
    ShardSetup {
        engine: weir_engine::ShardConfig { id, endpoint, endpoint6: None, subscribers: vec![] },
        nat: weir_nat::NatShardConfig {
            id,
            public: vec![prefix.parse().unwrap()],
            public6: Vec::new(),
            subscribers_max: 256,
        },
        awaits_replicas,
    }
}

/// Returns the setup of one of many shards: a tunnel endpoint and an address.
pub(crate) fn small_setup(number: u32) -> ShardSetup {
    let id = ShardId(number);
    let public = vec![Ipv4Addr::from(0xc612_0000 + number).into()];
    let endpoint = Some(0x0a64_0000 + number);
    ShardSetup {
        engine: weir_engine::ShardConfig { id, endpoint, endpoint6: None, subscribers: vec![] },
        nat: weir_nat::NatShardConfig { id, public, public6: Vec::new(), subscribers_max: 4 },
        awaits_replicas: false,
    }
}

impl Member {
    /// Returns an incarnation of the worker `id` at the address of a number. It knows its gateways,
    /// but neither peers nor shards.
    pub(crate) fn new(
        number: usize,
        id: PeerId,
        boot: BootId,
        make: &Make,
        network: &mut Network,
        now_us: u64,
    ) -> Self {
        let mut engine = Engine::new(config(number, network.random.next(), make)).unwrap();
        let mut secret = [0; 32];
        secret[..8].copy_from_slice(&network.random.next().to_be_bytes());
        let identity = Identity { worker: id, boot, secret };
        let (options, shards) = (make.options.clone(), usize::from(make.shards_max));
        let mut replication =
            Replication::new(options, identity, Fingerprint::default(), keys(), shards).unwrap();
        if let Some((limits, options)) = make.commit {
            engine.setup().hold_uncommitted(limits);
            replication.await_replicas(options);
        }
        let member = weir_worker::ClusterMember::new(replication, LocalLink::default());
        let worker = Worker::new(engine, Some(Box::new(member)));
        let ports = Rings::new(VecPool::new());
        let mut member = Self { boot, events: Vec::new(), worker, number, ports };
        member.start(network, now_us);
        member
    }

    fn start(&mut self, network: &mut Network, now_us: u64) {
        self.worker.start(Duration::from_micros(now_us), &mut self.ports);
        // Sends the worker's ARP requests, and receives the answers.
        self.deliver(network, now_us);
        self.turn(network, now_us);
        assert!(self.worker.engine.admin().is_ready());
        self.sent();
    }

    /// Allocates the test's own memory that turns need: later allocations in a turn are the
    /// worker's.
    pub(crate) fn warm_up(&mut self) {
        let frames: Vec<_> = (0..FRAMES_MAX).map(|_| self.ports.pool.alloc()).collect();
        drop(frames);
        let link = &mut self.member().link;
        link.events.reserve(FRAMES_MAX);
        link.busy.insert(ShardId(SHARD));
    }

    fn member(&mut self) -> &mut weir_worker::ClusterMember<LocalLink> {
        self.worker.member.as_deref_mut().expect("the worker is one of a cluster")
    }

    pub(crate) fn engine(&mut self) -> &mut Engine<VecFrame> {
        &mut self.worker.engine
    }

    pub(crate) fn replication(&self) -> &Replication {
        &self.worker.member.as_deref().expect("the worker is one of a cluster").replication
    }

    pub(crate) fn status(&self) -> ReplicationReport {
        self.replication().status(0)
    }

    pub(crate) fn dropped(&self, reason: DropReason) -> u64 {
        self.worker.engine.admin().counters().dropped(reason)
    }

    pub(crate) fn drops(&self) -> u64 {
        DropReason::ALL.iter().map(|&reason| self.dropped(reason)).sum()
    }

    pub(crate) fn redirected_out(&self) -> u64 {
        self.worker.engine.admin().counters().redirected(Direction::Transmit)
    }

    /// Returns how much of its journal is committed, and how much there is.
    pub(crate) fn committed(&mut self, now_us: u64) -> (u64, u64) {
        let Worker { engine, member, .. } = &mut self.worker;
        let member = member.as_deref_mut().expect("the worker is one of a cluster");
        let committed = member.replication.committed(now_us, engine.nat().replica());
        (committed, engine.nat().replica().journal_taken())
    }

    /// Gives the worker a datagram directly, not through the engine.
    pub(crate) fn receive(
        &mut self,
        from: SocketAddrV4,
        datagram: &mut [u8],
        now_us: u64,
    ) -> Result<Received, DatagramRefusal> {
        let Worker { engine, member, .. } = &mut self.worker;
        let member = member.as_deref_mut().expect("the worker is one of a cluster");
        member.replication.receive(from, datagram, now_us, engine.nat_mut().replica_mut())
    }

    /// Returns all flows of the shard.
    pub(crate) fn flows(&self) -> BTreeSet<Flow> {
        let (mut cursor, mut all) = (PageCursor::default(), Vec::new());
        let (nat, filter) = (self.worker.engine.nat().admin(), SessionFilter::default());
        while nat.sessions(&mut cursor, usize::MAX, &filter, &mut all) {}
        let flow = |view: &SessionView| {
            let ends = view.ipv4().expect("the flows are of IPv4");
            Flow {
                outer: view.home.ipv4().expect("homes have tunnels"),
                inside_port: ends.inside.port,
                public: (ends.public.address, ends.public.port),
            }
        };
        all.iter().filter(|view| view.shard.0 == SHARD).map(flow).collect()
    }

    /// Queues a command, which is carried out in one of the next turns, behind those before it.
    pub(crate) fn order(&mut self, command: WorkerCommand) {
        self.member().link.commands.push_back(command);
    }

    pub(crate) fn has_orders(&self) -> bool {
        let member = self.worker.member.as_deref();
        member.is_some_and(|member| !member.link.commands.is_empty())
    }

    /// True if some frame waits to be received.
    pub(crate) fn has_frames(&self) -> bool {
        !self.ports.is_empty()
    }

    /// Queues packets of one side, from its gateway, for the next turn.
    pub(crate) fn packets(&mut self, side: Side, packets: Vec<Vec<u8>>) {
        packets.iter().for_each(|packet| self.packet_from(gateway_mac(side), side, packet));
    }

    /// Queues a packet from some station of a link, for the next turn.
    pub(crate) fn packet_from(&mut self, station: Mac, side: Side, packet: &[u8]) {
        let frame = build::ethernet(mac(self.number, side), station, packet);
        self.ports.arrive(side, VecFrame::new(&frame));
    }

    /// Queues a datagram of another worker, for the next turn.
    pub(crate) fn datagram(&mut self, from: SocketAddrV4, bytes: &[u8]) {
        let to = address(self.number).ip().to_bits();
        let packet = build::ipv4(from.ip().to_bits(), to).udp(PORT, PORT, bytes);
        let station = neighbor(Side::Access, from.ip().to_bits());
        self.packet_from(station, Side::Access, &packet);
    }

    pub(crate) fn turn(&mut self, network: &mut Network, now_us: u64) {
        self.work(now_us);
        self.deliver(network, now_us);
    }

    /// Runs the worker's turn alone.
    pub(crate) fn work(&mut self, now_us: u64) {
        let now = Duration::from_micros(now_us);
        self.ports.now = now;
        self.worker.turn(now, &mut self.ports);
    }

    /// Gives the network the datagrams that were sent, answers for all neighbours, and takes the
    /// events.
    pub(crate) fn deliver(&mut self, network: &mut Network, now_us: u64) {
        for side in Side::ALL {
            let sent = &mut self.ports.sent[side as usize];
            let (links, rest): (Vec<_>, Vec<_>) =
                sent.drain(..).partition(|frame| is_arp(frame) || is_datagram(side, frame));
            sent.extend(rest);
            for frame in links {
                let payload = &frame.data()[Ethernet::LEN..];
                if is_arp(&frame) {
                    self.answer(side, arp::parse(payload).expect("an ARP message"));
                } else {
                    let (ip, ..) = ipv4::parse(payload).expect("an IPv4 packet");
                    assert!(!ip.is_fragment() && payload.len() <= 1500, "a datagram is whole");
                    let to = SocketAddrV4::new(ip.destination.get().into(), PORT);
                    let datagram = &payload[Ipv4::LEN + Udp::LEN..];
                    network.port(address(self.number), now_us).send(to.into(), datagram);
                }
            }
        }
        let member = self.worker.member.as_deref_mut().expect("the worker is one of a cluster");
        self.events.append(&mut member.link.events);
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

    /// Returns the IP packets that have left, those to homes without their tunnel: of the access
    /// side, of the internet side.
    pub(crate) fn sent(&mut self) -> [Vec<Vec<u8>>; 2] {
        let ip = |frame: VecFrame| frame.data()[Ethernet::LEN..].to_vec();
        let [access, internet] = &mut self.ports.sent;
        let homes = access.drain(..).map(ip).map(|packet| packet[24..].to_vec()).collect();
        [homes, internet.drain(..).map(ip).collect()]
    }
}

fn is_arp(frame: &VecFrame) -> bool {
    let header = ethernet::parse(frame.data()).expect("an Ethernet header");
    header.ethertype.get() == ETHERTYPE_ARP
}

/// True if a frame is for another worker: homes get tunnel packets.
fn is_datagram(side: Side, frame: &VecFrame) -> bool {
    side == Side::Access && frame.data()[Ethernet::LEN + 9] == PROTOCOL_UDP
}

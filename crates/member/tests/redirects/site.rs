//! Two workers of a cluster on one access network, with the engine and the sessions of each.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use weir_engine::{
    AccessMode, Direction, DropReason, Engine, EngineConfig, FragmentLimits, Limits, MssClamp,
    Side, SideConfig,
};
use weir_member::order::{Misses, ShardDuties, ShardSetup};
use weir_member::{Order, PeerId, Replication};
use weir_nat::{NatConfig, ShardId, ShardRoom};
use weir_replica::{BootId, ClusterKeys, Fingerprint, Identity, Options};
use weir_shard::LaneSet;
use weir_wire::arp::{self, Arp};
use weir_wire::build;
use weir_wire::ethernet::{self, Mac};
use weir_wire::frame::{VecFrame, VecPool};
use weir_wire::ipv4::{self, Ipv4};
use weir_wire::udp;
use weir_worker::{LocalLink, Member, Rings, Worker};

pub(crate) const A: &str = "10.1.0.1";
pub(crate) const B: &str = "10.1.0.2";
pub(crate) const HOME: &str = "10.200.0.7";
pub(crate) const PC: &str = "192.168.1.2";
pub(crate) const SERVER: &str = "198.51.100.9";
const ENDPOINT: &str = "10.100.0.1";
const PORT: u16 = 7473;
const SHARD: u32 = 3;

pub(crate) fn inside(port: u16) -> Vec<u8> {
    build::ipv4(PC, SERVER).udp(port, 53, b"hello")
}

pub(crate) fn up(home: &str, packet: &[u8]) -> Vec<u8> {
    build::ipv4(home, ENDPOINT).gre(build::gre(), packet)
}

fn address(number: u8) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 1, 0, number), PORT)
}

fn peer_id(number: u8) -> PeerId {
    PeerId(u64::from(number))
}

fn on_link(side: Side, host: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 1 + side as u8, 0, host)
}

fn mac(number: u8, side: Side) -> Mac {
    build::mac(number * 10 + side as u8)
}

pub(crate) struct Site {
    number: u8,
    worker: Worker<VecFrame, LocalLink>,
    ports: Rings<VecPool>,
    now_us: u64,
    misses: Misses<PeerId>,
}

impl Site {
    fn new(number: u8, boot: u128, now_us: u64, misses: Misses<PeerId>) -> Self {
        let side = |side: Side| SideConfig {
            mac: mac(number, side),
            address: format!("{}/24", on_link(side, number)).parse().unwrap(),
            gateways: vec![on_link(side, 250)],
            gateway_macs: Vec::new(),
            vlan: None,
            mtu: 1500,
        };
        let engine = Engine::new(EngineConfig {
            mode: AccessMode::Gre,
            access: side(Side::Access),
            internet: side(Side::Internet),
            mss_clamp: MssClamp::Off,
            shards: vec![],
            nat: NatConfig {
                flows_max: 1024,
                subscribers: vec!["10.200.0.0/16".parse().unwrap()],
                room: ShardRoom { shards: 2, public_addresses: 32, subscribers: 64 },
                port_block: 64,
                replicas: 1,
                seed: [1, 2, 3, u64::from(number)],
                ..NatConfig::default()
            },
            fragments: FragmentLimits {
                datagrams_max: 64,
                held_max: 64,
                ..FragmentLimits::default()
            },
            limits: Limits::default(),
            forward_source_routes: false,
            peers_max: 4,
            replication_port: Some(PORT),
        })
        .unwrap();
        let mut secret = [number; 32];
        secret[..16].copy_from_slice(&boot.to_be_bytes());
        let identity = Identity { worker: peer_id(number), boot: BootId(boot), secret };
        let keys = ClusterKeys::parse(&"5a".repeat(32)).unwrap();
        let options = Options { peers_max: 4, copies_max: 64, ..Options::default() };
        let fingerprint = Fingerprint::default();
        let replication = Replication::new(options, identity, fingerprint, keys, 2).unwrap();
        let member = Member::new(replication, LocalLink::default());
        let worker = Worker::new(engine, Some(Box::new(member)));
        let ports = Rings::new(VecPool::new());
        let mut site = Self { number, worker, ports, now_us, misses };
        site.begin();
        site
    }

    fn begin(&mut self) {
        let other = 3 - self.number;
        self.worker.start(Duration::from_micros(self.now_us), &mut self.ports);
        for side in Side::ALL {
            let own = on_link(side, self.number).to_bits();
            let gateway = on_link(side, 250).to_bits();
            let reply = Arp::reply(build::mac(99), gateway, mac(self.number, side), own);
            self.frame(side, build::arp(reply));
        }
        let order = Order::AddPeer { peer: peer_id(other), address: address(other) };
        self.order(order);
        let id = ShardId(SHARD);
        let public = vec!["203.0.113.0/28".parse().unwrap()];
        let endpoint: Ipv4Addr = ENDPOINT.parse().unwrap();
        self.order(Order::AddShard(Box::new(ShardSetup {
            engine: weir_engine::ShardConfig {
                id,
                endpoint: Some(endpoint.to_bits()),
                subscribers: vec![],
            },
            nat: weir_nat::ShardConfig { id, public, subscribers_max: 64 },
            awaits_replicas: false,
        })));
        self.serve();
    }

    fn serve(&mut self) {
        let creates = self.misses == Misses::Create;
        self.order(Order::Duties(Box::new(ShardDuties {
            serves_hits: true,
            lanes: if creates { LaneSet::ALL } else { LaneSet::EMPTY },
            misses: self.misses,
            ..ShardDuties::none(ShardId(SHARD))
        })));
    }

    fn order(&mut self, order: Order) {
        let member = self.worker.member.as_deref_mut().expect("it is one of a cluster");
        member.link.orders.push_back(order);
    }

    /// For the next turn.
    pub(crate) fn frame(&mut self, side: Side, frame: Vec<u8>) {
        self.ports.arrive(side, VecFrame::new(&frame));
    }

    /// From the gateway of a side.
    pub(crate) fn packet(&mut self, side: Side, packet: Vec<u8>) {
        let frame = build::ethernet(mac(self.number, side), build::mac(99), packet);
        self.frame(side, frame);
    }

    /// From another station of the access network, whatever address it has.
    pub(crate) fn frame_from(&self, _address: &str, packet: Vec<u8>) -> Vec<u8> {
        build::ethernet(mac(self.number, Side::Access), build::mac(66), packet)
    }

    /// The frame of a datagram, cut to `len` bytes, with sound headers.
    pub(crate) fn cut(&self, frame: &[u8], len: usize) -> Vec<u8> {
        let payload = &frame[14 + 28..len];
        self.frame_from(A, build::ipv4(A, B).udp(PORT, PORT, payload))
    }

    fn turn(&mut self) {
        self.work();
        self.now_us += 1_000;
    }

    /// A turn that takes no time.
    fn work(&mut self) {
        let now = Duration::from_micros(self.now_us);
        self.ports.now = now;
        self.worker.turn(now, &mut self.ports);
    }

    fn take_sent(&mut self, side: Side) -> impl Iterator<Item = Vec<u8>> {
        self.ports.sent[side as usize].drain(..).map(|frame| frame.to_vec())
    }

    fn access(&mut self) -> Vec<Vec<u8>> {
        self.take_sent(Side::Access).collect()
    }

    /// Packets that have left to the internet.
    pub(crate) fn internet(&mut self) -> Vec<Vec<u8>> {
        let frames = self.take_sent(Side::Internet);
        frames.filter(|frame| frame[12..14] == [8, 0]).map(|frame| frame[14..].to_vec()).collect()
    }

    pub(crate) fn dropped(&self, reason: DropReason) -> u64 {
        self.worker.engine.counters().dropped(reason)
    }

    pub(crate) fn drops(&self) -> u64 {
        DropReason::ALL.iter().map(|&reason| self.dropped(reason)).sum()
    }

    pub(crate) fn redirected_out(&self) -> u64 {
        self.worker.engine.counters().redirected(Direction::Transmit)
    }
}

pub(crate) struct Pair {
    pub(crate) a: Site,
    pub(crate) b: Site,
    a_boots: u128,
}

/// A redirected packet: UDP of replication, of kind 4.
fn is_redirect(frame: &[u8]) -> bool {
    let is_ip = frame[12..14] == [8, 0];
    is_ip && frame[14 + 9] == ipv4::PROTOCOL_UDP && frame[14 + 28 + 3] & 0x7f == 4
}

fn is_arp(frame: &[u8]) -> bool {
    frame[12..14] == [8, 6] && arp::parse(&frame[14..]).is_ok()
}

impl Pair {
    /// Without anything between them but what a test carries.
    pub(crate) fn cut_off() -> Self {
        let a = Site::new(1, 1 << 64, 1_000_000, Misses::Redirect(peer_id(2)));
        let b = Site::new(2, 2 << 64, 1_000_000, Misses::Create);
        let mut pair = Self { a, b, a_boots: 1 };
        // They find each other, and no datagram passes.
        pair.run(200, is_arp);
        pair
    }

    /// A has no lane and gives what it does not know to B; their session is up.
    pub(crate) fn ready() -> Self {
        let mut pair = Self::cut_off();
        pair.run(300, |_| true);
        pair
    }

    fn run(&mut self, turns: usize, passes: impl Fn(&[u8]) -> bool) {
        for _ in 0..turns {
            self.a.turn();
            self.b.turn();
            let (from_a, from_b) = (self.a.access(), self.b.access());
            let to = |number: u8, frame: &[u8]| {
                let to = ethernet::parse(frame).unwrap().destination;
                [mac(number, Side::Access), Mac::BROADCAST].contains(&to) && passes(frame)
            };
            from_a.into_iter().filter(|it| to(2, it)).for_each(|it| self.b.frame(Side::Access, it));
            from_b.into_iter().filter(|it| to(1, it)).for_each(|it| self.a.frame(Side::Access, it));
        }
        let _ = (self.a.internet(), self.b.internet());
    }

    /// A turn of A's loop; the redirected packets that it sent.
    pub(crate) fn turn_a(&mut self) -> Vec<Vec<u8>> {
        self.a.turn();
        self.a.access().into_iter().filter(|frame| is_redirect(frame)).collect()
    }

    /// What B then sends to the internet, and to homes without their tunnels.
    pub(crate) fn deliver_to_b(&mut self, frames: Vec<Vec<u8>>) -> [Vec<Vec<u8>>; 2] {
        frames.into_iter().for_each(|frame| self.b.frame(Side::Access, frame));
        self.b.work();
        let is_tunnel = |frame: &Vec<u8>| frame[12..14] == [8, 0] && frame[14 + 9] == 47;
        let to_homes = self.b.access().into_iter().filter(is_tunnel);
        let to_homes = to_homes.map(|frame| frame[14 + 24..].to_vec()).collect();
        [self.b.internet(), to_homes]
    }

    /// The same bytes as a datagram of B to A.
    pub(crate) fn turned_around(&self, frame: &[u8]) -> Vec<u8> {
        let datagram = &frame[14 + Ipv4::LEN + udp::Udp::LEN..];
        let packet = build::ipv4(B, A).udp(PORT, PORT, datagram);
        build::ethernet(mac(1, Side::Access), mac(2, Side::Access), packet)
    }

    /// A's process ends and starts anew; the session is a new one.
    pub(crate) fn restart_a(&mut self) {
        self.a_boots += 1;
        let misses = Misses::Redirect(peer_id(2));
        self.a = Site::new(1, self.a_boots << 64, self.a.now_us, misses);
        self.run(600, |_| true);
    }

    /// Each takes the other for the one that knows.
    pub(crate) fn b_redirects_to_a(&mut self) {
        self.b.misses = Misses::Redirect(peer_id(1));
        self.b.serve();
    }
}

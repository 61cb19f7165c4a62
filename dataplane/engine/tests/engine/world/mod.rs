//! A worker between two networks, without a NIC: packets in, packets out.
#![allow(dead_code, unreachable_pub)]

pub mod fixed_frame;
pub mod ipv6;
pub mod link6;
pub mod pair;
pub mod rules;

use std::net::Ipv4Addr;
use std::sync::Arc;

use ipnet::Ipv4Net;
use weir_engine::{
    AccessMode, DropReason, Engine, EngineConfig, EngineCounters, FragmentLimits, MssClamp, Now,
    Output, PacketTrace, ResourceLimits, ShardConfig, Side, SideConfig,
};
use weir_nat::{NatConfig, ShardId};
use weir_wire::arp::Arp;
use weir_wire::build::{self, Address};
use weir_wire::describe::describe_packet;
use weir_wire::ethernet::{self, Mac};
use weir_wire::frame::{Frame, VecFrame, VecPool};
use weir_wire::{gre, ipv4, verify};

pub const ENDPOINT: &str = "10.100.0.1";
pub const ENDPOINT_2: &str = "10.100.0.2";
pub const HOME_A: &str = "10.200.0.1";
pub const HOME_B: &str = "10.200.0.2";
pub const PC: &str = "192.168.1.10";
pub const SERVER: &str = "198.51.100.1";
pub const SERVER_2: &str = "198.51.100.2";
pub const WORKER_ACCESS: &str = "10.1.0.1";
pub const WORKER_INTERNET: &str = "10.2.0.1";

pub fn worker_mac(side: Side) -> Mac {
    build::mac(1 + side as u8)
}

pub fn gateway_mac(side: Side) -> Mac {
    build::mac(11 + side as u8)
}

pub fn gateway_ip(side: Side) -> &'static str {
    match side {
        Side::Access => "10.1.0.2",
        Side::Internet => "10.2.0.2",
    }
}

/// All that the worker sent for the packets that went in.
#[derive(Debug, Default)]
pub struct Out {
    /// IP packets sent toward the internet.
    pub internet: Vec<Vec<u8>>,
    /// IP packets sent toward the access network, with their tunnel header.
    pub access: Vec<Vec<u8>>,
    /// Link-layer destinations of the IP packets, in order.
    pub next_hops: Vec<Mac>,
    /// Other frames (ARP), whole.
    pub other: Vec<(Side, Vec<u8>)>,
    /// All frames, whole.
    pub frames: Vec<(Side, Vec<u8>)>,
}

impl Out {
    /// Returns the only packet, which went to the internet.
    pub fn into_internet(self) -> Vec<u8> {
        assert_eq!((self.internet.len(), self.access.len()), (1, 0), "one packet to the internet");
        self.internet.into_iter().next().unwrap()
    }

    /// Returns the only packet, which went to the access network.
    pub fn into_access(self) -> Vec<u8> {
        assert_eq!((self.internet.len(), self.access.len()), (0, 1), "one packet to the homes");
        self.access.into_iter().next().unwrap()
    }

    /// Returns the only packet, which went to a home: (outer destination, GRE header, inner
    /// packet).
    pub fn into_home(self) -> (u32, gre::GreHeader, Vec<u8>) {
        decapsulate(&self.into_access())
    }

    pub fn extend(&mut self, more: Self) {
        self.internet.extend(more.internet);
        self.access.extend(more.access);
        self.next_hops.extend(more.next_hops);
        self.other.extend(more.other);
        self.frames.extend(more.frames);
    }

    pub fn is_nothing(&self) -> bool {
        self.internet.is_empty() && self.access.is_empty() && self.other.is_empty()
    }
}

pub struct World {
    pub engine: Engine<VecFrame>,
    pub pool: VecPool,
    pub now: Now,
    pub counters: Arc<EngineCounters>,
    /// Whether every input is valid, so that every output must be valid in every byte.
    pub is_input_sound: bool,
    /// The worker's own MACs and addresses, by side.
    pub macs: [Mac; 2],
    pub addresses: [Ipv4Addr; 2],
    out: Output<VecFrame>,
}

pub fn config() -> EngineConfig {
    let side = |side: Side| SideConfig {
        mac: worker_mac(side),
        address: match side {
            Side::Access => "10.1.0.1/24".parse().unwrap(),
            Side::Internet => "10.2.0.1/24".parse().unwrap(),
        },
        gateways: vec![gateway_ip(side).parse().unwrap()],
        gateway_macs: Vec::new(),
        ipv6: None,
        vlan: None,
        mtu: 1500,
    };
    let shard = |id: u32, public: &str| weir_nat::NatShardConfig {
        id: ShardId(id),
        public: vec![public.parse::<Ipv4Net>().unwrap()],
        public6: Vec::new(),
        subscribers_max: 16,
    };
    EngineConfig {
        mode: AccessMode::Gre,
        access: side(Side::Access),
        internet: side(Side::Internet),
        mss_clamp: MssClamp::Auto,
        shards: [(1, ENDPOINT), (2, ENDPOINT_2)]
            .map(|(id, endpoint)| ShardConfig {
                id: ShardId(id),
                endpoint: Some(endpoint.to_bits()),
                endpoint6: None,
                subscribers: vec![],
            })
            .to_vec(),
        nat: NatConfig {
            flows_max: 4096,
            subscribers: vec!["10.200.0.0/16".parse().unwrap()],
            shards: vec![shard(1, "203.0.113.0/29"), shard(2, "203.0.113.8/29")],
            seed: [1, 2, 3, 4],
            ..NatConfig::default()
        },
        fragments: FragmentLimits::default(),
        limits: ResourceLimits::default(),
        forward_source_routes: false,
        peers_max: 0,
        replication_port: None,
    }
}

impl Default for World {
    fn default() -> Self {
        Self::new(config())
    }
}

/// Returns the same without tunnels.
pub fn plain() -> EngineConfig {
    let mut config = config();
    config.mode = AccessMode::Plain;
    config.shards[0].subscribers = vec!["10.200.0.0/17".parse().unwrap()];
    config.shards[1].subscribers = vec!["10.200.128.0/17".parse().unwrap()];
    config
}

impl World {
    /// Makes a started worker whose gateways have answered.
    pub fn new(config: EngineConfig) -> Self {
        let mut world = Self::unstarted(config);
        world.engine.start(world.now, &mut world.pool, &mut world.out);
        world.collect();
        for side in Side::ALL {
            world.gateway_answers(side);
        }
        assert!(world.engine.admin().is_ready());
        world
    }

    pub fn unstarted(config: EngineConfig) -> Self {
        let sides = [&config.access, &config.internet];
        let (macs, addresses) = (sides.map(|side| side.mac), sides.map(|side| side.address.addr()));
        let engine = Engine::new(config).expect("a valid configuration");
        let counters = engine.admin().counters();
        Self {
            engine,
            pool: VecPool::new(),
            now: Now { ms: 1_000_000 },
            counters,
            is_input_sound: true,
            macs,
            addresses,
            out: Output::new(),
        }
    }

    pub fn start(&mut self) -> Out {
        self.engine.start(self.now, &mut self.pool, &mut self.out);
        self.collect()
    }

    pub fn gateway_answers(&mut self, side: Side) {
        let (mac, address) = (self.macs[side as usize], self.addresses[side as usize]);
        let gateway = gateway_ip(side).to_bits();
        let reply = Arp::reply(gateway_mac(side), gateway, mac, address.to_bits());
        assert!(self.frame(side, &build::arp(reply)).is_nothing());
    }

    /// Passes in one whole Ethernet frame.
    pub fn frame(&mut self, side: Side, frame: &[u8]) -> Out {
        self.frames(side, vec![VecFrame::new(frame)])
    }

    pub fn frames(&mut self, side: Side, mut frames: Vec<VecFrame>) -> Out {
        self.engine.receive(side, self.now, &mut frames, &mut self.pool, &mut self.out);
        assert!(frames.is_empty());
        self.collect()
    }

    /// Passes in one IP packet, of either family, as [`packet`](Self::packet) does, and records its
    /// way.
    pub fn traced(&mut self, side: Side, packet: &[u8]) -> (PacketTrace, Out) {
        self.frame_traced(side, &self.ethernet(side, packet))
    }

    /// As [`traced`](Self::traced), of a whole frame.
    pub fn frame_traced(&mut self, side: Side, frame: &[u8]) -> (PacketTrace, Out) {
        let mut frames = vec![VecFrame::new(frame)];
        let Self { engine, now, pool, out, .. } = self;
        let trace = engine.receive_traced(side, *now, &mut frames, pool, out);
        (trace.expect("there is a frame"), self.collect())
    }

    /// Passes in one IP packet, from the gateway of that side.
    pub fn packet(&mut self, side: Side, packet: &[u8]) -> Out {
        self.frame(side, &build::ethernet(self.macs[side as usize], gateway_mac(side), packet))
    }

    /// Passes in a packet of a home, through its tunnel to the first shard.
    pub fn up(&mut self, home: &str, inner: impl AsRef<[u8]>) -> Out {
        self.packet(Side::Access, &build::ipv4(home, ENDPOINT).gre(build::gre(), inner))
    }

    /// Passes in a packet from the internet.
    pub fn down(&mut self, packet: impl AsRef<[u8]>) -> Out {
        self.packet(Side::Internet, packet.as_ref())
    }

    /// Passes in a packet that another worker redirected here, after it was opened.
    pub fn redirected(&mut self, packet: &[u8]) -> Out {
        let frame = VecFrame::new(packet);
        self.engine.receive_redirected(frame, self.now, &mut self.pool, &mut self.out);
        self.collect()
    }

    /// Sends the packets that wait to be sealed for other workers; `seal` sees each one's worker
    /// and the room in front of it, and changes nothing.
    pub fn seal(&mut self, mut seal: impl FnMut(Ipv4Addr, usize)) -> Out {
        let sealed = |to, front, _: &mut [u8]| {
            seal(to, front);
            true
        };
        self.engine.send_redirects(&mut self.out, sealed);
        self.collect()
    }

    /// Lets time pass, with housekeeping every 100 ms.
    pub fn pass_sec(&mut self, seconds: u64) -> Out {
        self.pass_ms(seconds * 1_000)
    }

    /// Lets time pass in steps of 100 ms.
    pub fn pass_ms(&mut self, ms: u64) -> Out {
        let mut out = Out::default();
        for _ in 0..ms / 100 {
            self.now.ms += 100;
            self.engine.tick(self.now, &mut self.pool, &mut self.out);
            out.extend(self.collect());
        }
        out
    }

    /// Takes all changes out of the journal and discards them; returns the journal's length.
    pub fn take_changes(&mut self) -> u64 {
        let mut body = [0; weir_nat::BODY_MAX];
        while self.engine.nat_mut().replica_mut().next_change(&mut body).is_some() {}
        self.engine.nat().replica().journal_taken()
    }

    /// Ends a turn: replicas have the journal up to `committed`.
    pub fn release(&mut self, committed: u64) -> Out {
        self.engine.release_committed(committed, self.now, &mut self.out);
        self.collect()
    }

    /// Stops the worker.
    pub fn release_all(&mut self) -> Out {
        assert!(!self.engine.release_all(self.now, &mut self.out));
        self.collect()
    }

    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.counters.dropped(reason)
    }

    /// Returns the number of drops for all reasons.
    pub fn drops(&self) -> u64 {
        DropReason::ALL.iter().map(|&reason| self.dropped(reason)).sum()
    }

    /// Checks that a packet is dropped under this reason, and nothing is sent.
    pub fn assert_dropped(&mut self, reason: DropReason, pass: impl FnOnce(&mut Self) -> Out) {
        let (before, drops) = (self.dropped(reason), self.drops());
        let out = pass(self);
        assert!(out.is_nothing(), "{reason:?}: {} to homes", out.access.len());
        let counted = (self.dropped(reason) - before, self.drops() - drops);
        assert_eq!(counted, (1, 1), "dropped as {}", reason.name());
    }

    /// Sends a datagram of replication; `None` if the engine cannot.
    pub fn send_datagram(&mut self, to: &str, payload: &[u8]) -> Option<Out> {
        let to = to.parse().unwrap();
        let is_sent =
            self.engine.replica_and_sender().1.send(to, payload, &mut self.pool, &mut self.out);
        let out = self.collect();
        assert_eq!(out.access.len(), usize::from(is_sent));
        is_sent.then_some(out)
    }

    fn collect(&mut self) -> Out {
        let mut out = Out::default();
        let (is_input_sound, macs) = (self.is_input_sound, self.macs);
        for (side, frames) in
            [(Side::Access, &mut self.out.access), (Side::Internet, &mut self.out.internet)]
        {
            for frame in frames.drain(..) {
                let bytes = frame.data().to_vec();
                assert_eq!(bytes[6..12], macs[side as usize].0, "source MAC");
                out.frames.push((side, bytes.clone()));
                if bytes[12..14] != [8, 0] {
                    out.other.push((side, bytes));
                    continue;
                }
                out.next_hops.push(ethernet::parse(&bytes).unwrap().destination);
                let packet = bytes[14..].to_vec();
                match is_input_sound {
                    true => assert_sound(&packet),
                    false => assert_framed(&packet),
                }
                match side {
                    Side::Access => out.access.push(packet),
                    Side::Internet => out.internet.push(packet),
                }
            }
        }
        out
    }
}

/// Asserts that everything in the packet that can be checked is right: lengths and checksums,
/// inside the tunnel too.
pub fn assert_sound(packet: &[u8]) {
    assert_eq!(ipv4::parse(packet).expect("an IPv4 packet").2, packet.len(), "no padding");
    if let Err(error) = verify::packet(packet) {
        panic!("{error}: {}", describe_packet(packet));
    }
}

/// Asserts what must hold even for a packet with a wrong transport header: the IP header is right.
pub fn assert_framed(packet: &[u8]) {
    assert_eq!(ipv4::parse(packet).expect("an IPv4 packet").2, packet.len(), "no padding");
    assert!(ipv4::header_checksum_ok(packet), "IP checksum");
}

pub fn decapsulate(packet: &[u8]) -> (u32, gre::GreHeader, Vec<u8>) {
    let (ip, header_len, _) = ipv4::parse(packet).unwrap();
    assert_eq!(ip.protocol, ipv4::PROTOCOL_GRE);
    let header = gre::parse(&packet[header_len..]).unwrap();
    (ip.destination.get(), header, packet[header_len + header.len..].to_vec())
}

/// Returns (source address, source port, destination address, destination port); for ICMP the
/// identifier is both ports.
pub fn ends(packet: &[u8]) -> (u32, u16, u32, u16) {
    let (ip, at, _) = ipv4::parse(packet).unwrap();
    let word = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
    let ports = match ip.protocol {
        ipv4::PROTOCOL_ICMP => (word(at + 4), word(at + 4)),
        _ => (word(at), word(at + 2)),
    };
    (ip.source.get(), ports.0, ip.destination.get(), ports.1)
}

/// Returns an address as a dotted quad, to compare it and to build packets.
pub fn dotted(address: u32) -> String {
    Ipv4Addr::from(address).to_string()
}

pub trait Bits {
    fn to_bits(&self) -> u32;
}

impl Bits for str {
    fn to_bits(&self) -> u32 {
        self.parse::<Ipv4Addr>().unwrap().to_bits()
    }
}

/// Converts any kind of address that `build::Address` accepts.
pub fn bits(address: impl Address) -> u32 {
    let packet = build::ipv4(address, "0.0.0.1").payload(253, []);
    ipv4::parse(&packet).unwrap().0.source.get()
}

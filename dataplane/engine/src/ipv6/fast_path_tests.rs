//! Compares the fast path of IPv6 with the slow path: any packet that the first takes, the second
//! must read alike.

use std::sync::Mutex;

use bolero::{TypeGenerator, check};
use weir_nat::Delegation;
use weir_wire::ethernet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6};
use weir_wire::frame::VecFrame;
use weir_wire::ipv4::{self, Ipv4};
use weir_wire::{build, checksum, gre};

use super::*;
use crate::AccessMode;
use crate::fast_path::PLAIN;
use crate::link_header::{TAGGED, UNTAGGED};
use crate::world::ipv6::with_ipv6;
use crate::world::*;

const VLAN: u16 = 100;
const HOST: &str = "2001:db8:1000:1::7";
const PEER: &str = "2001:db8:9::1";

/// Description of a frame: a sound one, with some octets changed, cut or padded.
#[derive(Clone, Debug, TypeGenerator)]
struct Shape {
    kind: u8,
    tcp_flags: u8,
    #[generator(0..40_u8)]
    payload: u8,
    /// Traffic classes of the packet and of its tunnel; not of interest to the outer checksum.
    classes: [u8; 2],
    hop_limit: u8,
    addresses: u8,
    tunnel: u8,
    is_tag_wrong: u8,
    #[generator(0..3_u8)]
    changed: u8,
    changes: [(u8, u8); 3],
    is_repaired: bool,
    /// Octets cut off, or appended.
    #[generator(0..60_i8)]
    cut: i8,
    is_cut: u8,
}

impl Shape {
    fn inner(&self, way: Way6) -> Vec<u8> {
        let payload = vec![0x5a; usize::from(self.payload)];
        let (inside, remote) = match self.addresses {
            0..8 => ("fe80::1", PEER),
            8..16 => (HOST, "ff02::1"),
            16..24 => (HOST, HOST),
            24..32 => (HOST, "::1"),
            32.. => (HOST, PEER),
        };
        let (source, destination) = match way {
            Way6::Up => (inside, remote),
            Way6::Down => (remote, inside),
        };
        let hop_limit = if self.hop_limit < 16 { self.hop_limit / 4 } else { self.hop_limit };
        let head =
            build::ipv6(source, destination).traffic_class(self.classes[0]).hop_limit(hop_limit);
        match self.kind {
            0..16 => head.icmp6_echo_request(7, 1, payload),
            16..32 => head.udp(0, 53, payload),
            32..48 => head.payload(132, payload),
            48..64 => head.payload(17, payload),
            64..160 => head.udp(5000, 53, payload),
            160.. => head.tcp(build::tcp(5000, 443).flags(self.tcp_flags).payload(payload)),
        }
    }

    fn frame(&self, side: Side, mode: AccessMode, vlan: Option<u16>) -> Vec<u8> {
        let way = if side == Side::Access { Way6::Up } else { Way6::Down };
        let mut packet = self.inner(way);
        if side == Side::Access && mode == AccessMode::Gre {
            let header = match self.tunnel {
                0..8 => build::gre().key(7),
                8..16 => build::gre().checksum(),
                16..24 => build::gre().sequence(1),
                24.. => build::gre(),
            };
            let endpoint = if self.tunnel & 1 == 0 { ENDPOINT } else { ENDPOINT_2 };
            let outer = build::ipv4(HOME_A, endpoint).tos(self.classes[1]);
            packet = outer.gre(header.protocol(gre::PROTOCOL_IPV6), packet);
        }
        let mut frame = ethernet(side, &packet);
        let tag = if self.is_tag_wrong < 8 { Some(VLAN + 1) } else { vlan };
        if let Some(id) = tag {
            frame = build::vlan(id, frame);
        }
        for (at, value) in &self.changes[..usize::from(self.changed)] {
            if let Some(octet) = frame.get_mut(usize::from(*at) % 112) {
                *octet = *value;
            }
        }
        if self.is_repaired {
            repair(&mut frame, if tag.is_some() { TAGGED } else { UNTAGGED });
        }
        match self.is_cut {
            0..32 => frame.truncate(frame.len().saturating_sub(self.cut as usize)),
            32..128 => frame.resize(frame.len() + self.cut as usize, 0),
            128.. => {}
        }
        frame
    }
}

/// Puts a packet of either family into a frame from the gateway.
fn ethernet(side: Side, packet: &[u8]) -> Vec<u8> {
    let ethertype = if packet[0] >> 4 == 6 { ETHERTYPE_IPV6 } else { ETHERTYPE_IPV4 };
    build::ethernet_of(ethertype, worker_mac(side), gateway_mac(side), packet)
}

/// Corrects the checksum of what may be an outer header.
fn repair(frame: &mut [u8], at: usize) {
    let Some(header) = frame.get_mut(at..at + Ipv4::LEN) else { return };
    if ipv4::parse_quoted(header).is_ok() {
        header[10..12].fill(0);
        let sum = checksum::sum(header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
    }
}

/// A worker whose second shard is not served, and that serves no home of it in a tunnel.
fn world(mode: AccessMode, vlan: Option<u16>) -> World {
    let mut config = with_ipv6(config());
    config.nat.delegation = Some(Delegation::Claim { hold_sec: 600 });
    config.mode = mode;
    (config.access.vlan, config.internet.vlan) = (vlan, vlan);
    let mut world = World::unstarted(config);
    world.engine.setup().set_serving(ShardIndex(1), false);
    world
}

/// Reads a frame as the fast path does, into what the slow path reads of it, and returns the
/// packet; None if the slow path has to read it.
fn read_fast(
    engine: &Engine<VecFrame>,
    side: Side,
    frame: &VecFrame,
    state: &mut Packet6State,
) -> Option<Vec<u8>> {
    let mut packet = FastPacket6::empty();
    let is_tagged = engine.link(side).is_tagged();
    let is_read = match (side, engine.mode, is_tagged) {
        (Side::Access, AccessMode::Gre, false) => {
            engine.read_fast6_up::<UNTAGGED, GRE>(frame, &mut packet)
        }
        (Side::Access, AccessMode::Gre, true) => {
            engine.read_fast6_up::<TAGGED, GRE>(frame, &mut packet)
        }
        (Side::Access, AccessMode::Plain, false) => {
            engine.read_fast6_up::<UNTAGGED, PLAIN>(frame, &mut packet)
        }
        (Side::Access, AccessMode::Plain, true) => {
            engine.read_fast6_up::<TAGGED, PLAIN>(frame, &mut packet)
        }
        (Side::Internet, _, false) => engine.read_fast6_down::<UNTAGGED>(frame, &mut packet),
        (Side::Internet, _, true) => engine.read_fast6_down::<TAGGED>(frame, &mut packet),
    };
    let has_tunnel = side == Side::Access && engine.mode == AccessMode::Gre;
    let offset = if is_tagged { TAGGED } else { UNTAGGED } + if has_tunnel { GRE } else { PLAIN };
    let bytes = frame.data().get(offset..).unwrap_or_default();
    if !is_read || engine.is_unusual6(bytes, (!has_tunnel).then_some(side)) {
        return None;
    }
    let bytes = &bytes[..usize::from(packet.len)];
    packet.fill(bytes, state);
    Some(bytes.to_vec())
}

fn compare(world: &World, side: Side, bytes: &[u8], fast_paths: &mut u32) {
    let engine = &world.engine;
    let mut stale = Packet6State::EMPTY;
    (stale.kind, stale.tcp_flags, stale.transport_at) = (PacketKind::LaterFragment, 0xff, 9);
    let (mut fast, mut slow) = (stale, Packet6State::EMPTY);
    let Some(packet) = read_fast(engine, side, &VecFrame::new(bytes), &mut fast) else { return };
    *fast_paths += 1;
    let mut frame = VecFrame::new(bytes);
    match side {
        Side::Access => engine.read_access6(&mut frame, &mut slow),
        Side::Internet => engine.read_internet6(&mut frame, &mut slow),
    }
    let of = |state: &Packet6State| {
        let Packet6State { key, kind, protocol, tcp_flags, transport_at, fragment, step, .. } =
            *state;
        (key, kind, protocol, tcp_flags, transport_at, fragment, step)
    };
    assert_eq!(of(&fast), of(&slow));
    assert_eq!(frame.data(), packet);
    if side == Side::Access && engine.mode == AccessMode::Gre {
        assert_eq!(fast.home, slow.home);
    }
}

#[test]
fn fast_path_packet_of_ipv6_is_read_alike_by_the_slow_path() {
    for (mode, vlan) in [
        (AccessMode::Gre, None),
        (AccessMode::Gre, Some(VLAN)),
        (AccessMode::Plain, None),
        (AccessMode::Plain, Some(VLAN)),
    ] {
        let played = Mutex::new((world(mode, vlan), 0));
        check!().with_iterations(20_000).with_type::<Shape>().for_each(|shape| {
            let (world, fast_paths) = &mut *played.lock().unwrap();
            for side in [Side::Access, Side::Internet] {
                compare(world, side, &shape.frame(side, mode, vlan), fast_paths);
            }
        });
        assert!(played.lock().unwrap().1 > 2_000, "the fast path took packets");
    }
}

/// The usual packets take the fast path, and none of their close variants does.
#[test]
fn packets_of_a_download_take_the_fast_path() {
    let head = || build::ipv6(HOST, PEER);
    let segment = build::tcp(5000, 443).flags(ACK).payload([1; 100]);
    let usual = [head().udp(5000, 53, "query"), head().traffic_class(0xb8).tcp(segment)];
    let other = [
        head().hop_limit(1).udp(5000, 53, "query"),
        head().udp(0, 53, "query"),
        head().icmp6_echo_request(1, 1, "query"),
        head().payload(17, [0; Udp::LEN - 1]),
        build::ipv6(HOST, HOST).udp(5000, 53, "query"),
        head().udp(5000, 53, [0; 1500]),
    ];
    for mode in [AccessMode::Gre, AccessMode::Plain] {
        let world = world(mode, None);
        let packets = usual.iter().map(|it| (it, true)).chain(other.iter().map(|it| (it, false)));
        for (packet, is_fast) in packets {
            let packet = match mode {
                AccessMode::Gre => build::ipv4(HOME_A, ENDPOINT)
                    .gre(build::gre().protocol(gre::PROTOCOL_IPV6), packet),
                AccessMode::Plain => packet.clone(),
            };
            let frame = VecFrame::new(&ethernet(Side::Access, &packet));
            let mut state = Packet6State::EMPTY;
            let found = read_fast(&world.engine, Side::Access, &frame, &mut state);
            assert_eq!(found.is_some(), is_fast, "{packet:02x?}");
            let chained = frame.into_chained();
            assert_eq!(read_fast(&world.engine, Side::Access, &chained, &mut state), None);
        }
    }
}

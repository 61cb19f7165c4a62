//! Compares the fast path of tunnels over IPv6 with the slow path: any packet that the first takes,
//! the second must read alike.

use std::sync::Mutex;

use bolero::{TypeGenerator, check};
use weir_nat::PacketKey;
use weir_wire::build;
use weir_wire::ethernet::ETHERTYPE_IPV6;
use weir_wire::frame::VecFrame;

use super::*;
use crate::Side;
use crate::fast_path::FastUpstream;
use crate::ipv6::{FastPacket6, Packet6State, PacketStep6};
use crate::link_header::{TAGGED, UNTAGGED};
use crate::upstream::{Upstream, UpstreamStep};
use crate::world::ipv6::{ENDPOINT6, address6, over_ipv6};
use crate::world::*;

const VLAN: u16 = 100;
const HOME: &str = "2001:db8:e::1";
const UNKNOWN: &str = "2001:db8:e::2";
const ENDPOINT6_2: &str = "2001:db8:64::2";

/// Description of a frame: a sound one, with some octets changed, cut or padded.
#[derive(Clone, Debug, TypeGenerator)]
struct Shape {
    is_ipv6: bool,
    transport: u8,
    tcp_flags: u8,
    /// Traffic classes of the packet and of its tunnel.
    classes: [u8; 2],
    ends: u8,
    hop_limit: u8,
    fragment: u8,
    gre: u8,
    #[generator(0..3_u8)]
    changed: u8,
    changes: [(u8, u8); 3],
    #[generator(0..60_u8)]
    cut: u8,
    is_cut: u8,
}

impl Shape {
    fn inner(&self) -> Vec<u8> {
        let segment = build::tcp(5000, 443).flags(self.tcp_flags).payload([1; 20]);
        let hops = if self.hop_limit < 8 { 1 } else { 64 };
        if self.is_ipv6 {
            let head = build::ipv6("2001:db8:1000:1::7", "2001:db8:9::1")
                .traffic_class(self.classes[0])
                .hop_limit(hops);
            return match self.transport {
                0..16 => head.icmp6_echo_request(7, 1, "ping"),
                16..128 => head.udp(5000, 53, "query"),
                128.. => head.tcp(segment),
            };
        }
        let mut head = build::ipv4(PC, SERVER).tos(self.classes[0]).ttl(hops);
        if self.fragment < 16 {
            head = head.fragment(usize::from(self.fragment & 1) * 8, self.fragment & 2 == 0);
        }
        match self.transport {
            0..16 => head.icmp_echo_request(7, 1, "ping"),
            16..128 => head.udp(5000, 53, "query"),
            128.. => head.tcp(segment),
        }
    }

    fn frame(&self, vlan: Option<u16>) -> Vec<u8> {
        let (home, endpoint) = match self.ends {
            0..8 => (UNKNOWN, ENDPOINT6),
            8..16 => (HOME, ENDPOINT6_2),
            16..24 => (HOME, "2001:db8:64::3"),
            24.. => (HOME, ENDPOINT6),
        };
        let header = match self.gre {
            0..8 => build::gre().key(7),
            8..16 => build::gre().checksum(),
            16..24 => build::gre().sequence(1),
            24.. => build::gre(),
        };
        let protocol = if self.is_ipv6 { gre::PROTOCOL_IPV6 } else { gre::PROTOCOL_IPV4 };
        let outer = build::ipv6(home, endpoint).traffic_class(self.classes[1]);
        let packet = outer.gre(header.protocol(protocol), self.inner());
        let (to, from) = (worker_mac(Side::Access), gateway_mac(Side::Access));
        let mut frame = build::ethernet_of(ETHERTYPE_IPV6, to, from, &packet);
        if let Some(id) = vlan {
            frame = build::vlan(id, frame);
        }
        for (at, value) in &self.changes[..usize::from(self.changed)] {
            if let Some(octet) = frame.get_mut(usize::from(*at) % 128) {
                *octet = *value;
            }
        }
        match self.is_cut {
            0..32 => frame.truncate(frame.len().saturating_sub(self.cut.into())),
            32..128 => frame.resize(frame.len() + usize::from(self.cut), 0),
            128.. => {}
        }
        frame
    }
}

/// A worker that knows one home, and whose second shard is not served.
fn world(vlan: Option<u16>) -> World {
    let mut config = over_ipv6();
    config.shards[1].endpoint6 = Some(address6(ENDPOINT6_2));
    (config.access.vlan, config.internet.vlan) = (vlan, vlan);
    let mut world = World::unstarted(config);
    world.engine.setup().set_serving(weir_nat::ShardIndex(1), false);
    let home = address6(HOME);
    let handle = world.engine.nat_mut().intern_outer([(home >> 64) as u64, home as u64]);
    assert!(handle.is_some());
    world
}

/// Reads a frame with IPv4 inside on both ways. Returns whether the fast path has read it.
fn compare4<const LINK: usize>(engine: &Engine<VecFrame>, bytes: &[u8]) -> bool {
    let mut fast = FastUpstream::empty();
    let frame = VecFrame::new(bytes);
    let is_read = engine.read_fast_up::<LINK, GRE6>(&frame, &mut fast);
    let is_usual = is_read && engine.is_usual_over_ipv6(&frame, &fast);
    if is_usual {
        let (mut read, mut slow) = (Upstream::EMPTY, Upstream::EMPTY);
        fast.look_up.hash = fast.key.hash(&engine.nat);
        fast.fill(&bytes[LINK + GRE6..], LINK + GRE6, &mut read);
        assert_eq!(engine.access_input(&frame, &mut slow), Ok(UpstreamStep::Translate));
        let of = |packet: &Upstream| {
            let Upstream { offset, len, home, key, header_len, hash, .. } = *packet;
            (offset, len, home, key, header_len, hash, packet.is_remarked, packet.fits_fast_path)
        };
        assert_eq!(of(&read), of(&slow));
    }
    is_usual
}

/// As [`compare4`], with IPv6 inside.
fn compare6<const LINK: usize>(engine: &Engine<VecFrame>, bytes: &[u8]) -> bool {
    let mut fast = FastPacket6::empty();
    let mut frame = VecFrame::new(bytes);
    let is_read = engine.read_fast6_up::<LINK, GRE6>(&frame, &mut fast);
    let packet = bytes.get(LINK + GRE6..).unwrap_or_default();
    let is_usual = is_read && !engine.is_unusual6(packet, None);
    if is_usual {
        let packet = &packet[..usize::from(fast.len)];
        let (mut read, mut slow) = (Packet6State::EMPTY, Packet6State::EMPTY);
        fast.fill(packet, &mut read);
        engine.read_access6(&mut frame, &mut slow);
        assert_eq!(slow.step, PacketStep6::Forward);
        let of = |packet: &Packet6State| {
            let Packet6State { key, home, kind, protocol, tcp_flags, transport_at, .. } = *packet;
            (key, home, kind, protocol, tcp_flags, transport_at, packet.step)
        };
        assert_eq!(of(&read), of(&slow));
        assert_eq!(frame.data(), packet);
    }
    is_usual
}

#[test]
fn fast_path_packet_in_a_tunnel_over_ipv6_is_read_alike_by_the_slow_path() {
    for vlan in [None, Some(VLAN)] {
        let played = Mutex::new((world(vlan), [0; 2]));
        check!().with_iterations(50_000).with_type::<Shape>().for_each(|shape| {
            let (world, fast) = &mut *played.lock().unwrap();
            let (engine, frame) = (&world.engine, shape.frame(vlan));
            fast[0] += u32::from(match vlan {
                None => compare4::<UNTAGGED>(engine, &frame),
                Some(_) => compare4::<TAGGED>(engine, &frame),
            });
            fast[1] += u32::from(match vlan {
                None => compare6::<UNTAGGED>(engine, &frame),
                Some(_) => compare6::<TAGGED>(engine, &frame),
            });
        });
        let (_, fast) = played.into_inner().unwrap();
        assert!(fast.iter().all(|&fast| fast > 2_000), "the fast path took packets: {fast:?}");
    }
}

/// Frames of all kinds: each is found, and none is taken for another kind.
#[test]
fn tunnel_packets_over_ipv6_are_found_by_what_is_inside() {
    let world = world(None);
    let tunnel =
        |protocol| build::ipv6(HOME, ENDPOINT6).gre(build::gre().protocol(protocol), [0x45; 40]);
    let extended = |protocol| {
        let gre = build::gre().protocol(protocol).build(&[0x45; 40]);
        build::ipv6(HOME, ENDPOINT6).destination_options(&[]).payload(47, gre)
    };
    let packets = [
        tunnel(gre::PROTOCOL_IPV4),
        tunnel(gre::PROTOCOL_IPV6),
        tunnel(0x6558),
        build::ipv6(HOME, ENDPOINT6).icmp6_echo_request(1, 1, "ping"),
        extended(gre::PROTOCOL_IPV4),
        extended(gre::PROTOCOL_IPV6),
        build::ipv6(HOME, ENDPOINT6).udp(1, 2, ""),
    ];
    let (to, from) = (worker_mac(Side::Access), gateway_mac(Side::Access));
    let found = packets.map(|packet| {
        let frame = build::ethernet_of(ETHERTYPE_IPV6, to, from, &packet);
        world.engine.family_over_ipv6::<UNTAGGED>(&frame)
    });
    let (ipv4, ipv6) = (Some(PacketFamily::Ipv4), Some(PacketFamily::Ipv6));
    assert_eq!(found, [ipv4, ipv6, None, None, ipv4, ipv6, None]);
}

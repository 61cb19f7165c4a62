//! Tunnel packets that the access network fragmented.

mod world;

use weir_engine::*;
use weir_wire::build;
use weir_wire::gre;
use weir_wire::ipv4::Ipv4;
use world::ipv6::dual_stack;
use world::*;

/// Cuts an IPv4 packet into fragments whose payloads begin at these offsets, as a router does (RFC
/// 791 section 3.2).
fn cut(packet: &[u8], offsets: &[usize]) -> Vec<Vec<u8>> {
    let ends = offsets.iter().copied().skip(1).chain([packet.len() - Ipv4::LEN]);
    let pieces = offsets.iter().zip(ends);
    let piece = |(&offset, end): (&usize, usize)| {
        let more = end < packet.len() - Ipv4::LEN;
        build::ipv4(HOME_A, ENDPOINT)
            .identification(77)
            .fragment(offset, more)
            .payload(packet[9], &packet[Ipv4::LEN..][offset..end])
    };
    pieces.map(piece).collect()
}

fn tunnel(inner: impl AsRef<[u8]>) -> Vec<u8> {
    build::ipv4(HOME_A, ENDPOINT).gre(build::gre(), inner)
}

fn datagram(len: usize) -> Vec<u8> {
    let payload: Vec<u8> = (0..len).map(|octet| octet as u8).collect();
    build::ipv4(PC, SERVER).udp(5000, 53, payload)
}

#[test]
fn fragmented_tunnel_packet_passes_whatever_the_order_of_its_fragments() {
    let whole = World::new(config()).packet(Side::Access, &tunnel(datagram(1400))).into_internet();
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
        let mut world = World::new(config());
        let pieces = cut(&tunnel(datagram(1400)), &[0, 512, 1024]);
        for piece in &order[..2] {
            assert!(world.packet(Side::Access, &pieces[*piece]).is_nothing());
        }
        let sent = world.packet(Side::Access, &pieces[order[2]]).into_internet();
        assert_eq!(sent[Ipv4::LEN + 8..], whole[Ipv4::LEN + 8..], "the payload");
        assert_eq!(world.drops(), 0);
    }
}

#[test]
fn packets_of_ipv6_are_put_together_too() {
    let mut world = dual_stack();
    let inner = build::ipv6("2001:db8:1000:1::7", "2001:db8:9::1").udp(5000, 53, [7; 1400]);
    let header = build::gre().protocol(gre::PROTOCOL_IPV6);
    let pieces = cut(&build::ipv4(HOME_A, ENDPOINT).gre(header, &inner), &[0, 1400]);
    assert!(world.packet(Side::Access, &pieces[1]).is_nothing());
    let sent = world.packet(Side::Access, &pieces[0]).into_internet6();
    assert_eq!(sent[8..], inner[8..]);
}

/// The whole packet, 1,524 bytes, is longer than the MTU of the access link.
#[test]
fn packet_of_the_full_size_of_the_internet_passes() {
    let mut world = World::new(config());
    let inner = datagram(1500 - 28);
    let pieces = cut(&tunnel(&inner), &[0, 1480]);
    world.packet(Side::Access, &pieces[0]);
    assert_eq!(world.packet(Side::Access, &pieces[1]).into_internet().len(), inner.len());
}

#[test]
fn overlapping_fragments_pass_nothing() {
    let mut world = World::new(config());
    let packet = tunnel(datagram(1000));
    let (pieces, others) = (cut(&packet, &[0, 512]), cut(&packet, &[0, 504]));
    world.packet(Side::Access, &pieces[0]);
    assert!(world.packet(Side::Access, &others[1]).is_nothing());
    assert_eq!(world.dropped(DropReason::OuterFragment), 2);
    // A new packet of the same identification is not affected.
    world.packet(Side::Access, &pieces[0]);
    world.packet(Side::Access, &pieces[1]).into_internet();
}

#[test]
fn fragments_wait_no_longer_than_the_limit() {
    let mut config = config();
    config.fragments.timeout_ms = 2_000;
    let mut world = World::new(config);
    let pieces = cut(&tunnel(datagram(1000)), &[0, 512]);
    world.packet(Side::Access, &pieces[0]);
    world.pass_ms(2_500);
    assert!(world.packet(Side::Access, &pieces[1]).is_nothing());
    assert_eq!(world.dropped(DropReason::OuterFragment), 1);
}

/// A home that sends nothing but first fragments loses its own, and no other home's.
#[test]
fn home_has_a_share_of_the_fragments_that_wait() {
    let mut world = World::new(config());
    let other = cut(&tunnel(datagram(1000)), &[0, 512]);
    let from_b = |mut piece: Vec<u8>| {
        piece = build::ipv4(HOME_B, ENDPOINT)
            .identification(78)
            .fragment(if piece[6] & 0x20 == 0 { 512 } else { 0 }, piece[6] & 0x20 != 0)
            .payload(piece[9], &piece[Ipv4::LEN..]);
        piece
    };
    world.packet(Side::Access, &from_b(other[0].clone()));
    for identification in 0..2_000 {
        let flood = build::ipv4(HOME_A, ENDPOINT)
            .identification(identification)
            .fragment(0, true)
            .payload(47, [0; 512]);
        assert!(world.packet(Side::Access, &flood).is_nothing());
    }
    let fallen = world.dropped(DropReason::OuterFragment);
    assert!(fallen > 1_500, "a share of the room, and no more: {fallen}");
    world.packet(Side::Access, &from_b(other[1].clone())).into_internet();
}

#[test]
fn fragments_of_strangers_are_not_held() {
    let mut world = World::new(config());
    let stranger = build::ipv4("192.0.2.99", ENDPOINT).fragment(0, true).payload(47, [0; 64]);
    assert!(world.packet(Side::Access, &stranger).is_nothing());
    assert_eq!(world.dropped(DropReason::NotSubscriber), 1);
}

/// A worker without tunnels has no such fragments.
#[test]
fn plain_access_knows_no_fragments_of_tunnels() {
    let world = World::new(plain());
    let uses = world.engine.admin().table_uses();
    let table = uses.iter().find(|table| table.table == "fragments-of-tunnels").unwrap();
    assert_eq!(table.max, 0);
}

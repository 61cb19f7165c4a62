//! Tunnel packets that the access network fragmented.

use weir_engine::*;
use weir_wire::build;
use weir_wire::gre;
use weir_wire::ipv4::Ipv4;

use crate::world::ipv6::{ENDPOINT6, dual_stack, over_ipv6};
use crate::world::link6::ready6;
use crate::world::*;

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

const HOME6: &str = "2001:db8:e::1";

fn outer6(home: &str) -> build::Ipv6Builder {
    build::ipv6(home, ENDPOINT6)
}

fn tunnel6(home: &str) -> Vec<u8> {
    outer6(home).gre(build::gre(), datagram(1400))
}

/// RFC 8200 section 4.5.
#[test]
fn fragmented_tunnel_packet_over_ipv6_passes_whatever_the_order_of_its_fragments() {
    let pad = [1, 4, 0, 0, 0, 0];
    for packet in [
        tunnel6(HOME6),
        outer6(HOME6).destination_options(&pad).gre(build::gre(), datagram(1400)),
        outer6(HOME6).hop_by_hop(&pad).gre(build::gre(), datagram(1400)),
    ] {
        let pieces = build::fragments6(packet, 600, 77);
        assert_eq!(pieces.len(), 3);
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
            let mut world = ready6(over_ipv6());
            for piece in &order[..2] {
                assert!(world.packet6(Side::Access, &pieces[*piece]).is_nothing());
            }
            let sent = world.packet6(Side::Access, &pieces[order[2]]).into_internet();
            assert_eq!(sent[Ipv4::LEN + 8..], datagram(1400)[Ipv4::LEN + 8..], "the payload");
            assert_eq!((world.drops(), world.pool.alive()), (0, 0));
        }
    }
}

#[test]
fn packets_of_ipv6_are_put_together_from_fragments_of_ipv6_too() {
    let mut world = ready6(over_ipv6());
    let inner = build::ipv6("2001:db8:1000:1::7", "2001:db8:9::1").udp(5000, 53, [7; 1400]);
    let whole = outer6(HOME6).gre(build::gre().protocol(gre::PROTOCOL_IPV6), &inner);
    let pieces = build::fragments6(whole, 1400, 9);
    assert!(world.packet6(Side::Access, &pieces[1]).is_nothing());
    let sent = world.packet6(Side::Access, &pieces[0]).into_internet6();
    assert_eq!(sent[8..], inner[8..]);
}

/// RFC 5722, RFC 3168 section 5.3.
#[test]
fn fragments_of_ipv6_that_overlap_or_hide_a_congestion_mark_pass_nothing() {
    let mut world = ready6(over_ipv6());
    let pieces = build::fragments6(tunnel6(HOME6), 800, 77);
    let others = build::fragments6(tunnel6(HOME6), 792, 77);
    world.packet6(Side::Access, &pieces[0]);
    assert!(world.packet6(Side::Access, &others[1]).is_nothing());
    assert_eq!(world.dropped(DropReason::OuterFragment), 2);
    // A mark on one fragment, and no ECN on the other.
    let mut marked = pieces[1].clone();
    marked[1] |= 0b11 << 4;
    world.packet6(Side::Access, &pieces[0]);
    assert!(world.packet6(Side::Access, &marked).is_nothing());
    assert_eq!(world.dropped(DropReason::OuterFragment), 4);
    // A new packet of the same identification is not affected.
    world.packet6(Side::Access, &pieces[0]);
    world.packet6(Side::Access, &pieces[1]).into_internet();
}

/// The homes share a link: each has a share of its own all the same. Nothing else stays of them.
#[test]
fn home_over_ipv6_has_a_share_of_the_fragments_that_wait() {
    let mut world = ready6(over_ipv6());
    let modest = build::fragments6(tunnel6(HOME6), 800, 78);
    world.packet6(Side::Access, &modest[0]);
    for identification in 0..2_000 {
        let flood = outer6("2001:db8:e::2").fragment(identification, 0, true).payload(47, [0; 512]);
        assert!(world.packet6(Side::Access, &flood).is_nothing());
    }
    let fallen = world.dropped(DropReason::OuterFragment);
    assert!(fallen > 1_500, "a share of the room, and no more: {fallen}");
    let uses = world.engine.nat().admin().table_uses();
    assert_eq!(uses.iter().find(|it| it.table == "outer-addresses").unwrap().used, 0);
    world.packet6(Side::Access, &modest[1]).into_internet();
}

#[test]
fn fragments_of_ipv6_of_strangers_and_impossible_ones_are_not_held() {
    let mut world = ready6(over_ipv6());
    let stranger = outer6("2001:db8:f::1").fragment(1, 0, true).payload(47, [0; 64]);
    assert!(world.packet6(Side::Access, &stranger).is_nothing());
    assert_eq!(world.dropped(DropReason::NotSubscriber), 1);
    let empty = outer6(HOME6).fragment(1, 0, true).payload(47, [0; 0]);
    assert!(world.packet6(Side::Access, &empty).is_nothing());
    let long = outer6(HOME6).fragment(1, 65_528, false).payload(47, [0; 61]);
    assert!(world.packet6(Side::Access, &long).is_nothing());
    assert_eq!((world.dropped(DropReason::OuterFragment), world.pool.alive()), (1, 0));
    assert_eq!((world.dropped(DropReason::Ip6Malformed), world.drops()), (1, 3));
}

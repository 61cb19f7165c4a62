//! Built packets are right in every layer.

use super::*;
use crate::arp::Arp;
use crate::ethernet::{ETHERTYPE_ARP, Mac, parse_link};
use crate::ipv6 as ip6_header;
use crate::verify;
use crate::{gre as gre_header, icmp as icmp_header, ipv4 as ip_header};

#[test]
fn nested_packets_verify() {
    let dns = ipv4("192.168.1.10", "198.51.100.53").ttl(64).df(true).udp(40_000, 53, b"query");
    let ping = ipv4([192, 168, 1, 10], 0xc633_6401_u32).icmp_echo_request(1, 2, b"abc");
    let data = ipv4("192.168.1.10", "198.51.100.1")
        .options(&[1])
        .tcp(tcp(1, 2).ack().psh().payload([7; 1400]));
    for inner in [dns, ping, data] {
        let headers = [
            gre(),
            gre().key(7),
            gre().sequence(1).checksum(),
            gre().key(7).sequence(1).checksum(),
        ];
        for header in headers {
            let outer = ipv4("10.200.0.7", "10.100.0.1").gre(header, &inner);
            assert_eq!(verify::frame(&vlan(9, ethernet(mac(1), mac(2), &outer))), Ok(()));
        }
        let error = ipv4("10.9.9.9", "192.168.1.10").time_exceeded(&inner);
        assert_eq!(verify::packet(&error), Ok(()));
        assert!(error.len() <= 576);
        assert_eq!(verify::packet(&ipv4("10.0.0.1", "10.0.0.2").ipip(&inner)), Ok(()));
    }
}

#[test]
fn a_keepalive_has_protocol_zero() {
    let answer = ipv4("10.100.0.1", "10.200.0.7").gre(gre().protocol(0), []);
    let keepalive = ipv4("10.200.0.7", "10.100.0.1").gre(gre(), answer);
    assert_eq!(verify::packet(&keepalive), Ok(()));
    let inner = &keepalive[24..];
    assert_eq!(gre_header::parse(&inner[20..]).unwrap().protocol, gre_header::PROTOCOL_KEEPALIVE);
}

#[test]
fn arp_requests_are_broadcast_and_replies_go_to_their_target() {
    let request = arp(Arp::request(mac(1), 1, 2));
    let reply = arp(Arp::reply(mac(2), 2, mac(1), 1));
    assert_eq!(parse_link(&request).unwrap().destination, Mac::BROADCAST);
    let link = parse_link(&reply).unwrap();
    assert_eq!((link.destination, link.source, link.ethertype), (mac(1), mac(2), ETHERTYPE_ARP));
}

#[test]
fn an_error_quotes_no_more_than_there_is_room() {
    let offending = ipv4("10.0.0.1", "10.0.0.2").udp(1, 2, [0; 100]);
    assert_eq!(icmp_error(icmp_header::TIME_EXCEEDED, 0, [0; 4], &offending, 36).len(), 36);
    assert_eq!(
        icmp_error(icmp_header::TIME_EXCEEDED, 0, [0; 4], &offending, 1000).len(),
        8 + offending.len()
    );
}

#[test]
fn reassembled_fragments_equal_the_packet() {
    let payload: Vec<u8> = (0..3000).map(|n| n as u8).collect();
    let whole = ipv4("10.0.0.1", "10.0.0.2").identification(77).options(&[1; 4]).udp(1, 2, payload);
    for mtu in [60, 576, 1001, 1500, 3031, 3032] {
        let parts = fragments(&whole, mtu);
        let mut assembled = whole[..24].to_vec();
        for (index, part) in parts.iter().enumerate() {
            let (header, header_len, total) = ip_header::parse(part).unwrap();
            assert!(total == part.len() && total <= mtu);
            assert_eq!(verify::packet(part), Ok(()));
            assert_eq!(header.fragment_offset(), assembled.len() - 24);
            assert_eq!(header.more_fragments(), index + 1 < parts.len());
            assembled.extend_from_slice(&part[header_len..]);
        }
        assert_eq!(assembled, whole, "MTU {mtu}");
    }
}

#[test]
fn fragment_of_a_fragment_keeps_its_offset() {
    let middle = ipv4("10.0.0.1", "10.0.0.2").fragment(1480, true).payload(17, [1; 400]);
    let parts = fragments(middle, 220);
    let offsets: Vec<(usize, bool)> = parts
        .iter()
        .map(|part| {
            ip_header::parse(part)
                .map(|(header, ..)| (header.fragment_offset(), header.more_fragments()))
                .unwrap()
        })
        .collect();
    assert_eq!(offsets, [(1480, true), (1680, true)]);
}

#[test]
#[should_panic(expected = "not an IPv4 address")]
fn text_that_is_no_address_panics() {
    let _ = ipv4("10.0.0.256", "10.0.0.1");
}

#[test]
fn reassembled_ipv6_fragments_equal_the_packet() {
    let payload: Vec<u8> = (0..3000).map(|n| n as u8).collect();
    // The first two headers stay in front of the fragment header.
    let whole = ipv6("2001:db8::1", "2001:db8::2")
        .hop_by_hop(&[5, 2, 0, 0])
        .routing(4, 0, &[0; 4])
        .destination_options(&[])
        .udp(1, 2, payload);
    for mtu in [72, 1001, 1280, 1500, whole.len() - 1] {
        let parts = fragments6(&whole, mtu, 77);
        assert!(parts.len() > 1);
        let mut assembled = whole[..56].to_vec();
        for (index, part) in parts.iter().enumerate() {
            let (_, total) = ip6_header::parse(part).unwrap();
            assert!(total == part.len() && total <= mtu);
            let fragment = ip6_header::walk(part, total).unwrap().fragment.unwrap();
            assert_eq!((fragment.at, fragment.identification), (56, 77));
            assert_eq!(usize::from(fragment.offset), assembled.len() - 56);
            assert_eq!(fragment.more_fragments, index + 1 < parts.len());
            assert_eq!((part[40], part[48], part[56]), (43, 44, 60), "next headers");
            assembled.extend_from_slice(&part[64..]);
        }
        assert_eq!(assembled, whole, "MTU {mtu}");
    }
    assert_eq!(fragments6(&whole, whole.len(), 77), std::slice::from_ref(&whole));
}

#[test]
fn ipv6_error_has_at_most_1280_bytes() {
    let offending = ipv6("2001:db8::1", "2001:db8::2").udp(1, 2, [0; 2000]);
    let builder = || ipv6("2001:db8::9", "2001:db8::1");
    assert_eq!(builder().time_exceeded(&offending).len(), 1280);
    assert_eq!(builder().hop_by_hop(&[]).port_unreachable(&offending).len(), 1280);
    assert_eq!(builder().packet_too_big(1400, &offending[..100]).len(), 148);
}

#[test]
fn ipv6_addresses_have_four_forms() {
    let number = 0x2001_0db8_0000_0000_0000_0000_0000_0001_u128;
    let text = ipv6("2001:db8::1", number).payload(59, []);
    let others = ipv6(core::net::Ipv6Addr::from(number), number.to_be_bytes()).payload(59, []);
    assert_eq!(text, others);
}

#[test]
#[should_panic(expected = "not an IPv6 address")]
fn text_that_is_no_ipv6_address_panics() {
    let _ = ipv6("2001:db8::g", "::1");
}

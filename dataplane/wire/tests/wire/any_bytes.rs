//! No parser and no edit panics, whatever the bytes.

use crate::packets::{Damage, Packet};
use crate::packets6::Packet6;
use bolero::check;
use weir_wire::checksum::{self, Delta};
use weir_wire::ipv6::Ipv6;
use weir_wire::{arp, describe, ethernet, gre, icmp, icmp6, ipv4, ipv6, ndp};
use weir_wire::{ports, tcp, udp, verify};

/// Passes `bytes` to every function that reads bytes from the network.
fn read_as_everything(bytes: &[u8]) {
    let _ = ethernet::parse_link(bytes);
    let _ = ethernet::parse_vlan(bytes);
    let _ = arp::parse(bytes).map(arp::Arp::is_valid_ipv4_ethernet);
    let _ = (ipv4::parse(bytes), ipv4::parse_quoted(bytes), ipv4::header_checksum_ok(bytes));
    let _ = gre::parse(bytes);
    let _ = (
        udp::parse(bytes),
        udp::parse_header(bytes),
        udp::checksum(1, 2, bytes),
        udp::checksum_ok(1, 2, bytes),
    );
    let _ = (
        tcp::parse(bytes),
        tcp::mss(bytes),
        tcp::checksum(1, 2, bytes),
        tcp::checksum_ok(1, 2, bytes),
    );
    let _ =
        (icmp::parse(bytes), icmp::checksum_ok(bytes), ports::parse(bytes), checksum::sum(bytes));
    let _ = (ipv6::parse(bytes), ipv6::parse_quoted(bytes), ipv6::parse_plain(bytes));
    let _ = (ipv6::walk(bytes, bytes.len()), ipv6::walk(bytes, 0), ipv6::walk(bytes, usize::MAX));
    let _ = (icmp6::parse(bytes), icmp6::quote(bytes), icmp6::checksum_ok(1, 2, bytes));
    let _ = (tcp::checksum6(1, 2, bytes), tcp::checksum6_ok(1, 2, bytes));
    let _ = (udp::checksum6(1, 2, bytes), udp::checksum6_ok(1, 2, bytes));
    let mut ip = Ipv6::new(1, 2, ipv6::PROTOCOL_ICMPV6, 0);
    ip.hop_limit = ndp::HOP_LIMIT;
    let _ = ndp::parse(&ip, bytes);
    let _ = (verify::frame(bytes), verify::packet(bytes));
    let _ = (describe::describe(bytes), describe::describe_packet(bytes));
}

fn edit_as_everything(bytes: &[u8]) {
    let mut copy = bytes.to_vec();
    let _ = (ethernet::parse_mut(&mut copy).is_ok(), ipv4::parse_mut(&mut copy).is_ok());
    let _ = (ipv4::parse_quoted_mut(&mut copy).is_ok(), ports::parse_mut(&mut copy).is_ok());
    let _ = (udp::parse_mut(&mut copy).is_ok(), udp::parse_header_mut(&mut copy).is_ok());
    let _ = (tcp::parse_mut(&mut copy).is_ok(), tcp::clamp_mss(&mut copy, 1000));
    icmp::apply_delta(&mut copy, Delta::new().replace16(1, 2));
    icmp::set_checksum(&mut copy);
    let _ = (ipv6::parse_mut(&mut copy).is_ok(), ipv6::parse_quoted_mut(&mut copy).is_ok());
    icmp6::apply_delta(&mut copy, Delta::new().replace128(1, 2));
    icmp6::set_checksum(1, 2, &mut copy);
}

/// Checks the lengths that parsers return, on which all access behind the headers relies.
fn lengths_are_within(bytes: &[u8]) {
    if let Ok((_, header_len, total_length)) = ipv4::parse(bytes) {
        assert!(20 <= header_len && header_len <= total_length && total_length <= bytes.len());
    }
    if let Ok((_, header_len, total_length)) = ipv4::parse_quoted(bytes) {
        assert!(20 <= header_len && header_len <= total_length && header_len <= bytes.len());
    }
    if let Ok((_, total_length)) = ipv6::parse(bytes) {
        assert!(40 <= total_length && total_length <= bytes.len());
        if let Ok(upper) = ipv6::walk(bytes, total_length) {
            assert!(40 <= upper.offset && upper.offset <= total_length.min(296));
        }
    }
    if let Some(quote) = icmp6::quote(bytes) {
        assert!(40 <= quote.upper.offset && quote.upper.offset <= bytes.len());
    }
    if let Ok(header) = tcp::parse(bytes) {
        assert!(20 <= header.header_len() && header.header_len() <= bytes.len());
    }
    if let Ok(header) = udp::parse(bytes) {
        assert!((8..=bytes.len()).contains(&usize::from(header.length.get())));
    }
    if let Ok(header) = gre::parse(bytes) {
        assert!(4 <= header.len && header.len <= 16 && header.len <= bytes.len());
    }
    if let Ok(link) = ethernet::parse_link(bytes) {
        assert!(14 <= link.len && link.len <= bytes.len());
    }
}

#[test]
fn random_bytes_never_make_a_parser_panic() {
    check!().with_iterations(20_000).for_each(|bytes: &[u8]| {
        read_as_everything(bytes);
        edit_as_everything(bytes);
        lengths_are_within(bytes);
    });
}

#[test]
fn damaged_packets_never_make_a_parser_panic_at_any_layer() {
    check!().with_iterations(3_000).with_type::<(Packet, Damage)>().for_each(|(packet, damage)| {
        let bytes = damage.apply(packet.frame());
        for start in (0..bytes.len().min(100)).step_by(2) {
            read_as_everything(&bytes[start..]);
            edit_as_everything(&bytes[start..]);
            lengths_are_within(&bytes[start..]);
        }
    });
}

#[test]
fn built_packets_verify() {
    check!().with_iterations(5_000).with_type::<Packet>().for_each(|packet| {
        let frame = packet.frame();
        // Any protocol number may be drawn; random bytes behind a known one need not be right.
        let is_random = matches!(&packet.content, crate::packets::Content::Other { .. });
        if !is_random {
            assert_eq!(verify::frame(&frame), Ok(()), "{}", describe::describe(&frame));
        }
    });
}

#[test]
fn damaged_ipv6_packets_never_make_a_parser_panic_at_any_layer() {
    check!().with_iterations(3_000).with_type::<(Packet6, Damage)>().for_each(
        |(packet, damage)| {
            let bytes = damage.apply(packet.frame());
            for start in (0..bytes.len().min(140)).step_by(2) {
                read_as_everything(&bytes[start..]);
                edit_as_everything(&bytes[start..]);
                lengths_are_within(&bytes[start..]);
            }
        },
    );
}

#[test]
fn built_ipv6_packets_verify() {
    check!().with_iterations(10_000).with_type::<Packet6>().for_each(|packet| {
        // A chain that the walk refuses is not valid, and random bytes need not be.
        let inner = packet.inner();
        let is_valid = ipv6::walk(&inner, inner.len()).is_ok() && !packet.upper.is_random();
        if is_valid {
            let frame = packet.frame();
            assert_eq!(verify::frame(&frame), Ok(()), "{}", describe::describe(&frame));
        }
    });
}

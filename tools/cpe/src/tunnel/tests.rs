use super::*;
use ecn::{CE, ECN, ECT_0, ECT_1, NOT_ECT};
use weir_wire::{checksum, ipv6};
use zerocopy::IntoBytes;

/// "Don't fragment" in an IPv4 header.
const DONT_FRAGMENT: u16 = 0x4000;
const BOTH: Inside = Inside { ipv4: true, ipv6: true };

fn over_ipv4(key: Option<u32>) -> Tunnel {
    let (local, remote) = (Ipv4Addr::new(10, 200, 0, 1), Ipv4Addr::new(10, 100, 0, 1));
    Tunnel::new(Ends::V4 { local, remote }, key, BOTH)
}

fn over_ipv6(key: Option<u32>) -> Tunnel {
    let (local, remote) = ("2001:db8:a::1".parse().unwrap(), "2001:db8:e::1".parse().unwrap());
    Tunnel::new(Ends::V6 { local, remote }, key, BOTH)
}

/// Returns an inner IPv4 packet of 28 bytes with the given type of service and flags.
fn inner_ipv4(tos: u8, flags_fragment: u16) -> Vec<u8> {
    let source = Ipv4Addr::new(192, 168, 1, 2).into();
    let mut head = Ipv4::new(source, Ipv4Addr::new(198, 51, 100, 1).into(), 17, 8);
    head.tos = tos;
    head.identification = 7.into();
    head.flags_fragment = flags_fragment.into();
    head.set_checksum();
    let mut packet = head.as_bytes().to_vec();
    packet.extend_from_slice(&[1, 2, 3, 4, 0, 8, 0, 0]);
    packet
}

/// Returns an inner IPv6 packet with the given traffic class, a flow label and a UDP header.
fn inner_ipv6(traffic_class: u8, length: u16) -> Vec<u8> {
    let source: Ipv6Addr = "2001:db8:1000::2".parse().unwrap();
    let destination: Ipv6Addr = "2001:db8:ffff::1".parse().unwrap();
    let payload_len = length - Ipv6::LEN as u16;
    let mut head = Ipv6::new(source.into(), destination.into(), 17, payload_len);
    head.set_traffic_class(traffic_class);
    head.set_flow_label(0xa_bcde);
    let mut packet = head.as_bytes().to_vec();
    packet.extend_from_slice(&[1, 2, 3, 4]);
    packet.resize(length.into(), 0x5a);
    packet
}

fn sealed(tunnel: &Tunnel, inner: &[u8]) -> Vec<u8> {
    let mut buffer = vec![0xee; tunnel.headroom()];
    buffer.extend_from_slice(inner);
    tunnel.encapsulate(&mut buffer, 99).unwrap();
    buffer
}

/// Decapsulates as the socket of the tunnel's family delivers.
fn opened<'a>(tunnel: &Tunnel, outer: &'a mut [u8]) -> Result<&'a [u8], Refused> {
    let (gre, traffic_class) = match tunnel.ends() {
        Ends::V4 { .. } => behind_ipv4(outer)?,
        Ends::V6 { .. } => {
            let (header, length) = ipv6::parse(outer).map_err(|_| Refused::Malformed)?;
            (Ipv6::LEN..length, header.traffic_class())
        }
    };
    tunnel.decapsulate(&mut outer[gre], traffic_class)
}

fn set_outer_class(outer: &mut [u8], class: u8) {
    if outer[0] >> 4 == 4 {
        outer[1] = class;
    } else {
        outer[0] = 0x60 | class >> 4;
        outer[1] = class << 4 | outer[1] & 0x0f;
    }
}

/// Returns the traffic class of a packet of either family.
fn class(packet: &[u8]) -> u8 {
    if packet[0] >> 4 == 4 { packet[1] } else { packet[0] << 4 | packet[1] >> 4 }
}

#[test]
fn decapsulation_restores_the_encapsulated_packet_of_each_family() {
    for key in [None, Some(0xdead_beef)] {
        let key_len = if key.is_some() { 4 } else { 0 };
        for (there, overhead) in [(over_ipv4(key), 24), (over_ipv6(key), 44)] {
            assert_eq!(there.headroom(), overhead + key_len);
            for packet in [inner_ipv4(0, DONT_FRAGMENT), inner_ipv6(0, 60)] {
                let mut outer = sealed(&there, &packet);
                assert_eq!(outer.len(), packet.len() + there.headroom());
                assert_eq!(opened(&there, &mut outer).unwrap(), packet);
            }
        }
    }
}

#[test]
fn the_gre_protocol_names_the_inner_family() {
    for (there, at) in [(over_ipv4(None), 22), (over_ipv6(None), 42)] {
        assert_eq!(sealed(&there, &inner_ipv4(0, 0))[at..at + 2], [0x08, 0x00]);
        assert_eq!(sealed(&there, &inner_ipv6(0, 60))[at..at + 2], [0x86, 0xdd]);
    }
}

#[test]
fn the_outer_ipv4_header_follows_the_inner_one() {
    let outer = sealed(&over_ipv4(None), &inner_ipv4(0xb8 | ECT_0, DONT_FRAGMENT));
    let (head, _, total_length) = ipv4::parse(&outer).unwrap();
    assert_eq!((head.tos, head.ttl, head.protocol), (0xb8 | ECT_0, 64, 47));
    assert!(head.dont_fragment());
    assert_eq!(total_length, outer.len());
    assert_eq!(checksum::sum(&outer[..Ipv4::LEN]), 0);
    let outer = sealed(&over_ipv4(None), &inner_ipv4(0, 0));
    assert!(!ipv4::parse(&outer).unwrap().0.dont_fragment());
}

#[test]
fn an_inner_ipv6_packet_that_its_sender_could_shorten_is_not_fragmented_outside() {
    for (length, dont_fragment) in [(60, false), (1280, false), (1281, true), (1476, true)] {
        let outer = sealed(&over_ipv4(None), &inner_ipv6(0xb8 | ECT_0, length));
        let (head, _, total_length) = ipv4::parse(&outer).unwrap();
        assert_eq!(head.tos, 0xb8 | ECT_0);
        assert_eq!(head.dont_fragment(), dont_fragment, "{length} bytes");
        assert_eq!(total_length, outer.len());
    }
}

#[test]
fn the_outer_ipv6_header_follows_the_inner_one() {
    for inner in [inner_ipv4(0xb8 | ECT_0, 0), inner_ipv6(0xb8 | ECT_0, 60)] {
        let outer = sealed(&over_ipv6(None), &inner);
        let (head, total_length) = ipv6::parse(&outer).unwrap();
        assert_eq!((head.traffic_class(), head.hop_limit), (0xb8 | ECT_0, 64));
        assert_eq!((head.next_header, total_length), (47, outer.len()));
        assert_eq!(outer[8..24], [0x20, 1, 0xd, 0xb8, 0, 0xa, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(outer[24..40], [0x20, 1, 0xd, 0xb8, 0, 0xe, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(outer[40..42], [0, 0], "no GRE checksum, key or sequence number");
    }
}

#[test]
fn the_outer_flow_label_is_one_for_each_inner_flow() {
    let tunnel = over_ipv6(None);
    let label = |inner: &[u8]| {
        let outer = sealed(&tunnel, inner);
        ipv6::parse(&outer).unwrap().0.flow_label()
    };
    for inner in [inner_ipv4(0, 0), inner_ipv6(0, 60)] {
        assert_ne!(label(&inner), 0);
        assert_eq!(label(&inner), label(&inner));
    }
    assert_eq!(label(&inner_ipv6(0, 60)), label(&inner_ipv6(CE, 1000)));
    // Two labels of 20 bits are equal by chance once in a million; 64 flows are not.
    let of_ports: std::collections::HashSet<u32> = (0..64)
        .flat_map(|port| {
            let (mut ipv4, mut ipv6) = (inner_ipv4(0, 0), inner_ipv6(0, 60));
            (ipv4[20], ipv6[40]) = (port, port);
            [label(&ipv4), label(&ipv6)]
        })
        .collect();
    assert!(of_ports.len() > 100, "{} labels", of_ports.len());
}

#[test]
fn a_congestion_mark_on_the_way_reaches_the_inner_packet() {
    for there in [over_ipv4(None), over_ipv6(None)] {
        for packet in [inner_ipv4(0xb8 | ECT_0, 0), inner_ipv6(0xb8 | ECT_0, 60)] {
            for mark in [CE, ECT_1] {
                let mut outer = sealed(&there, &packet);
                set_outer_class(&mut outer, mark);
                let inner = opened(&there, &mut outer).unwrap();
                assert_eq!(class(inner), 0xb8 | mark, "the inner DSCP with the outer mark");
                if inner[0] >> 4 == 4 {
                    assert_eq!(checksum::sum(&inner[..Ipv4::LEN]), 0);
                } else {
                    assert_eq!(ipv6::parse(inner).unwrap().0.flow_label(), 0xa_bcde);
                }
                assert_eq!(inner[12..], packet[12..]);
            }
        }
    }
}

#[test]
fn a_congestion_mark_is_never_lost_on_a_sender_without_ecn() {
    for there in [over_ipv4(None), over_ipv6(None)] {
        for packet in [inner_ipv4(NOT_ECT, 0), inner_ipv6(NOT_ECT, 60)] {
            let mut outer = sealed(&there, &packet);
            set_outer_class(&mut outer, CE);
            assert_eq!(opened(&there, &mut outer), Err(Refused::Congestion));
            for mark in [ECT_0, ECT_1] {
                let mut outer = sealed(&there, &packet);
                set_outer_class(&mut outer, mark);
                assert_eq!(class(opened(&there, &mut outer).unwrap()) & ECN, NOT_ECT);
            }
        }
    }
}

#[test]
fn a_foreign_key_is_refused() {
    for over in [over_ipv4, over_ipv6] {
        let mut outer = sealed(&over(Some(1)), &inner_ipv6(0, 60));
        assert_eq!(opened(&over(Some(2)), &mut outer), Err(Refused::Key));
        assert_eq!(opened(&over(None), &mut outer), Err(Refused::Key));
    }
}

#[test]
fn a_family_that_the_tunnel_does_not_carry_is_refused_both_ways() {
    for over in [over_ipv4(None), over_ipv6(None)] {
        let packets = [inner_ipv4(0, 0), inner_ipv6(0, 60)];
        for (carried, other) in [(0, 1), (1, 0)] {
            let inside = Inside { ipv4: carried == 0, ipv6: carried == 1 };
            let narrow = Tunnel::new(over.ends(), None, inside);
            let mut outer = sealed(&narrow, &packets[carried]);
            assert_eq!(opened(&narrow, &mut outer).unwrap(), packets[carried]);
            let mut buffer = vec![0; narrow.headroom()];
            buffer.extend_from_slice(&packets[other]);
            assert_eq!(narrow.encapsulate(&mut buffer, 1), Err(Refused::Protocol));
            let mut outer = sealed(&over, &packets[other]);
            assert_eq!(opened(&narrow, &mut outer), Err(Refused::Protocol));
        }
    }
}

#[test]
fn a_packet_of_another_family_than_its_gre_protocol_is_refused() {
    for (there, at) in [(over_ipv4(None), 22), (over_ipv6(None), 42)] {
        let mut outer = sealed(&there, &inner_ipv4(0, 0));
        outer[at..at + 2].copy_from_slice(&gre::PROTOCOL_IPV6.to_be_bytes());
        assert_eq!(opened(&there, &mut outer), Err(Refused::Malformed));
        let mut outer = sealed(&there, &inner_ipv6(0, 60));
        outer[at..at + 2].copy_from_slice(&gre::PROTOCOL_IPV4.to_be_bytes());
        assert_eq!(opened(&there, &mut outer), Err(Refused::Malformed));
        outer[at..at + 2].copy_from_slice(&0x8847u16.to_be_bytes());
        assert_eq!(opened(&there, &mut outer), Err(Refused::Protocol), "MPLS");
    }
}

#[test]
fn cut_packets_are_refused_at_every_length() {
    for there in [over_ipv4(Some(5)), over_ipv6(Some(5))] {
        for packet in [inner_ipv4(0, 0), inner_ipv6(0, 60)] {
            let whole = sealed(&there, &packet);
            for length in 0..whole.len() {
                let mut cut = whole[..length].to_vec();
                assert_eq!(opened(&there, &mut cut), Err(Refused::Malformed));
            }
            // Without its outer header, as an IPv6 socket delivers it.
            let outer_len = there.headroom() - 8;
            for length in 0..whole.len() - outer_len {
                let mut cut = whole[outer_len..outer_len + length].to_vec();
                assert_eq!(there.decapsulate(&mut cut, 0), Err(Refused::Malformed));
            }
        }
    }
}

#[test]
fn a_packet_too_long_for_the_outer_header_is_refused() {
    for there in [over_ipv4(None), over_ipv6(None)] {
        let mut buffer = vec![0; there.headroom()];
        buffer.extend_from_slice(&inner_ipv6(0, u16::MAX));
        assert_eq!(there.encapsulate(&mut buffer, 1), Err(Refused::Malformed));
    }
}

#[test]
fn endpoints_of_two_families_are_no_tunnel() {
    let (ipv4, ipv6) = (IpAddr::from([10, 0, 0, 1]), "2001:db8::1".parse().unwrap());
    assert_eq!(Ends::new(ipv4, ipv6), None);
    assert_eq!(Ends::new(ipv6, ipv4), None);
    assert!(matches!(Ends::new(ipv4, ipv4), Some(Ends::V4 { .. })));
    assert!(matches!(Ends::new(ipv6, ipv6), Some(Ends::V6 { .. })));
}

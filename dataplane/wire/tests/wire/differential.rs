//! The same bytes are given to weir_wire and to etherparse: both accept or both refuse, and read
//! the same fields.
//!
//! Intended differences:
//! - UDP length 0 means "to the end of the packet" to etherparse (a jumbogram, RFC 2675: IPv6
//!   only); weir_wire calls it malformed.
//! - ICMP timestamps must be exactly 20 bytes long for etherparse; weir_wire reads the header of
//!   any message.
//! - etherparse reads ARP of any hardware; weir_wire reads IPv4 over Ethernet, 28 bytes.
//! - Reserved bits (the first IPv4 flag, three bits of TCP) are lost in etherparse's owned headers,
//!   and so in the checksums it computes; weir_wire's checksums cover the bytes as they are.
//!   Checksums are compared when these bits are clear.
//! - etherparse's whole-packet reader also reads the authentication header behind IPv4; only
//!   headers are compared here.

use crate::packets::{Damage, Packet};
use bolero::check;
use etherparse::{
    ArpPacketSlice, Ethernet2HeaderSlice, Icmpv4Slice, Ipv4HeaderSlice, SingleVlanHeaderSlice,
    TcpSlice, UdpSlice,
};
use weir_wire::ethernet::{ETHERTYPE_ARP, ETHERTYPE_IPV4};
use weir_wire::{arp, ethernet, gre, icmp, ipv4, tcp, udp};

fn compare_ethernet(bytes: &[u8]) {
    let theirs = Ethernet2HeaderSlice::from_slice(bytes);
    let ours = ethernet::parse(bytes);
    assert_eq!(ours.is_ok(), theirs.is_ok());
    if let (Ok(ours), Ok(theirs)) = (ours, theirs) {
        assert_eq!((ours.destination.0, ours.source.0), (theirs.destination(), theirs.source()));
        assert_eq!(ours.ethertype.get(), theirs.ether_type().0);
    }
}

fn compare_vlan(bytes: &[u8]) {
    let theirs = SingleVlanHeaderSlice::from_slice(bytes);
    let ours = ethernet::parse_vlan(bytes);
    assert_eq!(ours.is_ok(), theirs.is_ok());
    if let (Ok(ours), Ok(theirs)) = (ours, theirs) {
        assert_eq!(ours.id(), theirs.vlan_identifier().value());
        assert_eq!(ours.priority(), theirs.priority_code_point().value());
        assert_eq!(ours.ethertype.get(), theirs.ether_type().0);
    }
}

fn compare_arp(bytes: &[u8]) {
    let Ok(ours) = arp::parse(bytes) else {
        return;
    };
    if !ours.is_valid_ipv4_ethernet() {
        return;
    }
    let theirs = ArpPacketSlice::from_slice(bytes).expect("28 bytes with lengths 6 and 4");
    assert_eq!(ours.operation.get(), theirs.operation().0);
    assert_eq!(ours.sender_mac.0, theirs.sender_hw_addr());
    assert_eq!(ours.sender_ip.to_bytes(), theirs.sender_protocol_addr());
    assert_eq!(ours.target_mac.0, theirs.target_hw_addr());
    assert_eq!(ours.target_ip.to_bytes(), theirs.target_protocol_addr());
}

/// Compares the IPv4 header; returns protocol and payload, on which both agree.
fn compare_ipv4(bytes: &[u8]) -> Option<(u8, &[u8])> {
    let header = Ipv4HeaderSlice::from_slice(bytes);
    // Ipv4Slice would read extension headers as well; this is its length check.
    let lengths_fit = header.as_ref().is_ok_and(|header| {
        let total_length = usize::from(header.total_len());
        header.payload_len().is_ok() && total_length <= bytes.len()
    });
    let ours = ipv4::parse(bytes);
    assert_eq!(ours.is_ok(), lengths_fit);
    assert_eq!(
        ipv4::parse_quoted(bytes).is_ok(),
        header.as_ref().is_ok_and(|header| header.payload_len().is_ok())
    );
    let (Ok((ours, header_len, total_length)), Ok(theirs)) = (ours, header) else {
        return None;
    };
    assert_eq!(header_len, theirs.slice().len());
    assert_eq!(total_length, usize::from(theirs.total_len()));
    assert_eq!((ours.dscp(), ours.ecn()), (theirs.dcp().value(), theirs.ecn().value()));
    assert_eq!(ours.identification.get(), theirs.identification());
    assert_eq!(
        (ours.dont_fragment(), ours.more_fragments()),
        (theirs.dont_fragment(), theirs.more_fragments())
    );
    assert_eq!(ours.fragment_offset(), usize::from(theirs.fragments_offset().value()) * 8);
    assert_eq!(ours.is_fragment(), theirs.is_fragmenting_payload());
    assert_eq!((ours.ttl, ours.protocol), (theirs.ttl(), theirs.protocol().0));
    assert_eq!(ours.source.to_bytes(), theirs.source());
    assert_eq!(ours.destination.to_bytes(), theirs.destination());
    if bytes[6] & 0x80 == 0 {
        let their_checksum = theirs.to_header().calc_header_checksum();
        // etherparse computes the checksum, weir_wire verifies it: 0 and 0xffff are the same
        // number.
        let is_right = their_checksum % 0xffff == theirs.header_checksum() % 0xffff;
        assert_eq!(ipv4::header_checksum_ok(bytes), is_right);
    }
    Some((ours.protocol, &bytes[header_len..total_length]))
}

fn compare_udp(bytes: &[u8]) {
    let theirs = UdpSlice::from_slice(bytes);
    let ours = udp::parse(bytes);
    if let Ok(theirs) = &theirs {
        if theirs.length() == 0 {
            assert!(ours.is_err());
            return;
        }
    }
    assert_eq!(ours.is_ok(), theirs.is_ok());
    if let (Ok(ours), Ok(theirs)) = (ours, theirs) {
        assert_eq!(ours.source_port.get(), theirs.source_port());
        assert_eq!(ours.destination_port.get(), theirs.destination_port());
        assert_eq!((ours.length.get(), ours.checksum.get()), (theirs.length(), theirs.checksum()));
        let datagram = &bytes[..usize::from(theirs.length())];
        let their_checksum =
            theirs.to_header().calc_checksum_ipv4_raw([1, 2, 3, 4], [5, 6, 7, 8], theirs.payload());
        assert_eq!(Ok(udp::checksum(0x0102_0304, 0x0506_0708, datagram)), their_checksum);
    }
}

fn compare_tcp(bytes: &[u8]) {
    let theirs = TcpSlice::from_slice(bytes);
    let ours = tcp::parse(bytes);
    assert_eq!(ours.is_ok(), theirs.is_ok());
    if let (Ok(ours), Ok(theirs)) = (ours, theirs) {
        assert_eq!(ours.source_port.get(), theirs.source_port());
        assert_eq!(ours.destination_port.get(), theirs.destination_port());
        assert_eq!(ours.sequence.get(), theirs.sequence_number());
        assert_eq!(ours.acknowledgment.get(), theirs.acknowledgment_number());
        assert_eq!(ours.header_len(), theirs.header_len());
        assert_eq!(ours.window.get(), theirs.window_size());
        assert_eq!(
            (ours.checksum.get(), ours.urgent.get()),
            (theirs.checksum(), theirs.urgent_pointer())
        );
        let ours =
            [tcp::FIN, tcp::SYN, tcp::RST, tcp::PSH, tcp::ACK, tcp::URG].map(|flag| ours.has(flag));
        let theirs_flags =
            [theirs.fin(), theirs.syn(), theirs.rst(), theirs.psh(), theirs.ack(), theirs.urg()];
        assert_eq!(ours, theirs_flags);
        let their_checksum =
            theirs.to_header().calc_checksum_ipv4_raw([1, 2, 3, 4], [5, 6, 7, 8], theirs.payload());
        if bytes[12] & 0x0e == 0 {
            assert_eq!(Ok(tcp::checksum(0x0102_0304, 0x0506_0708, bytes)), their_checksum);
        }
    }
}

fn compare_icmp(bytes: &[u8]) {
    let ours = icmp::parse(bytes);
    match Icmpv4Slice::from_slice(bytes) {
        Ok(theirs) => {
            let ours = ours.expect("etherparse reads it");
            assert_eq!((ours.kind, ours.code), (theirs.type_u8(), theirs.code_u8()));
            assert_eq!((ours.checksum.get(), ours.rest), (theirs.checksum(), theirs.bytes5to8()));
        }
        Err(_) => {
            let is_timestamp = [icmp::TIMESTAMP_REQUEST, icmp::TIMESTAMP_REPLY];
            assert!(ours.is_err() || is_timestamp.contains(&bytes[0]));
        }
    }
}

fn compare_frame(bytes: &[u8]) {
    compare_ethernet(bytes);
    compare_vlan(bytes.get(14..).unwrap_or_default());
    let Ok(link) = ethernet::parse_link(bytes) else {
        return;
    };
    match link.ethertype {
        ETHERTYPE_IPV4 => compare_packet(&bytes[link.len..]),
        ETHERTYPE_ARP => compare_arp(&bytes[link.len..]),
        _ => {}
    }
}

/// Compares all layers through the tunnels to the innermost one; etherparse does not support GRE.
fn compare_packet(bytes: &[u8]) {
    match compare_ipv4(bytes) {
        Some((ipv4::PROTOCOL_UDP, payload)) => compare_udp(payload),
        Some((ipv4::PROTOCOL_TCP, payload)) => compare_tcp(payload),
        Some((ipv4::PROTOCOL_ICMP, payload)) => compare_icmp(payload),
        Some((ipv4::PROTOCOL_IPIP, payload)) => compare_packet(payload),
        Some((ipv4::PROTOCOL_GRE, payload)) => {
            if let Ok(header) = gre::parse(payload) {
                compare_packet(&payload[header.len..]);
            }
        }
        _ => {}
    }
}

#[test]
fn whole_packets_are_read_as_etherparse_reads_them() {
    check!()
        .with_iterations(5_000)
        .with_type::<Packet>()
        .for_each(|packet| compare_frame(&packet.frame()));
}

#[test]
fn damaged_packets_are_read_as_etherparse_reads_them() {
    check!().with_iterations(20_000).with_type::<(Packet, Damage)>().for_each(
        |(packet, damage)| {
            compare_frame(&damage.apply(packet.frame()));
        },
    );
}

#[test]
fn random_bytes_are_read_as_etherparse_reads_them_in_every_layer() {
    check!().with_iterations(20_000).for_each(|bytes: &[u8]| {
        compare_ethernet(bytes);
        compare_vlan(bytes);
        compare_arp(bytes);
        compare_ipv4(bytes);
        compare_udp(bytes);
        compare_tcp(bytes);
        compare_icmp(bytes);
    });
}

#[test]
fn damaged_arp_is_read_as_etherparse_reads_it() {
    check!()
        .with_iterations(5_000)
        .with_type::<([u8; 6], u32, [u8; 6], u32, Damage)>()
        .cloned()
        .for_each(|(from, from_ip, to, to_ip, damage)| {
            let packet = arp::Arp::reply(ethernet::Mac(from), from_ip, ethernet::Mac(to), to_ip);
            let frame = weir_wire::build::arp(packet);
            compare_frame(&frame);
            compare_frame(&damage.apply(frame));
        });
}

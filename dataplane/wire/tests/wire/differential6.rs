//! The same IPv6 bytes are given to weir_wire and to etherparse: both accept or both refuse, and
//! read the same fields.
//!
//! Intended differences:
//! - weir_wire refuses chains of extension headers that etherparse accepts: too many, too long,
//!   routing headers of type 0, second fragment headers, fragments of an impossible length, and
//!   hop-by-hop options that are wrong or of a jumbogram. Each refusal is checked against the
//!   headers that etherparse finds.
//! - etherparse 0.19 reads offset and M flag from other bits of the fragment header than RFC 8200
//!   section 4.5 says; they are compared with the bytes of the header that it finds.
//! - etherparse reads on behind the header of a fragment that is not the first, where the middle of
//!   a packet lies.

use crate::packets::Damage;
use crate::packets6::Packet6;
use bolero::check;
use etherparse::err::ipv6_exts::HeaderSliceError;
use etherparse::{
    Icmpv6Slice, IpNumber, Ipv6ExtensionSlice, Ipv6ExtensionsSlice, Ipv6HeaderSlice, TcpSlice,
    UdpSlice,
};
use weir_wire::ethernet::{self, ETHERTYPE_IPV4, ETHERTYPE_IPV6};
use weir_wire::ipv6::{self, ExtensionFault, Ipv6, UpperLayer};
use weir_wire::{gre, icmp6, ipv4, tcp, udp};

const SOURCE: [u8; 16] = [0x20, 1, 0xd, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
const DESTINATION: [u8; 16] = [0xfd, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0xff, 0xff, 0xff, 0xff, 0, 1];

fn addresses() -> (u128, u128) {
    (u128::from_be_bytes(SOURCE), u128::from_be_bytes(DESTINATION))
}

/// Compares the IPv6 header; returns it with the length of a packet of which all bytes are there.
fn compare_header(bytes: &[u8]) -> Option<(&Ipv6, usize)> {
    let theirs = Ipv6HeaderSlice::from_slice(bytes);
    let quoted = ipv6::parse_quoted(bytes);
    assert_eq!(quoted.is_ok(), theirs.is_ok());
    let (Ok((ours, total_length)), Ok(theirs)) = (quoted, theirs) else { return None };
    assert_eq!((ours.version(), ours.traffic_class()), (6, theirs.traffic_class()));
    assert_eq!((ours.dscp(), ours.ecn()), (theirs.dscp().value(), theirs.ecn().value()));
    assert_eq!(ours.flow_label(), theirs.flow_label().value());
    assert_eq!((ours.next_header, ours.hop_limit), (theirs.next_header().0, theirs.hop_limit()));
    assert_eq!(ours.source.to_bytes(), theirs.source());
    assert_eq!(ours.destination.to_bytes(), theirs.destination());
    assert_eq!(total_length, Ipv6::LEN + usize::from(theirs.payload_length()));
    assert_eq!(ipv6::parse(bytes).is_ok(), total_length <= bytes.len());
    ipv6::parse(bytes).ok()
}

type Theirs<'a> = Result<(Ipv6ExtensionsSlice<'a>, IpNumber, &'a [u8]), HeaderSliceError>;

/// Compares the walk over the extension headers; returns the upper layer if weir_wire finds it.
fn compare_walk(bytes: &[u8], header: &Ipv6, total_length: usize) -> Option<UpperLayer> {
    let payload = &bytes[Ipv6::LEN..total_length];
    let theirs = Ipv6ExtensionsSlice::from_slice(IpNumber(header.next_header), payload);
    match ipv6::walk(bytes, total_length) {
        Ok(upper) if !upper.has_header() => {
            // etherparse stops at the end of these bytes, whatever follows the fragment header.
            let mut front = payload[..upper.offset - Ipv6::LEN].to_vec();
            let at = upper.fragment.expect("a later fragment").at - Ipv6::LEN;
            assert_eq!(front[at], upper.protocol);
            front[at] = ipv6::PROTOCOL_NONE;
            let theirs = Ipv6ExtensionsSlice::from_slice(IpNumber(header.next_header), &front);
            let stopped = UpperLayer { protocol: ipv6::PROTOCOL_NONE, ..upper };
            compare_upper(&stopped, front.len(), theirs);
            Some(upper)
        }
        Ok(upper) => {
            compare_upper(&upper, payload.len(), theirs);
            Some(upper)
        }
        Err(fault) => {
            check_refusal(fault, payload, theirs);
            None
        }
    }
}

/// Compares a chain that weir_wire accepts.
fn compare_upper(upper: &UpperLayer, payload_len: usize, theirs: Theirs<'_>) {
    let (headers, protocol, rest) = theirs.expect("weir_wire reads it");
    assert_eq!(upper.protocol, protocol.0);
    assert_eq!(upper.offset, Ipv6::LEN + payload_len - rest.len());
    assert!(headers.slice().len() <= ipv6::EXTENSIONS_MAX_BYTES);
    let (mut count, mut at, mut has_authentication) = (0, Ipv6::LEN, false);
    let (mut fragments, mut segments_left_at) = (0, None);
    for header in headers {
        count += 1;
        at += match header {
            Ipv6ExtensionSlice::HopByHop(header) => {
                assert_eq!(at, Ipv6::LEN);
                header.slice().len()
            }
            Ipv6ExtensionSlice::DestinationOptions(header) => header.slice().len(),
            Ipv6ExtensionSlice::Routing(header) => {
                assert_ne!(header.payload()[0], 0);
                if header.payload()[1] != 0 {
                    segments_left_at = segments_left_at.or(Some(at + 3));
                }
                header.slice().len()
            }
            Ipv6ExtensionSlice::Fragment(header) => {
                fragments += 1;
                let ours = upper.fragment.expect("etherparse finds one");
                assert_eq!((ours.at, ours.identification), (at, header.identification()));
                let (offset, more_fragments) = offset_and_more(header.slice());
                assert_eq!(
                    (usize::from(ours.offset), ours.more_fragments),
                    (offset, more_fragments)
                );
                assert_eq!(ours.is_first(), offset == 0);
                assert_eq!(ours.is_atomic(), offset == 0 && !more_fragments);
                header.slice().len()
            }
            Ipv6ExtensionSlice::Authentication(header) => {
                has_authentication = true;
                header.slice().len()
            }
        };
    }
    assert!(count <= ipv6::EXTENSIONS_MAX);
    assert_eq!(fragments, usize::from(upper.fragment.is_some()));
    assert_eq!(upper.has_authentication, has_authentication);
    assert_eq!(upper.segments_left_at, segments_left_at);
}

/// Returns the offset in bytes and the M flag of a fragment header: 13 bits in units of 8 bytes,
/// two reserved bits, one bit.
fn offset_and_more(header: &[u8]) -> (usize, bool) {
    let units = usize::from(header[2]) * 32 + usize::from(header[3]) / 8;
    (units * 8, header[3] % 2 == 1)
}

/// Checks that etherparse refuses a chain as well, or shows the reason for the refusal.
fn check_refusal(fault: ExtensionFault, payload: &[u8], theirs: Theirs<'_>) {
    let Ok((headers, ..)) = theirs else { return };
    let len = headers.slice().len();
    let headers: Vec<Ipv6ExtensionSlice<'_>> = headers.into_iter().collect();
    let options = match headers.first() {
        Some(Ipv6ExtensionSlice::HopByHop(header)) => header.payload(),
        _ => &[],
    };
    let mut fragments = headers.iter().filter_map(|header| match header {
        Ipv6ExtensionSlice::Fragment(header) => Some(header),
        _ => None,
    });
    let is_expected = match fault {
        ExtensionFault::TooMany => headers.len() > ipv6::EXTENSIONS_MAX,
        ExtensionFault::TooLong => len > ipv6::EXTENSIONS_MAX_BYTES,
        ExtensionFault::SecondFragment => fragments.count() > 1,
        ExtensionFault::RoutingType0 => headers.iter().any(|header| {
            matches!(header, Ipv6ExtensionSlice::Routing(header) if header.payload()[0] == 0)
        }),
        ExtensionFault::FragmentLength => fragments.next().is_some_and(|header| {
            let (offset, more_fragments) = offset_and_more(header.slice());
            let at = header.slice().as_ptr() as usize - payload.as_ptr() as usize;
            let len = payload.len() - at - 8;
            more_fragments && !len.is_multiple_of(8) || at + offset + len > 65_535
        }),
        ExtensionFault::Jumbo => payload.is_empty() || options.contains(&0xc2),
        ExtensionFault::OptionLength => !options.is_empty(),
        _ => false,
    };
    assert!(is_expected, "{fault}");
}

fn compare_udp(bytes: &[u8]) {
    let (Ok(ours), Ok(theirs)) = (udp::parse(bytes), UdpSlice::from_slice(bytes)) else { return };
    let datagram = &bytes[..usize::from(ours.length.get())];
    let (source, destination) = addresses();
    let their_checksum =
        theirs.to_header().calc_checksum_ipv6_raw(SOURCE, DESTINATION, theirs.payload());
    assert_eq!(Ok(udp::checksum6(source, destination, datagram)), their_checksum);
    let is_right = their_checksum == Ok(theirs.checksum());
    // 0 = none, which is wrong.
    assert_eq!(udp::checksum6_ok(source, destination, datagram), is_right);
}

fn compare_tcp(bytes: &[u8]) {
    let (Ok(_), Ok(theirs)) = (tcp::parse(bytes), TcpSlice::from_slice(bytes)) else { return };
    // Reserved bits are lost in etherparse's owned headers.
    if bytes[12] & 0x0e == 0 {
        let (source, destination) = addresses();
        let their_checksum =
            theirs.to_header().calc_checksum_ipv6_raw(SOURCE, DESTINATION, theirs.payload());
        assert_eq!(Ok(tcp::checksum6(source, destination, bytes)), their_checksum);
    }
}

fn compare_icmp6(ip: &Ipv6, bytes: &[u8]) {
    let theirs = Icmpv6Slice::from_slice(bytes);
    let ours = icmp6::parse(bytes);
    assert_eq!(ours.is_ok(), theirs.is_ok());
    let (Ok(ours), Ok(theirs)) = (ours, theirs) else { return };
    assert_eq!((ours.kind, ours.code), (theirs.type_u8(), theirs.code_u8()));
    assert_eq!((ours.checksum.get(), ours.rest), (theirs.checksum(), theirs.bytes5to8()));
    let (source, destination) = (ip.source, ip.destination);
    let is_valid = theirs.is_checksum_valid(source.to_bytes(), destination.to_bytes());
    assert_eq!(icmp6::checksum_ok(source.get(), destination.get(), bytes), is_valid);
}

/// Compares all layers through the tunnels to the innermost IPv6 packet, and those that errors
/// quote.
fn compare_packet(bytes: &[u8]) {
    let Some((header, total_length)) = compare_header(bytes) else { return };
    let Some(upper) = compare_walk(bytes, header, total_length) else { return };
    if !upper.has_header() {
        return;
    }
    let payload = &bytes[upper.offset..total_length];
    match upper.protocol {
        ipv4::PROTOCOL_UDP => compare_udp(payload),
        ipv4::PROTOCOL_TCP => compare_tcp(payload),
        ipv4::PROTOCOL_GRE => compare_gre(payload),
        ipv6::PROTOCOL_IPV6 => compare_packet(payload),
        ipv6::PROTOCOL_ICMPV6 => {
            compare_icmp6(header, payload);
            compare_packet(payload.get(8..).unwrap_or_default());
        }
        _ => {}
    }
}

fn compare_gre(payload: &[u8]) {
    if let Ok(header) = gre::parse(payload) {
        compare_packet(&payload[header.len..]);
    }
}

fn compare_frame(bytes: &[u8]) {
    let Ok(link) = ethernet::parse_link(bytes) else { return };
    let packet = &bytes[link.len..];
    match link.ethertype {
        ETHERTYPE_IPV6 => compare_packet(packet),
        ETHERTYPE_IPV4 => {
            if let Ok((_, header_len, total_length)) = ipv4::parse(packet) {
                compare_gre(&packet[header_len..total_length]);
            }
        }
        _ => {}
    }
}

#[test]
fn whole_ipv6_packets_are_read_as_etherparse_reads_them() {
    check!().with_iterations(20_000).with_type::<Packet6>().for_each(|packet| {
        compare_frame(&packet.frame());
    });
}

#[test]
fn damaged_ipv6_packets_are_read_as_etherparse_reads_them() {
    check!().with_iterations(50_000).with_type::<(Packet6, Damage)>().for_each(
        |(packet, damage)| {
            compare_frame(&damage.apply(packet.frame()));
            compare_packet(&damage.apply(packet.inner()));
        },
    );
}

#[test]
fn random_bytes_are_read_as_etherparse_reads_them_over_ipv6() {
    check!().with_iterations(20_000).for_each(|bytes: &[u8]| {
        compare_udp(bytes);
        compare_tcp(bytes);
        compare_icmp6(&Ipv6::new(1, 2, 58, 0), bytes);
        let mut packet = bytes.to_vec();
        if let Some(fixed) = packet.get_mut(..8) {
            let payload_len = (bytes.len() as u16).saturating_sub(40);
            (fixed[0], fixed[6]) = (0x60 | fixed[0] & 0xf, [0, 43, 44, 51, 60][bytes.len() % 5]);
            fixed[4..6].copy_from_slice(&payload_len.to_be_bytes());
        }
        compare_packet(&packet);
    });
}

//! The header and the walk over extension headers, field by field and refusal by refusal.

use super::*;

const SOURCE: u128 = 0x2001_0db8_0000_0000_0000_0000_0000_0001;
const DESTINATION: u128 = 0x2001_0db8_0001_0000_0000_0000_0000_0002;

/// A packet whose extension headers and upper layer are `payload`.
fn packet(next_header: u8, payload: &[u8]) -> Vec<u8> {
    let header = Ipv6::new(SOURCE, DESTINATION, next_header, payload.len() as u16);
    [header.as_bytes(), payload].concat()
}

/// An extension header of `len` bytes with this next header, options padded.
fn extension(next_header: u8, len: usize) -> Vec<u8> {
    let mut header = vec![0; len];
    (header[0], header[1]) = (next_header, (len / 8 - 1) as u8);
    header
}

fn routing(next_header: u8, kind: u8, segments_left: u8) -> Vec<u8> {
    let mut header = extension(next_header, 24);
    (header[2], header[3]) = (kind, segments_left);
    header
}

fn fragment(next_header: u8, offset: u16, more: bool) -> Vec<u8> {
    let [high, low] = (offset | u16::from(more)).to_be_bytes();
    vec![next_header, 0, high, low, 0xde, 0xad, 0xbe, 0xef]
}

fn authentication(next_header: u8, length: u8) -> Vec<u8> {
    let mut header = vec![0; (usize::from(length) + 2) * 4];
    (header[0], header[1]) = (next_header, length);
    header
}

fn walked(packet: &[u8]) -> Result<UpperLayer, ExtensionFault> {
    let (_, total_length) = parse(packet).unwrap();
    walk(packet, total_length)
}

fn chain(first: u8, headers: &[Vec<u8>]) -> Result<UpperLayer, ExtensionFault> {
    walked(&packet(first, &headers.concat()))
}

fn plain(protocol: u8, offset: usize) -> UpperLayer {
    UpperLayer {
        protocol,
        offset,
        fragment: None,
        has_authentication: false,
        segments_left_at: None,
    }
}

#[test]
fn reads_every_field() {
    let mut bytes = packet(PROTOCOL_UDP, &[7; 8]);
    bytes[..4].copy_from_slice(&[0x6b, 0x9a, 0xbc, 0xde]);
    bytes[7] = 9;
    let (header, total_length) = parse(&bytes).unwrap();
    assert_eq!((header.version(), header.traffic_class()), (6, 0xb9));
    assert_eq!((header.dscp(), header.ecn()), (0x2e, 1));
    assert_eq!((header.flow_label(), header.hop_limit), (0xabcde, 9));
    assert_eq!((header.next_header, header.payload_length.get()), (PROTOCOL_UDP, 8));
    assert_eq!((header.source.get(), header.destination.get()), (SOURCE, DESTINATION));
    assert_eq!(total_length, 48);
}

#[test]
fn setters_leave_the_other_fields_of_the_word() {
    let mut header = Ipv6::new(SOURCE, DESTINATION, PROTOCOL_TCP, 20);
    header.set_flow_label(0xfff1_2345);
    header.set_traffic_class(0xff);
    assert_eq!((header.version(), header.traffic_class()), (6, 0xff));
    assert_eq!(header.flow_label(), 0x12345);
    header.set_traffic_class(0);
    assert_eq!((header.version(), header.traffic_class()), (6, 0));
    header.set_flow_label(0);
    assert_eq!(header, Ipv6::new(SOURCE, DESTINATION, PROTOCOL_TCP, 20));
    header.decrement_hop_limit();
    assert_eq!(header.hop_limit, 63);
}

#[test]
fn wrong_lengths_are_refused() {
    let mut bytes = packet(PROTOCOL_UDP, &[0; 8]);
    assert_eq!(parse(&bytes[..39]).unwrap_err(), Malformed::Truncated);
    assert_eq!(parse(&bytes[..47]).unwrap_err(), Malformed::TotalLength);
    for version in [0, 4, 5, 7, 15] {
        bytes[0] = version << 4;
        assert_eq!(parse(&bytes).unwrap_err(), Malformed::Version, "version {version}");
    }
    assert_eq!(parse(&packet(PROTOCOL_NONE, &[])).map(|(_, total)| total), Ok(40));
}

#[test]
fn padding_is_allowed_and_a_quote_may_be_cut() {
    let mut padded = packet(PROTOCOL_UDP, &[0; 8]);
    padded.resize(60, 0);
    assert_eq!(parse(&padded).map(|(_, total)| total), Ok(48));
    assert_eq!(parse_mut(&mut padded).map(|(_, total)| total), Ok(48));
    assert_eq!(parse_quoted(&padded[..40]).map(|(_, total)| total), Ok(48));
    assert_eq!(parse_quoted_mut(&mut padded[..40]).map(|(_, total)| total), Ok(48));
    assert_eq!(parse_quoted(&padded[..39]).unwrap_err(), Malformed::Truncated);
}

#[test]
fn plain_packet_is_tcp_or_udp_with_a_whole_header() {
    for (protocol, len) in [(PROTOCOL_TCP, 20), (PROTOCOL_UDP, 8)] {
        let mut bytes = packet(protocol, &vec![0; len]);
        assert_eq!(parse_plain(&bytes).map(|(_, total)| total), Some(40 + len));
        assert!(parse_plain(&bytes[..39 + len]).is_none());
        assert!(parse_plain(&bytes[..39]).is_none());
        bytes.push(0);
        assert_eq!(parse_plain(&bytes).map(|(_, total)| total), Some(40 + len));
        bytes[0] = 0x40;
        assert!(parse_plain(&bytes).is_none());
        assert!(parse_plain(&packet(protocol, &vec![0; len - 1])).is_none());
    }
    for other in [PROTOCOL_HOP_BY_HOP, PROTOCOL_FRAGMENT, PROTOCOL_ICMPV6, PROTOCOL_NONE] {
        assert!(parse_plain(&packet(other, &[0; 40])).is_none());
    }
}

#[test]
fn upper_protocol_behind_the_header_is_found_at_once() {
    let others = [PROTOCOL_TCP, PROTOCOL_UDP, PROTOCOL_ICMPV6, PROTOCOL_NONE, PROTOCOL_ESP];
    for protocol in others.into_iter().chain([PROTOCOL_IPV6, 47, 135, 139, 140, 253, 255]) {
        assert_eq!(chain(protocol, &[]), Ok(plain(protocol, 40)));
    }
}

#[test]
fn walk_steps_over_each_extension_header() {
    let headers = [
        extension(PROTOCOL_DESTINATION_OPTIONS, 16),
        extension(PROTOCOL_ROUTING, 8),
        routing(PROTOCOL_AUTHENTICATION, 4, 0),
        authentication(PROTOCOL_FRAGMENT, 4),
        fragment(PROTOCOL_DESTINATION_OPTIONS, 0, true),
        extension(PROTOCOL_TCP, 8),
        vec![0; 24],
    ];
    let upper = chain(PROTOCOL_HOP_BY_HOP, &headers).unwrap();
    assert_eq!((upper.protocol, upper.offset), (PROTOCOL_TCP, 40 + 16 + 8 + 24 + 24 + 8 + 8));
    assert!(upper.has_authentication && upper.has_header());
    assert_eq!(upper.segments_left_at, None);
    let of = upper.fragment.unwrap();
    assert_eq!((of.at, of.offset, of.more_fragments), (112, 0, true));
    assert_eq!(of.identification, 0xdead_beef);
    assert!(of.is_first() && !of.is_atomic());
}

#[test]
fn walk_ends_at_no_next_header() {
    let upper = chain(PROTOCOL_DESTINATION_OPTIONS, &[extension(PROTOCOL_NONE, 8), vec![1; 9]]);
    assert_eq!(upper, Ok(plain(PROTOCOL_NONE, 48)));
}

#[test]
fn fragment_that_is_not_the_first_ends_the_walk() {
    // What follows looks like hop-by-hop options, but is the middle of a packet.
    let upper = chain(PROTOCOL_FRAGMENT, &[fragment(PROTOCOL_HOP_BY_HOP, 8, false), vec![0xff; 9]]);
    let upper = upper.unwrap();
    assert_eq!((upper.protocol, upper.offset), (PROTOCOL_HOP_BY_HOP, 48));
    let of = upper.fragment.unwrap();
    assert!(!of.is_first() && !of.is_atomic() && !of.more_fragments && !upper.has_header());
    assert_eq!(of.offset, 8);
}

#[test]
fn atomic_fragment_is_a_whole_packet() {
    let upper = chain(PROTOCOL_FRAGMENT, &[fragment(PROTOCOL_UDP, 0, false), vec![0; 9]]).unwrap();
    assert!(upper.has_header() && upper.fragment.unwrap().is_atomic());
    let reserved_bits = fragment(PROTOCOL_UDP, 0b110, false);
    let upper = chain(PROTOCOL_FRAGMENT, &[reserved_bits]).unwrap();
    assert!(upper.fragment.unwrap().is_atomic(), "two reserved bits are ignored");
    let mut reserved_byte = fragment(PROTOCOL_UDP, 0, false);
    reserved_byte[1] = 0xff;
    let upper = chain(PROTOCOL_FRAGMENT, &[reserved_byte]).unwrap();
    assert_eq!(upper.offset, 48, "a reserved byte, which is no length");
}

#[test]
fn fragment_of_a_wrong_length_is_refused() {
    let of = |offset, more, len| {
        chain(PROTOCOL_FRAGMENT, &[fragment(PROTOCOL_UDP, offset, more), vec![0; len]])
            .map(|upper| upper.protocol)
    };
    for len in 1..8 {
        assert_eq!(of(0, true, len), Err(ExtensionFault::FragmentLength), "{len} bytes");
        assert_eq!(of(0, false, len), Ok(PROTOCOL_UDP), "{len} bytes in the last fragment");
    }
    assert_eq!(of(0, true, 8), Ok(PROTOCOL_UDP));
    assert_eq!(of(65_528, false, 7), Ok(PROTOCOL_UDP), "a payload of 65,535 bytes");
    assert_eq!(of(65_528, false, 8), Err(ExtensionFault::FragmentLength));
    // The headers in front of the fragment header count as payload too.
    let behind_options = |len| {
        let headers =
            [extension(PROTOCOL_FRAGMENT, 8), fragment(PROTOCOL_UDP, 65_520, false), vec![0; len]];
        chain(PROTOCOL_DESTINATION_OPTIONS, &headers).map(|upper| upper.protocol)
    };
    assert_eq!(behind_options(7), Ok(PROTOCOL_UDP));
    assert_eq!(behind_options(8), Err(ExtensionFault::FragmentLength));
}

#[test]
fn second_fragment_header_is_refused() {
    let headers = [fragment(PROTOCOL_FRAGMENT, 0, false), fragment(PROTOCOL_UDP, 0, false)];
    assert_eq!(chain(PROTOCOL_FRAGMENT, &headers), Err(ExtensionFault::SecondFragment));
}

#[test]
fn hop_by_hop_options_behind_another_header_are_refused() {
    let headers = [extension(PROTOCOL_HOP_BY_HOP, 8), extension(PROTOCOL_UDP, 8)];
    for first in [PROTOCOL_HOP_BY_HOP, PROTOCOL_DESTINATION_OPTIONS] {
        assert_eq!(chain(first, &headers), Err(ExtensionFault::HopByHopNotFirst));
    }
}

#[test]
fn routing_header_of_type_0_is_refused() {
    for segments_left in [0, 1] {
        let headers = [routing(PROTOCOL_UDP, 0, segments_left)];
        assert_eq!(chain(PROTOCOL_ROUTING, &headers), Err(ExtensionFault::RoutingType0));
    }
}

#[test]
fn first_segments_left_field_that_is_not_0_is_reported() {
    let headers = [
        routing(PROTOCOL_ROUTING, 4, 0),
        routing(PROTOCOL_ROUTING, 4, 1),
        routing(PROTOCOL_UDP, 2, 3),
    ];
    let upper = chain(PROTOCOL_ROUTING, &headers).unwrap();
    assert_eq!(upper.segments_left_at, Some(40 + 24 + 3));
}

#[test]
fn authentication_header_shorter_than_its_fixed_part_is_refused() {
    let of = |length| chain(PROTOCOL_AUTHENTICATION, &[authentication(PROTOCOL_TCP, length)]);
    assert_eq!(of(0), Err(ExtensionFault::AuthenticationLength));
    let expected = UpperLayer { has_authentication: true, ..plain(PROTOCOL_TCP, 52) };
    assert_eq!(of(1), Ok(expected));
}

#[test]
fn jumbograms_are_refused() {
    let mut option = extension(PROTOCOL_UDP, 8);
    option[2..].copy_from_slice(&[0xc2, 4, 0, 1, 0, 0]);
    assert_eq!(chain(PROTOCOL_HOP_BY_HOP, &[option.clone()]), Err(ExtensionFault::Jumbo));
    // Payload length 0: the option lies behind the packet that the header describes.
    let mut jumbogram = packet(PROTOCOL_HOP_BY_HOP, &option);
    jumbogram[4..6].fill(0);
    assert_eq!(walked(&jumbogram), Err(ExtensionFault::Jumbo));
    assert_eq!(chain(PROTOCOL_DESTINATION_OPTIONS, &[]), Err(ExtensionFault::Truncated));
}

#[test]
fn hop_by_hop_options_have_to_end_in_their_header() {
    let of = |options: [u8; 6]| {
        let mut header = extension(PROTOCOL_UDP, 8);
        header[2..].copy_from_slice(&options);
        chain(PROTOCOL_HOP_BY_HOP, &[header, vec![0; 8]]).map(|upper| upper.offset)
    };
    assert_eq!(of([0; 6]), Ok(48), "Pad1");
    assert_eq!(of([1, 4, 0, 0, 0, 0]), Ok(48), "PadN");
    assert_eq!(of([5, 2, 0, 0, 1, 0]), Ok(48), "router alert (RFC 2711)");
    assert_eq!(of([1, 0, 1, 0, 1, 0]), Ok(48));
    assert_eq!(of([1, 5, 0, 0, 0, 0]), Err(ExtensionFault::OptionLength));
    assert_eq!(of([1, 3, 0, 0, 0, 1]), Err(ExtensionFault::OptionLength), "no length byte");
    assert_eq!(of([1, 2, 0xc2, 4, 0, 0]), Ok(48), "the value of an option is no option");
    assert_eq!(of([0, 0, 0, 0, 0, 0xc2]), Err(ExtensionFault::Jumbo));
}

#[test]
fn chain_cut_at_any_byte_is_truncated() {
    let headers = [
        extension(PROTOCOL_DESTINATION_OPTIONS, 8),
        extension(PROTOCOL_ROUTING, 16),
        routing(PROTOCOL_FRAGMENT, 4, 1),
        fragment(PROTOCOL_UDP, 0, false),
    ]
    .concat();
    let whole = packet(PROTOCOL_HOP_BY_HOP, &headers);
    let (_, total_length) = parse(&whole).unwrap();
    for len in 0..whole.len() {
        assert_eq!(walk(&whole[..len], total_length), Err(ExtensionFault::Truncated), "{len}");
    }
    for total_length in 41..whole.len() {
        let fault = walk(&whole, total_length);
        assert_eq!(fault, Err(ExtensionFault::Truncated), "a packet of {total_length} bytes");
    }
    assert_eq!(walk(&whole, total_length).map(|upper| upper.offset), Ok(whole.len()));
}

#[test]
fn nine_extension_headers_are_too_many() {
    let of = |count: usize, last: u8| {
        let mut headers = vec![extension(PROTOCOL_DESTINATION_OPTIONS, 8); count];
        headers[count - 1][0] = last;
        chain(PROTOCOL_DESTINATION_OPTIONS, &headers)
    };
    assert_eq!(of(8, PROTOCOL_UDP), Ok(plain(PROTOCOL_UDP, 104)));
    assert_eq!(of(9, PROTOCOL_UDP), Err(ExtensionFault::TooMany));
    assert_eq!(of(8, PROTOCOL_FRAGMENT), Err(ExtensionFault::TooMany));
}

#[test]
fn eighth_header_may_be_that_of_a_later_fragment() {
    let mut headers = vec![extension(PROTOCOL_DESTINATION_OPTIONS, 8); 7];
    headers[6][0] = PROTOCOL_FRAGMENT;
    headers.push(fragment(PROTOCOL_DESTINATION_OPTIONS, 8, false));
    let upper = chain(PROTOCOL_DESTINATION_OPTIONS, &headers).unwrap();
    assert!(!upper.has_header());
}

#[test]
fn more_than_256_bytes_of_extension_headers_are_too_long() {
    let of = |first, second| {
        let headers = [extension(PROTOCOL_DESTINATION_OPTIONS, first), extension(17, second)];
        chain(PROTOCOL_DESTINATION_OPTIONS, &headers)
    };
    assert_eq!(of(8, 248), Ok(plain(PROTOCOL_UDP, 296)));
    assert_eq!(of(16, 248), Err(ExtensionFault::TooLong));
    assert_eq!(of(8, 2048), Err(ExtensionFault::TooLong));
}

#[test]
fn faults_of_the_format_differ_from_limits_and_refusals() {
    use ExtensionFault::*;
    for fault in [Truncated, HopByHopNotFirst, OptionLength, AuthenticationLength] {
        assert!(fault.is_malformed(), "{fault}");
    }
    assert!(SecondFragment.is_malformed() && FragmentLength.is_malformed());
    for fault in [Jumbo, RoutingType0, TooMany, TooLong] {
        assert!(!fault.is_malformed(), "{fault}");
    }
}

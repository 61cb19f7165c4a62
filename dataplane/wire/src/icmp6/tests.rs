//! Messages, their checksum, and what a truncated quote still tells.

use super::*;
use crate::ipv6::{Ipv6, PROTOCOL_DESTINATION_OPTIONS, PROTOCOL_FRAGMENT};

const SOURCE: u128 = 0x2001_0db8_0000_0000_0000_0000_0000_0001;
const DESTINATION: u128 = 0x2001_0db8_0001_0000_0000_0000_0000_0002;

fn message(kind: u8, rest: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let mut message = [Icmp6::new(kind, 0, rest).as_bytes(), payload].concat();
    set_checksum(SOURCE, DESTINATION, &mut message);
    message
}

fn packet(next_header: u8, payload: &[u8]) -> Vec<u8> {
    let header = Ipv6::new(SOURCE, DESTINATION, next_header, payload.len() as u16);
    [header.as_bytes(), payload].concat()
}

#[test]
fn reads_an_echo() {
    let message = message(ECHO_REQUEST, [0x12, 0x34, 0, 5], b"ping");
    let header = parse(&message).unwrap();
    assert_eq!((header.kind, header.code), (ECHO_REQUEST, 0));
    assert_eq!((header.identifier(), header.sequence()), (0x1234, 5));
    assert_eq!(parse(&message[..7]).unwrap_err(), Malformed::Truncated);
}

#[test]
fn checksum_of_a_small_echo_request_is_the_one_computed_by_hand() {
    // From ::1 to ::1, without data.
    let mut message = [128, 0, 0, 0, 0x1d, 0x22, 0, 1];
    // 2 * 1 (addresses) + 8 (length) + 58 (protocol) + 0x8000 + 0x1d22 + 1 = 0x9d67.
    set_checksum(1, 1, &mut message);
    assert_eq!(message[2..4], (!0x9d67_u16).to_be_bytes());
}

#[test]
fn checksum_covers_addresses_length_and_every_byte() {
    let good = message(ECHO_REPLY, [0, 7, 0, 1], b"odd");
    assert!(checksum_ok(SOURCE, DESTINATION, &good));
    for bit in 0..128 {
        assert!(!checksum_ok(SOURCE ^ 1 << bit, DESTINATION, &good), "bit {bit}");
        assert!(!checksum_ok(SOURCE, DESTINATION ^ 1 << bit, &good), "bit {bit}");
    }
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        assert!(!checksum_ok(SOURCE, DESTINATION, &bad), "byte {at}");
    }
    assert!(!checksum_ok(SOURCE, DESTINATION, &[&good[..], &[0]].concat()));
    let mut cut = [1; 7];
    set_checksum(SOURCE, DESTINATION, &mut cut);
    assert_eq!(cut, [1; 7]);
}

#[test]
fn edited_message_and_address_keep_the_checksum_right() {
    let mut edited = message(ECHO_REQUEST, [0x12, 0x34, 0, 5], b"ping!");
    parse_mut(&mut edited).unwrap().set_identifier(0xfedc);
    let delta = Delta::new().replace16(0x1234, 0xfedc).replace128(SOURCE, !SOURCE);
    apply_delta(&mut edited, delta);
    assert!(checksum_ok(!SOURCE, DESTINATION, &edited));
    let mut cut = [1; 7];
    apply_delta(&mut cut, delta);
    assert_eq!(cut, [1; 7]);
}

#[test]
fn mtu_and_pointer_are_the_last_four_bytes() {
    let mut header = Icmp6::new(PACKET_TOO_BIG, 0, [0; 4]);
    header.set_mtu(0x0102_0304);
    assert_eq!(
        (header.rest, header.mtu(), header.pointer()),
        ([1, 2, 3, 4], 0x0102_0304, 0x0102_0304)
    );
}

#[test]
fn errors_are_the_kinds_below_128() {
    assert_eq!((0..=255).filter(|&kind| is_error(kind)).count(), 128);
    assert!(is_error(127) && !is_error(128));
    let quoting: Vec<u8> = (0..=255).filter(|&kind| quotes_a_packet(kind)).collect();
    assert_eq!(quoting, [1, 2, 3, 4]);
}

#[test]
fn quote_of_tcp_and_udp_has_ports_as_soon_as_four_bytes_are_there() {
    for protocol in [PROTOCOL_TCP, PROTOCOL_UDP] {
        let whole = packet(protocol, &[0x9c, 0x40, 0, 53, 0, 100, 0, 0]);
        for len in 0..=whole.len() {
            let Some(quote) = quote(&whole[..len]) else {
                assert!(len < 40, "{len} bytes");
                continue;
            };
            assert_eq!((quote.source, quote.destination), (SOURCE, DESTINATION));
            assert_eq!((quote.upper.protocol, quote.upper.offset), (protocol, 40));
            let ports = QuotedSession::Ports { source: 40_000, destination: 53 };
            let expected = if len < 44 { QuotedSession::None } else { ports };
            assert_eq!(quote.session, expected, "{len} bytes");
        }
    }
}

#[test]
fn quote_of_an_echo_has_its_identifier() {
    for (kind, is_request) in [(ECHO_REQUEST, true), (ECHO_REPLY, false)] {
        let whole = packet(PROTOCOL_ICMPV6, &message(kind, [0x12, 0x34, 0, 1], b"data"));
        let expected = QuotedSession::Echo { is_request, identifier: 0x1234 };
        assert_eq!(quote(&whole[..48]).unwrap().session, expected);
        assert_eq!(quote(&whole[..47]).unwrap().session, QuotedSession::None);
    }
    let error = packet(PROTOCOL_ICMPV6, &message(PACKET_TOO_BIG, [0x12, 0x34, 0, 1], b""));
    assert_eq!(quote(&error).unwrap().session, QuotedSession::None);
}

#[test]
fn quote_has_no_identifiers_in_a_later_fragment_or_behind_the_packet() {
    let ports = [0, 1, 0, 2, 0, 8, 0, 0];
    let first = [[PROTOCOL_UDP, 0, 0, 1, 0, 0, 0, 9], ports].concat();
    let later = [[PROTOCOL_UDP, 0, 0, 8, 0, 0, 0, 9], ports].concat();
    let of = |payload: &[u8]| quote(&packet(PROTOCOL_FRAGMENT, payload)).unwrap();
    let expected = QuotedSession::Ports { source: 1, destination: 2 };
    assert_eq!(of(&first).session, expected);
    assert_eq!(of(&later).session, QuotedSession::None);
    assert_eq!(of(&later).upper.fragment.map(|of| of.identification), Some(9));
    let mut short = packet(PROTOCOL_UDP, &ports);
    short[5] = 3;
    assert_eq!(quote(&short).unwrap().session, QuotedSession::None);
}

#[test]
fn quote_with_a_cut_extension_header_is_not_read() {
    let options = [PROTOCOL_UDP, 0, 1, 4, 0, 0, 0, 0];
    let whole = packet(PROTOCOL_DESTINATION_OPTIONS, &options);
    assert_eq!(quote(&whole).map(|quote| quote.upper.protocol), Some(PROTOCOL_UDP));
    assert_eq!(quote(&whole[..47]), None);
    let mut version_4 = whole;
    version_4[0] = 0x45;
    assert_eq!(quote(&version_4), None);
}

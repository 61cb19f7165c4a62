use std::net::{Ipv4Addr, SocketAddrV4};

use super::*;
use crate::nat_event::{
    ExportedBlock, ExportedHome, ExportedPrefix, ExportedSession, NatEventKind, Quota, any_event,
};

/// The number that RFC 5612 reserves for examples.
const ENTERPRISE: u32 = 32473;
const NOW: ExportTime = ExportTime { unix_ms: 1_772_366_400_500, steady_ms: 0 };
/// 2026-03-01T12:00:00.123Z
const TIME_MS: u64 = 1_772_366_400_123;

fn options(enterprise: Option<u32>) -> IpfixOptions {
    let has_prefixes = true;
    IpfixOptions { enterprise, has_prefixes, message_bytes_max: 1400, templates_repeat: None }
}

fn home(gre_key: Option<u32>) -> ExportedHome {
    ExportedHome { address: Ipv4Addr::new(10, 200, 0, 1).into(), gre_key }
}

fn block(home: ExportedHome) -> ExportedBlock {
    ExportedBlock { home, public: Ipv4Addr::new(203, 0, 113, 1), port_first: 1024, port_last: 1279 }
}

fn session(home: ExportedHome, remote: Option<SocketAddrV4>) -> ExportedSession {
    ExportedSession {
        home,
        inside: SocketAddrV4::new(Ipv4Addr::new(192, 168, 1, 2), 50_000),
        public: SocketAddrV4::new(Ipv4Addr::new(203, 0, 113, 1), 1100),
        remote,
        protocol: 17,
    }
}

fn event(kind: NatEventKind) -> NatEvent {
    NatEvent { time_ms: TIME_MS, node: 7, shard: 3, lane: 5, epoch: 9, index: 258, kind }
}

/// Converts a text of hexadecimal digits and spaces to bytes.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
}

fn message(encoder: &mut IpfixEncoder, events: &[NatEvent], now: ExportTime) -> (usize, Vec<u8>) {
    let mut out = Vec::new();
    let count = encoder.next(events, now, &mut out);
    (count, out)
}

/// Returns the number of template messages and the data messages of all events.
fn messages(encoder: &mut IpfixEncoder, mut events: &[NatEvent]) -> (usize, Vec<Vec<u8>>) {
    let (mut templates, mut data) = (0, Vec::new());
    while !events.is_empty() {
        let (count, bytes) = message(encoder, events, NOW);
        if count == 0 {
            templates += 1;
        } else {
            data.push(bytes);
        }
        events = &events[count..];
    }
    (templates, data)
}

/// Returns the first data message of a session.
fn data(enterprise: Option<u32>, events: &[NatEvent]) -> Vec<u8> {
    let mut encoder = IpfixEncoder::new(options(enterprise));
    let (_, data) = messages(&mut encoder, events);
    data[0].clone()
}

#[test]
fn templates_are_those_of_rfc_7011() {
    let mut encoder = IpfixEncoder::new(options(None));
    let (count, bytes) =
        message(&mut encoder, &[event(NatEventKind::BlockAllocated(block(home(None))))], NOW);
    assert_eq!(count, 0);
    // Version 10, length, export time, sequence number 0, domain 7; the template set has id 2.
    assert_eq!(bytes[..2], hex("000a"));
    assert_eq!(usize::from(u16::from_be_bytes([bytes[2], bytes[3]])), bytes.len());
    assert_eq!(bytes[4..16], hex("69a42a40 00000000 00000007"));
    assert_eq!(bytes[16..18], hex("0002"));
    let first = hex(
        "0100 0009  0143 0008  00e6 0001  01cf 0004  0008 0004  00e1 0004  0169 0002  016a 0002  016b 0002  016c 0002",
    );
    assert_eq!(bytes[20..20 + first.len()], first);
    // The last are the options template, in set 3 with id 272, three fields, one of them the scope;
    // and those of IPv6 prefixes, in set 2 again.
    let last = hex("0003 0016  0110 0003 0001  0090 0004  0143 0008  00a6 0008
         0002 007c
         0111 0006  0143 0008  00e6 0001  01cf 0004  0008 0004  00aa 0010  001d 0001
         0112 0007  0143 0008  00e6 0001  01cf 0004  0008 0004  00aa 0010  001d 0001  01d0 0008
         0113 0006  0143 0008  00e6 0001  01cf 0004  0008 0004  00aa 0010  001d 0001
         0114 0007  0143 0008  00e6 0001  01cf 0004  0008 0004  00aa 0010  001d 0001  01d0 0008");
    assert_eq!(bytes[bytes.len() - last.len()..], last);
}

#[test]
fn elements_of_the_enterprise_carry_its_number() {
    let mut encoder = IpfixEncoder::new(options(Some(ENTERPRISE)));
    let (_, bytes) =
        message(&mut encoder, &[event(NatEventKind::BlockAllocated(block(home(None))))], NOW);
    let first = hex(
        "0100 000c  0143 0008  00e6 0001  01cf 0004  0008 0004  00e1 0004  0169 0002  016a 0002  016b 0002  016c 0002
         8001 0001 00007ed9  8002 0008 00007ed9  8003 0008 00007ed9",
    );
    assert_eq!(bytes[20..20 + first.len()], first);
}

#[test]
fn a_block_is_allocated_and_released() {
    let events = [
        event(NatEventKind::BlockAllocated(block(home(None)))),
        event(NatEventKind::BlockReleased(block(home(None)))),
    ];
    // Time, natEvent 16 and 17, instance 3, source, public address, first and last port, step 1,
    // 256 ports.
    let plain = hex("000a 004e 69a42a40 00000000 00000007  0100 003e
         0000019ca9450a7b 10 00000003 0ac80001 cb007101 0400 04ff 0001 0100
         0000019ca9450a7b 11 00000003 0ac80001 cb007101 0400 04ff 0001 0100");
    assert_eq!(data(None, &events), plain);
    let whole = hex(
        "000a 0070 69a42a40 00000000 00000007  0100 0060
         0000019ca9450a7b 10 00000003 0ac80001 cb007101 0400 04ff 0001 0100 05 0000000000000009 0000000000000102
         0000019ca9450a7b 11 00000003 0ac80001 cb007101 0400 04ff 0001 0100 05 0000000000000009 0000000000000102",
    );
    assert_eq!(data(Some(ENTERPRISE), &events), whole);
}

#[test]
fn a_home_with_a_gre_key_is_a_realm() {
    let events = [event(NatEventKind::BlockAllocated(block(home(Some(0x0102_0304)))))];
    let plain = hex("000a 0039 69a42a40 00000000 00000007  0101 0029
         0000019ca9450a7b 10 00000003 0ac80001 cb007101 0400 04ff 0001 0100 0ac80001 01020304");
    assert_eq!(data(None, &events), plain);
}

#[test]
fn listing_states_since_when_a_block_is_held() {
    let held = |since_ms| event(NatEventKind::BlockHeld { block: block(home(None)), since_ms });
    let whole = hex(
        "000a 0080 69a42a40 00000000 00000007  0102 0070
         0000019ca9450a7b 10 00000003 0ac80001 cb007101 0400 04ff 0001 0100 0000000000001000 05 0000000000000009 0000000000000102
         0000019ca9450a7b 10 00000003 0ac80001 cb007101 0400 04ff 0001 0100 0000000000000000 05 0000000000000009 0000000000000102",
    );
    assert_eq!(data(Some(ENTERPRISE), &[held(Some(0x1000)), held(None)]), whole);
}

#[test]
fn a_claim_of_a_prefix_is_an_address_binding() {
    let prefix = |gre_key| {
        let prefix64 = 0x2001_0db8_1000_0001;
        ExportedPrefix { home: home(gre_key), prefix64 }
    };
    let events = [
        event(NatEventKind::PrefixClaimed(prefix(None))),
        event(NatEventKind::PrefixReleased(prefix(None))),
        event(NatEventKind::PrefixHeld(prefix(Some(7)))),
    ];
    // Time, natEvent 14 and 15, instance 3, the home, the prefix and its length; then the realm.
    let plain = hex("000a 0086 69a42a40 00000000 00000007
         0111 0048 0000019ca9450a7b 0e 00000003 0ac80001 20010db8100000010000000000000000 40
                   0000019ca9450a7b 0f 00000003 0ac80001 20010db8100000010000000000000000 40
         0114 002e 0000019ca9450a7b 0e 00000003 0ac80001 20010db8100000010000000000000000 40
                   0ac80001 00000007");
    assert_eq!(data(None, &events), plain);
    let whole = hex("000a 0047 69a42a40 00000000 00000007
         0111 0037 0000019ca9450a7b 0e 00000003 0ac80001 20010db8100000010000000000000000 40
                   05 0000000000000009 0000000000000102");
    assert_eq!(data(Some(ENTERPRISE), &events[..1]), whole);
}

#[test]
fn a_collector_without_prefixes_is_sent_no_template_of_them() {
    let options = IpfixOptions { has_prefixes: false, ..options(Some(ENTERPRISE)) };
    let mut encoder = IpfixEncoder::new(options);
    let events = [event(NatEventKind::BlockAllocated(block(home(None))))];
    let (count, bytes) = message(&mut encoder, &events, NOW);
    assert_eq!((count, template_ids(&bytes)), (0, (FIRST_ID..=272).collect::<Vec<_>>()));
    assert_eq!(message(&mut encoder, &events, NOW).0, 1);
}

/// RFC 8158 section 5 has sourceIPv6Address where a subscriber is known by an IPv6 address.
#[test]
fn home_with_a_tunnel_over_ipv6_is_a_source_ipv6_address_or_a_realm() {
    let home = |gre_key| ExportedHome { address: "2001:db8:e::1".parse().unwrap(), gre_key };
    let prefix = ExportedPrefix { home: home(None), prefix64: 0x2001_0db8_1000_0001 };
    let events = [
        event(NatEventKind::BlockAllocated(block(home(None)))),
        event(NatEventKind::BlockReleased(block(home(Some(7))))),
        event(NatEventKind::SessionBegun(session(home(None), None))),
        event(NatEventKind::QuotaExceeded {
            home: home(None),
            quota: Quota::SessionsPerHome,
            limit: 9,
        }),
        event(NatEventKind::AddressesExhausted { home: home(None) }),
        event(NatEventKind::PrefixHeld(prefix)),
    ];
    let plain = hex("000a 0128 69a42a40 00000000 00000007
         0115 002d 0000019ca9450a7b 10 00000003 20010db8000e00000000000000000001 cb007101 0400 04ff 0001 0100
         0116 0041 0000019ca9450a7b 11 00000003 20010db8000e00000000000000000001 cb007101 0400 04ff 0001 0100
                   20010db8000e00000000000000000001 00000007
         0119 002e 0000019ca9450a7b 04 00000003 c0a80102 cb007101 11 c350 044c 20010db8000e00000000000000000001
         011f 0029 0000019ca9450a7b 0d 00000003 00000009 00000003 20010db8000e00000000000000000001
         0123 0021 0000019ca9450a7b 03 00000003 20010db8000e00000000000000000001
         0127 0032 0000019ca9450a7b 0e 00000003 20010db8000e00000000000000000001
                   20010db8100000010000000000000000 40");
    assert_eq!(data(None, &events), plain);
}

#[test]
fn templates_of_homes_over_ipv6_are_sent_from_the_first_such_home_on() {
    let repeat = TemplatesRepeat { messages: 2, ms: 60_000 };
    let known = event(NatEventKind::AddressesExhausted { home: home(None) });
    let address = "2001:db8:e::1".parse().unwrap();
    let new =
        event(NatEventKind::AddressesExhausted { home: ExportedHome { address, gre_key: None } });
    for (has_prefixes, of_ipv4, of_ipv6) in
        [(true, 256..=276, 277..=296), (false, 256..=272, 277..=292)]
    {
        let templates_repeat = Some(repeat);
        let options = IpfixOptions { has_prefixes, templates_repeat, ..options(None) };
        let options = IpfixOptions { message_bytes_max: 4000, ..options };
        let mut encoder = IpfixEncoder::new(options);
        let mut next = |events: &[NatEvent]| {
            let (count, bytes) = message(&mut encoder, events, NOW);
            let ids = if count == 0 { template_ids(&bytes) } else { Vec::new() };
            (count, ids)
        };
        let ids = |ids: &std::ops::RangeInclusive<u16>| ids.clone().collect::<Vec<_>>();
        assert_eq!(next(&[known, new]), (0, ids(&of_ipv4)));
        assert_eq!(next(&[known, new]).0, 1, "the other's template is not known");
        assert_eq!(next(&[new, known]), (0, ids(&of_ipv6)));
        assert_eq!(next(&[new, known]).0, 2);
        // They are repeated with the others.
        assert_eq!(next(&[known]), (0, [ids(&of_ipv4), ids(&of_ipv6)].concat()));
        assert_eq!(next(&[known]).0, 1);
    }
}

#[test]
fn session_has_its_remote_only_if_destinations_are_logged() {
    let remote = SocketAddrV4::new(Ipv4Addr::new(198, 51, 100, 9), 443);
    let events = [
        event(NatEventKind::SessionBegun(session(home(None), None))),
        event(NatEventKind::SessionEnded(session(home(Some(7)), Some(remote)))),
    ];
    let plain = hex("000a 0064 69a42a40 00000000 00000007
         0104 0022 0000019ca9450a7b 04 00000003 c0a80102 cb007101 11 c350 044c 0ac80001
         0107 0032 0000019ca9450a7b 05 00000003 c0a80102 cb007101 11 c350 044c
                   c6336409 c6336409 01bb 01bb 0ac80001 00000007");
    assert_eq!(data(None, &events), plain);
}

#[test]
fn quotas_and_exhaustion_name_the_home() {
    let home = home(None);
    let quota = |quota, limit| event(NatEventKind::QuotaExceeded { home, quota, limit });
    let public = Ipv4Addr::new(203, 0, 113, 1);
    let events = [
        quota(Quota::PortsPerHome, 2048),
        quota(Quota::PortsPerHome, 70_000),
        quota(Quota::SessionsPerHome, 70_000),
        event(NatEventKind::PortsExhausted { home, public, protocol: 6 }),
        event(NatEventKind::AddressesExhausted { home }),
        event(NatEventKind::RecordsLost { count: 3, total: 5 }),
    ];
    let plain = hex("000a 00ae 69a42a40 00000000 00000007
         0108 003a 0000019ca9450a7b 0d 00000003 00000800 00000003 0ac80001 0800
                   0000019ca9450a7b 0d 00000003 00011170 00000003 0ac80001 ffff
         010a 001d 0000019ca9450a7b 0d 00000003 00011170 00000003 0ac80001
         010c 001a 0000019ca9450a7b 0c 00000003 0ac80001 cb007101 06
         010e 0015 0000019ca9450a7b 03 00000003 0ac80001
         0110 0018 00000001 0000019ca9450a7b 0000000000000005");
    assert_eq!(data(None, &events), plain);
}

#[test]
fn the_sequence_number_counts_data_records_of_each_domain() {
    let mut encoder = IpfixEncoder::new(options(None));
    let first = event(NatEventKind::BlockAllocated(block(home(None))));
    let second = NatEvent { node: 8, ..first };
    let sequence = |bytes: &[u8]| (bytes[11], bytes[15]);
    let (templates, data) = messages(&mut encoder, &[first, first, second, first]);
    assert_eq!(templates, 2, "each domain has templates of its own");
    let seen: Vec<_> = data.iter().map(|bytes| sequence(bytes)).collect();
    assert_eq!(seen, [(0, 7), (0, 8), (2, 7)]);
    // A new session knows no templates and has counted nothing.
    encoder.begin_session();
    let (templates, data) = messages(&mut encoder, &[first]);
    assert_eq!((templates, sequence(&data[0])), (1, (0, 7)));
}

#[test]
fn templates_are_repeated_after_messages_and_after_time() {
    let repeat = TemplatesRepeat { messages: 3, ms: 60_000 };
    let mut encoder =
        IpfixEncoder::new(IpfixOptions { templates_repeat: Some(repeat), ..options(None) });
    let events = [event(NatEventKind::BlockAllocated(block(home(None))))];
    let mut counts = Vec::new();
    for steady_ms in [0, 1, 2, 3, 4, 60_002, 60_003, 60_004, 60_005, 60_006] {
        counts.push(message(&mut encoder, &events, ExportTime { steady_ms, ..NOW }).0);
    }
    assert_eq!(counts, [0, 1, 1, 1, 0, 1, 1, 0, 1, 1]);
    let mut encoder =
        IpfixEncoder::new(IpfixOptions { templates_repeat: Some(repeat), ..options(None) });
    let counts = [0, 59_999, 60_000]
        .map(|steady_ms| message(&mut encoder, &events, ExportTime { steady_ms, ..NOW }).0);
    assert_eq!(counts, [0, 1, 0]);
}

#[test]
fn no_message_is_longer_than_allowed_and_none_loses_an_event() {
    bolero::check!().with_type::<(Vec<[u8; 64]>, u16, bool)>().for_each(
        |(choices, bytes, has_enterprise)| {
            let events: Vec<_> = choices.iter().map(any_event).collect();
            let mut options = options(has_enterprise.then_some(ENTERPRISE));
            options.message_bytes_max = usize::from(*bytes);
            let most = options.message_bytes_max.max(MESSAGE_BYTES_MIN);
            let mut encoder = IpfixEncoder::new(options);
            let (_, data) = messages(&mut encoder, &events);
            for bytes in &data {
                assert!(bytes.len() <= most);
                assert_eq!(usize::from(u16::from_be_bytes([bytes[2], bytes[3]])), bytes.len());
            }
        },
    );
}

#[test]
fn templates_fit_the_smallest_message() {
    let options =
        IpfixOptions { message_bytes_max: MESSAGE_BYTES_MIN, ..options(Some(ENTERPRISE)) };
    let mut encoder = IpfixEncoder::new(options);
    let address = "2001:db8:e::1".parse().unwrap();
    let over_ipv6 = ExportedHome { address, gre_key: None };
    let events = [event(NatEventKind::BlockAllocated(block(over_ipv6)))];
    let mut ids = Vec::new();
    loop {
        let (count, bytes) = message(&mut encoder, &events, NOW);
        assert!(bytes.len() <= MESSAGE_BYTES_MIN);
        if count > 0 {
            break;
        }
        ids.extend(template_ids(&bytes));
    }
    assert_eq!(ids, (FIRST_ID..FIRST_ID + TEMPLATES.len() as u16).collect::<Vec<_>>());
}

/// Returns the ids of the templates in a message's template sets.
fn template_ids(message: &[u8]) -> Vec<u16> {
    let number = |at: usize| u16::from_be_bytes([message[at], message[at + 1]]);
    let (mut at, mut ids) = (HEADER_BYTES, Vec::new());
    while at < message.len() {
        let (is_options, end) =
            (number(at) == OPTIONS_TEMPLATE_SET, at + usize::from(number(at + 2)));
        at += SET_HEADER_BYTES;
        while at < end {
            ids.push(number(at));
            let fields = number(at + 2);
            at += if is_options { 6 } else { 4 };
            for _ in 0..fields {
                at += if number(at) & 0x8000 != 0 { 8 } else { 4 };
            }
        }
    }
    ids
}

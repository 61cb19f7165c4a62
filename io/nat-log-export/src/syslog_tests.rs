use super::*;
use crate::nat_event::any_event;

const TIME_MS: u64 = 1_772_366_400_123;

fn options(enterprise: Option<u32>) -> SyslogOptions {
    let (host, app) = ("n1".to_owned(), "weir".to_owned());
    SyslogOptions { facility: 16, severity: 6, host, app, enterprise }
}

fn home(gre_key: Option<u32>) -> ExportedHome {
    ExportedHome { address: Ipv4Addr::new(10, 200, 0, 1).into(), gre_key }
}

fn block(gre_key: Option<u32>) -> ExportedBlock {
    let public = Ipv4Addr::new(203, 0, 113, 1);
    ExportedBlock { home: home(gre_key), public, port_first: 1024, port_last: 1279 }
}

fn event(kind: NatEventKind) -> NatEvent {
    NatEvent { time_ms: TIME_MS, node: 1, shard: 3, lane: 5, epoch: 9, index: 258, kind }
}

fn text(options: &SyslogOptions, event: NatEvent) -> String {
    let mut out = Vec::new();
    assert_eq!(SyslogEncoder::new(options).unwrap().next(&[event], &mut out), 1);
    String::from_utf8(out).unwrap()
}

#[test]
fn a_block_is_a_message_of_rfc_5424_behind_its_length() {
    let message = concat!(
        "<134>1 2026-03-01T12:00:00.123Z n1 weir - block-allocated ",
        r#"[weir@32473 node="1" shard="3" lane="5" epoch="9" index="258" subscriber="10.200.0.1" "#,
        r#"public="203.0.113.1" ports="1024-1279"]"#
    );
    let event = event(NatEventKind::BlockAllocated(block(None)));
    assert_eq!(text(&options(Some(32473)), event), format!("{} {message}", message.len()));
}

#[test]
fn without_an_enterprise_number_the_parameters_are_the_text() {
    let message = concat!(
        "<134>1 2026-03-01T12:00:00.123Z n1 weir - block-released - ",
        r#"node="1" shard="3" lane="5" epoch="9" index="258" subscriber="10.200.0.1" gre_key="7" "#,
        r#"public="203.0.113.1" ports="1024-1279""#
    );
    let event = event(NatEventKind::BlockReleased(block(Some(7))));
    assert_eq!(text(&options(None), event), format!("{} {message}", message.len()));
}

#[test]
fn each_kind_has_its_message_id_and_parameters() {
    let endpoint = |last, port| SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, last), port);
    let (inside, public) = (endpoint(2, 50_000), endpoint(7, 1100));
    let session =
        |remote| ExportedSession { home: home(None), inside, public, remote, protocol: 17 };
    let held = |since_ms| NatEventKind::BlockHeld { block: block(None), since_ms };
    let quota = |quota| NatEventKind::QuotaExceeded { home: home(Some(7)), quota, limit: 64 };
    let prefix = |gre_key| ExportedPrefix { home: home(gre_key), prefix64: 0x2001_0db8_1000_0001 };
    let cases = [
        (
            NatEventKind::PrefixClaimed(prefix(None)),
            r#"prefix-claimed| subscriber="10.200.0.1" prefix="2001:db8:1000:1::/64"]"#,
        ),
        (
            NatEventKind::PrefixReleased(prefix(Some(7))),
            r#"prefix-released| gre_key="7" prefix="2001:db8:1000:1::/64"]"#,
        ),
        (
            NatEventKind::PrefixHeld(prefix(None)),
            r#"prefix-held| lane="5" epoch="9" index="258" subscriber="10.200.0.1" prefix="2001:db8:1000:1::/64"]"#,
        ),
        (held(None), r#"block-held| public="203.0.113.1" ports="1024-1279"]"#),
        (held(Some(TIME_MS)), r#"block-held| ports="1024-1279" since="2026-03-01T12:00:00.123Z"]"#),
        (
            NatEventKind::SessionBegun(session(None)),
            r#"session-begun| protocol="17" inside="192.0.2.2:50000" public="192.0.2.7:1100"]"#,
        ),
        (
            NatEventKind::SessionEnded(session(Some(endpoint(9, 443)))),
            r#"session-ended| public="192.0.2.7:1100" remote="192.0.2.9:443"]"#,
        ),
        (quota(Quota::PortsPerHome), r#"quota-exceeded| gre_key="7" quota="ports" limit="64"]"#),
        (quota(Quota::SessionsPerHome), r#"quota-exceeded| quota="sessions" limit="64"]"#),
        (
            NatEventKind::PortsExhausted { home: home(None), public: *public.ip(), protocol: 6 },
            r#"ports-exhausted| subscriber="10.200.0.1" public="192.0.2.7" protocol="6"]"#,
        ),
        (
            NatEventKind::AddressesExhausted { home: home(None) },
            r#"addresses-exhausted| index="258" subscriber="10.200.0.1"]"#,
        ),
        (NatEventKind::RecordsLost { count: 3, total: 5 }, r#"records-lost| count="3" total="5"]"#),
    ];
    for (kind, expected) in cases {
        let (id, end) = expected.split_once('|').unwrap();
        let text = text(&options(Some(32473)), event(kind));
        assert!(text.contains(&format!(" n1 weir - {id} [weir@32473 node=\"1\"")), "{text}");
        assert!(text.ends_with(end), "{text}");
    }
}

#[test]
fn home_with_a_tunnel_over_ipv6_is_its_outer_address() {
    let address = "2001:db8:e::1".parse().unwrap();
    let block = ExportedBlock { home: ExportedHome { address, gre_key: Some(7) }, ..block(None) };
    let text = text(&options(Some(32473)), event(NatEventKind::BlockAllocated(block)));
    let end = r#"subscriber="2001:db8:e::1" gre_key="7" public="203.0.113.1" ports="1024-1279"]"#;
    assert!(text.ends_with(end), "{text}");
}

#[test]
fn events_that_are_not_counted_in_a_lane_name_no_lane() {
    let event =
        NatEvent { index: 0, ..event(NatEventKind::AddressesExhausted { home: home(None) }) };
    let text = text(&options(Some(32473)), event);
    assert!(text.ends_with(r#"[weir@32473 node="1" shard="3" subscriber="10.200.0.1"]"#), "{text}");
}

#[test]
fn options_that_rfc_5424_forbids_are_refused() {
    let good = options(None);
    let host = |host: &str| SyslogOptions { host: host.to_owned(), ..good.clone() };
    assert!(SyslogEncoder::new(&host(&"n".repeat(255))).is_ok());
    for bad in ["", "a b", "knoten-\u{e4}", &"n".repeat(256)] {
        assert!(matches!(SyslogEncoder::new(&host(bad)), Err(SyslogError::Name { .. })), "{bad}");
    }
    let facility = SyslogEncoder::new(&SyslogOptions { facility: 24, ..good.clone() });
    assert_eq!(facility.unwrap_err(), SyslogError::Facility(24));
    let severity = SyslogEncoder::new(&SyslogOptions { severity: 8, ..good.clone() });
    assert_eq!(severity.unwrap_err(), SyslogError::Severity(8));
    let app = SyslogEncoder::new(&SyslogOptions { app: "w".repeat(49), ..good });
    assert!(matches!(app, Err(SyslogError::Name { what: "APP-NAME", .. })));
}

#[test]
fn times_are_those_of_the_calendar() {
    /// The library supports no later time: it leaves room for time zones.
    const LIBRARY_MS_MAX: u64 = 253_402_207_200_000;
    bolero::check!().with_type::<u64>().for_each(|ms| {
        for ms in [*ms % (LIBRARY_MS_MAX + 1), *ms % 86_400_000_000] {
            let mut text = Vec::new();
            put_time(&mut text, ms);
            let time = jiff::Timestamp::from_millisecond(ms as i64).unwrap();
            assert_eq!(String::from_utf8(text).unwrap(), format!("{time:.3}"));
        }
    });
    let mut last = Vec::new();
    put_time(&mut last, u64::MAX);
    assert_eq!(last, b"9999-12-31T23:59:59.999Z");
}

#[test]
fn any_event_is_one_frame_of_printable_characters() {
    bolero::check!().with_type::<Vec<[u8; 64]>>().for_each(|choices| {
        let mut encoder = SyslogEncoder::new(&options(Some(u32::MAX))).unwrap();
        let mut out = Vec::new();
        for choice in choices {
            assert_eq!(encoder.next(&[any_event(choice)], &mut out), 1);
        }
        let mut rest = &out[..];
        for _ in choices {
            let space = rest.iter().position(|byte| *byte == b' ').unwrap();
            let length: usize = std::str::from_utf8(&rest[..space]).unwrap().parse().unwrap();
            let message = &rest[space + 1..space + 1 + length];
            assert!(message.starts_with(b"<134>1 ") && message.ends_with(b"\"]"));
            assert!(message.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' '));
            rest = &rest[space + 1 + length..];
        }
        assert!(rest.is_empty());
    });
}

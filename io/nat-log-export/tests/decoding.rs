//! Messages of the encoder, read by independent decoders.

use std::net::{IpAddr, Ipv4Addr, SocketAddrV4, UdpSocket};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use netflow_parser::variable_versions::data_number::FieldValue;
use netflow_parser::variable_versions::ipfix::FlowSetBody;
use netflow_parser::{NetflowPacket, NetflowParser};
use weir_nat_log_export::*;

const ENTERPRISE: u32 = 32473;
const PREFIX64: u64 = 0x2001_0db8_1000_0001;
const TIME_MS: u64 = 1_772_366_400_123;
const HOME: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 200, 0, 1));

fn events(address: IpAddr) -> Vec<NatEvent> {
    let event = |index, kind| NatEvent {
        time_ms: TIME_MS,
        node: 7,
        shard: 3,
        lane: 5,
        epoch: 9,
        index,
        kind,
    };
    let public = Ipv4Addr::new(203, 0, 113, 1);
    let remote = Some(SocketAddrV4::new(Ipv4Addr::new(198, 51, 100, 9), 443));
    let mut events = Vec::new();
    for gre_key in [None, Some(77)] {
        let home = ExportedHome { address, gre_key };
        let block = ExportedBlock { home, public, port_first: 1024, port_last: 1279 };
        let inside = SocketAddrV4::new(Ipv4Addr::new(192, 168, 1, 2), 50_000);
        let (to, protocol) = (SocketAddrV4::new(public, 1100), 17);
        let session = |remote| ExportedSession { home, inside, public: to, remote, protocol };
        let quota = |quota| NatEventKind::QuotaExceeded { home, quota, limit: 2048 };
        let kinds = [
            NatEventKind::BlockAllocated(block),
            NatEventKind::BlockReleased(block),
            NatEventKind::BlockHeld { block, since_ms: Some(TIME_MS - 1) },
            NatEventKind::SessionBegun(session(None)),
            NatEventKind::SessionEnded(session(remote)),
            quota(Quota::PortsPerHome),
            quota(Quota::SessionsPerHome),
            NatEventKind::PortsExhausted { home, public, protocol: 6 },
            NatEventKind::AddressesExhausted { home },
        ];
        for kind in kinds {
            events.push(event(events.len() as u64 + 1, kind));
        }
    }
    events.push(event(0, NatEventKind::RecordsLost { count: 2, total: 5 }));
    for gre_key in [None, Some(77)] {
        let home = ExportedHome { address, gre_key };
        let prefix = ExportedPrefix { home, prefix64: PREFIX64 };
        let kinds = [
            NatEventKind::PrefixClaimed(prefix),
            NatEventKind::PrefixReleased(prefix),
            NatEventKind::PrefixHeld(prefix),
        ];
        events.extend(kinds.map(|kind| event(40, kind)));
    }
    events
}

fn messages(enterprise: Option<u32>, home: IpAddr) -> Vec<Vec<u8>> {
    let options = IpfixOptions {
        enterprise,
        has_prefixes: true,
        message_bytes_max: 1452,
        templates_repeat: None,
    };
    let (events, now) = (events(home), ExportTime { unix_ms: TIME_MS, steady_ms: 0 });
    let (mut encoder, mut messages, mut done) = (IpfixEncoder::new(options), Vec::new(), 0);
    while done < events.len() {
        let mut message = Vec::new();
        done += encoder.next(&events[done..], now, &mut message);
        messages.push(message);
    }
    messages
}

/// The fields of a record: the number of an element, or `e1`, `e2`, ... for an enterprise-specific
/// one, with the bytes of its value.
type Fields = Vec<(String, Vec<u8>)>;

/// Decodes with the crate `netflow_parser`; the fields of each record are named by the numbers of
/// its template.
fn decode(messages: &[Vec<u8>]) -> Vec<Fields> {
    let mut parser = NetflowParser::default();
    let (mut records, mut names) = (Vec::new(), std::collections::HashMap::new());
    for message in messages {
        let result = parser.parse_bytes(message);
        assert!(result.error.is_none(), "{:?}", result.error);
        for packet in result.packets {
            let NetflowPacket::IPFix(packet) = packet else { panic!("no IPFIX: {packet:?}") };
            assert_eq!((packet.header.observation_domain_id, packet.header.version), (7, 10));
            for set in packet.flowsets {
                let name = |field: &netflow_parser::variable_versions::ipfix::TemplateField| {
                    let number = field.field_type_number;
                    match field.enterprise_number {
                        Some(enterprise) => {
                            assert_eq!(enterprise, ENTERPRISE);
                            format!("e{number}")
                        }
                        None => number.to_string(),
                    }
                };
                let rows: Vec<Vec<FieldValue>> = match set.body {
                    FlowSetBody::Template(template) => {
                        names.insert(
                            template.template_id,
                            template.fields.iter().map(name).collect(),
                        );
                        continue;
                    }
                    FlowSetBody::Templates(templates) => {
                        for template in templates {
                            let fields: Vec<_> = template.fields.iter().map(name).collect();
                            names.insert(template.template_id, fields);
                        }
                        continue;
                    }
                    FlowSetBody::OptionsTemplate(template) => {
                        assert_eq!(template.scope_field_count, 1);
                        let fields = template.fields.iter().map(name).collect();
                        names.insert(template.template_id, fields);
                        continue;
                    }
                    FlowSetBody::Data(data) => data
                        .fields
                        .into_iter()
                        .map(|row| row.into_iter().map(|(_, value)| value).collect())
                        .collect(),
                    FlowSetBody::OptionsData(data) => data
                        .fields
                        .into_iter()
                        .map(|row| row.into_iter().map(|(_, value)| value).collect())
                        .collect(),
                    other => panic!("{other:?}"),
                };
                let names = &names[&set.header.header_id];
                for row in rows {
                    assert_eq!(row.len(), names.len());
                    records.push(names.iter().cloned().zip(row.iter().map(bytes)).collect());
                }
            }
        }
    }
    records
}

fn bytes(value: &FieldValue) -> Vec<u8> {
    match value {
        FieldValue::Duration(duration) => (duration.as_millis() as u64).to_be_bytes().to_vec(),
        value => value.to_be_bytes().unwrap(),
    }
}

fn number(fields: &Fields, name: &str) -> Option<u64> {
    let (_, bytes) = fields.iter().find(|(field, _)| field == name)?;
    Some(bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
}

fn address(text: &str) -> u64 {
    u64::from(u32::from(text.parse::<Ipv4Addr>().unwrap()))
}

#[test]
fn another_decoder_reads_every_element() {
    let records = decode(&messages(Some(ENTERPRISE), HOME));
    assert_eq!(records.len(), events(HOME).len());
    let (home, public) = (address("10.200.0.1"), address("203.0.113.1"));
    for (position, fields) in records[..18].iter().enumerate() {
        let get = |name: &str| number(fields, name);
        let kind = position % 9;
        assert_eq!(get("323"), Some(TIME_MS));
        assert_eq!(get("230"), Some([16, 17, 16, 4, 5, 13, 13, 12, 3][kind]), "{fields:?}");
        let source = if matches!(kind, 3 | 4) { address("192.168.1.2") } else { home };
        assert_eq!(get("8"), Some(source));
        let shard = if kind < 7 { "463" } else { "283" };
        assert_eq!(get(shard), Some(3));
        if kind < 5 {
            assert_eq!(get("225"), Some(public));
            assert_eq!(
                (get("e1"), get("e2"), get("e3")),
                (Some(5), Some(9), Some(position as u64 + 1))
            );
        }
        if kind < 3 {
            let ports = ["361", "362", "363", "364"].map(|name| get(name).unwrap());
            assert_eq!(ports, [1024, 1279, 1, 256]);
            assert_eq!(get("e5"), (kind == 2).then_some(TIME_MS - 1));
        }
        if matches!(kind, 3 | 4) {
            assert_eq!(["7", "227", "4"].map(|name| get(name).unwrap()), [50_000, 1100, 17]);
            let remote = (kind == 4).then(|| address("198.51.100.9"));
            assert_eq!((get("12"), get("226")), (remote, remote));
            let port = (kind == 4).then_some(443);
            assert_eq!((get("11"), get("228")), (port, port));
        }
        match kind {
            5 | 6 => {
                assert_eq!((get("466"), get("473")), (Some(3), Some(2048)));
                assert_eq!(get("458"), (kind == 5).then_some(2048));
            }
            7 => assert_eq!((get("225"), get("4")), (Some(public), Some(6))),
            _ => {}
        }
        let key = (position >= 9).then_some(77);
        assert_eq!(get("e4"), key);
        // This decoder converts octets to text: the encoder's own tests compare the bytes.
        assert_eq!(get("464").is_some(), matches!(kind, 3 | 4) || key.is_some());
    }
    let lost = &records[18];
    assert_eq!(["144", "323", "166"].map(|name| number(lost, name).unwrap()), [1, TIME_MS, 5]);
    for (position, fields) in records[19..].iter().enumerate() {
        let get = |name: &str| number(fields, name);
        assert_eq!(get("323"), Some(TIME_MS));
        assert_eq!(get("230"), Some([14, 15, 14][position % 3]), "{fields:?}");
        assert_eq!((get("8"), get("463"), get("29")), (Some(home), Some(3), Some(64)));
        let (_, prefix) = fields.iter().find(|(name, _)| name == "170").expect("a prefix");
        assert_eq!(*prefix, (u128::from(PREFIX64) << 64).to_be_bytes());
        assert_eq!((get("e1"), get("e2"), get("e3")), (Some(5), Some(9), Some(40)));
        assert_eq!(get("e4"), (position >= 3).then_some(77));
    }
}

#[test]
fn another_decoder_reads_records_of_homes_over_ipv6() {
    let home: IpAddr = "2001:db8:e::1".parse().unwrap();
    let IpAddr::V6(outer) = home else { unreachable!() };
    let (of_ipv4, of_ipv6) =
        [HOME, home].map(|home| decode(&messages(Some(ENTERPRISE), home))).into();
    assert_eq!(of_ipv6.len(), events(home).len());
    for (fields, like) in of_ipv6.iter().zip(&of_ipv4) {
        let value = |of: &Fields, name: &str| of.iter().find(|it| it.0 == name).cloned();
        let is_session = matches!(number(like, "230"), Some(4 | 5));
        let is_home = value(like, "8").is_some() && !is_session;
        let source = value(fields, "27").map(|(_, address)| address);
        assert_eq!(source, is_home.then(|| outer.octets().to_vec()), "{fields:?}");
        assert_eq!(value(fields, "8").is_some(), is_session);
        // All but the home is as in the records of others.
        for (name, bytes) in like.iter().filter(|(name, _)| !matches!(&**name, "8" | "464")) {
            assert_eq!(value(fields, name), Some((name.clone(), bytes.clone())));
        }
        assert_eq!(value(fields, "464").is_some(), value(like, "464").is_some());
    }
}

#[test]
fn another_decoder_needs_no_enterprise_number() {
    let records = decode(&messages(None, HOME));
    assert_eq!(records.len(), events(HOME).len());
    for fields in &records {
        assert!(fields.iter().all(|(name, _)| !name.starts_with('e')));
    }
    let block = &records[9];
    assert!(number(block, "464").is_some(), "a home with a GRE key has a realm: {block:?}");
    assert_eq!(["361", "362", "364"].map(|name| number(block, name).unwrap()), [1024, 1279, 256]);
}

/// A process that ends with its test.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether `condition` becomes true in time.
fn comes(mut condition: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + Duration::from_secs(30);
    while !condition() {
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

/// Returns the number of bytes that wait at a UDP port of this machine; `None` if no process
/// listens there.
fn waiting_bytes(port: u16) -> Option<u64> {
    let sockets = std::fs::read_to_string("/proc/net/udp").unwrap();
    let port = format!(":{port:04X}");
    let line = sockets
        .lines()
        .find(|line| line.split_whitespace().nth(1).is_some_and(|local| local.ends_with(&port)))?;
    let (_, waiting) = line.split_whitespace().nth(4)?.split_once(':')?;
    u64::from_str_radix(waiting, 16).ok()
}

/// Debian's nfdump accepts the records over UDP. Version 1.7.1 skips the elements of port blocks.
#[test]
fn nfdump_shows_blocks_and_sessions() {
    let is_installed = |program| Command::new(program).arg("-V").output().is_ok();
    if !is_installed("nfcapd") || !is_installed("nfdump") {
        eprintln!("skipped: nfcapd and nfdump are not installed (apt-get install nfdump)");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    drop(socket);
    let mut nfcapd = Command::new("nfcapd");
    nfcapd.args(["-b", "127.0.0.1", "-p", &port.to_string(), "-t", "3600", "-w"]);
    let mut nfcapd = Daemon(nfcapd.arg(folder.path()).spawn().unwrap());
    assert!(comes(|| waiting_bytes(port).is_some()), "nfcapd does not listen");
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    for message in messages(Some(ENTERPRISE), HOME) {
        sender.send_to(&message, ("127.0.0.1", port)).unwrap();
    }
    assert!(comes(|| waiting_bytes(port) == Some(0)), "nfcapd does not read");
    let id = nfcapd.0.id().to_string();
    assert!(Command::new("kill").arg(id).status().unwrap().success());
    assert!(nfcapd.0.wait().unwrap().success());
    let mut nfdump = Command::new("nfdump");
    nfdump.arg("-R").arg(folder.path()).args(["-o", "raw"]);
    let text = String::from_utf8(nfdump.output().unwrap().stdout).unwrap();
    let records: Vec<_> = text.split("Flow Record:").skip(1).collect();
    let has = |wanted: &[&str]| {
        records.iter().any(|record| {
            let has = |wanted: &&str| {
                let (name, value) = wanted.split_once('=').unwrap();
                record
                    .lines()
                    .filter_map(|line| line.split_once('='))
                    .any(|(left, right)| left.trim() == name && right.trim().starts_with(value))
            };
            wanted.iter().all(has)
        })
    };
    let time = format!("Event time={TIME_MS} ");
    for event in ["nat event=16:", "nat event=17:"] {
        let block = ["src addr=10.200.0.1", "src xlt ip=203.0.113.1", &time, event];
        assert!(has(&block), "{event}: {text}");
    }
    let inside = ["src addr=192.168.1.2", "src port=50000", "proto=17", &time];
    let public = ["src xlt ip=203.0.113.1", "src xlt port=1100"];
    let remote = ["dst addr=198.51.100.9", "dst port=443", "dst xlt ip=198.51.100.9"];
    assert!(has(&[&inside[..], &public, &["nat event=4:"]].concat()), "{text}");
    assert!(has(&[&inside[..], &public, &remote, &["nat event=5:"]].concat()), "{text}");
}

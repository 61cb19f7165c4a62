//! An event on its way through an encoder and a sender allocates no memory.

use std::net::{Ipv4Addr, SocketAddrV4};

use weir_nat_log_export::*;

fn event(index: u64) -> NatEvent {
    let home =
        ExportedHome { address: Ipv4Addr::new(10, 200, 0, 1).into(), gre_key: Some(index as u32) };
    let public = Ipv4Addr::new(203, 0, 113, 1);
    let kind = match index % 3 {
        0 => {
            let block = ExportedBlock { home, public, port_first: 1024, port_last: 1279 };
            NatEventKind::BlockAllocated(block)
        }
        1 => {
            let endpoint = SocketAddrV4::new(public, 1100);
            let (inside, public, remote) = (endpoint, endpoint, Some(endpoint));
            let session = ExportedSession { home, inside, public, remote, protocol: 6 };
            NatEventKind::SessionBegun(session)
        }
        _ => NatEventKind::PrefixClaimed(ExportedPrefix { home, prefix64: index << 32 }),
    };
    NatEvent { time_ms: 1_772_366_400_123, node: 1, shard: 1, lane: 0, epoch: 5, index, kind }
}

/// Returns the allocations while an encoder that has begun before encodes 10,000 events.
fn allocations(mut encoder: Encoder) -> u64 {
    let events: Vec<_> = (1..=10_000).map(event).collect();
    let mut out = Vec::with_capacity(8 << 20);
    let now = ExportTime { unix_ms: 1_772_366_400_123, steady_ms: 0 };
    for _ in 0..4 {
        encoder.next(&events[..1], now, &mut out);
    }
    let info = allocation_counter::measure(|| {
        let mut done = 0;
        while done < events.len() {
            done += encoder.next(&events[done..], now, &mut out);
        }
    });
    info.count_total
}

#[test]
fn encoders_allocate_nothing_for_a_record() {
    let ipfix = IpfixOptions {
        enterprise: Some(32473),
        has_prefixes: true,
        message_bytes_max: 1452,
        templates_repeat: Some(TemplatesRepeat { messages: 20, ms: 60_000 }),
    };
    assert_eq!(allocations(Encoder::Ipfix(IpfixEncoder::new(ipfix))), 0);
    let (host, app) = ("n1".to_owned(), "weir".to_owned());
    let syslog = SyslogOptions { facility: 16, severity: 6, host, app, enterprise: Some(32473) };
    assert_eq!(allocations(Encoder::Syslog(SyslogEncoder::new(&syslog).unwrap())), 0);
}

#[test]
fn a_sender_allocates_nothing() {
    let (host, app) = ("n1".to_owned(), "weir".to_owned());
    let syslog = SyslogOptions { facility: 16, severity: 6, host, app, enterprise: None };
    let collector = CollectorOptions {
        name: "c1".to_owned(),
        // No process listens there: the ring fills, which allocates nothing either.
        address: "127.0.0.1:9".to_owned(),
        format: Format::SyslogTcp(syslog),
        has_prefixes: true,
        spool: None,
        queue_records: 1000,
        resend: std::time::Duration::from_secs(5),
        flush: std::time::Duration::from_millis(100),
    };
    let refusals_every = std::time::Duration::from_secs(60);
    let options = ExportOptions { collectors: vec![collector], refusals_every };
    let (mut senders, _handle) = Exporter::start(&options, 1).unwrap();
    // Only this thread's allocations are counted.
    let info = allocation_counter::measure(|| {
        for index in 1..=10_000 {
            senders[0].push(event(index));
        }
    });
    assert_eq!(info.count_total, 0);
}

//! An exporter and collectors that are away, come back, disconnect, are slow, or refuse.

#[path = "collectors/certificates.rs"]
mod certificates;
#[path = "collectors/listener.rs"]
mod listener;
#[path = "collectors/prefixes.rs"]
mod prefixes;

use std::io::BufReader;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use listener::{Listener, indices_of_syslog, read_syslog, records_lost};
use weir_nat_log_export::*;

const ENTERPRISE: u32 = 32473;
const PATIENCE: Duration = Duration::from_secs(60);
/// Longer than a test lasts.
const LONG: Duration = Duration::from_secs(600);

fn event(index: u64) -> NatEvent {
    let home = ExportedHome { address: Ipv4Addr::new(10, 200, 0, 1).into(), gre_key: None };
    let public = Ipv4Addr::new(203, 0, 113, 1);
    let block = ExportedBlock { home, public, port_first: 1024, port_last: 1279 };
    let kind = NatEventKind::BlockAllocated(block);
    NatEvent { time_ms: 1_772_366_400_123, node: 1, shard: 1, lane: 0, epoch: 5, index, kind }
}

fn syslog() -> SyslogOptions {
    let (host, app) = ("n1".to_owned(), "weir".to_owned());
    SyslogOptions { facility: 16, severity: 6, host, app, enterprise: Some(ENTERPRISE) }
}

fn collector(port: u16, format: Format, folder: Option<&Path>) -> CollectorOptions {
    CollectorOptions {
        name: "c1".to_owned(),
        address: format!("127.0.0.1:{port}"),
        format,
        has_prefixes: true,
        spool: folder
            .map(|folder| SpoolOptions { folder: folder.join("spool"), megabytes_max: 200 }),
        queue_records: 1 << 16,
        resend: Duration::from_millis(200),
        flush: Duration::from_millis(20),
    }
}

fn start(collector: CollectorOptions) -> (EventSender, ExportHandle) {
    let options =
        ExportOptions { collectors: vec![collector], refusals_every: Duration::from_secs(60) };
    let (mut senders, handle) = Exporter::start(&options, 1).unwrap();
    (senders.remove(0), handle)
}

fn push(sender: &mut EventSender, indices: std::ops::RangeInclusive<u64>) {
    for index in indices {
        assert!(sender.push(event(index)), "the ring has room for {index}");
    }
}

fn counters(handle: &ExportHandle) -> CollectorCounters {
    handle.counters().remove(0)
}

/// Ends the export and asserts that every record is accounted for.
#[track_caller]
fn stop(handle: ExportHandle, in_spool_before: u64) -> CollectorCounters {
    let it = handle.stop().remove(0);
    let lost = it.lost_queue_full_total
        + it.lost_spool_full_total
        + it.lost_disk_error_total
        + it.lost_at_end_total;
    let left = it.confirmed_total + it.spool_records + lost;
    assert_eq!(in_spool_before + it.given_total, left, "{it:#?}");
    assert!(!it.is_running && !it.is_connected);
    it
}

/// Waits until the counters satisfy `is_so`.
#[track_caller]
fn wait(handle: &ExportHandle, what: &str, is_so: impl Fn(&CollectorCounters) -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so(&counters(handle)) {
        assert!(Instant::now() < end, "{what}: {:#?}", counters(handle));
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns a port on which no process listens.
fn free_port() -> u16 {
    Listener::bind(0).port()
}

/// Asserts that each index up to `last` is present, and that their first occurrences are in order.
#[track_caller]
fn assert_complete(seen: &[u64], last: u64) {
    let mut highest = 0;
    for index in seen {
        assert!(*index <= highest + 1, "{index} after {highest}");
        highest = highest.max(*index);
    }
    assert_eq!(highest, last);
}

#[test]
fn absent_collector_gets_all_events_in_order_when_it_comes() {
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let (mut sender, handle) =
        start(collector(port, Format::SyslogTcp(syslog()), Some(folder.path())));
    push(&mut sender, 1..=20_000);
    wait(&handle, "all in the spool", |it| {
        it.spooled_total == 20_000 && it.connect_failures_total > 0
    });
    assert!(!counters(&handle).is_connected);
    assert!(
        counters(&handle)
            .last_error
            .unwrap()
            .contains(&format!("cannot connect to 127.0.0.1:{port}"))
    );
    let mut stream = Listener::bind(port).accept();
    push(&mut sender, 20_001..=21_000);
    let seen = indices_of_syslog(&mut stream, |seen| seen.len() == 21_000);
    assert_eq!(seen, (1..=21_000).collect::<Vec<_>>());
    wait(&handle, "nothing to send again", |it| it.confirmed_total == 21_000);
    let counters = stop(handle, 0);
    assert_eq!((counters.spool_records, counters.spool_bytes), (0, 0));
    assert_eq!((counters.sent_total, counters.resent_total), (21_000, 0));
    assert_eq!((counters.lost_queue_full_total, counters.lost_disk_error_total), (0, 0));
}

#[test]
fn a_break_in_the_middle_of_a_message_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let listener = Listener::bind(0);
    let mut options = collector(listener.port(), Format::SyslogTcp(syslog()), Some(folder.path()));
    // Bytes acknowledged shortly before the break may not have been read.
    options.resend = LONG;
    let (mut sender, handle) = start(options);
    let mut seen = Vec::new();
    for life in 0..4 {
        let mut stream = listener.accept();
        push(&mut sender, life * 5000 + 1..=(life + 1) * 5000);
        let mut part =
            indices_of_syslog(&mut stream, |part| part.len() as u64 >= life * 5000 + 1234);
        // The rest of the bytes that were read, and those that the kernel holds, are discarded with
        // the connection.
        part.truncate(life as usize * 5000 + 1234);
        seen.extend(part);
        wait(&handle, "all sent", |it| it.sent_total >= (life + 1) * 5000);
    }
    let mut stream = listener.accept();
    seen.extend(indices_of_syslog(&mut stream, |seen| seen.last() == Some(&20_000)));
    assert_complete(&seen, 20_000);
    let counters = stop(handle, 0);
    assert!(counters.breaks_total == 4 && counters.resent_total > 0, "{counters:#?}");
}

#[test]
fn slow_collector_delays_no_sender_and_gets_each_event_once() {
    const EVENTS: u64 = 600_000;
    let folder = tempfile::tempdir().unwrap();
    let listener = Listener::bind(0).with_a_small_buffer();
    let format = Format::IpfixTcp { enterprise: Some(ENTERPRISE) };
    let mut options = collector(listener.port(), format, Some(folder.path()));
    options.queue_records = 1 << 20;
    let (mut sender, handle) = start(options);
    let mut stream = listener.accept();
    wait(&handle, "a connection", |it| it.is_connected);
    push(&mut sender, 1..=EVENTS);
    wait(&handle, "the spool helps", |it| it.spooled_total > 0);
    let seen = listener::indices_of_ipfix(&mut stream, |seen| seen.len() as u64 == EVENTS);
    assert!(seen.into_iter().eq(1..=EVENTS));
    let counters = stop(handle, 0);
    assert_eq!((counters.sent_total, counters.resent_total, counters.breaks_total), (EVENTS, 0, 0));
}

#[test]
fn collector_that_never_reads_delays_neither_senders_nor_the_end() {
    const EVENTS: u64 = 60_000;
    let folder = tempfile::tempdir().unwrap();
    let listener = Listener::bind(0).with_a_small_buffer();
    let options = || collector(listener.port(), Format::SyslogTcp(syslog()), Some(folder.path()));
    let (mut sender, handle) = start(options());
    let silent = listener.accept();
    wait(&handle, "a connection", |it| it.is_connected);
    push(&mut sender, 1..=EVENTS);
    let counters = stop(handle, 0);
    assert!(counters.spool_records > 0, "{counters:#?}");
    assert_eq!(counters.confirmed_total + counters.spool_records, EVENTS);
    drop(silent);
    let (_sender, handle) = start(options());
    let mut stream = listener.accept();
    let seen = indices_of_syslog(&mut stream, |seen| seen.last() == Some(&EVENTS));
    assert!(seen.into_iter().eq(counters.confirmed_total + 1..=EVENTS));
    assert_eq!(stop(handle, counters.spool_records).spool_records, 0);
}

#[test]
fn senders_that_continue_do_not_delay_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let (mut sender, handle) =
        start(collector(free_port(), Format::SyslogTcp(syslog()), Some(folder.path())));
    let (is_over, begin) = (AtomicBool::new(false), Instant::now());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut index = 0;
            while !is_over.load(Ordering::Relaxed) && begin.elapsed() < 2 * PATIENCE {
                index += 1;
                sender.push(event(index));
            }
        });
        wait(&handle, "some in the spool", |it| it.spooled_total > 0);
        stop(handle, 0);
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn without_a_spool_memory_bridges_a_short_absence() {
    let port = free_port();
    let (mut sender, handle) = start(collector(port, Format::SyslogTcp(syslog()), None));
    push(&mut sender, 1..=3000);
    wait(&handle, "a failure", |it| it.connect_failures_total > 1);
    let mut stream = Listener::bind(port).accept();
    let seen = indices_of_syslog(&mut stream, |seen| seen.len() == 3000);
    assert_eq!(seen, (1..=3000).collect::<Vec<_>>());
    assert_eq!(stop(handle, 0).lost_queue_full_total, 0);
}

#[test]
fn full_spool_loses_new_events_and_the_collector_gets_their_number() {
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let mut options = collector(port, Format::SyslogTcp(syslog()), Some(folder.path()));
    options.spool.as_mut().unwrap().megabytes_max = 1;
    let (mut sender, handle) = start(options);
    push(&mut sender, 1..=50_000);
    wait(&handle, "all dealt with", |it| it.spooled_total + it.lost_spool_full_total == 50_000);
    let kept = counters(&handle).spooled_total;
    assert!((13_000..14_000).contains(&kept), "{kept}");
    let mut stream = BufReader::new(Listener::bind(port).accept());
    let mut text = String::new();
    let seen = read_syslog(&mut stream, &mut text, |it| it.contains(" records-lost "));
    assert!(seen.into_iter().eq(1..=kept));
    push(&mut sender, 50_001..=50_100);
    let seen = read_syslog(&mut stream, &mut text, |it| it.contains("index=\"50100\""));
    assert!(seen.into_iter().eq(50_001..=50_100));
    assert_eq!(records_lost(&text), 50_000 - kept);
    assert_eq!(stop(handle, 0).lost_spool_full_total, 50_000 - kept);
}

#[test]
fn full_ring_loses_events_and_the_collector_gets_their_number() {
    let listener = Listener::bind(0);
    let mut options = collector(listener.port(), Format::SyslogTcp(syslog()), None);
    options.queue_records = 16;
    let (mut sender, handle) = start(options);
    let mut stream = listener.accept();
    let refused = (1..=50_000).filter(|index| !sender.push(event(*index))).count() as u64;
    assert!(refused > 0);
    let (mut text, mut received) = (String::new(), 0);
    read_syslog(&mut BufReader::new(&mut stream), &mut text, |message| {
        received += if message.contains(" records-lost ") { records_lost(message) } else { 1 };
        received == 50_000
    });
    assert_eq!(records_lost(&text), refused);
    assert_eq!(stop(handle, 0).lost_queue_full_total, refused);
}

#[test]
fn a_restart_sends_the_spool_of_the_former_process_first() {
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let options = || collector(port, Format::SyslogTcp(syslog()), Some(folder.path()));
    let (mut sender, handle) = start(options());
    push(&mut sender, 1..=2000);
    let counters = stop(handle, 0);
    assert_eq!((counters.spool_records, counters.lost_at_end_total), (2000, 0));
    let (mut sender, handle) = start(options());
    push(&mut sender, 2001..=2100);
    let mut stream = Listener::bind(port).accept();
    let seen = indices_of_syslog(&mut stream, |seen| seen.len() == 2100);
    assert_eq!(seen, (1..=2100).collect::<Vec<_>>());
    assert_eq!(stop(handle, 2000).spool_records, 0);
}

#[test]
fn orderly_end_sends_all_events_that_were_passed_in() {
    let listener = Listener::bind(0);
    let (mut sender, handle) = start(collector(listener.port(), Format::SyslogTcp(syslog()), None));
    let mut stream = listener.accept();
    wait(&handle, "a connection", |it| it.is_connected);
    push(&mut sender, 1..=5000);
    // The connection outlives the reader: a break before the acknowledgement is seen would count as
    // a loss.
    let reader = std::thread::spawn(move || {
        (indices_of_syslog(&mut stream, |seen| seen.len() == 5000), stream)
    });
    let counters = stop(handle, 0);
    assert_eq!((counters.sent_total, counters.lost_at_end_total), (5000, 0));
    assert!(reader.join().unwrap().0.into_iter().eq(1..=5000));
}

#[test]
fn end_without_collector_and_spool_counts_the_lost_events() {
    let (mut sender, handle) = start(collector(free_port(), Format::SyslogTcp(syslog()), None));
    push(&mut sender, 1..=300);
    assert_eq!(stop(handle, 0).lost_at_end_total, 300);
}

#[test]
fn a_spool_folder_that_vanishes_is_replaced_by_memory() {
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let (mut sender, handle) =
        start(collector(port, Format::SyslogTcp(syslog()), Some(folder.path())));
    std::fs::remove_dir_all(folder.path().join("spool")).unwrap();
    push(&mut sender, 1..=1000);
    wait(&handle, "held in memory", |it| it.held_records == 1000);
    wait(&handle, "an error", |it| it.last_spool_error.is_some());
    let mut stream = Listener::bind(port).accept();
    let seen = indices_of_syslog(&mut stream, |seen| seen.len() == 1000);
    assert!(seen.into_iter().eq(1..=1000));
    drop(handle);
}

#[test]
fn over_udp_a_collector_that_refuses_datagrams_gets_them_when_it_listens() {
    let folder = tempfile::tempdir().unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    drop(socket);
    let templates_repeat = TemplatesRepeat { messages: 10, ms: 1000 };
    let format = Format::IpfixUdp { enterprise: Some(ENTERPRISE), mtu: 1500, templates_repeat };
    let mut options = collector(port, format, Some(folder.path()));
    options.resend = LONG;
    let (mut sender, handle) = start(options);
    push(&mut sender, 1..=500);
    wait(&handle, "refused", |it| it.breaks_total > 1);
    let socket = UdpSocket::bind(("127.0.0.1", port)).unwrap();
    let seen = listener::indices_of_datagrams(&socket, |seen| seen.last() == Some(&500));
    assert_complete(&seen, 500);
    drop(handle);
}

#[test]
fn syslog_goes_over_tls_to_a_collector_that_shows_the_right_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let ours = certificates::authority(folder.path(), "ours");
    let server = certificates::certificate(folder.path(), "ours", "server", "127.0.0.1");
    let client = certificates::certificate(folder.path(), "ours", "client", "127.0.0.1");
    let listener = Listener::bind(0);
    let certificate = Some((client.file, client.key));
    let tls = TlsOptions { ca: ours.file.clone(), certificate, server_name: None };
    let options = collector(listener.port(), Format::SyslogTls(syslog(), tls), Some(folder.path()));
    let (mut sender, handle) = start(options);
    let mut stream = listener.accept_tls(&server, Some(&ours)).unwrap();
    push(&mut sender, 1..=30_000);
    let seen = indices_of_syslog(&mut stream, |seen| seen.len() == 30_000);
    assert!(seen.into_iter().eq(1..=30_000));
    // It is known when bytes sent through TLS are acknowledged.
    wait(&handle, "nothing to send again", |it| it.confirmed_total == 30_000);
    drop(stream);
    wait(&handle, "the break is seen without anything to send", |it| it.breaks_total == 1);
    let mut stream = listener.accept_tls(&server, Some(&ours)).unwrap();
    push(&mut sender, 30_001..=30_010);
    let seen = indices_of_syslog(&mut stream, |seen| seen.len() == 10);
    assert!(seen.into_iter().eq(30_001..=30_010));
    drop(handle);
}

#[test]
fn a_collector_without_tls_or_with_a_strange_certificate_gets_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let ours = certificates::authority(folder.path(), "ours");
    certificates::authority(folder.path(), "theirs");
    let strange = certificates::certificate(folder.path(), "theirs", "strange", "127.0.0.1");
    let other = certificates::certificate(folder.path(), "ours", "other", "192.0.2.1");
    let good = certificates::certificate(folder.path(), "ours", "good", "127.0.0.1");
    let listener = Listener::bind(0);
    let tls = TlsOptions { ca: ours.file, certificate: None, server_name: None };
    let options = collector(listener.port(), Format::SyslogTls(syslog(), tls), Some(folder.path()));
    let (mut sender, handle) = start(options);
    push(&mut sender, 1..=100);
    listener.accept_and_send(b"220 no TLS here\r\n");
    wait(&handle, "refused", |it| it.connect_failures_total == 1);
    assert!(counters(&handle).last_error.unwrap().starts_with("no TLS with 127.0.0.1:"));
    for (failures, certificate) in [(2, &strange), (3, &other)] {
        assert!(listener.accept_tls(certificate, None).is_err());
        wait(&handle, "refused", |it| it.connect_failures_total == failures);
        let error = counters(&handle).last_error.unwrap();
        assert!(error.contains("invalid peer certificate"), "{error}");
    }
    let mut stream = listener.accept_tls(&good, None).unwrap();
    let seen = indices_of_syslog(&mut stream, |seen| seen.len() == 100);
    assert!(seen.into_iter().eq(1..=100));
    drop(handle);
}

#[test]
fn a_collector_that_does_not_shake_hands_does_not_hold_up_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let ours = certificates::authority(folder.path(), "ours");
    let listener = Listener::bind(0);
    let tls = TlsOptions { ca: ours.file, certificate: None, server_name: None };
    let options = collector(listener.port(), Format::SyslogTls(syslog(), tls), Some(folder.path()));
    let (mut sender, handle) = start(options);
    let _silent = listener.accept();
    push(&mut sender, 1..=100);
    wait(&handle, "all in the spool", |it| it.spooled_total == 100);
    let counters = stop(handle, 0);
    assert_eq!((counters.spool_records, counters.connects_total), (100, 0));
}

#[test]
fn a_name_that_the_certificate_does_not_have_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let ours = certificates::authority(folder.path(), "ours");
    let server = certificates::certificate(folder.path(), "ours", "server", "127.0.0.1");
    let listener = Listener::bind(0);
    let server_name = Some("collector.example".to_owned());
    let tls = TlsOptions { ca: ours.file, certificate: None, server_name };
    let options = collector(listener.port(), Format::SyslogTls(syslog(), tls), Some(folder.path()));
    let (_sender, handle) = start(options);
    assert!(listener.accept_tls(&server, None).is_err());
    wait(&handle, "refused", |it| it.connect_failures_total == 1);
    let error = counters(&handle).last_error.unwrap();
    assert!(error.contains("collector.example"), "{error}");
    stop(handle, 0);
}

#[test]
fn options_that_cannot_work_are_refused_at_the_start_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |collector: CollectorOptions| {
        let options =
            ExportOptions { collectors: vec![collector], refusals_every: Duration::from_secs(1) };
        Exporter::start(&options, 1).map(|_| ()).unwrap_err().to_string()
    };
    let good = || collector(4739, Format::SyslogTcp(syslog()), Some(folder.path()));
    for address in ["collector", "collector:", ":514", "collector:0", "2001:db8::1:514", "c:70000"]
    {
        let error = refused(CollectorOptions { address: address.to_owned(), ..good() });
        assert!(error.starts_with("collector c1: address") && error.contains(address), "{error}");
    }
    let templates_repeat = TemplatesRepeat { messages: 1, ms: 1 };
    let format = Format::IpfixUdp { enterprise: None, mtu: 500, templates_repeat };
    assert!(refused(CollectorOptions { format, ..good() }).contains("mtu 500: give at least 560"));
    let format = Format::SyslogTcp(SyslogOptions { facility: 24, ..syslog() });
    assert!(refused(CollectorOptions { format, ..good() }).contains("facility 24"));
    assert!(
        refused(CollectorOptions { queue_records: 0, ..good() }).contains("a queue of 0 records")
    );
    let mut none = good();
    none.spool.as_mut().unwrap().megabytes_max = 0;
    assert!(refused(none).contains("a spool of 0 megabytes"));
    let ca = folder.path().join("no.pem");
    let tls = TlsOptions { ca, certificate: None, server_name: None };
    let format = Format::SyslogTls(syslog(), tls);
    let error = refused(CollectorOptions { format, ..good() });
    assert!(error.contains("the authorities") && error.contains("no.pem"), "{error}");
    std::fs::write(folder.path().join("spool"), "").unwrap();
    assert!(refused(good()).contains("give a folder that this process may make and write"));
}

#[test]
fn refusals_of_a_home_are_paced() {
    let listener = Listener::bind(0);
    let (mut sender, handle) = start(collector(listener.port(), Format::SyslogTcp(syslog()), None));
    let mut stream = listener.accept();
    let home = ExportedHome { address: Ipv4Addr::new(10, 200, 0, 1).into(), gre_key: None };
    let kind = NatEventKind::QuotaExceeded { home, quota: Quota::PortsPerHome, limit: 256 };
    for _ in 0..100 {
        assert!(sender.push(NatEvent { kind, index: 0, ..event(0) }));
    }
    push(&mut sender, 1..=1);
    let mut text = String::new();
    read_syslog(&mut stream, &mut text, |it| it.contains("index=\"1\""));
    assert_eq!(text.matches(" quota-exceeded ").count(), 1);
    assert_eq!(handle.suppressed_total(), 99);
}

//! A collector that does not know the fields of IPv6 prefixes.

use weir_nat_log_export::*;

use crate::listener::{Listener, indices_of_syslog};
use crate::{collector, event, free_port, start, stop, syslog, wait};

/// Every second event is a claim of a prefix, which the first process spools.
#[test]
fn a_collector_without_prefixes_gets_none_not_even_from_the_spool() {
    let folder = tempfile::tempdir().unwrap();
    let push = |sender: &mut EventSender, indices: std::ops::RangeInclusive<u64>| {
        for index in indices {
            let mut event = event(index);
            if index.is_multiple_of(2) {
                let home = event.kind.home().unwrap();
                let prefix = ExportedPrefix { home, prefix64: index };
                event.kind = NatEventKind::PrefixClaimed(prefix);
            }
            assert!(sender.push(event));
        }
    };
    let options = |port| collector(port, Format::SyslogTcp(syslog()), Some(folder.path()));
    let (mut sender, handle) = start(options(free_port()));
    push(&mut sender, 1..=1000);
    assert_eq!(stop(handle, 0).spool_records, 1000);
    let listener = Listener::bind(0);
    let options = CollectorOptions { has_prefixes: false, ..options(listener.port()) };
    let (mut sender, handle) = start(options);
    let mut stream = listener.accept();
    push(&mut sender, 1001..=2000);
    let seen = indices_of_syslog(&mut stream, |seen| seen.len() == 1000);
    assert_eq!(seen, (1..=2000).step_by(2).collect::<Vec<_>>());
    wait(&handle, "all confirmed", |it| it.confirmed_total == 1500);
    let counters = stop(handle, 1000);
    assert_eq!((counters.spool_records, counters.sent_total), (0, 1000));
}

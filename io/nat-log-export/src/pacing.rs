//! Limits refusals, which occur at the rate of packets: one event of each home and kind is sent in
//! an interval.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use crate::nat_event::{ExportedHome, NatEvent, NatEventKind, Quota};

const WAYS: usize = 4;
const SETS: usize = 2048;

/// Remembers for which homes an event was sent, and when. Its memory is fixed: if more homes than
/// it has room for are refused within the interval, no event is sent for the others, so never more
/// than 8,192 events are sent in one interval.
#[derive(Debug)]
pub struct Pacer {
    interval_ms: u64,
    hasher: RandomState,
    entries: Vec<PacedRefusal>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PacedRefusal {
    what: Option<(ExportedHome, RefusedResource)>,
    until_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum RefusedResource {
    PortQuota,
    SessionQuota,
    PortsExhausted,
    AddressesExhausted,
}

impl Pacer {
    pub fn new(interval_ms: u64) -> Self {
        let entries = vec![PacedRefusal { what: None, until_ms: 0 }; WAYS * SETS];
        Self { interval_ms, hasher: RandomState::new(), entries }
    }

    /// True if the event is to be sent. Events that are no refusals always are. If the clock is set
    /// back by more than an interval, all intervals begin again.
    pub fn admits(&mut self, event: &NatEvent) -> bool {
        let Some(what) = refusal(&event.kind) else { return true };
        let set = self.hasher.hash_one(what) as usize % SETS;
        let set = &mut self.entries[set * WAYS..(set + 1) * WAYS];
        let now_ms = event.time_ms;
        let limit_ms = now_ms.saturating_add(self.interval_ms);
        let is_over = |entry: &PacedRefusal| entry.until_ms <= now_ms || entry.until_ms > limit_ms;
        let known = set.iter().position(|entry| entry.what == Some(what));
        let Some(index) = known.or_else(|| set.iter().position(is_over)) else { return false };
        if !is_over(&set[index]) {
            return false;
        }
        set[index] = PacedRefusal { what: Some(what), until_ms: limit_ms };
        true
    }
}

fn refusal(kind: &NatEventKind) -> Option<(ExportedHome, RefusedResource)> {
    match kind {
        NatEventKind::QuotaExceeded { home, quota: Quota::PortsPerHome, .. } => {
            Some((*home, RefusedResource::PortQuota))
        }
        NatEventKind::QuotaExceeded { home, quota: Quota::SessionsPerHome, .. } => {
            Some((*home, RefusedResource::SessionQuota))
        }
        NatEventKind::PortsExhausted { home, .. } => Some((*home, RefusedResource::PortsExhausted)),
        NatEventKind::AddressesExhausted { home } => {
            Some((*home, RefusedResource::AddressesExhausted))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn refused(home: u32, time_ms: u64) -> NatEvent {
        let home = ExportedHome { address: Ipv4Addr::from(home).into(), gre_key: None };
        let kind = NatEventKind::QuotaExceeded { home, quota: Quota::PortsPerHome, limit: 1024 };
        NatEvent { time_ms, node: 1, shard: 1, lane: 0, epoch: 0, index: 0, kind }
    }

    #[test]
    fn a_home_has_one_event_in_an_interval() {
        let mut pacer = Pacer::new(1000);
        let sent = (0..10_000).filter(|ms| pacer.admits(&refused(1, 5_000_000 + ms))).count();
        assert_eq!(sent, 10);
    }

    #[test]
    fn kinds_and_homes_are_paced_apart() {
        let mut pacer = Pacer::new(1000);
        let first = refused(1, 5_000);
        let Some(home) = first.kind.home() else { panic!("the event has a home") };
        let quota = Quota::SessionsPerHome;
        let sessions = NatEventKind::QuotaExceeded { home, quota, limit: 1 };
        let key = ExportedHome { gre_key: Some(7), ..home };
        for kind in [
            first.kind,
            sessions,
            NatEventKind::PortsExhausted { home, public: Ipv4Addr::LOCALHOST, protocol: 6 },
            NatEventKind::AddressesExhausted { home },
            NatEventKind::AddressesExhausted { home: key },
        ] {
            assert!(pacer.admits(&NatEvent { kind, ..first }), "{kind:?}");
            assert!(!pacer.admits(&NatEvent { kind, ..first }), "{kind:?}");
        }
    }

    #[test]
    fn a_flood_of_homes_is_bounded() {
        let mut pacer = Pacer::new(1000);
        let sent = (0..100_000).filter(|home| pacer.admits(&refused(*home, 5_000))).count();
        assert!((WAYS * SETS / 2..=WAYS * SETS).contains(&sent), "{sent}");
        assert!(pacer.admits(&refused(100_001, 6_000)), "the interval is over");
    }

    #[test]
    fn clock_that_was_set_back_suppresses_no_home() {
        let mut pacer = Pacer::new(1000);
        assert!(pacer.admits(&refused(1, 9_000_000)));
        assert!(pacer.admits(&refused(1, 5_000)));
        assert!(!pacer.admits(&refused(1, 5_500)));
    }

    #[test]
    fn events_of_the_log_are_not_paced() {
        let mut pacer = Pacer::new(1000);
        let lost = NatEventKind::RecordsLost { count: 1, total: 1 };
        let event = NatEvent { kind: lost, ..refused(1, 5_000) };
        assert!((0..10).all(|_| pacer.admits(&event)));
    }
}

//! The fate of every connection. Pure.
//!
//! A connection is established from the first answer (SYN+ACK) on. It ends either closed, as its
//! pattern demands, or broken: reset, ended by the other side, with wrong bytes, or silent for too
//! long.

use std::collections::BTreeMap;

use super::clock::{Micros, Window};
use super::ip_version::IpVersion;

/// Connections younger than this at a fault are counted separately: their copies may not have been
/// made yet.
const YOUNG: Micros = 100_000;

/// The traffic of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pattern {
    /// The server sends all the time.
    Download,
    /// Question and answer, repeatedly.
    Dialogue,
    /// Silent until all idle connections are called.
    Idle,
    /// Three questions, then a close.
    Short,
}

#[derive(Clone, Debug)]
struct Connection {
    pattern: Pattern,
    version: IpVersion,
    established: Micros,
    /// Time of the last expected data.
    last_good: Micros,
    end: Option<End>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct End {
    at: Micros,
    /// The cause. None: closed.
    broken: Option<String>,
}

/// Every connection that still matters, by number.
#[derive(Debug, Default)]
pub struct Ledger {
    connections: BTreeMap<u32, Connection>,
    /// Start times of the failed attempts.
    unopened: Vec<(Micros, IpVersion)>,
}

/// What happened to the connections around a fault.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionReport {
    /// Connections that had been established for a tenth of a second at the fault.
    pub established: usize,
    /// Idle connections of these.
    pub idle: usize,
    /// Broken connections of the established ones.
    pub broken: usize,
    /// Connections that were younger at the fault, or opened after it.
    pub younger: usize,
    /// Broken connections of these.
    pub younger_broken: usize,
    /// Broken ones of the younger connections that had been established at the fault.
    pub youngest_broken: usize,
    /// Attempts after the fault that led to no connection.
    pub unopened: usize,
    /// Connections that broke within the window but before the fault.
    pub broken_before: usize,
    /// Number of broken connections by cause.
    pub causes: BTreeMap<String, usize>,
}

impl Ledger {
    /// Records that connection `number` is established.
    pub fn established(&mut self, number: u32, pattern: Pattern, version: IpVersion, now: Micros) {
        let (established, last_good) = (now, now);
        let connection = Connection { pattern, version, established, last_good, end: None };
        self.connections.insert(number, connection);
    }

    /// Records that the connection received the expected data.
    pub fn good(&mut self, number: u32, now: Micros) {
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.last_good = now;
        }
    }

    /// Records that the connection was closed as its pattern demands.
    pub fn closed(&mut self, number: u32, now: Micros) {
        self.end(number, End { at: now, broken: None });
    }

    /// Records that the connection broke.
    pub fn broke(&mut self, number: u32, now: Micros, cause: &str) {
        self.end(number, End { at: now, broken: Some(cause.to_owned()) });
    }

    fn end(&mut self, number: u32, end: End) {
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.end.get_or_insert(end);
        }
    }

    /// Records an attempt, begun at `begun`, that led to no connection.
    pub fn unopened(&mut self, begun: Micros, version: IpVersion) {
        self.unopened.push((begun, version));
    }

    /// Returns the number of open lasting connections; with a pattern, only those of that pattern.
    pub fn open(&self, pattern: Option<Pattern>) -> usize {
        let is_counted = |it: &&Connection| {
            it.end.is_none() && pattern.map_or(it.pattern != Pattern::Short, |of| it.pattern == of)
        };
        self.connections.values().filter(is_counted).count()
    }

    /// Returns the number of open lasting connections that have received nothing since `time`.
    pub fn silent_since(&self, time: Micros) -> usize {
        let is_silent = |it: &&Connection| {
            it.end.is_none() && it.pattern != Pattern::Short && it.last_good < time
        };
        self.connections.values().filter(is_silent).count()
    }

    /// Returns the time for which all open idle connections have been idle.
    pub fn idle_for(&self, now: Micros) -> Micros {
        let idle = self.connections.values().filter(|it| it.pattern == Pattern::Idle);
        let last = idle.filter(|it| it.end.is_none()).map(|it| it.last_good).max();
        last.map_or(0, |last| now.saturating_sub(last))
    }

    /// Returns what happened within the window, with a fault at a time in it; with a version of IP,
    /// only to connections of that version.
    pub fn report(
        &self,
        window: Window,
        fault: Micros,
        version: Option<IpVersion>,
    ) -> ConnectionReport {
        let mut report = ConnectionReport::default();
        let is_meant = |of: IpVersion| version.is_none_or(|version| version == of);
        for connection in self.connections.values().filter(|it| is_meant(it.version)) {
            let ended = connection.end.as_ref();
            if ended.is_some_and(|end| end.at < window.start)
                || connection.established >= window.end
            {
                continue;
            }
            let broken = ended.filter(|end| window.contains(end.at));
            let broken = broken.and_then(|end| Some((end.at, end.broken.as_ref()?)));
            if let Some((_, cause)) = broken {
                *report.causes.entry(cause.clone()).or_default() += 1;
            }
            if ended.is_some_and(|end| end.at < fault) {
                report.broken_before += usize::from(broken.is_some());
            } else if connection.established + YOUNG <= fault {
                report.established += 1;
                report.idle += usize::from(connection.pattern == Pattern::Idle);
                report.broken += usize::from(broken.is_some());
            } else {
                report.younger += 1;
                report.younger_broken += usize::from(broken.is_some());
                let was_there = connection.established <= fault;
                report.youngest_broken += usize::from(was_there && broken.is_some());
            }
        }
        let after = Window { start: fault, end: window.end };
        let is_counted =
            |&&(begun, of): &&(Micros, IpVersion)| after.contains(begun) && is_meant(of);
        report.unopened = self.unopened.iter().filter(is_counted).count();
        report
    }

    /// Forgets connections that ended, and attempts that began, before `time`.
    pub fn forget_before(&mut self, time: Micros) {
        self.connections.retain(|_, it| it.end.as_ref().is_none_or(|end| end.at >= time));
        self.unopened.retain(|&(begun, _)| begun >= time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Micros = 1_000_000;
    const WINDOW: Window = Window { start: 10 * SECOND, end: 30 * SECOND };
    const FAULT: Micros = 15 * SECOND;

    #[test]
    fn connection_counts_as_established_after_a_tenth_of_a_second() {
        let mut ledger = Ledger::default();
        ledger.established(1, Pattern::Dialogue, IpVersion::V4, SECOND);
        ledger.established(2, Pattern::Idle, IpVersion::V4, FAULT - YOUNG);
        ledger.established(3, Pattern::Short, IpVersion::V4, FAULT - YOUNG + 1);
        ledger.established(4, Pattern::Short, IpVersion::V4, FAULT + SECOND);
        ledger.established(5, Pattern::Short, IpVersion::V4, WINDOW.end);
        let report = ledger.report(WINDOW, FAULT, None);
        assert_eq!((report.established, report.idle, report.younger), (2, 1, 2));
        assert_eq!((report.broken, report.younger_broken), (0, 0));
    }

    #[test]
    fn broken_connections_are_counted_by_age_and_cause() {
        let mut ledger = Ledger::default();
        for number in 0..6 {
            ledger.established(number, Pattern::Dialogue, IpVersion::V4, SECOND);
        }
        ledger.established(6, Pattern::Short, IpVersion::V4, FAULT - 1);
        ledger.broke(0, 9 * SECOND, "reset");
        ledger.broke(1, FAULT - 1, "reset");
        ledger.broke(2, FAULT, "reset");
        ledger.broke(3, FAULT + SECOND, "no answer");
        ledger.broke(4, WINDOW.end, "reset");
        ledger.closed(5, FAULT + SECOND);
        ledger.broke(6, FAULT + 2, "reset");
        let report = ledger.report(WINDOW, FAULT, None);
        assert_eq!((report.established, report.broken, report.broken_before), (4, 2, 1));
        assert_eq!((report.younger, report.younger_broken), (1, 1));
        assert_eq!(report.youngest_broken, 1);
        ledger.established(7, Pattern::Short, IpVersion::V4, FAULT + 1);
        ledger.broke(7, FAULT + 2, "reset");
        let report = ledger.report(WINDOW, FAULT, None);
        assert_eq!((report.younger_broken, report.youngest_broken), (2, 1));
        let causes = [("no answer".to_owned(), 1), ("reset".to_owned(), 4)];
        assert_eq!(report.causes, causes.into());
    }

    #[test]
    fn only_the_first_end_of_a_connection_counts() {
        let mut ledger = Ledger::default();
        ledger.established(1, Pattern::Dialogue, IpVersion::V4, SECOND);
        ledger.closed(1, FAULT + 1);
        ledger.broke(1, FAULT + 2, "reset");
        assert_eq!(ledger.report(WINDOW, FAULT, None).broken, 0);
        // The end of an unknown number is ignored.
        ledger.broke(9, FAULT + 2, "reset");
        assert_eq!(ledger.report(WINDOW, FAULT, None).causes.len(), 0);
    }

    #[test]
    fn connection_that_has_not_answered_a_call_is_silent() {
        let mut ledger = Ledger::default();
        ledger.established(1, Pattern::Idle, IpVersion::V4, SECOND);
        ledger.established(2, Pattern::Download, IpVersion::V4, SECOND);
        ledger.established(3, Pattern::Short, IpVersion::V4, SECOND);
        assert_eq!((ledger.silent_since(2 * SECOND), ledger.open(None)), (2, 2));
        assert_eq!(ledger.idle_for(31 * SECOND), 30 * SECOND);
        ledger.good(1, 2 * SECOND);
        assert_eq!(ledger.silent_since(2 * SECOND), 1);
        ledger.broke(2, 3 * SECOND, "no answer");
        assert_eq!((ledger.silent_since(2 * SECOND), ledger.open(None)), (0, 1));
        assert_eq!(ledger.open(Some(Pattern::Idle)), 1);
    }

    #[test]
    fn failed_attempts_count_after_the_fault_only() {
        let mut ledger = Ledger::default();
        ledger.unopened(FAULT - 1, IpVersion::V4);
        ledger.unopened(FAULT, IpVersion::V4);
        assert_eq!(ledger.report(WINDOW, FAULT, None).unopened, 1);
        ledger.forget_before(WINDOW.end);
        assert_eq!(ledger.report(WINDOW, FAULT, None).unopened, 0);
    }

    #[test]
    fn connections_of_each_version_are_counted_apart() {
        let mut ledger = Ledger::default();
        ledger.established(1, Pattern::Dialogue, IpVersion::V4, SECOND);
        ledger.established(2, Pattern::Dialogue, IpVersion::V6, SECOND);
        ledger.broke(2, FAULT + 1, "reset");
        ledger.unopened(FAULT, IpVersion::V6);
        let of = |version| {
            let report = ledger.report(WINDOW, FAULT, version);
            (report.established, report.broken, report.unopened)
        };
        assert_eq!(of(None), (2, 1, 1));
        assert_eq!(of(Some(IpVersion::V4)), (1, 0, 0));
        assert_eq!(of(Some(IpVersion::V6)), (1, 1, 1));
    }
}

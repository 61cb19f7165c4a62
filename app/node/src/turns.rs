//! The last loop turn of each thread of the control side: a thread that has stalled decides
//! nothing.
//!
//! Workers have theirs in their stats. The age of the two writing threads (log, block log) is the
//! time for which their reader or disk has taken no line.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use weir_admin::api::ThreadStatus;
use weir_routes::{Decider, SharedWords};

use crate::clock::Clock;

/// A thread that reports its turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Thread {
    /// Admin API, metrics, the watch over the workers.
    Control,
    /// Decides on the roles of the workers.
    Roles,
    /// Speaks with the guard of the routes.
    Routes,
    /// Speaks with etcd.
    Etcd,
}

impl Thread {
    const ALL: [Self; 4] = [Self::Control, Self::Roles, Self::Routes, Self::Etcd];

    const fn name(self) -> &'static str {
        match self {
            Self::Control => "control",
            Self::Roles => "roles",
            Self::Routes => "routes",
            Self::Etcd => "etcd",
        }
    }

    /// Returns the guard's name of the thread, if the guard watches it.
    const fn decider(self) -> Option<Decider> {
        match self {
            Self::Control => Some(Decider::Control),
            Self::Roles => Some(Decider::Roles),
            Self::Routes | Self::Etcd => None,
        }
    }

    /// Returns the longest normal turn in milliseconds. Threads that decide turn many times a
    /// second; the routes thread waits for a guard that does not answer.
    const fn limit_ms(self) -> u64 {
        match self {
            Self::Control | Self::Roles => 2_000,
            Self::Etcd => 5_000,
            Self::Routes => 10_000,
        }
    }
}

/// Age beyond which the reader or disk of a writing thread counts as stalled.
pub(crate) const WRITER_LIMIT_MS: u64 = 5_000;

/// The last turn of each thread.
#[derive(Debug)]
pub(crate) struct Turns {
    clock: Clock,
    /// In a cluster, the guard of the routes watches the threads that decide.
    words: Option<Arc<SharedWords>>,
    /// Last turn by the node's clock; 0 if the thread has not begun, or has ended.
    last_ms: [AtomicU64; Thread::ALL.len()],
}

impl Turns {
    pub(crate) fn new(clock: Clock, words: Option<Arc<SharedWords>>) -> Self {
        Self { clock, words, last_ms: Default::default() }
    }

    /// Notes a turn of the thread. Must be called once in each turn.
    pub(crate) fn turned(&self, thread: Thread) {
        self.last_ms[thread as usize].store(self.now_ms(), Relaxed);
        if let (Some(words), Some(decider)) = (&self.words, thread.decider()) {
            words.beat_decider(decider);
        }
    }

    /// Sets the last turn of a thread to a time of the node's clock.
    #[cfg(test)]
    pub(crate) fn turned_at(&self, thread: Thread, at: Duration) {
        self.last_ms[thread as usize].store(at.as_millis() as u64, Relaxed);
    }

    /// Notes that the thread ends in order.
    pub(crate) fn ended(&self, thread: Thread) {
        self.last_ms[thread as usize].store(0, Relaxed);
        if let (Some(words), Some(decider)) = (&self.words, thread.decider()) {
            words.end_decider(decider);
        }
    }

    /// Returns the time since the thread's last turn; `None` while it does not run.
    pub(crate) fn age(&self, thread: Thread) -> Option<Duration> {
        let last_ms = self.last_ms[thread as usize].load(Relaxed);
        let age_ms = self.now_ms().saturating_sub(last_ms);
        (last_ms > 0).then(|| Duration::from_millis(age_ms))
    }

    /// Whether the thread runs and has not turned for too long.
    pub(crate) fn stands_still(&self, thread: Thread) -> bool {
        self.age(thread).is_some_and(|age| age.as_millis() as u64 >= thread.limit_ms())
    }

    /// Returns the status of the threads that run.
    pub(crate) fn statuses(&self) -> Vec<ThreadStatus> {
        let status = |thread: Thread| {
            let turn_age_ms = self.age(thread)?.as_millis() as u64;
            let is_late = turn_age_ms >= thread.limit_ms();
            Some(ThreadStatus { thread: thread.name().into(), turn_age_ms, is_late })
        };
        Thread::ALL.into_iter().filter_map(status).collect()
    }

    fn now_ms(&self) -> u64 {
        self.clock.now().as_millis() as u64
    }
}

/// Returns the status of a thread that writes lines.
pub(crate) fn writer(thread: &str, stalled: Duration) -> ThreadStatus {
    let turn_age_ms = stalled.as_millis() as u64;
    ThreadStatus { thread: thread.into(), turn_age_ms, is_late: turn_age_ms >= WRITER_LIMIT_MS }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_does_not_turn_is_late_and_one_that_does_not_run_is_not() {
        let turns = Turns::new(Clock::start(), None);
        assert_eq!(turns.statuses(), []);
        turns.turned(Thread::Roles);
        let age = turns.age(Thread::Roles).unwrap();
        assert!(age < Duration::from_secs(1), "{age:?}");
        // A clock begins at one second, so this turn was long ago.
        turns.last_ms[Thread::Etcd as usize].store(1, Relaxed);
        let limit = Duration::from_millis(Thread::Etcd.limit_ms());
        let turns = Turns { clock: Clock::started_before(limit), ..turns };
        assert!(turns.stands_still(Thread::Etcd) && !turns.stands_still(Thread::Control));
        let statuses = turns.statuses();
        let late = statuses.iter().filter(|it| it.is_late).map(|it| it.thread.as_str());
        assert_eq!(late.collect::<Vec<_>>(), ["roles", "etcd"]);
        turns.turned(Thread::Etcd);
        turns.ended(Thread::Roles);
        assert!(turns.statuses().iter().all(|it| !it.is_late));
        assert!(writer("log", Duration::from_millis(WRITER_LIMIT_MS)).is_late);
    }
}

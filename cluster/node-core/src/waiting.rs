//! Messages that wait for the driver of a core while it stalls or falls behind. Their number is
//! bounded, and the core never gets an older state after a newer one.
//!
//! ```text
//!   each worker - ring of events (full: the worker keeps them); --+
//!                 one Stall that found no room               |
//!   etcd mirror - queue in its order (full: the mirror waits) ----+-- InTurn --> Core
//!   all others -- Notices: the newest of each state; -------------+
//!                 events of the guard in a short list
//! ```
//!
//! Only events that no later message repeats are lost, and the driver counts them: those of the
//! guard above [`GUARD_EVENTS_MAX`], and a stall of a worker that follows another unread one.

use std::collections::{BTreeMap, HashMap};
use std::mem;

use weir_map::ShardId;
use weir_routes::{Fence, WorkerIndex};

use crate::event::{CoreEvent, GuardReport, Registration, WriteResult};

/// Limit of waiting events of the guard: many more than it has in the time that the driver of a
/// core may take.
pub const GUARD_EVENTS_MAX: usize = 256;

/// An event of any source but the workers and the mirror of etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    Registration(Registration),
    ClusterFound(Result<(), String>),
    Saved(Result<(), String>),
    Written { shard: ShardId, how: WriteResult },
    Guard(GuardReport),
    HandOver,
    End,
}

/// The state that a notice reports: a later notice of the same state replaces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum NoticeState {
    Connection,
    Registration,
    Cluster,
    Disk,
    Write(ShardId),
    RoutesSet(WorkerIndex),
    RoutesNotSet(WorkerIndex),
    HandOver,
    End,
}

impl Notice {
    /// None: an event of the guard. The events of its running and stalling are one sequence, and
    /// workers' fences are counted.
    fn state(&self) -> Option<NoticeState> {
        Some(match self {
            Self::Registration(Registration::Silent) => NoticeState::Connection,
            Self::Registration(_) => NoticeState::Registration,
            Self::ClusterFound(_) => NoticeState::Cluster,
            Self::Saved(_) => NoticeState::Disk,
            Self::Written { shard, .. } => NoticeState::Write(*shard),
            Self::Guard(GuardReport::Set { worker, .. }) => NoticeState::RoutesSet(*worker),
            Self::Guard(GuardReport::NotSet { worker, .. }) => NoticeState::RoutesNotSet(*worker),
            Self::Guard(_) => return None,
            Self::HandOver => NoticeState::HandOver,
            Self::End => NoticeState::End,
        })
    }
}

impl From<Notice> for CoreEvent {
    fn from(notice: Notice) -> Self {
        match notice {
            Notice::Registration(registration) => Self::Registration(registration),
            Notice::ClusterFound(found) => Self::ClusterFound(found),
            Notice::Saved(ended) => Self::Saved(ended),
            Notice::Written { shard, how } => Self::Written { shard, how },
            Notice::Guard(report) => Self::Guard(report),
            Notice::HandOver => Self::HandOver,
            Notice::End => Self::End,
        }
    }
}

/// Notices that wait, in the order in which the newest of each state came.
#[derive(Debug, Default)]
pub struct Notices {
    next: u64,
    waiting: BTreeMap<u64, Notice>,
    states: HashMap<NoticeState, u64>,
    guard_events: usize,
}

impl Notices {
    /// Adds a notice. True if an event was lost by that: the oldest one of the guard, if there is
    /// no room for the new one.
    pub fn push(&mut self, notice: Notice) -> bool {
        let number = self.next;
        self.next += 1;
        let state = notice.state();
        let former = match state {
            Some(state) => self.states.insert(state, number),
            None if self.guard_events < GUARD_EVENTS_MAX => {
                self.guard_events += 1;
                None
            }
            // The newest events show the state of the guard.
            None => {
                let mut events = self.waiting.iter().filter(|(_, it)| it.state().is_none());
                events.next().map(|(&oldest, _)| oldest)
            }
        };
        self.waiting.insert(number, notice);
        let replaced = former.and_then(|former| self.waiting.remove(&former));
        replaced.is_some() && state.is_none()
    }

    /// Takes the next notice for the core.
    pub fn pop(&mut self) -> Option<Notice> {
        let (_, notice) = self.waiting.pop_first()?;
        match notice.state() {
            Some(state) => drop(self.states.remove(&state)),
            None => self.guard_events -= 1,
        }
        Some(notice)
    }

    /// Returns the number of waiting notices.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

/// The end of a worker's stall, which waits for room. If another one follows, both are reported as
/// one: under the newest fence, with the packets that had waited through both.
#[derive(Debug, Default)]
pub struct StallEnd(Option<(Fence, usize)>);

impl StallEnd {
    /// Notes that a worker goes on under this fence; `waited`: packets that had waited. True if an
    /// earlier stall is reported together with this one.
    pub fn add(&mut self, fence: Fence, waited: usize) -> bool {
        let former = self.0.take();
        self.0 = Some((fence, former.map_or(0, |(_, packets)| packets) + waited));
        former.is_some()
    }

    pub fn is_waiting(&self) -> bool {
        self.0.is_some()
    }

    /// Takes fence and packets, once there is room.
    pub fn take(&mut self) -> Option<(Fence, usize)> {
        mem::take(&mut self.0)
    }
}

/// The source that a message was taken from last. Each source has its turn, so none waits for more
/// than one message of each other.
#[derive(Debug, Default)]
pub struct InTurn(usize);

impl InTurn {
    /// Takes the next message of this many sources, each of which `take` looks at once at most.
    pub fn next<T>(&mut self, ways: usize, mut take: impl FnMut(usize) -> Option<T>) -> Option<T> {
        for _ in 0..ways {
            self.0 = (self.0 + 1) % ways;
            let message = take(self.0);
            if message.is_some() {
                return message;
            }
        }
        None
    }
}

#[cfg(test)]
#[path = "waiting_tests.rs"]
mod tests;

//! Hot. Tracks which changes enough replicas have: up to where the journal is committed.
//!
//! ```text
//!   journal --tell_changes--> streams
//!                   \-------> awaited: where in the journal, which datagram of which streams
//!   acknowledgements -------> the oldest awaited change is on enough replicas? the next one, ...
//! ```
//!
//! - Only changes of shards that await replicas are tracked, and of those only creations and
//!   changes in lanes of ours. One entry stands for all changes of a lane that go with the same
//!   datagrams: a replica that has the first has the last.
//! - A replica has a change when it follows its copy of the lane, as it confirms itself, and has
//!   acknowledged what went through the stream. Changes that it got before its copy was complete,
//!   or in an earlier epoch of the stream, came with the copy.
//! - With fewer replicas than wanted, a worker that is not strict waits for the replicas that are
//!   present and heard, and counts the change as degraded.
//! - A change that no packet waits for any more, because the wait timed out, holds up nothing
//!   behind it: otherwise a strict worker would wait, with all its shards, until there are replicas
//!   again.
//! - A lane that another worker owns by now, or a removed shard, is not waited for: the new owner
//!   has all of it, or no worker ever will.

use std::collections::VecDeque;

use weir_map::ShardId;
use weir_nat::{Replica, ReplicaMut, ShardIndex};
use weir_stream::{Lane, PeerIndex, StreamEndpoint, StreamRecord, Ticket};

use super::Replication;
use super::outgoing::OutgoingCopy;
use super::shard_copies::{LaneCopy, ShardCopies};
use super::state::ReplicationState;

/// A replica that has been silent for this long is not waited for: as long as a primary may be
/// silent.
pub(super) const SILENCE_MS: u64 = 30;

/// Without an acknowledgement the oldest entry is looked at again after this time: a peer may have
/// fallen silent, a copy or a lane have ended.
const LOOK_US: u64 = 1_000;

/// Settings of output commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitOptions {
    /// Replicas that are to have a change.
    pub replicas: usize,
    /// Never release packets while fewer replicas than that have their changes.
    pub is_strict: bool,
    /// Changes that packets wait for at once: as many as the engine keeps.
    pub changes_max: usize,
    /// Changes that packets wait for are sent at once, but to each replica at most once per this
    /// many microseconds.
    pub pace_us: u64,
}

impl CommitOptions {
    /// Entries that are kept. An entry that no packet waits for is dropped a moment later, when as
    /// many changes may wait again.
    fn kept_max(&self) -> usize {
        4 * self.changes_max
    }
}

#[derive(Debug)]
struct AwaitedChange {
    /// Journal position of the first of its changes.
    position: u64,
    shard: ShardIndex,
    number: ShardId,
    ticket: Ticket,
    lane: Lane,
}

/// State of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CommitVerdict {
    Waits,
    Committed,
    /// Every present replica has it, but these are too few.
    Degraded,
}

/// Last look at the oldest entry: the change at this journal position was not committed after so
/// many acknowledgements. It is looked at again at the next acknowledgement, or at `until_us`.
#[derive(Clone, Copy, Debug)]
struct Waits {
    position: u64,
    acknowledgements: u64,
    until_us: u64,
}

#[derive(Debug)]
pub(super) struct CommitQueue {
    options: Option<CommitOptions>,
    awaited: VecDeque<AwaitedChange>,
    /// The oldest entry, when it was last looked at.
    waits: Waits,
    /// Journal position up to which no packet waited when the oldest entry was last looked at.
    unawaited: u64,
    /// Index of the shard whose replicas are counted next.
    swept: usize,
}

impl Waits {
    /// True if nothing has happened since the last look that could have ended the wait.
    #[inline]
    fn still(&self, position: u64, acknowledgements: u64, now_us: u64) -> bool {
        (self.position, self.acknowledgements) == (position, acknowledgements)
            && now_us < self.until_us
    }
}

impl CommitQueue {
    pub(super) fn none() -> Self {
        let waits = Waits { position: 0, acknowledgements: 0, until_us: 0 };
        Self { options: None, awaited: VecDeque::new(), waits, unawaited: 0, swept: 0 }
    }

    pub(super) fn is_on(&self) -> bool {
        self.options.is_some()
    }

    /// True if changes of this shard are awaited.
    #[inline]
    pub(super) fn awaits(&self, copies: &ShardCopies) -> bool {
        copies.awaits_replicas && self.options.is_some()
    }

    /// True if the tracked change at this journal position still waits, and packets wait for it.
    #[inline]
    fn is_waiting(&self, position: u64) -> bool {
        self.awaited.front().is_some_and(|oldest| oldest.position <= position)
            && self.unawaited < position
    }

    /// Appends a change that packets wait for to its lane's streams. `position`: in the journal.
    /// Returns whether the change can be tracked.
    #[inline(never)]
    pub(super) fn append_awaited(
        &mut self,
        endpoint: &mut StreamEndpoint,
        (shard, copies): (ShardIndex, &mut ShardCopies),
        lane: Lane,
        record: &StreamRecord<'_>,
        (position, now_us): (u64, u64),
    ) -> bool {
        let Some(options) = self.options else { return false };
        let number = copies.number;
        let LaneCopy { readers, awaited, last_awaited, .. } =
            &mut copies.lanes[usize::from(lane.number())];
        *last_awaited = position;
        let (ticket, since) = awaited;
        let is_elsewhere = endpoint.append_next(readers, record, now_us, ticket);
        if !is_elsewhere && self.is_waiting(*since) {
            // A replica that has the waiting change has this one.
            return true;
        }
        for &peer in &*readers {
            endpoint.hasten(peer, now_us, options.pace_us);
        }
        let has_room = self.awaited.len() < options.kept_max();
        *since = 0;
        if has_room {
            *since = position;
            self.awaited.push_back(AwaitedChange {
                position,
                shard,
                number,
                ticket: *ticket,
                lane,
            });
        }
        has_room
    }
}

impl Replication {
    /// Turns output commit on: changes of shards which
    /// [await replicas](crate::command::ShardSetup::awaits_replicas) are tracked until enough
    /// replicas have them. Call it once, before the first command; allocates.
    pub fn await_replicas(&mut self, options: CommitOptions) {
        let awaited = VecDeque::with_capacity(options.kept_max());
        self.commits = CommitQueue { options: Some(options), awaited, ..CommitQueue::none() };
    }

    /// Returns the position up to which enough replicas have the NAT's journal. Call it after a
    /// poll, for the packets that wait for it.
    #[inline]
    pub fn committed(&mut self, now_us: u64, nat: Replica<'_>) -> u64 {
        let Self { commits, endpoint, state, .. } = self;
        let Some(options) = &commits.options else { return nat.journal_taken() };
        let acknowledgements = endpoint.acknowledgements();
        while let Some(oldest) = commits.awaited.front() {
            let position = oldest.position;
            if commits.waits.still(position, acknowledgements, now_us) {
                return position - 1;
            }
            commits.unawaited = nat.journal_unawaited();
            match verdict(oldest, options, endpoint, state, now_us) {
                CommitVerdict::Waits if is_over(oldest, state, commits.unawaited) => {}
                CommitVerdict::Waits => {
                    let until_us = now_us + LOOK_US;
                    commits.waits = Waits { position, acknowledgements, until_us };
                    return position - 1;
                }
                CommitVerdict::Committed => {}
                CommitVerdict::Degraded => state.counters.changes_degraded_total += 1,
            }
            commits.awaited.pop_front();
        }
        nat.journal_taken()
    }

    /// Counts the replicas of some shards.
    pub(super) fn sweep_commits(&mut self, shards: usize, now_us: u64, nat: &mut ReplicaMut<'_>) {
        let Self { commits, endpoint, state, .. } = self;
        let Some(options) = &commits.options else { return };
        let shard_slots = state.shard_slots();
        for _ in 0..shards.min(shard_slots) {
            commits.swept = (commits.swept + 1) % shard_slots;
            let shard = ShardIndex(commits.swept as u16);
            let Some(copies) = state.copies(shard).filter(|copies| copies.awaits_replicas) else {
                continue;
            };
            let is_short = replicas_of(copies, endpoint, now_us) < options.replicas;
            if is_short != copies.is_short {
                state.set_short(shard, is_short);
                nat.set_short(shard, is_short);
            }
        }
    }
}

/// Number of heard replicas that have all lanes of ours; `usize::MAX` if this worker writes no lane
/// of the shard.
fn replicas_of(copies: &ShardCopies, endpoint: &StreamEndpoint, now_us: u64) -> usize {
    let own = copies.duties.lanes.iter().map(|lane| {
        let outgoing = copies.lanes[lane].outgoing.iter();
        let is_there = |out: &&OutgoingCopy| {
            out.counts(endpoint, Lane::ALL[lane], copies.lanes[lane].lineage)
                && has_heartbeat(endpoint, out.peer, now_us)
        };
        outgoing.filter(is_there).count()
    });
    own.min().unwrap_or(usize::MAX)
}

pub(super) fn has_heartbeat(endpoint: &StreamEndpoint, peer: PeerIndex, now_us: u64) -> bool {
    endpoint.silent_ms(peer, now_us).is_some_and(|silent_ms| silent_ms < SILENCE_MS)
}

/// True if no packet waits for any of the changes that the entry stands for.
fn is_over(awaited: &AwaitedChange, state: &ReplicationState, unawaited: u64) -> bool {
    let copies = state.copies(awaited.shard).filter(|copies| copies.number == awaited.number);
    let lane = usize::from(awaited.lane.number());
    copies.is_none_or(|copies| copies.lanes[lane].last_awaited <= unawaited)
}

fn verdict(
    awaited: &AwaitedChange,
    options: &CommitOptions,
    endpoint: &StreamEndpoint,
    state: &ReplicationState,
    now_us: u64,
) -> CommitVerdict {
    let lane = usize::from(awaited.lane.number());
    let copies = state.copies(awaited.shard).filter(|copies| copies.number == awaited.number);
    let Some(copies) = copies.filter(|copies| copies.duties.lanes.contains(lane)) else {
        return CommitVerdict::Degraded;
    };
    let (mut have_it, mut will_have_it) = (0, 0);
    for out in &copies.lanes[lane].outgoing {
        if !out.counts(endpoint, awaited.lane, copies.lanes[lane].lineage) {
            continue;
        }
        let is_there = !endpoint.is_on_its_way(&awaited.ticket, out.peer);
        if is_there {
            have_it += 1;
        } else if has_heartbeat(endpoint, out.peer, now_us) {
            will_have_it += 1;
        }
    }
    match have_it >= options.replicas {
        true => CommitVerdict::Committed,
        false if options.is_strict || will_have_it > 0 => CommitVerdict::Waits,
        false => CommitVerdict::Degraded,
    }
}

//! Hot. Which changes enough replicas have: up to where the journal is committed.
//!
//! ```text
//!   journal --tell_changes--> streams
//!                   \-------> awaited: where in the journal, which datagram of which streams
//!   acknowledgements -------> the oldest awaited change is on enough replicas? the next one, ...
//! ```
//!
//! - Only changes of shards that await replicas are kept, and of those only what begins or changes in lanes of ours. One
//!   entry is for all changes of a shard that go with the same datagrams: whoever has the first has the last.
//! - A replica has a change when it follows its copy of the lane, as it says itself, and what went through the stream is
//!   acknowledged. What it got before its copy was complete, or in a stream that has begun anew since, came with the copy.
//! - Fewer replicas than wanted: who is not strict waits for those that are there and heard, and counts.
//! - What no packet waits for any more, since its time is over, holds up nothing behind it: who is strict would wait until
//!   there are replicas again, with all shards of the worker.
//! - A lane that is not ours any more, or a shard that is gone, is waited for no longer: its new owner has all of it, or
//!   nobody will.

use std::collections::VecDeque;

use weir_map::ShardId;
use weir_nat::{Nat, ShardIndex};
use weir_stream::{Endpoint, Lane, PeerIndex, Record, Ticket};

use super::Replication;
use super::outgoing::Outgoing;
use super::part::{LanePart, Part};
use super::state::State;

/// A replica that was not heard for so long is not waited for: as long as a primary may be silent.
const SILENCE_MS: u64 = 30;

/// Without an acknowledgement it is looked again after this time whether what waits still has to: a peer may have fallen
/// silent, a copy or a lane have ended.
const LOOK_US: u64 = 1_000;

/// How output commit is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitOptions {
    /// Replicas that are to have a change.
    pub replicas: usize,
    /// Fewer are not enough, however few there are.
    pub is_strict: bool,
    /// Changes that packets wait for at once: as many as the engine keeps.
    pub changes_max: usize,
    /// Changes that packets wait for are sent at once, but to each replica no more often than every so many microseconds.
    pub pace_us: u64,
}

impl CommitOptions {
    /// Changes that are kept. What packets do not wait for any more goes a moment later, when as many may wait again.
    fn kept_max(&self) -> usize {
        4 * self.changes_max
    }
}

#[derive(Debug)]
struct Awaited {
    /// Of the first of its changes in the journal.
    position: u64,
    shard: ShardIndex,
    number: ShardId,
    ticket: Ticket,
    lane: Lane,
}

/// How a change stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Waits,
    Committed,
    /// As many have it as there are, and those are too few.
    Degraded,
}

/// The change that stands there in the journal was not committed when so many acknowledgements had come. It is looked at
/// again when another comes, or at that time.
#[derive(Clone, Copy, Debug)]
struct Waits {
    position: u64,
    acknowledgements: u64,
    until_us: u64,
}

#[derive(Debug)]
pub(super) struct Commits {
    options: Option<CommitOptions>,
    awaited: VecDeque<Awaited>,
    /// The oldest, when it was last looked at.
    waits: Waits,
    /// Up to where in the journal no packet waited when the oldest was last looked at.
    unawaited: u64,
    /// The shard that is looked at next for how many replicas it has.
    swept: usize,
}

impl Waits {
    /// Whether nothing has happened since that could have ended it.
    #[inline]
    fn still(&self, position: u64, acknowledgements: u64, now_us: u64) -> bool {
        (self.position, self.acknowledgements) == (position, acknowledgements)
            && now_us < self.until_us
    }
}

impl Commits {
    pub(super) fn none() -> Self {
        let waits = Waits { position: 0, acknowledgements: 0, until_us: 0 };
        Self { options: None, awaited: VecDeque::new(), waits, unawaited: 0, swept: 0 }
    }

    pub(super) fn is_on(&self) -> bool {
        self.options.is_some()
    }

    /// Whether changes of this shard are awaited.
    #[inline]
    pub(super) fn awaits(&self, part: &Part) -> bool {
        part.awaits_replicas && self.options.is_some()
    }

    /// Whether the change that stands there in the journal, which was kept, still waits, and packets for it.
    #[inline]
    fn is_waiting(&self, position: u64) -> bool {
        self.awaited.front().is_some_and(|oldest| oldest.position <= position)
            && self.unawaited < position
    }

    /// Tells a change that packets wait for. `position`: in the journal. Whether it can be followed.
    #[inline(never)]
    pub(super) fn tell(
        &mut self,
        endpoint: &mut Endpoint,
        (shard, part): (ShardIndex, &mut Part),
        lane: Lane,
        record: &Record<'_>,
        (position, now_us): (u64, u64),
    ) -> bool {
        let Some(options) = self.options else { return false };
        let number = part.number;
        let LanePart { readers, awaited, last_awaited, .. } =
            &mut part.lanes[usize::from(lane.number())];
        *last_awaited = position;
        let (ticket, since) = awaited;
        let is_elsewhere = endpoint.append_next(readers, record, now_us, ticket);
        if !is_elsewhere && self.is_waiting(*since) {
            // Who has the one that waits has this one.
            return true;
        }
        for &peer in &*readers {
            endpoint.hasten(peer, now_us, options.pace_us);
        }
        let has_room = self.awaited.len() < options.kept_max();
        *since = 0;
        if has_room {
            *since = position;
            self.awaited.push_back(Awaited { position, shard, number, ticket: *ticket, lane });
        }
        has_room
    }
}

impl Replication {
    /// From now on changes of shards that [await replicas](crate::order::ShardSetup::awaits_replicas) are followed until
    /// enough have them. To be called once, before the first order: takes memory.
    pub fn await_replicas(&mut self, options: CommitOptions) {
        let awaited = VecDeque::with_capacity(options.kept_max());
        self.commits = Commits { options: Some(options), awaited, ..Commits::none() };
    }

    /// Up to where enough replicas have the NAT's journal: to be asked after a poll, for packets that wait for it.
    #[inline]
    pub fn committed(&mut self, now_us: u64, nat: &Nat) -> u64 {
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
                Verdict::Waits if is_over(oldest, state, commits.unawaited) => {}
                Verdict::Waits => {
                    let until_us = now_us + LOOK_US;
                    commits.waits = Waits { position, acknowledgements, until_us };
                    return position - 1;
                }
                Verdict::Committed => {}
                Verdict::Degraded => state.counters.changes_degraded_total += 1,
            }
            commits.awaited.pop_front();
        }
        nat.journal_taken()
    }

    /// Looks at some shards for how many replicas they have.
    pub(super) fn sweep_commits(&mut self, shards: usize, now_us: u64, nat: &mut Nat) {
        let Self { commits, endpoint, state, .. } = self;
        let Some(options) = &commits.options else { return };
        let places = state.places();
        for _ in 0..shards.min(places) {
            commits.swept = (commits.swept + 1) % places;
            let shard = ShardIndex(commits.swept as u16);
            let Some(part) = state.part(shard).filter(|part| part.awaits_replicas) else {
                continue;
            };
            let is_short = replicas_of(part, endpoint, now_us) < options.replicas;
            if is_short != part.is_short {
                state.set_short(shard, is_short);
                nat.set_short(shard, is_short);
            }
        }
    }
}

/// Replicas that have all lanes of ours and are heard. Without a lane of ours nothing is to be had.
fn replicas_of(part: &Part, endpoint: &Endpoint, now_us: u64) -> usize {
    let own = part.duties.lanes.iter().map(|lane| {
        let outgoing = part.lanes[lane].outgoing.iter();
        let is_there = |out: &&Outgoing| {
            out.counts(endpoint, Lane::ALL[lane], part.lanes[lane].reign)
                && is_heard(endpoint, out.peer, now_us)
        };
        outgoing.filter(is_there).count()
    });
    own.min().unwrap_or(usize::MAX)
}

pub(super) fn is_heard(endpoint: &Endpoint, peer: PeerIndex, now_us: u64) -> bool {
    endpoint.silent_ms(peer, now_us).is_some_and(|silent_ms| silent_ms < SILENCE_MS)
}

/// Whether no packet waits for any of the changes that it is for.
fn is_over(awaited: &Awaited, state: &State, unawaited: u64) -> bool {
    let part = state.part(awaited.shard).filter(|part| part.number == awaited.number);
    let lane = usize::from(awaited.lane.number());
    part.is_none_or(|part| part.lanes[lane].last_awaited <= unawaited)
}

fn verdict(
    awaited: &Awaited,
    options: &CommitOptions,
    endpoint: &Endpoint,
    state: &State,
    now_us: u64,
) -> Verdict {
    let lane = usize::from(awaited.lane.number());
    let part = state.part(awaited.shard).filter(|part| part.number == awaited.number);
    let Some(part) = part.filter(|part| part.duties.lanes.contains(lane)) else {
        return Verdict::Degraded;
    };
    let (mut have_it, mut will_have_it) = (0, 0);
    for out in &part.lanes[lane].outgoing {
        if !out.counts(endpoint, awaited.lane, part.lanes[lane].reign) {
            continue;
        }
        let is_there = !endpoint.is_on_its_way(&awaited.ticket, out.peer);
        if is_there {
            have_it += 1;
        } else if is_heard(endpoint, out.peer, now_us) {
            will_have_it += 1;
        }
    }
    match have_it >= options.replicas {
        true => Verdict::Committed,
        false if options.is_strict || will_have_it > 0 => Verdict::Waits,
        false => Verdict::Degraded,
    }
}

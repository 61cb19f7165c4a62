//! Admission: the homes without state that a shard admits, and the homes that make room for them.
//!
//! An attacker that can forge a source inside the homes' prefixes can make up homes, each of which
//! uses up capacity. Homes are of one of three kinds, so that the capacity goes to homes that
//! exist:
//!
//! ```text
//!   known      had an answered flow when it was last here      admitted at once
//!   returning  was refused 1 to 60 s ago, and has come again   admitted at the pace of a shard
//!   stranger   was never seen                                  the same, with tokens of its own,
//!                                                              and only while capacity is left
//! ```
//!
//! - When the capacity is used up, a known or returning home displaces the home that has waited
//!   longest for its first answer, ten seconds at least. A home that has had an answered flow stays
//!   admitted until its last record is gone.
//! - The displaced home's mappings are ended by the walk (`expire.rs`); their ports rest, and its
//!   slot is one of the spare ones until then. At most half as many homes as a shard's capacity may
//!   be displaced at once, so what they hold in quarantine is bounded.
//! - A displaced home with a flow that is answered before the walk comes by is admitted again: no
//!   answered mapping ends (RFC 6888 REQ-11).
//!
//! Both memories are bounded tables of hash tags. A flood that overflows that of refused homes
//! makes returning homes strangers again; that of known homes takes only homes that were answered.

use weir_flow::{Hash, OutOfMemory, RecordId, Region};

use crate::endpoint::{Home, Tick};
use crate::nat::Nat;
use crate::packet::Refusal;
use crate::replication::journal::MarkKind;
use crate::sessions::mapping::Mapping;
use crate::sessions::session_state::SessionState;

/// Time that a home has for its first answer before it may be displaced. It exceeds a lap of the
/// walk, which notes answers.
const UNANSWERED_MIN_SEC: u16 = 10;
/// A refused home that comes again within this time is a returning one.
const RETURN_SEC: u32 = 60;
/// Maximum number of homes displaced for one that comes: more than one only after displaced homes
/// were admitted again.
const DISPLACED_AT_ONCE: usize = 8;
/// Entries of a bucket.
const WAYS: usize = 4;
const ENTRIES_MIN: usize = 256;
const REFUSED_MAX: usize = 1 << 16;

/// Returns how many homes of a shard may be displaced at once, beside its `subscribers_max`
/// admitted ones.
pub(crate) const fn spare_slots(subscribers_max: u32) -> u32 {
    subscribers_max.div_ceil(2)
}

/// Returns the homes admitted in a second, unless the configuration sets them.
const fn default_per_sec(subscribers_max: u32) -> u32 {
    let share = subscribers_max / 8;
    if share < 16 { 16 } else { share }
}

/// What is known of a home that asks for admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HomeStanding {
    Known,
    Returning,
    Stranger,
}

/// The rate at which a shard admits homes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AdmissionPace {
    per_sec: u32,
    burst: u32,
    returning: u32,
    strangers: u32,
    refilled: Tick,
}

impl AdmissionPace {
    pub(crate) fn new(per_sec: Option<u32>, subscribers_max: u32) -> Self {
        let tokens = u32::MAX;
        let mut pace =
            Self { per_sec: 0, burst: 0, returning: tokens, strangers: tokens, refilled: Tick(0) };
        pace.set_rate(per_sec, subscribers_max);
        pace
    }

    /// Sets the rate from now on. Tokens beyond the new burst are lost.
    pub(crate) fn set_rate(&mut self, per_sec: Option<u32>, subscribers_max: u32) {
        self.per_sec = per_sec.unwrap_or(default_per_sec(subscribers_max));
        self.burst = self.per_sec.saturating_mul(2).max(subscribers_max / 2);
        self.returning = self.returning.min(self.burst);
        self.strangers = self.strangers.min(self.burst);
    }

    /// Takes a token for a home of this standing. Returns whether there was one; a known home needs
    /// none.
    fn admit(&mut self, standing: HomeStanding, now: Tick) -> bool {
        if self.refilled != now {
            let earned = self.per_sec.saturating_mul(now.since(self.refilled));
            self.returning = self.returning.saturating_add(earned).min(self.burst);
            self.strangers = self.strangers.saturating_add(earned).min(self.burst);
            self.refilled = now;
        }
        let tokens = match standing {
            HomeStanding::Known => return true,
            HomeStanding::Returning => &mut self.returning,
            HomeStanding::Stranger => &mut self.strangers,
        };
        let is_admitted = *tokens > 0 || self.per_sec == u32::MAX;
        *tokens = tokens.saturating_sub(1);
        is_admitted
    }
}

/// Homes that are not here, by tags of their keyed hashes.
#[derive(Debug)]
pub(crate) struct Memory {
    /// Tags; 0: free.
    known: Region<u32>,
    /// A tag in the upper 20 bits, its lowest set, above the lower 12 bits of the tick of the
    /// refusal; 0: free.
    refused: Region<u32>,
    /// The way that a full bucket of `known` gives up next.
    victim: usize,
}

const TICK_BITS: u32 = 12;
const TICK_MASK: u32 = (1 << TICK_BITS) - 1;

impl Memory {
    fn entries(subscribers: usize) -> (usize, usize) {
        let known = (2 * subscribers).next_power_of_two().max(ENTRIES_MIN);
        let refused = (16 * subscribers).next_power_of_two().clamp(ENTRIES_MIN, REFUSED_MAX);
        (known, refused)
    }

    pub(crate) fn bytes_for(subscribers: usize) -> usize {
        let (known, refused) = Self::entries(subscribers);
        Region::<u32>::bytes_for(known) + Region::<u32>::bytes_for(refused)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.known.bytes() + self.refused.bytes()
    }

    pub(crate) fn new(subscribers: usize) -> Result<Self, OutOfMemory> {
        let (known, refused) = Self::entries(subscribers);
        Ok(Self { known: Region::new(known, 0)?, refused: Region::new(refused, 0)?, victim: 0 })
    }

    fn known_tag(hash: Hash) -> u32 {
        (hash.0 >> 32) as u32 | 1
    }

    fn refused_tag(hash: Hash) -> u32 {
        (hash.0 >> 32) as u32 >> TICK_BITS << TICK_BITS | 1 << TICK_BITS
    }

    fn is_known(&self, hash: Hash) -> bool {
        let from = bucket(hash, self.known.len());
        self.known[from..from + WAYS].contains(&Self::known_tag(hash))
    }

    /// Remembers a home that had an answered flow and has gone.
    pub(crate) fn note_known(&mut self, hash: Hash) {
        if self.is_known(hash) {
            return;
        }
        let from = bucket(hash, self.known.len());
        let ways = &mut self.known[from..from + WAYS];
        let way = ways.iter().position(|&tag| tag == 0).unwrap_or(self.victim % WAYS);
        self.victim = self.victim.wrapping_add(1);
        ways[way] = Self::known_tag(hash);
    }

    /// True if a home was refused before this second and within the last minute; otherwise notes
    /// the refusal.
    fn has_returned(&mut self, hash: Hash, now: Tick) -> bool {
        let tag = Self::refused_tag(hash);
        let age = |entry: u32| now.0.wrapping_sub(entry) & TICK_MASK;
        let from = bucket(hash, self.refused.len());
        let ways = &mut self.refused[from..from + WAYS];
        let own = ways.iter_mut().find(|entry| **entry & !TICK_MASK == tag);
        if let Some(own) = own {
            let since = age(*own);
            if since > RETURN_SEC {
                *own = tag | now.0 & TICK_MASK;
            }
            return (1..=RETURN_SEC).contains(&since);
        }
        let rank = |entry: u32| if entry == 0 { u32::MAX } else { age(entry) };
        if let Some(oldest) = ways.iter_mut().max_by_key(|entry| rank(**entry)) {
            *oldest = tag | now.0 & TICK_MASK;
        }
        false
    }
}

/// Returns the first entry of a hash's bucket in a table of a power of two entries.
fn bucket(hash: Hash, entries: usize) -> usize {
    hash.0 as usize & (entries - 1) & !(WAYS - 1)
}

impl Nat {
    /// Decides whether a home is admitted; another home may be displaced for it.
    #[cold]
    pub(crate) fn admit(&mut self, home: &Home, now: Tick) -> Result<(), Refusal> {
        let shard = home.shard;
        let hash = self.subscribers.lasting_hash(home);
        let homes = &mut self.subscribers;
        let standing = match homes.memory.is_known(hash) {
            true => HomeStanding::Known,
            false if homes.memory.has_returned(hash, now) => HomeStanding::Returning,
            false => HomeStanding::Stranger,
        };
        if standing == HomeStanding::Stranger && homes.is_shard_full(shard) {
            return Err(Refusal::SubscribersMax);
        }
        if !homes.pace(shard).admit(standing, now) {
            return Err(Refusal::NewHomes);
        }
        for _ in 0..DISPLACED_AT_ONCE {
            if !homes.is_shard_full(shard) {
                return Ok(());
            }
            if !homes.displace_oldest(shard, UNANSWERED_MIN_SEC, now) {
                break;
            }
        }
        if homes.is_shard_full(shard) { Err(Refusal::SubscribersMax) } else { Ok(()) }
    }

    /// Admits a displaced home again because it opens a flow.
    #[cold]
    pub(crate) fn admit_displaced(&mut self, slot: u32, now: Tick) -> Result<(), Refusal> {
        let home = self.subscribers.get(slot).home();
        self.admit(&home, now)?;
        self.subscribers.readmit(slot, now);
        Ok(())
    }

    /// Records that a flow of the mapping's home was answered. The first is sent to replicas.
    pub(crate) fn note_answered(&mut self, id: RecordId) {
        let mapping = self.mappings.get_mut(id);
        mapping.flags |= Mapping::ANSWERED;
        let subscriber = mapping.subscriber;
        if self.subscribers.set_answered(subscriber) {
            self.note_mapping(MarkKind::Answered, id);
        }
    }

    /// As [`note_answered`](Self::note_answered), for a session that ends, if it was answered.
    #[inline]
    pub(crate) fn note_if_answered(&mut self, id: RecordId, state: SessionState) {
        let mapping = self.mappings.get(id);
        if mapping.flags & Mapping::ANSWERED == 0 && state.is_answered(mapping.protocol) {
            self.note_answered(id);
        }
    }

    /// Ends a mapping of a displaced home, unless a flow of it was answered.
    pub(crate) fn end_displaced(&mut self, id: RecordId, now: Tick) {
        let mapping = *self.mappings.get(id);
        if !mapping.kind.is_in_use() || !self.subscribers.get(mapping.subscriber).is_displaced() {
            return;
        }
        let protocol = mapping.protocol;
        let mut is_answered = mapping.first.state.is_answered(protocol);
        if mapping.kind.is_ipv6() && !is_answered {
            self.totals.flow_expired += 1;
            return self.end_flow6(id);
        }
        let has_sessions = !mapping.kind.is_ipv6() && mapping.sessions > 0;
        let mut next = if has_sessions { mapping.sessions_head } else { RecordId::NONE };
        while next != RecordId::NONE && !is_answered {
            let session = self.sessions.get(next);
            is_answered = session.remote.state.is_answered(protocol);
            next = session.next;
        }
        if is_answered {
            return self.note_answered(id);
        }
        while self.mappings.get(id).sessions > 0 {
            self.totals.flow_expired += 1;
            self.end_session(self.mappings.get(id).sessions_head);
        }
        self.totals.flow_expired += 1;
        self.end_mapping(id, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_refused_a_second_ago_is_a_returning_one() {
        let mut memory = Memory::new(256).unwrap();
        let (one, other) = (Hash(0x1234_5678_9abc_def0), Hash(0x2234_5678_9abc_def0));
        assert!(!memory.has_returned(one, Tick(100)));
        assert!(!memory.has_returned(one, Tick(100)), "in the same second");
        assert!(!memory.has_returned(other, Tick(101)), "another home");
        assert!(memory.has_returned(one, Tick(101)));
        assert!(memory.has_returned(one, Tick(160)));
        assert!(!memory.has_returned(one, Tick(161)), "too late: a stranger again");
        assert!(memory.has_returned(one, Tick(162)));
    }

    #[test]
    fn known_homes_are_remembered_until_others_take_their_place() {
        let mut memory = Memory::new(16).unwrap();
        let hash = |n: u64| Hash(n << 40 | 8);
        for n in 1..=4 {
            memory.note_known(hash(n));
            memory.note_known(hash(n));
        }
        assert!((1..=4).all(|n| memory.is_known(hash(n))));
        memory.note_known(hash(5));
        assert!(memory.is_known(hash(5)));
        assert_eq!((1..=5).filter(|&n| memory.is_known(hash(n))).count(), 4);
    }

    #[test]
    fn the_pace_has_tokens_for_both_kinds_and_known_homes_need_none() {
        let mut pace = AdmissionPace::new(Some(3), 4);
        let now = Tick(50);
        let count = |pace: &mut AdmissionPace, standing, now| {
            (0..20).filter(|_| pace.admit(standing, now)).count()
        };
        assert_eq!(count(&mut pace, HomeStanding::Stranger, now), 6);
        assert_eq!(count(&mut pace, HomeStanding::Returning, now), 6);
        assert_eq!(count(&mut pace, HomeStanding::Known, now), 20);
        assert_eq!(count(&mut pace, HomeStanding::Stranger, Tick(51)), 3);
        assert_eq!(count(&mut pace, HomeStanding::Stranger, Tick(1000)), 6);
    }
}

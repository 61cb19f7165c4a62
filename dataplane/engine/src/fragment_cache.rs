//! Translation of inner fragments: each follows its first fragment (RFC 4787 REQ-14, RFC 6146
//! section 3.4).
//!
//! A datagram is remembered from its first fragment on, so that later ones, which have no ports,
//! get the same translation. Fragments that come before their first are held. Both are bounded in
//! number and in time, and packets that are not fragments use nothing of this module: a flood of
//! fragments hurts only fragments.
//!
//! It hurts the fragments of its own party first. Each fragment is charged to a party, in the room
//! of its kind:
//!
//! ```text
//!                  first fragment passed (datagrams)   first fragment awaited (packets)
//!   from a home    Up: the home                        EarlyUp: the home
//!   to a home      Down: the home addressed            EarlyDown: the remote, since the home
//!                                                      is not known yet
//!                  Away: the remote; another worker
//!                  knows the home
//! ```
//!
//! A party takes at most its share of a room; beyond it, its own oldest datagram is forgotten. In a
//! full room the oldest datagram of the party with the most entries is forgotten. So a first
//! fragment is never refused, and packets of forged remotes displace only entries that are charged
//! to remotes.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};

use weir_flow::HashKey;
use weir_nat::{
    Delivery, Delivery6, Dependency, FlowClass, GROUPS, Home, ShardIndex, TableUse, Translated,
};

use crate::config::FragmentLimits;
use crate::fragment_room::{EntryLinks, EntryList, NONE, Room};
use crate::party::{LimitedParty, Party, words_of};

/// Identifies the datagram that a fragment belongs to, and its home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DatagramKey {
    /// The home that sent it, as [`weir_nat::Nat::identity`] distinguishes it: homes may use the
    /// same addresses, and with keys that identify them the same outer source. `None` for datagrams
    /// from the internet.
    pub(crate) home: Option<Home>,
    pub(crate) ends: DatagramEnds,
}

/// What its sender wrote into all fragments of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DatagramEnds {
    /// RFC 791.
    Ipv4 { source: u32, destination: u32, identification: u16, protocol: u8 },
    /// RFC 8200 section 4.5.
    Ipv6 { source: u128, destination: u128, identification: u32 },
}

/// Writes three words of a datagram of IPv4, and six of one of IPv6, that differ between any two
/// keys.
impl Hash for DatagramKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let (first, second) = self.home.as_ref().map_or((0, 0), words_of);
        match self.ends {
            DatagramEnds::Ipv4 { source, destination, identification, protocol } => {
                state.write_u64(first | u64::from(protocol) << 56);
                state.write_u64(second | u64::from(identification) << 48);
                state.write_u64(u64::from(source) << 32 | u64::from(destination));
            }
            DatagramEnds::Ipv6 { source, destination, identification } => {
                state.write_u64(first);
                state.write_u64(second ^ u64::from(identification) << 34);
                for address in [source, destination] {
                    state.write_u64((address >> 64) as u64);
                    state.write_u64(address as u64);
                }
            }
        }
    }
}

impl DatagramKey {
    /// Returns the party that is charged for the fragments while the destination home is unknown.
    /// `group` is that of the home that sent the datagram.
    pub(crate) fn sender(&self, group: u8) -> LimitedParty {
        match self.home {
            Some(home) => LimitedParty { party: Party::Home(home), group },
            None => LimitedParty { party: self.remote(), group: 0 },
        }
    }

    /// Returns the party that is the source of a datagram from the internet.
    fn remote(&self) -> Party {
        match self.ends {
            DatagramEnds::Ipv4 { source, .. } => Party::Remote(source),
            DatagramEnds::Ipv6 { source, .. } => Party::remote6(source),
        }
    }

    /// Returns the bits that choose the gateway: all fragments of a datagram use the same.
    pub(crate) fn flow(&self) -> u32 {
        match self.ends {
            DatagramEnds::Ipv4 { identification, .. } => identification.into(),
            DatagramEnds::Ipv6 { identification, .. } => identification,
        }
    }
}

/// Result of the first fragment's look-up.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Translation {
    /// Toward the internet, with a new identification.
    Up(FragmentsUp),
    /// Toward a home.
    Down(Translated<Delivery>),
    /// To another worker, which knows more about the shard.
    Away,
    /// IPv6, toward the internet: the class of the flow, and where the first fragment ends in the
    /// datagram.
    Up6 { class: FlowClass, end: u16 },
    /// IPv6, toward a home.
    Down6 { delivery: Delivery6, end: u16 },
}

/// What becomes of the fragments of a home's datagram.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FragmentsUp {
    /// The public source address.
    pub(crate) public: u32,
    /// Where they go, if that is not their own destination.
    pub(crate) destination: Option<u32>,
    pub(crate) identification: u16,
    pub(crate) class: FlowClass,
}

/// Kind of a room; each room has its own parties.
#[derive(Clone, Copy, Debug)]
enum RoomKind {
    Up,
    Down,
    Away,
    EarlyUp,
    EarlyDown,
}

const KINDS: usize = 5;

#[derive(Clone, Copy, Debug)]
enum DatagramState {
    /// Its first fragment has passed.
    Known { translation: Translation, dependency: Dependency },
    /// Its first fragment is awaited by these held fragments.
    Early(EarlyFragments),
}

/// Held fragments of one datagram, in order of arrival. The caller empties the list with
/// [`FragmentCache::release`].
#[derive(Clone, Copy, Debug)]
#[must_use]
pub(crate) struct EarlyFragments {
    first: u32,
    last: u32,
    count: u32,
}

impl EarlyFragments {
    const NONE: Self = Self { first: NONE, last: NONE, count: 0 };
}

#[derive(Clone, Copy, Debug)]
struct Datagram {
    key: DatagramKey,
    since_ms: u64,
    kind: RoomKind,
    /// The party's index in the room.
    member: u32,
    state: DatagramState,
}

#[derive(Debug)]
struct HeldFragment<F> {
    frame: Option<F>,
    next: u32,
}

/// The remembered datagrams and the held fragments of one worker.
#[derive(Debug)]
pub(crate) struct FragmentCache<F> {
    timeout_ms: u64,
    held_per_datagram_max: u32,
    index: HashMap<DatagramKey, u32, HashKey>,
    datagrams: Box<[Option<Datagram>]>,
    free: Vec<u32>,
    /// All datagrams in order of arrival, which with one time-out is the order of expiry.
    by_age: EntryList,
    age_links: Box<[EntryLinks]>,
    /// The datagrams of each party, in order of arrival.
    party_links: Box<[EntryLinks]>,
    rooms: [Room; KINDS],
    slots: Box<[HeldFragment<F>]>,
    free_slot: u32,
}

/// Returns the share of one party in a room with so many slots.
fn share(slots: usize, percent: u8) -> usize {
    slots * usize::from(percent).clamp(1, 100) / 100
}

impl<F> FragmentCache<F> {
    pub(crate) fn new(limits: FragmentLimits, seed: [u64; 2]) -> Self {
        let key = HashKey::new(seed);
        let FragmentLimits { datagrams_max, held_max, held_per_datagram_max, .. } = limits;
        let room = |slots: usize| Room::new(slots, key.clone());
        let (up, early) = (datagrams_max / 2, held_max / 2);
        let away = (datagrams_max - up) / 4;
        let count = datagrams_max + 2 * early;
        let mut cache = Self {
            timeout_ms: limits.timeout_ms,
            held_per_datagram_max: held_per_datagram_max as u32,
            // Twice the limit: a map that is at most half full re-hashes in place and never
            // allocates.
            index: HashMap::with_capacity_and_hasher(count * 2, key.clone()),
            datagrams: vec![None; count].into(),
            free: (0..count as u32).rev().collect(),
            by_age: EntryList::EMPTY,
            age_links: vec![EntryLinks::NONE; count].into(),
            party_links: vec![EntryLinks::NONE; count].into(),
            rooms: [
                room(up),
                room(datagrams_max - up - away),
                room(away),
                room(early),
                room(early),
            ],
            slots: (1..=2 * early as u32)
                .map(|next| HeldFragment {
                    frame: None,
                    next: if next == 2 * early as u32 { NONE } else { next },
                })
                .collect(),
            free_slot: if early == 0 { NONE } else { 0 },
        };
        cache.set_limits(limits.timeout_ms, &[limits.percent; GROUPS as usize]);
        cache
    }

    /// Sets the time-out and the share of a party of each group from now on, also of datagrams that
    /// are known.
    pub(crate) fn set_limits(&mut self, timeout_ms: u64, percents: &[u8; GROUPS as usize]) {
        self.timeout_ms = timeout_ms;
        let early_least = self.held_per_datagram_max as usize;
        for (kind, room) in self.rooms.iter_mut().enumerate() {
            // A smaller share would leave no room for even one datagram with as many waiting
            // fragments as allowed.
            let is_early = kind >= RoomKind::EarlyUp as usize;
            let least = if is_early { early_least } else { 1 };
            let slots = room.usage().1 as usize;
            room.set_shares(&percents.map(|percent| share(slots, percent).max(least)));
        }
    }

    /// Returns the translation of a datagram whose first fragment has passed.
    pub(crate) fn translation(&self, key: &DatagramKey) -> Option<Translation> {
        self.learned(key).map(|(translation, _)| translation)
    }

    /// Returns the translation, and the dependency that the first fragment had to wait for.
    pub(crate) fn learned(&self, key: &DatagramKey) -> Option<(Translation, Dependency)> {
        match self.datagrams[*self.index.get(key)? as usize]?.state {
            DatagramState::Known { translation, dependency } => Some((translation, dependency)),
            DatagramState::Early(_) => None,
        }
    }

    /// Remembers the result of the first fragment's look-up and its dependency; `party` is the home
    /// that the datagram comes from or goes to, or else the remote. Returns the fragments that
    /// waited for the first one.
    pub(crate) fn learn(
        &mut self,
        key: DatagramKey,
        party: LimitedParty,
        translation: Translation,
        dependency: Dependency,
        now_ms: u64,
    ) -> EarlyFragments {
        let early = self.take_waiting(&key);
        let kind = match (translation, key.home) {
            (Translation::Up { .. } | Translation::Up6 { .. }, _)
            | (Translation::Away, Some(_)) => RoomKind::Up,
            (Translation::Down(_) | Translation::Down6 { .. }, _) => RoomKind::Down,
            (Translation::Away, None) => RoomKind::Away,
        };
        if self.rooms[kind as usize].is_none() {
            return early;
        }
        // These datagrams hold no fragments: only datagrams whose first fragment has passed are
        // charged to this room.
        while let Some(oldest) = self.rooms[kind as usize].to_go(&party) {
            self.drop_held(oldest);
        }
        self.insert(
            key,
            kind,
            party.party,
            DatagramState::Known { translation, dependency },
            now_ms,
        );
        early
    }

    /// Forgets the translations of a shard's datagrams, so that no later fragment follows them.
    pub(crate) fn forget(&mut self, shard: ShardIndex) {
        for entry in 0..self.datagrams.len() {
            let Some(Datagram { key, state, .. }) = &self.datagrams[entry] else { continue };
            let DatagramState::Known { translation, .. } = state else { continue };
            let is_from = key.home.is_some_and(|home| home.shard == shard);
            let to = match translation {
                Translation::Down(down) => Some(down.to.home.shard),
                Translation::Down6 { delivery, .. } => Some(delivery.home.shard),
                _ => None,
            };
            let is_to = to == Some(shard);
            if is_from || is_to {
                self.drop_held(entry as u32);
            }
        }
    }

    /// Holds a fragment until its first fragment comes; `group` is that of the home that sent it.
    /// Returns the number of held fragments
    /// that were dropped for it. Returns the fragment itself if only fragments of its own datagram
    /// could make room.
    pub(crate) fn hold(
        &mut self,
        key: DatagramKey,
        group: u8,
        frame: F,
        now_ms: u64,
    ) -> Result<u64, F> {
        let party = key.sender(group);
        let kind = if key.home.is_some() { RoomKind::EarlyUp } else { RoomKind::EarlyDown };
        let known = self.index.get(&key).copied();
        let waiting = match known.and_then(|known| self.datagrams[known as usize]) {
            Some(Datagram { state: DatagramState::Early(early), .. }) => early.count,
            Some(_) => return Err(frame),
            None => 0,
        };
        if self.rooms[kind as usize].is_none() || waiting >= self.held_per_datagram_max {
            return Err(frame);
        }
        let mut fallen = 0;
        while let Some(oldest) = self.rooms[kind as usize].to_go(&party) {
            if known == Some(oldest) {
                return Err(frame);
            }
            fallen += self.drop_held(oldest);
        }
        let slot = self.free_slot;
        let Some(free) = self.slots.get_mut(slot as usize) else { return Err(frame) };
        self.free_slot = std::mem::replace(&mut free.next, NONE);
        free.frame = Some(frame);
        let Some(known) = known else {
            let early = EarlyFragments { first: slot, last: slot, count: 1 };
            self.insert(key, kind, party.party, DatagramState::Early(early), now_ms);
            return Ok(fallen);
        };
        if let Some(Datagram { state: DatagramState::Early(early), member, .. }) =
            &mut self.datagrams[known as usize]
        {
            self.slots[early.last as usize].next = slot;
            early.last = slot;
            early.count += 1;
            self.rooms[kind as usize].grow(*member);
        }
        Ok(fallen)
    }

    /// Returns the held fragments of a datagram, in order of arrival.
    pub(crate) fn waiting(&self, key: &DatagramKey) -> impl Iterator<Item = &F> {
        let known = self.index.get(key).and_then(|&known| self.datagrams[known as usize].as_ref());
        let mut next = match known {
            Some(Datagram { state: DatagramState::Early(early), .. }) => early.first,
            _ => NONE,
        };
        std::iter::from_fn(move || {
            let slot = self.slots.get(next as usize)?;
            next = slot.next;
            slot.frame.as_ref()
        })
    }

    /// Forgets a datagram, and returns its held fragments.
    pub(crate) fn take_waiting(&mut self, key: &DatagramKey) -> EarlyFragments {
        self.index.get(key).copied().map_or(EarlyFragments::NONE, |known| self.remove(known))
    }

    /// Returns the next of the fragments that waited, in order of arrival.
    pub(crate) fn release(&mut self, early: &mut EarlyFragments) -> Option<F> {
        let slot = self.slots.get_mut(early.first as usize)?;
        let next = std::mem::replace(&mut slot.next, self.free_slot);
        self.free_slot = std::mem::replace(&mut early.first, next);
        early.count -= 1;
        slot.frame.take()
    }

    /// Forgets expired datagrams, at most `budget` of them; returns the number of held fragments
    /// that were dropped.
    pub(crate) fn expire(&mut self, now_ms: u64, budget: usize) -> u64 {
        let mut fallen = 0;
        for _ in 0..budget {
            let oldest = self.by_age.first;
            match self.datagrams.get(oldest as usize) {
                Some(Some(datagram)) if datagram.since_ms + self.timeout_ms <= now_ms => {
                    fallen += self.drop_held(oldest);
                }
                _ => break,
            }
        }
        fallen
    }

    /// Returns the usage of each room.
    pub(crate) fn uses(&self) -> [TableUse; KINDS] {
        let names = [
            "datagrams-from-homes",
            "datagrams-to-homes",
            "datagrams-redirected",
            "fragments-from-homes",
            "fragments-from-internet",
        ];
        std::array::from_fn(|kind| {
            let (used, slots) = self.rooms[kind].usage();
            TableUse::new(names[kind], u64::from(used), u64::from(slots))
        })
    }

    /// Returns the usage of the room for fragments of homes, under this name.
    pub(crate) fn held(&self, name: &'static str) -> TableUse {
        let (used, slots) = self.rooms[RoomKind::EarlyUp as usize].usage();
        TableUse::new(name, u64::from(used), u64::from(slots))
    }

    /// Returns the number of fragments that wait for the first one of their datagram.
    pub(crate) fn early_fragments(&self) -> u64 {
        let early = [RoomKind::EarlyUp, RoomKind::EarlyDown];
        early.into_iter().map(|kind| u64::from(self.rooms[kind as usize].usage().0)).sum()
    }

    /// Forgets a datagram and all fragments that wait for its first; returns the number of these
    /// fragments.
    fn drop_held(&mut self, entry: u32) -> u64 {
        let mut early = self.remove(entry);
        std::iter::from_fn(|| self.release(&mut early)).count() as u64
    }

    fn insert(
        &mut self,
        key: DatagramKey,
        kind: RoomKind,
        party: Party,
        state: DatagramState,
        now_ms: u64,
    ) {
        let entry = self.free.pop().expect("there are as many entries as slots in all rooms");
        let member = self.rooms[kind as usize].enter(party, entry, &mut self.party_links);
        self.datagrams[entry as usize] =
            Some(Datagram { key, since_ms: now_ms, kind, member, state });
        self.by_age.push(&mut self.age_links, entry);
        self.index.insert(key, entry);
    }

    fn remove(&mut self, entry: u32) -> EarlyFragments {
        let Some(datagram) = self.datagrams[entry as usize].take() else {
            return EarlyFragments::NONE;
        };
        let (early, slots) = match datagram.state {
            DatagramState::Known { .. } => (EarlyFragments::NONE, 1),
            DatagramState::Early(early) => (early, early.count),
        };
        let room = &mut self.rooms[datagram.kind as usize];
        room.leave(datagram.member, entry, slots, &mut self.party_links);
        self.by_age.remove(&mut self.age_links, entry);
        self.index.remove(&datagram.key);
        self.free.push(entry);
        early
    }
}

#[cfg(test)]
#[path = "fragment_cache_tests.rs"]
mod tests;

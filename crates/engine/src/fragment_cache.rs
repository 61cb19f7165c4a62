//! Inner fragments follow their first fragment (RFC 4787 REQ-14, RFC 6146 section 3.4).
//!
//! A datagram is remembered from its first fragment on, so that later ones, which have no ports, get the same
//! translation. Fragments that come before their first are held. Both are bounded in number and in time, and
//! nothing here touches packets that are not fragments: a flood of fragments hurts only fragments. Each direction has
//! half of the room, because fragments from the internet need no mapping to be held: whoever sends them must not stop
//! the homes' own.

use std::collections::{HashMap, VecDeque};

use weir_nat::{Delivery, Dependency, Home, ShardIndex, TableUse};

use crate::config::FragmentLimits;

/// Which datagram a fragment belongs to (RFC 791), and from which home.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct DatagramKey {
    /// The home that sent it, as [`weir_nat::Nat::identity`] tells it apart: homes may use the same addresses, and
    /// with keys that identify them the same outer source. `None` for datagrams from the internet.
    pub(crate) home: Option<Home>,
    pub(crate) source: u32,
    pub(crate) destination: u32,
    pub(crate) identification: u16,
    pub(crate) protocol: u8,
}

/// What the first fragment's look-up decided.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Translation {
    /// Toward the internet: the public source address and the new identification.
    Up { public: u32, identification: u16 },
    /// Toward a home.
    Down(Delivery),
    /// To another worker, which knows more of its shard.
    Away,
}

const NONE: u16 = u16::MAX;

#[derive(Debug)]
struct Datagram {
    translation: Option<Translation>,
    /// What the first fragment had to wait for.
    dependency: Dependency,
    held_first: u16,
    held_last: u16,
    held: u16,
}

#[derive(Debug)]
struct Slot<F> {
    frame: Option<F>,
    next: u16,
}

/// What the datagrams of one direction take up.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    datagrams: usize,
    held: usize,
}

/// The remembered datagrams and the held fragments of one worker.
#[derive(Debug)]
pub(crate) struct FragmentCache<F> {
    limits: FragmentLimits,
    datagrams: HashMap<DatagramKey, Datagram>,
    /// In order of arrival, which with one time-out is the order of expiry.
    expiry: VecDeque<(u64, DatagramKey)>,
    slots: Box<[Slot<F>]>,
    free: u16,
    /// From the internet, from homes.
    shares: [Share; 2],
}

impl<F> FragmentCache<F> {
    pub(crate) fn new(limits: FragmentLimits) -> Self {
        let held_max = limits.held_max.min(usize::from(NONE) - 1);
        let slots = (1..=held_max)
            .map(|next| Slot {
                frame: None,
                next: if next == held_max { NONE } else { next as u16 },
            })
            .collect();
        Self {
            limits,
            // Twice the limit: a map that is at most half full re-hashes in place and never allocates.
            datagrams: HashMap::with_capacity(limits.datagrams_max * 2),
            expiry: VecDeque::with_capacity(limits.datagrams_max),
            slots,
            free: if held_max == 0 { NONE } else { 0 },
            shares: [Share::default(); 2],
        }
    }

    /// The translation of a datagram whose first fragment has passed.
    pub(crate) fn translation(&self, key: &DatagramKey) -> Option<Translation> {
        self.datagrams.get(key)?.translation
    }

    /// The same, and what the first fragment had to wait for.
    pub(crate) fn learned(&self, key: &DatagramKey) -> Option<(Translation, Dependency)> {
        let datagram = self.datagrams.get(key)?;
        datagram.translation.map(|translation| (translation, datagram.dependency))
    }

    /// Remembers what the first fragment's look-up decided, and what it rests on. False: too many datagrams at once.
    pub(crate) fn learn(
        &mut self,
        key: DatagramKey,
        translation: Translation,
        dependency: Dependency,
        now_ms: u64,
    ) -> bool {
        match self.entry(key, now_ms) {
            Some(datagram) => {
                datagram.dependency = dependency;
                datagram.translation = Some(translation);
                true
            }
            None => false,
        }
    }

    /// No later fragment goes where the first fragments of this shard went: what they decided is forgotten.
    pub(crate) fn forget(&mut self, shard: ShardIndex) {
        for (key, datagram) in &mut self.datagrams {
            let is_from = key.home.is_some_and(|home| home.shard == shard);
            let is_to = matches!(datagram.translation, Some(Translation::Down(delivery)) if delivery.home.shard == shard);
            if is_from || is_to {
                datagram.translation = None;
            }
        }
    }

    /// Holds a fragment until its first comes; gives it back when there is no room.
    pub(crate) fn hold(&mut self, key: DatagramKey, frame: F, now_ms: u64) -> Result<(), F> {
        let free = self.free;
        let held_max = self.limits.held_per_datagram_max;
        let is_share_full = self.shares[direction(&key)].held >= self.limits.held_max / 2;
        if free == NONE || is_share_full {
            return Err(frame);
        }
        let Some(datagram) = self.entry(key, now_ms) else { return Err(frame) };
        if usize::from(datagram.held) >= held_max {
            return Err(frame);
        }
        datagram.held += 1;
        let last = std::mem::replace(&mut datagram.held_last, free);
        if last == NONE {
            datagram.held_first = free;
        }
        if last != NONE {
            self.slots[usize::from(last)].next = free;
        }
        let slot = &mut self.slots[usize::from(free)];
        self.free = std::mem::replace(&mut slot.next, NONE);
        slot.frame = Some(frame);
        self.shares[direction(&key)].held += 1;
        Ok(())
    }

    /// The next held fragment of a datagram, in order of arrival.
    pub(crate) fn release(&mut self, key: &DatagramKey) -> Option<F> {
        let datagram = self.datagrams.get_mut(key)?;
        let index = datagram.held_first;
        let slot = self.slots.get_mut(usize::from(index))?;
        datagram.held_first = std::mem::replace(&mut slot.next, self.free);
        datagram.held -= 1;
        self.shares[direction(key)].held -= 1;
        if datagram.held_first == NONE {
            datagram.held_last = NONE;
        }
        self.free = index;
        slot.frame.take()
    }

    /// Forgets datagrams whose time is over, at most `budget` of them; returns how many held fragments fell.
    pub(crate) fn expire(&mut self, now_ms: u64, budget: usize) -> u64 {
        let mut fallen = 0;
        for _ in 0..budget {
            match self.expiry.front() {
                Some(&(deadline_ms, key)) if deadline_ms <= now_ms => {
                    self.expiry.pop_front();
                    while self.release(&key).is_some() {
                        fallen += 1;
                    }
                    self.datagrams.remove(&key);
                    self.shares[direction(&key)].datagrams -= 1;
                }
                _ => break,
            }
        }
        fallen
    }

    /// How much of its room each direction takes: datagrams from the internet and from homes, then held fragments.
    pub(crate) fn uses(&self) -> [TableUse; 4] {
        let [down, up] = self.shares;
        let (datagrams_max, held_max) = (self.limits.datagrams_max / 2, self.limits.held_max / 2);
        let of = |table, used: usize, max: usize| TableUse::new(table, used as u64, max as u64);
        [
            of("datagrams-from-internet", down.datagrams, datagrams_max),
            of("datagrams-from-homes", up.datagrams, datagrams_max),
            of("fragments-from-internet", down.held, held_max),
            of("fragments-from-homes", up.held, held_max),
        ]
    }

    fn entry(&mut self, key: DatagramKey, now_ms: u64) -> Option<&mut Datagram> {
        if !self.datagrams.contains_key(&key) {
            let share = &mut self.shares[direction(&key)];
            if share.datagrams >= self.limits.datagrams_max / 2 {
                return None;
            }
            share.datagrams += 1;
            self.expiry.push_back((now_ms + self.limits.timeout_ms, key));
        }
        Some(self.datagrams.entry(key).or_insert(Datagram {
            translation: None,
            dependency: Dependency::Nothing,
            held_first: NONE,
            held_last: NONE,
            held: 0,
        }))
    }
}

fn direction(key: &DatagramKey) -> usize {
    usize::from(key.home.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(identification: u16) -> DatagramKey {
        DatagramKey { home: None, source: 1, destination: 2, identification, protocol: 17 }
    }

    fn up() -> Translation {
        Translation::Up { public: 9, identification: 9 }
    }

    fn cache() -> FragmentCache<u32> {
        FragmentCache::new(FragmentLimits {
            datagrams_max: 8,
            held_max: 6,
            held_per_datagram_max: 2,
            timeout_ms: 2000,
        })
    }

    #[test]
    fn held_fragments_come_back_in_order_of_arrival() {
        let mut cache = cache();
        cache.hold(key(1), 10, 0).unwrap();
        cache.hold(key(2), 20, 0).unwrap();
        cache.hold(key(1), 11, 0).unwrap();
        assert!(cache.translation(&key(1)).is_none());
        assert!(cache.learn(key(1), up(), Dependency::Nothing, 1));
        assert!(cache.translation(&key(1)).is_some());
        assert_eq!(cache.release(&key(1)), Some(10));
        assert_eq!(cache.release(&key(1)), Some(11));
        assert_eq!(cache.release(&key(1)), None);
        assert_eq!(cache.release(&key(2)), Some(20));
    }

    #[test]
    fn limits_hold_in_number_and_in_time() {
        let mut cache = cache();
        cache.hold(key(1), 10, 0).unwrap();
        cache.hold(key(1), 11, 0).unwrap();
        assert_eq!(cache.hold(key(1), 12, 0), Err(12), "per datagram");
        cache.hold(key(2), 20, 500).unwrap();
        assert_eq!(cache.hold(key(3), 30, 500), Err(30), "in all");
        assert!(
            cache.learn(key(3), up(), Dependency::Nothing, 500)
                && cache.learn(key(4), up(), Dependency::Nothing, 500)
        );
        assert!(!cache.learn(key(5), up(), Dependency::Nothing, 500), "datagrams");
        assert_eq!(cache.expire(1999, 10), 0);
        assert_eq!(cache.expire(2000, 10), 2);
        assert!(cache.learn(key(5), up(), Dependency::Nothing, 2000));
        assert_eq!(cache.expire(9000, 10), 1);
        assert!(cache.datagrams.is_empty());
        for frame in 0..3 {
            cache.hold(key(6 + frame as u16), frame, 9000).unwrap();
        }
    }

    #[test]
    fn a_flood_from_the_internet_leaves_the_homes_their_half() {
        let mut cache = cache();
        let taken = (0..20).filter(|&n| cache.hold(key(n), 1, 0).is_ok()).count();
        assert_eq!(taken, 3);
        let uses = cache.uses().map(|table| (table.used, table.max));
        assert_eq!(uses, [(3, 4), (0, 4), (3, 3), (0, 3)]);
        let home = Home { shard: ShardIndex(0), outer: 7, gre_key: None };
        for n in 0..3 {
            cache.hold(DatagramKey { home: Some(home), ..key(n) }, 2, 0).unwrap();
        }
        assert_eq!(cache.expire(2000, 10), 6);
        cache.hold(key(1), 3, 2000).unwrap();
    }
}

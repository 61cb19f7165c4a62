//! A room that parties share: when it is full, the party that uses most of it loses an entry first.
//!
//! Parties are kept in lists by the number of slots that they use, so that the largest user is
//! known at once: this number changes by a few slots at a time, and so does the number of the
//! highest list. Nothing is allocated after [`Room::new`].

use std::collections::HashMap;

use weir_flow::HashKey;
use weir_nat::GROUPS;

use crate::party::{LimitedParty, Party};

/// Index of no entry.
pub(crate) const NONE: u32 = u32::MAX;

/// The neighbours of an entry in a list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryLinks {
    previous: u32,
    pub(crate) next: u32,
}

impl EntryLinks {
    pub(crate) const NONE: Self = Self { previous: NONE, next: NONE };
}

/// A list of numbered entries; their links are in a separate array.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryList {
    pub(crate) first: u32,
    last: u32,
}

impl EntryList {
    pub(crate) const EMPTY: Self = Self { first: NONE, last: NONE };

    pub(crate) fn push(&mut self, links: &mut [EntryLinks], entry: u32) {
        let last = std::mem::replace(&mut self.last, entry);
        links[entry as usize] = EntryLinks { previous: last, next: NONE };
        match last {
            NONE => self.first = entry,
            _ => links[last as usize].next = entry,
        }
    }

    pub(crate) fn remove(&mut self, links: &mut [EntryLinks], entry: u32) {
        let EntryLinks { previous, next } = links[entry as usize];
        match previous {
            NONE => self.first = next,
            _ => links[previous as usize].next = next,
        }
        match next {
            NONE => self.last = previous,
            _ => links[next as usize].previous = previous,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct RoomParty {
    party: Party,
    used: u32,
    /// The party's datagrams in the room, oldest first.
    datagrams: EntryList,
}

/// A number of slots, and how many of them each party uses.
#[derive(Debug)]
pub(crate) struct Room {
    slots: u32,
    /// Largest number of slots for one party, by its group.
    shares: [u32; GROUPS as usize],
    used: u32,
    index: HashMap<Party, u32, HashKey>,
    members: Box<[RoomParty]>,
    /// Indices of unused members.
    free: Vec<u32>,
    links: Box<[EntryLinks]>,
    /// Members by the number of slots that they use; the members of a list are in the order in
    /// which they reached this number.
    by_use: Box<[EntryList]>,
    /// The highest number with a list that is not empty, or 0.
    most: u32,
}

impl Room {
    /// Makes a room with `slots` slots, all of which one party may use.
    pub(crate) fn new(slots: usize, key: HashKey) -> Self {
        let nobody = RoomParty { party: Party::Remote(0), used: 0, datagrams: EntryList::EMPTY };
        Self {
            slots: slots as u32,
            shares: [slots.max(1) as u32; GROUPS as usize],
            used: 0,
            // Twice the number: a map that is at most half full re-hashes in place and never
            // allocates.
            index: HashMap::with_capacity_and_hasher(slots * 2, key),
            members: vec![nobody; slots].into(),
            free: (0..slots as u32).rev().collect(),
            links: vec![EntryLinks::NONE; slots].into(),
            by_use: vec![EntryList::EMPTY; slots + 1].into(),
            most: 0,
        }
    }

    /// Sets how many slots one party of each group may use from now on: between 1 and all. A party
    /// that uses more loses its oldest datagrams when it asks for another slot.
    pub(crate) fn set_shares(&mut self, shares: &[usize; GROUPS as usize]) {
        self.shares = shares.map(|share| share.clamp(1, (self.slots as usize).max(1)) as u32);
    }

    /// True if the room has no slots at all.
    pub(crate) fn is_none(&self) -> bool {
        self.slots == 0
    }

    /// Returns the number of used slots and of all slots.
    pub(crate) fn usage(&self) -> (u32, u32) {
        (self.used, self.slots)
    }

    /// Returns the datagram to remove before a party can use one more slot; `None`: there is a slot
    /// for it.
    pub(crate) fn to_go(&self, asking: &LimitedParty) -> Option<u32> {
        let member = self.index.get(&asking.party).copied();
        let used = member.map_or(0, |member| self.members[member as usize].used);
        let share = self.shares[usize::from(asking.group % GROUPS)];
        if used < share && self.used < self.slots {
            return None;
        }
        // With one more slot the party would use the most, if it does not already.
        let greediest = match member {
            Some(member) if used >= share || used >= self.most => member,
            _ => self.by_use[self.most as usize].first,
        };
        self.members.get(greediest as usize).map(|member| member.datagrams.first)
    }

    /// Adds a datagram that is not in the room; [`to_go`](Self::to_go) has reported that there is a
    /// slot. Returns its party's member index.
    pub(crate) fn enter(&mut self, party: Party, datagram: u32, links: &mut [EntryLinks]) -> u32 {
        let member = match self.index.get(&party) {
            Some(&member) => member,
            None => {
                let member = self.free.pop().expect("every member uses a slot, and a slot is free");
                self.members[member as usize] =
                    RoomParty { party, used: 0, datagrams: EntryList::EMPTY };
                self.index.insert(party, member);
                member
            }
        };
        self.members[member as usize].datagrams.push(links, datagram);
        self.grow(member);
        member
    }

    /// Uses one more slot for a member's datagram.
    pub(crate) fn grow(&mut self, member: u32) {
        let used = self.members[member as usize].used;
        self.used += 1;
        self.list(member, used + 1);
    }

    /// Removes a datagram from the room and frees the slots that it used.
    pub(crate) fn leave(
        &mut self,
        member: u32,
        datagram: u32,
        slots: u32,
        links: &mut [EntryLinks],
    ) {
        let RoomParty { party, used, ref mut datagrams } = self.members[member as usize];
        datagrams.remove(links, datagram);
        self.used -= slots;
        self.list(member, used - slots);
        if used == slots {
            self.index.remove(&party);
            self.free.push(member);
        }
    }

    /// Moves a member to the list of the number of slots that it uses.
    fn list(&mut self, member: u32, used: u32) {
        let before = std::mem::replace(&mut self.members[member as usize].used, used);
        if before > 0 {
            self.by_use[before as usize].remove(&mut self.links, member);
        }
        if used > 0 {
            self.by_use[used as usize].push(&mut self.links, member);
        }
        self.most = self.most.max(used);
        while self.most > 0 && self.by_use[self.most as usize].first == NONE {
            self.most -= 1;
        }
    }

    /// Asserts that every sum is consistent.
    #[cfg(test)]
    pub(crate) fn audit(&self) {
        assert!(self.used <= self.slots);
        let live: Vec<_> =
            self.index.values().map(|&member| self.members[member as usize]).collect();
        assert_eq!(live.iter().map(|member| member.used).sum::<u32>(), self.used);
        let share = self.shares.iter().max().expect("there are groups");
        assert!(live.iter().all(|member| (1..=*share).contains(&member.used)));
        assert_eq!(live.iter().map(|member| member.used).max().unwrap_or(0), self.most);
        assert_eq!(self.free.len() + live.len(), self.members.len());
    }

    #[cfg(test)]
    pub(crate) fn used(&self) -> u32 {
        self.used
    }
}

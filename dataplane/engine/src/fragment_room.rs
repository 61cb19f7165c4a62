//! A room that parties share: when it is full, the party that takes most of it gives way first.
//!
//! Parties stand in lists by what they take, so that the greediest is known at once: what a party takes changes by a
//! few places, and so does the highest list. Nothing is allocated after [`Room::new`].

use std::collections::HashMap;

use weir_flow::HashKey;

use crate::party::Party;

/// An index that names nothing.
pub(crate) const NONE: u32 = u32::MAX;

/// The neighbours of an entry in a list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    previous: u32,
    pub(crate) next: u32,
}

impl Link {
    pub(crate) const NONE: Self = Self { previous: NONE, next: NONE };
}

/// A list of entries that are numbered; their links lie in an array beside them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    pub(crate) first: u32,
    last: u32,
}

impl List {
    pub(crate) const EMPTY: Self = Self { first: NONE, last: NONE };

    pub(crate) fn push(&mut self, links: &mut [Link], entry: u32) {
        let last = std::mem::replace(&mut self.last, entry);
        links[entry as usize] = Link { previous: last, next: NONE };
        match last {
            NONE => self.first = entry,
            _ => links[last as usize].next = entry,
        }
    }

    pub(crate) fn remove(&mut self, links: &mut [Link], entry: u32) {
        let Link { previous, next } = links[entry as usize];
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
struct Member {
    party: Party,
    used: u32,
    /// What it has in the room, oldest first.
    datagrams: List,
}

/// A number of places, and who takes how many of them.
#[derive(Debug)]
pub(crate) struct Room {
    places: u32,
    /// Places that one party may take.
    share: u32,
    used: u32,
    index: HashMap<Party, u32, HashKey>,
    members: Box<[Member]>,
    /// Members that are free.
    free: Vec<u32>,
    links: Box<[Link]>,
    /// Members by the number of places that they take; in each list the one that came to this number first is first.
    by_use: Box<[List]>,
    /// The highest of these lists that is not empty, or 0.
    most: u32,
}

impl Room {
    /// `share`: between 1 and `places`, if there are places.
    pub(crate) fn new(places: usize, share: usize, key: HashKey) -> Self {
        let nobody = Member { party: Party::Remote(0), used: 0, datagrams: List::EMPTY };
        Self {
            places: places as u32,
            share: share.clamp(1, places.max(1)) as u32,
            used: 0,
            // Twice the number: a map that is at most half full re-hashes in place and never allocates.
            index: HashMap::with_capacity_and_hasher(places * 2, key),
            members: vec![nobody; places].into(),
            free: (0..places as u32).rev().collect(),
            links: vec![Link::NONE; places].into(),
            by_use: vec![List::EMPTY; share.clamp(1, places.max(1)) + 1].into(),
            most: 0,
        }
    }

    /// Are there no places at all?
    pub(crate) fn is_none(&self) -> bool {
        self.places == 0
    }

    /// Places taken, and all.
    pub(crate) fn usage(&self) -> (u32, u32) {
        (self.used, self.places)
    }

    /// The datagram that must go before `party` can take one more place; `None`: there is one for it.
    pub(crate) fn to_go(&self, party: &Party) -> Option<u32> {
        let member = self.index.get(party).copied();
        let used = member.map_or(0, |member| self.members[member as usize].used);
        if used < self.share && self.used < self.places {
            return None;
        }
        // One more would make it the greediest of all, if it is not already.
        let greediest = match member {
            Some(member) if used >= self.share || used >= self.most => member,
            _ => self.by_use[self.most as usize].first,
        };
        self.members.get(greediest as usize).map(|member| member.datagrams.first)
    }

    /// A place for a datagram that is not in the room; [`to_go`](Self::to_go) has said that there is one.
    pub(crate) fn enter(&mut self, party: Party, datagram: u32, links: &mut [Link]) -> u32 {
        let member = match self.index.get(&party) {
            Some(&member) => member,
            None => {
                let member = self.free.pop().expect("a member takes a place, and one is free");
                self.members[member as usize] = Member { party, used: 0, datagrams: List::EMPTY };
                self.index.insert(party, member);
                member
            }
        };
        self.members[member as usize].datagrams.push(links, datagram);
        self.grow(member);
        member
    }

    /// One place more for a member's datagram.
    pub(crate) fn grow(&mut self, member: u32) {
        let used = self.members[member as usize].used;
        self.used += 1;
        self.list(member, used + 1);
    }

    /// A datagram leaves the room, and with it the places that it took.
    pub(crate) fn leave(&mut self, member: u32, datagram: u32, places: u32, links: &mut [Link]) {
        let Member { party, used, ref mut datagrams } = self.members[member as usize];
        datagrams.remove(links, datagram);
        self.used -= places;
        self.list(member, used - places);
        if used == places {
            self.index.remove(&party);
            self.free.push(member);
        }
    }

    /// Moves a member to the list of what it takes now.
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

    /// Every sum is right.
    #[cfg(test)]
    pub(crate) fn audit(&self) {
        assert!(self.used <= self.places);
        let live: Vec<_> =
            self.index.values().map(|&member| self.members[member as usize]).collect();
        assert_eq!(live.iter().map(|member| member.used).sum::<u32>(), self.used);
        assert!(live.iter().all(|member| (1..=self.share).contains(&member.used)));
        assert_eq!(live.iter().map(|member| member.used).max().unwrap_or(0), self.most);
        assert_eq!(self.free.len() + live.len(), self.members.len());
    }

    #[cfg(test)]
    pub(crate) fn used(&self) -> u32 {
        self.used
    }
}

//! What a role remembers while it is a guest's: see [`crate::map`]'s guests.

use std::collections::BTreeSet;

use crate::identity::{Epoch, Incarnation};
use crate::map::ShardEntry;

/// A worker that an entry names only in a former life.
#[derive(Clone, Debug)]
pub(super) struct Guest {
    /// The newest entry, as the store has it.
    pub(super) entry: ShardEntry,
    /// All members, beside its former life, that may have told it anything.
    tellers: BTreeSet<Incarnation>,
    /// All of them have been members in every entry since.
    are_all_there: bool,
}

impl Guest {
    pub(super) fn new(entry: ShardEntry, me: &Incarnation) -> Self {
        let mut guest = Self { entry, tellers: BTreeSet::new(), are_all_there: true };
        guest.add_tellers(me);
        guest
    }

    /// A newer entry.
    pub(super) fn follow(&mut self, entry: ShardEntry, me: &Incarnation) {
        self.are_all_there = self.are_all_there_in(&entry);
        self.entry = entry;
        self.add_tellers(me);
    }

    fn add_tellers(&mut self, me: &Incarnation) {
        let members = self.entry.members().iter().map(|member| &member.incarnation);
        self.tellers.extend(members.filter(|who| who.worker != me.worker).cloned());
    }

    /// Who is missing in an entry that was not seen may have forgotten everything and be a member again.
    fn are_all_there_in(&self, entry: &ShardEntry) -> bool {
        let is_next = entry.epoch() == Epoch(self.entry.epoch().0 + 1);
        let is_member = |who: &Incarnation| entry.member(who).is_some();
        self.are_all_there && is_next && self.tellers.iter().all(is_member)
    }

    /// Whether the worker may be a member with what it was told: whoever told it has that, and is asked for it with every
    /// other member. What a member has told before it ended may be here alone; and before this worker was a
    /// member, nobody asked it.
    pub(super) fn may_stay(&self, entry: &ShardEntry, me: &Incarnation) -> bool {
        entry.member(me).is_some() && self.are_all_there_in(entry)
    }
}

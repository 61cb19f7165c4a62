//! The state of a role while its worker is a guest: see the guests of [`weir_map`].

use std::collections::BTreeSet;

use weir_ids::{Epoch, Incarnation};

use weir_map::{ShardEntry, Transition};

/// A worker of which an entry names only a former incarnation.
#[derive(Clone, Debug)]
pub(super) struct Guest {
    /// The newest entry, as the store has it.
    pub(super) entry: ShardEntry,
    /// All members, beside its former incarnation, that may have sent it anything.
    tellers: BTreeSet<Incarnation>,
    /// Whether all of them have been members in every entry since.
    are_all_there: bool,
    /// Incarnations that have resumed the member slots of their former ones.
    resumed: Vec<Incarnation>,
    /// Whether this worker resumed when no member had any copy.
    pub(super) began_empty: bool,
    /// The `has_copy` with which the entry was last seen. None: it is to be seen again.
    seen_with: Option<bool>,
}

impl Guest {
    pub(super) fn new(entry: ShardEntry, me: &Incarnation) -> Self {
        let mut guest = Self {
            entry,
            tellers: BTreeSet::new(),
            are_all_there: true,
            resumed: Vec::new(),
            began_empty: false,
            seen_with: None,
        };
        guest.add_tellers(me);
        guest
    }

    /// Follows a newer entry.
    pub(super) fn follow(&mut self, entry: ShardEntry, me: &Incarnation) {
        self.are_all_there = self.are_all_there_in(&entry);
        self.entry = entry;
        self.seen_with = None;
        self.add_tellers(me);
    }

    /// Replaces the list of incarnations that have resumed.
    pub(super) fn resume(&mut self, resumed: Vec<Incarnation>) {
        self.resumed = resumed;
        self.seen_with = None;
    }

    pub(super) fn resumed(&self) -> &[Incarnation] {
        &self.resumed
    }

    pub(super) fn has_resumed(&self, me: &Incarnation) -> bool {
        self.resumed.contains(me)
    }

    /// True if this worker may go on under an entry that does not name it.
    pub(super) fn may_follow(&self, entry: &ShardEntry, me: &Incarnation) -> bool {
        if !self.has_resumed(me) {
            return entry.host_of(me).is_some();
        }
        let host = |entry: &ShardEntry| Some(entry.former_life_of(me)?.incarnation.clone());
        host(entry).is_some() && host(entry) == host(&self.entry)
    }

    /// Returns the entry as the role takes it, if that has changed. `Some(None)`: it has no member
    /// slot for the guest.
    pub(super) fn see(&mut self, me: &Incarnation, has_copy: bool) -> Option<Option<ShardEntry>> {
        if self.seen_with.replace(has_copy) == Some(has_copy) {
            return None;
        }
        let resumed = self.entry.resumed_by(&self.resumed);
        Some(if self.has_resumed(me) { Some(resumed) } else { resumed.seen_by_guest(me, has_copy) })
    }

    /// Returns the change that a worker that has resumed wants in the store.
    pub(super) fn write(&self, me: &Incarnation) -> Option<Transition> {
        let ended = self.entry.former_life_of(me)?.incarnation.clone();
        self.has_resumed(me).then_some(Transition::Resume { ended, boot_id: me.boot_id })
    }

    fn add_tellers(&mut self, me: &Incarnation) {
        let members = self.entry.members().iter().map(|member| &member.incarnation);
        self.tellers.extend(members.filter(|who| who.worker != me.worker).cloned());
    }

    /// True if all senders have been members without a gap. A member that was missing in an entry
    /// that was not seen may have forgotten everything and be a member again.
    fn are_all_there_in(&self, entry: &ShardEntry) -> bool {
        let is_next = entry.epoch() == Epoch(self.entry.epoch().0 + 1);
        let is_member = |who: &Incarnation| entry.member(who).is_some();
        self.are_all_there && is_next && self.tellers.iter().all(is_member)
    }

    /// True if the worker may be a member with what it was sent: each sender still has that, and is
    /// asked for it with every other member. Records of a sender that has ended may be here alone;
    /// and before this worker was a member, no other asked it.
    pub(super) fn may_stay(&self, entry: &ShardEntry, me: &Incarnation) -> bool {
        let is_safe = self.has_resumed(me) || self.are_all_there_in(entry);
        entry.member(me).is_some() && is_safe
    }
}

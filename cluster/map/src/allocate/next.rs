//! The next transition of one shard: first the answer to an event, then a step towards its target.

use std::collections::BTreeSet;

use weir_ids::{Incarnation, NodeId};

use super::fleet::{FleetIndex, MemberStanding, WorkerFleet};
use super::input::{Liveness, ShardView};
use super::room::Rooms;
use crate::map::{MEMBERS_MAX, Member, MemberState, ShardEntry, Transition};

/// The transitions that a failure demands, whatever else is going on.
pub(super) struct Urgent<'a> {
    pub(super) fleet: &'a WorkerFleet,
    pub(super) shard: &'a ShardView,
    pub(super) entry: &'a ShardEntry,
    /// The slots that are to hold the shard.
    pub(super) target: &'a [FleetIndex],
    pub(super) wanted: usize,
    /// Whether so many nodes look gone that none is believed to be.
    pub(super) is_halted: bool,
    pub(super) rooms: &'a Rooms,
}

impl Urgent<'_> {
    /// Returns the fence of an ended incarnation, which frees its lanes. Where no worker can take a
    /// primary's member slot yet, the end of another member comes first: its worker may be the one
    /// that can. Among several, a member whose worker has come back with copies comes first, so
    /// that this worker is a member before the last other one is fenced.
    pub(super) fn fence(&self) -> Option<Transition> {
        let ended = |member: &&Member| self.standing(member) == MemberStanding::Ended;
        // Only one of two members on a node can be restarted there.
        let mut replicas = self.entry.members()[1..].iter().filter(ended);
        if let Some(second) = replicas.find(|member| self.has_neighbour(member)) {
            return Some(Transition::Fence(second.incarnation.clone()));
        }
        let mut ended: Vec<&Member> = self.entry.members().iter().filter(ended).collect();
        ended.sort_by_key(|member| !self.has_copies(member));
        ended.into_iter().find_map(|member| self.fence_of(&member.incarnation))
    }

    fn has_copies(&self, member: &Member) -> bool {
        let slot = self.fleet.slot_of(&member.incarnation.worker);
        slot.is_some_and(|slot| self.fleet.slots[slot].has_copies)
    }

    fn has_neighbour(&self, member: &Member) -> bool {
        let node = &member.incarnation.worker.node;
        let others = self.entry.members().iter().filter(|other| other.slot != member.slot);
        others.into_iter().any(|other| other.incarnation.worker.node == *node)
    }

    fn fence_of(&self, ended: &Incarnation) -> Option<Transition> {
        let members = self.entry.members();
        let ended = ended.clone();
        let slot = self.fleet.slot_of(&ended.worker).filter(|&slot| self.rooms.has_room(slot));
        let again = slot.map(|slot| &self.fleet.slots[slot]).filter(|slot| slot.takes_more);
        // Two members on a node, in the midst of a move, are one copy.
        let stays = members.iter().filter(|member| self.may_stay(member));
        let stays: BTreeSet<&NodeId> = stays.map(|it| &it.incarnation.worker.node).collect();
        let runs = |member: &Member| matches!(self.standing(member), MemberStanding::Running(_));
        if ended == members[0].incarnation
            && (members.len() == 1 || !self.is_halted && !members.iter().any(runs))
        {
            let best = self.target.first().map(|&slot| &self.fleet.slots[slot]);
            let to = again.or(best)?.incarnation.clone();
            return Some(Transition::TakeSlot { ended, to });
        }
        match again {
            Some(again) if stays.len() < self.wanted => {
                Some(Transition::Restart { ended, boot_id: again.incarnation.boot_id })
            }
            _ => Some(Transition::Fence(ended)),
        }
    }

    /// Promotes a member with a full copy when the primary's node is about to end, while it still
    /// serves. The node itself says so, so this is done in a halt too.
    pub(super) fn hand_over(&self) -> Option<Transition> {
        if self.liveness(self.entry.primary()) != Some(Liveness::Stopping) {
            return None;
        }
        let heirs = self.entry.members()[1..].iter().filter(|member| {
            let is_alive = self.liveness(member) == Some(Liveness::Alive);
            member.state == MemberState::Synced && is_alive && !self.is_cut_off(member)
        });
        let is_target = |member: &Member| {
            let first = self.target.first().map(|&slot| &self.fleet.slots[slot].incarnation);
            first == Some(&member.incarnation)
        };
        let best = heirs.min_by_key(|member| (!is_target(member), member.is_leaving))?;
        Some(Transition::Promote(best.incarnation.clone()))
    }

    fn is_cut_off(&self, member: &Member) -> bool {
        match self.standing(member) {
            MemberStanding::Running(slot) => self.fleet.slots[slot].is_cut_off,
            _ => false,
        }
    }

    /// Returns the liveness of the node of a member that runs.
    fn liveness(&self, member: &Member) -> Option<Liveness> {
        match self.standing(member) {
            MemberStanding::Running(slot) => Some(self.fleet.slots[slot].liveness),
            _ => None,
        }
    }

    /// Promotes a replica when the primary is gone, or outdone by that replica, which acts; marks
    /// members that no worker hears as out of sync.
    pub(super) fn follow(&self) -> Option<Transition> {
        if self.is_halted {
            return None;
        }
        let members = self.entry.members();
        let is_heir = |member: &&Member| {
            let runs = matches!(self.standing(member), MemberStanding::Running(_));
            member.state == MemberState::Synced && runs
        };
        let heirs = members[1..].iter().filter(is_heir);
        let acting = self.shard.acting.as_ref();
        let acting = acting.filter(|acting| acting.term == self.entry.term());
        let is_acting = |member: &&Member| {
            acting.is_some_and(|acting| acting.incarnation == member.incarnation)
        };
        if let Some(acting) = heirs.clone().find(is_acting) {
            return Some(Transition::Promote(acting.incarnation.clone()));
        }
        if self.is_primary_silent() {
            let worth = |member: &&Member| {
                let is_stopping = self.liveness(member) == Some(Liveness::Stopping);
                (self.is_cut_off(member), is_stopping, member.is_leaving)
            };
            if let Some(best) = heirs.min_by_key(worth) {
                return Some(Transition::Promote(best.incarnation.clone()));
            }
        }
        let is_lost =
            |member: &&Member| member.state != MemberState::OutOfSync && self.is_silent(member);
        let lost = members[1..].iter().find(is_lost)?;
        Some(Transition::OutOfSync(lost.incarnation.clone()))
    }

    pub(super) fn is_primary_silent(&self) -> bool {
        self.is_silent(self.entry.primary())
    }

    fn is_silent(&self, member: &Member) -> bool {
        self.standing(member) == MemberStanding::Silent
    }

    fn standing(&self, member: &Member) -> MemberStanding {
        self.fleet.standing(&member.incarnation)
    }

    fn may_stay(&self, member: &Member) -> bool {
        match self.standing(member) {
            MemberStanding::Running(slot) => self.fleet.slots[slot].may_stay && !member.is_leaving,
            _ => false,
        }
    }
}

/// The part of the budget of moves that a transition towards the target takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Price {
    Free,
    Move,
}

/// Returns the next transition towards the target, if nothing has to be waited for.
pub(super) fn towards(
    fleet: &WorkerFleet,
    entry: &ShardEntry,
    target: &[FleetIndex],
    wanted: usize,
) -> Option<(Transition, Price)> {
    let who = |slot: FleetIndex| -> &Incarnation { &fleet.slots[slot].incarnation };
    let members = entry.members();
    let has_gone = |member: &&Member| member.is_leaving && entry.lanes_of(member.slot).is_empty();
    if let Some(gone) = members[1..].iter().find(has_gone) {
        return Some((Transition::Remove(gone.incarnation.clone()), Price::Free));
    }
    let primary = who(*target.first()?);
    let is_synced = |who: &Incarnation| {
        entry.member(who).is_some_and(|(_, member)| member.state == MemberState::Synced)
    };
    if entry.primary().incarnation != *primary && is_synced(primary) {
        return Some((Transition::Promote(primary.clone()), Price::Move));
    }
    let is_surplus = |member: &&Member| {
        let wanted = target.iter().any(|&slot| *who(slot) == member.incarnation);
        let runs = matches!(fleet.standing(&member.incarnation), MemberStanding::Running(_));
        !wanted && runs && !member.is_leaving
    };
    let surplus = members[1..].iter().rev().find(is_surplus);
    let retire = surplus.map(|member| Transition::Retire(member.incarnation.clone()));
    if let Some(&new) = target.iter().find(|&&slot| entry.member(who(slot)).is_none()) {
        return match retire {
            // The shard is full: one copy goes before the next comes.
            Some(retire) if members.len() == MEMBERS_MAX => Some((retire, Price::Move)),
            _ if members.len() == MEMBERS_MAX => None,
            _ => {
                let by = who(new).clone();
                let is_neighbour =
                    |it: &&Member| it.incarnation.worker.node == by.worker.node && !it.is_leaving;
                let neighbour = members.iter().find(is_neighbour);
                let former = neighbour
                    .or_else(|| members.iter().find(|it| is_surplus(it) && !it.is_yielding));
                let add = match former.map(|former| former.incarnation.clone()) {
                    Some(member) => Transition::Replace { member, by },
                    None => Transition::AddReplica(by),
                };
                Some((add, Price::Move))
            }
        };
    }
    if target.len() < wanted || !target.iter().all(|&slot| is_synced(who(slot))) {
        return None;
    }
    let kept = target.iter().filter_map(|&slot| Some(entry.member(who(slot))?.1));
    // The map refuses two members on a node of which neither yields: the other is removed first.
    let is_alone = |member: &Member| {
        let node = &member.incarnation.worker.node;
        members.iter().filter(|other| other.incarnation.worker.node == *node).count() == 1
    };
    let mut kept =
        kept.filter(|member| member.is_yielding && !member.is_leaving && is_alone(member));
    let keep = || kept.next().map(|member| Transition::Keep(member.incarnation.clone()));
    retire.or_else(keep).map(|next| (next, Price::Free))
}

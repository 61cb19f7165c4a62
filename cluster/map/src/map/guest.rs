//! Guests: a worker that has restarted while the store is unreachable takes copies again before any
//! entry names its new incarnation.
//!
//! The entry names its former incarnation, the *host*. A guest has no slot, so it writes nothing
//! and gives nothing; it translates the mappings that members send it. No member asks a guest for
//! its copy when a lane gets a new writer, so a worker may be a guest only where no lane can get
//! one: a host that owns a lane stays a member until it is fenced, and a new owner of an ended
//! member's lane waits for all members, the host among them, which does not answer any more. So no
//! lane whose writer has ended is written again before the host is fenced, and that takes the
//! guest's own registration.
//!
//! For the same reason no other worker writes the host's own lanes meanwhile, and the guest may go
//! on with them once it has every record that was ever written of the shard: it *resumes* the slot.
//! That is so when all other members have come back as guests of the same entry, and either none of
//! them has copies, or this guest alone has them, or a guest that has resumed has given them. The
//! guest writes the resumption to the store, and until then its node's record names the host, too.

use weir_ids::{Incarnation, LANES};

use super::entry::{Member, MemberState, ShardEntry};
use crate::lane::MemberSlot;

impl ShardEntry {
    /// Returns the member whose worker goes on as this guest. None: the worker may not be a guest
    /// here, since no lane waits for the member.
    pub fn host_of(&self, guest: &Incarnation) -> Option<&Member> {
        self.former_life_of(guest).filter(|member| self.owns_a_lane(member))
    }

    /// Returns the member that is another incarnation of the same worker.
    pub fn former_life_of(&self, life: &Incarnation) -> Option<&Member> {
        let is_former = |member: &&Member| {
            let who = &member.incarnation;
            who.worker == life.worker && who.boot_id != life.boot_id
        };
        self.members.iter().find(is_former)
    }

    /// Returns the entry with these incarnations in the slots of their workers' former ones. That
    /// entry stands in no store.
    pub fn resumed_by(&self, lives: &[Incarnation]) -> Self {
        let mut seen = self.clone();
        for member in &mut seen.members {
            let who = &mut member.incarnation;
            if let Some(life) = lives.iter().find(|life| life.worker == who.worker) {
                who.boot_id = life.boot_id;
            }
        }
        seen
    }

    /// True if the member owns a lane, so that it stays a member until it gives the lane or is
    /// fenced.
    pub fn owns_a_lane(&self, member: &Member) -> bool {
        self.lanes.iter().any(|lane| lane.owner == member.slot)
    }

    /// Returns the entry as the shard role of a guest takes it: the host has no copy any more, and
    /// the guest is the last member, without a lane. That entry stands in no store. None: see
    /// [`host_of`](Self::host_of).
    pub fn seen_by_guest(&self, guest: &Incarnation, has_copy: bool) -> Option<Self> {
        let host = self.host_of(guest)?.slot;
        let slot = (0..LANES as u8).map(MemberSlot).find(|&slot| self.at_slot(slot).is_none())?;
        let mut seen = self.clone();
        let rank = seen.members.iter().position(|member| member.slot == host)?;
        let mut ended = seen.members.remove(rank);
        ended.state = MemberState::OutOfSync;
        let state = if has_copy { MemberState::Synced } else { MemberState::Syncing };
        seen.members.extend([ended, Member::new(guest.clone(), slot, state)]);
        Some(seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lane::LaneSet;
    use crate::map::Transition;
    use weir_ids::{BootId, Epoch, NodeId, WorkerId};

    fn life(node: u8, boot_id: u128) -> Incarnation {
        let node = NodeId::new(&format!("n{node}")).expect("a name");
        Incarnation { worker: WorkerId { node, index: 0 }, boot_id: BootId(boot_id) }
    }

    fn after(entry: &ShardEntry, transition: &Transition) -> ShardEntry {
        entry.after(entry.epoch(), transition).expect("it applies")
    }

    /// n1 is primary, n2 a replica with its lane.
    fn pair() -> ShardEntry {
        let (one, two) = (life(1, 1), life(2, 1));
        let entry = after(&ShardEntry::create(one), &Transition::AddReplica(two.clone()));
        let entry = after(&entry, &Transition::Synced(two.clone()));
        let lanes = LaneSet::EMPTY.with(1);
        after(&entry, &Transition::Settle { by: two, lanes })
    }

    #[test]
    fn a_guest_is_the_last_member_and_has_no_lane() {
        let entry = pair();
        let guest = life(1, 2);
        assert_eq!(entry.host_of(&guest).map(|host| &host.incarnation), Some(&life(1, 1)));
        for has_copy in [false, true] {
            let seen = entry.seen_by_guest(&guest, has_copy).expect("a guest");
            assert_eq!(seen.epoch(), entry.epoch(), "any newer entry is obeyed");
            let members: Vec<&Incarnation> =
                seen.members().iter().map(|member| &member.incarnation).collect();
            assert_eq!(members, [&life(2, 1), &life(1, 1), &guest]);
            assert_eq!(seen.lanes(), entry.lanes());
            let (_, me) = seen.member(&guest).expect("a member");
            assert!(seen.lanes_of(me.slot).is_empty());
            assert_eq!(me.state == MemberState::Synced, has_copy);
        }
    }

    #[test]
    fn no_worker_is_a_guest_where_no_lane_waits_for_its_old_incarnation() {
        let guest = life(1, 2);
        let alone = ShardEntry::create(life(1, 1));
        assert_eq!(alone.host_of(&guest).map(|it| &it.incarnation), Some(&life(1, 1)));
        assert_eq!(alone.host_of(&life(1, 1)), None, "it is a member itself");
        assert_eq!(pair().host_of(&life(1, 1)), None, "it is a member itself");
        assert_eq!(pair().host_of(&life(3, 1)), None, "a stranger");
        let syncing = after(&pair(), &Transition::AddReplica(life(3, 1)));
        assert_eq!(syncing.host_of(&life(3, 2)), None, "it may be removed unasked: no lane");
        assert_eq!(syncing.seen_by_guest(&life(3, 2), false), None);
        // n2 owned its lane and is giving it: it may have been removed since.
        let leaving = after(&pair(), &Transition::Retire(life(2, 1)));
        assert!(leaving.is_moving() && leaving.epoch() > Epoch(1));
        assert_eq!(leaving.host_of(&life(2, 2)), None);
    }
}

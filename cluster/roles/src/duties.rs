//! From the duties of a role to the command for its worker: which member copies what to which, by
//! peer.
//!
//! ```text
//!   lane      streamed by                            to           source
//!   at rest   its owner                              all others   at those: the owner
//!   moving    `from`, to the end; with the grant,    all others   at those: `from`; at `from`: the
//!             the new owner too                                   new owner, which writes next
//!   frozen    the relay: the first member, in rank   all others   at those: the relay
//!             order, with a full copy that is
//!             present
//! ```
//!
//! - A lane whose writer has ended moves from each of the others in turn: `from` relays what it has
//!   received, as a giver does, and the new owner merges it. No member writes the lane before.
//!   A giver without a full copy does not relay the whole lane: members without one await the rest
//!   from the new owner.
//! - A lane is frozen when its writer is neither registered nor heard, or was not heard for longer
//!   than a failover takes: a worker that has just died or fallen silent keeps its lanes, since no
//!   other member needs a copy of them until a member is added.
//! - If a member has ended and its worker was met in another incarnation, which no entry names yet,
//!   that one is the member's *guest* ([`weir_map::map`]): it gets every lane that is streamed
//!   here, in the member's place. A guest itself streams nothing.
//! - The source of a lane is None only where nothing is to be awaited: this worker writes, gives or
//!   relays the lane. A copy that no member can send yet has the source [`NOBODY`], so that it
//!   never counts as complete.

use crate::role::{Duties, Misses, Role, RoleMachine};
use weir_map::{BootId, Incarnation, LaneSet, Member, MemberState, ShardEntry, ShardId};

use super::directory::{Directory, NOBODY};
use super::peers::RolesPeers;
use super::worker::RolesShared;
use weir_ids::PeerId;
use weir_replication::command::{CopyOrder, GrantOrder, ShardDuties};

/// One worker's knowledge of all others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Others<'a> {
    pub(super) directory: &'a Directory,
    pub(super) peers: &'a RolesPeers,
    /// Whether the store is heard: guests will soon be members, or end.
    pub(super) is_store_reachable: bool,
}

impl<'a> Others<'a> {
    pub(super) fn of(shared: &'a RolesShared, peers: &'a RolesPeers) -> Self {
        Self { directory: &shared.directory, peers, is_store_reachable: shared.is_fresh }
    }
}

impl Others<'_> {
    fn peer_of(&self, who: &Incarnation) -> Option<PeerId> {
        self.directory.peer_of(who)
    }

    fn is_present(&self, who: &Incarnation) -> bool {
        self.peers.is_present(self.directory, who)
    }

    /// Returns the incarnation that goes on in a member's place and may have copies.
    fn guest_of(&self, entry: &ShardEntry, member: &Member) -> Option<(PeerId, BootId)> {
        let peer = self.directory.successor_of(&member.incarnation)?;
        let boot_id = self.peers.met_boot(peer)?;
        let guest = Incarnation { worker: member.incarnation.worker.clone(), boot_id };
        entry.host_of(&guest)?;
        Some((peer, boot_id))
    }
}

/// A member that is reached, or its guest.
#[derive(Clone, Copy)]
struct Reached<'a> {
    member: &'a Member,
    peer: PeerId,
    boot: BootId,
    is_guest: bool,
}

/// Returns the duties of a worker as its role has them now. `is_route_out`: the kernel has its
/// route.
pub(super) fn of(
    shard: ShardId,
    machine: &RoleMachine,
    is_route_out: bool,
    others: Others<'_>,
) -> ShardDuties {
    let duties = machine.duties();
    let mut shard_duties = ShardDuties::none(shard);
    shard_duties.serves_hits = duties.serves_hits();
    shard_duties.lanes = duties.lanes;
    shard_duties.lanes_since = machine.lanes_since();
    shard_duties.begins_empty = machine.began_empty();
    shard_duties.misses = misses(duties, others);
    let Some(seen) = SeenEntry::of(machine, others) else { return shard_duties };
    if !machine.is_guest() {
        shard_duties.copies = seen.copies();
    }
    shard_duties.sources = std::array::from_fn(|lane| seen.source(lane));
    shard_duties.grants = seen.grants();
    if duties.role == Role::Primary && duties.metric.is_some() && is_route_out {
        let peers = seen.others_reached().map(|other| (other.peer, other.boot));
        shard_duties.announced = Some((seen.entry.term(), peers.collect()));
    }
    shard_duties
}

fn misses(duties: &Duties, others: Others<'_>) -> Misses<PeerId> {
    duties.misses.map(|to| others.peer_of(to))
}

/// Returns the peers that a worker must know for its duties, whichever members can be reached.
pub(super) fn peers_needed(machine: &RoleMachine, others: Others<'_>) -> Vec<PeerId> {
    let mut needed = Vec::new();
    if let Misses::Redirect(peer) = misses(machine.duties(), others) {
        needed.push(peer);
    }
    if let Some(seen) = SeenEntry::of(machine, others) {
        needed.extend(seen.others_reached().map(|other| other.peer));
        // Where another worker has met a guest, this one will meet it, too.
        let hosts = seen.entry.members().iter().filter(|member| seen.entry.owns_a_lane(member));
        needed.extend(hosts.filter_map(|it| others.directory.successor_of(&it.incarnation)));
    }
    needed.sort_unstable();
    needed.dedup();
    needed
}

/// An entry as one of its members sees it.
struct SeenEntry<'a> {
    entry: &'a ShardEntry,
    me: &'a Member,
    duties: &'a Duties,
    others: Others<'a>,
    /// Whether this worker has a full copy.
    has_copy: bool,
    /// The member that relays frozen lanes.
    relay: Option<&'a Member>,
}

impl<'a> SeenEntry<'a> {
    /// Returns None for a worker that is not a member, or not any more.
    fn of(machine: &'a RoleMachine, others: Others<'a>) -> Option<Self> {
        let duties = machine.duties();
        if matches!(duties.role, Role::None | Role::Leaving) {
            return None;
        }
        let entry = machine.entry()?;
        let (_, me) = entry.member(machine.incarnation())?;
        let has_copy = matches!(duties.role, Role::Synced | Role::Acting | Role::Primary);
        let could = |member: &&Member| {
            let is_here = if member.slot == me.slot {
                has_copy
            } else {
                others.is_present(&member.incarnation)
            };
            member.state == MemberState::Synced && is_here
        };
        let relay = entry.members().iter().find(could);
        Some(Self { entry, me, duties, others, has_copy, relay })
    }

    fn others_reached(&self) -> impl Iterator<Item = Reached<'a>> {
        let others = self.entry.members().iter().filter(|member| member.slot != self.me.slot);
        others.filter_map(|member| {
            if let Some((peer, boot_id)) = self.others.guest_of(self.entry, member) {
                return Some(Reached { member, peer, boot: boot_id, is_guest: true });
            }
            let peer = self.others.peer_of(&member.incarnation)?;
            let boot = member.incarnation.boot_id;
            Some(Reached { member, peer, boot, is_guest: false })
        })
    }

    /// Returns the member that wrote a lane last as far as the entry shows: its new owner is not
    /// known to have begun.
    fn writer(&self, lane: usize) -> &'a Member {
        let lane = self.entry.lanes()[lane];
        let slot = lane.moving.map_or(lane.owner, |moving| moving.from);
        self.entry.at_slot(slot).expect("the entry names a member at each lane's slot")
    }

    fn is_mine(&self, lane: usize) -> bool {
        self.writer(lane).slot == self.me.slot || self.duties.lanes.contains(lane)
    }

    /// True for a lane of another member that this worker relays as it got it.
    fn is_relayed(&self, lane: usize) -> bool {
        let stands_in = self.relay.is_some_and(|member| member.slot == self.me.slot);
        stands_in && !self.is_mine(lane) && !self.others.is_present(&self.writer(lane).incarnation)
    }

    fn copies(&self) -> Vec<CopyOrder> {
        let mine = LaneSet::of(|lane| self.is_mine(lane));
        let passed_on = LaneSet::of(|lane| self.is_relayed(lane));
        let copies = self.others_reached().map(|Reached { member, peer, boot, is_guest }| {
            // The lane's writer may still run and write: it is not sent its own lanes.
            let its_own = |lane: usize| !is_guest && self.writer(lane).slot == member.slot;
            let lanes = LaneSet::of(|lane| {
                mine.contains(lane) || passed_on.contains(lane) && !its_own(lane)
            });
            // A guest that becomes a member may have to forget its copies, and will soon be one if
            // the store is heard. The entry marks it synced once it has copies as a member.
            let stays = match is_guest {
                true => !self.others.is_store_reachable,
                false => member.state == MemberState::Synced,
            };
            CopyOrder { peer, boot, lanes, is_awaited: stays && !member.is_leaving, is_guest }
        });
        copies.filter(|copy| !copy.lanes.is_empty()).collect()
    }

    fn source(&self, lane: usize) -> Option<PeerId> {
        if self.duties.lanes.contains(lane) {
            return None;
        }
        let state = self.entry.lanes()[lane];
        let given = state.moving.filter(|moving| moving.from == self.me.slot);
        let is_given = given.is_some();
        // This worker is to give what it has received from an ended writer, and has not received
        // all.
        let lacks_parts = given.is_some_and(|moving| moving.then.is_some()) && !self.has_copy;
        let writer = if is_given { self.entry.at_slot(state.owner)? } else { self.writer(lane) };
        if writer.slot == self.me.slot {
            return None;
        }
        // The same holds for another giver without a full copy: only the new owner gets all copies.
        let is_gathered = state.moving.is_some_and(|moving| moving.then.is_some());
        let is_part_of_giver = is_gathered
            && !is_given
            && state.owner != self.me.slot
            && writer.state != MemberState::Synced;
        let from =
            |member: &Member| Some(self.others.peer_of(&member.incarnation).unwrap_or(NOBODY));
        match self.relay {
            _ if self.others.is_present(&writer.incarnation) => {
                let is_whole = self.has_copy || !is_part_of_giver;
                if is_whole { from(writer) } else { Some(NOBODY) }
            }
            _ if lacks_parts => Some(NOBODY),
            _ if is_given => None,
            Some(relay) if relay.slot == self.me.slot => None,
            Some(relay) => from(relay),
            None => Some(NOBODY),
        }
    }

    fn grants(&self) -> Vec<GrantOrder> {
        let life = |to: &Incarnation| Some((self.others.peer_of(to)?, to.boot_id));
        self.duties.grants.iter().filter_map(|grant| grant.map(life)).collect()
    }
}

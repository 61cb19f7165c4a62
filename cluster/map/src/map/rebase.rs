//! How a shard goes on after the store was set back, for example by a restore from a backup.
//!
//! ```text
//!    lost history        ... 5 --- 6 --- 7 --- 8    8: the newest entry that a node still holds
//!    the store, set back     5                \
//!    the rebased entry                         9    entry 8 under numbers above all that were seen
//! ```
//!
//! A node obeys no entry that is older than what it has seen; while the store has only such an
//! entry, the node is *in doubt*: what it holds stays as it is until an entry comes that was
//! rebased above everything that the node has seen. So the newest entry that any node holds is the
//! newest entry of the lost history that any node ever acted on, and each worker that may write a
//! lane is the lane's owner or `from` in that entry:
//!
//! - A lane moves on from a member only by that member's grant, and a member that has granted has
//!   seen the entry of the move. If all members answer, or have certainly ended, no other worker
//!   has got a lane.
//! - Moves under way get a new epoch as their name, so that earlier grants are void and are given
//!   again.
//! - Entries that the store has taken since it was set back count only where the workers that write
//!   follow them, and not the lost history: the entry that goes on must name every worker that may
//!   write.
//!
//! Any uncertainty is reported as a [`Doubt`]; then an operator decides. This module sends no
//! questions to nodes, and does not write.

use thiserror::Error;
use weir_ids::{BootId, Epoch, Incarnation, LANES, NodeId, Term, WorkerId};

use super::entry::{LaneEntry, ShardEntry};
use super::transition::{Transition, TransitionRefusal};
use crate::lane::MemberSlot;

/// A registered node, and what it does with the entries of a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Witness {
    pub node: NodeId,
    /// Boot ids of its workers' current incarnations.
    pub boot_ids: Vec<BootId>,
    pub stand: Stand,
}

/// The entries of a shard that a node obeys, as it reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stand {
    /// The node has not answered.
    Silent,
    /// The node obeys what the store has.
    Follows,
    /// The node has seen newer entries than the store has, and obeys none of the store's.
    InDoubt {
        /// The highest epoch that the node has seen.
        known: Epoch,
        /// The entry that the node still obeys. None: it has restarted since, and writes nothing.
        held: Option<Box<ShardEntry>>,
    },
}

/// Why another writer of a lane cannot be ruled out.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Doubt {
    #[error("{0} does not say what it serves")]
    Unanswered(NodeId),
    #[error("{} is not registered", .0.worker)]
    Missing(Incarnation),
    #[error("{node} has seen epoch {known}, and the newest entry that a node holds is of {held}")]
    Newer { node: NodeId, known: Epoch, held: Epoch },
}

/// Why there is no entry to go on with.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum NoBase {
    #[error("neither etcd nor a node has an entry")]
    NoEntry,
    #[error("{worker} writes lane {lane}, which others would write too: stop that node")]
    TwoWriters { worker: WorkerId, lane: usize },
    #[error("{0}")]
    Refused(#[from] TransitionRefusal),
}

/// An entry to go on with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rebased {
    pub entry: ShardEntry,
    /// Empty: no lane can have two writers.
    pub doubts: Vec<Doubt>,
}

/// Returns the entry with which a shard goes on when some of the registered nodes are in doubt.
/// `stored` is what the store has; `has_ended` is true for an incarnation that has certainly ended
/// although its node is not registered.
///
/// # Errors
/// [`NoBase`], which no operator can override.
pub fn rebase(
    stored: Option<&ShardEntry>,
    nodes: &[Witness],
    has_ended: impl Fn(&Incarnation) -> bool,
) -> Result<Rebased, NoBase> {
    // A node follows the store if it merely has not read the rebased entry yet.
    let mut nodes = nodes.to_vec();
    for node in nodes.iter_mut().filter(|node| node.stand.has_its_answer(stored)) {
        node.stand = Stand::Follows;
    }
    let nodes = nodes.as_slice();
    let held = nodes.iter().filter_map(|node| node.stand.held()).max_by_key(|held| held.epoch());
    let newest = held.or(stored).ok_or(NoBase::NoEntry)?;
    let known = nodes.iter().filter_map(|node| node.stand.known()).max().unwrap_or_default();
    let seen = known.max(stored.map_or(Epoch(0), ShardEntry::epoch));
    let transition = Transition::Rebase { epoch: seen, term: term_seen(newest, stored, known) };
    let go_on = |base: &ShardEntry| {
        let entry = base.after(base.epoch(), &transition)?;
        nodes.iter().try_for_each(|node| node.check_claims(stored, nodes, &entry))?;
        Ok(entry)
    };
    let entry = match (go_on(newest), stored) {
        // No worker that writes has seen any of the lost history: the store's own entry goes on.
        (Err(error @ NoBase::TwoWriters { .. }), Some(stored)) => {
            go_on(stored).map_err(|_| error)?
        }
        (entry, _) => entry?,
    };
    let members = newest.members().iter().chain(stored.into_iter().flat_map(ShardEntry::members));
    let mut doubts: Vec<Doubt> = Vec::new();
    for member in members {
        let doubt = doubt_of(&member.incarnation, nodes, &has_ended);
        doubts.extend(doubt.filter(|doubt| !doubts.contains(doubt)));
    }
    doubts.extend(nodes.iter().filter_map(|node| {
        let known = node.stand.known().filter(|known| *known > newest.epoch())?;
        Some(Doubt::Newer { node: node.node.clone(), known, held: newest.epoch() })
    }));
    Ok(Rebased { entry, doubts })
}

/// True if some node is in doubt, and the store's entry does not end that.
pub fn needs_rebase(stored: Option<&ShardEntry>, nodes: &[Witness]) -> bool {
    nodes.iter().any(|node| node.stand.known().is_some() && !node.stand.has_its_answer(stored))
}

/// Returns a term that no announced route exceeds: each term has taken an epoch.
fn term_seen(base: &ShardEntry, stored: Option<&ShardEntry>, known: Epoch) -> Term {
    let unseen = known.0.saturating_sub(base.epoch().0);
    let unseen = u32::try_from(unseen).unwrap_or(u32::MAX);
    let term = Term(base.term().0.saturating_add(unseen));
    term.max(stored.map_or(Term(0), ShardEntry::term))
}

fn doubt_of(
    member: &Incarnation,
    nodes: &[Witness],
    has_ended: &impl Fn(&Incarnation) -> bool,
) -> Option<Doubt> {
    match nodes.iter().find(|node| node.node == member.worker.node) {
        Some(Witness { stand: Stand::Silent, node, .. }) => Some(Doubt::Unanswered(node.clone())),
        // The node answers: this incarnation either runs and is known, or has ended.
        Some(_) => None,
        None if has_ended(member) => None,
        None => Some(Doubt::Missing(member.clone())),
    }
}

impl Stand {
    fn held(&self) -> Option<&ShardEntry> {
        match self {
            Self::InDoubt { held, .. } => held.as_deref(),
            Self::Silent | Self::Follows => None,
        }
    }

    /// True if the store's entry was rebased above everything that the node has seen.
    fn has_its_answer(&self, stored: Option<&ShardEntry>) -> bool {
        let rebased = stored.and_then(ShardEntry::rebased);
        self.known().is_some_and(|known| rebased.is_some_and(|rebased| rebased > known))
    }

    fn obeyed<'a>(&'a self, stored: Option<&'a ShardEntry>) -> Option<&'a ShardEntry> {
        match self {
            Self::InDoubt { held, .. } => held.as_deref(),
            Self::Silent | Self::Follows => stored,
        }
    }

    fn known(&self) -> Option<Epoch> {
        match self {
            Self::InDoubt { known, .. } => Some(*known),
            Self::Silent | Self::Follows => None,
        }
    }
}

impl Witness {
    /// Checks that `next` names each worker of this node as owner or `from` of every lane that the
    /// worker writes, or would write with a grant under way.
    fn check_claims(
        &self,
        stored: Option<&ShardEntry>,
        nodes: &[Self],
        next: &ShardEntry,
    ) -> Result<(), NoBase> {
        let Some(entry) = self.stand.obeyed(stored) else { return Ok(()) };
        let own = entry.members().iter().filter(|member| {
            member.incarnation.worker.node == self.node
                && self.boot_ids.contains(&member.incarnation.boot_id)
        });
        for (member, lane) in own.flat_map(|member| (0..LANES).map(move |lane| (member, lane))) {
            let is_named = |slot: MemberSlot| next.lanes()[lane].concerns(slot);
            let after = next.member(&member.incarnation).map(|(_, member)| member.slot);
            if self.may_write(entry, member.slot, lane, nodes) && !after.is_some_and(is_named) {
                let worker = member.incarnation.worker.clone();
                return Err(NoBase::TwoWriters { worker, lane });
            }
        }
        Ok(())
    }

    /// True if a worker of this node, with this slot in the entry that it obeys, writes the lane or
    /// may get its grant. A lane that the worker is to give, but does not know of yet, needs no
    /// check: every newer entry names it as `from`, too.
    fn may_write(&self, entry: &ShardEntry, slot: MemberSlot, lane: usize, nodes: &[Self]) -> bool {
        let LaneEntry { owner, moving } = entry.lanes()[lane];
        let follows = !matches!(self.stand, Stand::InDoubt { .. });
        // A node in doubt grants no move that only the store's entry asks for.
        let giver = moving.filter(|_| follows).and_then(|moving| entry.at_slot(moving.from));
        let giver = giver.map(|member| &member.incarnation.worker.node);
        let giver = nodes.iter().find(|node| Some(&node.node) == giver);
        owner == slot && giver.is_none_or(|giver| giver.stand.known().is_none())
    }
}

#[cfg(test)]
#[path = "rebase_tests.rs"]
mod tests;

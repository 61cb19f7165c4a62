//! How a shard goes on after the store was set back, as by a restore from a backup.
//!
//! ```text
//!    history that was lost     ... 5 --- 6 --- 7 --- 8        8: the newest entry that a node still holds
//!    the store, set back           5                \
//!    what is written                                 9        the same, under numbers above all that was seen
//! ```
//!
//! Nodes obey no entry that is older than what they have seen; such a node is *in doubt*, and what it holds stays as it
//! is until an entry comes that was rebased above all that it has seen. So the newest entry that any node holds is the
//! newest of the lost history that anybody ever acted on, and whoever may write a lane is its owner or `from` in it:
//!
//! - A lane moves on from a member only by its grant, and who has granted has seen the entry of that move. If all
//!   members answer, or have certainly ended, nobody beside them has got a lane.
//! - Moves under way get a new name, so that grants of before are worth nothing and are given again.
//! - What the store has written since it was set back counts only where those who write follow it, and not what was
//!   lost: whoever may write has to be named by what goes on.
//!
//! What is not certain is told; then an operator decides. It does not ask anybody, and does not write.

use thiserror::Error;
use weir_ids::{BootId, Epoch, Incarnation, LANES, NodeId, Term, WorkerId};

use super::entry::{LaneEntry, ShardEntry};
use super::transition::{Refused, Transition};
use crate::lane::Seat;

/// A registered node, and how it stands to a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Witness {
    pub node: NodeId,
    /// Lives of its workers now.
    pub boot_ids: Vec<BootId>,
    pub stand: Stand,
}

/// What a node says that it does with the entries of a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stand {
    /// It has not answered.
    Silent,
    /// It obeys what the store has.
    Follows,
    /// It has seen newer entries than the store has, and obeys none of it.
    InDoubt {
        /// The highest epoch that it has seen.
        known: Epoch,
        /// What it obeys still. None: it has begun anew since, and writes nothing.
        held: Option<Box<ShardEntry>>,
    },
}

/// Why it is not certain that nobody else writes a lane.
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
    Refused(#[from] Refused),
}

/// An entry to go on with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rebased {
    pub entry: ShardEntry,
    /// None: no lane can have two writers.
    pub doubts: Vec<Doubt>,
}

/// The entry with which a shard goes on that some of the registered nodes are in doubt about. `stored` is what the store
/// has; `has_ended` knows who has certainly ended although its node is not registered.
///
/// # Errors
/// [`NoBase`], whatever an operator says.
pub fn rebase(
    stored: Option<&ShardEntry>,
    nodes: &[Witness],
    has_ended: impl Fn(&Incarnation) -> bool,
) -> Result<Rebased, NoBase> {
    // Who has only not read yet that it was rebased follows the store.
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
        // Of what was lost, nobody who writes has seen anything.
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

/// Whether some node is in doubt, and what the store has does not end that.
pub fn needs_rebase(stored: Option<&ShardEntry>, nodes: &[Witness]) -> bool {
    nodes.iter().any(|node| node.stand.known().is_some() && !node.stand.has_its_answer(stored))
}

/// No route was ever announced in a higher term: each term has taken an epoch.
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
        // In another life: then this one has ended.
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

    /// What the store has was rebased above all that it has seen.
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
    /// Whatever a worker here writes, or would with a grant that is on its way, is its own or its to give in `next`.
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
            let is_named = |seat: Seat| next.lanes()[lane].concerns(seat);
            let after = next.member(&member.incarnation).map(|(_, member)| member.seat);
            if self.may_write(entry, member.seat, lane, nodes) && !after.is_some_and(is_named) {
                let worker = member.incarnation.worker.clone();
                return Err(NoBase::TwoWriters { worker, lane });
            }
        }
        Ok(())
    }

    /// A worker here, on this seat of the entry that it obeys, writes the lane or may get its grant. What it is to give,
    /// but may not know of yet, every newer entry says too.
    fn may_write(&self, entry: &ShardEntry, seat: Seat, lane: usize, nodes: &[Self]) -> bool {
        let LaneEntry { owner, moving } = entry.lanes()[lane];
        let follows = !matches!(self.stand, Stand::InDoubt { .. });
        // Who is in doubt grants nothing that only the store asks for.
        let giver = moving.filter(|_| follows).and_then(|moving| entry.at_seat(moving.from));
        let giver = giver.map(|member| &member.incarnation.worker.node);
        let giver = nodes.iter().find(|node| Some(&node.node) == giver);
        owner == seat && giver.is_none_or(|giver| giver.stand.known().is_none())
    }
}

#[cfg(test)]
#[path = "rebase_tests.rs"]
mod tests;

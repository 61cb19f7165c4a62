//! Actions: how the duties after an event differ from those before.

use super::duties::{Duties, Grant, Misses, Role};
use super::metric::Metric;
use crate::lane::LaneSet;
use crate::map::Transition;

/// Something to do now, in the order of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Role(Role),
    /// From now on write in these lanes and no others.
    Write(LaneSet),
    ServeHits(bool),
    Misses(Misses),
    Announce(Metric),
    Withdraw,
    Grant(Grant),
    AskForCopy,
    /// Ask the store for this change of the entry.
    Change(Transition),
}

/// What is to be done to get from the duties `before` to those `after`. Lanes are put down before
/// they are granted; a route gets better only when the shard is served, and the shard is served
/// until the route is withdrawn.
pub(super) fn difference(before: &Duties, after: &Duties) -> Vec<Action> {
    let mut actions = Vec::new();
    if before.role != after.role {
        actions.push(Action::Role(after.role));
    }
    if before.lanes != after.lanes {
        actions.push(Action::Write(after.lanes));
    }
    if !before.serves_hits && after.serves_hits {
        actions.push(Action::ServeHits(true));
    }
    if before.misses != after.misses {
        actions.push(Action::Misses(after.misses.clone()));
    }
    if before.metric != after.metric {
        actions.push(after.metric.map_or(Action::Withdraw, Action::Announce));
    }
    if before.serves_hits && !after.serves_hits {
        actions.push(Action::ServeHits(false));
    }
    let new_grants = after.grants.iter().filter(|grant| !before.grants.contains(grant));
    actions.extend(new_grants.cloned().map(Action::Grant));
    if !before.wants_copy && after.wants_copy {
        actions.push(Action::AskForCopy);
    }
    if before.write != after.write {
        actions.extend(after.write.clone().map(Action::Change));
    }
    actions
}

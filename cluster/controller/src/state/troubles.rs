//! Troubles that nodes report of themselves, beside their ports: a stalled thread, a stalled disk,
//! a stalled route guard.
//!
//! - A trouble is a note for the operator as long as the node reports it.
//! - No shard is moved to or from a node whose routes or roles are stalled: the move would be made
//!   in the map and not in the switches. The consequences of a failure are still written.

use std::collections::BTreeMap;

use weir_map::map::Transition;
use weir_map::{NodeId, ShardEntry};

use super::event::{NodeReport, NodeTroubles};
use super::time::ControllerTime;

/// Reason that a drain or another move waits.
pub(super) const STANDS_STILL: &str = "the guard of the routes or the thread of the roles stands still on a node of its shards: \
     nothing is moved there meanwhile, `weir status` on the nodes says which";

/// The last troubles of each node.
#[derive(Clone, Debug, Default)]
pub(super) struct Troubles {
    reports: BTreeMap<NodeId, OwnReport>,
}

/// What a node reports of itself, and the time of the report.
#[derive(Clone, Debug, Default)]
struct OwnReport {
    troubles: NodeTroubles,
    generation: Option<u64>,
    at_ms: u64,
}

impl Troubles {
    /// Takes a report. Returns whether the node's troubles or its generation of settings have
    /// changed.
    pub(super) fn on_report(&mut self, report: &NodeReport, now: ControllerTime) -> bool {
        let (troubles, generation) = (report.troubles.clone(), report.generation);
        let reported = OwnReport { troubles, generation, at_ms: now.monotonic_ms };
        let before = self.reports.insert(report.node.clone(), reported).unwrap_or_default();
        before.troubles != report.troubles || before.generation != generation
    }

    /// Returns the revision of the settings that a node has taken, as far as it is known.
    pub(super) fn generation(&self, node: &NodeId) -> Option<u64> {
        self.reports.get(node)?.generation
    }

    /// Forgets nodes that do not answer; other state covers them.
    pub(super) fn forget(&mut self, report_max_ms: u64, now: ControllerTime) {
        self.reports.retain(|_, report| now.since(report.at_ms) <= report_max_ms);
    }

    pub(super) fn notes(&self) -> impl Iterator<Item = String> + '_ {
        self.reports.iter().flat_map(|(node, OwnReport { troubles, .. })| {
            troubles.why.iter().map(move |why| format!("{node}: {why}"))
        })
    }

    fn stands_still(&self, node: &NodeId) -> bool {
        self.reports.get(node).is_some_and(|report| report.troubles.is_still)
    }

    /// Returns the nodes of a shard that would not follow this move of it.
    pub(super) fn in_the_way<'a>(
        &'a self,
        entry: &'a ShardEntry,
        transition: &'a Transition,
    ) -> impl Iterator<Item = &'a NodeId> {
        let comes = match transition {
            Transition::AddReplica(who) | Transition::Replace { by: who, .. } => Some(who),
            _ => None,
        };
        let members = entry.members().iter().map(|member| &member.incarnation);
        members.chain(comes).map(|who| &who.worker.node).filter(|node| self.stands_still(node))
    }
}

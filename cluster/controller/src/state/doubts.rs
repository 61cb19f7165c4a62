//! Shards in doubt, and how they continue. A shard is in doubt when nodes have seen a newer entry
//! of it than etcd holds, as after a restore of etcd from a backup.
//!
//! - Nothing is decided on such a shard but how it continues: with the newest entry that a node
//!   still holds. This entry is written automatically where it is certain
//!   ([`weir_map::map::rebase`] defines when), also while everything is frozen; otherwise it waits
//!   for the operator's order.
//! - The shard waits until each node that cannot reach this etcd has lost its registration, and
//!   every other node has read the current state of etcd.
//! - The nodes of all members are conditions of the write: registered or not, as they were seen.

use std::collections::{BTreeMap, BTreeSet};

use weir_etcd::{Key, Swap, SwapChange};
use weir_map::map::{Doubt, Rebased, Stand, Witness, needs_rebase, rebase};
use weir_map::{BootId, Incarnation, NodeId, ShardEntry, ShardId};

use super::event::{NodeDoubts, NodeReport};
use super::job::{Job, event};
use super::journal::PendingEvent;
use super::lives::worker_views;
use super::log_lines::DecisionLine;
use super::time::ControllerTime;
use super::{Controller, words};

/// Most sentences in the report.
const NAMED_MAX: usize = 20;

/// The last doubts that each node reported, and the time of the report.
#[derive(Clone, Debug, Default)]
pub(super) struct Doubts {
    reports: BTreeMap<NodeId, (NodeDoubts, u64)>,
    /// Time since which each shard is in doubt.
    since_ms: BTreeMap<ShardId, u64>,
}

/// The shards in doubt in one decision round.
#[derive(Clone, Debug, Default)]
pub(super) struct InDoubt {
    pub(super) shards: BTreeSet<ShardId>,
    /// Reasons that the first of them do not continue.
    pub(super) why: Vec<String>,
    /// Incarnations on unregistered nodes whose statement is missing.
    pub(super) missing: BTreeMap<NodeId, BTreeSet<BootId>>,
    /// Whether some of them can continue after the wait, automatically or by order.
    pub(super) is_waiting: bool,
}

impl Doubts {
    pub(super) fn on_report(&mut self, report: &NodeReport, now: ControllerTime) {
        self.reports.insert(report.node.clone(), (report.doubts.clone(), now.monotonic_ms));
    }

    /// Forgets all reports: etcd was restored, and they refer to its earlier history.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    fn stand(
        &self,
        node: &NodeId,
        shard: ShardId,
        report_max_ms: u64,
        now: ControllerTime,
    ) -> Stand {
        let report = self.reports.get(node).filter(|(_, at)| now.since(*at) <= report_max_ms);
        let Some((doubts, _)) = report else { return Stand::Silent };
        let last = doubts.shards.keys().next_back();
        match doubts.shards.get(&shard) {
            Some((known, held)) => {
                Stand::InDoubt { known: *known, held: held.clone().map(Box::new) }
            }
            None if doubts.are_all || last.is_some_and(|last| shard < *last) => Stand::Follows,
            None => Stand::Silent,
        }
    }
}

impl Controller {
    /// Returns the shards in doubt; queues jobs for those that can continue.
    pub(super) fn look_at_doubts(&mut self, is_ordered: bool, now: ControllerTime) -> InDoubt {
        let shards = self.doubts.reports.values().flat_map(|(doubts, _)| doubts.shards.keys());
        let shards: BTreeSet<ShardId> = shards.copied().collect();
        let mut found = InDoubt::default();
        for shard in shards {
            let is_wanted = self.view.desired().is_some_and(|desired| desired.has(shard.0));
            // A shard whose key cannot be read is left alone.
            let is_readable = self.view.shards.get(&shard).map(|held| held.value.is_some());
            let witnesses = self.witnesses(shard, now);
            if !is_readable.unwrap_or(is_wanted)
                || !needs_rebase(self.view.entry(shard), &witnesses)
            {
                continue;
            }
            found.shards.insert(shard);
            let since_ms = *self.doubts.since_ms.entry(shard).or_insert(now.monotonic_ms);
            let has_waited = now.since(since_ms) >= self.options.rebase_after_ms;
            self.go_on(shard, &witnesses, has_waited, is_ordered, &mut found);
        }
        self.doubts.since_ms.retain(|shard, _| found.shards.contains(shard));
        found
    }

    fn witnesses(&self, shard: ShardId, now: ControllerTime) -> Vec<Witness> {
        let witnesses = self.view.nodes.iter().map(|(node, held)| {
            let workers = held.value.as_ref().and_then(|record| worker_views(&record.workers));
            let stand = match &workers {
                Some(_) => self.doubts.stand(node, shard, self.options.report_max_ms, now),
                None => Stand::Silent,
            };
            let boot_ids = workers.unwrap_or_default().iter().map(|it| it.boot_id).collect();
            Witness { node: node.clone(), boot_ids, stand }
        });
        witnesses.collect()
    }

    fn go_on(
        &mut self,
        shard: ShardId,
        witnesses: &[Witness],
        has_waited: bool,
        is_ordered: bool,
        found: &mut InDoubt,
    ) {
        let stored = self.view.entry(shard);
        let why = match rebase(stored, witnesses, |who| self.is_declared_ended(who)) {
            Err(why) => format!("shard {shard}: {why}"),
            Ok(_) if !has_waited => {
                found.is_waiting = true;
                format!("shard {shard}: it waits until every node has read what etcd says now")
            }
            Ok(Rebased { entry, doubts }) if doubts.is_empty() || is_ordered => {
                let doubts = words::doubts(&doubts);
                self.jobs.push_back(Job::Rebase { shard, entry: Box::new(entry), doubts });
                return;
            }
            Ok(Rebased { doubts, .. }) => {
                for doubt in &doubts {
                    let Doubt::Missing(who) = doubt else { continue };
                    let lives = found.missing.entry(who.worker.node.clone()).or_default();
                    lives.insert(who.boot_id);
                }
                format!("shard {shard}: {}", words::doubts(&doubts))
            }
        };
        if found.why.len() < NAMED_MAX {
            found.why.push(why);
        }
    }

    /// True if the operator states that the incarnation has ended, and its node is not registered.
    fn is_declared_ended(&self, who: &Incarnation) -> bool {
        let node = &who.worker.node;
        let fence = self.view.intent(node).and_then(|intent| intent.fence.as_ref());
        !self.view.nodes.contains_key(node)
            && fence.is_some_and(|fence| fence.boot_ids.contains(&who.boot_id))
    }

    /// Returns the write of an entry that a shard continues with.
    pub(super) fn rebase_swaps(
        &self,
        shard: ShardId,
        entry: &ShardEntry,
        doubts: &str,
    ) -> (Vec<Swap>, Option<PendingEvent>) {
        let key = Key::Shard(shard);
        let expected = self.view.revision(&key);
        let change = SwapChange::Put(entry.to_json().into_bytes());
        let mut swaps = vec![Swap { key, expected, change }];
        let nodes = entry.members().iter().map(|member| &member.incarnation.worker.node);
        for node in nodes.collect::<BTreeSet<_>>() {
            let key = Key::Node(node.clone());
            let expected = self.view.revision(&key);
            swaps.push(Swap { key, expected, change: SwapChange::Keep });
        }
        let was = self.view.entry(shard).map_or("none".to_owned(), |it| it.epoch().to_string());
        let now = entry.epoch();
        let what = format!("goes on with the newest entry that a node holds, as epoch {now}");
        let mut why = format!("etcd was set back to an entry of epoch {was}");
        if !doubts.is_empty() {
            why = format!("{why}; ordered, although {doubts}");
        }
        let mut pending = event(DecisionLine::Followed, &what, &why);
        pending.shard = Some(shard);
        (swaps, Some(pending))
    }
}

//! Counts how often roles have changed in a history, and why: tests check that the cases they look
//! for have happened.

use std::collections::BTreeMap;

use weir_map::{ShardEntry, ShardId, WorkerId};
use weir_roles::{RolesCounters, Trouble};

use super::World;

/// The counts of a history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoleCounts {
    /// Workers that acted for a primary that they did not hear.
    pub acting: u64,
    /// Workers that became primary in place of one that has ended, and of one that is still a
    /// member.
    pub fenced: u64,
    pub promoted: u64,
    /// Lanes that were granted by a worker that continued to run.
    pub grants: u64,
    /// Changes of the map that were wanted and not written: another one was faster, or etcd did not
    /// answer.
    pub failed_changes: u64,
    /// Members that left the map.
    pub removals: u64,
    /// Processes that took copies as guests, and those that resumed the member slots of their
    /// former incarnations.
    pub guests: u64,
    pub resumed: u64,
}

/// The part of a process's counters that is in the counts already.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    life: u64,
    counters: RolesCounters,
    is_guest: bool,
    is_resuming: bool,
}

#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) counts: RoleCounts,
    /// By node.
    processes: BTreeMap<usize, Counted>,
}

/// Returns how many workers the first map names and the second does not.
pub(super) fn removals(
    before: &BTreeMap<ShardId, ShardEntry>,
    now: &BTreeMap<ShardId, ShardEntry>,
) -> u64 {
    let pairs = before.iter().filter_map(|(shard, before)| Some((before, now.get(shard)?)));
    let removed = pairs.map(|(before, now)| {
        let names = |entry: &ShardEntry, worker: &WorkerId| {
            entry.members().iter().any(|it| it.incarnation.worker == *worker)
        };
        let members = before.members().iter();
        members.filter(|member| !names(now, &member.incarnation.worker)).count() as u64
    });
    removed.sum()
}

impl World {
    /// Updates the counts at every look.
    pub(super) fn tally_roles(&mut self) {
        let entries = self.control.entries();
        let Tally { counts, processes } = &mut self.tally;
        for (number, node) in self.nodes.iter().enumerate() {
            let Some(process) = &node.process else { continue };
            let roles = process.core.roles();
            let counted = processes.entry(number).or_default();
            if counted.life != node.life {
                *counted = Counted { life: node.life, ..Counted::default() };
            }
            let (was, counters) = (counted.counters, roles.counters());
            counts.acting += counters.failovers_silence_total - was.failovers_silence_total;
            counts.fenced += counters.failovers_fenced_total - was.failovers_fenced_total;
            counts.promoted += counters.failovers_promoted_total - was.failovers_promoted_total;
            counts.failed_changes += counters.changes_failed_total - was.changes_failed_total;
            counted.counters = counters;
            let is_guest = |trouble: &Trouble| matches!(trouble, Trouble::Guest);
            if !counted.is_guest
                && roles.statuses().any(|status| status.trouble.as_ref().is_some_and(is_guest))
            {
                counted.is_guest = true;
                counts.guests += 1;
            }
            let was_resuming = std::mem::replace(&mut counted.is_resuming, roles.is_resuming());
            // A process counts as resumed if the map names it when it has finished resuming.
            let mut members = entries.values().flat_map(ShardEntry::members);
            let mut is_named = || members.any(|it| process.boots.contains(&it.incarnation.boot_id));
            counts.resumed += u64::from(was_resuming && !counted.is_resuming && is_named());
        }
    }
}

//! The required effects of a single failure, each within a time, and the forbidden ones.
//!
//! - A process that stalls together with its guard withdraws nothing, and its links stay good. Its
//!   replicas must act on its silence, and the switches must lead to them.
//! - A node whose routing daemon is gone is noticed, and other nodes serve its shards.
//! - A site that has lost all power, but no disk, serves its shards before etcd is back.
//! - A worker that does not hear a primary must not act for it while a third node hears both of
//!   them.

use weir_map::ShardId;
use weir_roles::role::Role;

use super::{Event, World};
use crate::fault::{Fault, SITE_WITHOUT_ETCD_MS};
use crate::site;

/// Longest time from the stop of a process to the routes of other workers in the kernel.
const TAKEN_MAX_US: u64 = 350_000;

/// Longest time from the end of a routing daemon until other nodes serve the shards of its node.
const EMPTIED_MAX_US: u64 = 9_000_000;
/// Time from the return of a site's power until it must serve its shards without etcd.
const SITE_SERVES_MS: u64 = SITE_WITHOUT_ETCD_MS - 1_000;

#[derive(Debug, Default)]
pub(super) struct Promises {
    /// Counts faults: a promise for one ends with the next.
    faults: u64,
    /// A node that does not hear another one, with those shards of the other of which a third node
    /// has a copy as well.
    deaf: Option<(usize, Vec<ShardId>)>,
}

impl World {
    /// Schedules the checks for a fault. `is_only`: it strikes a whole cluster, and nothing else
    /// has failed.
    pub(super) fn promise(&mut self, fault: &Fault, is_only: bool) {
        self.promises.faults += 1;
        self.promises.deaf = None;
        let is_calm = self.active.values().all(|other| !other.is_weather()) && !fault.is_weather();
        if !is_only || !is_calm {
            return;
        }
        match *fault {
            Fault::Suspend { node, ms } => {
                let after_us = TAKEN_MAX_US + self.options.switch_max_us;
                // A switch that does not trust a replica's links yet cannot lead to it. And what
                // the last look found whole may have lost a primary's routes to bad links since.
                let is_trusted = |node: usize| self.switches.iter().all(|it| it.trusts(node));
                let is_ready =
                    (0..self.nodes.len()).all(is_trusted) && self.why_not_whole().is_none();
                if 1_000 * ms > after_us && is_ready {
                    let number = self.promises.faults;
                    self.queue.push(self.now_us + after_us, Event::Taken { node, number });
                }
            }
            // After the end of a leader another one waits for the end of its lease.
            Fault::BirdDown { node, ms }
                if 1_000 * ms >= EMPTIED_MAX_US && self.control.plane.is_led(self.now_us) =>
            {
                let number = self.promises.faults;
                self.queue.push(self.now_us + EMPTIED_MAX_US, Event::Emptied { node, number });
            }
            Fault::Site { ms } => {
                let (number, after_us) = (self.promises.faults, 1_000 * (ms + SITE_SERVES_MS));
                self.queue.push(self.now_us + after_us, Event::SiteServes { number });
            }
            Fault::Deafen { from, to, .. } => {
                let shards = self.shards().filter(|shard| self.is_witnessed(*shard, from, to));
                self.promises.deaf = Some((to, shards.collect()));
            }
            _ => {}
        }
    }

    /// Whether the primary of a shard is on one node, a replica on the other, and a further replica
    /// on a third node.
    fn is_witnessed(&self, shard: ShardId, primary: usize, replica: usize) -> bool {
        let Some(entry) = self.control.entries().get(&shard) else { return false };
        let name = |node: usize| &self.nodes[node].name;
        let nodes: Vec<_> = entry.members().iter().map(|it| &it.incarnation.worker.node).collect();
        nodes.len() > 2 && nodes[0] == name(primary) && nodes.contains(&name(replica))
    }

    /// Checks that no switch leads to a node whose process stalls together with its guard.
    pub(super) fn check_taken(&mut self, node: usize, number: u64) {
        if self.promises.faults != number {
            return;
        }
        for shard in self.shards() {
            for (side, to) in site::routed(shard.0) {
                let hop = self.switches[side as usize].next_hop(to);
                if hop.is_some_and(|position| position.node == node) {
                    return self.fail(format!(
                        "the {} switch still leads {to} of shard {shard} to n{node}, which stands still with its guard",
                        side.name()
                    ));
                }
            }
        }
    }

    /// Checks that other nodes serve the shards of a node whose routing daemon is gone.
    pub(super) fn check_emptied(&mut self, node: usize, number: u64) {
        // After etcd was set back the map is frozen until an operator has looked at it.
        let is_void = self.promises.faults != number || self.control.is_frozen();
        if is_void || self.nodes.len() < 2 {
            return;
        }
        let name = &self.nodes[node].name;
        let is_its =
            |entry: &weir_map::ShardEntry| entry.primary().incarnation.worker.node == *name;
        let left = self.control.entries().iter().find(|(_, entry)| is_its(entry));
        if let Some((shard, _)) = left {
            self.fail(format!("n{node} is primary of shard {shard}, and its BIRD is long gone"));
        }
    }

    /// Checks that a site which has started again without etcd serves every shard.
    pub(super) fn check_site(&mut self, number: u64) {
        if self.promises.faults != number {
            return;
        }
        let serves = |shard: ShardId| {
            let statuses = self.nodes.iter().filter_map(|node| node.process.as_ref());
            let mut statuses = statuses.flat_map(|process| process.core.roles().statuses());
            statuses.any(|status| status.shard == shard && status.role == Role::Primary)
        };
        if let Some(shard) = self.shards().find(|shard| !serves(*shard)) {
            self.fail(format!("nobody serves shard {shard} in a site without etcd"));
        }
    }

    fn has_weather(&self) -> bool {
        self.active.values().any(Fault::is_weather)
    }

    /// Checks that no worker acts for a primary that a third node hears.
    pub(super) fn check_deaf(&mut self) {
        let Some((node, shards)) = &self.promises.deaf else { return };
        let is_over = !self.active.values().any(|fault| matches!(fault, Fault::Deafen { .. }));
        if is_over || self.has_weather() {
            self.promises.deaf = None;
            return;
        }
        let Some(process) = &self.nodes[*node].process else { return };
        let acting = process
            .core
            .roles()
            .statuses()
            .find(|status| status.role == Role::Acting && shards.contains(&status.shard));
        if let Some(shard) = acting.map(|status| status.shard) {
            let node = *node;
            self.fail(format!("n{node} acts for shard {shard}, whose primary others hear"));
        }
    }
}

//! etcd, the controllers and the operator beside the nodes, and the effects of faults on them.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;

use weir_config::{Desired, parse_cluster};
use weir_controller::records::Control as ControlRecord;
use weir_controller::state::{ControllerOptions, NodeReport};
use weir_engine::Side;
use weir_etcd::Key;
use weir_map::{ShardEntry, ShardId};

use super::written::Written;
use super::{Event, World};
use crate::control::{CONTROLLERS, NodeFacts, Plane, PlaneOptions, report_of};
use crate::dice::Dice;
use crate::etcd::{Backup, EtcdModelOptions};
use crate::fault::{Fault, Way};
use crate::node::name_of;
use crate::options::{Commit, Options};
use crate::site;

/// Time between two backups, and the number of backups that are kept.
const BACKUP_US: u64 = 500_000;
const BACKUPS_MAX: usize = 8;
/// After so long an operator stops waiting for a node that holds the newest entry of a shard in
/// doubt.
const REBASE_US: u64 = 40_000_000;
/// A node's observation of its routing daemon counts when it has lasted for so long.
const BIRD_US: u64 = 3_000_000;
/// Delay of a slow etcd, and the additional lag of its watches.
const SLOW_US: (u64, u64) = (1_000, 300_000);
const SLOW_WATCH_US: (u64, u64) = (10_000, 900_000);
/// Shortest time between two steps of the plane.
const STEP_US: u64 = 200;

#[derive(Debug)]
pub(super) struct Control {
    pub(super) plane: Plane,
    options: Options,
    entries: BTreeMap<ShardId, ShardEntry>,
    /// The revision to which they belong.
    revision: i64,
    backups: VecDeque<(u64, Backup)>,
    written: Written,
    keeps_backups: bool,
    due_us: u64,
}

/// Returns the cluster file that an operator would have applied.
fn desired(options: &Options, policy: u64) -> Desired {
    let mut text = format!("[cluster]\nname = \"sim\"\nreplicas = {}\n", options.replicas);
    if let Some(commit) = &options.commit {
        let Commit { replicas, timeout_ms, .. } = commit;
        let on_timeout = if commit.is_strict { "drop" } else { "release" };
        let _ = write!(
            text,
            "commit = \"replicated\"\ncommit_replicas = {replicas}\n\
             commit_timeout_ms = {timeout_ms}\ncommit_on_timeout = \"{on_timeout}\"\n"
        );
    }
    text.push_str(
        "[access]\nmode = \"gre\"\nsubscribers = [\"10.200.0.0/16\"]\n\
         [nat]\nport_block = 64\nflows_max = 16_384\n",
    );
    if let Some(idle_sec) = options.idle_sec {
        let _ = writeln!(text, "quarantine_sec = {}", site::quarantine_sec(idle_sec));
    }
    text.push_str(&site::policy(policy, options.has_pool));
    text.push_str(&site::delegations(options));
    for shard in 1..=options.shards {
        let (endpoint, public) = (site::endpoint(shard), site::public(shard));
        let public6 = site::public6(shard);
        let _ = write!(
            text,
            "[[shard]]\nid = {shard}\nendpoint = \"{endpoint}\"\npublic = [\"{public}\"]\npublic6 = [\"{public6}\"]\nsubscribers_max = {}\n",
            site::SUBSCRIBERS_MAX
        );
    }
    let (desired, _) = parse_cluster(&text, "simulated").expect("the cluster file is valid");
    desired
}

impl Control {
    pub(super) fn new(options: &Options, mut dice: Dice, keeps_backups: bool) -> Self {
        let controller = ControllerOptions {
            moves_per_min: 600,
            balance_wait_ms: 1_000,
            trial_first_ms: 500,
            trial_max_ms: 1_000,
            ..ControllerOptions::new("c", 1)
        };
        let plane = PlaneOptions {
            etcd: EtcdModelOptions::default(),
            management_us: (200, 3_000),
            management_loss: 0,
            controller,
        };
        let mut plane = Plane::new(plane, &desired(options, 0), dice.seed());
        (0..CONTROLLERS).for_each(|controller| plane.start_controller(0, controller, 0));
        Self {
            plane,
            options: options.clone(),
            entries: BTreeMap::new(),
            revision: -1,
            backups: VecDeque::new(),
            written: Written::default(),
            keeps_backups,
            due_us: u64::MAX,
        }
    }

    /// Returns the map as it was last read.
    pub(super) fn entries(&self) -> &BTreeMap<ShardId, ShardEntry> {
        &self.entries
    }

    /// Reads the map, past all faults, and checks the writes since the last look.
    pub(super) fn look(&mut self) -> Result<(), String> {
        self.read();
        self.written.look(&self.plane)
    }

    /// Reads the map, past all faults.
    pub(super) fn read(&mut self) {
        let revision = self.plane.etcd.revision().0;
        if self.revision != revision {
            self.revision = revision;
            self.entries = self.plane.operator.entries(&self.plane.etcd).into_iter().collect();
        }
    }

    /// Returns the revision of the cluster's file.
    pub(super) fn settings_number(&self) -> u64 {
        let held = self.plane.etcd.get(&self.plane.keys().path(&Key::Desired));
        held.map_or(0, |held| held.mod_revision.0.try_into().unwrap_or(0))
    }

    pub(super) fn end(&mut self, node: usize) {
        self.plane.end_node(node);
    }

    pub(super) fn forget_lives(&mut self, node: usize) {
        self.plane.forget_lives(node);
    }

    pub(super) fn strike(&mut self, now_us: u64, fault: &Fault) {
        let plane = &mut self.plane;
        match *fault {
            Fault::NoController { .. } => (0..CONTROLLERS).for_each(|it| plane.end_controller(it)),
            Fault::CutStore { node, way, .. } => {
                let (to, from) = (way.includes(Way::Out), way.includes(Way::In));
                plane.etcd.cut(Plane::node_client(node), to, from);
            }
            Fault::CutOff { node, .. } => {
                plane.etcd.cut(Plane::node_client(node), true, true);
                self.cut_management(node, true);
            }
            Fault::StallWatch { node, .. } => plane.etcd.stall_watches(Plane::node_client(node)),
            Fault::StoreDown { .. } | Fault::Site { .. } => plane.etcd.kill(now_us),
            Fault::StoreLeaderless { .. } => plane.etcd.lose_leader(now_us),
            Fault::StorePaused { .. } => plane.etcd.pause(),
            Fault::StoreSlow { .. } => plane.etcd.slow(SLOW_US, SLOW_WATCH_US),
            Fault::StoreFull { .. } => plane.etcd.set_space(false),
            Fault::StopController { controller, .. } => plane.stop_controller(controller, true),
            Fault::CutController { controller, way, .. } => {
                let (to, from) = (way.includes(Way::Out), way.includes(Way::In));
                plane.etcd.cut(Plane::controller_client(controller), to, from);
            }
            Fault::Drain { node, .. } => {
                plane.operator.drain(now_us, &mut plane.etcd, &name_of(node), false);
            }
            Fault::LoseLease { node } => {
                let path = plane.keys().path(&Key::Node(name_of(node)));
                plane.etcd.revoke_lease_of(now_us, &path);
            }
            Fault::Apply { policy } => {
                let desired = desired(&self.options, policy);
                // The cluster exists: its identity stays.
                plane.operator.apply(now_us, &mut plane.etcd, &desired, 0);
            }
            Fault::Compact => plane.etcd.compact(0),
            Fault::Restore { back_ms } => {
                let is_old = |(at_us, _): &&(u64, Backup)| at_us + 1_000 * back_ms <= now_us;
                if let Some((_, backup)) = self.backups.iter().rev().find(is_old) {
                    plane.etcd.restore(now_us, backup, true);
                    self.written.restored(plane);
                }
            }
            _ => {}
        }
    }

    /// Mends a fault. `left`: the faults that still last.
    pub(super) fn mend<'a>(
        &mut self,
        now_us: u64,
        fault: &Fault,
        mut left: impl Iterator<Item = &'a Fault>,
    ) {
        if let Fault::CutOff { node, .. } = *fault {
            self.cut_management(node, false);
        }
        let plane = &mut self.plane;
        let is_still = left.any(|other| match (fault, other) {
            (
                Fault::CutStore { node, .. } | Fault::CutOff { node, .. },
                Fault::CutStore { node: of, .. } | Fault::CutOff { node: of, .. },
            ) => node == of,
            (Fault::Drain { node, .. }, Fault::Drain { node: of, .. }) => node == of,
            (
                Fault::StopController { controller: one, .. },
                Fault::StopController { controller: other, .. },
            )
            | (
                Fault::CutController { controller: one, .. },
                Fault::CutController { controller: other, .. },
            ) => one == other,
            (
                Fault::StoreDown { .. } | Fault::Site { .. },
                Fault::StoreDown { .. } | Fault::Site { .. },
            ) => true,
            (one, other) => std::mem::discriminant(one) == std::mem::discriminant(other),
        });
        if is_still {
            return;
        }
        match *fault {
            Fault::NoController { .. } => {
                (0..CONTROLLERS).for_each(|it| plane.start_controller(now_us, it, 0));
            }
            Fault::CutStore { node, .. } | Fault::CutOff { node, .. } => {
                plane.etcd.mend(now_us, Plane::node_client(node));
            }
            Fault::StoreDown { .. } | Fault::Site { .. } => plane.etcd.start(now_us),
            Fault::StoreLeaderless { .. } => plane.etcd.elect(now_us),
            Fault::StorePaused { .. } => plane.etcd.resume(now_us),
            Fault::StoreSlow { .. } => {
                let EtcdModelOptions { delay_us, watch_lag_us, .. } = EtcdModelOptions::default();
                plane.etcd.slow(delay_us, watch_lag_us);
            }
            Fault::StoreFull { .. } => plane.etcd.set_space(true),
            Fault::StopController { controller, .. } => plane.stop_controller(controller, false),
            Fault::CutController { controller, .. } => {
                plane.etcd.mend(now_us, Plane::controller_client(controller));
            }
            Fault::Drain { node, .. } => {
                plane.operator.undrain(now_us, &mut plane.etcd, &name_of(node));
            }
            _ => {}
        }
    }

    fn cut_management(&mut self, node: usize, is_cut: bool) {
        self.plane.management.cut(&name_of(node), is_cut);
    }

    /// True if no shard is moved until an operator ends the freeze.
    pub(super) fn is_frozen(&self) -> bool {
        let record = self.plane.operator.read::<ControlRecord>(&self.plane.etcd, &Key::Control);
        record.is_some_and(|record| record.freeze.is_some())
    }

    /// Does what an operator does after etcd was set back: takes back the orders that have
    /// reappeared in it, and the freeze that follows. `is_late`: also lets shards continue whose
    /// newest entry no node holds.
    pub(super) fn operate(&mut self, now_us: u64, is_late: bool) {
        let Plane { operator, etcd, .. } = &mut self.plane;
        operator.unfreeze(now_us, etcd);
        (0..self.options.nodes).for_each(|node| operator.undrain(now_us, etcd, &name_of(node)));
        if is_late {
            operator.rebase(now_us, etcd);
        }
    }

    fn back_up(&mut self, now_us: u64) {
        let is_due = self.backups.back().is_none_or(|(at_us, _)| now_us >= at_us + BACKUP_US);
        if self.keeps_backups && is_due && self.plane.etcd.is_up() {
            self.backups.push_back((now_us, self.plane.etcd.back_up()));
            if self.backups.len() > BACKUPS_MAX {
                self.backups.pop_front();
            }
        }
    }
}

impl World {
    /// Schedules the next step of etcd and its clients.
    pub(super) fn wake_control(&mut self) {
        let Some(next_us) = self.control.plane.next_us() else { return };
        let due_us = next_us.max(self.now_us + STEP_US);
        if due_us < self.control.due_us {
            self.control.due_us = due_us;
            self.queue.push(due_us, Event::Control);
        }
    }

    /// Lets an operator look after a cluster that is not whole so long after the last fault, if
    /// etcd was set back.
    pub(crate) fn operate(&mut self, waited_us: u64) {
        if self.control.keeps_backups {
            self.control.operate(self.now_us, waited_us >= REBASE_US);
            self.wake_control();
        }
    }

    pub(super) fn control(&mut self) {
        let now_us = self.now_us;
        if self.control.due_us != now_us {
            return;
        }
        self.control.due_us = u64::MAX;
        for node in 0..self.nodes.len() {
            let is_stopped = self.stopped_until(node).is_some();
            self.control.plane.stop_node(node, is_stopped);
        }
        let noticed = |node| self.bird_gone_since(node).is_some_and(|at| now_us >= at + BIRD_US);
        let bird_gone: Vec<bool> = (0..self.nodes.len()).map(noticed).collect();
        let nodes = &self.nodes;
        let inputs =
            self.control.plane.poll(now_us, |node| report(nodes.get(node)?, bird_gone[node]));
        self.control.back_up(now_us);
        let mut concerned: Vec<usize> = Vec::new();
        for (node, input) in inputs {
            self.take_input(node, input);
            concerned.push(node);
        }
        concerned.dedup();
        for node in concerned {
            self.carry_out(node);
        }
        self.wake_control();
    }
}

/// Returns the answer of a node to a controller.
fn report(node: &crate::node::Node, is_bird_gone: bool) -> Option<NodeReport> {
    let process = node.process.as_ref()?;
    let is_broken = |worker: &u16| {
        let engine = process.workers[usize::from(*worker)].engine();
        Side::ALL.iter().any(|&side| !engine.admin().gateway_up(side))
    };
    let broken = (0..process.workers.len() as u16).filter(is_broken).collect();
    let load = |_: usize, _: ShardId| 1;
    Some(report_of(&process.core, NodeFacts { broken, is_bird_gone, load }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_is_valid_and_reads_back_from_etcd() {
        for policy in 0..200 {
            let desired = desired(&Options::of_seed(policy), policy);
            let read = Desired::from_json(&desired.to_json());
            assert_eq!(read.expect("it was written by this version"), desired, "policy {policy}");
        }
    }
}

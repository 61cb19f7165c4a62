//! A machine of the cluster: its disk, its clock, and the process that runs on it, if one does.

mod guard;
mod process;
mod roles;
mod worker;

use std::collections::BTreeMap;

use weir_shard::{Epoch, NodeId, ShardId};
use weir_steer::Route;

use crate::clock::Clock;

pub(crate) use guard::{Guard, GuardNews};
pub(crate) use process::{Inbox, Process, ProcessConfig, Stopping};
pub(crate) use roles::RouteOrder;
pub(crate) use worker::{Turn, Worker};

/// What outlives a process.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) name: NodeId,
    pub(crate) clock: Clock,
    /// The machine has power.
    pub(crate) is_up: bool,
    pub(crate) process: Option<Process>,
    /// Counts the processes: what is on its way to a former one is not for the next.
    pub(crate) life: u64,
    /// On the disk.
    pub(crate) known_epochs: BTreeMap<ShardId, Epoch>,
    /// What the routing daemon would tell a switch that has just come back, by worker: both sides.
    pub(crate) kernel_routes: Vec<Vec<Route>>,
    /// When the last change of routes comes to each switch: changes stay in their order.
    pub(crate) routes_due_us: [u64; 2],
}

impl Node {
    pub(crate) fn new(number: usize, workers: usize, clock: Clock) -> Self {
        Self {
            name: NodeId::new(&format!("n{number}")).expect("a name"),
            clock,
            is_up: true,
            process: None,
            life: 0,
            known_epochs: BTreeMap::new(),
            kernel_routes: vec![Vec::new(); workers],
            routes_due_us: [0; 2],
        }
    }

    /// What the node's clock shows, milliseconds.
    pub(crate) fn clock_ms(&self, now_us: u64) -> u64 {
        self.clock.at(now_us) / 1_000
    }
}

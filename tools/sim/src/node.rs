//! A machine of the cluster: its disk, its clock, and the process that runs on it, if any.

mod guard;
mod inbox;
mod process;
mod worker;

use weir_map::NodeId;
use weir_node_core::KnownMap;
use weir_routes::Route;

use crate::clock::Clock;

pub(crate) use guard::Guard;
pub(crate) use inbox::{Inbox, Message};
pub(crate) use process::{Process, ProcessConfig, RouteOrder};
pub(crate) use worker::{Turn, Worker};

/// The state that outlives a process.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) name: NodeId,
    pub(crate) clock: Clock,
    /// True if the machine has power.
    pub(crate) is_up: bool,
    pub(crate) process: Option<Process>,
    /// Counts the processes: messages on their way to a former one are not for the next.
    pub(crate) life: u64,
    /// The map on the disk.
    pub(crate) disk: KnownMap,
    /// After an orderly end it is started again after so long, milliseconds.
    pub(crate) stops_for_ms: Option<u64>,
    /// Routes of each worker, both sides, that the routing daemon would announce to a switch that
    /// has just come back.
    pub(crate) kernel_routes: Vec<Vec<Route>>,
    /// When the last change of routes reaches each switch: changes stay in their order.
    pub(crate) routes_due_us: [u64; 2],
}

/// Returns the name of a node from its number.
pub(crate) fn name_of(number: usize) -> NodeId {
    NodeId::new(&format!("n{number}")).expect("a name")
}

impl Node {
    pub(crate) fn new(number: usize, workers: usize, clock: Clock) -> Self {
        Self {
            name: name_of(number),
            clock,
            is_up: true,
            process: None,
            life: 0,
            disk: KnownMap::default(),
            stops_for_ms: None,
            kernel_routes: vec![Vec::new(); workers],
            routes_due_us: [0; 2],
        }
    }

    /// Returns the time of the node's clock in milliseconds.
    pub(crate) fn clock_ms(&self, now_us: u64) -> u64 {
        self.clock.at(now_us) / 1_000
    }
}

//! A node's answer to the question of a controller, made from the state of its roles.

use weir_controller::records::DOUBTS_MAX;
use weir_controller::state::{BirdDown, NodeDoubts, NodeReport, NodeTroubles};
use weir_map::ShardId;
use weir_node_core::Core;

const BIRD_GONE: [BirdDown; 2] = [
    BirdDown { side: "access", why: "BIRD does not answer" },
    BirdDown { side: "internet", why: "BIRD does not answer" },
];

/// Facts about a node that its roles do not know.
#[derive(Debug)]
pub struct NodeFacts<F> {
    /// Workers, as positions, with a side that is down or not up yet.
    pub broken: Vec<u16>,
    /// True if its routing daemon is gone.
    pub is_bird_gone: bool,
    /// Returns the load of a shard whose primary is on a worker.
    pub load: F,
}

/// Returns the report as a node sends it over HTTP and a controller reads it.
pub fn report_of<F: Fn(usize, ShardId) -> u64>(core: &Core, facts: NodeFacts<F>) -> NodeReport {
    let roles = core.roles();
    let report = roles.report(facts.load);
    let doubts = roles.doubts().take(DOUBTS_MAX);
    let doubts = doubts.map(|(shard, known, held)| (shard, (known, held.cloned())));
    NodeReport {
        node: core.node().clone(),
        hears: report.hears,
        loads: report.loads,
        broken: facts.broken,
        bird_down: if facts.is_bird_gone { BIRD_GONE.to_vec() } else { Vec::new() },
        acting: report.acting,
        doubts: NodeDoubts {
            shards: doubts.collect(),
            are_all: roles.doubts().count() <= DOUBTS_MAX,
        },
        generation: None,
        troubles: NodeTroubles::default(),
    }
}

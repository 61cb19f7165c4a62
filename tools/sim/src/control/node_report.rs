//! What a node answers a controller that asks, made of what its roles show.

use weir_controller::records::DOUBTS_MAX;
use weir_controller::state::{BirdDown, NodeDoubts, NodeReport, NodeTroubles};
use weir_map::ShardId;
use weir_node_core::Core;

const BIRD_GONE: [BirdDown; 2] = [
    BirdDown { side: "access", why: "BIRD does not answer" },
    BirdDown { side: "internet", why: "BIRD does not answer" },
];

/// What roles do not know of their node.
#[derive(Debug)]
pub struct NodeFacts<F> {
    /// Workers, by their positions, with a side that is down or not up yet.
    pub broken: Vec<u16>,
    /// Its routing daemon is gone.
    pub is_bird_gone: bool,
    /// The load of a shard that a worker is primary of.
    pub load: F,
}

/// As a node shows it over HTTP and a controller understands it.
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
        troubles: NodeTroubles::default(),
    }
}

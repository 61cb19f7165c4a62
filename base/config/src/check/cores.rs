//! Each worker has a core of its own; other threads stay off these cores.

use crate::check::refuse_repeats;
use crate::findings::Findings;
use crate::types::{NodeSettings, WorkerSettings};

pub(crate) fn check(node: &NodeSettings, workers: &[WorkerSettings], findings: &mut Findings<'_>) {
    let cores = workers.iter().enumerate();
    let cores: Vec<_> =
        cores.map(|(index, worker)| (format!("worker[{index}].core"), worker.core)).collect();
    refuse_repeats(cores.clone(), "core", findings);

    let control = node.control_cores.iter().flatten().enumerate();
    for (index, control_core) in control {
        if let Some((worker, core)) = cores.iter().find(|(_, core)| core == control_core) {
            let key = findings.element("node.control_cores", index);
            if findings.is_good(worker) && findings.is_good(&key) {
                let message = format!("core {core} belongs to a worker ({worker})");
                findings.warning(&key, message, "its packets wait while other threads run");
            }
        }
    }
}

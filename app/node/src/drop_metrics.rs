//! Numbers of the packets that workers dropped, and of their answers about them.

use std::fmt::Error;

use weir_engine::{DropReason, EngineCounters, Side};
use weir_process::metrics::{Family, Labels, NO_LABEL};

use crate::metrics::Numbered;

pub(crate) fn drops(family: &mut Family<'_, '_>, workers: &[Numbered<'_>]) -> Result<(), Error> {
    let mut series = Vec::new();
    for (number, worker) in workers {
        for reason in DropReason::ALL {
            let labels = Labels([("worker", number), ("reason", reason.name()), NO_LABEL]);
            series.push((labels, worker.stats.engine.dropped(*reason)));
        }
    }
    family.counter("weir_drops", "Packets dropped, by reason.", series)?;
    let errors = answers(workers, |engine, side| {
        [engine.icmp_errors(side), engine.icmp_errors_limited(side)]
    });
    family.counter("weir_icmp_errors", "ICMP errors of the worker about packets.", errors)?;
    let resets =
        answers(workers, |engine, side| [engine.resets(side), engine.resets_limited(side)]);
    let help = "TCP resets of the worker about segments that a rule rejects.";
    family.counter("weir_tcp_resets", help, resets)
}

/// Returns the numbers of answers that were sent to each side, and of those that a limit kept back.
fn answers<'a>(
    workers: &'a [Numbered<'_>],
    counts: impl Fn(&EngineCounters, Side) -> [u64; 2],
) -> Vec<(Labels<'a>, u64)> {
    let mut series = Vec::new();
    for (number, worker) in workers {
        for side in Side::ALL {
            let counts = counts(&worker.stats.engine, side);
            for (result, count) in ["sent", "limited"].into_iter().zip(counts) {
                let labels =
                    Labels([("worker", number), ("side", side.name()), ("result", result)]);
                series.push((labels, count));
            }
        }
    }
    series
}

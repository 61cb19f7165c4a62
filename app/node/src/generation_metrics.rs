//! Metrics of the settings that change while the node runs.

use std::fmt::Error;

use weir_admin::api::RuleCount;
use weir_process::metrics::{Family, Labels, NO_LABEL};

use crate::generations::Generations;
use crate::metrics::{Numbered, per_worker};

/// Encodes the generations of the workers and of the node.
pub(crate) fn generations(
    family: &mut Family<'_, '_>,
    generations: &Generations,
    workers: &[Numbered<'_>],
) -> Result<(), Error> {
    let alone = |value: f64| [(Labels([NO_LABEL; 3]), value)];
    let in_force = per_worker(workers, |stats| stats.generation.get() as f64);
    let help = "Number of the generation of settings that the worker has taken.";
    family.gauge("weir_generation", help, in_force)?;
    let help = "Number of the newest generation of settings that the node was to take.";
    family.gauge("weir_generation_wanted", help, alone(generations.number() as f64))?;
    let is_refused = generations.status().refused.is_some();
    let help = "1 after settings were refused, until settings are taken.";
    family.gauge("weir_generation_refused", help, alone(f64::from(u8::from(is_refused))))?;
    let help = "Time for which the newest generation was compiled.";
    family.gauge("weir_generation_build_seconds", help, alone(generations.build_seconds()))?;
    let help = "Time from the end of that compilation until all workers had taken the generation.";
    family.gauge("weir_generation_swap_seconds", help, alone(generations.swap_seconds()))
}

/// Encodes what each rule has decided, all workers together.
pub(crate) fn rules(family: &mut Family<'_, '_>, counts: &[RuleCount]) -> Result<(), Error> {
    let series = counts.iter().map(|count| {
        let labels = [("rule", count.rule.as_str()), ("action", count.action.as_str()), NO_LABEL];
        (Labels(labels), count.hits_total)
    });
    let help = "First packets that the rule decided on, since its settings came into force.";
    family.counter("weir_rule_hits", help, series)
}

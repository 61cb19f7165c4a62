//! Rates found by binary search: the maximum connection establishment rate of RFC 9693, and RFC
//! 2544 section 26.1 with the two phases of RFC 9693 (throughput without loss).

pub mod bisection;

use serde::{Deserialize, Serialize};

use self::bisection::Bisection;
use crate::generator::{FloodPlan, Generator, Load};

/// Share of its rate that a step must have offered; otherwise it has failed, since a port whose
/// ring is full waits instead of losing packets. The rest to 1 is a tolerance for hiccups of the
/// machine.
const OFFERED_MIN: f64 = 0.95;

/// The searched quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// New flows per second: every flow of a step arrives, and one packet back to each is
    /// delivered.
    Establish,
    /// Packets per second of both directions through established flows without a loss.
    Throughput,
}

#[derive(Clone, Copy, Debug)]
pub struct SearchPlan {
    pub metric: Metric,
    /// Independent searches.
    pub trials: u32,
    /// End of a search: the width of the remaining interval, as a share of its upper end.
    pub precision: f64,
    /// The highest rate to try.
    pub rate_max: f64,
    /// Flows of each step of `Metric::Establish`.
    pub flows_per_step: u32,
    /// Rate of the validation divided by the rate of the step (RFC 9693's alpha).
    pub validation_share: f64,
    /// Length of the steps of `Metric::Throughput`.
    pub flood: FloodPlan,
    /// Shares of the packets in these steps.
    pub load: Load,
}

impl SearchPlan {
    pub fn establishes(&self) -> bool {
        self.metric == Metric::Establish
    }

    /// Returns the steps of all trials: each step of `Metric::Establish` needs new flows.
    pub fn steps(&self) -> u32 {
        self.trials * Bisection::steps(self.precision)
    }
}

/// One step of a search.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Counted from 1.
    pub trial: u32,
    /// Requested flows or packets per second.
    pub rate: f64,
    /// Offered rate: lower if the generator or the port is the limit.
    pub offered: f64,
    pub passed: bool,
    pub sent: u64,
    pub lost: u64,
    pub wrong: u64,
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Found {
    pub metric: Metric,
    /// The highest rate offered in a passed step, per trial; 0 if none passed.
    pub rates: Vec<f64>,
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Found {
    fn new(metric: Metric, rates: Vec<f64>) -> Self {
        let mut sorted = rates.clone();
        sorted.sort_by(f64::total_cmp);
        let (low, high) = (sorted.len().saturating_sub(1) / 2, sorted.len() / 2);
        let at = |index: usize| sorted.get(index).copied().unwrap_or(0.0);
        Found {
            metric,
            median: (at(low) + at(high)) / 2.0,
            min: at(0),
            max: at(sorted.len().saturating_sub(1)),
            rates,
        }
    }
}

/// Runs all trials and reports each step. For `Metric::Throughput` all flows are established
/// before; for `Metric::Establish` none.
pub fn run(generator: &mut Generator, plan: &SearchPlan, mut report: impl FnMut(Step)) -> Found {
    let mut rates = Vec::new();
    let mut first = 0;
    for trial in 1..=plan.trials {
        let mut search = Bisection::new(plan.rate_max, plan.precision);
        let mut best = 0.0f64;
        while let Some(rate) = search.next_rate() {
            let step = match plan.metric {
                Metric::Establish => {
                    let flows = first..first + plan.flows_per_step as usize;
                    first = flows.end;
                    establish(generator, plan, trial, flows, rate)
                }
                Metric::Throughput => throughput(generator, plan, trial, rate),
            };
            if step.passed {
                best = best.max(step.offered);
            }
            search.enter(step.passed);
            report(step);
        }
        rates.push(best);
    }
    Found::new(plan.metric, rates)
}

fn establish(
    generator: &mut Generator,
    plan: &SearchPlan,
    trial: u32,
    flows: std::ops::Range<usize>,
    rate: f64,
) -> Step {
    let learned = generator.establish(flows.clone(), rate);
    let all_arrived = learned.missing == 0 && learned.wrong == 0;
    let (mut lost, mut wrong) = (u64::from(learned.missing), learned.wrong);
    let mut passed = all_arrived;
    if all_arrived {
        let validated = generator.validate(flows, rate * plan.validation_share);
        passed = validated.is_complete();
        lost += validated.account.lost();
        wrong += validated.account.wrong();
    }
    let offered = learned.offered().min(rate);
    passed &= offered >= OFFERED_MIN * rate;
    Step { trial, rate, offered, passed, sent: learned.sent, lost, wrong }
}

fn throughput(generator: &mut Generator, plan: &SearchPlan, trial: u32, rate: f64) -> Step {
    let load = Load { rate: Some(rate), ..plan.load };
    let flood = generator.flood(plan.flood, load, |_| {});
    let offered = flood.offered_pps.unwrap_or(0.0).min(rate);
    let is_clean = flood.lost() == 0 && flood.wrong() == 0;
    Step {
        trial,
        rate,
        offered,
        passed: is_clean && offered >= OFFERED_MIN * rate,
        sent: flood.sent(),
        lost: flood.lost(),
        wrong: flood.wrong(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_the_trials_is_found() {
        let found = Found::new(Metric::Throughput, vec![3.0, 1.0, 2.0]);
        assert_eq!((found.median, found.min, found.max), (2.0, 1.0, 3.0));
        assert_eq!(Found::new(Metric::Throughput, vec![1.0, 2.0]).median, 1.5);
        assert_eq!(Found::new(Metric::Establish, vec![]).max, 0.0);
    }
}

//! `weir-lab traffic search`: the rates of RFC 9693, by binary search.

use std::time::Duration;

use anyhow::ensure;
use weir_traffic::generator::{FloodPlan, Load};
use weir_traffic::run::{Event, Task};
use weir_traffic::search::{Found, Metric, SearchPlan, Step};

use super::{TrafficArgs, checked_flows, percent, rate, seconds};

/// Search the highest rate that a device passes (RFC 9693): new flows, or packets without loss.
///
/// establish: each step opens --flows new flows at a rate. It passes when every one arrives and one
/// packet back to each home is delivered. Every step has flows of its own, so the device's table
/// must hold --flows times the steps of all trials; the number is printed when it starts.
///
/// throughput: --flows are established once; a step passes when no packet of both directions is
/// lost or wrong.
///
///   weir-lab traffic search --metric establish --flows 100000 --access ... --internet ...
///   weir-lab traffic search --metric throughput --seconds 60 --access ... --internet ...
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    #[command(flatten)]
    traffic: TrafficArgs,

    /// What to search.
    #[arg(long, value_name = "METRIC")]
    metric: MetricName,

    /// Number of flows: of each step (establish), or of the whole search (throughput).
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    flows: u32,

    /// Independent searches; their median, least and most are the result.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    trials: u32,

    /// Where a search ends: the interval that is left, in percent of the highest rate.
    #[arg(long, value_name = "PERCENT", default_value = "1", value_parser = percent)]
    precision: f64,

    /// The highest rate to try, per second: flows, or packets of both directions together.
    #[arg(long, value_name = "PPS", default_value = "20e6", value_parser = rate)]
    rate: f64,

    /// establish: rate of the packets back, in percent of the step's rate.
    #[arg(long, value_name = "PERCENT", default_value = "100", value_parser = percent)]
    validation: f64,

    /// throughput: seconds of a step.
    #[arg(long, value_name = "S", default_value = "2", value_parser = seconds)]
    seconds: Duration,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum MetricName {
    Establish,
    Throughput,
}

pub(super) fn run(args: Args) -> anyhow::Result<()> {
    ensure!(args.precision > 0.0, "--precision 0 never ends");
    ensure!(args.validation > 0.0, "--validation 0 validates nothing");
    ensure!(!args.seconds.is_zero(), "--seconds 0 measures nothing");
    let plan = SearchPlan {
        metric: match args.metric {
            MetricName::Establish => Metric::Establish,
            MetricName::Throughput => Metric::Throughput,
        },
        trials: args.trials,
        precision: args.precision,
        rate_max: args.rate,
        flows_per_step: args.flows,
        validation_share: args.validation,
        flood: FloodPlan { warm_up: Duration::ZERO, measured: args.seconds, settles: false },
        load: Load { up_share: args.traffic.up_share, ..Load::default() },
    };
    let all = if plan.establishes() {
        checked_flows(u64::from(args.flows) * u64::from(plan.steps()))?
    } else {
        args.flows
    };
    let scenario = args.traffic.scenario(args.flows, all - args.flows)?;
    eprintln!(
        "{all} flows at most, {} homes, {} shards",
        scenario.subscribers(),
        scenario.shards()
    );
    args.traffic.run(scenario, Task::Search(plan), Duration::ZERO, |event| match event {
        Event::Step(step) => Some(step_line(step)),
        Event::Found(found) => Some(result(found)),
        _ => None,
    })
}

fn step_line(step: &Step) -> String {
    format!(
        "trial {:>3}  {:>12.0}/s  offered {:>12.0}/s  {}  lost {}, wrong {}\n",
        step.trial,
        step.rate,
        step.offered,
        if step.passed { "passed" } else { "failed" },
        step.lost,
        step.wrong,
    )
}

fn result(found: &Found) -> String {
    let name = match found.metric {
        Metric::Establish => "maximum connection establishment rate",
        Metric::Throughput => "throughput without loss",
    };
    format!(
        "{name}: median {:.0}/s, least {:.0}, most {:.0}, of {} trials\n",
        found.median,
        found.min,
        found.max,
        found.rates.len()
    )
}

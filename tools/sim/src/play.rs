//! One history from its beginning to its end.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::fault::Timed;
use crate::options::Options;
use crate::schedule;
use crate::world::{Counts, LogCounts, RoleCounts, World};

/// Time between two looks at whether the cluster is whole again.
const LOOK_US: u64 = 100_000;
/// Time between two interventions of an operator.
const OPERATOR_US: u64 = 10_000_000;
/// Time for which the cluster must stay whole, under traffic that loses no packet.
const CALM_US: u64 = 1_500_000;
/// Time after that in which packets that are under way may arrive.
const DRAIN_US: u64 = 2_000_000;

/// The outcome of a history.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub seed: u64,
    /// Why it failed; `None` if it did not.
    pub violation: Option<String>,
    pub events: u64,
    pub simulated_us: u64,
    pub counts: Counts,
    pub role_counts: RoleCounts,
    pub log_counts: LogCounts,
    /// Equal for equal runs.
    pub digest: u64,
    pub timeline: Vec<String>,
}

/// Plays the history of a seed.
pub fn play(seed: u64) -> Outcome {
    let options = Options::of_seed(seed);
    let faults = schedule::draw(seed, &options);
    play_with(seed, &options, &faults, false)
}

/// Plays a history with these faults instead of its own. `keeps_timeline`: with a timeline. A panic
/// is a failure like any other.
pub fn play_with(seed: u64, options: &Options, faults: &[Timed], keeps_timeline: bool) -> Outcome {
    let mut world = World::new(seed, options, faults, keeps_timeline);
    let played = catch_unwind(AssertUnwindSafe(|| run(&mut world, options, faults)));
    let violation = match played {
        Ok(()) => world.violation.take(),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Some(format!("panic: {}", text.unwrap_or_default()))
        }
    };
    Outcome {
        seed,
        violation,
        events: world.events,
        simulated_us: world.now_us,
        counts: world.counts(),
        role_counts: world.role_counts(),
        log_counts: world.log_counts(),
        digest: world.digest,
        timeline: world.timeline.lines().collect(),
    }
}

fn run(world: &mut World, options: &Options, faults: &[Timed]) {
    world.run_to(options.start_us);
    if options.is_one_by_one {
        for (number, timed) in faults.iter().enumerate() {
            heal(world, options, World::is_whole);
            world.strike_after(number, timed.after_us);
            world.run_to(world.now_us + timed.after_us + 1_000 * timed.fault.ms());
        }
    } else {
        let ends = faults.iter().map(|timed| timed.after_us + 1_000 * timed.fault.ms());
        world.run_to(options.start_us + ends.max().unwrap_or(0));
    }
    world.begin_rest();
    heal(world, options, World::is_at_rest);
    if world.violation.is_some() {
        return;
    }
    world.begin_calm();
    world.run_to(world.now_us + CALM_US);
    world.stop_traffic();
    world.run_to(world.now_us + DRAIN_US);
    if world.violation.is_none() {
        world.end_calm();
        world.ask_block_logs();
    }
}

/// Runs until the cluster is whole.
fn heal(world: &mut World, options: &Options, is_healed: fn(&World) -> bool) {
    let began_us = world.now_us;
    let until_us = began_us + options.heal_max_us;
    while world.violation.is_none() {
        world.run_to(world.now_us + LOOK_US);
        if is_healed(world) {
            return;
        }
        let waited_us = world.now_us - began_us;
        if waited_us.is_multiple_of(OPERATOR_US) {
            world.operate(waited_us);
        }
        if world.now_us >= until_us {
            let why =
                world.why_not_whole().unwrap_or_else(|| "the map changes again and again".into());
            world.fail(format!("never whole and at rest: {why}"));
        }
    }
}

//! 500 histories, one thread per core: none fails, those without faults lose nothing, and their
//! reports are correct.

use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use weir_sim::{Counts, Outcome, play};

const SEEDS: u64 = 500;

/// Plays every seed; returns the outcomes in the order of the seeds.
fn play_all(seeds: std::ops::Range<u64>) -> Vec<Outcome> {
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let next = Mutex::new(seeds);
    let outcomes = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(seed) = { next.lock().unwrap().next() } {
                    let outcome = play(seed);
                    outcomes.lock().unwrap().push(outcome);
                }
            });
        }
    });
    let mut outcomes = outcomes.into_inner().unwrap();
    outcomes.sort_by_key(|outcome| outcome.seed);
    outcomes
}

#[test]
fn no_history_fails() {
    let began = Instant::now();
    let outcomes = play_all(0..SEEDS);
    let events: u64 = outcomes.iter().map(|outcome| outcome.events).sum();
    let simulated_us: u64 = outcomes.iter().map(|outcome| outcome.simulated_us).sum();
    let real = began.elapsed().as_secs_f64();
    println!(
        "{SEEDS} seeds: {events} events, {:.0} s simulated in {real:.0} s: {:.0} events/s",
        simulated_us as f64 / 1e6,
        events as f64 / real
    );
    let failed: Vec<String> = outcomes
        .iter()
        .filter_map(|outcome| {
            let violation = outcome.violation.as_ref()?;
            let seed = outcome.seed;
            Some(format!("cargo run --release -p weir-sim -- --seed {seed} --shrink: {violation}"))
        })
        .collect();
    assert!(failed.is_empty(), "{} of {SEEDS}:\n{}", failed.len(), failed.join("\n"));
    // Every checked event has happened, often.
    let sum =
        |of: fn(&Counts) -> u64| outcomes.iter().map(|outcome| of(&outcome.counts)).sum::<u64>();
    let packets = [
        sum(|it| it.up_received),
        sum(|it| it.down_received),
        sum(|it| it.probes),
        sum(|it| it.forbidden),
        sum(|it| it.probes6),
    ];
    assert!(packets.iter().all(|&count| count > 100 * SEEDS), "{packets:?}");
    assert!(sum(|it| it.forwarded) > 10 * SEEDS, "packets through the port forward");
    assert!(sum(|it| it.protected) > 10 * SEEDS, "flows that had to survive a failure");
    assert!(sum(|it| it.protected6) > 2 * SEEDS, "IPv6 flows that had to survive a failure");
    assert!(sum(|it| it.forged) > 10 * SEEDS, "packets of homes with an address of another one");
    assert!(sum(|it| it.reused) > 10 * SEEDS, "ports that were assigned again");
    assert!(sum(|it| it.shared) > SEEDS, "inside endpoints with flows of two source pools");
    let commits = [sum(|it| it.committed), sum(|it| it.uncommitted)];
    assert!(commits[0] > 100 * SEEDS && commits[0] > commits[1], "{commits:?}");
}

#[test]
fn two_runs_of_a_seed_are_equal_and_two_seeds_are_not() {
    let runs = play_all(0..20);
    for (one, other) in runs.iter().zip(play_all(0..20)) {
        assert_eq!(
            (one.digest, one.events, one.counts),
            (other.digest, other.events, other.counts)
        );
    }
    for pair in runs.windows(2) {
        assert_ne!(pair[0].digest, pair[1].digest);
    }
}

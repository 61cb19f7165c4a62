//! Histories in which nodes are killed, stopped, drained and cut off, alone or all at once, with
//! and without etcd: no lane has two writers, a grant of a lane loses nothing of it, and in the end
//! the cluster is whole.

use std::thread;

use weir_sim::dice::Dice;
use weir_sim::fault::{Fault, Timed, Way};
use weir_sim::options::Options;
use weir_sim::{Outcome, RoleCounts, play_with};

const SEEDS: u64 = 30;
const FAULTS: usize = 16;
const NODES: usize = 5;

/// Draws a fault of a node, or of all.
fn draw(dice: &mut Dice) -> Vec<Fault> {
    let node = dice.below(NODES as u64) as usize;
    let ms = dice.between((50, 4_000));
    match dice.below(12) {
        0 => vec![Fault::Crash { node, ms, keeps_disk: true }],
        1 => vec![Fault::Kill { node, ms: 20 }],
        2 => vec![Fault::Stop { node, ms }],
        3 => vec![Fault::Freeze { node, ms }],
        4 => vec![Fault::CutOff { node, ms: 4 * ms }],
        5 => vec![Fault::Isolate { node, ms }],
        6 => vec![Fault::Drain { node, ms: 2 * ms }],
        7 => vec![Fault::NoController { ms: 2 * ms }],
        8 => vec![Fault::CutStore { node, way: Way::Both, ms: 3 * ms }],
        // The node starts again while it is cut off from etcd, and continues without etcd after a
        // while.
        9 => {
            let ms = ms + 8_000;
            vec![Fault::CutStore { node, way: Way::Both, ms }, Fault::Kill { node, ms: 50 }]
        }
        10 => vec![Fault::Restart { node, ms }],
        _ => vec![Fault::Site { ms }],
    }
}

fn options(seed: u64) -> Options {
    Options {
        nodes: NODES,
        workers_per_node: 1 + (seed % 2) as usize,
        shards: 3,
        replicas: 1 + u8::from(seed.is_multiple_of(3)),
        commit: None,
        // Ports rest for four seconds: after that a site that has started again without etcd
        // continues.
        idle_sec: Some(12),
        has_ipv6: seed.is_multiple_of(3),
        start_us: 6_000_000,
        is_one_by_one: false,
        ..Options::of_seed(seed)
    }
}

/// Returns the faults in the order of their times, up to 2.5 s apart, so that most strike before
/// others are mended.
fn faults(seed: u64) -> Vec<Timed> {
    let dice = &mut Dice::stream(seed, 20);
    let mut after_us = 0;
    let mut faults = Vec::new();
    for _ in 0..FAULTS {
        after_us += dice.between((10_000, 2_500_000));
        faults.extend(draw(dice).into_iter().map(|fault| Timed { after_us, fault }));
    }
    faults
}

fn play_all() -> Vec<Outcome> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let play = |seed| play_with(seed, &options(seed), &faults(seed), false);
    thread::scope(|scope| {
        let share = |first| (first..SEEDS).step_by(threads).map(play).collect::<Vec<_>>();
        let playing: Vec<_> =
            (0..threads as u64).map(|first| scope.spawn(move || share(first))).collect();
        playing.into_iter().flat_map(|thread| thread.join().expect("outcomes")).collect()
    })
}

#[test]
fn after_any_history_the_cluster_is_whole() {
    let outcomes = play_all();
    for outcome in &outcomes {
        assert_eq!(outcome.violation, None, "seed {}", outcome.seed);
    }
    // Every kind of role change has happened.
    let sum = |of: fn(&RoleCounts) -> u64| {
        outcomes.iter().map(|outcome| of(&outcome.role_counts)).sum::<u64>()
    };
    let counts = [
        ("acting", sum(|it| it.acting)),
        ("fenced", sum(|it| it.fenced)),
        ("promoted", sum(|it| it.promoted)),
        ("grants", sum(|it| it.grants)),
        ("failed changes", sum(|it| it.failed_changes)),
        ("removals", sum(|it| it.removals)),
        ("guests", sum(|it| it.guests)),
        ("resumed", sum(|it| it.resumed)),
    ];
    println!("{counts:?}");
    assert!(counts.iter().all(|(_, count)| *count >= 5), "{counts:?}");
}

//! No lane ever has two writers, and the writer of a lane knows everything that any other member
//! has received of it, whatever is late, lost, duplicated, dead or partitioned. Therefore no two
//! homes ever hold the same public port.

mod cluster;
mod guests;
mod knowledge;
mod seen;

use bolero::check;
use cluster::{Cluster, NODES, Step};
use guests::Wrong;
use seen::Seen;
use weir_map::{LANES, LaneSet};

/// Checks that each lane has at most one writer, which the newest entry names, and that no member
/// knows more of the lane.
fn check_writers(cluster: &Cluster) {
    let newest = cluster.newest();
    for lane in 0..LANES {
        let writers = cluster.writers(lane);
        assert!(writers.len() <= 1, "lane {lane} has the writers {writers:?} at {newest:?}");
        // A store that was set back may have forgotten which workers write.
        if cluster.is_any_in_doubt() {
            continue;
        }
        for writer in writers {
            let (_, member) = newest.member(&writer).expect("a writer is a member");
            assert!(newest.lanes_of(member.slot).contains(lane), "lane {lane}: {writer}");
            // No member may know to ask for what a writer of the lost history sent to some before
            // it ended.
            let other = cluster.better_informed(lane, &writer).filter(|_| !cluster.was_set_back());
            assert_eq!(other, None, "has received more of lane {lane} than {writer}: {newest:?}");
        }
    }
}

fn play(steps: impl Iterator<Item = Step>) -> Seen {
    play_with(None, steps)
}

fn play_with(wrong: Option<Wrong>, steps: impl Iterator<Item = Step>) -> Seen {
    let mut cluster = Cluster::new(wrong);
    for step in steps {
        cluster.step(step);
        check_writers(&cluster);
    }
    // Nothing is stuck: once every node hears everything, every lane has its writer.
    cluster.calm();
    check_writers(&cluster);
    if !(0..NODES as u8).any(|node| cluster.is_running(node)) {
        return cluster.seen;
    }
    assert!(!cluster.newest().is_moving());
    let written = LaneSet::of(|lane| !cluster.writers(lane).is_empty());
    assert_eq!(written, LaneSet::ALL, "{:?}", cluster.newest());
    cluster.seen
}

#[test]
fn a_lane_has_one_writer_at_most() {
    check!().with_type::<Vec<Step>>().with_max_len(1_000).with_iterations(2_000).for_each(
        |steps| {
            play(steps.iter().copied());
        },
    );
}

/// xorshift64*
struct Dice(u64);

impl Dice {
    fn byte(&mut self) -> u8 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 56) as u8
    }

    /// Returns a step about one of `nodes` nodes. If `is_deadly` is false, moves go to and fro.
    fn step(&mut self, nodes: u8, is_deadly: bool) -> Step {
        let step = Step { kind: self.byte(), node: self.byte() % nodes, any: self.byte() };
        if is_deadly { step } else { Step { any: step.any | 2, ..step } }
    }
}

fn long_history(seed: u64) -> Seen {
    let mut dice = Dice(seed);
    let nodes = 2 + (seed % 5) as u8;
    play((0..6_000).map(|_| dice.step(nodes, seed.is_multiple_of(3))))
}

/// The store is never set back; instead, nodes start while it is unreachable.
fn history_with_guests(wrong: Option<Wrong>, seed: u64) -> Seen {
    let mut dice = Dice(seed);
    let nodes = 2 + (seed % 4) as u8;
    let mut step = || {
        let step = dice.step(nodes, true);
        match step.kind % 40 {
            32 => Step { kind: 36, any: step.any & !3, ..step },
            33 | 34 => Step { kind: 37, ..step },
            35 => Step { kind: 39, ..step },
            _ => step,
        }
    };
    play_with(wrong, (0..2_000).map(|_| step()))
}

#[test]
fn guests_know_nothing_of_a_lane_that_its_writer_does_not() {
    let mut all = Seen::default();
    (1..=600).for_each(|seed| all.add(history_with_guests(None, seed)));
    let Seen { guests, guests_that_stayed, guests_that_forgot, copies_taken, .. } = all;
    let counts = [guests, guests_that_stayed, guests_that_forgot, copies_taken];
    assert!(counts.iter().all(|&count| count >= 200), "{all:?}");
}

/// The checks find the mistakes that a node that starts without the store could make.
#[test]
fn a_node_that_resumes_unasked_or_keeps_copies_under_any_entry_is_found() {
    for wrong in [Wrong::ResumesUnasked, Wrong::KeepsCopies] {
        let play = |seed: u64| std::panic::catch_unwind(|| history_with_guests(Some(wrong), seed));
        let found = (1..=600).find(|&seed| play(seed).is_err());
        println!("{wrong:?}: {found:?}");
        assert!(found.is_some(), "{wrong:?}");
    }
}

/// Long histories, from seeds; together they have seen everything that could go wrong.
#[test]
fn long_histories_have_one_writer_at_most() {
    let mut all = Seen::default();
    for seed in 1..=200 {
        all.add(long_history(seed));
    }
    let Seen {
        grants_taken,
        grants_of_old_moves,
        old_entries,
        fences,
        acting,
        promotions,
        removals,
        allocated,
        copies_taken,
        set_back,
        rebased,
        ..
    } = all;
    let counts = [
        grants_taken,
        grants_of_old_moves,
        old_entries,
        fences,
        acting,
        promotions,
        removals,
        allocated,
        copies_taken,
        set_back,
        rebased,
    ];
    assert!(counts.iter().all(|&count| count >= 200), "{all:?}");
}

//! The faults of a history, drawn from its seed.

use weir_engine::Side;

use crate::control::CONTROLLERS;
use crate::dice::Dice;
use crate::fault::{Fault, Timed, Way};
use crate::options::{Options, Weights};

/// If faults occur one by one, each occurs within this time after the cluster has become whole.
const ONE_BY_ONE_US: u64 = 900_000;

/// Longer than a lease, and than it takes until a node counts as dead.
const LEASE_MS: u64 = 13_000;

/// Longer than a node takes to notice that its routing daemon is gone and the cluster to drain the
/// node, and shorter than sessions without a packet last if their timers are short.
const BIRD_MS: u64 = 9_500;

/// Longer than a node takes to notice that its lease was revoked, and to register again.
const UNREGISTERED_MS: (u64, u64) = (3_500, 6_000);

/// Returns the faults of a seed, in the order of their times.
pub fn draw(seed: u64, options: &Options) -> Vec<Timed> {
    let dice = &mut Dice::stream(seed, 2);
    let longest_us = if options.is_one_by_one { ONE_BY_ONE_US } else { options.faults_us };
    let mut faults: Vec<Timed> = (0..options.faults)
        .map(|_| Timed { after_us: dice.below(longest_us), fault: one(dice, options) })
        .collect();
    suspend_some(&mut faults, &mut Dice::stream(seed, 11));
    if let (Some(last), true) = (faults.last_mut(), options.commit.is_some()) {
        let only = Weights { power_loss: 1_000_000, ..options.weights };
        last.fault = one(dice, &Options { weights: only, ..options.clone() });
    }
    faults.extend(stalls_in_turn(seed, options));
    apply_policies(&mut faults, seed, options);
    faults.extend(stall_unregistered(seed, options).into_iter().flatten());
    if !options.is_one_by_one {
        faults.sort_by_key(|timed| timed.after_us);
    }
    faults
}

/// Replaces half of the stalls of machines and processes by another kind: a stall of the process
/// with its guard, and of nothing else.
fn suspend_some(faults: &mut [Timed], dice: &mut Dice) {
    for Timed { fault, .. } in faults {
        if let Fault::Freeze { node, ms } | Fault::Stop { node, ms } = *fault
            && dice.one_in(2)
        {
            *fault = Fault::Suspend { node, ms };
        }
    }
}

/// Adds a stall of workers of two nodes in turn at the end of every second history whose faults
/// occur one by one. It has dice of its own, so that it changes none of the earlier faults.
fn stalls_in_turn(seed: u64, options: &Options) -> Option<Timed> {
    let dice = &mut Dice::stream(seed, 10);
    if !options.is_one_by_one || options.faults == 0 || !dice.one_in(2) {
        return None;
    }
    let node = dice.below(options.nodes as u64) as usize;
    let to = (node + dice.between((1, options.nodes as u64 - 1)) as usize) % options.nodes;
    let worker = dice.below(options.workers_per_node as u64) as usize;
    let after_us = dice.below(ONE_BY_ONE_US);
    let fault = Fault::StallInTurn { nodes: [node, to], worker, seed: dice.seed(), ms: 6_000 };
    Some(Timed { after_us, fault })
}

/// Adds up to three changes of rules and static mappings between the faults, in two of three
/// histories. They have dice of their own, too.
fn apply_policies(faults: &mut Vec<Timed>, seed: u64, options: &Options) {
    let dice = &mut Dice::stream(seed, 14);
    let longest_us = if options.is_one_by_one { ONE_BY_ONE_US } else { options.faults_us };
    if dice.one_in(3) {
        return;
    }
    for _ in 0..dice.between((1, 3)) {
        let place = dice.below(faults.len() as u64 + 1) as usize;
        let fault = Fault::Apply { policy: dice.below(1000) };
        faults.insert(place, Timed { after_us: dice.below(longest_us), fault });
    }
}

/// In every fourth history whose faults occur at any time, stalls the roles thread of a node, which
/// meanwhile loses its registration and gets it back. It has dice of its own, too.
fn stall_unregistered(seed: u64, options: &Options) -> Option<[Timed; 2]> {
    let dice = &mut Dice::stream(seed, 12);
    if options.is_one_by_one || options.faults == 0 || !dice.one_in(4) {
        return None;
    }
    let node = dice.below(options.nodes as u64) as usize;
    let after_us = dice.below(options.faults_us);
    let stall = Fault::StallCore { node, ms: dice.between(UNREGISTERED_MS) };
    let lost_us = after_us + dice.below(500_000);
    let lost = Fault::LoseLease { node };
    Some([Timed { after_us, fault: stall }, Timed { after_us: lost_us, fault: lost }])
}

/// Draws a duration in milliseconds: mostly short, sometimes long.
fn time(dice: &mut Dice, one_by_one: bool) -> u64 {
    match dice.below(4) {
        0 => dice.between((1, 60)),
        1 => dice.between((60, 400)),
        2 => dice.between((400, 1_500)),
        _ if one_by_one => dice.between((400, 2_000)),
        _ => dice.between((1_500, 6_000)),
    }
}

fn one(dice: &mut Dice, options: &Options) -> Fault {
    let ms = time(dice, options.is_one_by_one);
    let node = dice.below(options.nodes as u64) as usize;
    let to = (node + dice.between((1, options.nodes as u64 - 1)) as usize) % options.nodes;
    let worker = dice.below(options.workers_per_node as u64) as usize;
    let side = *dice.pick(&Side::ALL);
    let controller = dice.below(CONTROLLERS as u64) as usize;
    let way = *dice.pick(&[Way::In, Way::Out, Way::Both]);
    let keeps_disk = dice.below(4) > 0;
    let factor = dice.between((2, 20));
    let by_ms = dice.between((20, 500));
    let noise = Fault::Noise {
        loss_ppm: dice.below(200_000),
        duplicate_ppm: dice.below(50_000),
        reorder_us: dice.below(20_000),
        ms,
    };
    let back_ms = dice.between((10, 3_000));
    // As many as the copies that packets wait for; these are two at most.
    let dark = options.commit.map_or(1, |commit| usize::from(commit.replicas));
    let nodes = [node, to][..dark].to_vec();
    let weights = &options.weights;
    let kinds = [
        (weights.crash, Fault::Crash { node, ms: ms + 500, keeps_disk }),
        (weights.kill, Fault::Kill { node, ms: ms + 20 }),
        (weights.stop, Fault::Stop { node, ms }),
        (weights.freeze, Fault::Freeze { node, ms }),
        (weights.stall, Fault::Stall { node, worker, ms }),
        (weights.slow, Fault::Slow { node, factor, ms }),
        (weights.unplug, Fault::Unplug { node, side, way, ms }),
        (weights.deafen, Fault::Deafen { from: node, to, ms }),
        (weights.isolate, Fault::Isolate { node, ms }),
        (weights.cut_off, Fault::CutOff { node, ms: LEASE_MS + ms }),
        (weights.noise, noise),
        (weights.slow_switch, Fault::SlowSwitch { side, by_ms, ms }),
        (weights.restart, Fault::Restart { node, ms }),
        (weights.cut_store, Fault::CutStore { node, way, ms }),
        (weights.stall_watch, Fault::StallWatch { node, ms }),
        (weights.store_down, Fault::StoreDown { ms }),
        (weights.store_leaderless, Fault::StoreLeaderless { ms }),
        (weights.store_paused, Fault::StorePaused { ms }),
        (weights.store_slow, Fault::StoreSlow { ms: 4 * ms }),
        (weights.store_full, Fault::StoreFull { ms }),
        (weights.stop_controller, Fault::StopController { controller, ms: 4 * ms }),
        (weights.cut_controller, Fault::CutController { controller, way, ms: 4 * ms }),
        (weights.no_controller, Fault::NoController { ms }),
        (weights.drain, Fault::Drain { node, ms: ms + 1_000 }),
        (weights.compact, Fault::Compact),
        (weights.restore, Fault::Restore { back_ms }),
        (weights.power_loss, Fault::PowerLoss { nodes, ms: ms + 500 }),
        (weights.stall_core, Fault::StallCore { node, ms }),
        (weights.bird_down, Fault::BirdDown { node, ms: BIRD_MS }),
        (weights.site, Fault::Site { ms: ms + 500 }),
    ];
    let mut share = dice.below(kinds.iter().map(|(weight, _)| weight).sum());
    for (weight, fault) in kinds {
        if share < weight {
            return fault;
        }
        share -= weight;
    }
    unreachable!("a share is below the sum of all weights")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_draws_its_faults_in_order_and_in_time() {
        for seed in 0..200 {
            let options = Options::of_seed(seed);
            let faults = draw(seed, &options);
            assert_eq!(faults, draw(seed, &options));
            let in_turn = |timed: &&Timed| matches!(timed.fault, Fault::StallInTurn { .. });
            let in_turn = faults.iter().filter(in_turn).count();
            let revoked = |timed: &&Timed| matches!(timed.fault, Fault::LoseLease { .. });
            let revoked = faults.iter().filter(revoked).count();
            let applied = |timed: &&Timed| matches!(timed.fault, Fault::Apply { .. });
            let applied = faults.iter().filter(applied).count();
            assert_eq!(faults.len(), options.faults + in_turn + 2 * revoked + applied);
            assert!(applied <= 3);
            assert!(revoked == 0 || revoked == 1 && !options.is_one_by_one);
            assert!(in_turn == 0 || in_turn == 1 && options.is_one_by_one);
            assert!(options.is_one_by_one || faults.is_sorted_by_key(|timed| timed.after_us));
            let is_dark = |timed: &Timed| matches!(timed.fault, Fault::PowerLoss { .. });
            let is_due = options.commit.is_some() && options.faults > 0;
            assert_eq!(faults.iter().any(is_dark), is_due);
        }
    }
}

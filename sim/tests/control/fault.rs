//! What goes wrong, drawn from a seed: a plain list.

use weir_sim::dice::Dice;

/// Which way nothing passes between a process and etcd.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    pub(crate) to_etcd: bool,
    pub(crate) from_etcd: bool,
}

/// A fault that lasts is mended after its milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    Kill {
        node: usize,
        ms: u64,
    },
    /// SIGSTOP, too short for the guard to kill it.
    Stop {
        node: usize,
        ms: u64,
    },
    /// SIGTERM; started again so long after its end.
    Restart {
        node: usize,
        ms: u64,
    },
    Cut {
        node: usize,
        way: Way,
        ms: u64,
    },
    Apart {
        node: usize,
        ms: u64,
    },
    Unasked {
        node: usize,
        ms: u64,
    },
    StallWatches {
        node: usize,
    },
    KillController {
        controller: usize,
        ms: u64,
    },
    StopController {
        controller: usize,
        ms: u64,
    },
    CutController {
        controller: usize,
        way: Way,
        ms: u64,
    },
    StallController {
        controller: usize,
    },
    KillEtcd {
        ms: u64,
    },
    PauseEtcd {
        ms: u64,
    },
    LoseLeader {
        ms: u64,
    },
    SlowEtcd {
        ms: u64,
    },
    Full {
        ms: u64,
    },
    Compact {
        kept: i64,
    },
    Restore {
        back_ms: u64,
        is_renamed: bool,
    },
    Drain {
        node: usize,
        ms: u64,
    },
    Freeze {
        ms: u64,
    },
    Rebalance,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Timed {
    pub(crate) at_ms: u64,
    pub(crate) fault: Fault,
}

/// Faults between two moments, in their order.
pub(crate) fn draw(
    dice: &mut Dice,
    count: u64,
    (from_ms, to_ms): (u64, u64),
    (nodes, controllers): (usize, usize),
    with_restore: bool,
) -> Vec<Timed> {
    let mut faults: Vec<Timed> = (0..count)
        .map(|_| {
            let at_ms = dice.between((from_ms, to_ms));
            Timed { at_ms, fault: one(dice, nodes, controllers, with_restore) }
        })
        .collect();
    faults.sort_by_key(|timed| timed.at_ms);
    faults
}

fn one(dice: &mut Dice, nodes: usize, controllers: usize, with_restore: bool) -> Fault {
    let node = dice.below(nodes as u64) as usize;
    let controller = dice.below(controllers as u64) as usize;
    let long_ms = dice.between((100, 20_000));
    let way = match dice.below(3) {
        0 => Way { to_etcd: true, from_etcd: false },
        1 => Way { to_etcd: false, from_etcd: true },
        _ => Way { to_etcd: true, from_etcd: true },
    };
    match dice.below(if with_restore { 23 } else { 21 }) {
        0 | 1 => Fault::Kill { node, ms: long_ms },
        2 => Fault::Stop { node, ms: dice.between((50, 900)) },
        3 => Fault::Restart { node, ms: long_ms / 4 },
        4 | 5 => Fault::Cut { node, way, ms: long_ms },
        6 => Fault::Apart { node, ms: long_ms },
        7 => Fault::Unasked { node, ms: long_ms },
        8 => Fault::StallWatches { node },
        9 => Fault::KillController { controller, ms: long_ms },
        10 => Fault::StopController { controller, ms: long_ms },
        11 => Fault::CutController { controller, way, ms: long_ms },
        12 => Fault::StallController { controller },
        13 => Fault::KillEtcd { ms: long_ms },
        14 => Fault::PauseEtcd { ms: long_ms },
        15 => Fault::LoseLeader { ms: long_ms },
        16 => Fault::SlowEtcd { ms: long_ms },
        17 => Fault::Full { ms: long_ms },
        18 => Fault::Compact { kept: dice.below(3) as i64 },
        19 => Fault::Drain { node, ms: long_ms },
        20 if dice.one_in(2) => Fault::Freeze { ms: long_ms },
        20 => Fault::Rebalance,
        _ => Fault::Restore { back_ms: dice.below(10_000), is_renamed: dice.one_in(2) },
    }
}

//! The faults of a history. They are a plain list, so that some can be left out and the rest run
//! again.

use std::fmt;

use weir_engine::Side;

use crate::dice::Dice;

/// Time in which a site whose power is back runs without etcd: nodes look for it, then members of a
/// shard wait for each other and for the ports of connections that may have survived, and serve.
pub(crate) const SITE_WITHOUT_ETCD_MS: u64 = 25_000;

/// The direction of a cut, as seen from the machine that is cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    In,
    Out,
    Both,
}

impl Way {
    pub(crate) fn includes(self, other: Self) -> bool {
        self == Self::Both || self == other
    }
}

/// A fault, its end included: it is mended after `ms`. Nodes are identified by their numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The machine loses power; after `ms` it is up again, with or without its disk.
    Crash { node: usize, ms: u64, keeps_disk: bool },
    /// Machines lose power at the same instant; after `ms` they are up again, with empty disks.
    PowerLoss { nodes: Vec<usize>, ms: u64 },
    /// SIGKILL of the process, which is started again.
    Kill { node: usize, ms: u64 },
    /// SIGSTOP of the process: its guard and its machine continue.
    Stop { node: usize, ms: u64 },
    /// The whole machine stalls, guard included.
    Freeze { node: usize, ms: u64 },
    /// The process stalls together with its guard; the machine, its kernel and its BIRD continue,
    /// so its routes stay.
    Suspend { node: usize, ms: u64 },
    /// One worker thread stalls.
    Stall { node: usize, worker: usize, ms: u64 },
    /// The thread that drives the node's core stalls; workers and guard continue.
    StallCore { node: usize, ms: u64 },
    /// The node's routing daemon ends, and is started again.
    BirdDown { node: usize, ms: u64 },
    /// All nodes lose power and etcd is killed: the nodes are up again after `ms`, with their
    /// disks; etcd is back only after they have served their shards without it.
    Site { ms: u64 },
    /// One worker of each of two nodes stalls repeatedly, in turn: a few times a second, for 43 to
    /// 150 ms.
    StallInTurn { nodes: [usize; 2], worker: usize, seed: u64, ms: u64 },
    /// Every turn takes `factor` times as long.
    Slow { node: usize, factor: u64, ms: u64 },
    /// A cable is unplugged: no frame passes between the node and a switch.
    Unplug { node: usize, side: Side, way: Way, ms: u64 },
    /// No frame passes from the workers of one node to those of another.
    Deafen { from: usize, to: usize, ms: u64 },
    /// No frame passes between the workers of the node and those of all other nodes; the switches
    /// are reached.
    Isolate { node: usize, ms: u64 },
    /// The node is cut off from etcd, the controllers and all other nodes; homes and servers reach
    /// it.
    CutOff { node: usize, ms: u64 },
    /// All links lose, duplicate and reorder frames.
    Noise { loss_ppm: u64, duplicate_ppm: u64, reorder_us: u64, ms: u64 },
    /// A switch learns each change of routes later by `by_ms`.
    SlowSwitch { side: Side, by_ms: u64, ms: u64 },
    /// SIGTERM: the node hands over, ends, and is started again after `ms`.
    Restart { node: usize, ms: u64 },
    /// The node does not reach etcd: no request passes, no answer, or neither.
    CutStore { node: usize, way: Way, ms: u64 },
    /// etcd's watches of the node stop silently.
    StallWatch { node: usize, ms: u64 },
    /// etcd does not run.
    StoreDown { ms: u64 },
    /// etcd has no leader: requests may be done or not, and are not answered.
    StoreLeaderless { ms: u64 },
    /// etcd stalls, and then answers the requests that have waited.
    StorePaused { ms: u64 },
    /// etcd is slow in everything, its watches above all.
    StoreSlow { ms: u64 },
    /// etcd's database is full: it refuses writes.
    StoreFull { ms: u64 },
    /// SIGSTOP of a controller.
    StopController { controller: usize, ms: u64 },
    /// A controller does not reach etcd: no request passes, no answer, or neither.
    CutController { controller: usize, way: Way, ms: u64 },
    /// No controller runs.
    NoController { ms: u64 },
    /// An operator drains the node, and ends the drain.
    Drain { node: usize, ms: u64 },
    /// The lease of the node's key is revoked in etcd: the other nodes see its key removed, until
    /// it notices that itself and registers again.
    LoseLease { node: usize },
    /// An operator applies other rules and static mappings, those of
    /// `site::policy` with this number.
    Apply { policy: u64 },
    /// etcd forgets its old revisions.
    Compact,
    /// etcd is restored from a backup of `back_ms` ago.
    Restore { back_ms: u64 },
}

impl Fault {
    /// Returns its duration in milliseconds.
    pub fn ms(&self) -> u64 {
        use Fault::*;
        match *self {
            Crash { ms, .. } | Kill { ms, .. } | Stop { ms, .. } | Freeze { ms, .. } => ms,
            Suspend { ms, .. } | StallInTurn { ms, .. } | StallCore { ms, .. } => ms,
            BirdDown { ms, .. } => ms,
            Site { ms } => ms + SITE_WITHOUT_ETCD_MS,
            Stall { ms, .. } | Slow { ms, .. } | Unplug { ms, .. } | Deafen { ms, .. } => ms,
            Isolate { ms, .. } | CutOff { ms, .. } | Noise { ms, .. } | SlowSwitch { ms, .. } => ms,
            Restart { ms, .. } | CutStore { ms, .. } | StallWatch { ms, .. } => ms,
            StoreDown { ms } | StoreLeaderless { ms } | NoController { ms } => ms,
            StorePaused { ms } | StoreSlow { ms } | StoreFull { ms } => ms,
            StopController { ms, .. } | CutController { ms, .. } => ms,
            Drain { ms, .. } | PowerLoss { ms, .. } => ms,
            LoseLease { .. } | Apply { .. } | Compact | Restore { .. } => 0,
        }
    }

    /// Returns the nodes that it powers off.
    pub(crate) fn dark_nodes(&self) -> &[usize] {
        match self {
            Self::Crash { node, .. } => std::slice::from_ref(node),
            Self::PowerLoss { nodes, .. } => nodes,
            _ => &[],
        }
    }

    /// True if it ends processes and does nothing else.
    pub(crate) fn is_death(&self) -> bool {
        matches!(self, Self::Crash { .. } | Self::PowerLoss { .. } | Self::Kill { .. })
    }

    /// True for mere weather: no failure that a flow could be lost with.
    pub(crate) fn is_weather(&self) -> bool {
        use Fault::*;
        matches!(self, Slow { .. } | Noise { .. } | SlowSwitch { .. } | Apply { .. })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use Fault::*;
        let ms = self.ms();
        match self {
            Crash { node, keeps_disk: true, .. } => write!(f, "n{node} loses power for {ms} ms"),
            Crash { node, .. } => write!(f, "n{node} loses power and its disk for {ms} ms"),
            PowerLoss { nodes, .. } => {
                write!(f, "{nodes:?} lose power and their disks at once for {ms} ms")
            }
            Kill { node, .. } => write!(f, "n{node} is killed, and started after {ms} ms"),
            Stop { node, .. } => write!(f, "the process of n{node} is stopped for {ms} ms"),
            Freeze { node, .. } => write!(f, "n{node} stands still for {ms} ms"),
            Suspend { node, .. } => {
                write!(f, "the process of n{node} and its guard stand still for {ms} ms")
            }
            Stall { node, worker, .. } => write!(f, "n{node}/{worker} stands still for {ms} ms"),
            StallCore { node, .. } => {
                write!(f, "the roles thread of n{node} stands still for {ms} ms")
            }
            BirdDown { node, .. } => write!(f, "BIRD of n{node} is gone for {ms} ms"),
            Site { .. } => write!(f, "all nodes and etcd lose power; etcd is back after {ms} ms"),
            StallInTurn { nodes: [one, other], worker, .. } => {
                write!(f, "n{one}/{worker} and n{other}/{worker} stand still in turn for {ms} ms")
            }
            Slow { node, factor, .. } => {
                write!(f, "n{node} is {factor} times as slow for {ms} ms")
            }
            Unplug { node, side, way, .. } => {
                write!(f, "n{node} is unplugged on the {} side, {way:?}, for {ms} ms", side.name())
            }
            Deafen { from, to, .. } => write!(f, "n{to} does not hear n{from} for {ms} ms"),
            Isolate { node, .. } => write!(f, "n{node} and the others are apart for {ms} ms"),
            CutOff { node, .. } => write!(f, "n{node} is cut off from all but users for {ms} ms"),
            Noise { loss_ppm, duplicate_ppm, reorder_us, .. } => write!(
                f,
                "links lose {loss_ppm} and double {duplicate_ppm} in a million, late by up to {reorder_us} us, for {ms} ms"
            ),
            SlowSwitch { side, by_ms, .. } => {
                write!(f, "the {} switch learns {by_ms} ms later for {ms} ms", side.name())
            }
            Restart { node, .. } => write!(f, "n{node} is restarted, down for {ms} ms"),
            CutStore { node, way, .. } => {
                write!(f, "n{node} does not reach etcd, {way:?}, for {ms} ms")
            }
            StallWatch { node, .. } => write!(f, "n{node} hears no change of etcd for {ms} ms"),
            StoreDown { .. } => write!(f, "etcd is down for {ms} ms"),
            StoreLeaderless { .. } => write!(f, "etcd has no leader for {ms} ms"),
            StorePaused { .. } => write!(f, "etcd stands still for {ms} ms"),
            StoreSlow { .. } => write!(f, "etcd is slow for {ms} ms"),
            StoreFull { .. } => write!(f, "etcd has no room for {ms} ms"),
            StopController { controller, .. } => write!(f, "c{controller} is stopped for {ms} ms"),
            CutController { controller, way, .. } => {
                write!(f, "c{controller} does not reach etcd, {way:?}, for {ms} ms")
            }
            NoController { .. } => write!(f, "no controller runs for {ms} ms"),
            Drain { node, .. } => write!(f, "n{node} is drained for {ms} ms"),
            Apply { policy } => write!(f, "policy {policy} is applied"),
            LoseLease { node } => write!(f, "the lease of n{node} is revoked"),
            Compact => f.write_str("etcd is compacted"),
            Restore { back_ms } => write!(f, "etcd is set back by {back_ms} ms"),
        }
    }
}

/// Returns the stalls of two workers that stall in turn: start after the beginning, which of the
/// two, and duration, in milliseconds. The last one ends before `ms`. From time to time both stall
/// at once.
pub(crate) fn stalls(seed: u64, ms: u64) -> Vec<(u64, usize, u64)> {
    let dice = &mut Dice::new(seed);
    let (mut after_ms, mut plan) = (0, Vec::new());
    for turn in (0..2).cycle() {
        let length_ms = dice.between((43, 150));
        if after_ms + length_ms > ms {
            break;
        }
        plan.push((after_ms, turn, length_ms));
        after_ms += if dice.one_in(4) { dice.between((20, 60)) } else { dice.between((330, 500)) };
    }
    plan
}

/// A fault and its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timed {
    /// After the start of the faults; if they come one by one, after the cluster has become whole
    /// again.
    pub after_us: u64,
    pub fault: Fault,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalls_in_turn_are_short_and_sometimes_overlap() {
        let mut both = 0;
        for seed in 0..100 {
            let plan = stalls(seed, 6_000);
            assert!((12..40).contains(&plan.len()), "{plan:?}");
            assert!(plan.iter().all(|&(at, _, ms)| (43..=150).contains(&ms) && at + ms <= 6_000));
            assert!(plan.windows(2).all(|pair| pair[0].1 != pair[1].1));
            both += plan.windows(2).filter(|pair| pair[1].0 < pair[0].0 + pair[0].2).count();
        }
        assert!(both > 100, "{both}");
    }
}

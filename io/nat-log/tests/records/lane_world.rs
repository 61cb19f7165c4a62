//! A random history of a lane with port blocks, or of the lanes that record IPv6 prefixes: the logs
//! of its nodes, and what was true.
//!
//! ```text
//!   nodes n0 n1 n2   lanes 0 and 2, one owner at a time   <- do not hear each other: each lets
//!   nodes m0 m1 m2   lane 1, likewise                     <- homes claim as if alone
//!   node  r          the other lanes, without claims
//! ```

mod side;

use std::collections::BTreeSet;

use weir_nat_log::About;

use crate::folder::Random;
use crate::node_log::{LaneBlock, LanePrefix, NodeLog, PUBLIC, whole_address};

use self::side::Side;

pub(crate) const BLOCKS: u64 = 4;
pub(crate) const BEGIN_MS: u64 = 100_000;
pub(crate) const CLOCK_ERROR_MS: u64 = 1000;
/// Largest error of each clock, in either direction.
pub(crate) const SKEW_MS: u64 = 500;

/// What the homes of a history hold.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Blocks,
    Prefixes,
    /// Addresses with all their ports, which homes claim without translation.
    Addresses,
}

impl Kind {
    /// Returns the lanes of each side of a split.
    fn sides(self) -> &'static [&'static [u8]] {
        match self {
            Self::Blocks => &[&[3]],
            Self::Prefixes | Self::Addresses => &[&[0, 2], &[1]],
        }
    }

    /// Returns a question about an endpoint in the block or prefix with this number.
    pub(crate) fn about(self, block: u16) -> About {
        match self {
            Self::Blocks => {
                let port = LaneBlock { lane: 3, epoch: 0, block }.port() + 7;
                About::Port(PUBLIC.into(), port)
            }
            Self::Prefixes => {
                About::Ipv6(LanePrefix { lane: 0, epoch: 0, prefix: block }.address())
            }
            Self::Addresses => About::Port(whole_address(block), 1100),
        }
    }
}

/// A history with all of its sides.
pub(crate) struct World {
    pub(crate) kind: Kind,
    pub(crate) random: Random,
    sides: Vec<Side>,
}

impl World {
    pub(crate) fn new(kind: Kind, seed: u64) -> Self {
        let (mut sides, mut may_fail) = (Vec::new(), None);
        for (number, (lanes, name)) in (0..).zip(kind.sides().iter().zip(["n", "m"])) {
            let mut random = Random::new(seed + 100_000 * number);
            let may_fail = *may_fail.get_or_insert(!random.is_one_in(3));
            sides.push(Side::new(kind, lanes, name, may_fail, random));
        }
        Self { kind, random: Random::new(seed), sides }
    }

    pub(crate) fn play(&mut self, steps: u64) {
        self.sides.iter_mut().for_each(|side| side.play(steps));
    }

    /// Returns the end of the time for which all sides were played.
    pub(crate) fn end_ms(&self) -> u64 {
        self.sides.iter().map(|side| side.now_ms).min().expect("there is a side")
    }

    /// Whether nodes may die and records may be lost.
    pub(crate) fn may_fail(&self) -> bool {
        self.sides[0].may_fail
    }

    /// Returns the logs, split into files.
    pub(crate) fn files(&self) -> Vec<Vec<u8>> {
        let mut files: Vec<_> = self.sides.iter().flat_map(Side::files).collect();
        if self.kind != Kind::Blocks {
            let used = self.kind.sides().concat();
            let end_ms = self.sides.iter().map(|side| side.now_ms).max().expect("there is a side");
            files.push(NodeLog::of_others(&used, BEGIN_MS, end_ms).text());
        }
        files
    }

    /// Returns the homes that had the block between these times, both included.
    pub(crate) fn had(&self, block: u16, from_ms: u64, until_ms: u64) -> BTreeSet<u8> {
        self.sides.iter().flat_map(|side| side.had(block, from_ms, until_ms)).collect()
    }

    /// Returns the home at an instant: at the instant of a change neither home is wrong.
    pub(crate) fn has(&self, block: u16, at_ms: u64) -> BTreeSet<u8> {
        self.sides.iter().flat_map(|side| side.has(block, at_ms)).collect()
    }

    /// Whether any home ever had the block.
    pub(crate) fn is_named(&self, block: u16) -> bool {
        self.sides.iter().any(|side| side.truths.iter().any(|truth| truth.block == block))
    }

    /// Whether, after a death, the block was free for a short time and the home had it before and
    /// after.
    pub(crate) fn is_pause(&self, block: u16, at_ms: u64, home: &BTreeSet<u8>) -> bool {
        self.sides.iter().any(|side| side.is_pause(block, at_ms, home))
    }
}

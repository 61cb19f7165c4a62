//! What a core does in a phase.

use std::hint::black_box;
use std::time::{Duration, Instant};

use weir_benches::memory::Lines;
use weir_benches::population::BATCH;

use crate::node::Node;

/// From the order to the first measured moment: longer than a thread takes to wake up.
pub(crate) const LEAD: Duration = Duration::from_millis(5);
const PHASE: Duration = Duration::from_millis(10);
/// Flows that a phase opens at least, in as many workers as that takes.
const OPENED_MIN: u32 = 100_000;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    /// Packets of this many established flows, of both directions in turn.
    Forward { flows: u32 },
    /// First packets of this many flows.
    Open { flows: u32 },
    /// Arithmetic in registers.
    Compute,
    /// Reads of random lines in bursts, from this many bytes.
    Read { bytes: usize },
}

impl Work {
    pub(crate) const ALL: [Self; 7] = [
        Self::Forward { flows: 10_000 },
        Self::Forward { flows: 1_000_000 },
        Self::Open { flows: 10_000 },
        Self::Open { flows: 1_000_000 },
        Self::Compute,
        Self::Read { bytes: 1 << 20 },
        Self::Read { bytes: 96 << 20 },
    ];

    pub(crate) fn name(self) -> String {
        match self {
            Self::Forward { flows } => format!("established packets, {flows} flows"),
            Self::Open { flows } => format!("first packets, {flows} flows"),
            Self::Compute => "arithmetic".to_owned(),
            Self::Read { bytes } => format!("random lines of {} MiB", bytes >> 20),
        }
    }
}

/// What a core works on.
pub(crate) enum Prepared {
    Forward(Box<Node>),
    Open { flows: u32, nodes: Vec<Node> },
    Compute,
    Read { lines: Lines, bytes: usize },
}

impl Prepared {
    pub(crate) fn new(work: Work) -> Self {
        match work {
            Work::Forward { flows } => {
                let mut node = Node::new(flows);
                node.establish();
                Self::Forward(Box::new(node))
            }
            Work::Open { flows } => Self::Open { flows, nodes: Vec::new() },
            Work::Compute => Self::Compute,
            Work::Read { bytes } => {
                Self::Read { lines: Lines::new(bytes).expect("there is memory"), bytes }
            }
        }
    }

    /// Makes what a phase uses up.
    pub(crate) fn get_ready(&mut self) {
        if let Self::Open { flows, nodes } = self {
            nodes.clear();
            nodes.extend((0..OPENED_MIN.div_ceil(*flows)).map(|_| Node::new(*flows)));
        }
    }

    /// Works; returns the number of packets, flows, steps or lines, and the time from `begin` on
    /// that they took; none if the thread did not run in time.
    pub(crate) fn run(&mut self, begin: Instant) -> Option<(u64, Duration)> {
        let end = begin + PHASE;
        match self {
            Self::Forward(node) => node.forward(begin, end),
            Self::Open { nodes, .. } => {
                while Instant::now() < begin {
                    std::hint::spin_loop();
                }
                let opened = nodes.iter_mut().map(Node::open).sum();
                Some((opened, begin.elapsed()))
            }
            Self::Compute => repeat(begin, end, || {
                let mix = |state: u64, _| (state ^ state >> 31).wrapping_mul(0x5851_F42D_4C95_7F2D);
                black_box((0..BATCH).fold(black_box(1), mix));
                BATCH as u64
            }),
            Self::Read { lines, bytes } => {
                repeat(begin, end, || lines.read_random(*bytes, 64, 1).1 as u64)
            }
        }
    }
}

/// Repeats a piece of work until `end`; returns what it did from `begin` on, and the time; none if
/// the thread did not run between the two.
fn repeat(begin: Instant, end: Instant, mut piece: impl FnMut() -> u64) -> Option<(u64, Duration)> {
    let (mut done, mut since) = (0, None);
    loop {
        let now = Instant::now();
        if now >= end {
            return since.map(|since| (done, now - since));
        }
        if now >= begin && since.is_none() {
            since = Some(now);
            done = 0;
        }
        done += piece();
    }
}

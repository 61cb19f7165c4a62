//! The frames that a burst produced, for the owner of the ports to send.

use std::vec::Drain;

/// One of the two sides of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    Access = 0,
    Internet = 1,
}

impl Side {
    pub const ALL: [Self; 2] = [Self::Access, Self::Internet];

    /// Returns the label in metrics and commands.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Access => "access",
            Self::Internet => "internet",
        }
    }
}

/// Largest number of frames that one output holds per side; further frames are dropped as
/// `no-buffer`. Fragmentation multiplies packets, so this is larger than a burst.
pub const OUTPUT_MAX: usize = 2048;

/// Frames to send, complete with Ethernet header. Preallocated; never grows.
#[derive(Debug)]
pub struct Output<F> {
    pub access: Vec<F>,
    pub internet: Vec<F>,
}

/// Number of frames of each side at some time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lengths([usize; 2]);

impl Lengths {
    pub(crate) const ZERO: Self = Self([0; 2]);
}

impl<F> Output<F> {
    pub fn new() -> Self {
        Self { access: Vec::with_capacity(OUTPUT_MAX), internet: Vec::with_capacity(OUTPUT_MAX) }
    }

    /// Makes an output without room for any frame.
    pub(crate) fn empty() -> Self {
        Self { access: Vec::new(), internet: Vec::new() }
    }

    #[inline]
    pub(crate) fn side_mut(&mut self, side: Side) -> &mut Vec<F> {
        match side {
            Side::Access => &mut self.access,
            Side::Internet => &mut self.internet,
        }
    }

    #[inline]
    fn side(&self, side: Side) -> &Vec<F> {
        match side {
            Side::Access => &self.access,
            Side::Internet => &self.internet,
        }
    }

    #[inline]
    pub(crate) fn has_room(&self, side: Side) -> bool {
        let frames = self.side(side);
        frames.len() < frames.capacity()
    }

    #[inline]
    pub(crate) fn lengths(&self) -> Lengths {
        Lengths([self.access.len(), self.internet.len()])
    }

    /// Returns the number of frames on both sides that were added after `before`.
    #[inline]
    pub(crate) fn count(&self, before: Lengths) -> u64 {
        (self.access.len() + self.internet.len() - before.0.iter().sum::<usize>()) as u64
    }

    #[inline]
    pub(crate) fn has_more(&self, side: Side, before: Lengths) -> bool {
        self.side(side).len() > before.0[side as usize]
    }

    /// Returns the frames of both sides that were added after `before`.
    pub(crate) fn added(&self, before: Lengths) -> impl Iterator<Item = (Side, &F)> {
        Side::ALL.into_iter().flat_map(move |side| {
            let added = self.side(side).iter().skip(before.0[side as usize]);
            added.map(move |frame| (side, frame))
        })
    }

    /// Removes and returns the frames that were added to a side after `before`.
    #[inline]
    pub(crate) fn drain(&mut self, side: Side, before: Lengths) -> Drain<'_, F> {
        self.side_mut(side).drain(before.0[side as usize]..)
    }

    /// Adds a frame; if the side is full, frees the frame and returns false.
    #[inline]
    pub(crate) fn push(&mut self, side: Side, frame: F) -> bool {
        let frames = self.side_mut(side);
        let has_room = frames.len() < frames.capacity();
        if has_room {
            frames.push(frame);
        }
        has_room
    }
}

impl<F> Default for Output<F> {
    fn default() -> Self {
        Self::new()
    }
}

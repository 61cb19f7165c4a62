//! What a burst produced, for the owner of the ports to send.

/// One of the two sides of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    Access = 0,
    Internet = 1,
}

impl Side {
    pub const ALL: [Self; 2] = [Self::Access, Self::Internet];

    /// The label in metrics and commands.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Access => "access",
            Self::Internet => "internet",
        }
    }
}

/// Frames that one output holds per side; what comes on top is dropped as `no-buffer`. Fragmenting multiplies
/// packets, so this is larger than a burst.
pub const OUTPUT_MAX: usize = 2048;

/// Frames to send, complete with Ethernet header. Preallocated; never grows.
#[derive(Debug)]
pub struct Output<F> {
    pub access: Vec<F>,
    pub internet: Vec<F>,
}

impl<F> Output<F> {
    pub fn new() -> Self {
        Self { access: Vec::with_capacity(OUTPUT_MAX), internet: Vec::with_capacity(OUTPUT_MAX) }
    }

    #[inline]
    pub(crate) fn side_mut(&mut self, side: Side) -> &mut Vec<F> {
        match side {
            Side::Access => &mut self.access,
            Side::Internet => &mut self.internet,
        }
    }

    pub(crate) fn has_room(&self, side: Side) -> bool {
        let frames = match side {
            Side::Access => &self.access,
            Side::Internet => &self.internet,
        };
        frames.len() < frames.capacity()
    }

    /// Frames on both sides.
    pub(crate) fn len(&self) -> usize {
        self.access.len() + self.internet.len()
    }

    pub(crate) fn clear(&mut self) {
        self.access.clear();
        self.internet.clear();
    }

    /// False, and the frame is freed, when the side is full.
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

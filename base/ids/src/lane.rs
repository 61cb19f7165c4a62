//! Lanes of a shard.

/// Number of lanes of a shard. A public port's lane is the index of its block mod 8, permanently.
pub const LANES: usize = 8;

/// A lane of every shard: 0 to 7. One lane of one shard is one slab of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lane(u8);

impl Lane {
    /// All lanes in order.
    pub const ALL: [Lane; LANES] =
        [Lane(0), Lane(1), Lane(2), Lane(3), Lane(4), Lane(5), Lane(6), Lane(7)];

    /// Returns the lane of a number; none if there is no such lane.
    #[inline]
    pub const fn new(number: u8) -> Option<Lane> {
        if (number as usize) < LANES { Some(Lane(number)) } else { None }
    }

    /// Returns the lane's number, below [`LANES`].
    #[inline]
    pub const fn number(self) -> u8 {
        self.0
    }

    /// Returns the lane's index in an array of [`LANES`].
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

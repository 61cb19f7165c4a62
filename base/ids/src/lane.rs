//! Lanes of a shard.

/// Lanes of a shard: a public port's lane is its block's index mod 8, for ever.
pub const LANES: usize = 8;

/// A lane of every shard: 0 to 7. One shard and one lane are one slab of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lane(u8);

impl Lane {
    /// All lanes in order.
    pub const ALL: [Lane; LANES] =
        [Lane(0), Lane(1), Lane(2), Lane(3), Lane(4), Lane(5), Lane(6), Lane(7)];

    /// None if there is no such lane.
    #[inline]
    pub const fn new(number: u8) -> Option<Lane> {
        if (number as usize) < LANES { Some(Lane(number)) } else { None }
    }

    /// Its number, below [`LANES`].
    #[inline]
    pub const fn number(self) -> u8 {
        self.0
    }

    /// The same as a position in an array of [`LANES`].
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

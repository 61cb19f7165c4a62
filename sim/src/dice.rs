//! Chances from a seed.

/// xorshift64* (Vigna 2016).
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Below `limit`, which is not 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 32) % limit
    }

    pub fn one_in(&mut self, limit: u64) -> bool {
        self.below(limit) == 0
    }

    /// From `range`, both ends included.
    pub fn between(&mut self, range: (u64, u64)) -> u64 {
        range.0 + self.below(range.1.saturating_sub(range.0) + 1)
    }

    /// A seed for something else, so that its throws do not change these.
    pub fn seed(&mut self) -> u64 {
        self.next()
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

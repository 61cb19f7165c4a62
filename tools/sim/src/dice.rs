//! Random numbers from a seed: every random choice is drawn here, so a seed determines a history.

/// xorshift64* behind a mixed seed. Not for secrets.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self::stream(seed, 0)
    }

    /// Returns one of several independent dice of a seed.
    pub fn stream(seed: u64, stream: u64) -> Self {
        // SplitMix64, so that neighbouring seeds have nothing in common.
        let mut mixed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ stream.rotate_left(32);
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        Self(mixed ^ mixed >> 31 | 1)
    }

    pub fn draw(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Returns a number from 0 to `limit` - 1; 0 for a limit of 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        (self.draw() >> 32) % limit.max(1)
    }

    pub fn one_in(&mut self, limit: u64) -> bool {
        self.below(limit) == 0
    }

    /// Returns a number from `range`, both ends included.
    pub fn between(&mut self, range: (u64, u64)) -> u64 {
        range.0 + self.below(range.1.saturating_sub(range.0) + 1)
    }

    /// Returns a seed for other dice, whose draws do not change the later draws of these.
    pub fn seed(&mut self) -> u64 {
        self.draw()
    }

    /// True `per_million` times in a million.
    pub fn happens(&mut self, per_million: u64) -> bool {
        per_million > 0 && self.below(1_000_000) < per_million
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_draw_equal_numbers() {
        let draw = |seed, stream| {
            let mut dice = Dice::stream(seed, stream);
            (0..8).map(|_| dice.between((3, 9))).collect::<Vec<_>>()
        };
        assert_eq!(draw(7, 0), draw(7, 0));
        assert_ne!(draw(7, 0), draw(7, 1));
        assert_ne!(draw(7, 0), draw(8, 0));
        assert!(draw(7, 0).iter().all(|one| (3..=9).contains(one)));
    }

    #[test]
    fn a_chance_of_zero_never_happens_and_a_million_per_million_always() {
        let mut dice = Dice::new(1);
        assert!((0..100).all(|_| !dice.happens(0) && dice.happens(1_000_000)));
    }
}

//! Unpredictable choices of blocks and ports, without a system call per packet.

/// A small generator in the manner of wyrand: a Weyl sequence folded through a 64 x 64 bit
/// multiplication. The seed must be secret and fresh (the configuration's `seed`), then RFC 6056
/// section 3.3.1 is met as far as an attacker outside can see: the attacker cannot tell consecutive
/// outputs for one home's choices from those for all other homes.
#[derive(Clone)]
pub(crate) struct Random {
    state: u64,
    secret: u64,
}

impl Random {
    pub(crate) fn new(seed: [u64; 2]) -> Self {
        Self { state: seed[0], secret: seed[1] ^ 0xe703_7ed1_a0b4_28db }
    }

    #[inline]
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0xa076_1d64_78bd_642f);
        let product = u128::from(self.state) * u128::from(self.state ^ self.secret);
        (product as u64) ^ ((product >> 64) as u64)
    }

    /// Returns a number of so many bits, from 1 to 32.
    #[inline(always)]
    pub(crate) fn bits(&mut self, count: u32) -> u32 {
        (self.next() >> (u64::BITS - count)) as u32
    }

    /// Returns a number below `bound`, which is not 0. The bias of the multiplication method is
    /// below 2^-32 for weir's bounds.
    #[inline]
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        debug_assert!(bound > 0, "a choice needs at least one possibility");
        (((self.next() >> 32) * u64::from(bound)) >> 32) as u32
    }
}

/// The state stays out of logs: it would foretell ports.
impl std::fmt::Debug for Random {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Random(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_below_the_bound_and_spread_evenly() {
        let mut random = Random::new([1, 2]);
        let mut seen = [0u32; 16];
        for _ in 0..16_000 {
            seen[random.below(16) as usize] += 1;
        }
        assert!(seen.iter().all(|&count| (800..1200).contains(&count)), "{seen:?}");
        assert_eq!(random.below(1), 0);
    }

    #[test]
    fn a_number_of_bits_is_one_below_their_power_of_two() {
        let (mut one, mut other) = (Random::new([1, 2]), Random::new([1, 2]));
        for count in 1..32 {
            assert_eq!(one.bits(count), other.below(1 << count));
        }
    }

    #[test]
    fn a_zero_seed_is_no_fixed_point() {
        let mut random = Random::new([0, 0]);
        let first = random.next();
        assert_ne!(first, random.next());
    }
}

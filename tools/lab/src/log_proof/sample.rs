//! A sample of millions of datagrams: each with the same probability, and some of each moment.
//! Pure.

use std::collections::BTreeMap;

use crate::load::Use;

/// Length of a moment, microseconds, and the number of datagrams kept of each.
const MOMENT_US: u64 = 250_000;
const OF_MOMENT: usize = 16;

/// Keeps a sample of the added datagrams, each with the same probability (reservoir sampling).
#[derive(Debug)]
struct Reservoir {
    size: usize,
    seen: u64,
    kept: Vec<Use>,
}

impl Reservoir {
    fn new(size: usize) -> Self {
        Self { size, seen: 0, kept: Vec::new() }
    }

    fn add(&mut self, used: Use, dice: &mut fastrand::Rng) {
        self.seen += 1;
        if self.kept.len() < self.size {
            self.kept.push(used);
        } else if let Some(slot) = self.kept.get_mut(dice.u64(..self.seen) as usize) {
            *slot = used;
        }
    }
}

/// The kept datagrams. The moments that matter are known only later, so some of each are kept.
#[derive(Debug)]
pub struct Sample {
    dice: fastrand::Rng,
    all: Reservoir,
    moments: BTreeMap<u64, Reservoir>,
}

impl Sample {
    /// Makes a sample that keeps `size` of all datagrams.
    pub fn new(size: usize, seed: u64) -> Self {
        let dice = fastrand::Rng::with_seed(seed);
        Self { dice, all: Reservoir::new(size), moments: BTreeMap::new() }
    }

    /// Adds a datagram that has arrived.
    pub fn add(&mut self, used: Use) {
        self.all.add(used, &mut self.dice);
        let moment = self.moments.entry(used.at_us / MOMENT_US);
        moment.or_insert_with(|| Reservoir::new(OF_MOMENT)).add(used, &mut self.dice);
    }

    /// Returns the sample in which each datagram has the same probability.
    pub(super) fn all(&self) -> &[Use] {
        &self.all.kept
    }

    /// Returns the samples of each moment, in order of the moments.
    pub(super) fn of_moments(&self) -> impl Iterator<Item = &Use> {
        self.moments.values().flat_map(|moment| &moment.kept)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddrV4};

    use super::*;

    fn used(at_us: u64) -> Use {
        let address = Ipv4Addr::new(198, 18, 0, 1);
        Use { at_us, public: SocketAddrV4::new(address, 1024), home: address }
    }

    #[test]
    fn early_and_late_datagrams_are_kept_alike_and_some_of_each_moment() {
        let mut early = 0;
        for seed in 0..50 {
            let mut sample = Sample::new(40, seed);
            (0..1_000).for_each(|ms| sample.add(used(ms * 1_000)));
            assert_eq!(sample.all().len(), 40);
            early += sample.all().iter().filter(|it| it.at_us < 500_000).count();
            let of_first = sample.of_moments().filter(|it| it.at_us < MOMENT_US).count();
            assert_eq!((of_first, sample.of_moments().count()), (OF_MOMENT, 4 * OF_MOMENT));
        }
        // Expected: half of 2,000; six standard deviations are 134.
        assert!((860..=1_140).contains(&early), "{early}");
    }

    #[test]
    fn fewer_than_the_size_are_all_kept() {
        let mut sample = Sample::new(40, 1);
        (0..8).for_each(|second| sample.add(used(second * 1_000_000)));
        assert_eq!((sample.all().len(), sample.of_moments().count()), (8, 8));
    }
}

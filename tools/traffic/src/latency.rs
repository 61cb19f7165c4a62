//! Latencies in a histogram of fixed precision. Hot path: one entry per packet.
//!
//! Buckets as in HdrHistogram: each power of two is divided into 64 equal buckets, so a value is
//! known to 1.6 %.

use serde::{Deserialize, Serialize};

const PRECISION_BITS: u32 = 6;
const CUTS: usize = 1 << PRECISION_BITS;
/// Below 2^6 every value has its own bucket, above there are 64 for each of the remaining 26 powers
/// of two in 32 bits.
const BUCKETS: usize = CUTS * (32 - PRECISION_BITS as usize + 1);

#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Box<[u64]>,
    samples: u64,
    min: u32,
    max: u32,
}

/// Percentiles in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    pub samples: u64,
    pub min_us: f64,
    pub p50_us: f64,
    pub p90_us: f64,
    pub p99_us: f64,
    pub p99_9_us: f64,
    pub max_us: f64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { counts: vec![0; BUCKETS].into(), samples: 0, min: u32::MAX, max: 0 }
    }
}

impl Histogram {
    #[inline]
    pub fn record(&mut self, value: u32) {
        self.counts[bucket(value)] += 1;
        self.samples += 1;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    pub fn clear(&mut self) {
        *self = Histogram::default();
    }

    /// Returns the value that `share` (0 to 1) of the samples do not exceed, as the upper end of
    /// its bucket; 0 without samples.
    pub fn percentile(&self, share: f64) -> u32 {
        let wanted = (share * self.samples as f64).ceil().max(1.0) as u64;
        let mut below = 0;
        for (index, count) in self.counts.iter().enumerate() {
            below += count;
            if below >= wanted {
                return upper_end(index).clamp(self.min, self.max);
            }
        }
        0
    }

    /// Returns the percentiles; `None` without samples. `per_second`: units of the recorded values
    /// in a second.
    pub fn summary(&self, per_second: f64) -> Option<Latency> {
        let us = |value: u32| f64::from(value) / per_second * 1e6;
        (self.samples > 0).then(|| Latency {
            samples: self.samples,
            min_us: us(self.min),
            p50_us: us(self.percentile(0.5)),
            p90_us: us(self.percentile(0.9)),
            p99_us: us(self.percentile(0.99)),
            p99_9_us: us(self.percentile(0.999)),
            max_us: us(self.max),
        })
    }
}

#[inline]
fn bucket(value: u32) -> usize {
    let shift = value.max(CUTS as u32).ilog2() - PRECISION_BITS;
    let row = if value < CUTS as u32 { 0 } else { shift as usize + 1 };
    row * CUTS + ((value >> shift) as usize & (CUTS - 1))
}

fn upper_end(index: usize) -> u32 {
    let (row, cut) = (index / CUTS, (index % CUTS) as u64);
    let end = match row.checked_sub(1) {
        None => cut,
        Some(shift) => ((CUTS as u64 + cut + 1) << shift) - 1,
    };
    u32::try_from(end).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_its_bucket_to_one_part_in_sixty_four() {
        let values = (0..10_000)
            .chain((13..32).flat_map(|bit| [(1u32 << bit) - 1, 1 << bit, (1 << bit) + 77]));
        for value in values.chain([u32::MAX]) {
            let end = upper_end(bucket(value));
            assert!(end >= value && end - value <= value / CUTS as u32, "{value}: {end}");
            assert!(bucket(value) < BUCKETS);
        }
    }

    #[test]
    fn percentiles_of_a_known_set() {
        let mut histogram = Histogram::default();
        for value in 1..=1000 {
            histogram.record(value * 100);
        }
        for (share, right) in [(0.5, 50_000), (0.99, 99_000), (0.999, 99_900)] {
            let got = histogram.percentile(share);
            assert!(got >= right && got - right <= right / 64, "{share}: {got}");
        }
        let summary = histogram.summary(1e6).unwrap();
        assert_eq!((summary.samples, summary.min_us, summary.max_us), (1000, 100.0, 100_000.0));
    }

    #[test]
    fn empty_histogram_has_no_latency() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.summary(1e9), None);
        histogram.record(5);
        histogram.clear();
        assert_eq!(histogram.summary(1e9), None);
    }
}

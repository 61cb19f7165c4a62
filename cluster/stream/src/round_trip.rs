//! The time to wait for an acknowledgement: RFC 6298 with bounds fit for a data centre.

use crate::options::StreamOptions;

#[derive(Debug)]
pub(crate) struct RoundTrip {
    /// Smoothed round trip and its variation, in microseconds; 0 = not measured yet.
    smoothed_us: u64,
    variation_us: u64,
    min_us: u64,
    max_us: u64,
}

impl RoundTrip {
    pub(crate) fn new(options: &StreamOptions) -> Self {
        Self {
            smoothed_us: 0,
            variation_us: 0,
            min_us: options.retransmit_min_us,
            max_us: options.retransmit_max_us,
        }
    }

    /// Takes a sample (RFC 6298 section 2), only of a datagram that was sent once (Karn's rule,
    /// section 3).
    pub(crate) fn measured(&mut self, sample_us: u64) {
        let sample = sample_us.max(1);
        if self.smoothed_us == 0 {
            (self.smoothed_us, self.variation_us) = (sample, sample / 2);
            return;
        }
        let difference = self.smoothed_us.abs_diff(sample);
        self.variation_us = (3 * self.variation_us + difference) / 4;
        self.smoothed_us = ((7 * self.smoothed_us + sample) / 8).max(1);
    }

    /// Returns the time without acknowledgement after which a datagram is sent again; each timeout
    /// doubles it, up to the maximum.
    pub(crate) fn timeout_us(&self, times_in_vain: u32) -> u64 {
        let timeout = match self.smoothed_us {
            0 => 4 * self.min_us,
            smoothed => smoothed + 4 * self.variation_us,
        };
        timeout.max(self.min_us).saturating_mul(1 << times_in_vain.min(16)).min(self.max_us)
    }

    /// Returns the time within which an overtaken datagram is not taken for lost.
    pub(crate) fn reordering_us(&self) -> u64 {
        self.smoothed_us + self.smoothed_us / 4
    }

    /// Returns the smoothed round trip in microseconds; 0: not measured yet.
    pub(crate) fn smoothed_us(&self) -> u64 {
        self.smoothed_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_follows_the_round_trip_and_doubles_within_bounds() {
        let options = StreamOptions {
            retransmit_min_us: 2_000,
            retransmit_max_us: 100_000,
            ..StreamOptions::default()
        };
        let mut round_trip = RoundTrip::new(&options);
        assert_eq!(round_trip.timeout_us(0), 8_000);
        for _ in 0..100 {
            round_trip.measured(5_000);
        }
        assert!((5_000..6_000).contains(&round_trip.timeout_us(0)));
        assert!(round_trip.timeout_us(1) >= 10_000);
        assert_eq!(round_trip.timeout_us(40), 100_000);
        for _ in 0..100 {
            round_trip.measured(50);
        }
        assert_eq!(round_trip.timeout_us(0), 2_000);
    }
}

//! Metrics of routes: the lowest wins on every switch.
//!
//! ```text
//!   primary of term t + 1 < acting primary of term t, by rank < primary of term t < ... < 2^31
//!       < 2^31 + 1 .. 2^31 + 4: synced replicas by rank < 2^31 + 5: guests < 2^31 + 7: leaving
//! ```
//!
//! A newer term beats a stale owner. Members that have seen the same entry never announce the same
//! metric. Several guests do, but there are several only after several failures.

use std::fmt;

use weir_ids::Term;

use weir_map::Rank;

const MIDDLE: u32 = 1 << 31;

/// Metric of a route in the kernel's table; the routing daemon makes it the MED.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Metric(pub u32);

impl Metric {
    /// Worse than any replica: a worker that is not a member any more, until its switches are
    /// quiet.
    pub const LEAVING: Self = Self(MIDDLE + 7);

    /// Worse than any replica: a guest creates no flow.
    pub const GUEST: Self = Self(MIDDLE + 5);

    pub fn primary(term: Term) -> Self {
        Self(MIDDLE - 8 * term.0)
    }

    /// Better than the primary of the same term, worse than that of the next.
    pub fn acting(term: Term, rank: Rank) -> Self {
        Self(MIDDLE - 8 * term.0 - (6 - u32::from(rank.0)))
    }

    pub fn replica(rank: Rank) -> Self {
        Self(MIDDLE + u32::from(rank.0))
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_in_order_and_never_equal() {
        for term in [Term(1), Term(2), Term(1000), Term(Term::MAX.0 - 1)] {
            let mut metrics = vec![Metric::primary(Term(term.0 + 1))];
            metrics.extend((1..=4).map(|rank| Metric::acting(term, Rank(rank))));
            metrics.push(Metric::primary(term));
            metrics.extend((1..=4).map(|rank| Metric::replica(Rank(rank))));
            metrics.extend([Metric::GUEST, Metric::LEAVING]);
            assert!(metrics.is_sorted_by(|better, worse| better < worse), "{metrics:?}");
        }
    }

    #[test]
    fn the_last_term_still_has_metrics() {
        assert!(Metric::acting(Term::MAX, Rank(1)) > Metric(0));
    }
}

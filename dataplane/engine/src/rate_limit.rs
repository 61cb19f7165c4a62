//! Token buckets over the worker's clock, with a rate a second and a burst of the same size; and a
//! rate that parties share.

use weir_nat::GROUPS;

use crate::party::{Demand, LimitedParty, Party, PartyTable};

/// One token, in thousandths.
const TOKEN: u64 = 1000;

#[derive(Clone, Copy, Debug)]
pub(crate) struct RateLimit {
    per_sec: u64,
    /// Tokens left, in thousandths.
    tokens: u64,
    refilled_ms: u64,
}

impl RateLimit {
    pub(crate) const fn new(per_sec: u64) -> Self {
        Self { per_sec, tokens: per_sec * TOKEN, refilled_ms: 0 }
    }

    /// Sets the rate from now on. Tokens beyond the new burst are lost.
    const fn set_rate(&mut self, per_sec: u64) {
        self.per_sec = per_sec;
    }

    /// Takes a token; false if there is none.
    pub(crate) fn admit(&mut self, now_ms: u64) -> bool {
        // A rate in tokens a second is the same number of thousandths a millisecond.
        let earned = now_ms.saturating_sub(self.refilled_ms).min(1000) * self.per_sec;
        self.refilled_ms = now_ms.max(self.refilled_ms);
        self.tokens = (self.tokens + earned).min(self.per_sec * TOKEN);
        let is_admitted = self.tokens >= TOKEN;
        if is_admitted {
            self.tokens -= TOKEN;
        }
        is_admitted
    }
}

/// A worker's rate. Half of it is for any party, a quarter each is reserved for modest parties of
/// two groups: neither parties with a high demand nor the other group can use it.
#[derive(Debug)]
pub(crate) struct SharedRate {
    open: RateLimit,
    kept: [RateLimit; 2],
}

impl SharedRate {
    pub(crate) const fn new(per_sec: u64) -> Self {
        let kept = RateLimit::new(per_sec / 4);
        Self { open: RateLimit::new(per_sec - 2 * (per_sec / 4)), kept: [kept; 2] }
    }

    /// Sets the rate from now on.
    pub(crate) fn set_rate(&mut self, per_sec: u64) {
        self.open.set_rate(per_sec - 2 * (per_sec / 4));
        self.kept.iter_mut().for_each(|kept| kept.set_rate(per_sec / 4));
    }

    pub(crate) fn admit(&mut self, group: usize, demand: Demand, now_ms: u64) -> bool {
        match demand {
            Demand::Excessive => false,
            Demand::High => self.open.admit(now_ms),
            Demand::Modest => self.open.admit(now_ms) || self.kept[group].admit(now_ms),
        }
    }
}

/// A rate for each party, within a rate of the worker.
#[derive(Debug)]
pub(crate) struct PartyLimit {
    /// Kept apart from the remotes, so that forged remotes do not displace homes.
    homes: PartyTable,
    remotes: PartyTable,
    worker: SharedRate,
}

impl PartyLimit {
    /// Makes limits for `parties` homes and as many remotes that are known at once.
    pub(crate) fn new(parties: usize, per_sec: u32, worker_per_sec: u32, seed: [u64; 2]) -> Self {
        Self {
            homes: PartyTable::new(parties, per_sec, per_sec, seed),
            remotes: PartyTable::new(parties, per_sec, per_sec, seed),
            worker: SharedRate::new(worker_per_sec.into()),
        }
    }

    /// Sets the rate of each party from now on.
    pub(crate) fn set_party_rate(&mut self, per_sec: u32) {
        let rates = [[per_sec; 2]; GROUPS as usize];
        self.homes.set_rates(&rates);
        self.remotes.set_rates(&rates);
    }

    /// Takes a token of the party and one of the worker; false if either is missing.
    pub(crate) fn admit(&mut self, asking: &LimitedParty, now_ms: u64) -> bool {
        let (parties, side) = match asking.party {
            Party::Home(_) => (&mut self.homes, 0),
            Party::Remote(_) | Party::Remote6(_) => (&mut self.remotes, 1),
        };
        let demand = parties.ask(asking, 0, now_ms);
        self.worker.admit(side, demand, now_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_a_rate() {
        let mut limit = RateLimit::new(1000);
        assert_eq!((0..2000).filter(|_| limit.admit(5000)).count(), 1000);
        assert_eq!((0..2000).filter(|_| limit.admit(5010)).count(), 10);
        assert_eq!((0..2000).filter(|_| limit.admit(60_000)).count(), 1000);
    }

    #[test]
    fn a_rate_below_one_a_millisecond_is_kept_to() {
        let mut limit = RateLimit::new(3);
        assert_eq!((0..10_000).filter(|&ms| limit.admit(ms)).count(), 3 + 29);
        assert!(!RateLimit::new(0).admit(1_000_000));
    }

    #[test]
    fn greedy_parties_leave_modest_ones_their_quarter() {
        let mut rate = SharedRate::new(100);
        let mut count =
            |demand, group| (0..200).filter(|_| rate.admit(group, demand, 5000)).count();
        assert_eq!(count(Demand::Excessive, 0), 0);
        assert_eq!(count(Demand::High, 0), 50);
        assert_eq!(count(Demand::Modest, 0), 25);
        assert_eq!(count(Demand::Modest, 1), 25, "nor does the other group take it");
    }

    #[test]
    fn the_worker_never_exceeds_its_rate() {
        let mut limit = PartyLimit::new(1024, 20, 100, [1, 2]);
        let admitted = (0..100_000_u32)
            .filter(|n| limit.admit(&LimitedParty::remote(n % 5000), u64::from(n / 10)))
            .count();
        // The quarter reserved for homes is left.
        assert!((750..=825).contains(&admitted), "{admitted} in ten seconds");
    }
}

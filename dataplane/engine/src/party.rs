//! The parties (homes and remotes) that share a worker's common resources, and the rate of each
//! party's requests.

use std::hash::{Hash, Hasher};

use weir_flow::HashKey;
use weir_nat::{GROUPS, Home};
use weir_wire::frame::Frame;

use crate::engine::Engine;

/// The party that is charged for something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Party {
    /// A home, as [`weir_nat::Nat::identity`] distinguishes it: the sender of the packet, or its
    /// destination.
    Home(Home),
    /// An address on the internet.
    Remote(u32),
    /// The IPv6 addresses on the internet that begin with these two words: one link has them all.
    Remote6([u32; 2]),
}

impl Party {
    /// The remote that has this IPv6 address.
    pub(crate) const fn remote6(address: u128) -> Self {
        Self::Remote6([(address >> 96) as u32, (address >> 64) as u32])
    }

    /// Returns two words that differ from any other party's; for a home those of [`words_of`].
    fn words(&self) -> (u64, u64) {
        match self {
            Self::Home(home) => words_of(home),
            Self::Remote(address) => (u64::from(*address), 0),
            Self::Remote6([high, low]) => (u64::from(*high) << 32 | u64::from(*low), 1 << 40),
        }
    }
}

impl Hash for Party {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let (first, second) = self.words();
        state.write_u64(first);
        state.write_u64(second);
    }
}

/// Returns two words that differ from any other home's, of 49 and 33 bits; the first is never 0.
pub(crate) fn words_of(&Home { shard, outer, gre_key }: &Home) -> (u64, u64) {
    let first = 1 << 48 | u64::from(shard.0) << 32 | u64::from(outer);
    (first, gre_key.map_or(0, |key| 1 << 32 | u64::from(key)))
}

/// A party, and the group of homes whose limits it has: 0 unless it is a home of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LimitedParty {
    pub(crate) party: Party,
    pub(crate) group: u8,
}

impl LimitedParty {
    pub(crate) const fn remote(address: u32) -> Self {
        Self { party: Party::Remote(address), group: 0 }
    }
}

impl<F: Frame> Engine<F> {
    /// Returns a home as a party.
    pub(crate) fn party_of(&self, home: &Home) -> LimitedParty {
        let group = self.nat.group_of(home);
        LimitedParty { party: Party::Home(self.nat.identity(home)), group }
    }
}

/// How a party's requests compare with its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Demand {
    /// Few requests: the party may use the reserved part of a shared rate too.
    Modest,
    /// Many requests, within the party's own limit.
    High,
    /// More requests than the party's limit.
    Excessive,
}

/// One request, in thousandths.
const REQUEST: i64 = 1000;
/// A party with a request rate below this part of its limit is modest.
const MODEST_PART: i64 = 4;
/// Number of requests that a modest party may make at once: the probes of one hop of a traceroute
/// come together.
const MODEST_BURST: i64 = 4;
/// Parties that share one line of the table.
const WAYS: usize = 4;

#[derive(Clone, Copy, Debug)]
struct Account {
    /// Hash of the party and of the kind of its requests; 0: unused.
    tag: u64,
    asked_ms: u64,
    /// Requests that the party has left, in thousandths.
    tokens: i64,
    /// Modest requests that the party has left, in thousandths. Each request counts, granted or
    /// not, so the value can fall below 0: a party that never stops asking is never modest.
    modest: i64,
}

/// The rate of the parties of a group.
#[derive(Clone, Copy, Debug)]
struct PartyRate {
    per_sec: i64,
    /// Largest allowance, in thousandths of a request.
    most: i64,
    modest_per_sec: i64,
}

impl PartyRate {
    /// Requests that a party may make a second, and after a rest.
    fn new(per_sec: u32, at_once: u32) -> Self {
        let per_sec = i64::from(per_sec);
        let most = i64::from(at_once) * REQUEST;
        Self { per_sec, most, modest_per_sec: (per_sec / MODEST_PART).max(1) }
    }

    fn modest_most(&self) -> i64 {
        self.modest_per_sec.max(MODEST_BURST) * REQUEST
    }
}

/// The allowances of the parties that asked last. A party that is not in the table has its whole
/// allowance; in a full line the party that has not asked for the longest time is forgotten.
#[derive(Debug)]
pub(crate) struct PartyTable {
    key: HashKey,
    /// By the group of the party.
    rates: [PartyRate; GROUPS as usize],
    lines: Box<[[Account; WAYS]]>,
}

impl PartyTable {
    /// Makes room for `parties`; each may make `per_sec` requests a second, and `at_once` requests
    /// after a rest.
    pub(crate) fn new(parties: usize, per_sec: u32, at_once: u32, seed: [u64; 2]) -> Self {
        let nobody = Account { tag: 0, asked_ms: 0, tokens: 0, modest: 0 };
        let lines = vec![[nobody; WAYS]; (parties / WAYS).next_power_of_two()].into();
        let key = HashKey::new(seed);
        Self { key, rates: [PartyRate::new(per_sec, at_once); GROUPS as usize], lines }
    }

    /// Sets the requests that a party of each group may make a second and at once, from now on,
    /// also of parties that are known.
    pub(crate) fn set_rates(&mut self, rates: &[[u32; 2]; GROUPS as usize]) {
        self.rates = rates.map(|[per_sec, at_once]| PartyRate::new(per_sec, at_once));
    }

    /// Counts a request of `kind`; each kind is counted separately.
    pub(crate) fn ask(&mut self, asking: &LimitedParty, kind: u8, now_ms: u64) -> Demand {
        let rate = self.rates[usize::from(asking.group % GROUPS)];
        let (most, modest_most) = (rate.most, rate.modest_most());
        let PartyRate { per_sec, modest_per_sec, .. } = rate;
        let account = self.account(&asking.party, kind, &rate, now_ms);
        // A rate in requests a second is the same number of thousandths a millisecond. A long time
        // earns the whole allowance.
        let earned_ms = now_ms.saturating_sub(account.asked_ms).min(1 << 30) as i64;
        account.asked_ms = now_ms.max(account.asked_ms);
        account.tokens = (account.tokens + earned_ms * per_sec).min(most);
        account.modest = (account.modest + earned_ms * modest_per_sec).min(modest_most);
        let is_modest = account.modest >= REQUEST;
        account.modest = (account.modest - REQUEST).max(-modest_most);
        if account.tokens < REQUEST {
            return Demand::Excessive;
        }
        account.tokens -= REQUEST;
        if is_modest { Demand::Modest } else { Demand::High }
    }

    fn account(&mut self, party: &Party, kind: u8, rate: &PartyRate, now_ms: u64) -> &mut Account {
        let tag = self.tag(party, kind);
        let (tokens, modest) = (rate.most, rate.modest_most());
        let line = (tag >> 32) as usize & (self.lines.len() - 1);
        let accounts = &mut self.lines[line];
        let known = accounts.iter().position(|account| account.tag == tag);
        let index = known.unwrap_or_else(|| {
            let oldest = (0..WAYS).min_by_key(|&index| accounts[index].asked_ms).unwrap_or(0);
            accounts[oldest] = Account { tag, asked_ms: now_ms, tokens, modest };
            oldest
        });
        &mut accounts[index]
    }

    fn tag(&self, party: &Party, kind: u8) -> u64 {
        let (first, second) = party.words();
        // 0 marks an unused account.
        self.key.hash([first, second, u64::from(kind)]).0 | 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> PartyTable {
        PartyTable::new(4096, 20, 20, [1, 2])
    }

    fn ask(table: &mut PartyTable, remote: u32, now_ms: u64) -> Demand {
        table.ask(&LimitedParty::remote(remote), 0, now_ms)
    }

    #[test]
    fn a_party_gets_its_rate_and_as_much_at_once() {
        let mut table = table();
        let mut granted =
            |now_ms| (0..100).filter(|_| ask(&mut table, 1, now_ms) != Demand::Excessive).count();
        assert_eq!(granted(5000), 20);
        assert_eq!(granted(5050), 1);
        assert_eq!(granted(5075), 0);
        assert_eq!(granted(5100), 1, "fractions earned between two requests are kept");
        assert_eq!(granted(1_000_000), 20);
    }

    #[test]
    fn a_party_that_asks_without_end_is_never_modest() {
        let mut table = table();
        let demands: Vec<_> = (0..10_000).map(|ms| ask(&mut table, 1, ms)).collect();
        assert!(demands[..5].iter().all(|demand| *demand == Demand::Modest));
        assert!(demands[5..].iter().all(|demand| *demand != Demand::Modest));
        let granted = demands.iter().filter(|demand| **demand != Demand::Excessive).count();
        assert!((200..=220).contains(&granted), "{granted}");
        assert_eq!(ask(&mut table, 1, 12_000), Demand::Modest, "modest again after a rest");
    }

    #[test]
    fn a_party_that_asks_seldom_is_always_modest() {
        let mut table = table();
        for second in 0..1000 {
            for remote in 0..4 {
                assert_eq!(ask(&mut table, remote, second * 1000), Demand::Modest);
            }
        }
    }

    #[test]
    fn kinds_and_homes_are_counted_apart() {
        let mut table = table();
        let home = |shard, outer, gre_key| {
            Party::Home(Home { shard: weir_nat::ShardIndex(shard), outer, gre_key })
        };
        let parties = [
            Party::Remote(1),
            home(0, 1, None),
            home(1, 1, None),
            home(0, 2, None),
            home(0, 1, Some(0)),
            home(0, 1, Some(1)),
        ];
        for party in parties {
            for kind in 0..2 {
                let asking = LimitedParty { party, group: 0 };
                let granted = (0..100).filter(|_| table.ask(&asking, kind, 0) != Demand::Excessive);
                assert_eq!(granted.count(), 20, "{party:?} {kind}");
            }
        }
    }

    /// However many parties ask, the table keeps its size, and parties that ask all the time stay
    /// in it.
    #[test]
    fn crowd_of_parties_displaces_only_parties_that_have_stopped_asking() {
        let mut table = PartyTable::new(64, 20, 20, [1, 2]);
        let mut granted = 0;
        for ms in 0..100_000_u64 {
            granted += u64::from(ask(&mut table, 0, ms) != Demand::Excessive);
            if ms.is_multiple_of(4) {
                ask(&mut table, 1 + ms as u32, ms);
            }
        }
        assert!(granted <= 2020, "{granted}");
        assert_eq!(table.lines.len() * WAYS, 64);
    }

    #[test]
    fn a_clock_that_steps_back_earns_nothing() {
        let mut table = table();
        assert_eq!((0..30).filter(|_| ask(&mut table, 1, 9000) != Demand::Excessive).count(), 20);
        assert_eq!(ask(&mut table, 1, 1000), Demand::Excessive);
        assert_eq!(ask(&mut table, 1, 9000), Demand::Excessive);
    }

    #[test]
    fn party_has_the_rate_of_its_group() {
        let mut table = table();
        let mut rates = [[20, 20]; GROUPS as usize];
        rates[3] = [50, 100];
        table.set_rates(&rates);
        for (group, at_once, per_sec) in [(0, 20, 20), (3, 100, 50), (4, 20, 20)] {
            let asking = LimitedParty { party: Party::Remote(group.into()), group };
            let mut granted = |now_ms| {
                let asked = (0..200).filter(|_| table.ask(&asking, 0, now_ms) != Demand::Excessive);
                asked.count()
            };
            assert_eq!([granted(0), granted(1000)], [at_once, per_sec], "group {group}");
        }
    }

    #[test]
    fn rate_of_zero_grants_no_request() {
        let mut table = PartyTable::new(64, 0, 0, [1, 2]);
        assert!((0..10_000).all(|ms| ask(&mut table, 1, ms) == Demand::Excessive));
    }
}

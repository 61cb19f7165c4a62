//! Hot. Limit on the use of the slow path by one home or one remote. A packet on it takes several
//! times as long as on the fast path, so a home that sends nothing else would take the worker's
//! time from all others, whatever happens to its packets.
//!
//! ```text
//!   packet on the slow path, either way:
//!       its home is over its limit in this millisecond  -->  dropped
//!       else it passes; one in 32 is charged to its home, for all 32
//! ```
//!
//! A home is charged as often as it sends, and nearly every packet costs only a count. A home over
//! its limit is recognised by its address, so that its packets are dropped before the slow path
//! reads them. It stays over its limit until the next millisecond, in which it has earned some
//! packets more. A remote is charged where the home is not known: for fragments that come before
//! their first.

use weir_nat::{GROUPS, Home, OutboundKey};
use weir_wire::frame::Frame;

use crate::engine::Engine;
use crate::party::{Demand, LimitedParty, Party, PartyTable};

/// One packet in so many is charged to its party.
const SAMPLE: u32 = 32;
/// Number of parties whose packets are counted at once.
const PARTIES: usize = 4096;
/// The burst of a party is its packets a second divided by this.
const BURST_PART: u32 = 10;
/// Slots for parties that are over their limit, base-2 logarithm.
const SLOTS_LOG2: u32 = 6;

/// Direction of the packets of a home. Each has its own limit: a remote must not stop what the home
/// sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Up,
    Down,
}

/// A party that was over its limit in a millisecond.
#[derive(Clone, Copy, Debug)]
struct Over {
    party: Party,
    way: Way,
    ms: u64,
}

/// The slow-path limit of each party of a worker.
#[derive(Debug)]
pub(crate) struct SlowPathLimit {
    /// One request stands for [`SAMPLE`] packets.
    parties: PartyTable,
    /// Packets until one is checked; while a party is over its limit, every packet is checked.
    left: u32,
    /// Packets until one is charged, among those that are checked while a party is over its limit.
    uncharged: u32,
    now_ms: u64,
    /// The last millisecond in which a party was over its limit.
    over_ms: u64,
    over: [Option<Over>; 1 << SLOTS_LOG2],
}

/// Returns the requests that a party may make a second and at once, of [`SAMPLE`] packets each.
fn sampled(per_sec: u32) -> [u32; 2] {
    let per_sec = (per_sec / SAMPLE).max(1);
    [per_sec, (per_sec / BURST_PART).max(1)]
}

impl SlowPathLimit {
    /// Makes a limit of `per_sec` packets a second for each party each way, with a burst of a tenth
    /// of that.
    pub(crate) fn new(per_sec: u32, seed: [u64; 2]) -> Self {
        let [per_sec, at_once] = sampled(per_sec);
        Self {
            parties: PartyTable::new(PARTIES, per_sec, at_once, seed),
            left: SAMPLE,
            uncharged: SAMPLE,
            now_ms: 0,
            over_ms: u64::MAX,
            over: [None; 1 << SLOTS_LOG2],
        }
    }

    /// Sets the packets a second of a party of each group from now on.
    pub(crate) fn set_rates(&mut self, per_sec: &[u32; GROUPS as usize]) {
        self.parties.set_rates(&per_sec.map(sampled));
    }

    /// Sets the time of the packets that follow.
    #[inline(always)]
    pub(crate) fn set_now(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
    }

    /// Counts a packet on the slow path. True if it has to be checked: it is charged, or a party
    /// may be over its limit.
    #[inline(always)]
    fn count(&mut self) -> bool {
        self.left -= 1;
        self.left == 0
    }

    /// True if a packet that has to be checked may take the slow path. `group` is that of the party
    /// ([`LimitedParty`]), looked up only if the packet is charged.
    fn admit(&mut self, party: Party, group: impl FnOnce() -> u8, way: Way) -> bool {
        let is_over = self.is_over(&party, way);
        // While a party is over its limit, the packets of the other parties are charged as seldom
        // as before.
        if !is_over && (self.over_ms != self.now_ms || self.is_next_charged()) {
            self.charge(&LimitedParty { party, group: group() }, way);
        }
        self.left = if self.over_ms == self.now_ms { 1 } else { SAMPLE };
        !is_over
    }

    fn is_next_charged(&mut self) -> bool {
        self.uncharged = if self.uncharged == 0 { SAMPLE - 1 } else { self.uncharged - 1 };
        self.uncharged == 0
    }

    /// True if the party is over its limit. Counts nothing.
    #[inline]
    pub(crate) fn is_over(&self, party: &Party, way: Way) -> bool {
        let is_it = |over: Over| over.ms == self.now_ms && over.way == way && over.party == *party;
        self.over_ms == self.now_ms && self.over[slot_of(party)].is_some_and(is_it)
    }

    fn charge(&mut self, asking: &LimitedParty, way: Way) {
        let (ms, party) = (self.now_ms, asking.party);
        if self.parties.ask(asking, way as u8, ms) == Demand::Excessive {
            self.over[slot_of(&party)] = Some(Over { party, way, ms });
            self.over_ms = ms;
        }
    }
}

impl<F: Frame> Engine<F> {
    /// True if this packet of a home may take the slow path.
    #[inline(always)]
    pub(crate) fn may_take_slow_path(&mut self, home: &Home, way: Way) -> bool {
        !self.slow_path.count() || self.charge_slow_path(home, way)
    }

    /// As [`may_take_slow_path`](Self::may_take_slow_path), for a fast-path packet from a home.
    #[inline(always)]
    pub(crate) fn may_home_take_slow_path(&mut self, key: &OutboundKey) -> bool {
        !self.slow_path.count() || self.charge_fast_path_packet(key)
    }

    #[inline(never)]
    fn charge_fast_path_packet(&mut self, key: &OutboundKey) -> bool {
        self.charge_slow_path(&key.home(), Way::Up)
    }

    #[inline(never)]
    fn charge_slow_path(&mut self, home: &Home, way: Way) -> bool {
        let Self { slow_path, nat, .. } = self;
        slow_path.admit(Party::Home(nat.identity(home)), || nat.group_of(home), way)
    }

    /// True if this packet of a remote, to a home that is not known yet, may take the slow path.
    pub(crate) fn may_remote_take_slow_path(&mut self, remote: Party) -> bool {
        !self.slow_path.count() || self.slow_path.admit(remote, || 0, Way::Down)
    }
}

/// Returns the slot of a party. Parties with the same slot displace each other, and then both get
/// some packets more.
#[inline]
fn slot_of(party: &Party) -> usize {
    let address = match party {
        Party::Home(Home { outer: address, .. }) | Party::Remote(address) => *address,
        Party::Remote6([high, low]) => high ^ low,
    };
    (address.wrapping_mul(0x9e37_79b1) >> (32 - SLOTS_LOG2)) as usize
}

#[cfg(test)]
mod tests {
    use weir_nat::ShardIndex;

    use super::*;

    const PER_SEC: u32 = 200_000;

    fn home(outer: u32) -> Party {
        home_of(1, outer, None)
    }

    fn home_of(shard: u16, outer: u32, gre_key: Option<u32>) -> Party {
        Party::Home(Home { shard: ShardIndex(shard), outer, gre_key })
    }

    /// Returns the number of packets, of `sent`, that pass in a millisecond.
    fn pass(limit: &mut SlowPathLimit, party: &Party, way: Way, ms: u64, sent: u32) -> u32 {
        limit.set_now(ms);
        (0..sent).map(|_| u32::from(!limit.count() || limit.admit(*party, || 0, way))).sum()
    }

    #[test]
    fn a_home_gets_its_rate_and_a_tenth_of_it_at_once() {
        let mut limit = SlowPathLimit::new(PER_SEC, [1, 2]);
        let one = home(1);
        let at_once = pass(&mut limit, &one, Way::Up, 1000, 100_000);
        assert!((20_000..=20_000 + 2 * SAMPLE).contains(&at_once), "{at_once}");
        let later: u32 = (1001..2001).map(|ms| pass(&mut limit, &one, Way::Up, ms, 5000)).sum();
        assert!((195_000..=220_000).contains(&later), "{later} in a second");
    }

    #[test]
    fn a_home_within_its_limit_loses_nothing_beside_homes_that_flood() {
        let mut limit = SlowPathLimit::new(PER_SEC, [1, 2]);
        let mut lost = 0;
        for ms in 0..1000 {
            for flooding in 0..3 {
                pass(&mut limit, &home(100 + flooding), Way::Up, ms, 1003);
            }
            lost += 50 - pass(&mut limit, &home(1), Way::Up, ms, 50);
        }
        assert_eq!(lost, 0);
    }

    #[test]
    fn packets_to_a_home_do_not_count_against_packets_that_it_sends() {
        let mut limit = SlowPathLimit::new(PER_SEC, [1, 2]);
        let one = home(1);
        assert!(pass(&mut limit, &one, Way::Down, 1000, 100_000) < 100_000);
        assert!(limit.is_over(&one, Way::Down) && !limit.is_over(&one, Way::Up));
        assert_eq!(pass(&mut limit, &one, Way::Up, 1000, 10_000), 10_000);
    }

    #[test]
    fn parties_that_differ_by_key_shard_or_kind_are_counted_apart() {
        let mut limit = SlowPathLimit::new(PER_SEC, [1, 2]);
        let one = home(1);
        pass(&mut limit, &one, Way::Up, 1000, 100_000);
        assert!(limit.is_over(&one, Way::Up));
        for other in [home_of(1, 1, Some(7)), home_of(2, 1, None), Party::Remote(1)] {
            assert!(!limit.is_over(&other, Way::Up));
        }
        limit.set_now(1001);
        assert!(!limit.is_over(&one, Way::Up), "only until the next millisecond");
    }
}

//! Hot. The duties of a worker for each shard, set at run time, and the shards whose packets have
//! arrived here.
//!
//! At the start every shard is served and flows are made in it, which is all that a single node
//! needs. A packet reads one octet of its shard. There is an octet for each possible shard number,
//! so that no bounds are checked.

use std::net::Ipv4Addr;

use weir_nat::ShardIndex;
use weir_wire::Misses;
use weir_wire::frame::Frame;

use crate::engine::Engine;

/// Number of possible shard numbers.
const SHARDS: usize = 1 << 16;

/// The shard's packets are translated, and its endpoint answers pings.
const SERVES: u8 = 1;
/// Mappings are made in the shard.
const CREATES: u8 = 2;
/// A packet of the shard has arrived since the last call of `take_traffic`.
const TRAFFIC: u8 = 4;

#[derive(Debug)]
pub(crate) struct DutyTable {
    shards: Box<[u8; SHARDS]>,
    /// Worker to which the misses of a shard without [`CREATES`] are redirected, by address; 0:
    /// none.
    redirects: Box<[u32]>,
    /// Copy of `shards` made by [`begin_late`](Self::begin_late), restored afterwards.
    in_time: Box<[u8]>,
    /// Whether the packets being received are late: see [`begin_late`](Self::begin_late).
    is_late: bool,
    /// One more than the highest shard number that is known.
    end: usize,
}

impl DutyTable {
    /// Makes a table for shards 0 to `end` (exclusive); a shard that is set later extends it.
    pub(crate) fn new(end: usize) -> Self {
        let every = vec![SERVES | CREATES; SHARDS].into_boxed_slice();
        let redirects = vec![0; SHARDS].into_boxed_slice();
        let shards = every.try_into().expect("the vector has SHARDS octets");
        let in_time = vec![0; SHARDS].into_boxed_slice();
        Self { shards, redirects, in_time, is_late: false, end }
    }

    #[inline(always)]
    pub(crate) fn serves(&self, shard: ShardIndex) -> bool {
        self.shards[usize::from(shard.0)] & SERVES != 0
    }

    #[inline(always)]
    pub(crate) fn creates(&self, shard: ShardIndex) -> bool {
        self.shards[usize::from(shard.0)] & CREATES != 0
    }

    /// Returns the worker to which a miss of the shard is redirected.
    pub(crate) fn redirect(&self, shard: ShardIndex) -> Option<u32> {
        let to = self.redirects[usize::from(shard.0)];
        (to != 0 && !self.is_late).then_some(to)
    }

    /// Notes that a packet of the shard has arrived.
    #[inline(always)]
    pub(crate) fn note_traffic(&mut self, shard: ShardIndex) {
        self.shards[usize::from(shard.0)] |= TRAFFIC;
    }

    /// Returns whether the shard is served; if it is, notes that a packet of it has arrived.
    #[inline(always)]
    pub(crate) fn note_served_traffic(&mut self, shard: ShardIndex) -> bool {
        let duties = &mut self.shards[usize::from(shard.0)];
        let is_served = *duties & SERVES != 0;
        if is_served {
            *duties |= TRAFFIC;
        }
        is_served
    }

    fn set(&mut self, shard: ShardIndex, bit: u8, is_set: bool) {
        let at = usize::from(shard.0);
        self.end = self.end.max(at + 1);
        self.shards[at] = self.shards[at] & !bit | if is_set { bit } else { 0 };
    }

    pub(crate) fn set_serving(&mut self, shard: ShardIndex, is_serving: bool) {
        self.set(shard, SERVES, is_serving);
    }

    pub(crate) fn set_misses(&mut self, shard: ShardIndex, misses: Misses<Ipv4Addr>) {
        let to_nobody = Misses::Redirect(Ipv4Addr::UNSPECIFIED);
        assert!(misses != to_nobody, "a redirected packet has an address to go to");
        self.set(shard, CREATES, misses == Misses::Create);
        self.redirects[usize::from(shard.0)] = match misses {
            Misses::Redirect(to) => to.to_bits(),
            Misses::Create | Misses::Refuse => 0,
        };
    }

    /// Begins a burst of late packets: until [`end_late`](Self::end_late) no shard creates or
    /// redirects, and shards noted as heard are forgotten at the end. No duty may be set meanwhile.
    pub(crate) fn begin_late(&mut self) {
        assert!(!self.is_late, "bursts of late packets do not nest");
        self.is_late = true;
        let shards = &mut self.shards[..self.end];
        self.in_time[..self.end].copy_from_slice(shards);
        shards.iter_mut().for_each(|shard| *shard &= !CREATES);
    }

    pub(crate) fn end_late(&mut self) {
        self.is_late = false;
        self.shards[..self.end].copy_from_slice(&self.in_time[..self.end]);
    }

    fn take_traffic(&mut self, mut out: impl FnMut(ShardIndex)) {
        for (shard, number) in self.shards[..self.end].iter_mut().zip(0..=u16::MAX) {
            if *shard & TRAFFIC != 0 {
                *shard &= !TRAFFIC;
                out(ShardIndex(number));
            }
        }
    }
}

impl<F: Frame> Engine<F> {
    /// Calls `out` for each shard whose routes lead here: since the last call a packet of a
    /// configured home has arrived, or one from the internet with a mapping. Packets that another
    /// worker redirected, or that turned around here, do not count.
    pub fn take_traffic(&mut self, out: impl FnMut(ShardIndex)) {
        self.duties.take_traffic(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARD: ShardIndex = ShardIndex(7);

    fn traffic(duties: &mut DutyTable) -> Vec<u16> {
        let mut traffic = Vec::new();
        duties.take_traffic(|shard| traffic.push(shard.0));
        traffic
    }

    #[test]
    fn late_packets_make_and_redirect_nothing_and_leave_no_trace() {
        let mut duties = DutyTable::new(9);
        let to = Ipv4Addr::new(192, 0, 2, 1);
        duties.set_misses(SHARD, Misses::Redirect(to));
        duties.note_traffic(ShardIndex(1));
        duties.begin_late();
        for shard in (0..9).map(ShardIndex) {
            assert!(duties.serves(shard) && !duties.creates(shard));
            assert_eq!(duties.redirect(shard), None);
            duties.note_traffic(shard);
        }
        duties.end_late();
        assert_eq!(duties.redirect(SHARD), Some(to.to_bits()));
        assert!(duties.creates(ShardIndex(8)) && !duties.creates(SHARD));
        assert_eq!(traffic(&mut duties), [1]);
    }

    #[test]
    fn setting_one_duty_of_a_shard_leaves_other_shards_and_duties_unchanged() {
        let mut duties = DutyTable::new(8);
        assert!(duties.serves(SHARD) && duties.creates(SHARD));
        duties.set_misses(SHARD, Misses::Redirect(Ipv4Addr::new(10, 0, 0, 1)));
        assert!(duties.serves(SHARD) && !duties.creates(SHARD));
        assert_eq!(duties.redirect(SHARD), Some(0x0a00_0001));
        duties.set(SHARD, SERVES, false);
        duties.set_misses(SHARD, Misses::Refuse);
        assert!(!duties.serves(SHARD) && !duties.creates(SHARD));
        assert_eq!(duties.redirect(SHARD), None);
        assert!(duties.serves(ShardIndex(6)) && duties.creates(ShardIndex(8)));
        duties.set(SHARD, SERVES, true);
        duties.set_misses(SHARD, Misses::Create);
        assert!(duties.serves(SHARD) && duties.creates(SHARD));
    }

    #[test]
    fn traffic_of_a_shard_is_reported_once_and_keeps_its_duties() {
        let mut duties = DutyTable::new(8);
        duties.set(SHARD, SERVES, false);
        duties.note_traffic(SHARD);
        duties.note_traffic(ShardIndex(2));
        assert!(!duties.serves(SHARD) && duties.creates(SHARD));
        assert_eq!(traffic(&mut duties), [2, 7]);
        assert_eq!(traffic(&mut duties), [0; 0]);
        // A shard with a higher number is set later.
        duties.set(ShardIndex(u16::MAX), SERVES, true);
        duties.note_traffic(ShardIndex(u16::MAX));
        assert_eq!(traffic(&mut duties), [u16::MAX]);
    }
}

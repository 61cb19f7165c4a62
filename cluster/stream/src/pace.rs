//! Hot: the pace of copies. Between workers with room it is the limit; a worker that has more
//! packets than it can handle spends a small share of its time on copies.
//!
//! ```text
//!   sender     full turns: a byte per packet; other turns: no bound but the limit
//!   receiver   busy: half a byte per packet, announced in heartbeats; otherwise the limit again
//!   floor      neither bound is below a twentieth of the limit, so each copy ends
//! ```
//!
//! - A turn of the owner's loop is *full* if it took a full burst of packets: more may wait.
//! - A worker is *busy* if it spent at least half of its last ten milliseconds in full turns.
//! - The bound of a receiver is for all senders that copy to it; each gets an equal part.
//! - A copy advances in pieces of a few datagrams, which are filled: a record at a time would cost
//!   a cache miss each, and a look at all streams.
//! - Changes are never paced, only copies.

/// Bytes that a sender earns in a full turn for each packet. A copied record has some 48 bytes and
/// costs it as much time as two packets: 4 % of the turn.
const SENT_PER_PACKET: u64 = 1;

/// Packets for each of which a busy receiver accepts a byte: a record costs it as much as four
/// packets, again 4 % of its time.
const PACKETS_PER_TAKEN: u64 = 2;

/// Each bound is at least this part of the limit.
const FLOOR_PART: u64 = 20;

/// Bytes of a piece: eight datagrams of records. Code and tables of the copy are in no cache when
/// it begins.
const PIECE: i64 = 10_700;

/// Bytes that looking at a slot counts for, in a full turn, if it holds no record.
const SLOT: i64 = 8;

/// Time over which a receiver tells whether it is busy.
const WINDOW_US: u64 = 10_000;

/// Senders of which each gets its part of the floor.
const SENDERS_MAX: u64 = 64;

/// Packets of a turn of the owner's loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TurnLoad {
    /// Packets that the turn took.
    pub packets: u32,
    /// It took a full burst: more packets may wait.
    pub is_full: bool,
}

/// The pace of the copies that an endpoint sends, and the bound of those that it receives.
#[derive(Debug)]
pub(crate) struct Pace {
    limit: Allowance,
    /// Load of the turn to come.
    noted: TurnLoad,
    /// When the present turn began, and whether it is full.
    turn_us: u64,
    is_full: bool,
    /// Bytes that full turns have earned and not spent.
    earned: i64,
    /// When the receiver's window began; what happened in it.
    window_us: u64,
    full_us: u64,
    packets: u64,
    /// Bytes per second that all senders together may copy to this worker.
    accepted_per_sec: u64,
}

impl Pace {
    pub(crate) fn new(bytes_per_sec: u64) -> Self {
        Self {
            limit: Allowance::new(bytes_per_sec),
            noted: TurnLoad::default(),
            turn_us: 0,
            is_full: false,
            earned: 0,
            window_us: 0,
            full_us: 0,
            packets: 0,
            accepted_per_sec: bytes_per_sec,
        }
    }

    pub(crate) fn note(&mut self, load: TurnLoad) {
        self.noted = load;
    }

    /// Begins a turn with the load that was noted; without one it has no packets.
    #[inline]
    pub(crate) fn begin_turn(&mut self, now_us: u64) {
        let passed_us = now_us.saturating_sub(self.turn_us);
        let load = std::mem::take(&mut self.noted);
        self.full_us += if self.is_full { passed_us } else { 0 };
        (self.turn_us, self.is_full) = (now_us, load.is_full);
        if load.is_full {
            self.packets += u64::from(load.packets);
            let by_time = passed_us.min(WINDOW_US) * self.floor_per_sec() / 1_000_000;
            let earned = by_time.max(u64::from(load.packets) * SENT_PER_PACKET);
            self.earned = self.earned.saturating_add_unsigned(earned).min(2 * PIECE);
        }
        if now_us.saturating_sub(self.window_us) >= WINDOW_US {
            self.end_window(now_us);
        }
    }

    /// Lowers what a busy worker accepts to its share; raises it again step by step, as the load
    /// may be such that only a copy at full rate makes it busy.
    fn end_window(&mut self, now_us: u64) {
        let passed_us = now_us.saturating_sub(self.window_us);
        let limit = self.limit.bytes_per_sec;
        self.accepted_per_sec = if 2 * self.full_us >= passed_us {
            let share = self.packets * 1_000_000 / passed_us / PACKETS_PER_TAKEN;
            share.max(self.floor_per_sec()).min(limit)
        } else {
            (self.accepted_per_sec + self.accepted_per_sec / 4 + 1).min(limit)
        };
        (self.window_us, self.full_us, self.packets) = (now_us, 0, 0);
    }

    fn floor_per_sec(&self) -> u64 {
        (self.limit.bytes_per_sec / FLOOR_PART).max(1)
    }

    /// Returns the bytes per second that each of these senders may copy to this worker.
    pub(crate) fn accepted_per_sec(&self, senders: usize) -> u32 {
        let each = self.accepted_per_sec / senders.max(1) as u64;
        u32::try_from(each.max(1)).unwrap_or(u32::MAX)
    }

    /// Returns an allowance for the copies to a peer that has announced nothing yet.
    pub(crate) fn of_peer(&self) -> Allowance {
        Allowance::new(self.limit.bytes_per_sec)
    }

    /// Sets the rate that a peer has announced.
    pub(crate) fn announced(&self, of_peer: &mut Allowance, bytes_per_sec: u32) {
        let least = (self.floor_per_sec() / SENDERS_MAX).max(1);
        of_peer.bytes_per_sec = u64::from(bytes_per_sec).max(least).min(self.limit.bytes_per_sec);
    }

    /// Returns the bytes that may be copied now.
    #[inline]
    pub(crate) fn bytes(&mut self, now_us: u64) -> i64 {
        let bytes = self.limit.fill(now_us);
        if self.is_full { bytes.min(self.earned) } else { bytes }
    }

    /// True if a piece may be copied now.
    #[inline]
    pub(crate) fn has_piece(&mut self, now_us: u64) -> bool {
        let piece = PIECE.min(self.limit.most());
        // Most full turns have not earned a piece: they do not fill the bucket either.
        (!self.is_full || self.earned >= piece) && self.bytes(now_us) >= piece
    }

    /// Spends what was copied, and what was looked at for it.
    pub(crate) fn spend(&mut self, bytes: i64, slots: u32) {
        self.limit.spend(bytes);
        if self.is_full {
            self.earned -= bytes.max(SLOT * i64::from(slots));
        }
    }

    /// Notes that no stream could copy: the next look at all of them has to be earned, too.
    pub(crate) fn found_nothing(&mut self) {
        self.earned = self.earned.min(PIECE / 2);
    }
}

/// Bytes that may be sent by now: a token bucket of a hundredth of a second.
#[derive(Debug)]
pub(crate) struct Allowance {
    bytes_per_sec: u64,
    bytes: i64,
    filled_us: u64,
}

impl Allowance {
    fn new(bytes_per_sec: u64) -> Self {
        Self { bytes_per_sec, bytes: 0, filled_us: 0 }
    }

    /// Returns the bytes that the bucket holds at most.
    fn most(&self) -> i64 {
        (self.bytes_per_sec / 100).max(1400) as i64
    }

    /// Fills the bucket; returns the bytes in it.
    pub(crate) fn fill(&mut self, now_us: u64) -> i64 {
        let passed_us = now_us.saturating_sub(self.filled_us).min(1_000_000);
        // Repeated calls in one poll: no time has passed, so the division is skipped.
        if passed_us == 0 {
            return self.bytes;
        }
        let earned = u128::from(passed_us) * u128::from(self.bytes_per_sec) / 1_000_000;
        // Less than a byte: let the time add up.
        if earned > 0 {
            self.bytes = (self.bytes + earned as i64).min(self.most());
            let paid_us = (earned * 1_000_000 / u128::from(self.bytes_per_sec)) as u64;
            self.filled_us = now_us - (passed_us - paid_us);
        }
        self.bytes
    }

    /// Fills the bucket; returns whether it holds a piece.
    pub(crate) fn has_piece(&mut self, now_us: u64) -> bool {
        self.fill(now_us) >= PIECE.min(self.most())
    }

    pub(crate) fn spend(&mut self, bytes: i64) {
        self.bytes -= bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 50_000_000;
    const TURN_US: u64 = 10;

    /// Runs turns of a load; returns the bytes that are copied in them.
    fn copied(pace: &mut Pace, now_us: &mut u64, load: TurnLoad, turns: u64) -> i64 {
        let mut copied = 0;
        for _ in 0..turns {
            *now_us += TURN_US;
            pace.note(load);
            pace.begin_turn(*now_us);
            if pace.has_piece(*now_us) {
                let bytes = pace.bytes(*now_us);
                pace.spend(bytes, 0);
                copied += bytes;
            }
        }
        copied
    }

    #[test]
    fn the_allowance_keeps_to_its_rate() {
        let mut allowance = Allowance::new(1_000_000);
        let mut spent = 0;
        for now_us in (0..1_000_000).step_by(7) {
            if allowance.fill(now_us) > 0 {
                allowance.spend(1_400);
                spent += 1_400;
            }
        }
        assert!((980_000..1_020_000).contains(&spent), "{spent} bytes in a second");
        assert_eq!(allowance.fill(60_000_000), 10_000, "the unused allowance is not saved up");
    }

    #[test]
    fn full_turns_copy_by_packets_and_others_by_the_limit() {
        let (mut pace, mut now_us) = (Pace::new(LIMIT), 1_000_000);
        let full = TurnLoad { packets: 128, is_full: true };
        let half = TurnLoad { packets: 63, is_full: false };
        copied(&mut pace, &mut now_us, half, 1_000);
        for _ in 0..3 {
            let bytes = copied(&mut pace, &mut now_us, full, 10_000);
            let earned = 128 * 10_000;
            assert!((earned - 2 * PIECE..=earned + 2 * PIECE).contains(&bytes), "{bytes} bytes");
            let bytes = copied(&mut pace, &mut now_us, half, 10_000);
            assert!((5_000_000 - PIECE..=5_500_000).contains(&bytes), "{bytes} bytes in 0.1 s");
        }
    }

    #[test]
    fn long_full_turns_copy_a_twentieth_of_the_limit() {
        let mut pace = Pace::new(LIMIT);
        let full = TurnLoad { packets: 64, is_full: true };
        let mut copied = 0;
        for now_us in (1_000_000..2_000_000).step_by(500) {
            pace.note(full);
            pace.begin_turn(now_us);
            let bytes = pace.bytes(now_us).max(0);
            pace.spend(bytes, 0);
            copied += bytes;
        }
        assert!((2_490_000..2_530_000).contains(&copied), "{copied} bytes in a second");
    }

    /// Its walk over free slots is bounded, too.
    #[test]
    fn full_turns_pay_for_slots_without_records() {
        let (mut pace, mut pieces) = (Pace::new(LIMIT), 0);
        for now_us in (1_000_000..1_100_000).step_by(TURN_US as usize) {
            pace.note(TurnLoad { packets: 64, is_full: true });
            pace.begin_turn(now_us);
            if pace.has_piece(now_us) {
                pace.spend(0, 128);
                pieces += 1;
            }
        }
        let slots_per_packet = f64::from(pieces * 128) / (10_000.0 * 64.0);
        assert!((0.12..0.13).contains(&slots_per_packet), "{slots_per_packet}");
    }

    #[test]
    fn a_busy_receiver_accepts_half_a_byte_per_packet_but_a_twentieth_of_the_limit_at_least() {
        let (mut pace, mut now_us) = (Pace::new(LIMIT), 1_000_000);
        assert_eq!(pace.accepted_per_sec(0), 50_000_000);
        let full = TurnLoad { packets: 128, is_full: true };
        copied(&mut pace, &mut now_us, full, 5_000);
        // 12.8 Mpps.
        let accepted = pace.accepted_per_sec(1);
        assert!((6_350_000..=6_400_000).contains(&accepted), "{accepted} bytes per second");
        assert_eq!(pace.accepted_per_sec(4), accepted / 4);
        copied(&mut pace, &mut now_us, TurnLoad { packets: 20, is_full: true }, 5_000);
        assert_eq!(pace.accepted_per_sec(1), 2_500_000);
        // With room again it accepts more step by step.
        copied(&mut pace, &mut now_us, TurnLoad::default(), 2_000);
        assert!((3_000_000..5_000_000).contains(&pace.accepted_per_sec(1)));
        copied(&mut pace, &mut now_us, TurnLoad::default(), 20_000);
        assert_eq!(pace.accepted_per_sec(1), 50_000_000);
    }

    /// Packets that come in bursts fill some turns of a worker that has time.
    #[test]
    fn a_worker_with_few_full_turns_is_not_busy() {
        let (mut pace, mut now_us) = (Pace::new(LIMIT), 1_000_000);
        for _ in 0..1_000 {
            copied(&mut pace, &mut now_us, TurnLoad { packets: 128, is_full: true }, 4);
            copied(&mut pace, &mut now_us, TurnLoad::default(), 6);
        }
        assert_eq!(pace.accepted_per_sec(1), 50_000_000);
    }

    /// Whatever a peer announces, a copy to it ends.
    #[test]
    fn an_announced_rate_is_kept_between_the_floor_and_the_limit() {
        let pace = Pace::new(LIMIT);
        let mut of_peer = pace.of_peer();
        for (announced, kept) in [(0, 39_062), (6_000_000, 6_000_000), (u32::MAX, 50_000_000)] {
            pace.announced(&mut of_peer, announced);
            assert_eq!(of_peer.bytes_per_sec, kept);
        }
    }
}

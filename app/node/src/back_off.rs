//! How long a worker with `poll = "adaptive"` rests between two empty polls.
//!
//! Under load it never rests: a packet between two polls without sleep restarts the count of idle
//! polls. A packet that ends a sleep only takes some polls off that count, so that a trickle, such
//! as the heartbeats of an idle cluster, causes a few polls per packet and keeps no core awake. The
//! first packet after a quiet time waits for the longest sleep at most.

use std::time::Duration;

/// The pause before the next poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// A pause instruction: the sibling hyper-thread gets the core's units.
    Spin,
    Sleep(Duration),
}

/// Idle polls before the first sleep: more than the gap between bursts on a loaded link.
const SPINS: u32 = 256;
/// Polls at each length of sleep before it doubles.
const SLEEPS_PER_STEP: u32 = 64;
const SLEEP_FIRST: Duration = Duration::from_micros(10);
/// Number of times that it doubles: the longest sleep takes 640 us.
const DOUBLINGS: u32 = 6;
/// Idle polls from which on every sleep is the longest.
const IDLE_POLLS_MAX: u32 = SPINS + 1 + DOUBLINGS * SLEEPS_PER_STEP;
/// Idle polls that a packet takes off the count when it ends a sleep: a trickle causes this many
/// polls per packet.
const POLLS_PER_PACKET: u32 = 8;

/// One worker's count of idle polls.
#[derive(Debug, Default)]
pub(crate) struct IdleBackOff {
    idle_polls: u32,
}

impl IdleBackOff {
    /// Notes that a poll brought packets.
    pub(crate) fn found(&mut self, packets: usize) {
        self.idle_polls = self.idle_polls.saturating_sub(packets as u32 * POLLS_PER_PACKET);
        if self.idle_polls <= SPINS {
            self.idle_polls = 0;
        }
    }

    /// Restarts the count, because something else needs the next polls soon.
    pub(crate) fn wake(&mut self) {
        self.idle_polls = 0;
    }

    /// Notes that a poll brought nothing, and returns the pause before the next one.
    pub(crate) fn rest(&mut self) -> Rest {
        self.idle_polls = (self.idle_polls + 1).min(IDLE_POLLS_MAX);
        match self.idle_polls.checked_sub(SPINS + 1) {
            None => Rest::Spin,
            Some(sleeps) => Rest::Sleep(SLEEP_FIRST * (1 << (sleeps / SLEEPS_PER_STEP))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLEEP_MAX: Duration = Duration::from_micros(640);

    #[test]
    fn idleness_sleeps_longer_and_longer() {
        let mut back_off = IdleBackOff::default();
        for _ in 0..SPINS {
            assert_eq!(back_off.rest(), Rest::Spin);
        }
        let mut longest = SLEEP_FIRST;
        assert_eq!(back_off.rest(), Rest::Sleep(longest));
        for _ in 0..100_000 {
            let Rest::Sleep(sleep) = back_off.rest() else { panic!("no sleep") };
            assert!(sleep >= longest && sleep <= SLEEP_MAX);
            longest = sleep;
        }
        assert_eq!(longest, SLEEP_MAX);
        back_off.wake();
        assert_eq!(back_off.rest(), Rest::Spin);
    }

    /// Returns the polls and sleeps in a second with one packet every `gap_us` microseconds, after
    /// a quiet second. A poll takes 1 us, and every sleep ends 50 us late.
    fn second_of(gap_us: u64) -> (u64, u64) {
        const QUIET_US: u64 = 1_000_000;
        let (mut back_off, mut now, mut taken) = (IdleBackOff::default(), 0, 0);
        let (mut polls, mut sleeps) = (0, 0);
        while now < 2 * QUIET_US {
            now += 1;
            let arrived = now.saturating_sub(QUIET_US) / gap_us;
            let is_counted = u64::from(now >= QUIET_US);
            polls += is_counted;
            if arrived > taken {
                back_off.found((arrived - taken) as usize);
                taken = arrived;
            } else if let Rest::Sleep(sleep) = back_off.rest() {
                sleeps += is_counted;
                now += sleep.as_micros() as u64 + 50;
            }
        }
        (polls, sleeps)
    }

    #[test]
    fn load_keeps_awake_and_a_trickle_does_not() {
        for gap_us in [1, 10, 100] {
            let (_, sleeps) = second_of(gap_us);
            assert!(sleeps < 100, "{sleeps} sleeps with a packet each {gap_us} us");
        }
        for gap_us in [1_000, 3_000, 10_000] {
            let (polls, _) = second_of(gap_us);
            let most = 1_000_000 / 690 + (1 + u64::from(POLLS_PER_PACKET)) * 1_000_000 / gap_us;
            assert!(polls < most, "{polls} polls with a packet each {gap_us} us");
        }
    }
}

//! How long a worker with `poll = "adaptive"` rests between two empty polls.
//!
//! Under load it never rests: any packet starts the count of idle polls anew. A quiet worker costs little, and
//! the first packet after a quiet time waits at most [`SLEEP_MAX`].

use std::time::Duration;

/// What to do before the next poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// Poll again at once.
    None,
    /// A pause instruction: the sibling hyper-thread gets the core's units.
    Spin,
    Sleep(Duration),
}

/// The longest sleep.
pub(crate) const SLEEP_MAX: Duration = Duration::from_micros(640);

/// Idle polls before the first sleep: more than the gap between bursts on a loaded link.
const SPINS: u32 = 256;
/// Polls at each length of sleep before it doubles.
const SLEEPS_PER_STEP: u32 = 64;
const SLEEP_FIRST: Duration = Duration::from_micros(10);

/// The rest after `idle_polls` polls in a row that brought nothing; 0 is a poll that brought packets.
pub(crate) fn rest(idle_polls: u32) -> Rest {
    if idle_polls == 0 {
        return Rest::None;
    }
    if idle_polls <= SPINS {
        return Rest::Spin;
    }
    let step = ((idle_polls - SPINS) / SLEEPS_PER_STEP).min(16);
    Rest::Sleep((SLEEP_FIRST * (1 << step)).min(SLEEP_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_never_rests_and_idleness_sleeps_longer_and_longer() {
        assert_eq!(rest(0), Rest::None);
        assert_eq!(rest(1), Rest::Spin);
        assert_eq!(rest(SPINS), Rest::Spin);
        assert_eq!(rest(SPINS + 1), Rest::Sleep(SLEEP_FIRST));
        let mut longest = Duration::ZERO;
        for idle_polls in SPINS + 1..100_000 {
            let Rest::Sleep(sleep) = rest(idle_polls) else { panic!("no sleep at {idle_polls}") };
            assert!(sleep >= longest && sleep <= SLEEP_MAX);
            longest = sleep;
        }
        assert_eq!(longest, SLEEP_MAX);
        assert_eq!(rest(u32::MAX), Rest::Sleep(SLEEP_MAX));
    }
}

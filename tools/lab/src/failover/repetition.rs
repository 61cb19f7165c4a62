//! When an event is tried again: the machine caused the broken promise, or may have caused it.
//! Pure.
//!
//! An event whose failure pauses explain is tried again twice at most. Where the sender itself
//! paused for longer than the promise lets a home be silent, the cause is unknown, and the event is
//! tried again once.

use super::observation::Observation;
use super::promise::Promise;

/// How often an event is tried at most; `add` uses a spare node each time.
pub const TRIES_MAX: u8 = 3;

/// Returns why an event is tried again after `tries` tries. None: it kept its promises, or the
/// machine is not the cause.
pub(super) fn reason_to_repeat(seen: &[(Promise, Observation)], tries: u8) -> Option<String> {
    let mut reasons = Vec::new();
    for (promise, seen) in seen {
        let missed = promise.missed(seen);
        if missed.is_empty() {
            continue;
        }
        let why = if promise.is_explained(seen) {
            let pause = seen.longest_pause().map(ToString::to_string).unwrap_or_default();
            format!("explained by {pause}")
        } else if promise.is_unfair(seen) && tries == 1 {
            let pause = seen.sender_pause() / 1_000;
            format!("the sender itself paused for {pause} ms, longer than the promise allows")
        } else {
            return None;
        };
        reasons.push(format!("{}: {}; {why}", seen.name, missed.join("; ")));
    }
    (!reasons.is_empty()).then(|| reasons.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failover::Side;
    use crate::load::{ConnectionReport, Micros, Pause, Window};

    /// An event that lost a packet although it promised not to, with the sender paused for
    /// `sender_pause`.
    fn lost(sender_pause: Micros, pauses: Vec<Pause>) -> (Promise, Observation) {
        let side = Side { sent: 100, lost: 1, pause: sender_pause, ..Side::default() };
        let connections = ConnectionReport { established: 10, ..ConnectionReport::default() };
        let observation = Observation {
            name: "drain node1".into(),
            up: side,
            down: Side { sent: 100, ..Side::default() },
            connections,
            is_answered: true,
            lost_at: vec![1_000_000],
            pauses,
            ..Observation::default()
        };
        (Promise::NothingLost, observation)
    }

    #[test]
    fn an_event_is_repeated_while_pauses_explain_its_losses_and_once_for_a_pause_of_the_sender() {
        let window = Window { start: 990_000, end: 1_050_000 };
        let pause = || vec![Pause { window, of: "core 0".into() }];
        let repeated = reason_to_repeat(&[lost(1_000, pause())], 2).unwrap();
        assert!(repeated.contains("explained by a pause of 60 ms of core 0"), "{repeated}");
        let repeated = reason_to_repeat(&[lost(83_000, vec![])], 1).unwrap();
        assert!(repeated.contains("drain node1: 1 packets lost"), "{repeated}");
        assert!(repeated.contains("the sender itself paused for 83 ms"), "{repeated}");
        assert_eq!(reason_to_repeat(&[lost(83_000, vec![])], 2), None);
        assert_eq!(reason_to_repeat(&[lost(83_000, vec![]), lost(1_000, vec![])], 1), None);
        let kept = (Promise::NothingBroken, lost(83_000, vec![]).1);
        assert_eq!(reason_to_repeat(&[kept], 1), None);
    }
}

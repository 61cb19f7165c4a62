//! What homes may see of an event, and whether the promise was kept. Pure.

use super::observation::Observation;
use crate::cluster::OutputCommit;
use crate::load::{Change, EXPLAINS_LOSS_MIN};

/// The promise for an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// No packet is lost, no connection breaks, however young.
    NothingLost,
    /// No connection breaks that was established a tenth of a second before. Packets in flight may
    /// be lost.
    NothingBroken,
    /// The same with output commit: no connection that a home had breaks, however young.
    NoneBrokenHoweverYoung,
    /// Every connection may end, since no copy is left. Every shard has a primary again in time,
    /// and every connection is opened again.
    OpenAgain,
    /// The opposite, for a cluster without copies: connections must break, since a measurement that
    /// cannot fail shows nothing.
    Broken,
}

impl Promise {
    /// Returns the promise as it applies in a cluster with output commit.
    pub fn with(self, commit: Option<OutputCommit>) -> Self {
        match (self, commit) {
            (Promise::NothingBroken, Some(_)) => Promise::NoneBrokenHoweverYoung,
            _ => self,
        }
    }

    /// Returns the broken promises, one line each; empty if all were kept.
    pub fn missed(self, seen: &Observation) -> Vec<String> {
        let mut missed = Vec::new();
        let mut refuse = |count: u64, what: &str| {
            if count > 0 {
                missed.push(format!("{count} {what}"));
            }
        };
        let connections = &seen.connections;
        if self == Promise::Broken {
            if connections.broken == 0 {
                missed.push(
                    "no connection broke, though there was no copy: nothing is measured".into(),
                );
            }
            return missed;
        }
        let may_end = self == Promise::OpenAgain;
        if !may_end {
            refuse(connections.broken as u64, "connections broken");
        }
        refuse(connections.broken_before as u64, "connections broken before anything happened");
        refuse(seen.up.doubled + seen.down.doubled, "packets doubled");
        if self == Promise::NoneBrokenHoweverYoung {
            refuse(connections.youngest_broken as u64, "connections broken that had just opened");
        }
        if self == Promise::NothingLost {
            refuse(seen.up.lost, "packets lost from the homes");
            refuse(seen.down.lost, "packets lost to the homes");
            refuse(connections.younger_broken as u64, "young connections broken");
            refuse(connections.unopened as u64, "connections could not be opened");
        }
        if let Some(most) = seen.silence_max.filter(|&most| seen.silence() > most) {
            missed.push(format!(
                "a home was silent for {} ms, pauses left out; promised are {} ms",
                seen.silence() / 1_000,
                most / 1_000
            ));
        }
        if may_end && seen.silence_max.is_some_and(|most| seen.done_after > most) {
            let after = seen.done_after / 1_000;
            missed.push(format!("every shard had a primary after {after} ms only"));
        }
        if seen.moves_max.is_some_and(|most| seen.moves_of_one > most) {
            missed.push(format!("a shard moved {} times", seen.moves_of_one));
        }
        for Change { at, from, to } in seen.moved_endpoints.iter().filter(|_| !may_end) {
            missed.push(format!(
                "a public endpoint changed: {from}, {to} at {:.3} s",
                *at as f64 / 1e6
            ));
        }
        if seen.is_without_traffic() {
            missed.push("there was no traffic: nothing is measured".into());
        }
        if !seen.is_answered {
            missed.push("not all connections answered in time".into());
        }
        if seen.has_waited && seen.whole_after.is_none() {
            missed.push("not every shard has its copies again".into());
        }
        missed
    }

    /// Returns the lines of [`missed`](Self::missed) for people: with the longest pause of the
    /// senders, which may be the cause.
    pub fn complaints(self, seen: &Observation) -> Vec<String> {
        let mut complaints = self.missed(seen);
        if !complaints.is_empty() {
            let pause = seen.sender_pause() as f64 / 1e3;
            complaints.push(format!("the sender itself paused for up to {pause:.0} ms"));
        }
        complaints
    }

    /// True if packets were lost or a home was silent, nothing worse, and a sender itself paused
    /// for longer than this promise lets a home be silent: then it is unknown whether weir would
    /// have kept it.
    pub fn is_unfair(self, seen: &Observation) -> bool {
        let mut without = seen.clone();
        (without.up.lost, without.down.lost, without.silence_max) = (0, 0, None);
        let allowed = seen.silence_max.unwrap_or(EXPLAINS_LOSS_MIN);
        !self.missed(seen).is_empty()
            && self.missed(&without).is_empty()
            && seen.sender_pause() > allowed
    }

    /// True if something was missed, and pauses of this machine explain all of it: only lost
    /// packets can be explained, each by a pause near it. Then nothing is known of weir, and the
    /// event must be tried again.
    pub fn is_explained(self, seen: &Observation) -> bool {
        let mut without = seen.clone();
        if seen.unexplained_losses() == 0 {
            (without.up.lost, without.down.lost) = (0, 0);
        }
        !self.missed(seen).is_empty() && self.missed(&without).is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failover::{OfVersion, Side};
    use crate::load::{Change, ConnectionReport, Micros, Pause, Window};

    fn good() -> Observation {
        Observation {
            up: Side { sent: 100, ..Side::default() },
            down: Side { sent: 100, ..Side::default() },
            connections: ConnectionReport { established: 10, ..ConnectionReport::default() },
            is_answered: true,
            moves_max: Some(1),
            whole_after: Some(0),
            has_waited: true,
            ..Observation::default()
        }
    }

    fn change() -> Change {
        let at = |port| ([198, 18, 0, 1], port).into();
        Change { at: 1_000_000, from: at(2000), to: at(3000) }
    }

    fn with(change: impl Fn(&mut Observation)) -> Observation {
        let mut seen = good();
        change(&mut seen);
        seen
    }

    #[test]
    fn each_broken_promise_is_named() {
        assert!(Promise::NothingLost.missed(&good()).is_empty());
        type Case = (fn(&mut Observation), &'static str, bool);
        let cases: [Case; 14] = [
            (|it| it.versions = vec![OfVersion::default()], "no traffic", true),
            (|it| it.connections.broken = 2, "2 connections broken", true),
            (|it| it.connections.broken_before = 1, "before anything", true),
            (|it| it.moves_of_one = 2, "a shard moved 2 times", true),
            (|it| it.moved_endpoints = vec![change()], "endpoint changed", true),
            (|it| it.down.doubled = 1, "doubled", true),
            (|it| it.up.lost = 1, "from the homes", false),
            (|it| it.down.lost = 1, "to the homes", false),
            (|it| it.connections.younger_broken = 1, "young", false),
            (|it| it.connections.unopened = 1, "opened", false),
            (|it| it.connections.established = 0, "no traffic", true),
            (|it| it.down.sent = 0, "no traffic", true),
            (|it| it.is_answered = false, "answered", true),
            (|it| it.whole_after = None, "copies", true),
        ];
        for (change, words, breaks_both) in cases {
            let seen = with(change);
            let missed = Promise::NothingLost.missed(&seen);
            assert!(missed.len() == 1 && missed[0].contains(words), "{missed:?}, {words}");
            assert_eq!(Promise::NothingBroken.missed(&seen).len(), usize::from(breaks_both));
        }
    }

    #[test]
    fn a_home_may_be_silent_for_as_long_as_is_promised_and_pauses_last() {
        let silent = |gap_max, pauses| {
            with(|it| {
                it.silence_max = Some(50_000);
                it.up.gap_max = gap_max;
                it.pauses = Vec::clone(&pauses);
            })
        };
        let missed = |seen: &Observation| Promise::NothingBroken.missed(seen);
        assert!(missed(&silent(50_000, vec![])).is_empty());
        let late = missed(&silent(51_000, vec![]));
        assert!(late.len() == 1 && late[0].contains("silent for 51 ms"), "{late:?}");
        assert!(missed(&silent(80_000, vec![pause(10_000, 40_000)])).is_empty());
        assert_eq!(missed(&silent(81_000, vec![pause(10_000, 40_000)])).len(), 1);
    }

    #[test]
    fn connections_of_a_site_that_restarts_may_end_and_its_silence_is_bounded() {
        let missed = |seen: &Observation| Promise::OpenAgain.missed(seen);
        let all_end = |it: &mut Observation| {
            (it.connections.broken, it.connections.younger_broken) = (10, 1);
            (it.up.lost, it.connections.unopened) = (100, 20);
            (it.moved_endpoints, it.silence_max) = (vec![change()], Some(50_000));
        };
        assert!(missed(&with(all_end)).is_empty());
        type Case = (fn(&mut Observation), &'static str);
        let cases: [Case; 5] = [
            (|it| it.done_after = 51_000, "a primary after 51 ms"),
            (|it| it.connections.broken_before = 1, "before anything"),
            (|it| it.up.gap_max = 51_000, "silent"),
            (|it| it.down.doubled = 1, "doubled"),
            (|it| it.is_answered = false, "answered"),
        ];
        for (change, words) in cases {
            let seen = with(|it| {
                all_end(it);
                change(it);
            });
            let missed = missed(&seen);
            assert!(missed.len() == 1 && missed[0].contains(words), "{missed:?}, {words}");
        }
    }

    fn pause(start: Micros, end: Micros) -> Pause {
        Pause { window: Window { start, end }, of: "core 0".into() }
    }

    #[test]
    fn only_losses_near_a_long_pause_are_explained() {
        let lost = |pauses: &[Pause]| {
            with(|it| {
                (it.up.lost, it.lost_at) = (2, vec![1_000_000, 1_010_000]);
                it.pauses = pauses.to_vec();
            })
        };
        let long = [pause(990_000, 1_050_000)];
        assert!(Promise::NothingLost.is_explained(&lost(&long)));
        assert!(!Promise::NothingLost.is_explained(&lost(&[pause(990_000, 1_029_999)])));
        assert!(!Promise::NothingLost.is_explained(&good()), "nothing was missed");
        let broken = with(|it| {
            *it = lost(&long);
            it.connections.broken = 1;
        });
        assert!(!Promise::NothingLost.is_explained(&broken), "no pause breaks a connection");
        assert!(!Promise::NothingBroken.is_explained(&lost(&long)), "nothing was missed");
    }

    #[test]
    fn a_promise_missed_while_the_sender_paused_longer_than_it_allows_is_unfair() {
        let lost = |pause| with(|it| (it.up.lost, it.down.pause) = (2, pause));
        assert!(Promise::NothingLost.is_unfair(&lost(EXPLAINS_LOSS_MIN + 1)));
        assert!(!Promise::NothingLost.is_unfair(&lost(EXPLAINS_LOSS_MIN)));
        let silent = |pause| {
            with(|it| {
                (it.up.gap_max, it.silence_max) = (70_000, Some(50_000));
                it.up.pause = pause;
            })
        };
        assert!(Promise::NothingBroken.is_unfair(&silent(50_001)));
        assert!(!Promise::NothingBroken.is_unfair(&silent(50_000)));
        let broken = with(|it| (it.connections.broken, it.up.pause) = (1, 900_000));
        assert!(!Promise::NothingLost.is_unfair(&broken), "no pause breaks a connection");
        assert!(!Promise::NothingLost.is_unfair(&with(|it| it.up.pause = 900_000)), "it was kept");
    }

    #[test]
    fn a_complaint_names_the_pause_of_the_sender_and_a_kept_promise_has_none() {
        let seen = with(|it| (it.up.lost, it.down.pause) = (3, 83_200));
        assert_eq!(
            Promise::NothingLost.complaints(&seen),
            ["3 packets lost from the homes", "the sender itself paused for up to 83 ms"]
        );
        assert!(Promise::NothingBroken.complaints(&seen).is_empty());
    }

    #[test]
    fn output_commit_promises_connections_that_had_just_opened_too() {
        let promise = Promise::NothingBroken.with(Some(OutputCommit::default()));
        let seen = with(|it| it.connections.youngest_broken = 1);
        assert_eq!(promise.missed(&seen).len(), 1);
        assert!(promise.missed(&good()).is_empty());
        // Connections that a home began later, and that never opened, are not covered.
        let seen = with(|it| (it.connections.younger_broken, it.connections.unopened) = (1, 1));
        assert!(promise.missed(&seen).is_empty());
        for promise in [Promise::NothingLost, Promise::Broken] {
            assert_eq!(promise.with(Some(OutputCommit::default())), promise);
        }
        assert_eq!(Promise::NothingBroken.with(None), Promise::NothingBroken);
    }

    #[test]
    fn absent_copies_are_not_missed_when_no_wait_was_possible() {
        let seen = with(|it| (it.whole_after, it.has_waited) = (None, false));
        assert!(Promise::NothingBroken.missed(&seen).is_empty());
    }

    #[test]
    fn the_negative_control_must_break_something() {
        assert_eq!(Promise::Broken.missed(&good()).len(), 1);
        let seen = with(|it| it.connections.broken = 1);
        assert!(Promise::Broken.missed(&seen).is_empty());
    }
}

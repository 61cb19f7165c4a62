//! Decides which workers have been silent for too long, from the heartbeats that the guard reads;
//! pure.
//!
//! ```text
//!            watch       silent for `silence`         silent for its grace
//!   unwatched ----> watched ------------------> fenced -------------------> hung
//!     | ^ |          ^  |                         | |                       ^ ^ (reported once)
//!     | | |          |  |       beats again       | |                       | |
//!     | | |          +--|-------------------------+ |                       | | silent for
//!     | | |             +---------------------------+--> gone --------------+ | `silence` and
//!     | | |                    its thread has died                            | its grace
//!     | | +-------------------------------------------------------------------+
//!     | | beats                 silent for its grace, at least 30 s
//!     v | for the first time
//!   absent   (its thread has not begun, or has ended without routes)
//! ```
//!
//! A silent worker may only be waiting for a core, and so may the workers that have copies: its
//! routes become a last resort. A worker whose thread has died loses its routes.
//!
//! The grace is `kill_after` once other workers serve the worker's shards. Until then it is at
//! least ten seconds, and 30 if the worker has the only full copy of a shard: the end of its
//! process would end connections, although it may only be waiting for a core, as the holders of
//! copies may.
//!
//! A worker without routes carries no packets, so it is not fenced. It still beats, and a process
//! that stalls would never be replaced: the grace of such a worker is at least
//! half a minute.
//!
//! Silence is measured in the guard's own running time: when the guard itself stalled (a paused
//! machine, a busy one), the workers stalled with it, so that time counts little.

use std::time::Duration;

use crate::route::WorkerIndex;
use crate::shared_words::Stake;

/// Number of looks within the time that a worker may be silent.
const LOOKS: u32 = 10;
/// Least grace of a worker whose shards no other worker is known to serve.
pub const SERVED_GRACE: Duration = Duration::from_secs(10);
/// Least grace of a worker that has the only full copy of a shard.
pub const ONLY_COPY_GRACE: Duration = Duration::from_secs(30);
/// Least grace of a worker that has no routes.
pub const UNWATCHED_GRACE: Duration = Duration::from_secs(30);
/// Longest time between two looks that counts as silence of a worker without routes: the guard
/// looks more often, unless it stalled.
const UNWATCHED_LOOK_MAX: Duration = Duration::from_secs(1);
/// Shortest time between two looks.
const INTERVAL_MIN: Duration = Duration::from_millis(1);

/// The finding of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alarm {
    /// Silent for too long: the guard fences this worker, then makes its routes a last resort.
    Silent(WorkerIndex),
    /// Its thread has died: the guard fences this worker, then withdraws its routes.
    Gone(WorkerIndex),
    /// Fenced, gone or without routes, and still silent after the grace.
    Hung(WorkerIndex),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WatchState {
    /// Has no thread: not yet, or not any more.
    Absent,
    /// Beats, and has no routes.
    Unwatched,
    Watched,
    Fenced,
    Gone,
    Hung,
}

#[derive(Clone, Copy, Debug)]
struct WatchedWorker {
    watch: WatchState,
    beat: u64,
    silent: Duration,
}

/// The state of all workers. Time and heartbeats are arguments.
#[derive(Debug)]
pub struct Watchdog {
    silence: Duration,
    kill_after: Option<Duration>,
    last_look: Option<Duration>,
    workers: Vec<WatchedWorker>,
}

impl Watchdog {
    /// Creates a watchdog that watches no worker. `silence` is how long a worker may be silent,
    /// `kill_after` the grace after that.
    pub fn new(workers: usize, silence: Duration, kill_after: Option<Duration>) -> Self {
        let absent = WatchedWorker { watch: WatchState::Absent, beat: 0, silent: Duration::ZERO };
        Self { silence, kill_after, last_look: None, workers: vec![absent; workers] }
    }

    /// Returns the time between two looks; `None` while no worker has routes, when a look each
    /// second is enough.
    pub fn interval(&self) -> Option<Duration> {
        let has_routes = |state: &WatchedWorker| {
            matches!(state.watch, WatchState::Watched | WatchState::Fenced | WatchState::Gone)
        };
        self.workers.iter().any(has_routes).then(|| (self.silence / LOOKS).max(INTERVAL_MIN))
    }

    /// Starts to watch a worker; one that is watched already keeps its silence.
    pub fn watch(&mut self, worker: WorkerIndex, beat: u64) {
        let state = &mut self.workers[usize::from(worker)];
        if state.watch != WatchState::Watched {
            *state = WatchedWorker { watch: WatchState::Watched, beat, silent: Duration::ZERO };
        }
    }

    /// Ends the watch over a worker that has no routes any more: only a long grace is left to it.
    pub fn unwatch(&mut self, worker: WorkerIndex) {
        let state = &mut self.workers[usize::from(worker)];
        if matches!(state.watch, WatchState::Watched | WatchState::Fenced) {
            state.watch = WatchState::Unwatched;
        }
    }

    /// Looks at all workers. `now` is the time since any fixed moment, `is_over` whether a worker's
    /// thread has died since the last look, `stake` what homes would lose with it.
    pub fn look(
        &mut self,
        now: Duration,
        beat: impl Fn(WorkerIndex) -> u64,
        is_over: impl Fn(WorkerIndex) -> bool,
        stake: impl Fn(WorkerIndex) -> Stake,
    ) -> Vec<Alarm> {
        let since = now.saturating_sub(self.last_look.replace(now).unwrap_or(now));
        let passed = since.min(2 * (self.silence / LOOKS).max(INTERVAL_MIN));
        let passed_unwatched = since.min(UNWATCHED_LOOK_MAX);
        let mut alarms = Vec::new();
        for (state, worker) in self.workers.iter_mut().zip(0..) {
            let current = beat(worker);
            let is_over = is_over(worker);
            if is_over && matches!(state.watch, WatchState::Watched | WatchState::Fenced) {
                *state = WatchedWorker { watch: WatchState::Gone, beat: current, ..*state };
                alarms.push(Alarm::Gone(worker));
            } else if is_over && state.watch == WatchState::Unwatched {
                *state = WatchedWorker {
                    watch: WatchState::Absent,
                    beat: current,
                    silent: Duration::ZERO,
                };
            } else if current != state.beat {
                (state.beat, state.silent) = (current, Duration::ZERO);
                state.watch = match state.watch {
                    // It still has its routes of last resort.
                    WatchState::Watched | WatchState::Fenced => WatchState::Watched,
                    _ => WatchState::Unwatched,
                };
                continue;
            }
            state.silent +=
                if state.watch == WatchState::Unwatched { passed_unwatched } else { passed };
            match (state.watch, self.kill_after) {
                (WatchState::Watched, _) if state.silent >= self.silence => {
                    state.watch = WatchState::Fenced;
                    alarms.push(Alarm::Silent(worker));
                }
                (WatchState::Fenced | WatchState::Gone, Some(kill_after))
                    if state.silent >= self.silence + grace(kill_after, stake(worker)) =>
                {
                    state.watch = WatchState::Hung;
                    alarms.push(Alarm::Hung(worker));
                }
                (WatchState::Unwatched, Some(kill_after))
                    if state.silent >= kill_after.max(UNWATCHED_GRACE) =>
                {
                    state.watch = WatchState::Hung;
                    alarms.push(Alarm::Hung(worker));
                }
                _ => {}
            }
        }
        alarms
    }
}

fn grace(kill_after: Duration, stake: Stake) -> Duration {
    match stake {
        Stake::Nothing => kill_after,
        Stake::Served => kill_after.max(SERVED_GRACE),
        Stake::OnlyCopy => kill_after.max(ONLY_COPY_GRACE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SILENCE: Duration = Duration::from_millis(50);
    const GRACE: Duration = Duration::from_millis(1000);
    const STEP: Duration = Duration::from_millis(5);

    /// Looks every 5 ms from `from` until `to`; returns each alarm with its time.
    fn looks(
        dog: &mut Watchdog,
        from: u64,
        to: u64,
        beat: impl Fn(Duration, WorkerIndex) -> u64,
    ) -> Vec<(Duration, Alarm)> {
        let mut alarms = Vec::new();
        let mut now = Duration::from_millis(from);
        while now < Duration::from_millis(to) {
            let found = dog.look(now, |worker| beat(now, worker), |_| false, |_| Stake::Nothing);
            alarms.extend(found.into_iter().map(|alarm| (now, alarm)));
            now += STEP;
        }
        alarms
    }

    #[test]
    fn a_silent_worker_is_fenced_and_after_the_grace_hung_once() {
        let mut dog = Watchdog::new(2, SILENCE, Some(GRACE));
        dog.watch(0, 0);
        dog.watch(1, 0);
        // Worker 0 beats, worker 1 never does.
        let beat = |now: Duration, worker: WorkerIndex| {
            if worker == 0 { now.as_millis() as u64 } else { 0 }
        };
        let alarms = looks(&mut dog, 0, 5000, beat);
        assert_eq!(alarms, [(SILENCE, Alarm::Silent(1)), (SILENCE + GRACE, Alarm::Hung(1))]);
    }

    #[test]
    fn a_worker_that_beats_in_its_grace_stays_watched_with_its_last_resort() {
        let mut dog = Watchdog::new(1, SILENCE, Some(GRACE));
        dog.watch(0, 7);
        assert_eq!(looks(&mut dog, 0, 500, |_, _| 7), [(SILENCE, Alarm::Silent(0))]);
        let again = looks(&mut dog, 500, 600, |_, _| 8);
        assert_eq!(again, [(Duration::from_millis(550), Alarm::Silent(0))], "a second silence");
        assert_eq!(dog.interval(), Some(STEP));
        // A list that is set under a newer fence changes none of that.
        assert_eq!(looks(&mut dog, 600, 700, |now, _| now.as_millis() as u64), []);
        dog.watch(0, 9);
        let died = dog.look(Duration::from_millis(700), |_| 9, |_| true, |_| Stake::Nothing);
        assert_eq!(died, [Alarm::Gone(0)]);
    }

    #[test]
    fn a_silent_worker_that_dies_is_gone_once() {
        let mut dog = Watchdog::new(1, SILENCE, Some(GRACE));
        dog.watch(0, 0);
        assert_eq!(looks(&mut dog, 0, 100, |_, _| 0), [(SILENCE, Alarm::Silent(0))]);
        let mut look = |now, is_over| {
            dog.look(Duration::from_millis(now), |_| 0, |_| is_over, |_| Stake::Nothing)
        };
        assert_eq!(look(100, true), [Alarm::Gone(0)]);
        assert_eq!(look(105, true), []);
        for now in (110..1_045).step_by(5) {
            assert_eq!(look(now, false), [], "{now}");
        }
        let left = (1_045..2_000).step_by(5).flat_map(|now| look(now, false));
        assert_eq!(left.collect::<Vec<_>>(), [Alarm::Hung(0)]);
    }

    #[test]
    fn a_worker_without_replacement_is_fenced_as_soon_but_hung_later() {
        let stakes = [Stake::Nothing, Stake::Served, Stake::OnlyCopy];
        let mut dog = Watchdog::new(3, SILENCE, Some(GRACE));
        (0..3).for_each(|worker| dog.watch(worker, 0));
        let mut alarms = Vec::new();
        for now in (0..40_000).step_by(5).map(Duration::from_millis) {
            let found = dog.look(now, |_| 0, |_| false, |worker| stakes[usize::from(worker)]);
            alarms.extend(found.into_iter().map(|alarm| (now, alarm)));
        }
        let expected = [
            (SILENCE, Alarm::Silent(0)),
            (SILENCE, Alarm::Silent(1)),
            (SILENCE, Alarm::Silent(2)),
            (SILENCE + GRACE, Alarm::Hung(0)),
            (SILENCE + SERVED_GRACE, Alarm::Hung(1)),
            (SILENCE + ONLY_COPY_GRACE, Alarm::Hung(2)),
        ];
        assert_eq!(alarms, expected);
    }

    #[test]
    fn a_silent_worker_is_hung_as_soon_as_others_serve_its_shards() {
        let mut dog = Watchdog::new(1, SILENCE, Some(GRACE));
        dog.watch(0, 0);
        for now in (0..5_000).step_by(5).map(Duration::from_millis) {
            dog.look(now, |_| 0, |_| false, |_| Stake::Served);
        }
        let found = dog.look(Duration::from_secs(5), |_| 0, |_| false, |_| Stake::Nothing);
        assert_eq!(found, [Alarm::Hung(0)]);
    }

    #[test]
    fn without_a_grace_no_worker_is_hung() {
        let mut dog = Watchdog::new(1, SILENCE, None);
        dog.watch(0, 0);
        assert_eq!(looks(&mut dog, 0, 60_000, |_, _| 0).len(), 1);
    }

    #[test]
    fn a_pause_of_the_guard_is_not_counted_as_a_workers_silence() {
        let mut dog = Watchdog::new(1, SILENCE, Some(GRACE));
        dog.watch(0, 1);
        assert_eq!(looks(&mut dog, 0, 20, |_, _| 1), []);
        // A minute later: the worker has not run either.
        assert_eq!(looks(&mut dog, 60_000, 60_020, |_, _| 1), []);
        assert_eq!(looks(&mut dog, 60_020, 60_100, |_, _| 1).len(), 1);
    }

    #[test]
    fn a_worker_that_dies_is_gone_at_the_next_look() {
        let mut dog = Watchdog::new(2, SILENCE, Some(GRACE));
        dog.watch(0, 0);
        // It may have beaten since the last look.
        assert_eq!(
            dog.look(STEP, |_| 1, |worker| worker == 0, |_| Stake::Nothing),
            [Alarm::Gone(0)]
        );
        assert_eq!(dog.look(2 * STEP, |_| 1, |_| false, |_| Stake::Nothing), []);
        // The death of a worker without routes raises no alarm.
        assert_eq!(dog.look(3 * STEP, |_| 1, |worker| worker == 1, |_| Stake::Nothing), []);
    }

    #[test]
    fn a_worker_without_routes_is_not_fenced_but_hung_after_half_a_minute() {
        let mut dog = Watchdog::new(1, SILENCE, Some(GRACE));
        dog.watch(0, 0);
        dog.unwatch(0);
        assert_eq!(dog.interval(), None);
        assert_eq!(looks(&mut dog, 0, 120_000, |_, _| 0), [(UNWATCHED_GRACE, Alarm::Hung(0))]);
    }

    #[test]
    fn a_worker_that_never_had_routes_is_hung_as_well() {
        let mut dog = Watchdog::new(1, SILENCE, Some(GRACE));
        // It beats every 5 ms for a second, then no more.
        let beat = |now: Duration, _| (now.as_millis() as u64).min(1_000);
        let expected = [(Duration::from_secs(1) + UNWATCHED_GRACE, Alarm::Hung(0))];
        assert_eq!(looks(&mut dog, 0, 120_000, beat), expected);
    }

    #[test]
    fn a_worker_that_has_not_begun_or_has_ended_may_be_silent() {
        let mut dog = Watchdog::new(2, SILENCE, Some(GRACE));
        // Worker 0 never begins; worker 1 beats, and ends with its routes withdrawn.
        let beat = |now: Duration, worker| {
            if worker == 1 { (now.as_millis() as u64).min(100) } else { 0 }
        };
        assert_eq!(looks(&mut dog, 0, 105, beat), []);
        let now = Duration::from_millis(105);
        assert_eq!(dog.look(now, |worker| beat(now, worker), |w| w == 1, |_| Stake::Nothing), []);
        assert_eq!(looks(&mut dog, 110, 200_000, beat), []);
    }

    #[test]
    fn routes_after_a_long_time_without_do_not_count_as_silence() {
        let mut dog = Watchdog::new(1, SILENCE, Some(GRACE));
        // Without routes looks are rare.
        for second in 0..25 {
            let now = Duration::from_secs(second);
            assert_eq!(dog.look(now, |_| 7, |_| false, |_| Stake::Nothing), []);
        }
        dog.watch(0, 7);
        let found = dog.look(Duration::from_millis(24_900), |_| 7, |_| false, |_| Stake::Nothing);
        assert_eq!(found, []);
    }
}

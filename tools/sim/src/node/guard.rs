//! The guard: lists of routes under fences, and the watch over the workers' heartbeats.

use weir_routes::watchdog::{Alarm, Watchdog};
use weir_routes::{Fence, GuardOptions, Stake, WorkerIndex};

use std::time::Duration;

#[derive(Debug)]
pub(crate) struct Guard {
    watchdog: Watchdog,
    /// The fence word of each worker: raised when the worker was taken for dead.
    pub(crate) fences: Vec<Fence>,
}

impl Guard {
    pub(crate) fn new(workers: usize) -> Self {
        let GuardOptions { silence, kill_after, .. } = GuardOptions::default();
        Self {
            watchdog: Watchdog::new(workers, silence, kill_after),
            fences: vec![Fence::default(); workers],
        }
    }

    /// Returns the time between two looks, microseconds; `None` if no worker is watched.
    pub(crate) fn interval_us(&self) -> Option<u64> {
        self.watchdog.interval().map(|interval| interval.as_micros() as u64)
    }

    /// Looks at the heartbeats, by worker. A silent worker is fenced, and its routes are to be made
    /// a last resort; the process of a hung worker is to be killed, the later the higher its stake.
    pub(crate) fn look(&mut self, clock_us: u64, beats: &[u64], stakes: &[Stake]) -> Vec<Alarm> {
        let beat = |worker: WorkerIndex| beats[usize::from(worker)];
        let stake = |worker: WorkerIndex| stakes[usize::from(worker)];
        let alarms = self.watchdog.look(Duration::from_micros(clock_us), beat, |_| false, stake);
        for alarm in &alarms {
            if let Alarm::Silent(worker) | Alarm::Gone(worker) = alarm {
                self.fences[usize::from(*worker)].0 += 1;
            }
        }
        alarms
    }

    /// Sets a list of routes if its fence is current; returns whether it is. `has_routes`: whether
    /// the list has any routes.
    pub(crate) fn takes(
        &mut self,
        worker: usize,
        fence: Fence,
        has_routes: bool,
        beat: u64,
    ) -> bool {
        if fence != self.fences[worker] {
            return false;
        }
        match has_routes {
            true => self.watchdog.watch(worker as WorkerIndex, beat),
            false => self.watchdog.unwatch(worker as WorkerIndex),
        }
        true
    }
}

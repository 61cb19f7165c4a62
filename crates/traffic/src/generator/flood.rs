//! Phase 2: both directions as fast as the ports take them, every flow in turn. Hot.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use weir_dpdk::{tsc, tsc_hz};

use super::{Deadline, Generator};
use crate::ledger::Account;
use crate::side::BURST;

const TUNNEL_LEN: usize = 84;
const PLAIN_LEN: usize = 60;
/// After the last packet sent: silence for so long means that nothing is under way any more.
const SILENCE: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug)]
pub struct FloodPlan {
    /// Flooded but not counted in the rate.
    pub warm_up: Duration,
    pub measured: Duration,
}

/// The result of a flood.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Flood {
    /// Length of the measured window.
    pub seconds: f64,
    /// Packets that came back right within the window.
    pub right_upstream: u64,
    pub right_downstream: u64,
    /// Accounts of the whole flood, warm-up and last packets included.
    pub upstream: Account,
    pub downstream: Account,
    /// Frames that are neither the generator's nor ARP.
    pub foreign: u64,
}

impl Flood {
    /// Packets of both directions that came back right, in millions per second.
    pub fn rate_mpps(&self) -> f64 {
        (self.right_upstream + self.right_downstream) as f64 / self.seconds / 1e6
    }

    pub fn lost(&self) -> u64 {
        self.upstream.lost() + self.downstream.lost()
    }

    pub fn wrong(&self) -> u64 {
        self.upstream.wrong() + self.downstream.wrong()
    }

    pub fn sent(&self) -> u64 {
        self.upstream.sent + self.downstream.sent
    }
}

/// Where a direction is: flow number and lap. Laps count from 1; 0 means never seen.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    flow: u32,
    lap: u32,
    flows: u32,
}

impl Cursor {
    fn new(flow: u32, flows: u32) -> Self {
        Cursor { flow, lap: 1, flows }
    }

    #[inline]
    fn step(&mut self) -> (u32, u32) {
        let here = (self.flow, self.lap);
        self.flow += 1;
        if self.flow == self.flows {
            self.flow = 0;
            self.lap += 1;
        }
        here
    }
}

impl Generator {
    pub fn flood(&mut self, plan: FloodPlan) -> Flood {
        let mut flood = Flood::default();
        let foreign_before = self.foreign_total();
        let flows = self.table.flows();
        // Half a table apart, so that a flow's two directions do not meet in the device's cache.
        let (mut up, mut down) = (Cursor::new(0, flows), Cursor::new(flows / 2, flows));

        let warm = Deadline::after(plan.warm_up);
        while !warm.is_over() {
            self.turn(&mut up, &mut down, &mut flood);
        }
        let (start, before) = (tsc(), flood);
        let end = Deadline::after(plan.measured);
        while !end.is_over() {
            self.turn(&mut up, &mut down, &mut flood);
        }
        flood.seconds = (tsc() - start) as f64 / tsc_hz() as f64;
        flood.right_upstream = flood.upstream.right - before.upstream.right;
        flood.right_downstream = flood.downstream.right - before.downstream.right;

        let mut silent = Deadline::after(SILENCE);
        while !silent.is_over() {
            if self.take(&mut flood) > 0 {
                silent = Deadline::after(SILENCE);
            }
        }
        flood.foreign = self.foreign_total() - foreign_before;
        flood
    }

    fn foreign_total(&self) -> u64 {
        self.access.foreign_total + self.internet.foreign_total
    }

    /// One burst of each kind.
    #[inline]
    fn turn(&mut self, up: &mut Cursor, down: &mut Cursor, flood: &mut Flood) {
        self.take(flood);
        let table = &self.table;
        for _ in 0..BURST {
            let ((flow, lap), template) = (up.step(), &self.upstream);
            self.access.append(&mut self.spare, TUNNEL_LEN, |bytes| {
                table.write_upstream(template, flow, lap, bytes)
            });
        }
        flood.upstream.sent += self.access.send();
        for _ in 0..BURST {
            let ((flow, lap), template) = (down.step(), &self.downstream);
            self.internet.append(&mut self.spare, PLAIN_LEN, |bytes| {
                table.write_downstream(template, flow, lap, bytes)
            });
        }
        flood.downstream.sent += self.internet.send();
    }

    /// Receives a burst on each side and enters it into the accounts.
    #[inline]
    fn take(&mut self, flood: &mut Flood) -> usize {
        let table = &mut self.table;
        let upstream = self.internet.receive(&mut self.spare, |frame| {
            table.judge_upstream(frame).map(|verdict| flood.upstream.enter(verdict)).is_some()
        });
        let downstream = self.access.receive(&mut self.spare, |frame| {
            table.judge_downstream(frame).map(|verdict| flood.downstream.enter(verdict)).is_some()
        });
        upstream + downstream
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_visits_every_flow_in_every_lap() {
        let mut cursor = Cursor::new(1, 3);
        let steps: Vec<_> = (0..7).map(|_| cursor.step()).collect();
        assert_eq!(steps, [(1, 1), (2, 1), (0, 2), (1, 2), (2, 2), (0, 3), (1, 3)]);
    }

    #[test]
    fn the_rate_counts_what_came_back_right_in_the_window() {
        let flood = Flood {
            seconds: 2.0,
            right_upstream: 3_000_000,
            right_downstream: 1_000_000,
            ..Flood::default()
        };
        assert!((flood.rate_mpps() - 2.0).abs() < 1e-9);
    }
}

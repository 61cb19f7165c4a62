//! Phase 2: both directions, every flow in turn, as fast as the ports accept packets or at a steady
//! rate. Hot path.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use weir_dpdk::{tsc, tsc_hz};
use weir_wire::ethernet::Mac;

use super::attack::{AttackAccount, AttackLoad, UnderAttack};
use super::{Deadline, Generator, Progress, STAMP_SHIFT, stamp};
use crate::families::FamilySet;
use crate::latency::{Histogram, Latency};
use crate::ledger::{Account, Verdict};
use crate::pacing::{Pace, Share};
use crate::packet::{Mark, PLAIN};
use crate::side::BURST;
use crate::table::Device;

/// Silence of this length after the last packet sent means that no packet is in flight.
const SILENCE: Duration = Duration::from_millis(100);
const PROGRESS_EVERY: Duration = Duration::from_secs(1);
/// Longest time for which a warm-up goes on until all flows are settled, and how often it looks.
const SETTLE_PATIENCE: Duration = Duration::from_secs(120);
const SETTLE_STEP: Duration = Duration::from_millis(20);
/// Shorter floods report no progress.
const LONG: Duration = Duration::from_secs(3);

#[derive(Clone, Copy, Debug)]
pub struct FloodPlan {
    /// Flooded but not counted in the rate.
    pub warm_up: Duration,
    pub measured: Duration,
    /// Whether the warm-up goes on until each flow has been sent an answer: a slow machine gets
    /// fewer packets through within it than there are flows, and a flow is settled only then.
    pub settles: bool,
}

/// The load offered to the device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Packets per second of both directions; `None`: as many as the ports accept.
    pub rate: Option<f64>,
    /// Share of the packets that go upstream, 0 to 1.
    pub up_share: f64,
    /// Share of the upstream packets that open a flow never seen before, 0 to 1, while there are
    /// such flows.
    pub new_share: f64,
    /// The attacker's load beside the flows.
    pub attack: Option<AttackLoad>,
}

impl Default for Load {
    fn default() -> Self {
        Load { rate: None, up_share: 0.5, new_share: 0.0, attack: None }
    }
}

/// The result of a flood.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Flood {
    /// Length of the measured window.
    pub seconds: f64,
    /// Correct packets that came back within the window.
    pub right_upstream: u64,
    pub right_downstream: u64,
    /// Accounts of the whole flood, warm-up and last packets included.
    pub upstream: Account,
    pub downstream: Account,
    /// Frames that are neither packets of the generator nor ARP.
    pub foreign: u64,
    /// Packets per second sent within the window, if a rate was requested.
    #[serde(default)]
    pub offered_pps: Option<f64>,
    /// Flows opened within the window.
    #[serde(default)]
    pub opened: u64,
    #[serde(default)]
    pub opened_per_second: f64,
    /// Time from the sending to the receiving burst, within the window, if a rate was requested: an
    /// unpaced flood would only measure the queues.
    #[serde(default)]
    pub latency: Option<Latency>,
    /// Beside an attack: the fate of the flows that the others opened, and the rate of the
    /// attacker.
    #[serde(default)]
    pub attack: Option<AttackAccount>,
}

impl Flood {
    /// Returns the rate of correct packets in both directions, in millions per second.
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

/// The position of a direction: flow number and lap. Laps count from 1; 0 means never seen.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    flow: u32,
    lap: u32,
    flows: u32,
}

impl Cursor {
    fn new(flow: u32, lap: u32, flows: u32) -> Self {
        Cursor { flow, lap, flows }
    }

    /// Returns whether it has visited each flow since it began within lap `first`, in the middle or
    /// before.
    fn has_visited_all(&self, first: u32) -> bool {
        self.lap > first + 1 || (self.lap == first + 1 && self.flow >= self.flows / 2)
    }

    #[inline(always)]
    fn step(&mut self, stamp: u32) -> Mark {
        let here = Mark { flow: self.flow, lap: self.lap, stamp };
        self.flow += 1;
        if self.flow == self.flows {
            self.flow = 0;
            self.lap += 1;
        }
        here
    }
}

/// A flood in progress.
#[derive(Debug)]
pub(super) struct State {
    up: Cursor,
    down: Cursor,
    up_share: Share,
    new_share: Share,
    /// Position in the order of creation of the next flow to open.
    next_new: usize,
    pace: Option<Pace>,
    latency: Option<Histogram>,
    pub(super) flood: Flood,
    pub(super) attack: Option<Box<UnderAttack>>,
}

impl Generator {
    /// Floods with the established flows. `progress` is called about once a second in floods longer
    /// than three seconds.
    pub fn flood(
        &mut self,
        plan: FloodPlan,
        load: Load,
        mut progress: impl FnMut(Progress),
    ) -> Flood {
        let foreign_before = self.foreign_total();
        let flows = self.table.established();
        let mut state = State {
            // Half a table apart, so that a flow's two directions do not meet in the device's
            // cache.
            up: Cursor::new(0, self.next_lap, flows),
            down: Cursor::new(flows / 2, self.next_lap, flows),
            up_share: Share::new(load.up_share),
            new_share: Share::new(load.new_share),
            next_new: flows as usize,
            pace: load.rate.map(|rate| Pace::new(rate, tsc_hz(), tsc())),
            latency: load.rate.map(|_| Histogram::default()),
            flood: Flood::default(),
            attack: load.attack.and_then(|attack| self.attack(attack)).map(Box::new),
        };
        let whole = plan.warm_up + plan.measured;
        let mut reports = Reports::new(whole);

        self.run(Deadline::after(plan.warm_up), &mut state, &mut reports, &mut progress);
        let give_up = Deadline::after(SETTLE_PATIENCE);
        while plan.settles && !state.down.has_visited_all(self.next_lap) && !give_up.is_over() {
            self.run(Deadline::after(SETTLE_STEP), &mut state, &mut reports, &mut progress);
        }
        if plan.settles {
            progress(Progress::Settled);
        }
        if let Some(latency) = &mut state.latency {
            latency.clear();
        }
        if let Some(attack) = &mut state.attack {
            attack.begin_window();
        }
        let (start, before) = (tsc(), state.flood);
        self.run(Deadline::after(plan.measured), &mut state, &mut reports, &mut progress);
        let seconds = (tsc() - start) as f64 / tsc_hz() as f64;
        let flood = &mut state.flood;
        flood.seconds = seconds;
        flood.right_upstream = flood.upstream.right - before.upstream.right;
        flood.right_downstream = flood.downstream.right - before.downstream.right;
        flood.offered_pps = load.rate.map(|_| (flood.sent() - before.sent()) as f64 / seconds);
        if let Some(attack) = &mut state.attack {
            attack.end_window(seconds);
        }
        let (opened, units) = (flood.opened - before.opened, tsc_hz() >> STAMP_SHIFT);
        flood.latency = state.latency.take().and_then(|latency| latency.summary(units as f64));
        if state.attack.is_some() {
            self.flush();
        }
        self.drain(&mut state);
        let attack = state.attack.take().map(|attack| attack.account(state.flood.opened));
        let mut flood = state.flood;
        (flood.opened, flood.opened_per_second) = (opened, opened as f64 / seconds);
        flood.attack = attack;
        flood.foreign = self.foreign_total() - foreign_before;
        self.next_lap = state.up.lap.max(state.down.lap) + 1;
        flood
    }

    fn run(
        &mut self,
        end: Deadline,
        state: &mut State,
        reports: &mut Reports,
        progress: &mut impl FnMut(Progress),
    ) {
        while !end.is_over() {
            in_form!(self.traffic, self.turn(state));
            if reports.next.is_over() {
                progress(reports.make(&state.flood));
            }
        }
    }

    /// Receives the packets that are still in flight.
    fn drain(&mut self, state: &mut State) {
        self.access.discard();
        self.internet.discard();
        let mut silent = Deadline::after(SILENCE);
        while !silent.is_over() {
            let count = in_form!(self.traffic, self.take(state));
            if count > 0 {
                silent = Deadline::after(SILENCE);
            }
        }
    }

    pub(super) fn foreign_total(&self) -> u64 {
        self.access.foreign_total + self.internet.foreign_total
    }

    /// Receives a burst on each side, and sends one on each if the last ones have left: so the
    /// shares are kept even if the device accepts one direction faster than the other.
    fn turn<S: FamilySet, const TUNNEL: usize, const TCP: bool>(&mut self, state: &mut State) {
        if let Some(attack) = &mut state.attack {
            attack.turn(tsc());
        }
        self.take::<S, TUNNEL, TCP>(state);
        if self.access.is_clear() && self.internet.is_clear() {
            self.write::<S, TUNNEL, TCP>(state);
        }
        let (up, down) = (self.access.send(), self.internet.send());
        if state.attack.is_none() {
            state.flood.upstream.sent += up;
            state.flood.downstream.sent += down;
        }
    }

    #[inline(always)]
    fn write<S: FamilySet, const TUNNEL: usize, const TCP: bool>(&mut self, state: &mut State) {
        let now = tsc();
        let count = match &mut state.pace {
            None => 2 * BURST as u32,
            Some(pace) => pace.take(now, 2 * BURST as u32),
        };
        let up = state.up_share.of(count);
        let new = if state.new_share.is_zero() { 0 } else { self.new_among(up, state) };
        let (table, stamp) = (&self.table, stamp(now));
        let mut written = [0; 3];
        for _ in 0..new {
            let flow = table.creation_order()[state.next_new];
            state.next_new += 1;
            let (mark, template) = (Mark { flow, lap: 1, stamp }, self.upstream.of::<S>(flow));
            let is_written = self.access.append(&mut self.spare, template.len(), |bytes| {
                table.write_upstream::<S, TUNNEL, TCP>(template, mark, bytes)
            });
            written[0] += u64::from(is_written);
        }
        for _ in new..up {
            let mark = state.up.step(stamp);
            let template = self.upstream.of::<S>(mark.flow);
            let is_written = self.access.append(&mut self.spare, template.len(), |bytes| {
                table.write_upstream::<S, TUNNEL, TCP>(template, mark, bytes)
            });
            written[1] += u64::from(is_written);
        }
        for _ in up..count {
            let mark = state.down.step(stamp);
            let template = self.downstream.of::<S>(mark.flow);
            let is_written = self.internet.append(&mut self.spare, template.len(), |bytes| {
                table.write_downstream::<S, TCP>(template, mark, bytes)
            });
            written[2] += u64::from(is_written);
        }
        if state.attack.is_some() {
            self.write_attack(now, written, state);
        }
    }

    /// Returns how many of the next `up` packets open a flow.
    fn new_among(&self, up: u32, state: &mut State) -> u32 {
        let left = self.table.len() as usize - state.next_new;
        let new = state.new_share.of(up).min(left as u32);
        for ahead in state.next_new..state.next_new + new as usize {
            self.table.prefetch(self.table.creation_order()[ahead]);
        }
        new
    }

    /// Receives a burst on each side and enters it into the accounts; returns the number of frames.
    #[inline(always)]
    fn take<S: FamilySet, const TUNNEL: usize, const TCP: bool>(
        &mut self,
        state: &mut State,
    ) -> usize {
        match self.table.device() {
            Device::PassesThrough if TUNNEL != PLAIN => {
                self.take_upstream::<S, TUNNEL, TCP>(state)
                    + self.take_downstream::<S, PLAIN, TCP>(state)
            }
            _ => {
                self.take_upstream::<S, PLAIN, TCP>(state)
                    + self.take_downstream::<S, TUNNEL, TCP>(state)
            }
        }
    }

    #[inline(always)]
    fn take_upstream<S: FamilySet, const TUNNEL: usize, const TCP: bool>(
        &mut self,
        state: &mut State,
    ) -> usize {
        let (table, flood) = (&mut self.table, &mut state.flood);
        let (now, established) = (stamp(tsc()), table.established());
        let gateway = state.attack.is_some().then_some(self.internet.gateway.mac);
        self.internet.receive(&mut self.spare, |frame| {
            match table.judge_upstream::<S, TUNNEL, TCP>(frame) {
                None => false,
                Some((verdict, mark)) => {
                    let verdict = at_gateway(gateway, frame, verdict);
                    flood.upstream.enter(verdict);
                    if verdict == Verdict::Right {
                        flood.opened += u64::from(mark.flow >= established);
                        if let Some(latency) = &mut state.latency {
                            latency.record(now.wrapping_sub(mark.stamp));
                        }
                    }
                    true
                }
            }
        })
    }

    #[inline(always)]
    fn take_downstream<S: FamilySet, const TUNNEL: usize, const TCP: bool>(
        &mut self,
        state: &mut State,
    ) -> usize {
        let (table, flood) = (&mut self.table, &mut state.flood);
        let now = stamp(tsc());
        let gateway = state.attack.is_some().then_some(self.access.gateway.mac);
        self.access.receive(&mut self.spare, |frame| {
            match table.judge_downstream::<S, TUNNEL, TCP>(frame) {
                None => false,
                Some((verdict, mark)) => {
                    let verdict = at_gateway(gateway, frame, verdict);
                    flood.downstream.enter(verdict);
                    if let (Verdict::Right, Some(latency)) = (verdict, &mut state.latency) {
                        latency.record(now.wrapping_sub(mark.stamp));
                    }
                    true
                }
            }
        })
    }
}

/// Beside an attack, a correct packet that was sent to a station other than the gateway counts as
/// wrong.
#[inline(always)]
fn at_gateway(gateway: Option<Mac>, frame: &[u8], verdict: Verdict) -> Verdict {
    match gateway {
        Some(mac) if !frame.starts_with(&mac.0) => Verdict::WrongAddress,
        _ => verdict,
    }
}

/// The time of the next progress report, and the counts at the last one.
#[derive(Debug)]
struct Reports {
    next: Deadline,
    start: u64,
    whole: Duration,
    last: (u64, u64),
}

impl Reports {
    fn new(whole: Duration) -> Self {
        let first = if whole > LONG { PROGRESS_EVERY } else { 2 * whole };
        let now = tsc();
        Reports { next: Deadline::after(first), start: now, whole, last: (now, 0) }
    }

    #[cold]
    fn make(&mut self, flood: &Flood) -> Progress {
        let (now, right) = (tsc(), flood.upstream.right + flood.downstream.right);
        let seconds = |cycles: u64| cycles as f64 / tsc_hz() as f64;
        let rate = (right - self.last.1) as f64 / seconds(now - self.last.0);
        self.last = (now, right);
        self.next = Deadline::after(PROGRESS_EVERY);
        Progress::Flood {
            seconds: seconds(now - self.start),
            of_seconds: self.whole.as_secs_f64(),
            rate_mpps: rate / 1e6,
            lost: flood.lost(),
            wrong: flood.wrong(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_visits_every_flow_in_every_lap() {
        let mut cursor = Cursor::new(1, 4, 3);
        let steps: Vec<_> =
            (0..7).map(|_| cursor.step(0)).map(|mark| (mark.flow, mark.lap)).collect();
        assert_eq!(steps, [(1, 4), (2, 4), (0, 5), (1, 5), (2, 5), (0, 6), (1, 6)]);
    }

    #[test]
    fn cursor_has_visited_all_flows_after_a_whole_lap_from_the_middle() {
        let mut cursor = Cursor::new(2, 4, 5);
        let steps = (1..20).find(|_| {
            cursor.step(0);
            cursor.has_visited_all(4)
        });
        assert_eq!(steps, Some(5));
    }

    #[test]
    fn a_right_packet_at_another_station_is_wrong_beside_an_attack() {
        let (ours, other) = (Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]));
        let mut frame = [0; 60];
        frame[..6].copy_from_slice(&other.0);
        assert_eq!(at_gateway(Some(ours), &frame, Verdict::Right), Verdict::WrongAddress);
        assert_eq!(at_gateway(Some(other), &frame, Verdict::Right), Verdict::Right);
        assert_eq!(at_gateway(None, &frame, Verdict::Right), Verdict::Right);
    }

    #[test]
    fn rate_counts_correct_packets_of_the_window() {
        let flood = Flood {
            seconds: 2.0,
            right_upstream: 3_000_000,
            right_downstream: 1_000_000,
            ..Flood::default()
        };
        assert!((flood.rate_mpps() - 2.0).abs() < 1e-9);
    }
}

//! Phase 1: opens every flow from its home, in the order of creation; the packet that comes out
//! shows its public endpoint.
//!
//! ```text
//!   UDP   home ── lap 1 ──▶ remote                 established when it arrives
//!   TCP   home ── SYN ────▶ remote                 lap 1 upstream
//!         home ◀─ SYN+ACK ─ remote                 lap 1 downstream, once the SYN has arrived
//!         home ── ACK ────▶ remote                 lap 2 upstream; established when it arrives
//! ```

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use weir_dpdk::{tsc, tsc_hz};
use weir_wire::frame::Frame;

use super::{Deadline, Generator, GeneratorError, Progress};
use crate::families::FamilySet;
use crate::pacing::Pace;
use crate::packet::Mark;
use crate::scenario::Protocol;
use crate::side::BURST;
use crate::table::{Arrival, Lesson};

/// Largest number of flows in progress: fewer than the slots of any ring, so that no packet is lost
/// for lack of room.
const WINDOW: u32 = 960;
/// Packets without an answer for this time are lost.
const PATIENCE: Duration = Duration::from_millis(20);
const ATTEMPTS: u32 = 8;
/// Silence of this length means that no packet is in flight.
const SILENCE: Duration = Duration::from_millis(100);
/// Consecutive lost windows after which the device counts as dead: ten seconds, as
/// [`DEAD_AFTER`]. A hypervisor may take long over memory that a large table touches for the first
/// time.
const LOST_WINDOWS_MAX: u32 = 500;
/// A device that has answered nothing counts as dead after this time, however few flows there are.
const DEAD_AFTER: Duration = Duration::from_secs(10);
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// The result of phase 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Learned {
    pub sent: u64,
    pub wrong: u64,
    /// Flows established.
    pub flows: u32,
    /// Flows that could not be established.
    pub missing: u32,
    /// Time from the first packet sent to the last flow established, repetitions included.
    pub seconds: f64,
    /// Time from the first packet to the last first attempt.
    pub sending_seconds: f64,
}

impl Learned {
    /// Returns the flows offered per second.
    pub fn offered(&self) -> f64 {
        f64::from(self.flows + self.missing) / self.sending_seconds.max(1e-9)
    }

    /// Returns the flows established per second.
    pub fn rate(&self) -> f64 {
        f64::from(self.flows) / self.seconds.max(1e-9)
    }
}

/// The learning in progress.
#[derive(Debug)]
struct Lessons {
    /// Flows to open, as positions in the order of creation.
    range: Range<usize>,
    next: usize,
    under_way: u32,
    pace: Option<Pace>,
    /// Flows whose SYN, or whose SYN+ACK, has arrived and must be answered.
    to_answer: [VecDeque<u32>; 2],
    learned: Learned,
    last_cycle: u64,
    last_sent_cycle: u64,
}

impl Generator {
    /// Opens every flow that must be established before the flood, as fast as the device answers.
    /// Lost packets are sent again; flows that the device refuses are tried again for `patience`,
    /// as it may limit new homes per second.
    pub fn learn(
        &mut self,
        patience: Duration,
        mut progress: impl FnMut(Progress),
    ) -> Result<Learned, GeneratorError> {
        let start = tsc();
        let flows = self.table.established();
        let mut lessons = Lessons::new(0..flows as usize, None);
        let (give_up, dead) = (Deadline::after(patience), Deadline::after(DEAD_AFTER));
        let mut attempts = 0;
        loop {
            let before = lessons.learned.flows;
            lessons.next = lessons.range.start;
            self.pass(&mut lessons, attempts > 0, &mut progress);
            attempts += 1;
            let is_stuck = lessons.learned.flows == before || attempts >= ATTEMPTS;
            let may_start_late = lessons.learned.flows == 0 && !dead.is_over();
            if lessons.learned.flows == flows || (is_stuck && give_up.is_over() && !may_start_late)
            {
                break;
            }
        }
        let learned = lessons.finish(start);
        if learned.sent > u64::from(flows * self.laps_to_establish()) {
            self.settle();
        }
        if learned.missing > 0 {
            return Err(GeneratorError::NotLearned {
                missing: learned.missing,
                flows,
                attempts,
                wrong: learned.wrong,
            });
        }
        self.next_lap = self.laps_to_establish() + 1;
        match self.table.shared_endpoints() {
            0 => Ok(learned),
            count => Err(GeneratorError::SharedEndpoints { count }),
        }
    }

    /// Opens the flows at these positions of the order of creation at `rate` flows per second, each
    /// with one attempt: test phase 1 of RFC 9693.
    pub fn establish(&mut self, range: Range<usize>, rate: f64) -> Learned {
        let start = tsc();
        let mut lessons = Lessons::new(range, Some(Pace::new(rate, tsc_hz(), start)));
        self.pass(&mut lessons, false, &mut |_| {});
        self.next_lap = self.next_lap.max(self.laps_to_establish() + 1);
        lessons.finish(start)
    }

    /// Returns the number of upstream laps until a flow is established.
    fn laps_to_establish(&self) -> u32 {
        match self.traffic.protocol {
            Protocol::Udp => 1,
            Protocol::Tcp => 2,
        }
    }

    /// Waits for the answers to repetitions: in a flood they would count as duplicates.
    fn settle(&mut self) {
        let mut silent = Deadline::after(SILENCE);
        while !silent.is_over() {
            let count = self.internet.receive(&mut self.spare, |_| true)
                + self.access.receive(&mut self.spare, |_| true);
            if count > 0 {
                silent = Deadline::after(SILENCE);
            }
        }
    }

    /// Makes one attempt for each flow; in a repetition, for each flow not established yet.
    fn pass(
        &mut self,
        lessons: &mut Lessons,
        is_repetition: bool,
        progress: &mut impl FnMut(Progress),
    ) {
        lessons.under_way = 0;
        let mut lost_windows = 0;
        let mut lost = Deadline::after(PATIENCE);
        let mut report = Deadline::after(PROGRESS_EVERY);
        let is_windowed = lessons.pace.is_none();
        while lost_windows < LOST_WINDOWS_MAX {
            let count = in_form!(self.traffic, self.lesson(lessons, is_repetition));
            let all_sent = lessons.next == lessons.range.end && self.access.is_clear();
            if all_sent && lessons.under_way == 0 {
                break;
            }
            if count > 0 {
                lost_windows = 0;
                lost = Deadline::after(PATIENCE);
            } else if lost.is_over() {
                // A paced attempt ends here; a windowed one opens the next window.
                lessons.under_way = 0;
                lost_windows += u32::from(is_windowed || all_sent);
                lost = Deadline::after(PATIENCE);
            }
            if report.is_over() {
                let (learned, of) = (lessons.learned.flows, lessons.range.len() as u32);
                progress(Progress::Learn { learned, of });
                report = Deadline::after(PROGRESS_EVERY);
            }
        }
        self.access.discard();
        self.internet.discard();
    }

    /// Receives and answers packets and opens more flows; returns the number of learning packets
    /// that arrived.
    fn lesson<S: FamilySet, const TUNNEL: usize, const TCP: bool>(
        &mut self,
        lessons: &mut Lessons,
        is_repetition: bool,
    ) -> u32 {
        let count = self.receive_from_remotes::<S, TCP>(lessons)
            + self.receive_from_homes::<S, TUNNEL, TCP>(lessons);
        if self.access.is_clear() {
            if TCP {
                self.acknowledge::<S, TUNNEL>(lessons);
            }
            self.open::<S, TUNNEL, TCP>(lessons, is_repetition);
        }
        if TCP && self.internet.is_clear() {
            self.accept::<S>(lessons);
        }
        let sent = self.access.send();
        if sent > 0 && !is_repetition {
            lessons.last_sent_cycle = tsc();
        }
        lessons.learned.sent += sent + self.internet.send();
        count
    }

    /// Receives on the internet side: first packets, and the last ones of TCP handshakes.
    fn receive_from_remotes<S: FamilySet, const TCP: bool>(
        &mut self,
        lessons: &mut Lessons,
    ) -> u32 {
        let Generator { table, internet, spare, .. } = self;
        let last_lap = if TCP { 2 } else { 1 };
        let mut count = 0;
        let first = internet.poll(spare);
        // In the order of creation the records are scattered over the table.
        for frame in &spare[first..] {
            table.prefetch_of::<S, TCP>(frame.data());
        }
        for frame in &spare[first..] {
            let Some(arrival) = table.learn::<S, TCP>(frame.data()) else {
                internet.stranger(frame.data());
                continue;
            };
            count += 1;
            let Arrival { lesson, mark, lap_before } = arrival;
            match lesson {
                Lesson::Wrong => lessons.learned.wrong += 1,
                _ if mark.lap >= last_lap && lap_before < last_lap => lessons.established(),
                _ if TCP && mark.lap == 1 => lessons.to_answer[0].push_back(mark.flow),
                _ => {}
            }
        }
        count
    }

    /// Receives on the access side: SYN+ACKs.
    fn receive_from_homes<S: FamilySet, const TUNNEL: usize, const TCP: bool>(
        &mut self,
        lessons: &mut Lessons,
    ) -> u32 {
        let table = &mut self.table;
        let mut count = 0;
        self.access.receive(&mut self.spare, |frame| {
            match table.judge_downstream::<S, TUNNEL, TCP>(frame) {
                None => false,
                Some((verdict, mark)) => {
                    count += 1;
                    if verdict.is_delivered() {
                        lessons.to_answer[1].push_back(mark.flow);
                    } else {
                        lessons.learned.wrong += 1;
                    }
                    true
                }
            }
        });
        count
    }

    /// Sends the first packets of a burst of flows.
    fn open<S: FamilySet, const TUNNEL: usize, const TCP: bool>(
        &mut self,
        lessons: &mut Lessons,
        is_repetition: bool,
    ) {
        let room = match &mut lessons.pace {
            Some(pace) => pace.take(tsc(), BURST as u32),
            None => WINDOW.saturating_sub(lessons.under_way).min(BURST as u32),
        };
        let (table, last_lap) = (&self.table, if TCP { 2 } else { 1 });
        let order = table.creation_order();
        for &flow in
            order[lessons.range.end.min(lessons.next + BURST)..lessons.range.end].iter().take(BURST)
        {
            table.prefetch(flow);
        }
        let mut sent = 0;
        while sent < room && lessons.next < lessons.range.end {
            let flow = order[lessons.next];
            lessons.next += 1;
            if is_repetition && table.laps_seen(flow)[0] >= last_lap {
                continue;
            }
            let (mark, template) = (Mark { flow, lap: 1, stamp: 0 }, self.upstream.of::<S>(flow));
            self.access.append(&mut self.spare, template.len(), |bytes| {
                table.write_upstream::<S, TUNNEL, TCP>(template, mark, bytes)
            });
            sent += 1;
        }
        lessons.under_way += sent;
    }

    /// Answers SYNs.
    fn accept<S: FamilySet>(&mut self, lessons: &mut Lessons) {
        let answers = &mut lessons.to_answer[0];
        for flow in answers.drain(..answers.len().min(BURST)) {
            let (mark, template) = (Mark { flow, lap: 1, stamp: 0 }, self.downstream.of::<S>(flow));
            let table = &self.table;
            self.internet.append(&mut self.spare, template.len(), |bytes| {
                table.write_downstream::<S, true>(template, mark, bytes)
            });
        }
    }

    /// Answers SYN+ACKs.
    fn acknowledge<S: FamilySet, const TUNNEL: usize>(&mut self, lessons: &mut Lessons) {
        let answers = &mut lessons.to_answer[1];
        for flow in answers.drain(..answers.len().min(BURST)) {
            let (mark, template) = (Mark { flow, lap: 2, stamp: 0 }, self.upstream.of::<S>(flow));
            let table = &self.table;
            self.access.append(&mut self.spare, template.len(), |bytes| {
                table.write_upstream::<S, TUNNEL, true>(template, mark, bytes)
            });
        }
    }
}

impl Lessons {
    fn new(range: Range<usize>, pace: Option<Pace>) -> Self {
        Lessons {
            next: range.start,
            range,
            under_way: 0,
            pace,
            to_answer: Default::default(),
            learned: Learned::default(),
            last_cycle: tsc(),
            last_sent_cycle: tsc(),
        }
    }

    #[inline]
    fn established(&mut self) {
        self.learned.flows += 1;
        self.under_way = self.under_way.saturating_sub(1);
        self.last_cycle = tsc();
    }

    fn finish(self, start: u64) -> Learned {
        let since = |cycle: u64| cycle.saturating_sub(start) as f64 / tsc_hz() as f64;
        let (seconds, sending_seconds) = (since(self.last_cycle), since(self.last_sent_cycle));
        let missing = self.range.len() as u32 - self.learned.flows;
        Learned { seconds, sending_seconds, missing, ..self.learned }
    }
}

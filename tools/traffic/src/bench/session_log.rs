//! New flows with a session log: the rate up to which every record reaches its collector, and the
//! behaviour beyond it.
//!
//! ```text
//!   device's core:                 weir's worker
//!                                    ▲       │ ring
//!                              flows │       ▼
//!   generator's core:       generator     weir's collector thread ── TCP ─▶ benchmark's collector
//! ```
//!
//! The generator lacks the time that the two threads of the log take: they share its core.

use std::thread;
use std::time::{Duration, Instant};

use super::BenchError;
use super::collector::Collector;
use super::context::BenchContext;
use super::figure::{Figure, Figures};
use super::generator_process::Flooded;
use super::ipfix_stream::Tally;
use super::load::{Load, OPENS_PER_SEC_MAX};
use super::metrics::Reading;
use super::probe::{WeirRun, ZERO_LOSS_STEPS, ZERO_LOSS_TRIALS};
use super::rate_search::RateSearch;
use super::rounds::Round;
use super::weir::{Settings, Weir};

/// Longest time of the flood whose rate is the upper end of the search.
const BOUND_MAX: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(50);
/// Counters that do not change for this time are final: weir lets a record wait half a second for
/// others to fill its message, and updates its gauges ten times a second.
const QUIET: Duration = Duration::from_secs(1);
/// Records that have not arrived this long after the flood are lost.
const PATIENCE: Duration = Duration::from_secs(15);

/// Events of weir since its start, and the records of them that the collector received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Records {
    flows_created: u64,
    flows_expired: u64,
    blocks_held: u64,
    /// Lost records as counted by weir.
    lost: u64,
    tally: Tally,
}

impl Records {
    fn of(reading: &Reading, tally: Tally) -> Self {
        Records {
            flows_created: reading.flows_created as u64,
            flows_expired: reading.flows_expired as u64,
            blocks_held: reading.blocks_held as u64,
            lost: reading.records_lost as u64,
            tally,
        }
    }

    /// Returns the number of events without a record at the collector; negative if it has more
    /// records than there were events.
    fn missing(&self) -> i64 {
        let due = self.flows_created + self.flows_expired + self.blocks_held;
        let Tally { begun, ended, blocks, .. } = self.tally;
        due as i64 - (begun + ended + blocks) as i64
    }

    /// Returns the number of missing records that weir does not count as lost.
    fn uncounted(&self) -> i64 {
        self.missing() - self.lost as i64
    }

    fn lost_percent(&self) -> f64 {
        let due = self.flows_created + self.flows_expired + self.blocks_held;
        100.0 * self.lost as f64 / due.max(1) as f64
    }

    /// Returns why a flood does not show that weir logs this rate of new flows; `None` if it does.
    fn shortfall(&self, flooded: &Flooded) -> Option<String> {
        let begun = self.tally.begun;
        if flooded.lost == 0 && self.lost == 0 && begun == self.flows_created {
            return None;
        }
        Some(format!(
            "{} packets lost, {} records lost, {begun} records of {} flows",
            flooded.lost, self.lost, self.flows_created
        ))
    }
}

/// A flood with a session log.
struct Logged {
    run: WeirRun,
    records: Records,
}

impl BenchContext<'_> {
    /// Finds the highest paced rate of new flows at which the collector gets every record, by
    /// halving, up to the rate without a log.
    pub(super) fn session_log_rate(
        &self,
        load: &Load,
        round: &mut Round,
        notes: &mut Vec<String>,
    ) -> Result<(), BenchError> {
        let own = self.weir_flood(&load.lasting(load.measured.min(BOUND_MAX)))?;
        round.wrong += own.flooded.wrong;
        let highest = own.flooded.opened_per_second.unwrap_or(0.0).min(OPENS_PER_SEC_MAX);
        let mut search = RateSearch::new(highest, ZERO_LOSS_STEPS);
        let (mut best, mut failed, mut uncounted) = (None, None, 0);
        while let Some(rate) = search.next() {
            let mut passed = None;
            for _ in 0..ZERO_LOSS_TRIALS {
                let logged = self.logged_flood(&load.at(rate))?;
                round.wrong += logged.run.flooded.wrong;
                uncounted = uncounted.max(logged.records.uncounted().unsigned_abs());
                let Some(why) = logged.records.shortfall(&logged.run.flooded) else {
                    passed = Some(logged);
                    break;
                };
                failed = Some(format!("fails at {:.2} M flows/s: {why}", rate / 1e6));
            }
            search.enter(rate, passed.is_some());
            best = passed.or(best);
        }
        notes.extend(failed);
        round.figures.set(Figure::UnloggedOpenedMega, highest / 1e6);
        round.figures.set(Figure::RecordsUncounted, uncounted as f64);
        match best {
            Some(best) => enter_rate(&best, highest, &mut round.figures),
            None => round.figures.set(Figure::AllLoggedMega, 0.0),
        }
        Ok(())
    }

    /// Runs a flood of new flows with a session log and one without, in turn.
    pub(super) fn session_log_cost(
        &self,
        load: &Load,
        is_logged_first: bool,
        round: &mut Round,
    ) -> Result<(), BenchError> {
        let (logged, plain) = if is_logged_first {
            let logged = self.logged_flood(load)?;
            (logged, self.weir_flood(load)?)
        } else {
            let plain = self.weir_flood(load)?;
            (self.logged_flood(load)?, plain)
        };
        round.wrong += logged.run.flooded.wrong + plain.flooded.wrong;
        round.figures = logged.run.figures;
        enter_cost(&logged.records, &plain.figures, &mut round.figures);
        Ok(())
    }

    fn logged_flood(&self, load: &Load) -> Result<Logged, BenchError> {
        let collector = Collector::start(self.plan.generator_core)?;
        let settings = Settings { collector: Some(collector.address()), ..Settings::default() };
        let settled = |weir: &Weir| self.settled(weir, &collector);
        let (run, records) = self.flood_then(load, settings, settled)?;
        Ok(Logged { run, records })
    }

    /// Returns the counters once they no longer change and all records have arrived or are lost, or
    /// after [`PATIENCE`].
    fn settled(&self, weir: &Weir, collector: &Collector) -> Result<Records, BenchError> {
        let give_up = Instant::now() + PATIENCE;
        let (mut last, mut since) = (Records::default(), Instant::now());
        let is_settled = |records: &Records, since: Instant| {
            records.uncounted() == 0 && since.elapsed() >= QUIET
        };
        while !is_settled(&last, since) && Instant::now() < give_up {
            self.plan.check_interrupted()?;
            thread::sleep(POLL);
            let records = Records::of(&weir.reading()?, collector.tally()?);
            if records != last {
                (last, since) = (records, Instant::now());
            }
        }
        Ok(last)
    }
}

/// Enters the rate of the flows that came through, which is below the requested rate if the
/// generator fell behind.
fn enter_rate(best: &Logged, highest: f64, figures: &mut Figures) {
    let opened = best.run.flooded.opened_per_second.unwrap_or(0.0);
    let tally = best.records.tally;
    let bytes = tally.bytes as f64 / tally.begun as f64;
    figures.set(Figure::AllLoggedMega, opened / 1e6);
    figures.set(Figure::AllLoggedShare, opened / highest);
    figures.set(Figure::BytesPerRecord, bytes);
    figures.set(Figure::RecordMegabytes, bytes * opened / 1e6);
}

/// Enters the figures of a flood without a log beside those of one with a log, which are in
/// `figures`.
fn enter_cost(records: &Records, plain: &Figures, figures: &mut Figures) {
    let ratio = |figures: &Figures, of| Some(figures.get(of)? / plain.get(of)?);
    figures.set(Figure::UnloggedOpenedMega, plain.get(Figure::OpenedMega));
    figures.set(Figure::UnloggedCycles, plain.get(Figure::WeirCycles));
    figures.set(Figure::LoggedOpenedRatio, ratio(figures, Figure::OpenedMega));
    figures.set(Figure::LoggedCyclesRatio, ratio(figures, Figure::WeirCycles));
    figures.set(Figure::RecordsLost, records.lost as f64);
    figures.set(Figure::RecordsLostPercent, records.lost_percent());
    figures.set(Figure::RecordsUncounted, records.uncounted().unsigned_abs() as f64);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the records of 1,000 flows in 20 blocks: all of them, except as many begin records
    /// as are counted as lost.
    fn records(lost: u64) -> Records {
        Records {
            flows_created: 1000,
            flows_expired: 0,
            blocks_held: 20,
            lost,
            tally: Tally { begun: 1000 - lost, ended: 0, blocks: 20, bytes: 40_000 },
        }
    }

    #[test]
    fn a_rate_counts_only_if_no_packet_and_no_record_is_lost_and_every_flow_has_one() {
        let whole = Flooded::default();
        assert_eq!(records(0).shortfall(&whole), None);
        let lost = Flooded { lost: 1, ..whole };
        assert!(records(0).shortfall(&lost).unwrap().starts_with("1 packets lost"));
        assert!(records(7).shortfall(&whole).unwrap().contains("7 records lost"));
        // A loss unknown to weir, a record that came twice, a block whose record is lost.
        let with_begun =
            |begun| Records { tally: Tally { begun, ..records(0).tally }, ..records(0) };
        assert!(with_begun(999).shortfall(&whole).unwrap().ends_with("999 records of 1000 flows"));
        assert!(with_begun(1001).shortfall(&whole).is_some());
        assert!(Records { lost: 1, ..records(0) }.shortfall(&whole).is_some());
    }

    #[test]
    fn missing_records_are_those_that_weir_counts_as_lost() {
        assert_eq!((records(0).missing(), records(0).uncounted()), (0, 0));
        assert_eq!((records(7).missing(), records(7).uncounted()), (7, 0));
        // A lost record of a block counts, too; and so does one of a flow that ended.
        let of_block = Records { tally: Tally { blocks: 19, ..records(7).tally }, ..records(7) };
        assert_eq!((of_block.missing(), of_block.uncounted()), (8, 1));
        let of_end = Records { flows_expired: 3, ..records(0) };
        assert_eq!((of_end.missing(), of_end.uncounted()), (3, 3));
        let twice = Records { tally: Tally { begun: 1002, ..records(0).tally }, ..records(0) };
        assert_eq!((twice.missing(), twice.uncounted()), (-2, -2));
    }

    #[test]
    fn a_flood_with_a_log_is_compared_with_the_one_without() {
        let (mut logged, mut plain) = (Figures::default(), Figures::default());
        logged.set(Figure::OpenedMega, 3.0);
        logged.set(Figure::WeirCycles, 440.0);
        plain.set(Figure::OpenedMega, 4.0);
        plain.set(Figure::WeirCycles, 400.0);
        let records = Records { tally: Tally { blocks: 19, ..records(51).tally }, ..records(51) };
        enter_cost(&records, &plain, &mut logged);
        let figure = |figure| logged.get(figure).unwrap();
        assert!((figure(Figure::LoggedOpenedRatio) - 0.75).abs() < 1e-9);
        assert!((figure(Figure::LoggedCyclesRatio) - 1.1).abs() < 1e-9);
        assert!((figure(Figure::RecordsLostPercent) - 5.0).abs() < 1e-9);
        assert_eq!((figure(Figure::RecordsLost), figure(Figure::RecordsUncounted)), (51.0, 1.0));
        assert_eq!((figure(Figure::OpenedMega), figure(Figure::UnloggedOpenedMega)), (3.0, 4.0));
    }

    #[test]
    fn rate_and_bytes_per_record_are_those_of_delivered_flows() {
        let flooded = Flooded { opened_per_second: Some(2e6), ..Flooded::default() };
        let run = WeirRun { flooded, figures: Figures::default() };
        let mut figures = Figures::default();
        enter_rate(&Logged { run, records: records(0) }, 4e6, &mut figures);
        let figure = |figure| figures.get(figure).unwrap();
        assert_eq!((figure(Figure::AllLoggedMega), figure(Figure::AllLoggedShare)), (2.0, 0.5));
        assert_eq!((figure(Figure::BytesPerRecord), figure(Figure::RecordMegabytes)), (40.0, 80.0));
    }
}

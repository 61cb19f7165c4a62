//! Rates of the workers: the differences of their counters over the last second or so.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use weir_admin::api::WorkerRates;
use weir_engine::{Direction, DropReason, Side};

use crate::worker_stats::WorkerStats;

/// Shortest time that a rate is computed over.
const SPAN: Duration = Duration::from_secs(1);

/// The rates of all workers. The control thread updates them, and a request for the status reads
/// them.
#[derive(Debug, Default)]
pub(crate) struct Rates(Mutex<RatesState>);

#[derive(Debug, Default)]
struct RatesState {
    looked: Option<(Duration, Vec<WorkerRates>)>,
    rates: Vec<WorkerRates>,
}

impl Rates {
    /// Takes the counters of all workers at this time, once a second.
    pub(crate) fn look<'a>(&self, now: Duration, stats: impl Iterator<Item = &'a WorkerStats>) {
        let mut state = self.state();
        let state = &mut *state;
        if state.looked.as_ref().is_some_and(|(at, _)| now < *at + SPAN) {
            return;
        }
        let totals: Vec<WorkerRates> = stats.map(totals).collect();
        if let Some((at, before)) = &state.looked {
            let seconds = (now - *at).as_secs_f64();
            let rates = totals.iter().zip(before).map(|(total, before)| {
                let rate = |of: fn(&WorkerRates) -> f64| (of(total) - of(before)) / seconds;
                WorkerRates {
                    access_rx_packets: rate(|it| it.access_rx_packets),
                    access_tx_packets: rate(|it| it.access_tx_packets),
                    internet_rx_packets: rate(|it| it.internet_rx_packets),
                    internet_tx_packets: rate(|it| it.internet_tx_packets),
                    new_flows: rate(|it| it.new_flows),
                    drops: rate(|it| it.drops),
                }
            });
            state.rates = rates.collect();
        }
        state.looked = Some((now, totals));
    }

    /// Returns the rates of one worker; zeros until the counters have been taken twice.
    pub(crate) fn of(&self, worker: usize) -> WorkerRates {
        self.state().rates.get(worker).cloned().unwrap_or_default()
    }

    fn state(&self) -> MutexGuard<'_, RatesState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the counters that the rates are computed from, since start.
fn totals(stats: &WorkerStats) -> WorkerRates {
    let engine = &stats.engine;
    let packets = |side, direction| engine.packets(side, direction) as f64;
    let drops: u64 = DropReason::ALL.iter().map(|reason| engine.dropped(*reason)).sum();
    WorkerRates {
        access_rx_packets: packets(Side::Access, Direction::Receive),
        access_tx_packets: packets(Side::Access, Direction::Transmit),
        internet_rx_packets: packets(Side::Internet, Direction::Receive),
        internet_tx_packets: packets(Side::Internet, Direction::Transmit),
        new_flows: stats.flow_creates.get() as f64,
        drops: drops as f64,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use weir_engine::EngineCounters;

    use super::*;

    #[test]
    fn rates_cover_the_time_between_two_samples_a_second_apart() {
        let counters = Arc::new(EngineCounters::default());
        let stats = WorkerStats::new(Arc::clone(&counters), 1, 2_000_000_000);
        let rates = Rates::default();
        let look = |ms| rates.look(Duration::from_millis(ms), std::iter::once(&stats));
        counters.count(Side::Access, Direction::Receive, 1_000_000, 64_000_000);
        look(5_000);
        assert_eq!(rates.of(0), WorkerRates::default(), "nothing is known of the time before");
        counters.count(Side::Access, Direction::Receive, 300, 19_200);
        counters.count(Side::Internet, Direction::Transmit, 150, 9_600);
        stats.flow_creates.set(30);
        look(5_500);
        assert_eq!(rates.of(0), WorkerRates::default());
        look(6_500);
        let expected = WorkerRates {
            access_rx_packets: 200.0,
            internet_tx_packets: 100.0,
            new_flows: 20.0,
            ..WorkerRates::default()
        };
        assert_eq!(rates.of(0), expected);
        look(8_000);
        assert_eq!(rates.of(0), WorkerRates::default(), "the worker is idle");
        assert_eq!(rates.of(1), WorkerRates::default(), "there is no such worker");
    }
}

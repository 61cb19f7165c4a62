//! Hot: a worker's two DPDK ports as its turn sees them, with counters, captures and the time that
//! expiry takes.

use std::sync::Arc;
use std::time::Duration;

use weir_dpdk::{Mbuf, MbufPool, RxQueue, TxQueue, tsc};
use weir_engine::{BURST_MAX, Direction, PacketTrace, Side, TraceFilter};
use weir_wire::frame::Frame;
use weir_worker::Ports;

use crate::capture::CapturePoint;
use crate::clock::Clock;
use crate::request_server::RequestServer;
use crate::worker_stats::WorkerStats;

/// One side's port, owned by the worker.
#[derive(Debug)]
pub(crate) struct PortQueues {
    pub rx: RxQueue,
    pub tx: TxQueue,
}

/// Both ports of a worker.
#[derive(Debug)]
pub(crate) struct DpdkPorts {
    pub pool: MbufPool,
    pub access: PortQueues,
    pub internet: PortQueues,
    pub stats: Arc<WorkerStats>,
    /// Holds the running capture, if there is one.
    pub request_server: RequestServer,
    pub clock: Clock,
    /// Whether the timers of the last turn took long enough to count.
    pub has_ticked: bool,
}

impl DpdkPorts {
    #[inline]
    fn port(&mut self, side: Side) -> &mut PortQueues {
        match side {
            Side::Access => &mut self.access,
            Side::Internet => &mut self.internet,
        }
    }
}

impl Ports for DpdkPorts {
    type Frame = Mbuf;
    type Pool = MbufPool;

    #[inline]
    fn pool(&mut self) -> &mut MbufPool {
        &mut self.pool
    }

    #[inline]
    fn now(&mut self) -> Duration {
        self.clock.now()
    }

    #[inline]
    fn receive(&mut self, side: Side, frames: &mut Vec<Mbuf>) -> usize {
        self.port(side).rx.burst(frames, BURST_MAX)
    }

    #[inline]
    fn send(&mut self, side: Side, frames: &mut Vec<Mbuf>) {
        let offered = frames.len() as u64;
        let bytes: u64 = frames.iter().map(|frame| frame.data().len() as u64).sum();
        let tx = &mut self.port(side).tx;
        let sent = tx.burst(frames) as u64;
        let dropped = tx.dropped();
        // Frames that the device did not take are freed already; their length is taken as the
        // average.
        self.stats.engine.count(side, Direction::Transmit, sent, bytes * sent / offered);
        self.stats.tx_dropped[side as usize].set(dropped);
    }

    #[inline]
    fn observe(
        &mut self,
        side: Side,
        direction: Direction,
        now: Duration,
        frames: &[Mbuf],
    ) -> bool {
        if !self.request_server.is_tapped() {
            return false;
        }
        if let Some(point) = self.request_server.capture_point() {
            copy(point, side, direction, now, frames, &self.stats);
        }
        self.request_server.trace_point().is_some()
    }

    fn trace_filter(&self) -> Option<TraceFilter> {
        self.request_server.trace_point()?.filter()
    }

    fn take_trace(&mut self, trace: PacketTrace) {
        if let Some(point) = self.request_server.trace_point_mut() {
            point.take(trace);
        }
    }

    #[inline]
    fn run_timers(&mut self, timers: impl FnOnce(&mut MbufPool)) {
        let began = tsc();
        timers(&mut self.pool);
        self.has_ticked = self.stats.ticks.enter(tsc().wrapping_sub(began));
    }
}

/// Off the fast path: runs only during a capture.
#[cold]
fn copy(
    point: &mut CapturePoint,
    side: Side,
    direction: Direction,
    now: Duration,
    frames: &[Mbuf],
    stats: &WorkerStats,
) {
    let lost = point.copy(side, direction, now, frames.iter().map(Frame::data));
    if lost > 0 {
        stats.capture_dropped.add(lost);
    }
}

//! The ports of a worker, as its turn needs them. Implemented by DPDK queues and by
//! [`Rings`](crate::Rings).

use std::time::Duration;

use weir_engine::{Direction, PacketTrace, Side, TraceFilter};
use weir_wire::frame::{Frame, Pool};

/// The two ports of a worker, the pool of their frames, and the driver's view of both.
pub trait Ports {
    type Frame: Frame;
    type Pool: Pool<Frame = Self::Frame>;

    /// Returns the pool that new frames come from.
    fn pool(&mut self) -> &mut Self::Pool;

    /// Reads the time again: between bursts of late packets, since their turn takes long.
    fn now(&mut self) -> Duration;

    /// Appends a burst of received frames, at most [`BURST_MAX`](weir_engine::BURST_MAX), and
    /// returns how many.
    fn receive(&mut self, side: Side, frames: &mut Vec<Self::Frame>) -> usize;

    /// Sends all frames, of which there is at least one, and leaves the vector empty, with its
    /// capacity.
    fn send(&mut self, side: Side, frames: &mut Vec<Self::Frame>);

    /// Sees each burst before the engine gets it, and before it is sent: for captures. Returns
    /// whether a trace runs, for which the worker then asks [`trace_filter`](Self::trace_filter).
    #[inline]
    fn observe(
        &mut self,
        _side: Side,
        _direction: Direction,
        _now: Duration,
        _frames: &[Self::Frame],
    ) -> bool {
        false
    }

    /// Returns the packets that a running trace is about, while it has room for another one.
    fn trace_filter(&self) -> Option<TraceFilter> {
        None
    }

    /// Takes the way of a packet.
    fn take_trace(&mut self, _trace: PacketTrace) {}

    /// Runs the engine's timers; a driver may measure how long they take.
    #[inline]
    fn run_timers(&mut self, timers: impl FnOnce(&mut Self::Pool)) {
        timers(self.pool());
    }
}

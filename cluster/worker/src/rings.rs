//! Ports in ordinary memory: for the simulator, benchmarks and tests.

use std::collections::VecDeque;
use std::time::Duration;

use weir_engine::{BURST_MAX, OUTPUT_MAX, Side};
use weir_wire::frame::Pool;

use crate::ports::Ports;

/// Frames that a ring holds; further ones are lost, as in a NIC.
const RING_MAX: usize = 512;

/// Two rings of received frames, and the frames that were sent, until the driver takes them.
#[derive(Debug)]
pub struct Rings<P: Pool> {
    pub pool: P,
    /// By side.
    pub sent: [Vec<P::Frame>; 2],
    /// Time of the turn; it does not advance during a turn.
    pub now: Duration,
    received: [VecDeque<P::Frame>; 2],
}

impl<P: Pool> Rings<P> {
    pub fn new(pool: P) -> Self {
        Self {
            pool,
            sent: [Vec::with_capacity(OUTPUT_MAX), Vec::with_capacity(OUTPUT_MAX)],
            now: Duration::ZERO,
            received: [VecDeque::with_capacity(RING_MAX), VecDeque::with_capacity(RING_MAX)],
        }
    }

    /// Adds a frame that has come to a port; it is lost if the ring is full.
    pub fn arrive(&mut self, side: Side, frame: P::Frame) {
        let ring = &mut self.received[side as usize];
        if ring.len() < RING_MAX {
            ring.push_back(frame);
        }
    }

    /// True if no frame waits to be received.
    pub fn is_empty(&self) -> bool {
        self.received.iter().all(VecDeque::is_empty)
    }
}

impl<P: Pool> Ports for Rings<P> {
    type Frame = P::Frame;
    type Pool = P;

    #[inline]
    fn pool(&mut self) -> &mut P {
        &mut self.pool
    }

    #[inline]
    fn now(&mut self) -> Duration {
        self.now
    }

    #[inline]
    fn receive(&mut self, side: Side, frames: &mut Vec<P::Frame>) -> usize {
        let ring = &mut self.received[side as usize];
        let burst = ring.len().min(BURST_MAX);
        frames.extend(ring.drain(..burst));
        burst
    }

    #[inline]
    fn send(&mut self, side: Side, frames: &mut Vec<P::Frame>) {
        self.sent[side as usize].append(frames);
    }
}

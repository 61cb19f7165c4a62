//! The worker's side of a capture: hot while a capture runs.
//!
//! Two single-producer single-consumer rings between the worker and the reader: full buffers one
//! way, empty ones back, all allocated before the capture starts.

use std::sync::Arc;
use std::time::Duration;

use rtrb::{Consumer, Producer, RingBuffer};
use weir_engine::{Counter, Direction, Side};

/// Frames between the worker and the reader.
const FRAMES: usize = 4096;

/// A copied frame.
#[derive(Debug)]
pub(crate) struct Captured {
    /// The whole frame from its Ethernet header on.
    pub bytes: Vec<u8>,
    /// When the loop turn that handled the frame began, on the node's clock.
    pub at: Duration,
    pub side: Side,
    pub direction: Direction,
}

/// The worker's end, which takes copies of frames.
#[derive(Debug)]
pub(crate) struct CapturePoint {
    full: Producer<Captured>,
    empty: Consumer<Vec<u8>>,
    /// `None`: both sides.
    side: Option<Side>,
    lost: Arc<Counter>,
}

/// The reader's end, which gives the copies out.
#[derive(Debug)]
pub(crate) struct CaptureReader {
    full: Consumer<Captured>,
    empty: Producer<Vec<u8>>,
    lost: Arc<Counter>,
}

/// Creates a capture point for one worker. `frame_max`: bytes of the largest frame to be copied
/// whole; a larger one is cut.
pub(crate) fn capture_point(side: Option<Side>, frame_max: usize) -> (CapturePoint, CaptureReader) {
    let (full_in, full_out) = RingBuffer::new(FRAMES);
    let (mut empty_in, empty_out) = RingBuffer::new(FRAMES);
    while empty_in.push(Vec::with_capacity(frame_max)).is_ok() {}
    let lost = Arc::new(Counter::default());
    let point = CapturePoint { full: full_in, empty: empty_out, side, lost: Arc::clone(&lost) };
    (point, CaptureReader { full: full_out, empty: empty_in, lost })
}

impl CapturePoint {
    /// Whether the reader has gone and the capture point can be removed.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.full.is_abandoned()
    }

    /// Copies a burst. Returns how many frames found no room.
    #[inline]
    pub(crate) fn copy<'a>(
        &mut self,
        side: Side,
        direction: Direction,
        at: Duration,
        frames: impl Iterator<Item = &'a [u8]>,
    ) -> u64 {
        if self.side.is_some_and(|only| only != side) {
            return 0;
        }
        let mut dropped = 0;
        for frame in frames {
            let Ok(mut bytes) = self.empty.pop() else {
                dropped += 1;
                continue;
            };
            let len = frame.len().min(bytes.capacity());
            bytes.clear();
            bytes.extend_from_slice(&frame[..len]);
            if self.full.push(Captured { bytes, at, side, direction }).is_err() {
                dropped += 1;
            }
        }
        if dropped > 0 {
            self.lost.add(dropped);
        }
        dropped
    }
}

impl CaptureReader {
    /// Returns the number of frames that found no room so far.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.get()
    }

    /// Returns the oldest copy, if there is one. Give its buffer back with [`Self::recycle`].
    pub(crate) fn next(&mut self) -> Option<Captured> {
        self.full.pop().ok()
    }

    /// Hands a buffer back to the worker.
    pub(crate) fn recycle(&mut self, captured: Captured) {
        // The ring has as many slots as buffers exist, so it is never full.
        let _ = self.empty.push(captured.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_cross_and_buffers_come_back() {
        let (mut point, mut reader) = capture_point(None, 64);
        for round in 0..FRAMES as u64 * 3 {
            let frame = [round as u8; 40];
            let at = Duration::from_nanos(round);
            let dropped =
                point.copy(Side::Access, Direction::Receive, at, [&frame[..]].into_iter());
            assert_eq!(dropped, 0);
            let captured = reader.next().unwrap();
            assert_eq!((captured.bytes.as_slice(), captured.at), (&frame[..], at));
            reader.recycle(captured);
        }
    }

    #[test]
    fn a_full_ring_drops_and_counts_and_large_frames_are_cut() {
        let (mut point, mut reader) = capture_point(Some(Side::Internet), 16);
        let frame = [7; 100];
        let burst = || std::iter::repeat_n(&frame[..], FRAMES + 5);
        assert_eq!(
            point.copy(Side::Access, Direction::Receive, Duration::ZERO, burst()),
            0,
            "other side"
        );
        assert_eq!(point.copy(Side::Internet, Direction::Transmit, Duration::ZERO, burst()), 5);
        assert_eq!(reader.lost(), 5);
        assert_eq!(reader.next().unwrap().bytes.len(), 16);
    }

    #[test]
    fn the_worker_sees_that_the_reader_left() {
        let (point, reader) = capture_point(None, 16);
        assert!(!point.is_closed());
        drop(reader);
        assert!(point.is_closed());
    }
}

//! The ring between a worker and the reader of a trace.

use rtrb::{Consumer, Producer, RingBuffer};
use weir_engine::{PacketTrace, TraceFilter};

/// Packets between the worker and the reader; while the ring is full, packets go their way without
/// being traced.
const PACKETS: usize = 64;

/// The worker's end.
#[derive(Debug)]
pub(crate) struct TracePoint {
    filter: TraceFilter,
    /// Packets that are still wanted.
    left: u64,
    full: Producer<PacketTrace>,
}

/// The reader's end.
#[derive(Debug)]
pub(crate) struct TraceReader(Consumer<PacketTrace>);

/// Creates both ends for one worker, which traces `count` packets at most.
pub(crate) fn trace_point(filter: TraceFilter, count: u64) -> (TracePoint, TraceReader) {
    let (full, reader) = RingBuffer::new(PACKETS);
    (TracePoint { filter, left: count, full }, TraceReader(reader))
}

impl TracePoint {
    /// Whether the reader has gone.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.full.is_abandoned()
    }

    /// Returns the filter while another packet is wanted and has room.
    pub(crate) fn filter(&self) -> Option<TraceFilter> {
        (self.left > 0 && !self.full.is_full()).then_some(self.filter)
    }

    pub(crate) fn take(&mut self, trace: PacketTrace) {
        self.left = self.left.saturating_sub(1);
        // `filter` has seen that there is room, and there is one writer.
        let _ = self.full.push(trace);
    }
}

impl TraceReader {
    /// Returns the oldest packet, if there is one.
    pub(crate) fn next(&mut self) -> Option<PacketTrace> {
        self.0.pop().ok()
    }

    /// Whether the worker has given its end up.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.is_abandoned()
    }
}

//! Packets that waited in the rings of a worker during its stall.
//!
//! A packet with a mapping is translated, like one that was late on its way. No mapping is made for
//! the others: another worker may have served the home meanwhile, and the home has sent again and
//! has a mapping there.

use weir_wire::frame::Frame;

use crate::engine::Engine;

impl<F: Frame> Engine<F> {
    /// Marks all packets received from here on as late: their misses are refused in every shard,
    /// and they do not count as traffic of a shard.
    #[cold]
    pub fn begin_late(&mut self) {
        self.duties.begin_late();
    }

    /// Ends the late packets; the state before [`begin_late`](Self::begin_late) is restored.
    #[cold]
    pub fn end_late(&mut self) {
        self.duties.end_late();
    }
}

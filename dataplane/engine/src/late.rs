//! Packets that waited in the rings of a worker that stood still.
//!
//! Whatever has a mapping is translated, as a packet that was late on its way. No mapping is made for the rest: others may
//! have served its home meanwhile, which has sent again and got a mapping there.

use weir_wire::frame::Frame;

use crate::engine::Engine;

impl<F: Frame> Engine<F> {
    /// What is received from now on is late: its misses are refused in every shard, and count as no traffic of a shard.
    #[cold]
    pub fn begin_late(&mut self) {
        self.duties.begin_late();
    }

    /// What is received from now on is not late; all is as before [`begin_late`](Self::begin_late).
    #[cold]
    pub fn end_late(&mut self) {
        self.duties.end_late();
    }
}

//! The packet-buffer seam: what the engine needs from a frame, whoever owns the memory. Two real users: DPDK mbufs and
//! [`crate::vec_frame::VecFrame`] (tests, the simulator).

pub use crate::vec_frame::{VecFrame, VecPool};

/// One packet buffer that can grow and shrink at both ends without copying its content.
pub trait Frame: Sized {
    /// The bytes of the frame, Ethernet header first.
    fn data(&self) -> &[u8];

    /// The bytes of the frame, writable.
    fn data_mut(&mut self) -> &mut [u8];

    /// Grows the frame by `n` bytes at the front. The content of the new bytes is unspecified. `false` = no headroom, frame unchanged.
    #[must_use]
    fn push(&mut self, n: usize) -> bool;

    /// Drops the first `n` bytes; `n` must not exceed the length.
    fn pull(&mut self, n: usize);

    /// Shortens the frame to `len` bytes; a longer `len` leaves it as it is.
    fn truncate(&mut self, len: usize);

    /// Cuts the frame to `len` bytes from `offset` on, which it must have: [`pull`](Self::pull) and [`truncate`](Self::truncate) in one.
    fn keep(&mut self, offset: usize, len: usize) {
        self.pull(offset);
        self.truncate(len);
    }

    /// Grows the frame by `n` bytes at the end. The content of the new bytes is unspecified. `false` = no tailroom, frame unchanged.
    #[must_use]
    fn extend(&mut self, n: usize) -> bool;

    /// Asks the processor for the cache lines of the headers, to be edited: 128 bytes from `headroom` bytes in front of the data on.
    fn prefetch(&self, headroom: usize);

    /// Whether all bytes of the packet lie in `data()`; `false` for a chain of buffers, which the engine does not take.
    fn is_contiguous(&self) -> bool;
}

/// Where new frames come from. One per thread.
pub trait Pool {
    type Frame: Frame;

    /// An empty frame with at least 128 bytes of headroom; `None` when the pool is exhausted.
    fn alloc(&mut self) -> Option<Self::Frame>;
}

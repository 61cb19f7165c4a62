//! The interface of a packet buffer: all that the engine needs from a frame, independent of the
//! memory behind it. Two implementations: DPDK mbufs and [`crate::vec_frame::VecFrame`] (tests, the
//! simulator).

pub use crate::vec_frame::{VecFrame, VecPool};

/// One packet buffer that can grow and shrink at both ends without copying its content.
pub trait Frame: Sized {
    /// Returns the bytes of the frame, Ethernet header first.
    fn data(&self) -> &[u8];

    /// Returns the bytes of the frame, writable.
    fn data_mut(&mut self) -> &mut [u8];

    /// Grows the frame by `n` bytes at the front. The content of the new bytes is unspecified.
    /// `false` = no headroom, frame unchanged.
    #[must_use]
    fn push(&mut self, n: usize) -> bool;

    /// Drops the first `n` bytes; `n` must not exceed the length.
    fn pull(&mut self, n: usize);

    /// Shortens the frame to `len` bytes; a longer `len` leaves it unchanged.
    fn truncate(&mut self, len: usize);

    /// Cuts the frame to `len` bytes from `offset` on, which it must have: [`pull`](Self::pull) and
    /// [`truncate`](Self::truncate) in one.
    fn keep(&mut self, offset: usize, len: usize) {
        self.pull(offset);
        self.truncate(len);
    }

    /// Replaces the first `pull` bytes by `push` bytes, whose content is unspecified, and keeps
    /// `len` bytes behind them: [`keep`](Self::keep) and [`push`](Self::push) in one. `false` = the
    /// frame has fewer bytes, or no headroom, and its content is unspecified.
    #[must_use]
    fn reframe(&mut self, pull: usize, push: usize, len: usize) -> bool {
        if self.data().len().checked_sub(pull).is_none_or(|rest| rest < len) {
            return false;
        }
        self.keep(pull, len);
        self.push(push)
    }

    /// Grows the frame by `n` bytes at the end. The content of the new bytes is unspecified.
    /// `false` = no tailroom, frame unchanged.
    #[must_use]
    fn extend(&mut self, n: usize) -> bool;

    /// Prefetches the cache lines of the headers for editing: 128 bytes, starting `headroom` bytes
    /// in front of the data.
    fn prefetch(&self, headroom: usize);

    /// Whether all bytes of the packet are in `data()`; `false` for a chain of buffers, which the
    /// engine does not support.
    fn is_contiguous(&self) -> bool;
}

/// Source of new frames. One per thread.
pub trait Pool {
    type Frame: Frame;

    /// Returns an empty frame with at least 128 bytes of headroom; `None` if the pool is exhausted.
    fn alloc(&mut self) -> Option<Self::Frame>;
}

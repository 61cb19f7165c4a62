//! Frames in ordinary memory: for tests, the simulator and tools. A pool recycles its buffers, so
//! that after the first round a test that counts allocations sees none from here.

use crate::frame::{Frame, Pool};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

const HEADROOM: usize = 128;
const TAILROOM: usize = 2048;
/// Buffer of a pooled frame: headroom, a 1,500-byte packet with its link header, and room to grow.
const POOLED: usize = HEADROOM + 2048 + TAILROOM;

/// A frame in a `Vec`, with room on both sides.
pub struct VecFrame {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    is_contiguous: bool,
    pool: Option<Arc<SharedBuffers>>,
}

impl VecFrame {
    /// Makes a frame that holds a copy of `bytes`, with 128 bytes of headroom and 2,048 of
    /// tailroom.
    pub fn new(bytes: &[u8]) -> VecFrame {
        let mut buffer = vec![0; HEADROOM + bytes.len() + TAILROOM];
        buffer[HEADROOM..HEADROOM + bytes.len()].copy_from_slice(bytes);
        VecFrame {
            buffer,
            start: HEADROOM,
            end: HEADROOM + bytes.len(),
            is_contiguous: true,
            pool: None,
        }
    }

    /// Makes the frame claim to be the first buffer of a chain, as a jumbo frame appears to the
    /// engine.
    pub fn into_chained(mut self) -> VecFrame {
        self.is_contiguous = false;
        self
    }

    /// Returns the bytes of the frame as a `Vec`.
    pub fn to_vec(&self) -> Vec<u8> {
        self.data().to_vec()
    }
}

impl Frame for VecFrame {
    #[inline]
    fn data(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    #[inline]
    fn data_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[self.start..self.end]
    }

    #[inline]
    fn push(&mut self, n: usize) -> bool {
        let has_room = n <= self.start;
        if has_room {
            self.start -= n;
        }
        has_room
    }

    #[inline]
    fn pull(&mut self, n: usize) {
        assert!(n <= self.end - self.start, "pull of more bytes than the frame has");
        self.start += n;
    }

    #[inline]
    fn truncate(&mut self, len: usize) {
        self.end = self.end.min(self.start.saturating_add(len));
    }

    #[inline]
    fn extend(&mut self, n: usize) -> bool {
        let has_room = n <= self.buffer.len() - self.end;
        if has_room {
            self.end += n;
        }
        has_room
    }

    /// Does nothing: a test has no need to hide memory latency.
    #[inline]
    fn prefetch(&self, _headroom: usize) {}

    #[inline]
    fn is_contiguous(&self) -> bool {
        self.is_contiguous
    }
}

impl Clone for VecFrame {
    /// Makes a copy that belongs to no pool.
    fn clone(&self) -> VecFrame {
        let mut copy = VecFrame::new(self.data());
        copy.is_contiguous = self.is_contiguous;
        copy
    }
}

impl PartialEq for VecFrame {
    fn eq(&self, other: &VecFrame) -> bool {
        self.data() == other.data()
    }
}

impl Eq for VecFrame {}

impl fmt::Debug for VecFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "VecFrame({} bytes: {})",
            self.data().len(),
            crate::describe::describe(self.data())
        )
    }
}

impl Drop for VecFrame {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.take() {
            pool.give_back(core::mem::take(&mut self.buffer));
        }
    }
}

/// A pool of [`VecFrame`]s that counts its live frames, so that a test can find a leak, and that
/// can be exhausted. A clone is a second handle to the same pool.
#[derive(Clone, Debug, Default)]
pub struct VecPool {
    limit: Option<usize>,
    shared: Arc<SharedBuffers>,
}

impl VecPool {
    /// Makes a pool without a limit.
    pub fn new() -> VecPool {
        VecPool::default()
    }

    /// Makes a pool that has at most `limit` frames alive.
    pub fn with_limit(limit: usize) -> VecPool {
        VecPool { limit: Some(limit), ..VecPool::default() }
    }

    /// Returns the number of frames allocated here and not dropped yet.
    pub fn alive(&self) -> usize {
        self.shared.alive.load(Ordering::Relaxed)
    }

    /// Returns a frame of this pool that holds a copy of `bytes`; `None` if the pool is exhausted.
    ///
    /// # Panics
    /// Panics if `bytes` is longer than a pooled buffer (4,096 bytes after the headroom).
    pub fn frame(&mut self, bytes: &[u8]) -> Option<VecFrame> {
        let mut frame = self.alloc()?;
        assert!(frame.extend(bytes.len()), "longer than a pooled buffer");
        frame.data_mut().copy_from_slice(bytes);
        Some(frame)
    }
}

impl Pool for VecPool {
    type Frame = VecFrame;

    fn alloc(&mut self) -> Option<VecFrame> {
        let alive = self.shared.alive.load(Ordering::Relaxed);
        if self.limit.is_some_and(|limit| alive >= limit) {
            return None;
        }
        let buffer = self.shared.take();
        Some(VecFrame {
            buffer,
            start: HEADROOM,
            end: HEADROOM,
            is_contiguous: true,
            pool: Some(Arc::clone(&self.shared)),
        })
    }
}

#[derive(Debug, Default)]
struct SharedBuffers {
    alive: AtomicUsize,
    spare: Mutex<Vec<Vec<u8>>>,
}

impl SharedBuffers {
    fn take(&self) -> Vec<u8> {
        self.alive.fetch_add(1, Ordering::Relaxed);
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        spare.pop().unwrap_or_else(|| vec![0; POOLED])
    }

    fn give_back(&self, buffer: Vec<u8>) {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner).push(buffer);
        self.alive.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_and_shrinks_at_both_ends() {
        let mut frame = VecFrame::new(b"payload");
        assert!(frame.push(4));
        frame.data_mut()[..4].copy_from_slice(b"head");
        assert!(frame.extend(4));
        frame.data_mut()[11..].copy_from_slice(b"tail");
        assert_eq!(frame.data(), b"headpayloadtail");
        frame.pull(4);
        frame.truncate(7);
        assert_eq!(frame.data(), b"payload");
        frame.truncate(100);
        assert_eq!(frame.data(), b"payload");
    }

    #[test]
    fn reframe_replaces_the_front() {
        let mut frame = VecFrame::new(b"link tunnel packet trailer");
        assert!(frame.reframe(12, 5, 6));
        assert_eq!((&frame.data()[5..], frame.data().len()), (&b"packet"[..], 11));
        assert!(!frame.reframe(12, 0, 0) && !frame.reframe(5, 0, 7));
        assert!(!frame.reframe(0, HEADROOM + 100, 1));
    }

    #[test]
    fn frame_without_room_refuses_to_grow_and_stays_unchanged() {
        let mut frame = VecFrame::new(b"payload");
        assert!(!frame.push(HEADROOM + 1) && !frame.extend(TAILROOM + 1));
        assert_eq!(frame.data(), b"payload");
        assert!(frame.push(HEADROOM) && frame.extend(TAILROOM));
        assert!(!frame.push(1) && !frame.extend(1));
    }

    #[test]
    fn a_pool_counts_its_frames_and_can_be_exhausted() {
        let mut pool = VecPool::with_limit(2);
        let first = pool.alloc().unwrap();
        let second = pool.frame(b"x").unwrap();
        assert!(pool.alloc().is_none());
        assert_eq!((pool.alive(), second.data()), (2, &b"x"[..]));
        drop(first);
        let copy = second.clone();
        assert_eq!(pool.alive(), 1, "a copy belongs to no pool");
        drop((second, copy));
        assert_eq!(pool.alive(), 0);
    }

    #[test]
    fn a_recycled_frame_is_empty_with_headroom() {
        let mut pool = VecPool::new();
        drop(pool.frame(&[7; 100]));
        let mut frame = pool.alloc().unwrap();
        assert!(frame.data().is_empty() && frame.is_contiguous());
        assert!(frame.push(HEADROOM));
    }

    #[test]
    fn a_chained_frame_says_so() {
        assert!(!VecFrame::new(b"x").into_chained().is_contiguous());
    }
}

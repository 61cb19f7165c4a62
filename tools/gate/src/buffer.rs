//! A packet buffer as lean as DPDK's: one pointer to the buffer, which records where its data
//! begins and how long it is. It has bytes for every value of these two, so that, as with an mbuf,
//! no test stands between a packet and its reader.

use weir_wire::frame::{Frame, Pool};
use zerocopy::FromZeros;

const HEADROOM: usize = 128;
/// End of what a frame may use.
const END: usize = 2048;
/// Largest value of `start` plus largest value of `len`: [`END`] bounds both, but the compiler does
/// not see that.
const BYTES: usize = 2 * u16::MAX as usize;

#[derive(Debug, FromZeros)]
struct Buffer {
    start: u16,
    len: u16,
    bytes: [u8; BYTES],
}

/// A frame: one pointer wide.
#[derive(Debug)]
pub struct BufferFrame(Box<Buffer>);

impl BufferFrame {
    /// Makes a frame with these bytes, at most 1,920.
    pub(crate) fn new(bytes: &[u8]) -> Self {
        let mut frame = Self::empty();
        assert!(frame.extend(bytes.len()), "{} bytes fit a buffer", bytes.len());
        frame.data_mut().copy_from_slice(bytes);
        frame
    }

    fn empty() -> Self {
        // The kernel gives memory only for the pages that are used.
        let mut buffer = Buffer::new_box_zeroed().expect("there is memory for a buffer");
        buffer.start = HEADROOM as u16;
        Self(buffer)
    }
}

impl Frame for BufferFrame {
    #[inline]
    fn data(&self) -> &[u8] {
        let Buffer { start, len, bytes } = &*self.0;
        &bytes[usize::from(*start)..][..usize::from(*len)]
    }

    #[inline]
    fn data_mut(&mut self) -> &mut [u8] {
        let Buffer { start, len, bytes } = &mut *self.0;
        &mut bytes[usize::from(*start)..][..usize::from(*len)]
    }

    #[inline]
    fn push(&mut self, n: usize) -> bool {
        let has_room = n <= usize::from(self.0.start);
        if has_room {
            self.0.start -= n as u16;
            self.0.len += n as u16;
        }
        has_room
    }

    #[inline]
    fn pull(&mut self, n: usize) {
        let n = n.min(usize::from(self.0.len)) as u16;
        self.0.start += n;
        self.0.len -= n;
    }

    #[inline]
    fn truncate(&mut self, len: usize) {
        self.0.len = self.0.len.min(len.min(END) as u16);
    }

    #[inline]
    fn keep(&mut self, offset: usize, len: usize) {
        let had = usize::from(self.0.len);
        let offset = offset.min(had);
        self.0.start += offset as u16;
        self.0.len = len.min(had - offset) as u16;
    }

    #[inline]
    fn reframe(&mut self, pull: usize, push: usize, len: usize) -> bool {
        let (start, had) = (usize::from(self.0.start), usize::from(self.0.len));
        let Some(rest) = had.checked_sub(pull) else { return false };
        if rest < len {
            return false;
        }
        let Some(start) = (start + pull).checked_sub(push) else { return false };
        self.0.start = start as u16;
        self.0.len = (push + len) as u16;
        true
    }

    #[inline]
    fn extend(&mut self, n: usize) -> bool {
        let has_room = n + usize::from(self.0.start) + usize::from(self.0.len) <= END;
        if has_room {
            self.0.len += n as u16;
        }
        has_room
    }

    #[inline]
    fn prefetch(&self, _headroom: usize) {}

    #[inline]
    fn is_contiguous(&self) -> bool {
        true
    }
}

/// A pool that makes frames without a limit.
#[derive(Debug)]
pub struct Buffers;

impl Pool for Buffers {
    type Frame = BufferFrame;

    fn alloc(&mut self) -> Option<BufferFrame> {
        Some(BufferFrame::empty())
    }
}

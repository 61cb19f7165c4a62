//! A packet buffer as lean as DPDK's: one pointer that knows where its data begins and how long it
//! is.

use weir_wire::frame::{Frame, Pool};

const HEADROOM: usize = 128;
const BYTES: usize = 2048;

#[derive(Debug)]
#[repr(align(64))]
struct Buffer {
    start: u16,
    len: u16,
    bytes: [u8; BYTES],
}

#[derive(Debug)]
pub(crate) struct BufferFrame(Box<Buffer>);

impl BufferFrame {
    fn empty() -> Self {
        Self(Box::new(Buffer { start: HEADROOM as u16, len: 0, bytes: [0; BYTES] }))
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
        self.0.len = self.0.len.min(len.min(BYTES) as u16);
    }

    #[inline]
    fn keep(&mut self, offset: usize, len: usize) {
        let had = usize::from(self.0.len);
        let offset = offset.min(had);
        self.0.start += offset as u16;
        self.0.len = len.min(had - offset) as u16;
    }

    #[inline]
    fn extend(&mut self, n: usize) -> bool {
        let has_room = n <= BYTES - usize::from(self.0.start) - usize::from(self.0.len);
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

/// A pool whose returned frames are used again.
#[derive(Debug, Default)]
pub(crate) struct Buffers(Vec<BufferFrame>);

impl Buffers {
    pub(crate) fn give_back(&mut self, frame: BufferFrame) {
        self.0.push(frame);
    }

    pub(crate) fn filled(&mut self, bytes: &[u8]) -> BufferFrame {
        let mut frame = self.alloc().expect("the pool has no limit");
        assert!(frame.extend(bytes.len()), "{} bytes fit a buffer", bytes.len());
        frame.data_mut().copy_from_slice(bytes);
        frame
    }
}

impl Pool for Buffers {
    type Frame = BufferFrame;

    fn alloc(&mut self) -> Option<BufferFrame> {
        let Some(mut frame) = self.0.pop() else { return Some(BufferFrame::empty()) };
        (frame.0.start, frame.0.len) = (HEADROOM as u16, 0);
        Some(frame)
    }
}

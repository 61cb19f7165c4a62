//! A frame of fixed size and a pool that recycles: the behaviour of mbufs, without DPDK.

use weir_wire::frame::{Frame, Pool};

/// A frame of fixed size.
#[derive(Debug)]
pub struct FixedFrame {
    bytes: Box<[u8; 4096]>,
    from: usize,
    to: usize,
}

const HEADROOM: usize = 128;

impl Frame for FixedFrame {
    fn data(&self) -> &[u8] {
        &self.bytes[self.from..self.to]
    }
    fn data_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.from..self.to]
    }
    fn push(&mut self, n: usize) -> bool {
        let has_room = self.from >= n;
        self.from -= if has_room { n } else { 0 };
        has_room
    }
    fn pull(&mut self, n: usize) {
        self.from += n;
    }
    fn truncate(&mut self, len: usize) {
        self.to = self.to.min(self.from + len);
    }
    fn extend(&mut self, n: usize) -> bool {
        let has_room = self.bytes.len() - self.to >= n;
        self.to += if has_room { n } else { 0 };
        has_room
    }
    fn prefetch(&self, _headroom: usize) {}

    fn is_contiguous(&self) -> bool {
        true
    }
}

/// Holds frames that are made before the measurement and thrown away after it.
pub struct FixedPool(Vec<FixedFrame>);

impl FixedPool {
    pub fn new() -> Self {
        let frame = || FixedFrame { bytes: Box::new([0; 4096]), from: HEADROOM, to: HEADROOM };
        Self((0..4096).map(|_| frame()).collect())
    }

    pub fn filled(&mut self, bytes: &[u8]) -> FixedFrame {
        let mut frame = self.alloc().expect("enough frames");
        assert!(frame.extend(bytes.len()));
        frame.data_mut().copy_from_slice(bytes);
        frame
    }
}

impl Pool for FixedPool {
    type Frame = FixedFrame;
    fn alloc(&mut self) -> Option<FixedFrame> {
        self.0.pop()
    }
}

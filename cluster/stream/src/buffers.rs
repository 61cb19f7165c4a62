//! A pool of datagram bodies: those that wait for an acknowledgement, and those that came before a
//! missing one.

use crate::datagram::BODY_MAX;

/// A buffer that was taken from the pool. It goes back by [`Buffers::give`], once.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Buffer(u32);

#[derive(Debug)]
pub(crate) struct Buffers {
    bytes: Box<[[u8; BODY_MAX]]>,
    free: Vec<u32>,
}

impl Buffers {
    pub(crate) fn new(count: u32) -> Self {
        let bytes = vec![[0; BODY_MAX]; count as usize].into_boxed_slice();
        Self { bytes, free: (0..count).rev().collect() }
    }

    pub(crate) fn take(&mut self) -> Option<Buffer> {
        self.free.pop().map(Buffer)
    }

    pub(crate) fn give(&mut self, buffer: Buffer) {
        debug_assert!(self.free.len() < self.bytes.len(), "a buffer is given back once");
        self.free.push(buffer.0);
    }

    #[inline(always)]
    pub(crate) fn get(&self, buffer: &Buffer) -> &[u8; BODY_MAX] {
        &self.bytes[buffer.0 as usize]
    }

    #[inline(always)]
    pub(crate) fn get_mut(&mut self, buffer: &Buffer) -> &mut [u8; BODY_MAX] {
        &mut self.bytes[buffer.0 as usize]
    }

    pub(crate) fn available(&self) -> usize {
        self.free.len()
    }

    pub(crate) fn total(&self) -> usize {
        self.bytes.len()
    }
}

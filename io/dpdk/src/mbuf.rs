//! Hot: a packet buffer owned by Rust and allocated by DPDK.
//!
//! Reading and editing a packet makes no call into C: the layout of an mbuf's first fields is
//! asserted in the shim. Every function here works on the first segment; for a chain (a jumbo frame
//! in small buffers) `is_contiguous` returns false.

use std::fmt;
use std::mem::size_of;
use std::ptr::NonNull;
use std::slice;

use weir_dpdk_sys as sys;
use weir_wire::frame::Frame;

use crate::prefetch;
/// RTE_PKTMBUF_HEADROOM as Debian and upstream build DPDK; any value that fits the buffer would
/// work.
const HEADROOM: u16 = 128;

/// One DPDK packet buffer. Dropping it returns it to its pool; sending it moves it to the driver.
///
/// Exactly one pointer wide, so that a `Vec<Mbuf>` is the array that DPDK's bursts take.
#[repr(transparent)]
pub struct Mbuf(NonNull<sys::weir_mbuf>);

const _: () = assert!(size_of::<Mbuf>() == size_of::<*mut sys::weir_mbuf>());
const _: () = assert!(size_of::<Option<Mbuf>>() == size_of::<*mut sys::weir_mbuf>());

// JUSTIFICATION: packets move from the thread that received them to others (capture, tests).
// SAFETY: an Mbuf is the only owner of its buffer, and DPDK pools take buffers back from any
// thread.
unsafe impl Send for Mbuf {}

impl Mbuf {
    /// Takes ownership of a buffer; `None` for a null pointer.
    ///
    /// # Safety
    /// The pointer is null or a buffer that the caller owns, and is not used again.
    #[inline]
    pub(crate) unsafe fn from_raw(pointer: *mut sys::weir_mbuf) -> Option<Mbuf> {
        NonNull::new(pointer).map(Mbuf)
    }

    /// Frees all frames in one call and leaves the vector empty, with its capacity.
    pub fn free_all(frames: &mut Vec<Mbuf>) {
        let count = frames.len() as u32;
        let first = frames.as_mut_ptr().cast::<*mut sys::weir_mbuf>();
        // JUSTIFICATION: the frames are freed below, in one call for all.
        // SAFETY: 0 is within the capacity. From here on the vector no longer owns the frames.
        unsafe { frames.set_len(0) };
        // JUSTIFICATION: one call per burst instead of one per frame.
        // SAFETY: `first` points to `count` pointers to buffers owned by this function, because
        // Mbuf is transparent.
        unsafe { sys::weir_mbuf_free_bulk(first, count) }
    }

    /// Empties this buffer and gives it `len` bytes behind the default headroom, with unspecified
    /// content. Returns `None` and changes nothing if it is a chain or has no room for them.
    #[inline]
    pub fn reset(&mut self, len: u16) -> Option<&mut [u8]> {
        let view = self.view_mut();
        if view.nb_segs != 1 || u32::from(HEADROOM) + u32::from(len) > u32::from(view.buf_len) {
            return None;
        }
        view.data_off = HEADROOM;
        view.data_len = len;
        view.pkt_len = u32::from(len);
        Some(self.data_mut())
    }

    #[inline]
    fn view(&self) -> &sys::weir_mbuf {
        // JUSTIFICATION: a call into C for every read of a packet would cost more than the read.
        // SAFETY: the pointer is valid while the mbuf is owned; no other code writes to it; the
        // shim asserts the layout.
        unsafe { self.0.as_ref() }
    }

    #[inline]
    fn view_mut(&mut self) -> &mut sys::weir_mbuf {
        // JUSTIFICATION: as in `view`.
        // SAFETY: as in `view`, and `&mut self` makes the access exclusive.
        unsafe { self.0.as_mut() }
    }

    /// Changes the length of the first segment, and of the packet by as much.
    #[inline]
    fn set_len(&mut self, len: u16) {
        let view = self.view_mut();
        view.pkt_len = view.pkt_len - u32::from(view.data_len) + u32::from(len);
        view.data_len = len;
    }

    /// Returns the address of the first byte of the data.
    #[inline]
    fn first(&self) -> *mut u8 {
        let view = self.view();
        view.buf_addr.wrapping_add(usize::from(view.data_off))
    }
}

impl Frame for Mbuf {
    #[inline]
    fn data(&self) -> &[u8] {
        let len = usize::from(self.view().data_len);
        // JUSTIFICATION: packet bytes are read in place.
        // SAFETY: DPDK keeps data_off + data_len <= buf_len, and so does every function here; the
        // buffer is mapped and initialised for the life of the pool, and lives as long as `self`.
        unsafe { slice::from_raw_parts(self.first(), len) }
    }

    #[inline]
    fn data_mut(&mut self) -> &mut [u8] {
        let len = usize::from(self.view().data_len);
        // JUSTIFICATION: packet bytes are edited in place.
        // SAFETY: as in `data`; `&mut self` makes the access exclusive, and no buffer of this crate
        // is shared (no clones).
        unsafe { slice::from_raw_parts_mut(self.first(), len) }
    }

    #[inline]
    fn push(&mut self, n: usize) -> bool {
        let view = self.view_mut();
        if n > usize::from(view.data_off) {
            return false;
        }
        // n <= data_off, a u16; data_off + data_len <= buf_len, a u16.
        view.data_off -= n as u16;
        let len = view.data_len + n as u16;
        self.set_len(len);
        true
    }

    #[inline]
    fn pull(&mut self, n: usize) {
        let view = self.view_mut();
        let n = n.min(usize::from(view.data_len)) as u16;
        view.data_off += n;
        let len = view.data_len - n;
        self.set_len(len);
    }

    #[inline]
    fn truncate(&mut self, len: usize) {
        if len < usize::from(self.view().data_len) {
            self.set_len(len as u16);
        }
    }

    #[inline]
    fn keep(&mut self, offset: usize, len: usize) {
        let had = usize::from(self.view().data_len);
        let offset = offset.min(had);
        let view = self.view_mut();
        // Neither exceeds data_len, a u16.
        view.data_off += offset as u16;
        let len = len.min(had - offset) as u16;
        self.set_len(len);
    }

    #[inline]
    fn reframe(&mut self, pull: usize, push: usize, len: usize) -> bool {
        let view = self.view_mut();
        let (offset, had) = (usize::from(view.data_off), usize::from(view.data_len));
        let has_bytes = had.checked_sub(pull).is_some_and(|rest| len <= rest);
        if !has_bytes || offset + pull < push {
            return false;
        }
        // data_off + data_len <= buf_len, a u16: what is kept ends before that, and what is new
        // begins in the buffer.
        view.data_off = (offset + pull - push) as u16;
        self.set_len((push + len) as u16);
        true
    }

    #[inline]
    fn extend(&mut self, n: usize) -> bool {
        let view = self.view();
        let used = usize::from(view.data_off) + usize::from(view.data_len);
        if view.nb_segs != 1 || n > usize::from(view.buf_len).saturating_sub(used) {
            return false;
        }
        let len = view.data_len + n as u16;
        self.set_len(len);
        true
    }

    #[inline]
    fn prefetch(&self, headroom: usize) {
        let first = self.first().wrapping_sub(headroom);
        prefetch::line_to_write(first);
        prefetch::line_to_write(first.wrapping_add(64));
    }

    #[inline]
    fn is_contiguous(&self) -> bool {
        self.view().nb_segs == 1
    }
}

impl Drop for Mbuf {
    fn drop(&mut self) {
        // JUSTIFICATION: only DPDK can put a buffer back into its pool.
        // SAFETY: the buffer is owned here, and pools are never freed.
        unsafe { sys::weir_mbuf_free(self.0.as_ptr()) }
    }
}

impl fmt::Debug for Mbuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let view = self.view();
        f.debug_struct("Mbuf")
            .field("len", &view.pkt_len)
            .field("headroom", &view.data_off)
            .field("segments", &view.nb_segs)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::mem::ManuallyDrop;

    use super::*;

    /// Runs on a buffer of this test, which belongs to no pool and so must not be dropped as an
    /// Mbuf.
    fn with_buffer(check: impl FnOnce(&mut Mbuf)) {
        let mut bytes = [0u8; 512];
        let mut view = sys::weir_mbuf {
            buf_addr: bytes.as_mut_ptr(),
            buf_len: 512,
            data_off: 128,
            nb_segs: 1,
            ..Default::default()
        };
        check(&mut ManuallyDrop::new(Mbuf(NonNull::from(&mut view))));
    }

    #[test]
    fn grows_and_shrinks_at_both_ends() {
        with_buffer(|mbuf| {
            assert!(mbuf.extend(100));
            mbuf.data_mut().fill(7);
            assert!(mbuf.push(28));
            assert_eq!(mbuf.data().len(), 128);
            mbuf.pull(28);
            assert_eq!(mbuf.data(), [7; 100]);
            mbuf.truncate(40);
            assert_eq!((mbuf.data().len(), mbuf.view().pkt_len), (40, 40));
        });
    }

    #[test]
    fn keep_cuts_a_part_and_never_beyond_the_data() {
        with_buffer(|mbuf| {
            assert!(mbuf.extend(100));
            mbuf.data_mut()[40] = 7;
            mbuf.keep(40, 20);
            assert_eq!((mbuf.data().len(), mbuf.data()[0], mbuf.view().pkt_len), (20, 7, 20));
            mbuf.keep(15, 50);
            assert_eq!(mbuf.data().len(), 5);
            mbuf.keep(9, 1);
            assert_eq!((mbuf.data().len(), mbuf.view().pkt_len), (0, 0));
        });
    }

    #[test]
    fn reframe_replaces_the_front_within_the_buffer() {
        with_buffer(|mbuf| {
            assert!(mbuf.extend(100));
            mbuf.data_mut()[38] = 7;
            assert!(mbuf.reframe(38, 14, 20));
            assert_eq!((mbuf.data().len(), mbuf.data()[14], mbuf.view().pkt_len), (34, 7, 34));
            assert_eq!(mbuf.view().data_off, 128 + 24);
            for (pull, push, len) in [(35, 0, 0), (14, 0, 21), (usize::MAX, 0, 1), (0, 153, 0)] {
                assert!(!mbuf.reframe(pull, push, len), "{pull} {push} {len}");
            }
            assert!(mbuf.reframe(0, 152, 34));
            assert_eq!((mbuf.view().data_off, mbuf.view().pkt_len), (0, 186));
        });
    }

    #[test]
    fn push_and_extend_beyond_the_buffer_are_refused() {
        with_buffer(|mbuf| {
            assert!(!mbuf.push(129));
            assert!(mbuf.push(128));
            assert!(!mbuf.push(1));
            assert!(!mbuf.extend(385));
            assert!(mbuf.extend(384));
            assert!(!mbuf.extend(1));
            assert_eq!(mbuf.data().len(), 512);
        });
    }

    #[test]
    fn a_reset_buffer_has_the_length_asked_for() {
        with_buffer(|mbuf| {
            assert!(mbuf.extend(100) && mbuf.push(28));
            assert_eq!(mbuf.reset(60).map(|bytes| bytes.len()), Some(60));
            assert_eq!((mbuf.view().pkt_len, mbuf.view().data_off), (60, 128));
            assert!(mbuf.reset(385).is_none());
            assert_eq!(mbuf.data().len(), 60);
            mbuf.view_mut().nb_segs = 2;
            assert!(mbuf.reset(60).is_none());
        });
    }

    #[test]
    fn a_longer_truncate_changes_nothing() {
        with_buffer(|mbuf| {
            assert!(mbuf.extend(10));
            mbuf.truncate(11);
            assert_eq!(mbuf.data().len(), 10);
        });
    }

    #[test]
    fn a_chain_is_not_contiguous_and_does_not_grow_at_the_end() {
        with_buffer(|mbuf| {
            assert!(mbuf.extend(10));
            mbuf.view_mut().nb_segs = 2;
            mbuf.view_mut().pkt_len = 300;
            assert!(!mbuf.is_contiguous());
            assert!(!mbuf.extend(1));
            mbuf.pull(4);
            assert_eq!(mbuf.view().pkt_len, 296);
        });
    }
}

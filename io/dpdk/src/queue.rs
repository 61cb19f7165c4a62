//! Hot: the two queues of a port, one burst per call.

use std::sync::Arc;

use weir_dpdk_sys as sys;

use crate::mbuf::Mbuf;
use crate::port::OpenPort;

/// Calls without any progress before the rest of a burst is dropped: a full ring drains within a
/// few, a dead peer's never does.
const TX_ATTEMPTS_MAX: u32 = 16;

/// The receive queue of a port. One thread polls it; it can be moved to that thread.
#[derive(Debug)]
pub struct RxQueue {
    port: Arc<OpenPort>,
}

/// The transmit queue of a port. One thread fills it; it can be moved to that thread.
#[derive(Debug)]
pub struct TxQueue {
    port: Arc<OpenPort>,
    dropped: u64,
}

impl RxQueue {
    pub(crate) fn new(port: Arc<OpenPort>) -> RxQueue {
        RxQueue { port }
    }

    /// Appends up to `max` received frames and returns their number. Allocates only if the vector
    /// has no room for `max` more: a vector that is drained between bursts never grows.
    #[inline]
    pub fn burst(&mut self, frames: &mut Vec<Mbuf>, max: usize) -> usize {
        frames.reserve(max);
        let room = frames.spare_capacity_mut();
        let max = max.min(room.len()).min(usize::from(u16::MAX)) as u16;
        let first = room.as_mut_ptr().cast::<*mut sys::weir_mbuf>();
        // JUSTIFICATION: this is the one call per burst into DPDK.
        // SAFETY: `first` has room for `max` pointers. The port is open and started while
        // `self.port` lives, and `&mut self` makes this the only poll of its queue.
        let received = usize::from(unsafe { sys::weir_rx_burst(self.port.id(), first, max) });
        let len = frames.len() + received;
        // JUSTIFICATION: the frames were written in place, without a copy.
        // SAFETY: DPDK wrote `received` <= max non-null pointers behind the old end, and the
        // buffers are owned here.
        unsafe { frames.set_len(len) };
        received
    }
}

impl TxQueue {
    pub(crate) fn new(port: Arc<OpenPort>) -> TxQueue {
        TxQueue { port, dropped: 0 }
    }

    /// Sends all frames and leaves the vector empty, with its capacity. Returns how many the device
    /// took; after a bounded number of attempts the rest are freed and counted in
    /// [`TxQueue::dropped`].
    #[inline]
    pub fn burst(&mut self, frames: &mut Vec<Mbuf>) -> usize {
        let total = frames.len();
        let first = frames.as_mut_ptr().cast::<*mut sys::weir_mbuf>();
        // JUSTIFICATION: ownership moves to the device below, in place.
        // SAFETY: 0 is within the capacity. From here on the vector no longer owns the frames; each
        // is sent or freed.
        unsafe { frames.set_len(0) };
        let mut sent = 0;
        let mut idle_attempts = 0;
        while sent < total && idle_attempts < TX_ATTEMPTS_MAX {
            let count = (total - sent).min(usize::from(u16::MAX)) as u16;
            // JUSTIFICATION: this is the one call per burst into DPDK.
            // SAFETY: pointers `sent..total` behind `first` are frames owned here. The port is open
            // and started while `self.port` lives, and `&mut self` makes this the only sender on
            // its queue.
            let taken = usize::from(unsafe {
                sys::weir_tx_burst(self.port.id(), first.wrapping_add(sent), count)
            });
            sent += taken;
            idle_attempts = if taken == 0 { idle_attempts + 1 } else { 0 };
        }
        if sent < total {
            self.dropped += (total - sent) as u64;
            // JUSTIFICATION: the device did not take them.
            // SAFETY: the pointers from `sent` on are still owned here; the vector no longer refers
            // to them.
            unsafe { sys::weir_mbuf_free_bulk(first.wrapping_add(sent), (total - sent) as u32) };
        }
        sent
    }

    /// Offers all frames to the device once and keeps those it does not take, in order. Returns how
    /// many it took.
    #[inline]
    pub fn offer(&mut self, frames: &mut Vec<Mbuf>) -> usize {
        let total = frames.len();
        let count = total.min(usize::from(u16::MAX)) as u16;
        let first = frames.as_mut_ptr().cast::<*mut sys::weir_mbuf>();
        // JUSTIFICATION: ownership of some frames moves to the device below, in place.
        // SAFETY: 0 is within the capacity. From here on the vector owns no frame, until the rest
        // is returned to it.
        unsafe { frames.set_len(0) };
        // JUSTIFICATION: this is the one call per burst into DPDK.
        // SAFETY: `count` pointers behind `first` are frames owned here. The port is open and
        // started while `self.port` lives, and `&mut self` makes this the only sender on its queue.
        let taken = usize::from(unsafe { sys::weir_tx_burst(self.port.id(), first, count) });
        if taken > 0 && taken < total {
            // JUSTIFICATION: the rest moves to the front without touching what moved away.
            // SAFETY: both ranges are within the old length; pointers may be copied over pointers
            // to frames that have moved away.
            unsafe { std::ptr::copy(first.wrapping_add(taken), first, total - taken) };
        }
        // JUSTIFICATION: the frames not taken are still owned here.
        // SAFETY: the first `total - taken` pointers are frames that the device did not take.
        unsafe { frames.set_len(total - taken) };
        taken
    }

    /// Returns the number of frames freed because the device did not take them.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

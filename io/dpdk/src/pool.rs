//! Pools of packet buffers.

use std::ffi::CString;
use std::ptr::NonNull;

use weir_dpdk_sys as sys;
use weir_wire::frame::Pool;

use crate::driver_log;
use crate::eal;
use crate::error::{DpdkError, errno_text};
use crate::mbuf::Mbuf;

/// DPDK's mbuf header and the pool's bookkeeping for each buffer, bytes.
const OVERHEAD_BYTES: usize = 192;
/// The headroom that DPDK leaves at the front of each buffer, and what AF_XDP takes in addition.
const HEADROOM_BYTES: usize = 128;
const XDP_HEADROOM_BYTES: usize = 256;
/// Ethernet header, one VLAN tag, frame check sequence.
const LINK_BYTES: usize = 14 + 4 + 4;

/// A handle to a pool of mbufs. Clones refer to the same pool; a thread allocates through its own
/// clone.
///
/// A pool is never freed: an [`Mbuf`] is one pointer and carries no reference to its pool.
#[derive(Debug, Clone)]
pub struct MbufPool {
    pool: NonNull<sys::weir_pool>,
    data_room: u16,
}

// JUSTIFICATION: each worker gets a clone of the handle.
// SAFETY: DPDK pools are made for concurrent use; caches are per thread and found by DPDK itself.
unsafe impl Send for MbufPool {}
// JUSTIFICATION: see above; a shared handle only reads its pointer.
// SAFETY: see above.
unsafe impl Sync for MbufPool {}

impl MbufPool {
    /// Makes a pool of `count` buffers on NUMA node `socket` (-1 = any). `data_room` is the size of
    /// a buffer in bytes, headroom included: see [`MbufPool::data_room_for`]. The name must be
    /// unique in the process and shorter than 26 bytes. The EAL must have started.
    pub fn new(name: &str, count: u32, data_room: u16, socket: i32) -> Result<MbufPool, DpdkError> {
        let c_name = CString::new(name).unwrap_or_default();
        let log = driver_log::start();
        let mut code = 0;
        // JUSTIFICATION: only DPDK can make a pool that its drivers use.
        // SAFETY: the name and the error code's variable live during the call; DPDK checks every
        // other value.
        let pool = unsafe {
            sys::weir_pool_create(c_name.as_ptr(), count, data_room, socket, &raw mut code)
        };
        match NonNull::new(pool) {
            Some(pool) => Ok(MbufPool { pool, data_room }),
            None => Err(creation_error(name, count, data_room, code, log.cause())),
        }
    }

    /// Returns the `data_room` that holds any frame of this MTU on every kind of device, in bytes.
    pub fn data_room_for(mtu: u16) -> u16 {
        let bytes = HEADROOM_BYTES + XDP_HEADROOM_BYTES + LINK_BYTES + usize::from(mtu);
        u16::try_from(bytes.max(2048 + HEADROOM_BYTES).next_multiple_of(64)).unwrap_or(u16::MAX)
    }

    /// Returns the memory that a pool takes, in bytes.
    pub fn bytes(count: u32, data_room: u16) -> usize {
        count as usize * (usize::from(data_room) + OVERHEAD_BYTES)
    }

    /// Returns the size of each buffer with the headroom, in bytes.
    pub fn data_room(&self) -> u16 {
        self.data_room
    }

    /// Returns the number of buffers that are not in the pool: in device rings, in queues, held by
    /// a thread. Walks all caches: not for the hot path.
    pub fn in_use(&self) -> u32 {
        // JUSTIFICATION: only DPDK knows its caches.
        // SAFETY: the pool is never freed.
        unsafe { sys::weir_pool_in_use(self.pool.as_ptr()) }
    }

    pub(crate) fn as_ptr(&self) -> *mut sys::weir_pool {
        self.pool.as_ptr()
    }
}

impl Pool for MbufPool {
    type Frame = Mbuf;

    #[inline]
    fn alloc(&mut self) -> Option<Mbuf> {
        // JUSTIFICATION: only DPDK can take a buffer out of its pool.
        // SAFETY: the pool is never freed.
        let buffer = unsafe { sys::weir_mbuf_alloc(self.pool.as_ptr()) };
        // JUSTIFICATION: ownership comes from DPDK.
        // SAFETY: a buffer just allocated, if any, has no other owner.
        unsafe { Mbuf::from_raw(buffer) }
    }
}

fn creation_error(
    name: &str,
    count: u32,
    data_room: u16,
    code: i32,
    cause: Option<String>,
) -> DpdkError {
    // DPDK returns ENOBUFS if memory ran out half-way.
    if code != -libc::ENOMEM && code != -libc::ENOBUFS {
        let cause = cause.unwrap_or_else(|| errno_text(code));
        return DpdkError::Eal {
            cause: format!("packet buffer pool {name} of {count} buffers cannot be made: {cause}"),
        };
    }
    DpdkError::Memory {
        purpose: format!("the packet buffer pool {name} ({count} buffers of {data_room} bytes)"),
        wanted_mb: MbufPool::bytes(count, data_room).div_ceil(1 << 20),
        available: eal::packet_memory_left(),
        fix: "use fewer buffers, or reserve more memory for packets".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_room_holds_the_frame_behind_both_headrooms() {
        assert_eq!(MbufPool::data_room_for(1500), 2176);
        assert!(MbufPool::data_room_for(3000) >= 3000 + 22 + 384);
        assert_eq!(MbufPool::data_room_for(u16::MAX), u16::MAX);
    }
}

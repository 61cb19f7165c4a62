//! A thread that is registered with DPDK: its mbufs go through a private cache instead of the
//! pool's shared ring.

use std::marker::PhantomData;

use weir_dpdk_sys as sys;

use crate::error::{DpdkError, errno_text};

/// Keeps the calling thread registered; dropping it on the same thread ends the registration.
#[derive(Debug)]
#[must_use = "the thread is registered for as long as this lives"]
pub struct RegisteredThread {
    /// Registration belongs to one thread, so the guard must not leave it.
    stays_on_its_thread: PhantomData<*const ()>,
}

/// Registers the calling thread with the EAL, which must have started. Call it once in each worker,
/// after pinning: DPDK derives the thread's NUMA node from its cores.
pub fn register_worker_thread() -> Result<RegisteredThread, DpdkError> {
    // JUSTIFICATION: DPDK keeps per-thread state that only it can set up.
    // SAFETY: takes no pointer; the EAL checks that it started and that the thread is not
    // registered yet.
    let code = unsafe { sys::weir_thread_register() };
    if code != 0 {
        return Err(DpdkError::Thread { cause: errno_text(code) });
    }
    Ok(RegisteredThread { stays_on_its_thread: PhantomData })
}

impl Drop for RegisteredThread {
    fn drop(&mut self) {
        // JUSTIFICATION: the counterpart of the registration.
        // SAFETY: the guard is not Send, so this is the thread that was registered.
        unsafe { sys::weir_thread_unregister() }
    }
}

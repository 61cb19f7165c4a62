//! A lock in shared memory that shows whether the thread that took it is still alive.
//!
//! ```text
//!   worker:  hold ------------------------------------- SIGKILL, or its end
//!   kernel:                                             marks the lock: its owner is dead
//!                                                       (set_robust_list(2))
//!   guard:   is_over? no ... is_over? no ............... is_over? yes
//! ```
//!
//! When a process is killed the kernel frees its memory before it closes its files: sockets, pipes
//! and pidfds show the death of a process with gigabytes of tables only tens of milliseconds later.
//! The locks of its threads are marked first. A process that writes a core dump is not dead until
//! the dump is written; its heartbeats end at once.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::io;
use std::mem::MaybeUninit;

/// A robust mutex: zeros until [`make`](Self::make) was called. No thread waits for it: an observer
/// only tries.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct LifeMutex(UnsafeCell<libc::pthread_mutex_t>);

// JUSTIFICATION: a lock is there to be used by several threads, here of several processes.
// SAFETY: all access goes through the functions of pthread_mutex_t, which are made for that.
unsafe impl Sync for LifeMutex {}

impl LifeMutex {
    /// Makes the lock, held by no thread.
    ///
    /// # Errors
    /// The C library's refusal.
    ///
    /// # Safety
    /// To be called once, before any other thread or process knows of the lock.
    pub(crate) unsafe fn make(&self) -> io::Result<()> {
        let mut attributes = MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
        let attributes = attributes.as_mut_ptr();
        // JUSTIFICATION: only the C library has a lock that shows its owner's death to another
        // process.
        // SAFETY: it fills memory of the right size.
        checked(unsafe { libc::pthread_mutexattr_init(attributes) })?;
        // JUSTIFICATION: as above.
        // SAFETY: the attributes are initialised.
        checked(unsafe {
            libc::pthread_mutexattr_setpshared(attributes, libc::PTHREAD_PROCESS_SHARED)
        })?;
        // JUSTIFICATION: as above.
        // SAFETY: the attributes are initialised.
        checked(unsafe {
            libc::pthread_mutexattr_setrobust(attributes, libc::PTHREAD_MUTEX_ROBUST)
        })?;
        // Makes a second `hold` by the same thread an error instead of a deadlock.
        // JUSTIFICATION: as above.
        // SAFETY: the attributes are initialised.
        checked(unsafe {
            libc::pthread_mutexattr_settype(attributes, libc::PTHREAD_MUTEX_ERRORCHECK)
        })?;
        // JUSTIFICATION: as above.
        // SAFETY: the attributes are initialised; the memory is of the right size, and the caller
        // ensures that no thread uses it yet.
        checked(unsafe { libc::pthread_mutex_init(self.0.get(), attributes) })
    }

    /// Takes the lock: the calling thread counts as alive until it ends, in whatever way.
    ///
    /// # Errors
    /// `EDEADLK` if the thread holds it already, `EAGAIN` or the like if it cannot be had; then
    /// only the heartbeats of this thread show its end.
    ///
    /// # Safety
    /// The memory of the lock stays mapped, at its address, until the calling thread has ended: the
    /// kernel writes to it then.
    pub(crate) unsafe fn hold(&self) -> io::Result<()> {
        // JUSTIFICATION: as above.
        // SAFETY: the lock was made, and its memory is mapped for as long as the caller promises.
        match unsafe { libc::pthread_mutex_lock(self.0.get()) } {
            libc::EOWNERDEAD => self.renew(),
            code => checked(code),
        }
    }

    /// Whether a thread that held the lock has died since the last look. A thread that never held
    /// it is not dead.
    pub(crate) fn is_over(&self) -> bool {
        // JUSTIFICATION: as above.
        // SAFETY: the lock was made, and its memory is mapped as long as `self` is borrowed.
        match unsafe { libc::pthread_mutex_trylock(self.0.get()) } {
            0 => {
                self.give_back();
                false
            }
            libc::EOWNERDEAD => {
                // The lock guards no data that could be inconsistent.
                let is_sound = self.renew().is_ok();
                self.give_back();
                is_sound
            }
            _ => false,
        }
    }

    /// Marks the lock as consistent; its holder calls it when the previous holder died.
    fn renew(&self) -> io::Result<()> {
        // JUSTIFICATION: as above.
        // SAFETY: as above; the calling thread holds it.
        checked(unsafe { libc::pthread_mutex_consistent(self.0.get()) })
    }

    fn give_back(&self) {
        // JUSTIFICATION: as above.
        // SAFETY: as above; the calling thread holds it, so this cannot fail.
        let _ = unsafe { libc::pthread_mutex_unlock(self.0.get()) };
    }
}

/// Converts a return code of the C library's thread functions: they return their error numbers.
fn checked(code: i32) -> io::Result<()> {
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// Makes a lock in this process's memory, for the tests alone.
    fn life() -> Arc<LifeMutex> {
        // JUSTIFICATION: zeros are what shared memory begins with.
        // SAFETY: a pthread_mutex_t is plain data, for which zeros are valid.
        let life = Arc::new(LifeMutex(UnsafeCell::new(unsafe { std::mem::zeroed() })));
        // JUSTIFICATION: as above.
        // SAFETY: no other thread knows of it.
        unsafe { life.make() }.unwrap();
        life
    }

    #[test]
    fn a_thread_is_alive_until_it_ends_and_its_death_is_seen_once() {
        let life = life();
        assert!(!life.is_over());
        for _ in 0..3 {
            let (held_in, held) = channel();
            let (end, ended) = channel::<()>();
            let theirs = Arc::clone(&life);
            let thread = thread::spawn(move || {
                // JUSTIFICATION: as above.
                // SAFETY: the test keeps the lock until it has joined this thread.
                unsafe { theirs.hold() }.unwrap();
                held_in.send(()).unwrap();
                let _ = ended.recv();
            });
            held.recv().unwrap();
            assert!(!life.is_over());
            drop(end);
            thread.join().unwrap();
            assert!(life.is_over());
            assert!(!life.is_over());
        }
    }

    #[test]
    fn a_second_hold_by_the_same_thread_is_an_error() {
        let life = life();
        let theirs = Arc::clone(&life);
        let (sender, receiver) = channel();
        let thread = thread::spawn(move || {
            // JUSTIFICATION: as above.
            // SAFETY: the test keeps the lock until it has joined this thread, or leaks it.
            let codes = [(); 2].map(|()| unsafe { theirs.hold() }.map_err(|it| it.raw_os_error()));
            sender.send(codes).unwrap();
        });
        match receiver.recv_timeout(Duration::from_secs(10)) {
            Ok(codes) => assert_eq!(codes, [Ok(()), Err(Some(libc::EDEADLK))]),
            Err(_) => {
                std::mem::forget(life);
                panic!("a second hold deadlocks");
            }
        }
        thread.join().unwrap();
    }
}

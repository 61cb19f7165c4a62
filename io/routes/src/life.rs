//! A lock in shared memory that says whether the thread that took it still lives.
//!
//! ```text
//!   worker:  hold ------------------------------------- SIGKILL, or its end
//!   kernel:                                             marks the lock: its owner is dead (set_robust_list(2))
//!   guard:   is_over? no ... is_over? no ............... is_over? yes
//! ```
//!
//! When a process is killed the kernel gives its memory back before it closes its files: sockets, pipes and pidfds tell
//! of the death of a process with gigabytes of tables only tens of milliseconds later. The locks of its threads are
//! marked first. A process that writes a core dump is not dead until that is written; its heartbeats end at once.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::io;
use std::mem::MaybeUninit;

/// Zeros until [`make`](Self::make) was called. Nothing waits for it: who looks only tries.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Life(UnsafeCell<libc::pthread_mutex_t>);

// JUSTIFICATION: a lock is there to be used by several threads, here of several processes.
// SAFETY: all access goes through the functions of pthread_mutex_t, which are made for that.
unsafe impl Sync for Life {}

impl Life {
    /// Makes the lock, held by nobody.
    ///
    /// # Errors
    /// What the C library refuses.
    ///
    /// # Safety
    /// Once, before anybody else knows of it.
    pub(crate) unsafe fn make(&self) -> io::Result<()> {
        let mut attributes = MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
        let attributes = attributes.as_mut_ptr();
        // JUSTIFICATION: a lock whose owner's death is seen by another process exists in the C library only.
        // SAFETY: it fills memory of the right size.
        told(unsafe { libc::pthread_mutexattr_init(attributes) })?;
        // JUSTIFICATION: as above.
        // SAFETY: the attributes are made.
        told(unsafe {
            libc::pthread_mutexattr_setpshared(attributes, libc::PTHREAD_PROCESS_SHARED)
        })?;
        // JUSTIFICATION: as above.
        // SAFETY: the attributes are made.
        told(unsafe { libc::pthread_mutexattr_setrobust(attributes, libc::PTHREAD_MUTEX_ROBUST) })?;
        // A second `hold` is an error instead of a wait for oneself.
        // JUSTIFICATION: as above.
        // SAFETY: the attributes are made.
        told(unsafe {
            libc::pthread_mutexattr_settype(attributes, libc::PTHREAD_MUTEX_ERRORCHECK)
        })?;
        // JUSTIFICATION: as above.
        // SAFETY: the attributes are made; the memory is of the right size, and the caller sees to it that nobody uses it yet.
        told(unsafe { libc::pthread_mutex_init(self.0.get(), attributes) })
    }

    /// The calling thread lives until it ends, in whatever way.
    ///
    /// # Errors
    /// `EDEADLK` if it holds it already, `EAGAIN` or the like if it cannot be had; then only heartbeats tell of this thread.
    ///
    /// # Safety
    /// The memory of the lock stays mapped, at its place, until the calling thread has ended: the kernel writes to it then.
    pub(crate) unsafe fn hold(&self) -> io::Result<()> {
        // JUSTIFICATION: as above.
        // SAFETY: the lock was made, and its memory is mapped for as long as the caller promises.
        match unsafe { libc::pthread_mutex_lock(self.0.get()) } {
            libc::EOWNERDEAD => self.renew(),
            code => told(code),
        }
    }

    /// Whether a thread that held it has died since the last look. One that never held it is not dead.
    pub(crate) fn is_over(&self) -> bool {
        // JUSTIFICATION: as above.
        // SAFETY: the lock was made, and its memory is mapped as long as `self` is borrowed.
        match unsafe { libc::pthread_mutex_trylock(self.0.get()) } {
            0 => {
                self.give_back();
                false
            }
            libc::EOWNERDEAD => {
                // What it guarded is nothing but itself.
                let is_sound = self.renew().is_ok();
                self.give_back();
                is_sound
            }
            _ => false,
        }
    }

    /// For its holder, who has it from a dead one.
    fn renew(&self) -> io::Result<()> {
        // JUSTIFICATION: as above.
        // SAFETY: as above; the calling thread holds it.
        told(unsafe { libc::pthread_mutex_consistent(self.0.get()) })
    }

    fn give_back(&self) {
        // JUSTIFICATION: as above.
        // SAFETY: as above; the calling thread holds it, so this cannot fail.
        let _ = unsafe { libc::pthread_mutex_unlock(self.0.get()) };
    }
}

/// The C library's threads return their error numbers.
fn told(code: i32) -> io::Result<()> {
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// For the tests alone: memory of this process.
    fn life() -> Arc<Life> {
        // JUSTIFICATION: zeros are what shared memory begins with.
        // SAFETY: a pthread_mutex_t is plain data, for which zeros are valid.
        let life = Arc::new(Life(UnsafeCell::new(unsafe { std::mem::zeroed() })));
        // JUSTIFICATION: as above.
        // SAFETY: nobody else knows of it.
        unsafe { life.make() }.unwrap();
        life
    }

    #[test]
    fn a_thread_lives_until_it_ends_and_dies_once() {
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
    fn a_thread_that_holds_it_already_is_told() {
        let life = life();
        let theirs = Arc::clone(&life);
        let (said_in, said) = channel();
        let thread = thread::spawn(move || {
            // JUSTIFICATION: as above.
            // SAFETY: the test keeps the lock until it has joined this thread, or leaks it.
            let codes = [(); 2].map(|()| unsafe { theirs.hold() }.map_err(|it| it.raw_os_error()));
            said_in.send(codes).unwrap();
        });
        match said.recv_timeout(Duration::from_secs(10)) {
            Ok(codes) => assert_eq!(codes, [Ok(()), Err(Some(libc::EDEADLK))]),
            Err(_) => {
                std::mem::forget(life);
                panic!("it waits for itself");
            }
        }
        thread.join().unwrap();
    }
}

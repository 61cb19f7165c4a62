//! The memory that a node shares with its guard: for each worker a heartbeat, a fence word, a lock
//! and a flag, 256 bytes, then 256 bytes for the heartbeats of the guard itself and of the threads
//! that decide.
//!
//! ```text
//!   line 0   beat  u64   written by the worker at each turn of its loop, read by the guard
//!   line 1   fence u32   written by the guard, read by the worker at each turn:
//!                        how often it was fenced
//!   line 2   life        held by the worker's thread until its end, tried by the guard
//!   line 3   stake u32   written by the node's roles thread, read by the guard:
//!                        what homes would lose with the worker
//!   last:
//!   line 0   guard   u64 written by the guard at each turn of its loop, read by the node
//!   line 1   roles   u64 written by the node's roles thread, read by the guard;
//!                        0: the thread does not run
//!   line 2   control u64 the same for the thread of the admin API
//! ```
//!
//! Every word has one writer. The fence word counts, so that an acknowledgement of the third fence
//! cannot be mistaken for one of the fourth: a worker is fenced while the word differs from the
//! number it has acknowledged, and routes are set under such a number (see
//! [`GuardRequest::Set`](crate::protocol::GuardRequest::Set)). The memory is a sealed memfd of
//! fixed length and outlives the guard, so a new guard continues the counts.
#![allow(unsafe_code)]

use std::fs::File;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::{fmt, io};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use serde::{Deserialize, Serialize};

use crate::life::LifeMutex;
use crate::route::{WORKERS_MAX, WorkerIndex};

/// One cache line.
#[derive(Debug)]
#[repr(C, align(64))]
struct CacheLine<T>(T);

/// The words of one worker.
#[derive(Debug)]
#[repr(C)]
struct Words {
    beat: CacheLine<AtomicU64>,
    fence: CacheLine<AtomicU32>,
    life: CacheLine<LifeMutex>,
    stake: CacheLine<AtomicU32>,
}

const _: () = assert!(size_of::<Words>() == 256);

/// The words that belong to no worker.
#[derive(Debug)]
#[repr(C)]
struct ProcessWords {
    guard: CacheLine<AtomicU64>,
    deciders: [CacheLine<AtomicU64>; Decider::ALL.len()],
    _free: CacheLine<u64>,
}

const _: () = assert!(size_of::<ProcessWords>() == size_of::<Words>());
const _: () = assert!(align_of::<ProcessWords>() <= align_of::<Words>());

/// A thread of the node that makes decisions, and that the guard watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decider {
    /// Decides on the roles of the workers.
    Roles,
    /// Serves the admin API and metrics, and ends the process.
    Control,
}

impl Decider {
    pub(crate) const ALL: [Self; 2] = [Self::Roles, Self::Control];

    /// Returns the name that the node gives the thread.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Roles => "roles",
            Self::Control => "control",
        }
    }
}

/// What homes would lose with a worker, as the node's roles thread saw it last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stake {
    /// Other workers serve its shards, or it has no shard.
    Nothing,
    /// It serves a shard of which other workers have full copies.
    Served,
    /// It serves a shard and has the only full copy.
    OnlyCopy,
}

impl Stake {
    /// `is_serving`: it serves a shard; `is_only_copy`: no other worker has a full copy of such a
    /// shard.
    pub fn new(is_serving: bool, is_only_copy: bool) -> Self {
        match (is_serving, is_only_copy) {
            (_, true) => Self::OnlyCopy,
            (true, false) => Self::Served,
            (false, false) => Self::Nothing,
        }
    }
}

/// How often a worker was fenced: 0 at the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fence(pub u32);

/// The mapped memory, with its descriptor for the next guard.
pub struct SharedWords {
    start: NonNull<Words>,
    workers: usize,
    file: OwnedFd,
}

// JUSTIFICATION: a raw pointer makes the type neither Send nor Sync, but several threads need both.
// SAFETY: the memory holds atomics and locks only, is mapped until the value is dropped, and
// belongs to no thread.
unsafe impl Send for SharedWords {}
// JUSTIFICATION: as above.
// SAFETY: as above: every access is through a shared reference, an atomic load or store or one of a
// lock.
unsafe impl Sync for SharedWords {}

impl SharedWords {
    /// Creates memory for `workers` workers (1 to [`WORKERS_MAX`]), all words 0, all locks free.
    ///
    /// # Errors
    /// The refusal of the kernel or the C library; `EINVAL` for a number of workers out of range.
    pub fn new(workers: usize) -> io::Result<Self> {
        if !(1..=WORKERS_MAX).contains(&workers) {
            return Err(Errno::EINVAL.into());
        }
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let file = File::from(memfd_create(c"weir-heartbeats", flags)?);
        file.set_len(Self::bytes(workers) as u64)?;
        fcntl(&file, FcntlArg::F_ADD_SEALS(Self::seals()))?;
        let words = Self::open(OwnedFd::from(file))?;
        for worker in 0..workers {
            // JUSTIFICATION: a lock is made where it lies.
            // SAFETY: the memory is new, so no other thread or process knows of it.
            unsafe { words.words(worker as WorkerIndex).life.0.make() }?;
        }
        Ok(words)
    }

    /// Maps the memory behind a descriptor that [`new`](Self::new) made, in another process.
    ///
    /// # Errors
    /// `EINVAL` for any other kind of descriptor.
    pub fn open(file: OwnedFd) -> io::Result<Self> {
        let file = File::from(file);
        let bytes = file.metadata()?.len() as usize;
        let seals = SealFlag::from_bits_retain(fcntl(&file, FcntlArg::F_GET_SEALS)?);
        let workers = (bytes / size_of::<Words>()).saturating_sub(1);
        if !seals.contains(Self::seals())
            || !(1..=WORKERS_MAX).contains(&workers)
            || bytes != Self::bytes(workers)
        {
            return Err(Errno::EINVAL.into());
        }
        let length = NonZeroUsize::new(bytes).ok_or(Errno::EINVAL)?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // JUSTIFICATION: only mmap gives memory that is shared between processes.
        // SAFETY: a fresh mapping at an address of the kernel's choice. The file is sealed against
        // shrinking, so no page of it can vanish, and all processes that map it access it as the
        // same atomics and locks.
        let start = unsafe { mmap(None, length, access, MapFlags::MAP_SHARED, &file, 0) }?;
        Ok(Self { start: start.cast(), workers, file: OwnedFd::from(file) })
    }

    /// Returns the number of workers there is room for.
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// Returns how often the worker has been fenced.
    pub fn fence(&self, worker: WorkerIndex) -> Fence {
        Fence(self.words(worker).fence.0.load(Ordering::Relaxed))
    }

    /// Counts the guard's heartbeat; called once per turn.
    pub(crate) fn beat_guard(&self) {
        self.process_words().guard.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the guard's heartbeat, for the node.
    pub(crate) fn guard_beat(&self) -> u64 {
        self.process_words().guard.0.load(Ordering::Relaxed)
    }

    /// Counts the heartbeat of a deciding thread; called once per turn.
    pub fn beat_decider(&self, decider: Decider) {
        // The count leaves 0, which stands for a thread that does not run.
        self.decider(decider).fetch_add(1, Ordering::Relaxed);
    }

    /// Marks a deciding thread as ended in an orderly way.
    pub fn end_decider(&self, decider: Decider) {
        self.decider(decider).store(0, Ordering::Relaxed);
    }

    /// Returns the heartbeat of a deciding thread, for the guard; 0 if it does not run.
    pub(crate) fn decider_beat(&self, decider: Decider) -> u64 {
        self.decider(decider).load(Ordering::Relaxed)
    }

    fn decider(&self, decider: Decider) -> &AtomicU64 {
        &self.process_words().deciders[decider as usize].0
    }

    /// Returns a worker's heartbeat, for the guard.
    pub(crate) fn beat(&self, worker: WorkerIndex) -> u64 {
        self.words(worker).beat.0.load(Ordering::Relaxed)
    }

    /// Whether the worker's thread has died since the last look, for the guard.
    pub(crate) fn is_over(&self, worker: WorkerIndex) -> bool {
        self.words(worker).life.0.is_over()
    }

    /// Sets what homes would lose with the worker. For the node's roles thread alone.
    pub fn set_stake(&self, worker: WorkerIndex, stake: Stake) {
        self.words(worker).stake.0.store(stake as u32, Ordering::Relaxed);
    }

    /// Returns what homes would lose with the worker, for the guard.
    pub(crate) fn stake(&self, worker: WorkerIndex) -> Stake {
        match self.words(worker).stake.0.load(Ordering::Relaxed) {
            0 => Stake::Nothing,
            1 => Stake::Served,
            _ => Stake::OnlyCopy,
        }
    }

    /// Fences the worker. For the guard alone, the only writer of the word.
    ///
    /// The system calls that withdraw its routes or make them a last resort follow, so the worker
    /// can see the fence before any switch sees the change.
    pub(crate) fn raise_fence(&self, worker: WorkerIndex) -> Fence {
        let word = &self.words(worker).fence.0;
        let next = word.load(Ordering::Relaxed).wrapping_add(1);
        word.store(next, Ordering::SeqCst);
        Fence(next)
    }

    /// Returns the length of the memory in bytes: the words of all workers and those of no worker.
    const fn bytes(workers: usize) -> usize {
        workers * size_of::<Words>() + size_of::<ProcessWords>()
    }

    fn process_words(&self) -> &ProcessWords {
        // JUSTIFICATION: as in `words`.
        // SAFETY: size_of::<ProcessWords>() bytes are mapped behind those of the workers.
        let words = unsafe { self.start.add(self.workers) }.cast::<ProcessWords>();
        // JUSTIFICATION: as above.
        // SAFETY: aligned to a line as all words are; atomics, for which any bits are valid, mapped
        // as long as `self` lives.
        unsafe { words.as_ref() }
    }

    fn seals() -> SealFlag {
        SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL
    }

    /// Panics if the worker does not exist.
    fn words(&self, worker: WorkerIndex) -> &Words {
        let worker = usize::from(worker);
        assert!(worker < self.workers, "worker {worker} of {}", self.workers);
        // JUSTIFICATION: mmap returns a pointer.
        // SAFETY: worker < workers, and workers * size_of::<Words>() bytes are mapped.
        let words = unsafe { self.start.add(worker) };
        // JUSTIFICATION: as above.
        // SAFETY: page aligned memory of atomics, for which any bits are valid, and of locks that
        // `new` has made, mapped as long as `self` lives.
        unsafe { words.as_ref() }
    }
}

impl Drop for SharedWords {
    fn drop(&mut self) {
        // JUSTIFICATION: memory of mmap has to be returned by munmap.
        // SAFETY: the whole of one mapping of ours; references into it borrow `self` and are gone.
        // A refusal would leave it mapped until the process ends, which does no harm.
        let _ = unsafe { munmap(self.start.cast(), Self::bytes(self.workers)) };
    }
}

impl AsFd for SharedWords {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl fmt::Debug for SharedWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedWords").field("workers", &self.workers).finish_non_exhaustive()
    }
}

/// A worker's end of its words. Hot: one store and one load per turn, none per packet.
#[derive(Debug)]
pub struct Heartbeat {
    words: Arc<SharedWords>,
    worker: WorkerIndex,
    count: u64,
    acknowledged: Fence,
}

impl Heartbeat {
    /// Creates the heartbeat of a worker, one for each worker. All earlier fences count as
    /// acknowledged.
    ///
    /// # Panics
    /// If there is no room for such a worker.
    pub fn new(words: Arc<SharedWords>, worker: WorkerIndex) -> Self {
        let (count, acknowledged) = (words.beat(worker), words.fence(worker));
        Self { words, worker, count, acknowledged }
    }

    /// Lets the guard detect at once when the calling thread, the worker's, ends in whatever way.
    /// To be called once.
    ///
    /// # Errors
    /// The C library's refusal: then the guard notices the end of the thread by its silence.
    pub fn begin(&self) -> io::Result<()> {
        // The kernel marks the lock after the thread's last instruction: the memory has to be
        // mapped until then.
        std::mem::forget(Arc::clone(&self.words));
        // JUSTIFICATION: the kernel reports the end of a thread in memory that is given to it
        // (set_robust_list(2)).
        // SAFETY: the leaked reference keeps the memory mapped.
        unsafe { self.words.words(self.worker).life.0.hold() }
    }

    /// Counts the worker's heartbeat; called once per turn.
    #[inline]
    pub fn beat(&mut self) {
        self.count = self.count.wrapping_add(1);
        self.words.words(self.worker).beat.0.store(self.count, Ordering::Relaxed);
    }

    /// True if the guard took this worker for dead: its routes are a last resort, gone or going,
    /// and a replica may serve its shards. Called once per turn, before a burst is received: a
    /// worker that stalled in the middle of a burst finishes that one.
    #[inline]
    pub fn is_fenced(&self) -> bool {
        self.words.fence(self.worker) != self.acknowledged
    }

    /// Acknowledges the fence; for a fenced worker that goes on, and knows that the packets in its
    /// rings are late. Returns the number under which its next routes are set.
    pub fn acknowledge(&mut self) -> Fence {
        self.acknowledged = self.words.fence(self.worker);
        self.acknowledged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_mapping_reads_what_the_other_writes() {
        let ours = Arc::new(SharedWords::new(3).unwrap());
        let theirs = SharedWords::open(ours.as_fd().try_clone_to_owned().unwrap()).unwrap();
        assert_eq!(theirs.workers(), 3);
        let mut heartbeat = Heartbeat::new(Arc::clone(&ours), 2);
        heartbeat.beat();
        heartbeat.beat();
        assert_eq!((theirs.beat(1), theirs.beat(2)), (0, 2));
        assert!(!heartbeat.is_fenced());
        let fence = theirs.raise_fence(2);
        assert!(heartbeat.is_fenced());
        assert_eq!(heartbeat.acknowledge(), fence);
        assert!(!heartbeat.is_fenced());
        assert_ne!(theirs.raise_fence(2), fence);
        assert!(heartbeat.is_fenced());
        assert_eq!(ours.fence(1), Fence(0));
        theirs.beat_guard();
        theirs.beat_guard();
        assert_eq!(ours.guard_beat(), 2);
        ours.beat_decider(Decider::Control);
        let deciders = || Decider::ALL.map(|it| theirs.decider_beat(it));
        assert_eq!(deciders(), [0, 1]);
        ours.end_decider(Decider::Control);
        assert_eq!(deciders(), [0, 0]);
        assert_eq!(theirs.beat(2), 2, "words do not overlap");
    }

    #[test]
    fn the_end_of_a_thread_is_seen_through_the_other_mapping() {
        let ours = Arc::new(SharedWords::new(2).unwrap());
        let theirs = SharedWords::open(ours.as_fd().try_clone_to_owned().unwrap()).unwrap();
        assert!(!theirs.is_over(1));
        let heartbeat = Heartbeat::new(Arc::clone(&ours), 1);
        std::thread::spawn(move || heartbeat.begin().unwrap()).join().unwrap();
        assert_eq!([theirs.is_over(0), theirs.is_over(1)], [false, true]);
    }

    #[test]
    fn only_memory_that_cannot_shrink_is_opened() {
        let ours = SharedWords::new(1).unwrap();
        let file = File::from(ours.as_fd().try_clone_to_owned().unwrap());
        assert!(file.set_len(0).is_err());
        let loose = memfd_create(c"loose", MFdFlags::MFD_ALLOW_SEALING).unwrap();
        File::from(loose.try_clone().unwrap()).set_len(128).unwrap();
        for refused in
            [SharedWords::open(loose), SharedWords::new(0), SharedWords::new(WORKERS_MAX + 1)]
        {
            assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    }
}

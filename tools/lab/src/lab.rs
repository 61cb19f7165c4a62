//! A laboratory: namespaces, processes and a directory under names of its own, gone when it is
//! dropped.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use nix::sys::statvfs::{FsFlags, Statvfs, statvfs};
use nix::unistd::geteuid;

use crate::huge_pages::HugePages;
use crate::namespace::Namespace;
use crate::process::Process;
use crate::{interrupt, stale};

pub use crate::stale::remove_kept;

/// Start of every name a lab gives: `weir-lab-<process id>-<number>-<role>`.
pub(crate) const PREFIX: &str = "weir-lab-";

/// A file system in memory.
const MEMORY: &str = "/dev/shm";
/// Bytes that are free where a lab lies in memory: etcd reserves 64 MB for each part of its log.
const MEMORY_MIN: u64 = 1 << 30;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// Where labs lie: in `TMPDIR` if that is set, else in memory if there is room. A disk that others write to, too, can take
/// a minute to store a line of etcd's, and a cluster whose etcd stands still is not what a test is about.
fn parent() -> PathBuf {
    let has_room = |memory: Statvfs| {
        let free = memory.blocks_available() * memory.fragment_size();
        // Some tests start a copy of a program there.
        free >= MEMORY_MIN && !memory.flags().contains(FsFlags::ST_NOEXEC)
    };
    match std::env::var_os("TMPDIR") {
        None if statvfs(MEMORY).is_ok_and(has_room) => MEMORY.into(),
        _ => std::env::temp_dir(),
    }
}

/// Where labs may lie that were opened when there was more room, or less.
pub(crate) fn parents() -> [PathBuf; 2] {
    [MEMORY.into(), std::env::temp_dir()]
}

/// An open laboratory.
#[derive(Debug)]
pub struct Lab {
    contents: Arc<Contents>,
}

/// What a lab owns; shared with the signal handler.
#[derive(Debug)]
pub(crate) struct Contents {
    name: String,
    directory: PathBuf,
    namespaces: Mutex<Vec<Namespace>>,
    processes: Mutex<Vec<Process>>,
    huge_pages: Mutex<Option<HugePages>>,
    is_removed: AtomicBool,
    removal: Mutex<()>,
}

/// An error with the way out, when this is not root's process.
pub(crate) fn need_root() -> Result<()> {
    ensure!(geteuid().is_root(), "network namespaces need root: run as root, or with sudo");
    Ok(())
}

impl Lab {
    /// An empty lab. Needs root.
    pub fn open() -> Result<Self> {
        need_root()?;
        stale::remove_abandoned();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{}-{number}", std::process::id());
        let directory = parent().join(&name);
        fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
        let contents = Arc::new(Contents {
            name,
            directory,
            namespaces: Mutex::default(),
            processes: Mutex::default(),
            huge_pages: Mutex::default(),
            is_removed: AtomicBool::new(false),
            removal: Mutex::new(()),
        });
        interrupt::guard(Arc::downgrade(&contents));
        Ok(Self { contents })
    }

    /// Directory for configuration, logs and sockets of this lab.
    pub fn directory(&self) -> &Path {
        &self.contents.directory
    }

    /// Makes a namespace for `role`.
    pub fn namespace(&self, role: &str) -> Result<Namespace> {
        let mut namespaces = lock(&self.contents.namespaces);
        self.contents.still_open()?;
        let namespace = Namespace::create(format!("{}-{role}", self.contents.name))?;
        namespaces.push(namespace.clone());
        Ok(namespace)
    }

    /// Reserves so many huge pages of 2 MiB for as long as there is this lab, in place of those of the last call.
    pub fn reserve_huge_pages(&self, pages: u64) -> Result<()> {
        let mut reserved = lock(&self.contents.huge_pages);
        self.contents.still_open()?;
        drop(reserved.take());
        *reserved = Some(HugePages::reserve(pages)?);
        Ok(())
    }

    /// Starts a daemon; its log is `<name>.log` in the directory of the lab.
    pub fn start(&self, name: &str, command: &mut Command) -> Result<Process> {
        self.contents.start(name, command)
    }

    /// What starts daemons in this lab from another thread.
    pub fn starter(&self) -> Starter {
        Starter { contents: Arc::downgrade(&self.contents) }
    }

    /// The last lines of every daemon's log: what a failed test shows.
    pub fn logs(&self) -> String {
        let processes = lock(&self.contents.processes).clone();
        processes
            .iter()
            .filter(|process| !process.log().is_empty())
            .map(|process| format!("--- {}\n{}\n", process.name(), process.log_tail()))
            .collect()
    }

    /// False once a signal has begun to remove it.
    pub fn is_open(&self) -> bool {
        !self.contents.is_removed.load(Ordering::Relaxed)
    }

    /// Leaves everything running when this process ends; [`remove_kept`] removes it later.
    pub fn keep(self) -> Result<PathBuf> {
        fs::write(self.directory().join(stale::KEPT), "")?;
        self.contents.is_removed.store(true, Ordering::Relaxed);
        Ok(self.directory().to_owned())
    }
}

/// Starts daemons in a lab as long as there is one.
#[derive(Clone, Debug)]
pub struct Starter {
    contents: Weak<Contents>,
}

impl Starter {
    /// As [`Lab::start`].
    pub fn start(&self, name: &str, command: &mut Command) -> Result<Process> {
        self.contents.upgrade().context("the laboratory is gone")?.start(name, command)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.contents.remove();
    }
}

impl Contents {
    fn start(&self, name: &str, command: &mut Command) -> Result<Process> {
        let log = self.directory.join(format!("{name}.log"));
        let mut processes = lock(&self.processes);
        self.still_open()?;
        let process = Process::spawn(name, command, log)?;
        processes.push(process.clone());
        Ok(process)
    }

    fn still_open(&self) -> Result<()> {
        ensure!(!self.is_removed.load(Ordering::Relaxed), "the laboratory is being removed");
        Ok(())
    }

    /// Ends the processes, the last started first, then removes namespaces and directory.
    ///
    /// A signal may come while another thread adds something: the flag is set first, and whoever
    /// adds looks at it under the lock, so nothing is added behind our back.
    pub(crate) fn remove(&self) {
        // Whoever comes second returns when the first one is done, and may then end the process.
        let _removal = lock(&self.removal);
        if self.is_removed.swap(true, Ordering::Relaxed) {
            return;
        }
        let processes = std::mem::take(&mut *lock(&self.processes));
        for process in &processes {
            // All end at the same time; `stop` then waits for each and insists.
            let _ = process.signal(Signal::SIGTERM);
        }
        for process in processes.iter().rev() {
            process.stop();
        }
        for namespace in std::mem::take(&mut *lock(&self.namespaces)) {
            stale::kill_all(&namespace);
            namespace.remove();
        }
        // Nobody uses them any more.
        drop(lock(&self.huge_pages).take());
        // A leftover file is found by name at the next start.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! A laboratory: namespaces, processes and a directory with unique names, all removed when it is
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

/// Prefix of every name that a lab assigns: `weir-lab-<process id>-<number>-<role>`.
pub(crate) const PREFIX: &str = "weir-lab-";

/// A file system in memory.
const MEMORY: &str = "/dev/shm";
/// Free bytes needed for a lab in memory: etcd reserves 64 MB for each part of its log.
const MEMORY_MIN: u64 = 1 << 30;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// Returns the directory of labs: `TMPDIR` if that is set, else memory if it has room. A disk that
/// other processes write to, too, can take a minute to store a line of etcd's, and tests are not
/// about a cluster whose etcd stalls.
fn parent() -> PathBuf {
    let has_room = |memory: Statvfs| {
        let free = memory.blocks_available() * memory.fragment_size();
        // Some tests execute a copy of a program there.
        free >= MEMORY_MIN && !memory.flags().contains(FsFlags::ST_NOEXEC)
    };
    match std::env::var_os("TMPDIR") {
        None if statvfs(MEMORY).is_ok_and(has_room) => MEMORY.into(),
        _ => std::env::temp_dir(),
    }
}

/// Returns the directories in which earlier labs may lie, opened when there was more room, or less.
pub(crate) fn parents() -> [PathBuf; 2] {
    [MEMORY.into(), std::env::temp_dir()]
}

/// An open laboratory.
#[derive(Debug)]
pub struct Lab {
    contents: Arc<Contents>,
}

/// The resources that a lab owns; shared with the signal handler.
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

/// Fails with advice if this process does not run as root.
pub(crate) fn need_root() -> Result<()> {
    ensure!(geteuid().is_root(), "network namespaces need root: run as root, or with sudo");
    Ok(())
}

impl Lab {
    /// Opens an empty lab. Needs root.
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

    /// Returns the directory for configuration, logs and sockets of this lab.
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

    /// Reserves `pages` huge pages of 2 MiB for the lifetime of this lab, replacing the reservation
    /// of the previous call.
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

    /// Returns a handle that starts daemons in this lab from another thread.
    pub fn starter(&self) -> Starter {
        Starter { contents: Arc::downgrade(&self.contents) }
    }

    /// Returns the last lines of every daemon's log, for the report of a failed test.
    pub fn logs(&self) -> String {
        let processes = lock(&self.contents.processes).clone();
        processes
            .iter()
            .filter(|process| !process.log().is_empty())
            .map(|process| format!("--- {}\n{}\n", process.name(), process.log_tail()))
            .collect()
    }

    /// False once a signal has begun to remove the lab.
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

/// Starts daemons in a lab as long as the lab exists.
#[derive(Clone, Debug)]
pub struct Starter {
    contents: Weak<Contents>,
}

impl Starter {
    /// Like [`Lab::start`].
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
    /// A signal may arrive while another thread adds a resource: the flag is set first, and each
    /// adding thread checks it under the lock, so nothing is added after the removal.
    pub(crate) fn remove(&self) {
        // A second caller returns when the first one is done, and may then end the process.
        let _removal = lock(&self.removal);
        if self.is_removed.swap(true, Ordering::Relaxed) {
            return;
        }
        let processes = std::mem::take(&mut *lock(&self.processes));
        for process in &processes {
            // All end at the same time; `stop` then waits for each and kills it if necessary.
            let _ = process.signal(Signal::SIGTERM);
        }
        for process in processes.iter().rev() {
            process.stop();
        }
        for namespace in std::mem::take(&mut *lock(&self.namespaces)) {
            stale::kill_all(&namespace);
            namespace.remove();
        }
        // No process uses the huge pages any more.
        drop(lock(&self.huge_pages).take());
        // The next start finds a leftover file by its name.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

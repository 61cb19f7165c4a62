//! Detects pauses: of the machine's cores, and of the threads that packets or routes wait for.
//!
//! ```text
//!   a ticker on each core, real-time    wakes late: the core was taken from the machine as a whole
//!   run_delay of threads, schedstat     grows: the thread was ready to run and others ran
//! ```
//!
//! A thread that is stopped by a signal or a debugger is not ready to run: a fault that a test
//! injects is not a pause.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::{Pid, gettid};

use super::clock::{Clock, Micros, Window};
use super::pauses::Pause;
use crate::threads::{Stop, Threads};

/// Shortest recorded pause; shorter ones are normal.
const PAUSE_MIN: Micros = 5_000;
const TICK: Duration = Duration::from_millis(2);
/// Time between two reads of the run delays: a longer wait shows in one read, when it is over.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// Time between two searches for new threads.
const SEARCH_INTERVAL: Duration = Duration::from_millis(250);
/// Threads that packets or routes wait for, by the prefix of their names: senders and receivers of
/// probes, workers, roles, and routing daemons of nodes and switches.
const NAMES: [&str; 8] =
    ["probe-", "weir-worker", "weir-roles", "weir-routes", "bird", "bgpd", "bfdd", "zebra"];
/// Names of whole threads: the guard and the first thread of a node, and the gateway of a home.
const FIRST_THREADS: [&str; 2] = ["weir-node", "weir-lab"];

/// Watches for pauses until it is dropped.
#[derive(Debug)]
pub struct PauseWatch {
    shared: Arc<Shared>,
    threads: Threads,
}

#[derive(Debug)]
struct Shared {
    clock: Clock,
    pauses: Mutex<Vec<Pause>>,
}

impl PauseWatch {
    /// Starts the watch on every core that this process may use.
    ///
    /// # Errors
    /// When a thread cannot be started or may not become a real-time thread.
    pub fn start(clock: Clock) -> Result<Self> {
        let shared = Arc::new(Shared { clock, pauses: Mutex::default() });
        let mut watch = Self { shared, threads: Threads::default() };
        let allowed = sched_getaffinity(Pid::from_raw(0))?;
        for core in (0..CpuSet::count()).filter(|&core| allowed.is_set(core).unwrap_or_default()) {
            watch.spawn(&format!("tick-{core}"), Some(core), move |shared, stop| {
                shared.tick(stop, &format!("core {core}"));
            })?;
        }
        watch.spawn("run-delays", None, Shared::watch_threads)?;
        Ok(watch)
    }

    fn spawn(
        &mut self,
        name: &str,
        core: Option<usize>,
        body: impl FnOnce(&Shared, &Stop) + Send + 'static,
    ) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let (started, is_started) = std::sync::mpsc::channel();
        self.threads.spawn(name, move |stop| {
            let ready = make_real_time(core);
            let is_ready = ready.is_ok();
            // The caller waits for this result.
            let _ = started.send(ready);
            if is_ready {
                body(&shared, stop);
            }
        })?;
        is_started.recv().context("the thread ended")?.with_context(|| name.to_owned())
    }

    /// Returns the pauses that overlap a window, in order of their ends.
    pub fn within(&self, window: Window) -> Vec<Pause> {
        let reaches = |it: &&Pause| it.window.start < window.end && it.window.end > window.start;
        lock(&self.shared.pauses).iter().filter(reaches).cloned().collect()
    }

    /// Forgets pauses that ended before `time`.
    pub fn forget_before(&self, time: Micros) {
        lock(&self.shared.pauses).retain(|pause| pause.window.end >= time);
    }
}

impl Shared {
    fn add(&self, length: Micros, of: &str) {
        if length >= PAUSE_MIN {
            let end = self.clock.now();
            let window = Window { start: end.saturating_sub(length), end };
            lock(&self.pauses).push(Pause { window, of: of.to_owned() });
        }
    }

    fn tick(&self, stop: &Stop, of: &str) {
        let mut last = self.clock.now();
        while !stop.is_set() {
            thread::sleep(TICK);
            let now = self.clock.now();
            self.add((now - last).saturating_sub(TICK.as_micros() as Micros), of);
            last = now;
        }
    }

    fn watch_threads(&self, stop: &Stop) {
        let mut threads: BTreeMap<(i32, i32), Watched> = BTreeMap::new();
        let mut next_search = 0;
        while !stop.is_set() {
            if self.clock.now() >= next_search {
                search(&mut threads);
                next_search = self.clock.now() + SEARCH_INTERVAL.as_micros() as Micros;
            }
            threads.retain(|&(process, thread), watched| {
                let Some(delay) = run_delay(process, thread) else { return false };
                self.add(delay.saturating_sub(watched.delay), &watched.name);
                watched.delay = delay;
                true
            });
            thread::sleep(LOOK_INTERVAL);
        }
    }
}

#[derive(Debug)]
struct Watched {
    name: String,
    delay: Micros,
}

/// Adds the threads of [`NAMES`] in this process and its descendants.
fn search(threads: &mut BTreeMap<(i32, i32), Watched>) {
    for process in family(std::process::id() as i32) {
        for thread in numbers_in(&format!("/proc/{process}/task")) {
            if threads.contains_key(&(process, thread)) {
                continue;
            }
            let comm = fs::read_to_string(format!("/proc/{process}/task/{thread}/comm"));
            // The thread may have ended since.
            let Ok(comm) = comm else { continue };
            let Some(delay) = run_delay(process, thread) else { continue };
            let comm = comm.trim_end();
            if FIRST_THREADS.contains(&comm) || NAMES.iter().any(|name| comm.starts_with(name)) {
                let name = format!("{comm} of process {process}");
                threads.insert((process, thread), Watched { name, delay });
            }
        }
    }
}

/// Returns a process and its descendants.
pub(crate) fn family(root: i32) -> Vec<i32> {
    let parents: Vec<(i32, i32)> = numbers_in("/proc")
        .into_iter()
        .filter_map(|process| Some((process, parent_of(process)?)))
        .collect();
    let mut family = vec![root];
    let mut next = 0;
    while let Some(&parent) = family.get(next) {
        family.extend(parents.iter().filter(|&&(_, of)| of == parent).map(|&(process, _)| process));
        next += 1;
    }
    family
}

fn numbers_in(folder: &str) -> Vec<i32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Returns the parent, by proc(5): the second field after the name, which may contain spaces and
/// parentheses.
fn parent_of(process: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// Returns the time that a thread has waited for a core since it began; the second number of
/// schedstat, in nanoseconds.
fn run_delay(process: i32, thread: i32) -> Option<Micros> {
    let text = fs::read_to_string(format!("/proc/{process}/task/{thread}/schedstat")).ok()?;
    Some(text.split_whitespace().nth(1)?.parse::<u64>().ok()? / 1_000)
}

/// Pins the calling thread to a core, if one is given, and makes it a real-time thread.
fn make_real_time(core: Option<usize>) -> Result<()> {
    if let Some(core) = core {
        let mut set = CpuSet::new();
        set.set(core)?;
        sched_setaffinity(Pid::from_raw(0), &set)?;
    }
    let thread = gettid().to_string();
    let done = Command::new("chrt").args(["--fifo", "--pid", "10", &thread]).output();
    let done = done.context("chrt")?;
    ensure!(done.status.success(), "chrt: {}", String::from_utf8_lossy(&done.stderr));
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread::JoinHandle;

    use super::*;
    use crate::condition::wait_for;
    use crate::steering::{Network, PACKAGED_BFD, Switch, SwitchKind};

    const DEADLINE: Duration = Duration::from_secs(30);

    /// Starts a thread that runs without a pause on one core until it is asked to end.
    fn busy(name: &str, core: usize, is_stopping: &Arc<AtomicBool>) -> JoinHandle<()> {
        let is_stopping = Arc::clone(is_stopping);
        let body = move || {
            let mut set = CpuSet::new();
            set.set(core).unwrap();
            sched_setaffinity(Pid::from_raw(0), &set).unwrap();
            while !is_stopping.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        };
        thread::Builder::new().name(name.into()).spawn(body).unwrap()
    }

    #[test]
    fn a_thread_that_shares_its_core_with_others_pauses_and_one_that_sleeps_does_not() {
        let clock = Clock::start();
        let watch = PauseWatch::start(clock).unwrap();
        let is_stopping = Arc::new(AtomicBool::new(false));
        let core = (0..CpuSet::count())
            .find(|&core| sched_getaffinity(Pid::from_raw(0)).unwrap().is_set(core).unwrap())
            .unwrap();
        let sleeper = {
            let is_stopping = Arc::clone(&is_stopping);
            let body = move || {
                while !is_stopping.load(Ordering::Relaxed) {
                    thread::sleep(Duration::from_millis(200));
                }
            };
            thread::Builder::new().name("probe-asleep".into()).spawn(body).unwrap()
        };
        // Each of nine threads waits for the one core.
        let threads: Vec<_> = (0..9).map(|_| busy("probe-busy", core, &is_stopping)).collect();
        let seen = wait_for("a pause", DEADLINE, || {
            let pauses = watch.within(Window { start: 0, end: clock.now() });
            pauses.iter().any(|it| it.of.starts_with("probe-busy")).then_some(pauses)
        });
        is_stopping.store(true, Ordering::Relaxed);
        threads.into_iter().chain([sleeper]).for_each(|thread| thread.join().unwrap());
        let seen = seen.unwrap();
        assert!(!seen.iter().any(|it| it.of.starts_with("probe-asleep") && it.length() > 150_000));
        watch.forget_before(clock.now() + 1);
        assert_eq!(watch.within(Window { start: 0, end: clock.now() }), []);
    }

    #[test]
    fn routing_daemons_of_a_switch_are_watched() {
        let lab = crate::Lab::open().unwrap();
        for (kind, role, daemons) in [(SwitchKind::Bird, "bird", 1), (SwitchKind::Frr, "frr", 3)] {
            let namespace = lab.namespace(role).unwrap();
            namespace.ip("link add br0 type bridge").unwrap();
            namespace.ip("addr add 10.9.0.254/24 dev br0").unwrap();
            namespace.ip("link set br0 up").unwrap();
            let switch = Switch::start(&lab, namespace, kind, Network::Access, 2, PACKAGED_BFD, "");
            let switch = switch.unwrap();
            // A child has another name until it has executed the daemon.
            wait_for("daemons of a switch under watch", DEADLINE, || {
                let mut threads = BTreeMap::new();
                search(&mut threads);
                let processes = switch.namespace.process_ids();
                let is_watched = |&&process: &&i32| threads.contains_key(&(process, process));
                (processes.iter().filter(is_watched).count() == daemons).then_some(())
            })
            .unwrap();
        }
    }

    #[test]
    fn family_includes_descendants_of_children() {
        let mut shell = Command::new("sh").args(["-c", "sleep 60 & wait"]).spawn().unwrap();
        let shell_id = shell.id() as i32;
        let child = wait_for("a child", DEADLINE, || {
            let family = family(shell_id);
            family.get(1).copied()
        });
        let child = child.unwrap();
        assert!(family(std::process::id() as i32).contains(&child));
        nix::sys::signal::kill(Pid::from_raw(child), nix::sys::signal::Signal::SIGKILL).unwrap();
        shell.wait().unwrap();
    }
}

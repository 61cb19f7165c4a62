//! The guard: a small process that alone holds the TUN device and the netlink socket, and ends with
//! its node.
//!
//! ```text
//!   node --- socket (standard input) ---> requests --\
//!   node <-- answers, "fenced" ---------------------- guard --- netlink ---> tables 4242, 4243
//!   workers --- heartbeats, fences ------------------/                         on weir0 ---> BIRD
//!               (standard output, mapped)
//! ```
//!
//! Routes are withdrawn when their owner ends, in whatever way:
//!
//! | end of | reaction of the guard |
//! |---|---|
//! | the node's process | the socket closes: withdraw all routes, end |
//! | a worker's thread | fence the worker, withdraw its routes (1) |
//! | a worker's turns | fence it, make its routes a last resort; later kill the process (2) |
//! | the guard | the kernel removes the TUN device and its routes; the node starts another guard |
//!
//! (1) Within a tenth of `silence` (`life.rs`): sooner than the socket shows the end of the
//! process. (2) It is fenced after `silence`, and the process is killed when the worker's grace has
//! passed as well (`watchdog.rs`).
//!
//! A silent worker may continue in a moment, and the workers that would serve instead may be
//! silent, too, which the guard cannot see. So its routes stay, with metrics that are worse than
//! those of any role ([`Route::last_resort`]): switches prefer every other worker that announces
//! the shard, and no shard is without a route because all its members waited for a core.
//!
//! The guard's own turns are counted in the shared words: a node replaces a guard that stalls. When
//! the node ends while the guard is stopped (SIGSTOP), the kernel resumes the guard (SIGCONT), and
//! it withdraws all routes.
//!
//! The device is not persistent, so that its routes go with the guard: for the moment without a
//! guard the replicas are announced instead. The guard never waits for the node: it never blocks on
//! its socket, and it blocks the signals that end a node, so that a stopping node can move its
//! shards before its routes are withdrawn.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::mman::{MlockAllFlags, mlockall};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::{Pid, getppid};
use weir_log::{LineQueue, Priority, is_journal};

use crate::frames::Frames;
use crate::kernel_tables::KernelTables;
use crate::options::GuardOptions;
use crate::protocol::{FAILURES_MAX, GuardAnswer, GuardRequest, ProtocolError, RouteFailure};
use crate::pulse::Pulse;
use crate::route::{Route, WorkerIndex};
use crate::shared_words::{Decider, Fence, SharedWords};
use crate::watchdog::{Alarm, Watchdog};

/// How long to wait for a device name that an ending guard still holds.
const DEVICE_PATIENCE: Duration = Duration::from_secs(2);
const DEVICE_POLL: Duration = Duration::from_millis(10);
/// Longest interval between two of the guard's own heartbeats.
const BEAT: Duration = Duration::from_millis(100);
/// A deciding thread of the node that has made no turn for so long is reported in the log.
const DECIDER_SILENCE: Duration = Duration::from_secs(5);
/// Longest wait for the reader of the log when the guard ends.
const FLUSH_MAX: Duration = Duration::from_millis(200);

/// Why a guard ended, other than by its node's request or end.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// Standard input is no socket, or standard output holds no heartbeats: no node started this
    /// guard.
    #[error("the guard is started by a weir node, not by hand: {0}")]
    NotANode(io::Error),
    /// The node speaks another version of the protocol.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// The TUN device cannot be created.
    #[error(
        "TUN device {interface}: {source} (it takes /dev/net/tun, CAP_NET_ADMIN and a free name)"
    )]
    Device {
        /// Name of the device.
        interface: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The socket to the node or to the kernel failed.
    #[error("the guard's sockets: {0}")]
    Socket(#[from] io::Error),
}

/// Runs a guard until its node ends or tells it to quit. `socket` and `words` are the descriptors
/// that [`Guard::start`](crate::Guard::start) passes to the process as standard input and standard
/// output.
///
/// # Errors
/// [`GuardError`], which has been logged already. The routes are gone in any case when this
/// returns.
pub fn run(socket: OwnedFd, words: OwnedFd) -> Result<(), GuardError> {
    let unblocked = protect_from_signals();
    // Start the log's thread after the signals are blocked: otherwise the thread would receive
    // them.
    let log = GuardLog::start()?;
    unblocked.iter().for_each(|refused| log.write(refused));
    let ended = watch_until_the_end(socket, words, &log);
    if let Err(error) = &ended {
        log.write(&error.to_string());
    }
    log.flush();
    ended
}

fn watch_until_the_end(socket: OwnedFd, words: OwnedFd, log: &GuardLog) -> Result<(), GuardError> {
    let words = SharedWords::open(words).map_err(GuardError::NotANode)?;
    let frames = &mut Frames::new(UnixStream::from(socket)).map_err(GuardError::NotANode)?;
    protect_memory().iter().for_each(|refused| log.write(refused));
    let Some(options) = first_request(frames)? else {
        return Ok(());
    };
    let tables = match open_device(&options, words.workers()) {
        Ok(tables) => tables,
        Err(source) => {
            let error = GuardError::Device { interface: options.interface, source };
            frames.send(&GuardAnswer::CannotStart(error.to_string()).encode())?;
            frames.wait(Some(Duration::ZERO))?;
            return Err(error);
        }
    };
    words.beat_guard();
    frames.send(&GuardAnswer::Started.encode())?;
    let watchdog = Watchdog::new(words.workers(), options.silence, options.kill_after);
    let deciders = Decider::ALL.map(|decider| (decider, Pulse::new(BEAT), false));
    let (node, start) = (getppid(), Instant::now());
    let mut guard = RunningGuard { frames, words, tables, watchdog, deciders, node, start, log };
    let result = guard.run();
    // The end of the device would remove the routes, too; a withdrawal reaches BIRD some
    // milliseconds earlier.
    let withdrawn = guard.tables.withdraw_all();
    result?;
    withdrawn?;
    Ok(())
}

/// The log on standard error, which is the node's: a guard never waits for its reader.
struct GuardLog {
    queue: LineQueue,
    /// Prefix of a line: every line is a warning, marked as one if the journal reads it.
    mark: &'static str,
}

impl GuardLog {
    fn start() -> io::Result<Self> {
        let mark = if is_journal(io::stderr()) { Priority::Warning.prefix() } else { "" };
        let lost = move |lost| {
            format!("{mark}weir guard: {lost} lines of its log are lost here\n").into_bytes()
        };
        let queue = LineQueue::start("weir-guard-log", io::stderr(), lost, || ())?;
        Ok(Self { queue, mark })
    }

    fn write(&self, text: &str) {
        let mark = self.mark;
        self.queue.push(format!("{mark}weir guard: {text}\n").as_bytes());
    }

    fn flush(&self) {
        self.queue.flush(FLUSH_MAX);
    }
}

/// Formats a refusal for standard error, one line each: it costs a little safety, not the service.
fn refused(what: &str, error: &dyn std::fmt::Display) -> String {
    format!("{what}: {error}")
}

/// Blocks the signals that end a node, and has the kernel resume a stopped guard when its node
/// ends.
fn protect_from_signals() -> Vec<String> {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        signals.add(signal);
    }
    let blocked = signals.thread_block().map_err(|error| refused("signals", &error));
    let woken = set_pdeathsig(Signal::SIGCONT)
        .map_err(|error| refused("stays stopped, if it is, when its node ends", &error));
    [blocked.err(), woken.err()].into_iter().flatten().collect()
}

fn protect_memory() -> Vec<String> {
    let kept = fs::write("/proc/self/oom_score_adj", "-1000")
        .map_err(|error| refused("may be killed when memory runs out (CAP_SYS_RESOURCE)", &error));
    let locked = mlockall(MlockAllFlags::MCL_CURRENT | MlockAllFlags::MCL_FUTURE)
        .map_err(|error| refused("may be swapped out (CAP_IPC_LOCK)", &error));
    [kept.err(), locked.err()].into_iter().flatten().collect()
}

/// Waits for the options; `None` if the node ended before it sent a request.
fn first_request(frames: &mut Frames) -> Result<Option<GuardOptions>, GuardError> {
    loop {
        if let Some(frame) = frames.next()? {
            return match GuardRequest::decode(&frame)? {
                GuardRequest::Start(options) => Ok(Some(options)),
                _ => Err(ProtocolError::Value.into()),
            };
        }
        if frames.is_closed() {
            return Ok(None);
        }
        frames.wait(None)?;
    }
}

fn open_device(options: &GuardOptions, workers: usize) -> io::Result<KernelTables> {
    let start = Instant::now();
    loop {
        match KernelTables::open(&options.interface, options.tables, workers) {
            Err(error)
                if error.raw_os_error() == Some(Errno::EBUSY as i32)
                    && start.elapsed() < DEVICE_PATIENCE =>
            {
                std::thread::sleep(DEVICE_POLL);
            }
            result => return result,
        }
    }
}

/// A running guard.
struct RunningGuard<'a> {
    frames: &'a mut Frames,
    words: SharedWords,
    tables: KernelTables,
    watchdog: Watchdog,
    /// Each deciding thread with its pulse, and whether it was reported as stalled.
    deciders: [(Decider, Pulse, bool); Decider::ALL.len()],
    node: Pid,
    start: Instant,
    log: &'a GuardLog,
}

impl RunningGuard<'_> {
    /// Runs until the node sends quit or its socket closes.
    fn run(&mut self) -> Result<(), GuardError> {
        loop {
            let interval = self.watchdog.interval().map_or(BEAT, |interval| interval.min(BEAT));
            self.frames.wait(Some(interval))?;
            self.words.beat_guard();
            self.look()?;
            while !self.frames.is_congested() {
                let Some(frame) = self.frames.next()? else { break };
                let request = GuardRequest::decode(&frame)?;
                let is_last = matches!(request, GuardRequest::Quit { .. });
                let answer = self.answer(request)?;
                self.frames.send(&answer.encode())?;
                if is_last {
                    return Ok(());
                }
            }
            if self.frames.is_closed() {
                return Ok(());
            }
        }
    }

    fn look(&mut self) -> Result<(), GuardError> {
        let words = &self.words;
        let now = self.start.elapsed();
        look_at_deciders(words, &mut self.deciders, now, self.node, self.log);
        let alarms = self.watchdog.look(
            now,
            |worker| words.beat(worker),
            |worker| words.is_over(worker),
            |worker| words.stake(worker),
        );
        for alarm in alarms {
            match alarm {
                Alarm::Silent(worker) => {
                    let fence = self.words.raise_fence(worker);
                    let failures = self.tables.make_last_resort(worker)?;
                    report(self.log, &failures);
                    self.frames.send(&GuardAnswer::Fenced { worker, fence }.encode())?;
                }
                Alarm::Gone(worker) => {
                    let fence = self.words.raise_fence(worker);
                    let failures = self.tables.withdraw(worker)?;
                    report(self.log, &failures);
                    self.frames.send(&GuardAnswer::Fenced { worker, fence }.encode())?;
                }
                Alarm::Hung(worker) => self.kill_node(worker),
            }
        }
        Ok(())
    }

    /// Kills the node. Its process id is still valid as long as it is our parent: the guard of a
    /// dead node has another parent.
    fn kill_node(&self, worker: WorkerIndex) {
        if getppid() != self.node {
            return;
        }
        self.log.write(&format!("worker {worker} hangs: the process {} is killed", self.node));
        if let Err(error) = kill(self.node, Signal::SIGKILL) {
            self.log.write(&format!("it is not: {error}"));
        }
    }

    fn answer(&mut self, request: GuardRequest) -> Result<GuardAnswer, GuardError> {
        match request {
            GuardRequest::Start(_) => Err(ProtocolError::Value.into()),
            GuardRequest::Set { number, worker, fence, routes } => {
                self.known(worker)?;
                self.set(number, worker, fence, &routes)
            }
            GuardRequest::Withdraw { number, worker } => {
                self.known(worker)?;
                let failures = self.tables.withdraw(worker)?;
                self.watchdog.unwatch(worker);
                Ok(done(number, failures, self.tables.count(worker)))
            }
            GuardRequest::WithdrawAll { number } | GuardRequest::Quit { number } => {
                let failures = self.tables.withdraw_all()?;
                (0..self.words.workers())
                    .for_each(|worker| self.watchdog.unwatch(worker as WorkerIndex));
                let left = failures.len();
                Ok(done(number, failures, left))
            }
        }
    }

    fn set(
        &mut self,
        number: u32,
        worker: WorkerIndex,
        fence: Fence,
        routes: &[Route],
    ) -> Result<GuardAnswer, GuardError> {
        let current = self.words.fence(worker);
        if fence != current {
            return Ok(GuardAnswer::Refused { number, worker, fence: current });
        }
        let failures = self.tables.set(worker, routes)?;
        if self.tables.count(worker) == 0 {
            self.watchdog.unwatch(worker);
        } else {
            self.watchdog.watch(worker, self.words.beat(worker));
        }
        Ok(done(number, failures, self.tables.count(worker)))
    }

    fn known(&self, worker: WorkerIndex) -> Result<(), GuardError> {
        let is_known = usize::from(worker) < self.words.workers();
        if is_known { Ok(()) } else { Err(ProtocolError::Value.into()) }
    }
}

/// Reports deciding threads that stall, and those that continue.
fn look_at_deciders(
    words: &SharedWords,
    deciders: &mut [(Decider, Pulse, bool)],
    now: Duration,
    node: Pid,
    log: &GuardLog,
) {
    for (decider, pulse, is_named) in deciders {
        let beat = words.decider_beat(*decider);
        let is_still = pulse.look(now, beat) >= DECIDER_SILENCE && beat != 0;
        if is_still != std::mem::replace(is_named, is_still) {
            let what = if is_still { "stands still" } else { "goes on" };
            log.write(&format!("thread {} of process {node} {what}", decider.name()));
        }
    }
}

fn done(number: u32, failures: Vec<RouteFailure>, routes: usize) -> GuardAnswer {
    if failures.is_empty() {
        return GuardAnswer::Done { number, routes: routes as u32 };
    }
    let total = failures.len() as u32;
    GuardAnswer::Failed {
        number,
        total,
        failures: failures.into_iter().take(FAILURES_MAX).collect(),
    }
}

/// Logs failures that no request waits for.
fn report(log: &GuardLog, failures: &[RouteFailure]) {
    for failure in failures.iter().take(FAILURES_MAX) {
        log.write(&failure.to_string());
    }
}

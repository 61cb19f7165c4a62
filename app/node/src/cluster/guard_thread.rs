//! The thread that owns the guard: it hands lists of routes to the guard and reports the results.
//!
//! ```text
//!   roles thread --SetRoutes--> [newest list of each worker] --> guard thread --> guard process
//!        ^                                                           |
//!        +-------------------- GuardNews ----------------------------+
//! ```
//!
//! Only the newest list of a worker counts, so a slow guard is never behind by more than one list.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use weir_node_core::GuardReport;
use weir_replication::STALL_US;
use weir_routes::{
    Fence, Guard, GuardEvent, GuardOptions, RequestError, Route, SharedWords, WorkerIndex,
};

use crate::failure::Failure;
use crate::turns::{Thread, Turns};

/// Longest wait between two checks for new lists.
const WAIT: Duration = Duration::from_millis(500);

/// Routes of a worker, to be set under the fence that it acknowledged last.
#[derive(Debug)]
struct FencedRoutes {
    number: u64,
    fence: Fence,
    routes: Vec<Route>,
}

/// Lists that wait, and whether the thread is to end.
#[derive(Debug, Default)]
struct GuardQueue {
    lists: BTreeMap<WorkerIndex, FencedRoutes>,
    is_over: bool,
}

/// Handle of the thread. Dropping it withdraws all routes and ends the guard.
#[derive(Debug)]
pub(super) struct GuardThread {
    orders: Arc<Mutex<GuardQueue>>,
    waker: UnixStream,
    thread: Option<JoinHandle<()>>,
}

/// Starts the guard process, best before the node is large and has threads.
///
/// # Errors
/// When the guard does not start, with the reason.
pub(super) fn start_guard(words: Arc<SharedWords>) -> Result<Guard, Failure> {
    let program = std::env::current_exe().map_err(Failure::Control)?;
    let command = move || {
        let mut command = Command::new(&program);
        command.arg("guard");
        command
    };
    // The guard fences after the same time that a worker takes for a stall: a worker that finds
    // that it stalled must not go on as if the guard had not fenced it.
    let silence = Duration::from_micros(STALL_US);
    Guard::start(command, words, GuardOptions { silence, ..GuardOptions::default() })
        .map_err(|error| Failure::Cluster(format!("guard of the routes: {error}")))
}

impl GuardThread {
    /// # Errors
    /// When the system gives no thread or socket.
    pub(super) fn start(
        guard: Guard,
        turns: Arc<Turns>,
        report: impl Fn(GuardReport) + Send + 'static,
    ) -> io::Result<Self> {
        let (waker, woken) = UnixStream::pair()?;
        waker.set_nonblocking(true)?;
        woken.set_nonblocking(true)?;
        let orders = Arc::<Mutex<GuardQueue>>::default();
        let its_orders = Arc::clone(&orders);
        let thread = std::thread::Builder::new().name("weir-routes".into()).spawn(move || {
            run(guard, &its_orders, woken, &turns, &report);
            turns.ended(Thread::Routes);
        })?;
        Ok(Self { orders, waker, thread: Some(thread) })
    }

    /// Makes `routes`, sorted, all the routes of a worker. `number` comes back in the event. There
    /// is no event if the worker has been fenced since: it acknowledges that fence, or its process
    /// ends.
    pub(super) fn set(&self, worker: WorkerIndex, number: u64, fence: Fence, routes: Vec<Route>) {
        self.order(|orders| {
            orders.lists.insert(worker, FencedRoutes { number, fence, routes });
        });
    }

    fn order(&self, change: impl FnOnce(&mut GuardQueue)) {
        change(&mut self.orders.lock().unwrap_or_else(PoisonError::into_inner));
        // A full pipe has woken the thread already.
        let _ = (&self.waker).write(&[1]);
    }
}

impl Drop for GuardThread {
    fn drop(&mut self) {
        self.order(|orders| orders.is_over = true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(
    mut guard: Guard,
    orders: &Mutex<GuardQueue>,
    mut woken: UnixStream,
    turns: &Turns,
    report: &dyn Fn(GuardReport),
) {
    loop {
        turns.turned(Thread::Routes);
        let mut bytes = [0; 64];
        while woken.read(&mut bytes).is_ok_and(|read| read == bytes.len()) {}
        let (lists, is_over) = {
            let mut orders = orders.lock().unwrap_or_else(PoisonError::into_inner);
            (std::mem::take(&mut orders.lists), orders.is_over)
        };
        if is_over {
            // The remaining routes go with the guard in any case.
            let _ = guard.quit();
            return;
        }
        for (worker, FencedRoutes { number, fence, routes }) in lists {
            let result = match guard.set(worker, fence, routes) {
                Ok(()) => GuardReport::Set { worker, number },
                Err(RequestError::Fenced { .. }) => continue,
                Err(error) => GuardReport::NotSet { worker, number, why: error.to_string() },
            };
            report(result);
        }
        if let Some(event) = guard.wait(WAIT, Some(woken.as_fd())) {
            report(report_of(event));
        }
    }
}

fn report_of(event: GuardEvent) -> GuardReport {
    match event {
        GuardEvent::Fenced { worker, .. } => GuardReport::Fenced { worker },
        GuardEvent::Restarted { reason } => {
            GuardReport::Log { text: format!("the guard ended ({reason}) and was restarted") }
        }
        GuardEvent::Incomplete { worker, total, .. } => {
            GuardReport::Log { text: format!("worker {worker}: {total} routes were refused") }
        }
        GuardEvent::Silent => GuardReport::Silent,
        GuardEvent::Awake => GuardReport::Awake,
        GuardEvent::Absent { reason } => GuardReport::Absent { why: reason },
    }
}

//! The node's end of the guard: starts it, sends requests, starts another when it is gone.
//!
//! One thread owns a [`Guard`] and calls [`wait`](Guard::wait) between its requests. The guard has
//! no state that the node lacks: a new guard is given every worker's last list, under the fence it
//! was first set with. A list that the guard withdrew (a fence) is forgotten here, too, so a
//! restart never brings it back.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::difference::is_ordered;
use crate::guard_process::GuardProcess;
use crate::options::GuardOptions;
use crate::protocol::{GuardAnswer, GuardRequest, RouteFailure};
use crate::pulse::Pulse;
use crate::route::{ROUTES_MAX, Route, WorkerIndex};
use crate::shared_words::{Fence, SharedWords};

/// Time in which a guard has to answer; a slower one is stuck and is replaced.
const ANSWER_DEADLINE: Duration = Duration::from_secs(2);
/// Time between two looks at the guard's own heartbeat.
const LOOK: Duration = Duration::from_millis(100);
/// A guard without a heartbeat for so long has stalled: it withdraws nothing when a worker ends.
const SILENCE: Duration = Duration::from_millis(500);
/// Shortest time between two starts of a guard.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// A running guard process.
pub struct Guard {
    command: Box<dyn FnMut() -> Command + Send>,
    words: Arc<SharedWords>,
    options: GuardOptions,
    /// `None` while there is no guard: the last start failed.
    process: Option<GuardProcess>,
    last_start: Instant,
    /// The routes of each worker and the fence they were set under.
    wanted: Vec<Option<(Fence, Vec<Route>)>>,
    events: VecDeque<GuardEvent>,
    last_number: u32,
    pulse: Pulse,
    start: Instant,
    is_silent: bool,
}

/// What the guard did without a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GuardEvent {
    /// The worker was silent or died: it is fenced, and its routes are a last resort or withdrawn.
    Fenced {
        /// The worker.
        worker: WorkerIndex,
        /// How often it has been fenced, this time included.
        fence: Fence,
    },
    /// The guard was gone, and all routes with it; another guard has set them again.
    Restarted {
        /// How the old guard ended.
        reason: String,
    },
    /// The kernel refused some routes of the new guard. The others are set.
    Incomplete {
        /// The worker whose routes were refused.
        worker: WorkerIndex,
        /// Number of refused routes.
        total: u32,
        /// The first refused routes.
        failures: Vec<RouteFailure>,
    },
    /// The guard has stalled: routes stay as they are, even those of a worker that ends. The guard
    /// continues ([`GuardEvent::Awake`]), or is replaced.
    Silent,
    /// The guard that had stalled continues.
    Awake,
    /// There is no guard and no route. The start will be tried again.
    Absent {
        /// Why the guard does not start.
        reason: String,
    },
}

/// Why a request was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The worker has been fenced since: it must acknowledge the fence first.
    #[error(
        "worker {worker} was fenced: it has to acknowledge the fence before it announces routes again"
    )]
    Fenced {
        /// The worker.
        worker: WorkerIndex,
    },
    /// The kernel refused some routes. The others are set.
    #[error("the kernel refused {total} routes, the first: {}", show(.failures))]
    Kernel {
        /// Number of refused routes.
        total: u32,
        /// The first refused routes.
        failures: Vec<RouteFailure>,
    },
    /// The list is unsorted, has a key twice, a route that is not valid ([`Route::is_valid`]) or
    /// more than [`ROUTES_MAX`] routes, or the worker does not exist.
    #[error("a route list that is unsorted, wrong or too long, or a worker that does not exist")]
    Invalid,
    /// There is no guard at present; the list is kept for the next one.
    #[error("no guard process: {0}")]
    NoGuard(String),
}

impl Guard {
    /// Starts a guard. `command` returns the command that runs [`guard::run`](crate::guard::run);
    /// it is called for each start. Best called at the very start of the node, before the process
    /// is large and has threads.
    ///
    /// # Errors
    /// [`RequestError::NoGuard`] with the reason; nothing is left behind.
    pub fn start(
        command: impl FnMut() -> Command + Send + 'static,
        words: Arc<SharedWords>,
        options: GuardOptions,
    ) -> Result<Self, RequestError> {
        let mut guard = Self {
            command: Box::new(command),
            wanted: vec![None; words.workers()],
            words,
            options,
            process: None,
            last_start: Instant::now(),
            events: VecDeque::new(),
            last_number: 0,
            pulse: Pulse::new(LOOK),
            start: Instant::now(),
            is_silent: false,
        };
        guard.process = Some(guard.spawn().map_err(RequestError::NoGuard)?);
        Ok(guard)
    }

    /// Makes `routes` (sorted, see [`is_ordered`]) all the routes of a worker, and has the guard
    /// watch the worker if there are any. `fence` is the fence that the worker acknowledged last;
    /// at first it is [`Fence::default`]. Setting the same list again repairs what another process
    /// removed from the kernel.
    ///
    /// # Errors
    /// [`RequestError`]; after `NoGuard` the list is set as soon as there is a guard.
    pub fn set(
        &mut self,
        worker: WorkerIndex,
        fence: Fence,
        routes: Vec<Route>,
    ) -> Result<(), RequestError> {
        let wanted = self.wanted.get_mut(usize::from(worker)).ok_or(RequestError::Invalid)?;
        let is_sound = is_ordered(&routes) && routes.iter().all(Route::is_valid);
        if !is_sound || routes.len() > ROUTES_MAX {
            return Err(RequestError::Invalid);
        }
        *wanted = Some((fence, routes.clone()));
        self.request(|number| GuardRequest::Set { number, worker, fence, routes: routes.clone() })
    }

    /// Withdraws all routes of a worker.
    ///
    /// [`RequestError`]; without a guard there is no route either.
    pub fn withdraw(&mut self, worker: WorkerIndex) -> Result<(), RequestError> {
        *self.wanted.get_mut(usize::from(worker)).ok_or(RequestError::Invalid)? = None;
        self.request(|number| GuardRequest::Withdraw { number, worker })
    }

    /// Withdraws all routes of all workers.
    ///
    /// # Errors
    /// [`RequestError`]; without a guard there is no route either.
    pub fn withdraw_all(&mut self) -> Result<(), RequestError> {
        self.wanted.fill(None);
        self.request(|number| GuardRequest::WithdrawAll { number })
    }

    /// Waits for the next event, for `timeout` at most, and only until `waker` is readable: so a
    /// thread can wait for its own commands at the same time. Restarts a guard that is gone.
    pub fn wait(&mut self, timeout: Duration, waker: Option<BorrowedFd<'_>>) -> Option<GuardEvent> {
        let end = Instant::now() + timeout;
        while self.events.is_empty() {
            let left = end.saturating_duration_since(Instant::now());
            let Some(process) = &mut self.process else {
                std::thread::sleep(left.min(self.pause()));
                if !self.pause().is_zero() {
                    break;
                }
                self.restart("there was none".to_owned());
                continue;
            };
            match process.wait(left.min(LOOK), waker).and_then(|is_woken| {
                self.receive(None)?;
                Ok(is_woken)
            }) {
                Ok(is_woken) => {
                    self.look_at_guard();
                    if is_woken || left.is_zero() {
                        break;
                    }
                }
                Err(reason) => self.restart(reason),
            }
        }
        self.events.pop_front()
    }

    /// Notices a guard that has stalled, and replaces it if the stall lasts as long as an answer
    /// may take.
    fn look_at_guard(&mut self) {
        let silent = self.pulse.look(self.start.elapsed(), self.words.guard_beat());
        if silent >= ANSWER_DEADLINE {
            return self.restart(format!("it stood still for {ANSWER_DEADLINE:?}"));
        }
        let is_silent = silent >= SILENCE;
        if is_silent != std::mem::replace(&mut self.is_silent, is_silent) {
            self.events.push_back(if is_silent { GuardEvent::Silent } else { GuardEvent::Awake });
        }
    }

    /// Returns the time until a guard may be started again.
    fn pause(&self) -> Duration {
        RETRY_INTERVAL.saturating_sub(self.last_start.elapsed())
    }

    /// Returns the routes of a worker as last set here, unless it was fenced since.
    pub fn wanted(&self, worker: WorkerIndex) -> &[Route] {
        match self.wanted.get(usize::from(worker)) {
            Some(Some((_, routes))) => routes,
            _ => &[],
        }
    }

    /// Returns the process id of the guard, if there is one.
    pub fn process_id(&self) -> Option<u32> {
        self.process.as_ref().map(|process| process.id())
    }

    /// Withdraws all routes and ends the guard. A guard that does not answer is ended, too, as when
    /// this is dropped.
    ///
    /// # Errors
    /// [`RequestError::NoGuard`] if there was none, or a stuck one; then its routes went with it.
    pub fn quit(mut self) -> Result<(), RequestError> {
        let number = self.next_number();
        let answer = self.ask(&GuardRequest::Quit { number }, number);
        answer.map(drop).map_err(RequestError::NoGuard)
    }

    /// Sends a request and waits for the answer. If there is no guard, or it ends meanwhile, starts
    /// another one, which is given all lists; then the request needs no answer.
    fn request(&mut self, request: impl Fn(u32) -> GuardRequest) -> Result<(), RequestError> {
        let number = self.next_number();
        let answer = self.ask(&request(number), number);
        match answer {
            Ok(GuardAnswer::Refused { worker, fence, .. }) => {
                forget(&mut self.wanted, worker, fence);
                Err(RequestError::Fenced { worker })
            }
            Ok(GuardAnswer::Failed { total, failures, .. }) => {
                Err(RequestError::Kernel { total, failures })
            }
            Ok(_) => Ok(()),
            Err(reason) => {
                self.restart(reason.clone());
                if self.process.is_some() { Ok(()) } else { Err(RequestError::NoGuard(reason)) }
            }
        }
    }

    fn ask(&mut self, request: &GuardRequest, number: u32) -> Result<GuardAnswer, String> {
        let process = self.process.as_mut().ok_or_else(|| "there is none".to_owned())?;
        process.send(request)?;
        let end = Instant::now() + ANSWER_DEADLINE;
        loop {
            if let Some(answer) = self.receive(Some(number))? {
                return Ok(answer);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(format!("it did not answer within {ANSWER_DEADLINE:?}"));
            }
            self.process.as_mut().ok_or_else(|| "it is gone".to_owned())?.wait(left, None)?;
        }
    }

    /// Reads the messages that have arrived, up to the answer to `number`. Fences become events.
    fn receive(&mut self, number: Option<u32>) -> Result<Option<GuardAnswer>, String> {
        let Some(process) = &mut self.process else { return Ok(None) };
        while let Some(answer) = process.next()? {
            match answer {
                GuardAnswer::Fenced { worker, fence } => {
                    forget(&mut self.wanted, worker, fence);
                    self.events.push_back(GuardEvent::Fenced { worker, fence });
                }
                GuardAnswer::Done { number: of, .. }
                | GuardAnswer::Failed { number: of, .. }
                | GuardAnswer::Refused { number: of, .. }
                    if Some(of) == number =>
                {
                    return Ok(Some(answer));
                }
                // A late answer: its request has timed out.
                _ => {}
            }
        }
        if process.is_closed() { Err("it ended".to_owned()) } else { Ok(None) }
    }

    /// Ends what is left of the guard, starts another one and gives it all lists. Does not start
    /// one soon after the last start: routes that come and go many times a second are worse for the
    /// switches than none.
    fn restart(&mut self, reason: String) {
        let is_early = !self.pause().is_zero();
        if let Some(mut process) = self.process.take() {
            if is_early {
                self.events.push_back(GuardEvent::Absent { reason: reason.clone() });
            }
            // The end of the process closes the device, which removes the old routes.
            process.kill();
        }
        if is_early {
            return;
        }
        let started = self.spawn().and_then(|process| {
            self.process = Some(process);
            self.set_all()
        });
        match started {
            Ok(()) => self.events.push_back(GuardEvent::Restarted { reason }),
            Err(why) => {
                self.process = None;
                self.events
                    .push_back(GuardEvent::Absent { reason: format!("{reason}; then: {why}") });
            }
        }
    }

    fn set_all(&mut self) -> Result<(), String> {
        for at in 0..self.wanted.len() {
            let Some((fence, routes)) = self.wanted[at].clone() else { continue };
            let (number, worker) = (self.next_number(), at as WorkerIndex);
            match self.ask(&GuardRequest::Set { number, worker, fence, routes }, number)? {
                // The old guard fenced the worker and ended before it reported it.
                GuardAnswer::Refused { fence, .. } => {
                    forget(&mut self.wanted, worker, fence);
                    self.events.push_back(GuardEvent::Fenced { worker, fence });
                }
                GuardAnswer::Failed { total, failures, .. } => {
                    self.events.push_back(GuardEvent::Incomplete { worker, total, failures });
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn next_number(&mut self) -> u32 {
        self.last_number = self.last_number.wrapping_add(1);
        self.last_number
    }

    fn spawn(&mut self) -> Result<GuardProcess, String> {
        self.last_start = Instant::now();
        self.pulse.begin_again();
        self.is_silent = false;
        GuardProcess::spawn((self.command)(), &self.words, &self.options)
    }
}

/// Forgets the list of a fenced worker. A list that was set under this fence stays.
fn forget(wanted: &mut [Option<(Fence, Vec<Route>)>], worker: WorkerIndex, fence: Fence) {
    if let Some(list) = wanted.get_mut(usize::from(worker))
        && list.as_ref().is_some_and(|(under, _)| *under != fence)
    {
        *list = None;
    }
}

fn show(failures: &[RouteFailure]) -> String {
    failures.first().map(RouteFailure::to_string).unwrap_or_default()
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guard").field("process_id", &self.process_id()).finish_non_exhaustive()
    }
}

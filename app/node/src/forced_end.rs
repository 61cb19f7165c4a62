//! Bounds the end of the process, whatever its threads do: a process that is asked to end does so
//! in time.
//!
//! ```text
//!   SIGTERM, SIGINT --> weir-signals --+
//!   the end of the node begins --------+--> deadline of the end --> weir-end: ends the process
//! ```
//!
//! The two threads wait for nothing else. A signal before the node listens to signals itself ends
//! the process at once, as if there were no handler.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level;

use weir_process::FORCED_END;

/// Time for the end of all parts once the hand-over is over: threads, ports, gigabytes of memory,
/// the block log, the shutdown notice to etcd.
pub(crate) const END_MAX: Duration = Duration::from_secs(20);

/// Handle of the two threads.
#[derive(Clone, Debug)]
pub(crate) struct ForcedEnd(Arc<ForcedEndShared>);

#[derive(Debug, Default)]
struct ForcedEndShared {
    state: Mutex<ForcedEndState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct ForcedEndState {
    /// Time that an orderly end needs, once the node listens to signals. None while it starts.
    patience: Option<Duration>,
    has_been_asked: bool,
    /// Time by which the process has ended, or is ended.
    deadline: Option<Instant>,
}

/// Reason why the process is ended by force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// No part that could end in order runs yet.
    SignalAtStart,
    /// It did not end in time.
    Late,
}

/// Effect of a signal.
#[derive(Debug, PartialEq, Eq)]
enum SignalEffect {
    /// No part that could end in order runs yet.
    EndNow,
    EndBy(Instant),
}

impl ForcedEnd {
    /// Starts the threads, which begin with `on_start`. `before_end` is called before the process
    /// is ended, and must not wait for long.
    ///
    /// # Errors
    /// When the system gives no thread or no handler.
    pub(crate) fn start(
        on_start: impl Fn() + Clone + Send + 'static,
        before_end: impl Fn(Why) + Clone + Send + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::<ForcedEndShared>::default();
        let mut signals = Signals::new([SIGTERM, SIGINT])?;
        let (its_shared, its_start, before_end_now) =
            (Arc::clone(&shared), on_start.clone(), before_end.clone());
        thread::Builder::new().name("weir-signals".into()).spawn(move || {
            its_start();
            for signal in signals.forever() {
                if its_shared.asked(Instant::now()) == SignalEffect::EndNow {
                    before_end_now(Why::SignalAtStart);
                    let _ = low_level::emulate_default_handler(signal);
                }
            }
        })?;
        let its_shared = Arc::clone(&shared);
        thread::Builder::new().name("weir-end".into()).spawn(move || {
            on_start();
            its_shared.wait();
            before_end(Why::Late);
            low_level::exit(FORCED_END.into());
        })?;
        Ok(Self(shared))
    }

    /// Notes that the node listens to signals itself from then on, and needs `patience` at most for
    /// an orderly end.
    pub(crate) fn node_listens(&self, patience: Duration) {
        self.0.lock().patience = Some(patience);
    }

    /// Notes that the end has begun, for any reason: the hand-over is over.
    pub(crate) fn end_begins(&self) {
        self.0.lock().end_by(Instant::now() + END_MAX);
        self.0.changed.notify_all();
    }
}

impl ForcedEndShared {
    fn lock(&self) -> MutexGuard<'_, ForcedEndState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn asked(&self, now: Instant) -> SignalEffect {
        let asked = self.lock().asked(now);
        self.changed.notify_all();
        asked
    }

    /// Returns once the deadline has passed.
    fn wait(&self) {
        let mut state = self.lock();
        loop {
            let now = Instant::now();
            state = match state.deadline {
                Some(deadline) if now >= deadline => return,
                Some(deadline) => {
                    let waited = self.changed.wait_timeout(state, deadline - now);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

impl ForcedEndState {
    /// Takes a signal. A second one takes the time for an orderly end away.
    fn asked(&mut self, now: Instant) -> SignalEffect {
        let Some(patience) = self.patience else { return SignalEffect::EndNow };
        let was_asked = std::mem::replace(&mut self.has_been_asked, true);
        SignalEffect::EndBy(self.end_by(if was_asked { now } else { now + patience } + END_MAX))
    }

    /// Sets the deadline, unless an earlier one is set, and returns it.
    fn end_by(&mut self, deadline: Instant) -> Instant {
        *self.deadline.insert(self.deadline.map_or(deadline, |set| set.min(deadline)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_while_the_node_starts_ends_it_at_once() {
        let mut state = ForcedEndState::default();
        assert_eq!(state.asked(Instant::now()), SignalEffect::EndNow);
        assert_eq!(state.deadline, None);
    }

    #[test]
    fn a_second_signal_and_the_begin_of_the_end_only_shorten_the_time() {
        let now = Instant::now();
        let patience = Duration::from_secs(60);
        let mut state = ForcedEndState { patience: Some(patience), ..ForcedEndState::default() };
        assert_eq!(state.asked(now), SignalEffect::EndBy(now + patience + END_MAX));
        let later = now + Duration::from_secs(5);
        assert_eq!(state.asked(later), SignalEffect::EndBy(later + END_MAX));
        let last = later + Duration::from_secs(5);
        assert_eq!(state.asked(last), SignalEffect::EndBy(later + END_MAX));
        assert_eq!(state.end_by(last + END_MAX), later + END_MAX);
    }

    #[test]
    fn the_wait_ends_when_its_time_is_over() {
        let shared = Arc::<ForcedEndShared>::default();
        let its_shared = Arc::clone(&shared);
        let waiting = thread::spawn(move || its_shared.wait());
        let deadline = Instant::now() + Duration::from_millis(50);
        shared.lock().end_by(deadline);
        shared.changed.notify_all();
        waiting.join().unwrap();
        assert!(Instant::now() >= deadline);
    }
}

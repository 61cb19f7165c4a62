//! A daemon that is restarted when it ends, as systemd does with `Restart=always` and
//! `RestartSec=100ms`.

use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::condition::wait_for;
use crate::lab::{Lab, Starter};
use crate::load::family;
use crate::process::Process;

/// Time between the end of a process and its next start.
const RESTART: Duration = Duration::from_millis(100);
/// Time between two checks.
const POLL: Duration = Duration::from_millis(5);
/// Time limit for a daemon to end after a signal to stop.
const STOP_DEADLINE: Duration = Duration::from_secs(90);

/// A supervised daemon. It is not restarted once this value and all its clones are dropped.
#[derive(Clone, Debug)]
pub struct Supervised {
    shared: Arc<Shared>,
}

struct Shared {
    name: String,
    starter: Starter,
    command: Box<dyn Fn() -> Command + Send + Sync>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    is_wanted: bool,
    starts: u32,
    process: Option<Process>,
    /// Why the last start failed.
    failure: Option<String>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Supervised {
    /// Starts the daemon. Start n writes the log `<name>-n.log`.
    pub fn start(
        lab: &Lab,
        name: &str,
        command: impl Fn() -> Command + Send + Sync + 'static,
    ) -> Result<Self> {
        let shared = Arc::new(Shared {
            name: name.to_owned(),
            starter: lab.starter(),
            command: Box::new(command),
            state: Mutex::new(State::default()),
        });
        let supervised = Self { shared };
        supervised.resume()?;
        let watched = Arc::downgrade(&supervised.shared);
        thread::Builder::new().name(format!("watch-{name}")).spawn(move || {
            loop {
                thread::sleep(POLL);
                let Some(shared) = watched.upgrade() else { return };
                if shared.is_down() {
                    // Like systemd: the delay passes before each restart.
                    thread::sleep(RESTART);
                    shared.restart();
                }
            }
        })?;
        Ok(supervised)
    }

    /// Returns the running process, or the last one.
    pub fn process(&self) -> Result<Process> {
        let state = self.shared.state();
        let process = state.process.clone();
        process.with_context(|| state.failure.clone().unwrap_or_default())
    }

    /// Whether the process runs.
    pub fn is_running(&self) -> bool {
        self.process().is_ok_and(|process| process.ended().is_none())
    }

    /// Returns the number of starts.
    pub fn starts(&self) -> u32 {
        self.shared.state().starts
    }

    /// Sends a signal to the process. If the signal ends it, it is restarted.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        self.process()?.signal(signal)
    }

    /// Sends a signal to the process and to all its descendants, the descendants first: so a guard
    /// does not see its node stop.
    pub fn signal_family(&self, signal: Signal) -> Result<()> {
        let mut family = family(self.process()?.id());
        family.reverse();
        for id in family {
            kill(Pid::from_raw(id), signal).with_context(|| format!("{signal} to {id}"))?;
        }
        Ok(())
    }

    /// Sends a signal and waits for the end of the process, without a restart.
    pub fn end(&self, signal: Signal) -> Result<()> {
        self.shared.state().is_wanted = false;
        let process = self.process()?;
        process.signal(signal)?;
        process.wait(STOP_DEADLINE)?;
        Ok(())
    }

    /// Starts the daemon again after [`end`](Self::end).
    pub fn resume(&self) -> Result<()> {
        let mut state = self.shared.state();
        state.is_wanted = true;
        self.shared.start(&mut state)
    }

    /// Waits until a start after the first `starts` has printed `line`.
    pub fn wait_line(&self, starts: u32, line: &str, deadline: Duration) -> Result<()> {
        wait_for(&format!("start of {}", self.shared.name), deadline, || {
            (self.starts() > starts).then_some(())
        })?;
        self.process()?.wait_line(line, deadline)
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_down(&self) -> bool {
        let state = self.state();
        state.is_wanted && state.process.as_ref().is_none_or(|process| process.ended().is_some())
    }

    fn restart(&self) {
        let mut state = self.state();
        let is_down = state.process.as_ref().is_none_or(|process| process.ended().is_some());
        if state.is_wanted && is_down {
            // A failed start is tried again; its error is returned to callers of `process`.
            let _ = self.start(&mut state);
        }
    }

    fn start(&self, state: &mut State) -> Result<()> {
        state.starts += 1;
        let name = format!("{}-{}", self.name, state.starts);
        match self.starter.start(&name, &mut (self.command)()) {
            Ok(process) => {
                state.process = Some(process);
                Ok(())
            }
            Err(error) => {
                state.failure = Some(format!("{error:#}"));
                Err(error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: Duration = Duration::from_secs(10);

    #[test]
    fn ended_process_is_started_again_until_it_is_asked_to_end() {
        let lab = Lab::open().unwrap();
        let supervised = Supervised::start(&lab, "sleeper", || {
            let mut command = Command::new("bash");
            command.args(["-c", "echo ready; sleep 1000"]);
            command
        });
        let supervised = supervised.unwrap();
        supervised.wait_line(0, "ready", DEADLINE).unwrap();
        let first = supervised.process().unwrap().id();
        supervised.signal(Signal::SIGKILL).unwrap();
        supervised.wait_line(1, "ready", DEADLINE).unwrap();
        assert_ne!(supervised.process().unwrap().id(), first);
        assert!(supervised.is_running());
        supervised.end(Signal::SIGTERM).unwrap();
        thread::sleep(3 * RESTART);
        assert!(!supervised.is_running());
        assert_eq!(supervised.starts(), 2);
        supervised.resume().unwrap();
        supervised.wait_line(2, "ready", DEADLINE).unwrap();
    }
}

//! A child process with its output in a file, which always ends with its value.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{BenchError, BenchPlan};

const POLL: Duration = Duration::from_millis(10);
/// Time limit for a process to end after SIGTERM.
const END_PATIENCE: Duration = Duration::from_secs(10);
const TAIL_LINES: usize = 20;

#[derive(Debug)]
pub(super) struct Process {
    name: &'static str,
    child: Child,
    output: PathBuf,
}

impl Process {
    /// Starts `command` with both outputs in the file `output`.
    pub(super) fn start(
        name: &'static str,
        mut command: Command,
        output: PathBuf,
    ) -> Result<Self, BenchError> {
        let mut open = || -> std::io::Result<Child> {
            let file = File::create(&output)?;
            command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).spawn()
        };
        let child =
            open().map_err(|source| BenchError::io(format!("{name} does not start"), source))?;
        Ok(Process { name, child, output })
    }

    /// Returns its whole output so far.
    pub(super) fn printed(&self) -> String {
        fs::read(&self.output)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// Waits until `is_ready` returns true; fails if the process ends before.
    pub(super) fn wait_until(
        &mut self,
        plan: &BenchPlan,
        patience: Duration,
        mut is_ready: impl FnMut(&Self) -> bool,
    ) -> Result<(), BenchError> {
        let start = Instant::now();
        while !is_ready(self) {
            plan.check_interrupted()?;
            if let Some(error) = self.early_end() {
                return Err(error);
            }
            if start.elapsed() > patience {
                return Err(BenchError::NotReady {
                    name: self.name.into(),
                    patience,
                    tail: self.tail(),
                });
            }
            thread::sleep(POLL);
        }
        Ok(())
    }

    /// Ends the process with SIGTERM; returns its whole output.
    pub(super) fn stop(&mut self) -> String {
        self.end();
        self.printed()
    }

    /// Returns an error with its exit status, if it has ended by itself.
    pub(super) fn early_end(&mut self) -> Option<BenchError> {
        let status = self.child.try_wait().ok().flatten()?;
        Some(self.ended(status))
    }

    pub(super) fn silent(&self, what: &'static str) -> BenchError {
        BenchError::Silent { name: self.name.into(), what, tail: self.tail() }
    }

    fn ended(&self, status: ExitStatus) -> BenchError {
        BenchError::Ended { name: self.name.into(), status: status.to_string(), tail: self.tail() }
    }

    fn tail(&self) -> String {
        tail(&self.printed())
    }

    fn end(&mut self) {
        if let Ok(Some(_)) = self.child.try_wait() {
            return;
        }
        // A child that has not been waited for still owns its process id.
        let _ = kill(Pid::from_raw(self.child.id() as i32), Signal::SIGTERM);
        let start = Instant::now();
        while start.elapsed() < END_PATIENCE {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(POLL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// Returns the last lines of an output.
pub(super) fn tail(output: &str) -> String {
    let lines: Vec<&str> = output.lines().collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}

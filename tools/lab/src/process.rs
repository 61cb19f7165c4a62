//! Processes: short ones that run to their end, and daemons with a log that are stopped with
//! SIGTERM first.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::condition::wait_for;

/// Time limit for a daemon to end after SIGTERM before it is killed.
const GRACE: Duration = Duration::from_secs(5);
/// Time between two checks whether a child has ended.
const CHILD_POLL: Duration = Duration::from_millis(5);
/// Lines of a log shown in an error.
const TAIL_LINES: usize = 40;

/// A program that has ended.
#[derive(Debug)]
pub struct Finished {
    /// Its exit status.
    pub status: ExitStatus,
    /// All it wrote to standard output.
    pub stdout: String,
    /// All it wrote to standard error.
    pub stderr: String,
}

impl Finished {
    /// Returns itself if the program ended with 0, otherwise an error with its output.
    pub fn success(self) -> Result<Self> {
        if !self.status.success() {
            bail!("{}\n{}{}", self.status, self.stdout.trim_end(), self.stderr.trim_end());
        }
        Ok(self)
    }
}

/// Runs a command to its end and collects its output. Past the deadline it is killed.
pub fn run(command: &mut Command, deadline: Duration) -> Result<Finished> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .with_context(|| format!("cannot start {command:?}"))?;
    let stdout = collect(child.stdout.take());
    let stderr = collect(child.stderr.take());
    let end = Instant::now() + deadline;
    let mut late = false;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        // The machine itself may have stood still since the child was looked at.
        if Instant::now() >= end && !late && child.try_wait()?.is_none() {
            late = true;
            child.kill()?;
        }
        thread::sleep(CHILD_POLL);
    };
    let text = |reader: thread::JoinHandle<Vec<u8>>| {
        String::from_utf8_lossy(&reader.join().unwrap_or_default()).into_owned()
    };
    let (stdout, stderr) = (text(stdout), text(stderr));
    if late {
        bail!("still running after {deadline:?}\n{stdout}{stderr}");
    }
    Ok(Finished { status, stdout, stderr })
}

fn collect(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // A broken pipe ends the text; the exit status shows the cause.
            let _ = pipe.read_to_end(&mut bytes);
        }
        bytes
    })
}

/// A daemon started by a lab, with its output in a file. Clones are handles to the same process.
#[derive(Clone, Debug)]
pub struct Process {
    name: String,
    log: PathBuf,
    id: i32,
    child: Arc<Mutex<Child>>,
}

impl Process {
    /// Starts `command` in its own process group (Ctrl-C is handled by the lab), with standard
    /// output and error in `log`.
    pub(crate) fn spawn(name: &str, command: &mut Command, log: PathBuf) -> Result<Self> {
        let file = File::create(&log).with_context(|| log.display().to_string())?;
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {name}: {command:?}"))?;
        Ok(Self {
            name: name.to_owned(),
            log,
            id: i32::try_from(child.id())?,
            child: Arc::new(Mutex::new(child)),
        })
    }

    /// Returns the name given at the start.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the process id.
    pub fn id(&self) -> i32 {
        self.id
    }

    /// Returns the path of the file with all its output.
    pub fn log_path(&self) -> &Path {
        &self.log
    }

    /// Returns its output so far.
    pub fn log(&self) -> String {
        fs::read(&self.log)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// Returns the last lines of its output.
    pub fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    }

    /// Waits until a line of the log is `text`; fails with the log if the process ends before, or
    /// at the deadline.
    pub fn wait_line(&self, text: &str, deadline: Duration) -> Result<()> {
        self.wait_log(text, deadline, |line| line.trim_end() == text)
    }

    /// Like [`wait_line`](Self::wait_line), for a line that contains `text`.
    pub fn wait_words(&self, text: &str, deadline: Duration) -> Result<()> {
        self.wait_log(text, deadline, |line| line.contains(text))
    }

    fn wait_log(
        &self,
        text: &str,
        deadline: Duration,
        matches: impl Fn(&str) -> bool,
    ) -> Result<()> {
        let what = format!("\"{text}\" from {}", self.name);
        let seen = wait_for(&what, deadline, || {
            // Checked before the log is read, so that the log contains the last output.
            let has_ended = self.ended().is_some();
            let is_there = self.log().lines().any(&matches);
            (is_there || has_ended).then_some(is_there)
        });
        match seen {
            Ok(true) => Ok(()),
            Ok(false) => bail!("{} ended before \"{text}\":\n{}", self.name, self.log_tail()),
            Err(error) => bail!("{error}:\n{}", self.log_tail()),
        }
    }

    /// Returns its exit status, if it has ended.
    pub fn ended(&self) -> Option<ExitStatus> {
        self.child().try_wait().ok().flatten()
    }

    /// Waits for the end.
    pub fn wait(&self, deadline: Duration) -> Result<ExitStatus> {
        wait_for(&format!("end of {}", self.name), deadline, || self.ended())
    }

    /// Sends a signal, if the process still runs.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        // The lock is held while signalling: the child cannot be reaped in between, so the id is
        // still its own.
        let mut child = self.child();
        if child.try_wait()?.is_none() {
            kill(Pid::from_raw(self.id), signal)
                .with_context(|| format!("{signal} to {}", self.name))?;
        }
        Ok(())
    }

    /// Sends SIGTERM, and SIGKILL if the process does not end.
    pub fn stop(&self) {
        // An error means that the process is gone, as wanted.
        let _ = self.signal(Signal::SIGTERM);
        if self.wait(GRACE).is_err() {
            let _ = self.signal(Signal::SIGKILL);
            let _ = self.wait(GRACE);
        }
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! Processes: short ones run to their end, daemons with a log and a gentle end.

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

/// Time a daemon has to end after SIGTERM before it is killed.
const GRACE: Duration = Duration::from_secs(5);
/// Time between two looks whether a child has ended.
const CHILD_POLL: Duration = Duration::from_millis(5);
/// Lines of a log shown in an error.
const TAIL_LINES: usize = 40;

/// A program that has ended.
#[derive(Debug)]
pub struct Finished {
    /// How it ended.
    pub status: ExitStatus,
    /// All it wrote to standard output.
    pub stdout: String,
    /// All it wrote to standard error.
    pub stderr: String,
}

impl Finished {
    /// Itself if the program ended with 0, otherwise an error with what it said.
    pub fn success(self) -> Result<Self> {
        if !self.status.success() {
            bail!("{}\n{}{}", self.status, self.stdout.trim_end(), self.stderr.trim_end());
        }
        Ok(self)
    }
}

/// Runs a command to its end and collects what it says. Past the deadline it is killed.
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
        if Instant::now() >= end && !late {
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
            // A pipe that breaks ends the text; the exit status tells the rest.
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
    /// Starts `command` in a process group of its own (a Ctrl-C is the lab's to handle), standard
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

    /// The name given at the start.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Process id.
    pub fn id(&self) -> i32 {
        self.id
    }

    /// File with everything it wrote.
    pub fn log_path(&self) -> &Path {
        &self.log
    }

    /// Everything it wrote until now.
    pub fn log(&self) -> String {
        fs::read(&self.log)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// The last lines it wrote.
    pub fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    }

    /// Waits until a line of the log is `text`; an error with the log if the process ends before,
    /// or at the deadline.
    pub fn wait_line(&self, text: &str, deadline: Duration) -> Result<()> {
        self.wait_log(text, deadline, |line| line.trim_end() == text)
    }

    /// As [`wait_line`](Self::wait_line), for a line that contains `text`.
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
            // Looked at before the log: what it wrote last is then in the log.
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

    /// How it ended, if it has.
    pub fn ended(&self) -> Option<ExitStatus> {
        self.child().try_wait().ok().flatten()
    }

    /// Waits for the end.
    pub fn wait(&self, deadline: Duration) -> Result<ExitStatus> {
        wait_for(&format!("end of {}", self.name), deadline, || self.ended())
    }

    /// Sends a signal, if it still runs.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        // Held while signalling: nobody reaps the child in between, so the id is still its own.
        let mut child = self.child();
        if child.try_wait()?.is_none() {
            kill(Pid::from_raw(self.id), signal)
                .with_context(|| format!("{signal} to {}", self.name))?;
        }
        Ok(())
    }

    /// SIGTERM, and SIGKILL for one that does not listen.
    pub fn stop(&self) {
        // A process that is gone is what is wanted.
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

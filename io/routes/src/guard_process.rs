//! The guard's process as its node sees it: started, asked, ended and reaped.
//!
//! Its socket is its standard input and the heartbeats are its standard output, so both reach it
//! without a descriptor that another child could inherit, too. Errors are sentences for the event
//! that reports them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use crate::frames::Frames;
use crate::options::GuardOptions;
use crate::protocol::{GuardAnswer, GuardRequest, ProtocolError};
use crate::shared_words::SharedWords;

/// Time in which a guard has to create its device.
const START_DEADLINE: Duration = Duration::from_secs(5);
/// Time in which a guard has to withdraw its routes after its socket was closed.
const END_DEADLINE: Duration = Duration::from_secs(1);
const END_POLL: Duration = Duration::from_millis(2);

/// A started guard.
pub(crate) struct GuardProcess {
    child: Child,
    frames: Frames,
}

impl GuardProcess {
    /// Starts a guard and waits until it has its device.
    pub(crate) fn spawn(
        mut command: Command,
        words: &SharedWords,
        options: &GuardOptions,
    ) -> Result<Self, String> {
        let io = |error: io::Error| error.to_string();
        let (ours, theirs) = UnixStream::pair().map_err(io)?;
        let frames = Frames::new(ours).map_err(io)?;
        let words = words.as_fd().try_clone_to_owned().map_err(io)?;
        command.stdin(OwnedFd::from(theirs)).stdout(words);
        // A Ctrl-C at the terminal is meant for the node alone.
        command.process_group(0);
        let child = command.spawn().map_err(|error| format!("{command:?}: {error}"))?;
        // Drop the command's copies of the guard's ends: they would keep the socket open.
        drop(command);
        let mut process = Self { child, frames };
        process.send(&GuardRequest::Start(options.clone()))?;
        process.wait_started()?;
        Ok(process)
    }

    fn wait_started(&mut self) -> Result<(), String> {
        let end = Instant::now() + START_DEADLINE;
        loop {
            match self.next()? {
                Some(GuardAnswer::Started) => return Ok(()),
                Some(GuardAnswer::CannotStart(reason)) => return Err(reason),
                Some(_) => return Err(ProtocolError::Value.to_string()),
                None if self.frames.is_closed() => return Err("it ended at once".to_owned()),
                None => {}
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(format!("it was not ready within {START_DEADLINE:?}"));
            }
            self.wait(left, None)?;
        }
    }

    /// Waits until the guard has sent something; returns whether the waker ended the wait.
    pub(crate) fn wait(
        &mut self,
        timeout: Duration,
        waker: Option<BorrowedFd<'_>>,
    ) -> Result<bool, String> {
        self.frames.wait_or_wake(Some(timeout), waker).map_err(|error| error.to_string())
    }

    /// Returns the guard's next message, if one has arrived.
    pub(crate) fn next(&mut self) -> Result<Option<GuardAnswer>, String> {
        let Some(frame) = self.frames.next().map_err(|error| error.to_string())? else {
            return Ok(None);
        };
        GuardAnswer::decode(&frame).map(Some).map_err(|error| error.to_string())
    }

    /// Sends a request, without waiting for the answer.
    pub(crate) fn send(&mut self, request: &GuardRequest) -> Result<(), String> {
        self.frames.send(&request.encode()).map_err(|error| error.to_string())
    }

    /// True if the guard is gone; its last messages may still be unread.
    pub(crate) fn is_closed(&self) -> bool {
        self.frames.is_closed()
    }

    /// Returns its process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills the guard without closing its socket first.
    pub(crate) fn kill(&mut self) {
        // The kill fails only if the process has ended, which is the aim.
        let _ = self.child.kill();
    }
}

impl Drop for GuardProcess {
    /// Closes the socket, which ends the guard in an orderly way; a stuck guard is killed. The
    /// process is reaped in both cases.
    fn drop(&mut self) {
        self.frames.close();
        let end = Instant::now() + END_DEADLINE;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < end {
            std::thread::sleep(END_POLL);
        }
        self.kill();
        let _ = self.child.wait();
    }
}

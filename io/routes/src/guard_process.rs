//! The process of a guard as its node sees it: started, spoken to, ended and reaped.
//!
//! Its socket is its standard input, the heartbeats are its standard output: so both reach it without a descriptor that
//! another child could inherit too. Errors are sentences, for the event that tells of them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use crate::frames::Frames;
use crate::options::Options;
use crate::protocol::{Answer, ProtocolError, Request};
use crate::shared_words::SharedWords;

/// Time a guard has to make its device.
const START_DEADLINE: Duration = Duration::from_secs(5);
/// Time a guard has to withdraw its routes after its socket closed.
const END_DEADLINE: Duration = Duration::from_secs(1);
const END_POLL: Duration = Duration::from_millis(2);

/// A started guard.
pub(crate) struct GuardProcess {
    child: Child,
    frames: Frames,
}

impl GuardProcess {
    /// Starts it and waits until it has its device.
    pub(crate) fn spawn(
        mut command: Command,
        words: &SharedWords,
        options: &Options,
    ) -> Result<Self, String> {
        let io = |error: io::Error| error.to_string();
        let (ours, theirs) = UnixStream::pair().map_err(io)?;
        let frames = Frames::new(ours).map_err(io)?;
        let words = words.as_fd().try_clone_to_owned().map_err(io)?;
        command.stdin(OwnedFd::from(theirs)).stdout(words);
        // A Ctrl-C at the terminal is for the node.
        command.process_group(0);
        let child = command.spawn().map_err(|error| format!("{command:?}: {error}"))?;
        // Its copies of the guard's ends have to go: they would keep the socket open.
        drop(command);
        let mut process = Self { child, frames };
        process.send(&Request::Start(options.clone()))?;
        process.wait_started()?;
        Ok(process)
    }

    fn wait_started(&mut self) -> Result<(), String> {
        let end = Instant::now() + START_DEADLINE;
        loop {
            match self.next()? {
                Some(Answer::Started) => return Ok(()),
                Some(Answer::CannotStart(reason)) => return Err(reason),
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

    /// Waits for something to read; tells whether the waker ended the wait.
    pub(crate) fn wait(
        &mut self,
        timeout: Duration,
        waker: Option<BorrowedFd<'_>>,
    ) -> Result<bool, String> {
        self.frames.wait_or_wake(Some(timeout), waker).map_err(|error| error.to_string())
    }

    /// The next thing it said, if it is there.
    pub(crate) fn next(&mut self) -> Result<Option<Answer>, String> {
        let Some(frame) = self.frames.next().map_err(|error| error.to_string())? else {
            return Ok(None);
        };
        Answer::decode(&frame).map(Some).map_err(|error| error.to_string())
    }

    /// Asks, without waiting for the answer.
    pub(crate) fn send(&mut self, request: &Request) -> Result<(), String> {
        self.frames.send(&request.encode()).map_err(|error| error.to_string())
    }

    /// Whether it is gone; its last words may still be there.
    pub(crate) fn is_closed(&self) -> bool {
        self.frames.is_closed()
    }

    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends it without a farewell.
    pub(crate) fn kill(&mut self) {
        // One that has ended is what is wanted.
        let _ = self.child.kill();
    }
}

impl Drop for GuardProcess {
    /// The closed socket ends the guard in an orderly way; one that is stuck is killed. Either way it is reaped.
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

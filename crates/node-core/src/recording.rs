//! What a node was told, as text: to be replayed where there is time to look.
//!
//! A recording is JSON, a line each: first what the node began with, then every event with its time, and a line for each
//! turn. The keys of the cluster are not in it; names, addresses and the map are.

use std::io::{self, BufRead, Write};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::action::Action;
use crate::event::Event;
use crate::node_core::{Core, Start};

/// A line of a recording. Times are those of the core, microseconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Line {
    /// The version of weir, and what the node began with.
    Start {
        version: String,
        at_us: u64,
        start: Box<Start>,
    },
    Event {
        at_us: u64,
        event: Event,
    },
    Turn {
        at_us: u64,
    },
}

/// Writes a recording, up to so many bytes.
#[derive(Debug)]
pub struct Recorder<W> {
    out: W,
    left: u64,
    /// Turns that follow turns with nothing between them are one.
    turned: bool,
}

impl<W: Write> Recorder<W> {
    /// # Errors
    /// When it cannot be written.
    pub fn new(out: W, bytes_max: u64, now: Duration, start: &Start) -> io::Result<Self> {
        let mut recorder = Self { out, left: bytes_max, turned: false };
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let start = Box::new(start.clone());
        recorder.write(&Line::Start { version, at_us: micros(now), start })?;
        Ok(recorder)
    }

    /// To be called with every event that the core is told.
    ///
    /// # Errors
    /// When it cannot be written, or is as long as it may be: nothing more is to be recorded.
    pub fn event(&mut self, now: Duration, event: &Event) -> io::Result<()> {
        self.turned = false;
        self.write(&Line::Event { at_us: micros(now), event: event.clone() })
    }

    /// To be called with every turn of the core.
    ///
    /// # Errors
    /// As for [`event`](Self::event).
    pub fn turn(&mut self, now: Duration) -> io::Result<()> {
        if std::mem::replace(&mut self.turned, true) {
            return Ok(());
        }
        self.write(&Line::Turn { at_us: micros(now) })
    }

    fn write(&mut self, line: &Line) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        self.left = self.left.checked_sub(text.len() as u64).ok_or_else(|| {
            io::Error::new(io::ErrorKind::FileTooLarge, "the recording is as long as it may be")
        })?;
        self.out.write_all(&text)
    }
}

fn micros(now: Duration) -> u64 {
    now.as_micros() as u64
}

/// Replays a recording; `tell` hears each line before it is played, and each action after the turn that led to it.
///
/// # Errors
/// Which line cannot be read, and why. A last line that was not written to its end ends the recording.
pub fn replay(
    text: impl BufRead,
    mut tell: impl FnMut(Duration, Told<'_>),
) -> io::Result<Option<Core>> {
    let mut core: Option<Core> = None;
    let mut lines = text.lines().enumerate().peekable();
    while let Some((number, line)) = lines.next() {
        let line: Line = match serde_json::from_str(&line?) {
            Ok(line) => line,
            Err(_) if lines.peek().is_none() => break,
            Err(error) => {
                let why = format!("line {}: {error}", number + 1);
                return Err(io::Error::new(io::ErrorKind::InvalidData, why));
            }
        };
        match (line, &mut core) {
            (Line::Start { at_us, start, .. }, None) => {
                core = Some(Core::new(Duration::from_micros(at_us), *start));
            }
            (Line::Event { at_us, event }, Some(core)) => {
                let now = Duration::from_micros(at_us);
                tell(now, Told::Event(&event));
                core.step(now, event);
            }
            (Line::Turn { at_us }, Some(core)) => {
                let now = Duration::from_micros(at_us);
                core.turn(now);
                while let Some(action) = core.next_action() {
                    tell(now, Told::Action(&action));
                }
            }
            (_, _) => {
                let why = format!("line {}: a recording begins with one start", number + 1);
                return Err(io::Error::new(io::ErrorKind::InvalidData, why));
            }
        }
    }
    Ok(core)
}

/// What a replay shows.
#[derive(Debug)]
pub enum Told<'a> {
    Event(&'a Event),
    Action(&'a Action),
}

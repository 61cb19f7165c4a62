//! Asks `weir where`, on all cores.

use std::fmt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;

use super::questions::Question;
use super::verdict::{About, Outcome, judge};
use crate::weir;

/// One question of so many is also asked of the address, and of the home.
const ALSO_EACH: usize = 10;
/// The blocks of a home are asked for from so long before a datagram until so long after.
const AROUND_US: u64 = 5_000_000;

/// A log to ask.
#[derive(Clone, Debug)]
pub struct NodeLog {
    /// Where it lies.
    pub path: PathBuf,
    /// Its node was lost for good.
    pub is_lost: bool,
}

/// Which logs are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Logs {
    /// Those of all nodes.
    All,
    /// Without that of the node that was lost.
    Remaining,
    /// Some of all.
    Part,
}

/// A question that was asked.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The question.
    pub question: Question,
    /// What was asked for.
    pub about: About,
    /// Of which logs.
    pub logs: Logs,
    /// What the answer is worth.
    pub outcome: Outcome,
    /// The command, and what it said.
    pub command: String,
    /// See [`command`](Self::command).
    pub said: String,
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let used = self.question.used;
        let at = Timestamp::from_microsecond(used.at_us as i64).unwrap_or_default();
        writeln!(f, "home {} sent from {} at {at}", used.home, used.public)?;
        write!(f, "{}\n{}", self.command, self.said.trim_end())
    }
}

/// Asks each question of all logs, of those that remain if one is lost, and of a random part of all.
///
/// # Errors
/// When the command cannot be started, fails, or says what it must not say.
pub fn ask_all(
    questions: &[Question],
    logs: &[NodeLog],
    clock_error: Duration,
    seed: u64,
) -> Result<Vec<Asked>> {
    let mut dice = fastrand::Rng::with_seed(seed);
    let mut tasks = Vec::new();
    for (position, question) in questions.iter().enumerate() {
        // Any part but none.
        let part = dice.u32(1..1 << logs.len());
        let mut add = |about, which| tasks.push((*question, about, which, part));
        add(About::Port, Logs::All);
        if logs.iter().any(|log| log.is_lost) {
            add(About::Port, Logs::Remaining);
        }
        add(About::Port, Logs::Part);
        if position % ALSO_EACH == 0 {
            add(About::Address, Logs::All);
            add(About::Home, Logs::All);
        }
    }
    let (next, answers) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || -> Result<()> {
        while let Some(task) = tasks.get(next.fetch_add(1, Ordering::Relaxed)) {
            let (question, about, which, part) = *task;
            let is_asked = |place: usize, log: &NodeLog| match which {
                Logs::All => true,
                Logs::Remaining => !log.is_lost,
                Logs::Part => part >> place & 1 == 1,
            };
            let chosen = logs.iter().enumerate().filter(|(place, log)| is_asked(*place, log));
            let chosen: Vec<_> = chosen.map(|(_, log)| log).collect();
            let asked = ask(question, about, which, &chosen, clock_error)?;
            answers.lock().unwrap_or_else(PoisonError::into_inner).push(asked);
        }
        Ok(())
    };
    thread::scope(|scope| {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|it| it.join().expect("it does not panic"))
    })?;
    Ok(answers.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn ask(
    question: Question,
    about: About,
    which: Logs,
    logs: &[&NodeLog],
    clock_error: Duration,
) -> Result<Asked> {
    let used = question.used;
    let time = |us: u64| Timestamp::from_microsecond(us as i64).map(|it| it.to_string());
    let mut command = Command::new(weir::binary()?);
    command.arg("where");
    match about {
        About::Port => command.arg(used.public.to_string()),
        About::Address => command.arg(used.public.ip().to_string()),
        About::Home => command.args(["--home", &used.home.to_string()]),
    };
    match about {
        About::Port | About::Address => command.args(["--at", &time(used.at_us)?]),
        About::Home => command
            .args(["--from", &time(used.at_us - AROUND_US)?])
            .args(["--to", &time(used.at_us + AROUND_US)?]),
    };
    command.arg(format!("--clock-error={}", clock_error.as_secs_f64())).arg("--json");
    for log in logs {
        command.arg("--log").arg(&log.path);
    }
    let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
    let line = format!("weir {}", words.join(" "));
    let ended = command.output().with_context(|| format!("cannot start {line}"))?;
    let said = String::from_utf8_lossy(&ended.stdout).into_owned();
    let outcome = judge(about, &used, ended.status.code(), &said)
        .with_context(|| format!("{line}\n{said}{}", String::from_utf8_lossy(&ended.stderr)))?;
    Ok(Asked { question, about, logs: which, outcome, command: line, said })
}

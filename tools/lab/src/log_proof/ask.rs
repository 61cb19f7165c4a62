//! Runs `weir where` on all cores.

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

/// One question in this many is also asked about the address, and about the home.
const ALSO_EACH: usize = 10;
/// The blocks of a home are asked for over this time before and after a datagram.
const AROUND_US: u64 = 5_000_000;

/// A log to ask.
#[derive(Clone, Debug)]
pub struct NodeLog {
    /// Path of the log.
    pub path: PathBuf,
    /// Whether its node was lost permanently.
    pub is_lost: bool,
}

/// The set of logs that is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Logs {
    /// The logs of all nodes.
    All,
    /// All but the log of the lost node.
    Remaining,
    /// A random part of all logs.
    Part,
}

/// A question that was asked.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The question.
    pub question: Question,
    /// The subject that was asked about.
    pub about: About,
    /// The logs that were asked.
    pub logs: Logs,
    /// The judgement of the answer.
    pub outcome: Outcome,
    /// The command.
    pub command: String,
    /// The output of [`command`](Self::command).
    pub output: String,
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let used = self.question.used;
        let at = Timestamp::from_microsecond(used.at_us as i64).unwrap_or_default();
        writeln!(f, "home {} sent from {} at {at}", used.home, used.public)?;
        write!(f, "{}\n{}", self.command, self.output.trim_end())
    }
}

/// Asks each question of all logs, of the remaining logs if one is lost, and of a random part of
/// all.
///
/// # Errors
/// When the command cannot be started, fails, or prints an invalid answer.
pub fn ask_all(
    questions: &[Question],
    logs: &[NodeLog],
    clock_error: Duration,
    seed: u64,
) -> Result<Vec<Asked>> {
    let mut dice = fastrand::Rng::with_seed(seed);
    let mut tasks = Vec::new();
    for (position, question) in questions.iter().enumerate() {
        // Any non-empty part.
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
            let is_asked = |index: usize, log: &NodeLog| match which {
                Logs::All => true,
                Logs::Remaining => !log.is_lost,
                Logs::Part => part >> index & 1 == 1,
            };
            let chosen = logs.iter().enumerate().filter(|(index, log)| is_asked(*index, log));
            let chosen: Vec<_> = chosen.map(|(_, log)| log).collect();
            let asked = ask(question, about, which, &chosen, clock_error)?;
            answers.lock().unwrap_or_else(PoisonError::into_inner).push(asked);
        }
        Ok(())
    };
    thread::scope(|scope| {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|it| it.join().expect("a thread that asks does not panic"))
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
    let output = String::from_utf8_lossy(&ended.stdout).into_owned();
    let outcome = judge(about, &used, ended.status.code(), &output)
        .with_context(|| format!("{line}\n{output}{}", String::from_utf8_lossy(&ended.stderr)))?;
    Ok(Asked { question, about, logs: which, outcome, command: line, output })
}

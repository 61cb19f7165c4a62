//! A node without a data path. Its workers send heartbeats; text lines on a socket tell it what to
//! announce and how to fail.
//!
//! ```text
//!   steering_node guard                      the guard process
//!   steering_node node SOCKET WORKERS SILENCE [KILL_AFTER]
//!                                            a node, times in ms;
//!                                            commands on the datagram socket SOCKET:
//!     set WORKER SIDE,PREFIX,NEXT_HOP,METRIC ...   all routes of a worker
//!     withdraw WORKER                              no routes
//!     set-old WORKER SIDE,...                      like set, as if it was never fenced
//!     hang WORKER                                  it stops its heartbeat
//!     wake WORKER                                  it sends heartbeats again
//! ```
//!
//! Events are reported on standard output, one line each.

use std::env;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use weir_routes::{
    Fence, Guard, GuardEvent, GuardOptions, Heartbeat, Route, RouteSide, SharedWords, WorkerIndex,
    guard,
};

/// Time of a turn of an idle worker.
const TURN: Duration = Duration::from_micros(640);

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words[..] {
        ["guard"] => run_guard(),
        ["node", socket, workers, ref times @ ..] => run_node(socket, workers, times),
        _ => Err(anyhow::anyhow!("guard | node SOCKET WORKERS SILENCE [KILL_AFTER]")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("steering_node: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run_guard() -> Result<()> {
    let socket = io::stdin().as_fd().try_clone_to_owned()?;
    let words = io::stdout().as_fd().try_clone_to_owned()?;
    Ok(guard::run(socket, words)?)
}

/// The control of a worker thread, held by the main thread.
struct Worker {
    hangs: Arc<AtomicBool>,
}

fn start_worker(words: &Arc<SharedWords>, index: WorkerIndex) -> Worker {
    let hangs = Arc::new(AtomicBool::new(false));
    let (seen, words) = (Arc::clone(&hangs), Arc::clone(words));
    thread::spawn(move || {
        let mut heartbeat = Heartbeat::new(words, index);
        loop {
            if !seen.load(Ordering::Relaxed) {
                heartbeat.beat();
                if heartbeat.is_fenced() {
                    heartbeat.acknowledge();
                    print(&format!("worker {index} sees its fence"));
                }
            }
            thread::sleep(TURN);
        }
    });
    Worker { hangs }
}

fn run_node(socket: &str, workers: &str, times: &[&str]) -> Result<()> {
    let times: Vec<Duration> =
        times.iter().map(|time| Ok(Duration::from_millis(time.parse()?))).collect::<Result<_>>()?;
    let options = GuardOptions {
        silence: *times.first().context("no SILENCE")?,
        kill_after: times.get(1).copied(),
        ..GuardOptions::default()
    };
    let words = Arc::new(SharedWords::new(workers.parse()?)?);
    let program = env::current_exe()?;
    let command = move || {
        let mut command = Command::new(&program);
        command.arg("guard");
        command
    };
    let mut guard = Guard::start(command, Arc::clone(&words), options)?;
    let workers: Vec<Worker> =
        (0..words.workers()).map(|index| start_worker(&words, index as WorkerIndex)).collect();
    let requests = UnixDatagram::bind(socket)?;
    requests.set_nonblocking(true)?;
    print(&format!("guard {}", guard.process_id().context("no guard")?));
    let mut line = [0; 65_536];
    loop {
        while let Ok(len) = requests.recv(&mut line) {
            let text = String::from_utf8_lossy(&line[..len]).into_owned();
            match carry_out(&text, &mut guard, &words, &workers) {
                Ok(()) => print(&format!("done: {text}")),
                Err(error) => print(&format!("refused: {text}: {error:#}")),
            }
        }
        match guard.wait(Duration::from_secs(1), Some(requests.as_fd())) {
            Some(GuardEvent::Fenced { worker, .. }) => print(&format!("fenced {worker}")),
            Some(GuardEvent::Restarted { .. }) => {
                print(&format!("restarted guard {}", guard.process_id().unwrap_or(0)));
            }
            Some(event) => print(&format!("{event:?}")),
            None => {}
        }
    }
}

fn carry_out(text: &str, guard: &mut Guard, words: &SharedWords, workers: &[Worker]) -> Result<()> {
    let mut fields = text.split_whitespace();
    let order = fields.next().context("an empty line")?;
    let index: WorkerIndex = fields.next().context("no worker")?.parse()?;
    let worker = workers.get(usize::from(index)).context("no such worker")?;
    match order {
        "set" => {
            let mut routes = fields.map(route).collect::<Result<Vec<_>>>()?;
            routes.sort_unstable();
            guard.set(index, words.fence(index), routes)?;
        }
        "set-old" => {
            let routes = fields.map(route).collect::<Result<Vec<_>>>()?;
            guard.set(index, Fence::default(), routes)?;
        }
        "withdraw" => guard.withdraw(index)?,
        "hang" => worker.hangs.store(true, Ordering::Relaxed),
        "wake" => worker.hangs.store(false, Ordering::Relaxed),
        _ => bail!("not an order"),
    }
    Ok(())
}

fn route(text: &str) -> Result<Route> {
    let fields: Vec<&str> = text.split(',').collect();
    let [side, prefix, next_hop, metric] = fields[..] else { bail!("not a route: {text}") };
    Ok(Route {
        side: if side == "access" { RouteSide::Access } else { RouteSide::Internet },
        prefix: prefix.parse()?,
        next_hop: next_hop.parse()?,
        metric: metric.parse()?,
    })
}

fn print(line: &str) {
    // The log of the laboratory is a file: writing does not wait for a reader.
    let _ = writeln!(io::stdout().lock(), "{line}");
}

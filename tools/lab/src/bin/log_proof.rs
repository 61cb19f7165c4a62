//! Proves the block logs: flows of thousands of homes run on a cluster under faults, one node of
//! which is lost permanently; then the logs are asked about what a server saw.
//!
//! Ends with an error when an answer is wrong, or is missing where the logs must have it.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use nix::sys::signal::Signal;
use weir_lab::cluster::{ClusterLab, ClusterOptions};
use weir_lab::failover::{Event, Observer, Pace, repeatable};
use weir_lab::load::Mixture;
use weir_lab::log_proof::{
    Asked, LogBook, NodeLog, Question, Sample, Tally, ask_all, last_mark_ms, moved, select,
};
use weir_lab::program::{clock_seed, exit_code};
use weir_lab::wait_for;

const NODES: u8 = 3;
/// The shortest UDP idle time that the files allow. The quarantine is the shortest one after which
/// a block that was listed soon after its node ended certainly belongs to its home
/// (docs/operations.md, `log-cut-off`).
const UDP_SEC: u32 = 1;
const QUARANTINE_SEC: u32 = 15;
/// Homes and gateways of the laboratory besides those that begin flows.
const SUBSCRIBERS_BESIDE: u32 = 32;
/// Prefix length of a shard, four addresses: every block is assigned again within minutes.
const PER_SHARD: u8 = 30;
/// Seconds of flows that a node's tables have room for: ports stay in quarantine up to five times
/// as long while copies are silent.
const FLOWS_OF_SEC: u32 = UDP_SEC + 5 * QUARANTINE_SEC + 5;
/// Datagrams kept in the sample for each question.
const KEPT_OF_QUESTION: usize = 4;
/// Milliseconds by which the clocks of the nodes are ahead, in turn.
const AHEAD_MS: [u32; 3] = [0, 250, 500];
const CLOCK_ERROR: Duration = Duration::from_millis(500);
/// Difference and error of the clocks, with a margin, around the time at which a node ended.
const SLACK_MS: i64 = 1_100;
/// Time from the first owners of the lanes until the first flows: earlier the logs say nothing, and
/// clocks differ.
const LOGS_BEGIN: Duration = Duration::from_secs(2);
/// Time until an operator gives up a node that does not come back, and time that flows go on once a
/// new node is there.
const GIVEN_UP: Duration = Duration::from_secs(15);
const LAST: Duration = Duration::from_secs(20);
/// Time until the logs of all nodes must be marked complete: marks come every ten seconds, and a
/// node that a fault stopped last is ended by its guard half a minute later, if it had no routes.
const MARK_DEADLINE: Duration = Duration::from_secs(120);
/// Bytes at the end of a log that contain at least one mark.
const LOG_END: u64 = 1 << 20;

/// Asks the block logs of a cluster who had the endpoints that a server saw, after faults drawn
/// from a seed.
#[derive(Debug, Parser)]
struct Args {
    /// How long a new fault may begin, in minutes. A node is lost for good afterwards.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=1_440))]
    minutes: u64,
    /// Draws faults, nodes, homes and questions. [default: from the clock, and said]
    #[arg(long)]
    seed: Option<u64>,
    /// Flows begun each second.
    #[arg(long, default_value_t = 6_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    per_sec: u32,
    /// Homes that begin them, some at a time.
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(8..=4_000))]
    homes: u32,
    /// Datagrams that are asked about, each of three sets of logs.
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u32).range(2..=100_000))]
    questions: u32,
    /// Where the logs go that are asked. They stay there if an answer is wrong or missing.
    #[arg(long, value_name = "FOLDER", default_value = "target/log-proof")]
    folder: PathBuf,
}

fn main() -> ExitCode {
    exit_code("log-proof", run(&Args::parse()))
}

/// Runs the proof. Returns whether the logs gave every answer that they must give, and no wrong
/// one.
fn run(args: &Args) -> Result<bool> {
    let begun = Instant::now();
    let progress = |text: &str| println!("[{:6.1} s] {text}", begun.elapsed().as_secs_f32());
    let seed = args.seed.unwrap_or_else(clock_seed);
    progress(&format!("seed {seed}"));
    let mut lab = ClusterLab::start(options(args), progress)?;
    let kept = KEPT_OF_QUESTION * args.questions as usize;
    let sample = Arc::new(Mutex::new(Sample::new(kept, seed)));
    let noted = Arc::clone(&sample);
    thread::sleep(LOGS_BEGIN);
    let flows = lab.begin_tunnelled(args.homes, args.per_sec, seed, move |used| {
        noted.lock().unwrap_or_else(PoisonError::into_inner).add(used);
    })?;
    let mut faults = let_faults_happen(args, seed, &mut lab, progress)?;
    let mut lost = None;
    if !faults.is_broken_off {
        let number = fastrand::Rng::with_seed(!seed).u8(1..=NODES);
        lost = Some(number);
        let is_replaced = lose_a_node(number, &mut lab, progress);
        ensure!(lab.lab.is_open(), "interrupted");
        if let Err(error) = is_replaced {
            progress(&format!("  not done: {error:#}"));
            faults.is_broken_off = true;
        }
    }
    let (flows_begun, flows_seen) = (flows.begun(), flows.seen());
    drop(flows);
    progress("the load is gone: the logs of all nodes have to say that they are complete");
    let marked = wait_marked(&lab);
    let (logs, book, bytes) = take_logs(&lab, lost, &args.folder)?;
    marked.with_context(|| format!("the logs as they are: {}", args.folder.display()))?;
    drop(lab);
    let sample = sample.lock().unwrap_or_else(PoisonError::into_inner);
    let questions = select(&sample, &book, args.questions as usize, seed);
    progress(&format!("asking about {} datagrams", questions.len()));
    let answers = ask_all(&questions, &logs, CLOCK_ERROR, seed)?;
    progress("done");
    let is_excused = |asked: &Asked| {
        let used = asked.question.used;
        book.is_near_end(used.public, used.at_us, SLACK_MS)
    };
    let tally = Tally::of(&answers, is_excused);
    println!(
        "\nseed {seed}: {} faults, {} were not done as they should",
        faults.done, faults.not_done
    );
    println!("flows: {flows_begun} begun, {flows_seen} seen by the server");
    println!("takeovers: {}; ends of a node without a word: {}", book.takeovers(), book.ends());
    println!("logs: {} nodes, {:.1} MB", logs.len(), bytes as f64 / 1e6);
    println!("{}\n{}", near_an_end(&questions, &book), tally.table());
    tally.complaints().iter().for_each(|line| println!("{line}\n"));
    if faults.is_broken_off {
        println!("BROKEN OFF: shards had no copies after what was not done last, see above\n");
    }
    let is_proven = tally.complaints().is_empty() && !faults.is_broken_off;
    match is_proven {
        true => remove(&logs, &args.folder)?,
        false => println!("the logs as they were asked: {}", args.folder.display()),
    }
    Ok(is_proven)
}

fn options(args: &Args) -> ClusterOptions {
    let default = ClusterOptions::default();
    let of_shard = args.homes.div_ceil(u32::from(default.shards)) + SUBSCRIBERS_BESIDE;
    ClusterOptions {
        nodes: NODES,
        spare_nodes: 1,
        flows_max: default.flows_max.max(args.per_sec * FLOWS_OF_SEC),
        quarantine_sec: Some(QUARANTINE_SEC),
        udp_sec: Some(UDP_SEC),
        subscribers_max: of_shard as u16,
        per_shard: Some(PER_SHARD),
        ..default
    }
}

/// Returns the load besides the flows: little, since this program does not judge what homes see.
fn pace() -> Pace {
    let mixture = Mixture { trickles: 12, streams: 1, dialogues: 12, idle: 0, short_per_sec: 1 };
    let probe_interval = Duration::from_millis(20);
    Pace { mixture, probe_interval, before: Duration::from_secs(1), idle: Duration::ZERO }
}

/// The faults that were done, and those that failed to be done as intended.
#[derive(Debug, Default)]
struct Faults {
    done: usize,
    not_done: usize,
    /// The last fault left the cluster short of copies.
    is_broken_off: bool,
}

/// Lets faults happen until the time is up. A fault that cannot be done as intended does not matter
/// to the logs, if every shard has its copies again.
fn let_faults_happen(
    args: &Args,
    seed: u64,
    lab: &mut ClusterLab,
    progress: impl Fn(&str),
) -> Result<Faults> {
    let mut observer = Observer::start(lab, pace())?;
    let mut dice = fastrand::Rng::with_seed(seed);
    let upgrade = Event::named("upgrade")?;
    let mut events = repeatable();
    events.push(&upgrade);
    let (begun, mut faults) = (Instant::now(), Faults::default());
    while begun.elapsed() < Duration::from_secs(60 * args.minutes) && !faults.is_broken_off {
        let event = events[dice.usize(..events.len())];
        let victim = dice.u8(1..=NODES);
        let seen = event.run_on(|_| Ok(victim), lab, &mut observer, &progress);
        ensure!(lab.lab.is_open(), "interrupted");
        match seen {
            Ok(seen) => faults.done += seen.len(),
            Err(error) => {
                progress(&format!("  not done: {error:#}"));
                faults.not_done += 1;
                faults.is_broken_off = lab.wait_whole().is_err();
            }
        }
        observer.forget_timeline();
    }
    Ok(faults)
}

/// Kills a node, gives it up, and adds another in its place.
fn lose_a_node(lost: u8, lab: &mut ClusterLab, progress: impl Fn(&str)) -> Result<()> {
    progress(&format!("kill -9 node{lost}, for good"));
    lab.node(lost)?.weir.end(Signal::SIGKILL)?;
    thread::sleep(GIVEN_UP);
    progress(&format!("weir fence node{lost}, and a new node"));
    if let Err(error) = lab.control()?.weir(&["fence", &format!("node{lost}")])?.success() {
        // The cluster has no record of a node that had no shard left.
        progress(&format!("  not fenced: {error:#}"));
    }
    lab.add_node()?;
    let node = lab.nodes.last().context("no nodes")?;
    node.wait_ready(0)?;
    node.wait_sessions()?;
    lab.wait_whole()?;
    lab.control()?.weir(&["rebalance"])?.success()?;
    thread::sleep(LAST);
    Ok(())
}

fn log_of(lab: &ClusterLab, number: u8) -> PathBuf {
    lab.lab.directory().join(format!("node{number}-blocks.jsonl"))
}

fn read(path: &Path) -> Result<String> {
    let bytes = fs::read(path).with_context(|| path.display().to_string())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn read_end(path: &Path) -> Result<String> {
    let mut file = File::open(path)?;
    let start = file.metadata()?.len().saturating_sub(LOG_END);
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Waits until the log of every running node is marked complete up to the present, with the
/// difference of the clocks as margin.
fn wait_marked(lab: &ClusterLab) -> Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let wanted_ms = (now + 2 * CLOCK_ERROR).as_millis() as i64;
    for node in lab.nodes.iter().filter(|node| node.weir.is_running()) {
        let path = log_of(lab, node.number);
        wait_for(&format!("mark in {}", path.display()), MARK_DEADLINE, || {
            let marked_ms = last_mark_ms(&read_end(&path).ok()?)?;
            (marked_ms >= wanted_ms).then_some(())
        })?;
    }
    Ok(())
}

/// Copies the logs to a folder, shifted as if the nodes' clocks differed. Also returns their
/// content with the true times, and their size in bytes.
fn take_logs(
    lab: &ClusterLab,
    lost: Option<u8>,
    folder: &Path,
) -> Result<(Vec<NodeLog>, LogBook, usize)> {
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let (mut logs, mut book, mut bytes) = (Vec::new(), LogBook::default(), 0);
    for (node, ahead_ms) in lab.nodes.iter().zip(AHEAD_MS.iter().cycle()) {
        let log = read(&log_of(lab, node.number))?;
        let is_lost = Some(node.number) == lost;
        bytes += log.len();
        book.read(&log, is_lost);
        let path = folder.join(format!("node{}.jsonl", node.number));
        fs::write(&path, moved(&log, *ahead_ms)).with_context(|| path.display().to_string())?;
        logs.push(NodeLog { path, is_lost });
    }
    Ok((logs, book, bytes))
}

/// Removes the logs, and the folder if it is empty then.
fn remove(logs: &[NodeLog], folder: &Path) -> Result<()> {
    logs.iter().try_for_each(|log| fs::remove_file(&log.path))?;
    let is_empty = fs::read_dir(folder)?.next().is_none();
    if is_empty {
        fs::remove_dir(folder)?;
    }
    Ok(())
}

fn near_an_end(questions: &[Question], book: &LogBook) -> String {
    let is_near = |it: &&Question| book.is_near_end(it.used.public, it.used.at_us, SLACK_MS);
    let near = questions.iter().filter(is_near).count();
    format!(
        "of {} datagrams {near} came near the end of a node that owned the lane",
        questions.len()
    )
}

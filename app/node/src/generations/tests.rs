//! The generations of a single node, with a thread of the test in the worker's place.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, mpsc};

use tokio::sync::oneshot;
use weir_admin::api::{Reload, ReloadOutcome};
use weir_config::Config;

use super::*;
use crate::generations::reload::ReloadWish;
use crate::node::Node;
use crate::request::Mailbox;
use crate::sample_node::{SAMPLE_FILE as TEXT, sample_node};

const WISH: ReloadWish = ReloadWish { is_dry_run: false, may_strand: false };
const DRY: ReloadWish = ReloadWish { is_dry_run: true, may_strand: false };

fn config(text: &str) -> Config {
    weir_config::parse(text, "t.toml").unwrap().0
}

/// A node whose worker takes every generation.
struct Running {
    folder: tempfile::TempDir,
    node: Arc<Node>,
    generations: Generations,
    is_over: Arc<AtomicBool>,
    worker: Option<thread::JoinHandle<()>>,
    /// Numbers of the generations that the worker took.
    taken: mpsc::Receiver<u64>,
}

impl Running {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.toml");
        fs::write(&path, TEXT).unwrap();
        let single = SingleNode::new(config(TEXT), Vec::new(), &path, TEXT.to_owned()).unwrap();
        let generations = Generations::new(&config(TEXT), &[], Some(&single)).unwrap();
        let (node, mailbox) = sample_node();
        let is_over = Arc::new(AtomicBool::new(false));
        let (taken_in, taken) = mpsc::channel();
        let (its_node, its_end) = (Arc::clone(&node), Arc::clone(&is_over));
        let worker = thread::spawn(move || work(mailbox, &its_node, &its_end, &taken_in));
        Self { folder, node, generations, is_over, worker: Some(worker), taken }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("t.toml")
    }

    fn reload(&self, text: &str, wish: ReloadWish) -> Reload {
        fs::write(self.path(), text).unwrap();
        runtime().block_on(self.generations.reload(&self.node.workers, wish)).unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        self.worker.take().map(thread::JoinHandle::join);
    }
}

fn work(mut mailbox: Mailbox, node: &Node, is_over: &AtomicBool, taken: &mpsc::Sender<u64>) {
    while !is_over.load(Relaxed) {
        match mailbox.take() {
            Some(WorkerRequest::SwapLive(LiveSwap { settings, reply })) => {
                node.workers[0].stats.generation.set(settings.number);
                taken.send(settings.number).unwrap();
                reply.send(settings).unwrap();
            }
            Some(_) => {}
            None => thread::yield_now(),
        }
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn with(lines: &str) -> String {
    format!("{TEXT}{lines}\n")
}

#[test]
fn changed_timer_is_taken_by_the_worker_as_the_next_generation() {
    let running = Running::start();
    let same = running.reload(TEXT, WISH);
    assert_eq!((same.outcome, same.generation), (ReloadOutcome::Unchanged, 0));
    let figures = || (running.generations.build_seconds(), running.generations.swap_seconds());
    assert_eq!(figures(), (0.0, 0.0));
    let text = with("[timeouts]\nudp_sec = 130");
    let dry = running.reload(&text, DRY);
    assert_eq!((dry.outcome, dry.generation), (ReloadOutcome::WouldApply, 0));
    assert_eq!(figures(), (0.0, 0.0));
    assert!(running.taken.try_recv().is_err());
    let done = running.reload(&text, WISH);
    assert_eq!((done.outcome, done.generation), (ReloadOutcome::Applied, 1));
    assert!(done.lagging.is_empty());
    let (compiled, taken) = figures();
    assert!(compiled > 0.0 && taken > 0.0, "{compiled} s, {taken} s");
    assert_eq!(done.changes[0].subject, "timeouts.udp_sec");
    assert_eq!(running.taken.try_recv(), Ok(1));
    assert_eq!(running.reload(&text, WISH).outcome, ReloadOutcome::Unchanged);
    assert_eq!(running.reload(TEXT, WISH).generation, 2);
    assert_eq!(running.generations.in_force(&running.node.workers), 2);
}

#[test]
fn broken_file_leaves_the_former_generation_until_it_is_mended() {
    let running = Running::start();
    let broken = running.reload(&with("[timeouts]\nudp_sec = 0"), WISH);
    assert_eq!(broken.outcome, ReloadOutcome::Refused);
    assert!(broken.errors[0].contains("t.toml:12:"), "{:?}", broken.errors);
    let why = running.generations.status().refused.unwrap();
    assert!(why.contains("udp_sec"), "{why}");
    let troubles = running.generations.troubles(&running.node.workers, Instant::now());
    assert!(troubles[0].starts_with("settings were refused, the former ones go on"));
    fs::remove_file(running.path()).unwrap();
    let gone = runtime().block_on(running.generations.reload(&running.node.workers, DRY)).unwrap();
    assert!(gone.errors[0].contains("t.toml: No such file"), "{:?}", gone.errors);
    assert_eq!(running.reload(TEXT, WISH).outcome, ReloadOutcome::Unchanged);
    assert_eq!(running.generations.status().refused, None);
    assert!(running.taken.try_recv().is_err());
}

#[test]
fn key_that_needs_a_restart_refuses_the_whole_file_and_is_named() {
    let running = Running::start();
    let both = with("[nat]\nflows_max = 50_000_000\n[timeouts]\nudp_sec = 130");
    for wish in [DRY, WISH] {
        let answer = running.reload(&both, wish);
        assert_eq!(answer.outcome, ReloadOutcome::Refused);
        assert_eq!(answer.errors, ["nat.flows_max needs a restart of the node"]);
        assert_eq!(answer.changes.len(), 2);
    }
    assert!(running.taken.try_recv().is_err());
    let lower = with("[nat]\nflows_max = 500_000");
    assert_eq!(running.reload(&lower, WISH).outcome, ReloadOutcome::Applied);
}

#[test]
fn change_that_strands_flows_needs_force() {
    let running = Running::start();
    let text = TEXT.replace("10.200.0.0/16", "10.200.0.0/17");
    let refused = running.reload(&text, WISH);
    assert_eq!(refused.outcome, ReloadOutcome::Refused);
    assert!(refused.errors[0].ends_with("only with --force"), "{:?}", refused.errors);
    let forced = running.reload(&text, ReloadWish { may_strand: true, ..WISH });
    assert_eq!(forced.outcome, ReloadOutcome::Applied);
}

#[test]
fn node_of_a_cluster_has_no_file_to_take() {
    let (node, _mailbox) = sample_node();
    let generations = Generations::new(&config(TEXT), &[], None).unwrap();
    assert_eq!(runtime().block_on(generations.reload(&node.workers, DRY)), None);
}

/// Settings for a worker that turns again after its queue was full.
#[test]
fn worker_with_a_full_queue_gets_the_newest_generation_and_no_older_one() {
    let (node, mut mailbox) = sample_node();
    let requester = &node.workers[0].requester;
    let (reply, _answer) = oneshot::channel();
    let mut flush = WorkerRequest::Flush { name: 1.into(), reply };
    while requester.send(flush).is_ok() {
        flush = WorkerRequest::Flush { name: 1.into(), reply: oneshot::channel().0 };
    }
    let wanted = Arc::new(AtomicU64::new(1));
    let settings = |number| {
        Box::new(live_settings(&config(TEXT), 0, None, number, &FlowSettings::none()).unwrap())
    };
    runtime().block_on(async {
        let older = tokio::spawn(hand_over(requester.clone(), settings(1), Arc::clone(&wanted)));
        tokio::task::yield_now().await;
        wanted.store(2, Relaxed);
        let newer = tokio::spawn(hand_over(requester.clone(), settings(2), Arc::clone(&wanted)));
        let mut numbers = Vec::new();
        while !newer.is_finished() {
            if let Some(WorkerRequest::SwapLive(LiveSwap { settings, reply })) = mailbox.take() {
                numbers.push(settings.number);
                reply.send(settings).unwrap();
            }
            tokio::task::yield_now().await;
        }
        assert_eq!(numbers, [2]);
        assert!(newer.await.unwrap() && !older.await.unwrap());
    });
}

/// What the tables were built for is what the engine gets at the start.
#[test]
fn settings_of_the_start_fit_and_change_nothing() {
    let generations = Generations::new(&config(TEXT), &[], None).unwrap();
    let built = generations.built_for.build(&config(TEXT), 1).unwrap();
    assert_eq!(built.settings[0].nat, generations.built_for.nat[0]);
    assert!(built.left.is_empty());
}

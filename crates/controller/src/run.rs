//! The task that joins the controller's state with etcd and the nodes. It decides nothing.
//!
//! One write or read is under way at a time. Whether this process leads is asked of the election before
//! each event and again before each write, with the clock of that moment: a process that was
//! stopped knows at once that its time is over, and if it did not, etcd would refuse its write.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::MissedTickBehavior;
use weir_cluster::{
    Cluster, Election, Error, LeaderRecord, Mirror, Outcome, Range, Revision, Store,
};
use weir_shard::NodeId;

use crate::state::{Action, Controller, Event, NodeReport, Now, Options};

/// Time between two questions to the same node, and the longest wait for its answer.
const ASK_INTERVAL: Duration = Duration::from_secs(1);

/// How nodes are asked for their load and whom they hear.
pub trait Reports: Send + Sync + 'static {
    /// `admin` is where its record says that it answers. None: it did not. Dropped when it takes
    /// longer than a second.
    fn ask(
        &self,
        node: &NodeId,
        admin: Option<SocketAddr>,
    ) -> impl Future<Output = Option<NodeReport>> + Send;
}

/// Nobody is asked. A lost node then stays suspect until it is fenced, unless nobody replicates with
/// it, and shards are balanced by number.
#[derive(Clone, Copy, Debug)]
pub struct NoReports;

impl Reports for NoReports {
    async fn ask(&self, _: &NodeId, _: Option<SocketAddr>) -> Option<NodeReport> {
        None
    }
}

/// A controller that runs on the cluster's thread. Dropped, it stops, and another one is elected
/// when its lease ends.
#[derive(Debug)]
pub struct Runner {
    stop: Option<oneshot::Sender<()>>,
    is_leading: watch::Receiver<bool>,
    turns: Arc<AtomicU64>,
    task: Option<JoinHandle<Result<(), Error>>>,
}

impl Runner {
    /// Starts to stand for election.
    pub fn start(
        cluster: &Cluster,
        record: &LeaderRecord,
        options: Options,
        reports: impl Reports,
    ) -> Self {
        let (stop, stopped) = oneshot::channel();
        let (leading, is_leading) = watch::channel(false);
        let (answers, answered) = mpsc::channel(64);
        let turns = Arc::<AtomicU64>::default();
        let running = Running {
            tick: Duration::from_millis(options.tick_ms.min(options.tick_busy_ms)),
            controller: Controller::new(options),
            election: cluster.election(record),
            mirror: cluster.mirror(Range::All, None),
            store: cluster.store(),
            reports: Arc::new(reports),
            answers,
            asking: JoinSet::new(),
            elected_at: None,
            leading,
            under_way: None,
            started_at: Instant::now(),
            turns: Arc::clone(&turns),
        };
        let task = cluster.handle().spawn(running.run(answered, stopped));
        Self { stop: Some(stop), is_leading, turns, task: Some(task) }
    }

    /// Whether it leads, as it last knew.
    pub fn is_leading(&self) -> bool {
        *self.is_leading.borrow()
    }

    /// Turns of its loop, several a second. The lease of a leader is kept by another task: one whose turns stand still
    /// leads and decides nothing.
    pub fn turns(&self) -> TurnCount {
        TurnCount(Arc::clone(&self.turns))
    }

    /// Waits for the answer to a write that is under way, and steps down: another one is elected at
    /// once.
    ///
    /// # Errors
    /// When etcd could not be told; another one is then elected when the lease ends.
    pub async fn stop(mut self) -> Result<(), Error> {
        drop(self.stop.take());
        match self.task.take() {
            Some(task) => task.await.unwrap_or(Ok(())),
            None => Ok(()),
        }
    }
}

/// The turns of a runner, for whoever watches it.
#[derive(Clone, Debug)]
pub struct TurnCount(Arc<AtomicU64>);

impl TurnCount {
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

type Answer = Pin<Box<dyn Future<Output = Event> + Send>>;

struct Running<R> {
    tick: Duration,
    controller: Controller,
    election: Election,
    mirror: Mirror,
    store: Store,
    reports: Arc<R>,
    answers: mpsc::Sender<NodeReport>,
    asking: JoinSet<()>,
    elected_at: Option<Revision>,
    leading: watch::Sender<bool>,
    under_way: Option<Answer>,
    started_at: Instant,
    turns: Arc<AtomicU64>,
}

impl<R: Reports> Running<R> {
    async fn run(
        mut self,
        mut answered: mpsc::Receiver<NodeReport>,
        mut stopped: oneshot::Receiver<()>,
    ) -> Result<(), Error> {
        let mut ticks = tokio::time::interval(self.tick);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut questions = tokio::time::interval(ASK_INTERVAL);
        questions.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let answer = async {
                match &mut self.under_way {
                    Some(answer) => answer.await,
                    None => std::future::pending().await,
                }
            };
            let event = tokio::select! {
                _ = &mut stopped => break,
                // What it says is looked up below.
                _ = self.election.next_event() => None,
                event = answer => {
                    self.under_way = None;
                    Some(event)
                }
                event = self.mirror.next_event() => event.map(Event::Mirror),
                report = answered.recv() => report.map(Event::Report),
                _ = ticks.tick() => Some(Event::Tick),
                _ = questions.tick() => {
                    self.ask_nodes();
                    None
                }
            };
            self.turns.fetch_add(1, Relaxed);
            self.follow_election();
            if let Some(event) = event {
                self.tell(event);
            }
        }
        if let Some(answer) = self.under_way.take() {
            answer.await;
        }
        self.election.close().await
    }

    /// Tells the state when the leadership has come, gone, or been another one meanwhile.
    fn follow_election(&mut self) {
        let elected_at = self.election.leadership().map(|leadership| leadership.create_revision);
        if elected_at == self.elected_at {
            return;
        }
        if self.elected_at.is_some() {
            tracing::info!("this controller leads no more");
            self.tell(Event::Deposed);
        }
        self.elected_at = elected_at;
        self.leading.send_replace(elected_at.is_some());
        if let Some(revision) = elected_at {
            tracing::info!("this controller leads now");
            self.tell(Event::Elected(revision));
        }
    }

    fn tell(&mut self, event: Event) {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = Now {
            monotonic_ms: self.started_at.elapsed().as_millis() as u64,
            unix_ms: unix.as_millis() as u64,
        };
        for action in self.controller.handle(event, now) {
            self.carry_out(action);
        }
    }

    fn carry_out(&mut self, action: Action) {
        let store = self.store.clone();
        self.under_way = Some(match action {
            Action::Write(swaps) => {
                let leadership = self.election.leadership();
                Box::pin(async move {
                    let Some(leadership) = leadership else {
                        return Event::Written(Outcome::NotLeader);
                    };
                    let outcome = store.transact(&swaps, Some(leadership)).await;
                    if let Outcome::Unavailable(error)
                    | Outcome::Unknown(error)
                    | Outcome::Refused(error) = &outcome
                    {
                        tracing::warn!(%error, "the map could not be written");
                    }
                    Event::Written(outcome)
                })
            }
            Action::Read(keys) => Box::pin(async move {
                let mut found = Vec::new();
                for key in &keys {
                    match store.get(key).await {
                        Ok(value) => found.push(value),
                        Err(_) => return Event::Read(None),
                    }
                }
                Event::Read(Some(found))
            }),
        });
    }

    /// Only the leader asks, and nobody twice at once.
    fn ask_nodes(&mut self) {
        while self.asking.try_join_next().is_some() {}
        if self.elected_at.is_none() || !self.asking.is_empty() {
            return;
        }
        for (node, admin) in self.controller.registered() {
            let (reports, answers, node) =
                (Arc::clone(&self.reports), self.answers.clone(), node.clone());
            self.asking.spawn(async move {
                let answer = tokio::time::timeout(ASK_INTERVAL, reports.ask(&node, admin)).await;
                if let Ok(Some(report)) = answer {
                    // A report that finds no room is asked for again in a second.
                    let _ = answers.try_send(report);
                }
            });
        }
    }
}

//! The task that joins a [`Process`] with etcd and the nodes: sockets, clocks and HTTP. It decides
//! nothing.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::{oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};
use weir_etcd::{Contact, Error, EtcdCluster, LeaderRecord, Transport};
use weir_map::NodeId;

use crate::process::{ASK_INTERVAL, Moment, Process, ReportQuestion};
use crate::standing::ControllerStanding;
use crate::state::{ControllerOptions, ControllerTime, NodeReport};

/// Most events of etcd that are taken before the clock is read.
const EVENTS_MAX: usize = 256;

/// Time without an answer after which etcd is named as lost in the log.
const ETCD_PATIENCE: Duration = Duration::from_secs(5);

/// Asks nodes for their reports: loads, heard peers, troubles.
pub trait Reports: Send + Sync + 'static {
    /// Asks one node. `admin` is the address that the node's record names; none: the record names
    /// none. The future is dropped after one second.
    fn ask(
        &self,
        node: &NodeId,
        admin: Option<SocketAddr>,
    ) -> impl Future<Output = Option<NodeReport>> + Send;
}

/// Asks no node. A lost node then stays suspect until it is fenced, unless no node replicates with
/// it, and shards are balanced by number.
#[derive(Clone, Copy, Debug)]
pub struct NoReports;

impl Reports for NoReports {
    async fn ask(&self, _: &NodeId, _: Option<SocketAddr>) -> Option<NodeReport> {
        None
    }
}

/// A controller that runs on the cluster's thread. When dropped it stops, and another one is
/// elected when its lease ends.
#[derive(Debug)]
pub struct Runner {
    stop: Option<oneshot::Sender<()>>,
    standing: watch::Receiver<ControllerStanding>,
    turns: Arc<AtomicU64>,
    task: Option<JoinHandle<Result<(), Error>>>,
}

impl Runner {
    /// Starts the controller, which stands for election.
    pub fn start(
        cluster: &EtcdCluster,
        record: &LeaderRecord,
        options: ControllerOptions,
        reports: impl Reports,
    ) -> Self {
        let (stop, stopped) = oneshot::channel();
        let (show, standing) = watch::channel(ControllerStanding::default());
        let turns = Arc::<AtomicU64>::default();
        let (etcd, now) = (cluster.options(), Instant::now());
        let running = Running {
            process: Process::new(etcd, cluster.contact(), record, options, now),
            transport: Transport::new(etcd.clone()),
            reports: Arc::new(reports),
            asking: JoinSet::new(),
            show,
            etcd: EtcdWatch { contact: Arc::clone(cluster.contact()), is_lost: false },
            started_at: now,
            turns: Arc::clone(&turns),
        };
        let task = cluster.handle().spawn(running.run(stopped));
        Self { stop: Some(stop), standing, turns, task: Some(task) }
    }

    /// Whether it leads, as of its last turn.
    pub fn is_leading(&self) -> bool {
        self.standing.borrow().is_leading
    }

    /// Returns a receiver of the state that the controller shows.
    pub fn standing(&self) -> watch::Receiver<ControllerStanding> {
        self.standing.clone()
    }

    /// Returns the counter of its loop's turns, several per second: while it does not change, the
    /// controller decides nothing.
    pub fn turns(&self) -> TurnCount {
        TurnCount(Arc::clone(&self.turns))
    }

    /// Waits for the answer to a write that is under way, then steps down: another controller is
    /// elected at once.
    ///
    /// # Errors
    /// When the lease could not be revoked; another controller is then elected when the lease ends.
    pub async fn stop(mut self) -> Result<(), Error> {
        drop(self.stop.take());
        match self.task.take() {
            Some(task) => task.await.unwrap_or(Ok(())),
            None => Ok(()),
        }
    }
}

/// The turn counter of a runner, for a watchdog.
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

struct Running<R> {
    process: Process,
    transport: Transport,
    reports: Arc<R>,
    asking: JoinSet<Option<(u64, NodeReport)>>,
    show: watch::Sender<ControllerStanding>,
    etcd: EtcdWatch,
    started_at: Instant,
    turns: Arc<AtomicU64>,
}

/// Logs when etcd has been silent for long, and when it answers again.
struct EtcdWatch {
    contact: Arc<Contact>,
    is_lost: bool,
}

impl EtcdWatch {
    fn look(&mut self, started_at: Instant, now: Instant) {
        let Some(error) = self.contact.last_error() else {
            if std::mem::take(&mut self.is_lost) {
                tracing::info!(event = "etcd-back", "etcd answers again");
            }
            return;
        };
        let silent = self.contact.counts(now).last_contact_age;
        let silent = silent.unwrap_or_else(|| now.duration_since(started_at));
        if !self.is_lost && silent >= ETCD_PATIENCE {
            self.is_lost = true;
            tracing::warn!(event = "etcd-lost", %error, "etcd does not answer: nothing is decided");
        }
    }
}

impl<R: Reports> Running<R> {
    async fn run(mut self, mut stopped: oneshot::Receiver<()>) -> Result<(), Error> {
        let mut is_stopping = false;
        loop {
            self.process.poll(self.moment());
            if let Some(result) = self.process.stopped() {
                return result.clone();
            }
            self.carry_out().await;
            let deadline = self.process.deadline();
            let time = async {
                match deadline {
                    Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = &mut stopped, if !is_stopping => {
                    is_stopping = true;
                    self.process.stop();
                }
                event = self.transport.next_event() => self.process.event(self.moment(), event),
                Some(answer) = self.asking.join_next() => {
                    if let Ok(Some((number, report))) = answer {
                        self.process.answered(self.moment(), number, report);
                    }
                }
                () = time => {}
            }
            // Events of etcd are handled before timers: they may have waited for this task.
            for _ in 0..EVENTS_MAX {
                let Some(event) = self.transport.ready_event().await else { break };
                self.process.event(self.moment(), event);
            }
            self.turns.fetch_add(1, Relaxed);
        }
    }

    fn moment(&self) -> Moment {
        let (instant, unix) = (Instant::now(), SystemTime::now().duration_since(UNIX_EPOCH));
        let monotonic_ms = instant.duration_since(self.started_at).as_millis() as u64;
        let unix_ms = unix.unwrap_or_default().as_millis() as u64;
        Moment { instant, now: ControllerTime { monotonic_ms, unix_ms } }
    }

    /// Publishes the standing. A process that was stalled past its lease does not lead, whatever
    /// its last state was.
    fn show(&self) {
        let is_leading = self.process.is_leading(Instant::now());
        let not_leading = ControllerStanding::default();
        let standing = if is_leading { self.process.standing() } else { &not_leading };
        self.show.send_if_modified(|shown| {
            let is_new = *shown != *standing;
            if is_new {
                shown.clone_from(standing);
            }
            is_new
        });
    }

    /// Carries out the orders and questions that the process has issued.
    async fn carry_out(&mut self) {
        self.show();
        self.etcd.look(self.started_at, Instant::now());
        while let Some(order) = self.process.next_order() {
            self.transport.carry_out(order).await;
        }
        for ReportQuestion { number, node, admin } in self.process.take_questions() {
            let reports = Arc::clone(&self.reports);
            self.asking.spawn(async move {
                let answer = tokio::time::timeout(ASK_INTERVAL, reports.ask(&node, admin)).await;
                Some((number, answer.ok()??))
            });
        }
    }
}

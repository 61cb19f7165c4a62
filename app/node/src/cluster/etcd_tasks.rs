//! The tasks on the etcd thread: they carry events in and writes out, and decide nothing.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::sleep;
use weir_etcd::{EtcdCluster, Key, KeyRange, NodeId, NodeRecord, NodeSession, Revision, Store};
use weir_map::{ShardEntry, ShardId};
use weir_node_core::first_look::{LOOK_INTERVAL, REPORT_INTERVAL, is_known};
use weir_node_core::{Registration, WriteResult};

use super::first_look::look;
use super::inbox::{InboxSender, Notice};
use crate::turns::{Thread, Turns};

/// Time between two turns that are counted.
const TURN: Duration = Duration::from_millis(500);

/// A command to the task that holds the registration.
#[derive(Debug)]
enum RegistrationOrder {
    Update(NodeRecord),
    Close(oneshot::Sender<()>),
}

/// The node's access to etcd. Once it is dropped, the registration ends with its lease.
#[derive(Debug)]
pub(super) struct EtcdTasks {
    cluster: EtcdCluster,
    inbox: InboxSender,
    registration: UnboundedSender<RegistrationOrder>,
    /// Taken when the node joins.
    joining: Mutex<Option<(Registering, oneshot::Sender<NodeSession>)>>,
}

/// The data that a node registers with.
#[derive(Debug)]
pub(super) struct Registering {
    pub(super) name: NodeId,
    /// Boot ids of processes of this node that have ended.
    pub(super) ended: Vec<String>,
}

impl EtcdTasks {
    /// Starts the tasks; the node is not registered yet.
    pub(super) fn start(cluster: EtcdCluster, joining: Registering, inbox: InboxSender) -> Self {
        let (session, opened) = oneshot::channel();
        // There are two commands at most: the record of a node that stops, and the end.
        let (registration, asked) = unbounded_channel();
        cluster.handle().spawn(register(opened, asked, inbox.clone()));
        let joining = Mutex::new(Some((joining, session)));
        Self { cluster, inbox, registration, joining }
    }

    /// Begins to mirror all keys.
    pub(super) fn mirror(&self) {
        let mut mirror = self.cluster.mirror(KeyRange::All, None);
        let events = self.inbox.clone();
        self.cluster.handle().spawn(async move {
            while let Some(event) = mirror.next_event().await {
                if events.send_etcd(event).await.is_err() {
                    return;
                }
            }
        });
    }

    /// Registers the node.
    pub(super) fn join(&self, record: &NodeRecord) {
        let joining = self.joining.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some((Registering { name, ended }, session)) = joining else { return };
        // A node that ends does not register.
        let _ = session.send(self.cluster.session_after(name, record, ended));
    }

    /// Polls etcd until it holds the cluster of this id, and reports to the roles thread; see
    /// [`Notice::ClusterFound`].
    pub(super) fn look_for(&self, cluster_id: String) {
        let (store, inbox) = (self.cluster.store(), self.inbox.clone());
        self.cluster.handle().spawn(look_until_found(store, cluster_id, inbox));
    }

    /// Counts the turns of the etcd thread.
    pub(super) fn count_turns(&self, turns: Arc<Turns>) {
        let turns = Arc::downgrade(&turns);
        self.cluster.handle().spawn(async move {
            while let Some(turns) = turns.upgrade() {
                turns.turned(Thread::Etcd);
                drop(turns);
                sleep(TURN).await;
            }
        });
    }

    pub(super) fn cluster(&self) -> &EtcdCluster {
        &self.cluster
    }

    /// Replaces this node's record in etcd.
    pub(super) fn update(&self, record: NodeRecord) {
        // The task lives as long as this struct.
        let _ = self.registration.send(RegistrationOrder::Update(record));
    }

    /// Writes a shard's entry if it still has this revision. The answer comes as
    /// [`Notice::Written`].
    pub(super) fn write(&self, shard: ShardId, expected: Revision, entry: &ShardEntry) {
        let (store, inbox) = (self.cluster.store(), self.inbox.clone());
        let value = entry.to_json().into_bytes();
        self.cluster.handle().spawn(async move {
            let outcome = store.put(Key::Shard(shard), Some(expected), value).await;
            let how = WriteResult::of(&outcome);
            let _ = inbox.send(Notice::Written { shard, how });
        });
    }

    /// Removes the node's key from etcd at once.
    pub(super) fn leave(&self) {
        let (done, is_done) = oneshot::channel();
        if self.registration.send(RegistrationOrder::Close(done)).is_ok() {
            let _ = self.cluster.handle().block_on(is_done);
        }
    }
}

async fn look_until_found(store: Store, cluster_id: String, inbox: InboxSender) {
    let mut reported_at: Option<Instant> = None;
    loop {
        if let Some(found) = is_known(look(&store).await, &cluster_id) {
            if let Err(found) = &found
                && reported_at.is_none_or(|reported_at| reported_at.elapsed() >= REPORT_INTERVAL)
            {
                reported_at = Some(Instant::now());
                tracing::error!(
                    event = "cluster-other",
                    found,
                    known = cluster_id,
                    "etcd holds another cluster than this node knows: restart the node to join it"
                );
            }
            let is_it = found.is_ok();
            let sent = inbox.send(Notice::ClusterFound(found));
            if is_it || sent.is_err() {
                return;
            }
        }
        sleep(LOOK_INTERVAL).await;
    }
}

/// Keeps the newest record until the session opens, then holds the registration.
async fn register(
    mut opened: oneshot::Receiver<NodeSession>,
    mut asked: UnboundedReceiver<RegistrationOrder>,
    inbox: InboxSender,
) {
    let mut newest = None;
    let session = loop {
        tokio::select! {
            session = &mut opened => match session {
                Ok(session) => break session,
                Err(_) => return,
            },
            order = asked.recv() => match order {
                Some(RegistrationOrder::Update(record)) => newest = Some(record),
                Some(RegistrationOrder::Close(done)) => {
                    let _ = done.send(());
                    return;
                }
                None => return,
            },
        }
    };
    if let Some(record) = newest {
        session.update(&record);
    }
    hold(session, asked, inbox).await;
}

async fn hold(
    mut session: NodeSession,
    mut asked: UnboundedReceiver<RegistrationOrder>,
    inbox: InboxSender,
) {
    loop {
        tokio::select! {
            event = session.next_event() => {
                let Some(event) = event else { return };
                if let Some(registration) = Registration::of(&event) {
                    let _ = inbox.send(Notice::Registration(registration));
                }
            }
            order = asked.recv() => match order {
                Some(RegistrationOrder::Update(record)) => session.update(&record),
                Some(RegistrationOrder::Close(done)) => {
                    // If etcd does not answer, the key goes with its lease.
                    let _ = session.close().await;
                    let _ = done.send(());
                    return;
                }
                None => return,
            },
        }
    }
}

//! The tasks on etcd's own thread: they carry news in and writes out, and decide nothing.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::sleep;
use weir_cluster::{Cluster, Key, NodeName, NodeRecord, Range, Revision};
use weir_shard::{ShardEntry, ShardId};

use super::inbox::Inbox;
use crate::turns::{Thread, Turns};

/// Between two turns that are counted.
const TURN: Duration = Duration::from_millis(500);

/// What the registration is asked to do.
#[derive(Debug)]
enum Registration {
    Update(NodeRecord),
    Close(oneshot::Sender<()>),
}

/// The ways to etcd. Dropped, the registration ends with its lease.
#[derive(Debug)]
pub(super) struct EtcdTasks {
    cluster: Cluster,
    inbox: Sender<Inbox>,
    registration: UnboundedSender<Registration>,
}

impl EtcdTasks {
    /// Registers the node and begins to mirror all keys. `ended`: boot ids of processes of this node that have ended.
    pub(super) fn start(
        cluster: Cluster,
        name: NodeName,
        record: &NodeRecord,
        ended: Vec<String>,
        inbox: Sender<Inbox>,
    ) -> Self {
        let mut mirror = cluster.mirror(Range::All, None);
        let events = inbox.clone();
        cluster.handle().spawn(async move {
            while let Some(event) = mirror.next_event().await {
                if events.send(Inbox::Etcd(event)).is_err() {
                    return;
                }
            }
        });
        let session = cluster.session_after(name, record, ended);
        let (registration, asked) = unbounded_channel();
        cluster.handle().spawn(hold(session, asked, inbox.clone()));
        Self { cluster, inbox, registration }
    }

    /// Counts the turns of the thread that carries all this.
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

    pub(super) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Writes another record of this node.
    pub(super) fn update(&self, record: NodeRecord) {
        // The task lives as long as this.
        let _ = self.registration.send(Registration::Update(record));
    }

    /// Writes a shard's entry if it still has this revision. The answer comes as [`Inbox::Written`].
    pub(super) fn write(&self, shard: ShardId, expected: Revision, entry: &ShardEntry) {
        let (store, inbox) = (self.cluster.store(), self.inbox.clone());
        let value = entry.to_json().into_bytes();
        self.cluster.handle().spawn(async move {
            let outcome = store.put(Key::Shard(shard.0), Some(expected), value).await;
            let _ = inbox.send(Inbox::Written { shard, outcome });
        });
    }

    /// Takes the node's key away at once.
    pub(super) fn leave(&self) {
        let (done, is_done) = oneshot::channel();
        if self.registration.send(Registration::Close(done)).is_ok() {
            let _ = self.cluster.handle().block_on(is_done);
        }
    }
}

async fn hold(
    mut session: weir_cluster::Session,
    mut asked: UnboundedReceiver<Registration>,
    inbox: Sender<Inbox>,
) {
    loop {
        tokio::select! {
            event = session.next_event() => {
                let Some(event) = event else { return };
                let _ = inbox.send(Inbox::Claim(event));
            }
            order = asked.recv() => match order {
                Some(Registration::Update(record)) => session.update(&record),
                Some(Registration::Close(done)) => {
                    // Without an answer the key goes with its lease.
                    let _ = session.close().await;
                    let _ = done.send(());
                    return;
                }
                None => return,
            },
        }
    }
}

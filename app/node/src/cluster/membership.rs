//! A node's membership from the registration to the shutdown notice.
//!
//! ```text
//!   take_part --> hand_over (the core says when) --> withdraw: map on disk, routes gone
//!             --> workers end --> ShutdownNotice
//! ```

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;
use tokio::time::sleep;
use weir_etcd::{EtcdCluster, NodeId, NodeRecord, WorkerRecord};
use weir_map::BootId;
use weir_node_core::recording::Recorder;
use weir_node_core::shutdown_notice::{self, NoticeStep};
use weir_node_core::{CoreStart, HAND_OVER_MAX, WorkerAddresses};

use super::bird_thread;
use super::connect::reload_keys;
use super::etcd_tasks::{EtcdTasks, Registering};
use super::guard_thread::GuardThread;
use super::inbox::{InboxSender, Notice};
use super::join::JoiningNode;
use super::key_state::KeyState;
use super::life_file::LifeFile;
use super::map_file;
use super::member_snapshot::MemberSnapshot;
use super::roles_thread;
use crate::failure::Failure;
use crate::generations::follow::AppliedSettings;
use crate::node::Node;
use crate::turns::{Thread, Turns};

/// Longest wait for the end of the roles thread: its own waits are bounded, unless it stalls.
const ROLES_END_MAX: Duration = Duration::from_secs(5);
/// Time between two checks whether the roles thread has stalled.
const LOOK: Duration = Duration::from_millis(100);
const END_POLL: Duration = Duration::from_millis(2);
/// Length at which a recording ends.
const RECORDING_BYTES_MAX: u64 = 1 << 30;

/// A node that is a member of its cluster.
#[derive(Debug)]
pub(crate) struct Membership {
    inbox: InboxSender,
    key_file: PathBuf,
    thread: JoinHandle<()>,
    handed_over: watch::Receiver<bool>,
    turns: Arc<Turns>,
    shutdown_notice: NodeShutdownNotice,
}

/// The node's shutdown notice, sent once nothing of the node runs any more.
#[derive(Debug)]
pub(crate) struct NodeShutdownNotice {
    etcd: Arc<EtcdTasks>,
    name: NodeId,
    /// The incarnations that have ended.
    boot_ids: Vec<BootId>,
    map_path: PathBuf,
    /// Held until the process ends.
    _life: LifeFile,
}

impl JoiningNode {
    /// Registers the node, which takes roles from then on. Its workers must be running.
    /// `recording`: the file to which all input of its core is written. `applied`: takes the
    /// cluster's settings.
    ///
    /// # Errors
    /// When the system gives no thread, or the recording cannot be made.
    pub(crate) fn take_part(
        mut self,
        node: &Arc<Node>,
        recording: Option<&Path>,
        applied: UnboundedSender<AppliedSettings>,
    ) -> Result<Membership, Failure> {
        let inbox = self.inbox.clone();
        let record = NodeRecord {
            boot_id: self.boot_ids[0].to_string(),
            version: env!("CARGO_PKG_VERSION").into(),
            rack: self.member.node.rack.clone(),
            capacity: self.member.workers.iter().map(|worker| worker.weight).sum(),
            workers: self.worker_records(),
            admin: self.member.node.metrics,
            is_stopping: false,
            has_copies: false,
        };
        let ended = self.life.ended();
        let joining = Registering { name: self.name.clone(), ended };
        let etcd = EtcdTasks::start(self.cluster, joining, inbox.clone());
        if self.is_without_etcd {
            etcd.look_for(self.cluster_id.clone());
        }
        etcd.count_turns(Arc::clone(&node.turns));
        let etcd = Arc::new(etcd);
        let guard_inbox = inbox.clone();
        let guard = GuardThread::start(self.guard, Arc::clone(&node.turns), move |report| {
            // A node that ends has closed its inbox.
            let _ = guard_inbox.send(Notice::Guard(report));
        })
        .map_err(Failure::Control)?;
        let snapshot = Arc::<MemberSnapshot>::default();
        // This is the only place that sets it.
        let _ = node.member.set(Arc::clone(&snapshot));
        if let Some(bird) = &self.member.cluster.bird {
            bird_thread::start(bird, Arc::clone(&snapshot), inbox.clone())
                .map_err(Failure::Control)?;
        }
        let start = CoreStart {
            node: self.name.clone(),
            record,
            addresses: self.member.workers.iter().map(WorkerAddresses::of).collect(),
            map: self.map,
            desired: self.desired,
            is_without_etcd: self.is_without_etcd,
        };
        let recorder = recording.map(|path| record_to(path, &start)).transpose()?;
        let map_path = self.map_file.path().to_owned();
        let (handed_over, is_handed_over) = watch::channel(false);
        let inputs = roles_thread::RolesThreadInputs {
            start,
            inbox: self.messages,
            links: std::mem::take(&mut self.links),
            node: Arc::clone(node),
            etcd: Arc::clone(&etcd),
            guard,
            words: Arc::clone(&self.words),
            map_file: self.map_file,
            snapshot,
            keys: KeyState::new(&self.keys),
            bird_sessions: self.member.cluster.bird.as_ref().map(bird_thread::sessions),
            handed_over,
            applied,
            recorder,
        };
        let thread = thread::Builder::new()
            .name("weir-roles".into())
            .spawn(move || roles_thread::run(inputs))
            .map_err(Failure::Control)?;
        let shutdown_notice = NodeShutdownNotice {
            etcd,
            name: self.name,
            boot_ids: self.boot_ids,
            map_path,
            _life: self.life,
        };
        let key_file = self.member.cluster.key_file;
        let turns = Arc::clone(&node.turns);
        let handed_over = is_handed_over;
        Ok(Membership { inbox, key_file, thread, handed_over, turns, shutdown_notice })
    }

    fn worker_records(&self) -> Vec<WorkerRecord> {
        let workers = self.member.workers.iter().zip(&self.boot_ids).enumerate();
        workers
            .map(|(index, (worker, boot_id))| WorkerRecord {
                index: index as u16,
                boot_id: boot_id.to_string(),
                resumes: None,
                weight: worker.weight,
                load_max: worker.load_max,
                shards_max: u32::try_from(self.desired.shard_room(worker)).ok(),
                replication: Some(self.replication_of(worker)),
            })
            .collect()
    }
}

impl Membership {
    /// Hands over the shards of which others have a full copy. Returns when the core reports that
    /// this is done, or when the roles thread stalls or takes too long.
    pub(crate) async fn hand_over(&self) {
        let _ = self.inbox.send(Notice::HandOver);
        let end = Instant::now() + HAND_OVER_MAX + LOOK;
        let mut handed_over = self.handed_over.clone();
        while !*handed_over.borrow() {
            if self.turns.stands_still(Thread::Roles) || Instant::now() >= end {
                tracing::warn!(
                    event = "hand-over-late",
                    "the thread of the roles stands still and hands nothing over"
                );
                return;
            }
            tokio::select! {
                changed = handed_over.changed() => if changed.is_err() { return },
                () = sleep(LOOK) => {}
            }
        }
    }

    /// Reads the key file again, and gives its keys to the workers. A refused file leaves the
    /// former keys in use.
    pub(crate) fn read_keys_again(&self) {
        reload_keys(&self.key_file, &self.inbox);
    }

    /// Withdraws the routes and ends the roles thread; the workers go on until they are stopped.
    pub(crate) fn withdraw(self) -> NodeShutdownNotice {
        let _ = self.inbox.send(Notice::End);
        let end = Instant::now() + ROLES_END_MAX;
        while !self.thread.is_finished() && Instant::now() < end {
            thread::sleep(END_POLL);
        }
        if self.thread.is_finished() {
            // A panic there has been reported.
            let _ = self.thread.join();
        } else {
            // The routes go with the heartbeats of the workers, which end next.
            tracing::error!(event = "end-late", thread = "roles", "it stands still");
        }
        self.shutdown_notice
    }
}

impl NodeShutdownNotice {
    /// Sends the shutdown notice: the node has gone, and nothing of it can come back, so the
    /// remaining members may have its lanes at once. Must be called when no worker runs any more.
    pub(crate) fn send(self) {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let at_ms = unix.as_millis() as u64;
        let (shutdown_notice, first) =
            shutdown_notice::ShutdownNotice::new(self.name.clone(), self.boot_ids, at_ms);
        let cluster = self.etcd.cluster();
        let is_unsent = cluster.handle().block_on(send(cluster, shutdown_notice, first));
        if is_unsent && let Err(error) = note_unsent(&self.map_path) {
            tracing::error!(event = "epochs-not-kept", "{error}");
        }
        self.etcd.leave();
    }
}

/// Sends the shutdown notice step by step. Returns true if it certainly did not reach etcd.
async fn send(
    cluster: &EtcdCluster,
    mut shutdown_notice: shutdown_notice::ShutdownNotice,
    first: NoticeStep,
) -> bool {
    let store = cluster.store();
    let mut step = first;
    loop {
        step = match step {
            NoticeStep::Read(key) => {
                shutdown_notice.read(store.get(&key).await.map_err(|error| error.to_string()))
            }
            NoticeStep::Write(swap) => {
                shutdown_notice.written(&store.transact(&[swap], None).await)
            }
            NoticeStep::Leave { is_unsent } => return is_unsent,
        };
    }
}

/// Notes on disk that etcd does not know of the end: the next process may resume where this one was
/// a member.
fn note_unsent(path: &Path) -> io::Result<()> {
    let mut map = map_file::load(path)?;
    map.set_ended(false);
    map_file::save(path, &map)
}

fn record_to(path: &Path, start: &CoreStart) -> Result<Recorder<BufWriter<File>>, Failure> {
    let refused = |error: io::Error| {
        Failure::Cluster(format!(
            "recording {}: {error}; name a file that can be written",
            path.display()
        ))
    };
    let out = BufWriter::new(File::create(path).map_err(refused)?);
    Recorder::new(out, RECORDING_BYTES_MAX, Duration::ZERO, start).map_err(refused)
}

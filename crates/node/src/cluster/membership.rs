//! A node's membership from the first order to the last word.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::{Instant, sleep};
use weir_cluster::{NodeName, NodeRecord, WorkerRecord};
use weir_controller::operate::{OperateError, Operator};
use weir_shard::BootId;

use super::bird_thread;
use super::connect::reload_keys;
use super::etcd_tasks::{EtcdTasks, Registering};
use super::guard_thread::GuardThread;
use super::inbox::{Notice, Sender};
use super::join::Joining;
use super::key_state::KeyState;
use super::known_map::KnownMap;
use super::life_file::LifeFile;
use super::map_saver::MapSaver;
use super::member_board::MemberBoard;
use super::roles_thread;
use crate::api::RoleStatus;
use crate::failure::Failure;
use crate::node::Node;
use crate::turns::{Thread, Turns};

/// The longest time for a hand-over. A service manager must wait longer before it kills.
pub(crate) const HAND_OVER_MAX: Duration = Duration::from_secs(60);
/// After the last shard was handed over: both switches have settled, and no straggler comes.
const SETTLE: Duration = Duration::from_secs(1);
/// Time for the roles to end: what they wait for is bounded, unless they stand still.
const ROLES_END_MAX: Duration = Duration::from_secs(5);
/// Between two looks at what is left.
const LOOK: Duration = Duration::from_millis(20);
const END_POLL: Duration = Duration::from_millis(2);

/// A node that takes part.
#[derive(Debug)]
pub(crate) struct Membership {
    inbox: Sender,
    key_file: PathBuf,
    thread: JoinHandle<()>,
    board: Arc<MemberBoard>,
    turns: Arc<Turns>,
    farewell: Farewell,
}

/// What is left to be said once nothing of the node runs any more.
#[derive(Debug)]
pub(crate) struct Farewell {
    etcd: Arc<EtcdTasks>,
    name: NodeName,
    /// The lives that have ended.
    boot_ids: Vec<BootId>,
    map_path: PathBuf,
    /// Held until the process ends.
    _life: LifeFile,
}

impl Joining {
    /// The node registers and takes roles from now on. Its workers must be running.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(crate) fn take_part(mut self, node: &Arc<Node>) -> Result<Membership, Failure> {
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
        let formers = (0..self.boot_ids.len()).map(|worker| self.map.life(worker)).collect();
        let ended = self.life.ended();
        let joining = Registering { name: self.name.clone(), ended };
        let etcd = EtcdTasks::start(self.cluster, joining, inbox.clone());
        if self.is_without_etcd {
            etcd.look_for(self.cluster_id.clone());
        } else {
            self.map.begin_lives(&self.boot_ids);
            if let Err(error) = self.map.save() {
                tracing::error!(event = "epochs-not-kept", "{error}");
            }
            etcd.mirror();
            etcd.join(&record);
        }
        etcd.count_turns(Arc::clone(&node.turns));
        let etcd = Arc::new(etcd);
        let guard_inbox = inbox.clone();
        let guard = GuardThread::start(self.guard, Arc::clone(&node.turns), move |news| {
            // A node that ends listens no more.
            let _ = guard_inbox.send(Notice::Guard(news));
        })
        .map_err(Failure::Control)?;
        let board = Arc::<MemberBoard>::default();
        // Set once: this is the only place.
        let _ = node.member.set(Arc::clone(&board));
        if let Some(bird) = &self.member.cluster.bird {
            bird_thread::start(bird, Arc::clone(&board), inbox.clone())
                .map_err(Failure::Control)?;
        }
        let saved = inbox.clone();
        let map_path = self.map.path().to_owned();
        let parts = roles_thread::Parts {
            roles: self.roles,
            inbox: self.messages,
            links: std::mem::take(&mut self.links),
            node: Arc::clone(node),
            etcd: Arc::clone(&etcd),
            guard,
            words: Arc::clone(&self.words),
            map: MapSaver::new(self.map, move || {
                // A node that ends listens no more.
                let _ = saved.send(Notice::Saved);
            }),
            is_without_etcd: self.is_without_etcd,
            board: Arc::clone(&board),
            keys: KeyState::new(&self.keys),
            record,
            boot_ids: self.boot_ids.clone(),
            formers,
            addresses: self
                .member
                .workers
                .iter()
                .map(|worker| [worker.access.address.addr(), worker.internet.address.addr()])
                .collect(),
            desired: self.desired,
        };
        let thread = std::thread::Builder::new()
            .name("weir-roles".into())
            .spawn(move || roles_thread::run(parts))
            .map_err(Failure::Control)?;
        let farewell =
            Farewell { etcd, name: self.name, boot_ids: self.boot_ids, map_path, _life: self.life };
        let key_file = self.member.cluster.key_file;
        let turns = Arc::clone(&node.turns);
        Ok(Membership { inbox, key_file, thread, board, turns, farewell })
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
    /// Hands over what others have a full copy of; returns when they serve it and no straggler comes any more, or when
    /// it takes too long.
    pub(crate) async fn hand_over(&self) {
        let _ = self.inbox.send(Notice::HandOver);
        let end = Instant::now() + HAND_OVER_MAX;
        let mut quiet_since = Instant::now();
        loop {
            let status = self.board.status();
            let left = status.shards.iter().filter(|shard| is_to_be_handed_over(shard)).count();
            if left > 0 || !status.is_stopping {
                quiet_since = Instant::now();
            }
            if quiet_since.elapsed() >= SETTLE {
                tracing::info!(event = "handed-over", "others serve what they have copies of");
                return;
            }
            if Instant::now() >= end {
                tracing::warn!(event = "hand-over-late", left, "ending with shards nobody took");
                return;
            }
            if self.turns.stands_still(Thread::Roles) {
                tracing::warn!(
                    event = "hand-over-late",
                    left,
                    "the thread of the roles stands still and hands nothing over"
                );
                return;
            }
            sleep(LOOK).await;
        }
    }

    /// Reads the key file again, and gives its keys to the workers. A file that is refused leaves the former keys in use.
    pub(crate) fn read_keys_again(&self) {
        reload_keys(&self.key_file, &self.inbox);
    }

    /// Takes the routes away and stops to decide; the workers go on until they are stopped.
    pub(crate) fn withdraw(self) -> Farewell {
        let _ = self.inbox.send(Notice::End);
        let end = std::time::Instant::now() + ROLES_END_MAX;
        while !self.thread.is_finished() && std::time::Instant::now() < end {
            std::thread::sleep(END_POLL);
        }
        if self.thread.is_finished() {
            // A panic there has been reported.
            let _ = self.thread.join();
        } else {
            // Its routes go with the beats of the workers, which end next.
            tracing::error!(event = "end-late", thread = "roles", "it stands still");
        }
        self.farewell
    }
}

/// Served here, or still announced better than a replica, while others could serve it.
fn is_to_be_handed_over(shard: &RoleStatus) -> bool {
    let is_served = ["primary", "acting"].contains(&shard.role.as_str());
    let keeps_route = shard.metric.is_some_and(|metric| metric < 1 << 31);
    (is_served || keeps_route) && shard.others_synced > 0
}

impl Farewell {
    /// Says that the node has gone, and that nothing of it can come back: whoever is left may have its lanes at once.
    /// To be called when no worker runs any more.
    pub(crate) fn say(self) {
        let by = format!("{} as it ended", self.name);
        let operator = Operator::new(self.etcd.cluster().store(), &by);
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let said = operator.say_ended(&self.name, &self.boot_ids, unix.as_millis() as u64);
        // Unsaid, its lanes wait for its next start.
        if let Err(error) = self.etcd.cluster().handle().block_on(said) {
            tracing::warn!(event = "farewell-unsaid", "{error}");
            let is_unsaid = matches!(&error, OperateError::Etcd(error) if !error.may_have_happened);
            if is_unsaid && let Err(error) = note_unsaid(&self.map_path) {
                tracing::error!(event = "epochs-not-kept", "{error}");
            }
        }
        self.etcd.leave();
    }
}

/// Nobody knows of the end of this process, so the next one may begin where it was a member.
fn note_unsaid(path: &Path) -> io::Result<()> {
    let mut map = KnownMap::load(path)?;
    map.set_ended(false);
    map.save()
}

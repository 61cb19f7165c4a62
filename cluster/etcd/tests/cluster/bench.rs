//! Shared by the tests: a cluster with short times, and waits for events.

use std::collections::BTreeMap;
use std::time::Duration;

use weir_etcd::{
    ClaimEvent, Election, EtcdCluster, EtcdOptions, HistoryPosition, Key, LeaderRecord, Mirror,
    MirrorEvent, NodeRecord, NodeSession, Outcome, Revision, ShardId, Store,
};

pub(crate) const TTL: Duration = Duration::from_secs(3);
pub(crate) const MARGIN: Duration = Duration::from_secs(1);
const DEADLINE: Duration = Duration::from_secs(30);

pub(crate) fn options(endpoints: &[String]) -> EtcdOptions {
    let mut options = EtcdOptions::new("north".parse().unwrap(), endpoints.to_vec(), 7);
    options.lease_ttl = TTL;
    options.leader_margin = MARGIN;
    options.request_timeout = Duration::from_secs(1);
    options.retry_first = Duration::from_millis(20);
    options.retry_max = Duration::from_millis(300);
    options.claim_interval = Duration::from_millis(100);
    options.progress_interval = Duration::from_millis(300);
    options
}

pub(crate) fn start(options: EtcdOptions) -> EtcdCluster {
    EtcdCluster::start(options, || ()).unwrap()
}

pub(crate) fn cluster(endpoint: String) -> EtcdCluster {
    start(options(&[endpoint]))
}

/// Waits for a future of `cluster`, up to the deadline of every test.
pub(crate) fn wait<T>(cluster: &EtcdCluster, what: &str, future: impl Future<Output = T>) -> T {
    cluster
        .handle()
        .block_on(async { tokio::time::timeout(DEADLINE, future).await })
        .unwrap_or_else(|_| panic!("no {what} within {DEADLINE:?}; {:?}", cluster.last_error()))
}

pub(crate) fn node_record(boot_id: &str) -> NodeRecord {
    NodeRecord {
        boot_id: boot_id.to_owned(),
        version: "0.1.0".to_owned(),
        rack: None,
        capacity: 10,
        workers: Vec::new(),
        admin: None,
        is_stopping: false,
        has_copies: false,
    }
}

pub(crate) fn leader_record(boot_id: &str) -> LeaderRecord {
    LeaderRecord { boot_id: boot_id.to_owned(), name: "c".to_owned() }
}

pub(crate) fn node() -> Key {
    Key::Node("n1".parse().unwrap())
}

/// Returns the next event that is neither `Connected` nor `Lost`.
pub(crate) async fn next_of_session(session: &mut NodeSession) -> ClaimEvent {
    loop {
        match session.next_event().await.unwrap() {
            ClaimEvent::Connected | ClaimEvent::Lost { .. } => {}
            event => return event,
        }
    }
}

/// As [`next_of_session`].
pub(crate) async fn next_of_election(election: &mut Election) -> ClaimEvent {
    loop {
        match election.next_event().await.unwrap() {
            ClaimEvent::Connected | ClaimEvent::Lost { .. } => {}
            event => return event,
        }
    }
}

pub(crate) fn done(outcome: Outcome) -> Revision {
    match outcome {
        Outcome::Done(revision) => revision,
        other => panic!("not written: {other:?}"),
    }
}

/// Writes a shard's key, whatever its revision.
pub(crate) fn write(cluster: &EtcdCluster, shard: u32, value: &str) -> Revision {
    let store = cluster.store();
    wait(cluster, "write", write_shard(store, shard, value.into()))
}

pub(crate) async fn write_shard(store: Store, shard: u32, value: Vec<u8>) -> Revision {
    let key = Key::Shard(ShardId(shard));
    let expected = store.get(&key).await.unwrap().map(|found| found.mod_revision);
    done(store.put(key, expected, value).await)
}

/// A copy of the keys, as a mirror has reported them.
#[derive(Default)]
pub(crate) struct Copy {
    pub(crate) keys: BTreeMap<Key, Vec<u8>>,
    pub(crate) position: Option<HistoryPosition>,
    pub(crate) restores: usize,
    pub(crate) is_stale: bool,
}

impl Copy {
    pub(crate) fn apply(&mut self, event: MirrorEvent) {
        match event {
            MirrorEvent::Put { key, value, .. } => drop(self.keys.insert(key, value)),
            MirrorEvent::Delete { key } => drop(self.keys.remove(&key)),
            MirrorEvent::SnapshotComplete { position } => {
                (self.position, self.is_stale) = (Some(position), false);
            }
            MirrorEvent::Restored { .. } => {
                self.keys.clear();
                self.restores += 1;
            }
            MirrorEvent::Stale => self.is_stale = true,
        }
    }

    /// Takes events until `is_so` holds.
    pub(crate) fn until(
        &mut self,
        cluster: &EtcdCluster,
        mirror: &mut Mirror,
        what: &str,
        is_so: impl Fn(&Self) -> bool,
    ) {
        wait(cluster, what, async {
            while !is_so(self) {
                self.apply(mirror.next_event().await.unwrap());
            }
        });
    }

    pub(crate) fn has(&self, shard: u32, value: &str) -> bool {
        self.keys.get(&Key::Shard(ShardId(shard))).is_some_and(|found| found == value.as_bytes())
    }
}

//! Nodes of a test on a real etcd, and the operator's view.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use weir_controller::operate::Operator;
use weir_controller::records::{DoubtAnswer, EventRecord, NodeAnswer};
use weir_etcd::{
    EtcdCluster, Key, KeyRange, LeaderRecord, NodeRecord, NodeSession, Outcome, WorkerRecord,
};
use weir_map::map::Transition;
use weir_map::{BootId, Incarnation, LaneSet, MemberState, NodeId, ShardEntry};

use super::cluster;
use crate::admin;
use crate::etcd::{Etcd, wait_for};

/// Nodes whose workers do what the map asks of them, and the operator's view.
pub(super) struct Bench {
    pub(super) cluster: EtcdCluster,
    pub(super) sessions: Vec<Option<NodeSession>>,
    pub(super) records: Vec<NodeRecord>,
    pub(super) boots: Vec<BootId>,
    pub(super) alive: Arc<Mutex<BTreeSet<NodeId>>>,
    pub(super) doubts: Arc<Mutex<Vec<DoubtAnswer>>>,
}

pub(super) fn id(node: usize) -> NodeId {
    NodeId::new(&format!("n{node}")).unwrap()
}

pub(super) fn name(node: usize) -> NodeId {
    format!("n{node}").parse().unwrap()
}

/// Returns the record of a node with one worker, both in their first incarnation.
pub(crate) fn node_record(boot_id: BootId) -> NodeRecord {
    let worker = WorkerRecord {
        index: 0,
        boot_id: boot_id.to_string(),
        resumes: None,
        weight: 100,
        load_max: None,
        shards_max: None,
        replication: None,
    };
    NodeRecord {
        boot_id: boot_id.to_string(),
        version: "0".into(),
        rack: None,
        capacity: 1,
        workers: vec![worker],
        admin: None,
        has_copies: false,
        is_stopping: false,
    }
}

/// Serves a node's report: it hears the nodes that are alive, and names the shards that etcd has
/// forgotten.
fn serve_report(
    node: usize,
    alive: Arc<Mutex<BTreeSet<NodeId>>>,
    doubts: Arc<Mutex<Vec<DoubtAnswer>>>,
) -> SocketAddr {
    admin::serve(move || {
        let doubts = doubts.lock().unwrap().clone();
        let alive = alive.lock().unwrap();
        let hears = (0..8).map(|other| (id(other).to_string(), alive.contains(&id(other))));
        let node = id(node).to_string();
        let answer = NodeAnswer {
            node,
            hears: hears.collect(),
            doubts_total: Some(doubts.len()),
            doubts,
            ..NodeAnswer::default()
        };
        admin::ok(&serde_json::to_string(&answer).unwrap())
    })
}

impl Bench {
    pub(super) fn new(etcd: &Etcd, nodes: usize) -> Self {
        let cluster = cluster(&etcd.endpoint());
        let boots: Vec<BootId> = (0..nodes).map(|node| BootId(node as u128 + 1)).collect();
        let alive: Arc<Mutex<BTreeSet<NodeId>>> =
            Arc::new(Mutex::new((0..nodes).map(id).collect()));
        let doubts = Arc::<Mutex<Vec<DoubtAnswer>>>::default();
        let records = boots.iter().enumerate().map(|(node, &boot_id)| {
            let admin = Some(serve_report(node, Arc::clone(&alive), Arc::clone(&doubts)));
            NodeRecord { admin, ..node_record(boot_id) }
        });
        let records: Vec<NodeRecord> = records.collect();
        let sessions = records.iter().enumerate();
        let sessions = sessions.map(|(node, record)| Some(cluster.session(name(node), record)));
        Self { sessions: sessions.collect(), cluster, records, boots, alive, doubts }
    }

    pub(super) fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.cluster.handle().block_on(future)
    }

    pub(super) fn operator(&self) -> Operator {
        Operator::new(self.cluster.store(), "ann")
    }

    pub(super) fn desire(&self, shards: u32) {
        let shards: Vec<_> = (1..=shards).map(|id| serde_json::json!({"id": id})).collect();
        let desired = serde_json::json!({"format": 1, "cluster": {"replicas": 1}, "shard": shards});
        let store = self.cluster.store();
        wait_for("a new wish", || {
            let Ok(held) = self.wait(store.get(&Key::Desired)) else { return false };
            let expected = held.map(|held| held.mod_revision);
            let value = desired.to_string().into_bytes();
            matches!(self.wait(store.put(Key::Desired, expected, value)), Outcome::Done(_))
        });
    }

    pub(super) fn entries(&self) -> Vec<ShardEntry> {
        self.map().into_values().collect()
    }

    /// Returns the entries by number; empty while etcd does not answer.
    pub(super) fn map(&self) -> BTreeMap<u32, ShardEntry> {
        let found = self.wait(self.cluster.store().list(KeyRange::Shards));
        let Ok((_, found)) = found else { return BTreeMap::new() };
        let entries = found.iter().filter_map(|(key, held)| match key {
            Key::Shard(id) => Some((id.0, ShardEntry::from_json(&held.value).unwrap())),
            _ => None,
        });
        entries.collect()
    }

    fn runs(&self, who: &Incarnation) -> bool {
        let is_boot = |index: &usize| self.boots[*index] == who.boot_id;
        (0..self.boots.len()).find(is_boot).is_some_and(|it| self.sessions[it].is_some())
    }

    /// Lets every worker do one thing.
    pub(super) fn work(&self) {
        let store = self.cluster.store();
        let Ok((_, found)) = self.wait(store.list(KeyRange::Shards)) else { return };
        for (key, held) in found {
            let entry = ShardEntry::from_json(&held.value).unwrap();
            let Some(wanted_transition) = self.wanted_transition(&entry) else { continue };
            let next =
                entry.after(entry.epoch(), &wanted_transition).unwrap().to_json().into_bytes();
            // If another writer was faster, the next turn tries again.
            self.wait(store.put(key, Some(held.mod_revision), next));
        }
    }

    fn wanted_transition(&self, entry: &ShardEntry) -> Option<Transition> {
        let member_at = |slot| &entry.at_slot(slot).unwrap().incarnation;
        for (index, lane) in entry.lanes().iter().enumerate() {
            let Some(moving) = lane.moving else { continue };
            if self.runs(member_at(moving.from)) && self.runs(member_at(lane.owner)) {
                let by = member_at(lane.owner).clone();
                return Some(Transition::Settle { by, lanes: LaneSet::EMPTY.with(index) });
            }
        }
        let mut members = entry.members().iter();
        let copied =
            members.find(|it| it.state != MemberState::Synced && self.runs(&it.incarnation))?;
        Some(Transition::Synced(copied.incarnation.clone()))
    }

    fn is_whole(&self, shards: usize) -> bool {
        self.work();
        let entries = self.entries();
        let is_whole = |entry: &ShardEntry| {
            let synced = entry
                .members()
                .iter()
                .filter(|it| it.state == MemberState::Synced && self.runs(&it.incarnation));
            synced.count() == 2
        };
        entries.len() == shards && entries.iter().all(is_whole)
    }

    pub(super) fn whole(&self, shards: usize) {
        wait_for("whole map", || self.is_whole(shards));
    }

    pub(super) fn leader(&self) -> Option<String> {
        let held = self.wait(self.cluster.store().get(&Key::Leader)).ok()??;
        Some(serde_json::from_slice::<LeaderRecord>(&held.value).unwrap().name)
    }

    /// Checks that the events have no gap, and that their writer changes only by an election.
    pub(super) fn check_events(&self) -> Vec<EventRecord> {
        let events = self.wait(self.operator().events()).unwrap();
        for pair in events.windows(2) {
            assert_eq!(pair[1].number, pair[0].number + 1);
            let is_election = pair[1].what == "this controller leads now";
            assert!(pair[0].by == pair[1].by || is_election, "{pair:?}");
        }
        events
    }
}

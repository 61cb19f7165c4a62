//! The messages of a [`MapWatch`], change by change.

use weir_map::map::Transition;
use weir_map::{BootId, Incarnation, LaneSet, ShardId};

use super::super::map::ShardState;
use super::*;

fn who(worker: &str, boot: u128) -> Incarnation {
    Incarnation { worker: worker.parse().unwrap(), boot_id: BootId(boot) }
}

#[derive(Default)]
struct Bench {
    map: WatchedKeys,
    revision: i64,
}

impl Bench {
    /// Creates a bench with a complete map: shard 1 on `n1`, and `n2` registered beside it.
    fn new() -> Self {
        let mut bench = Self::default();
        bench.put(
            Key::Desired,
            r#"{"format":1,"cluster":{"replicas":1},"shard":[{"id":1},{"id":2}]}"#,
        );
        bench.register("n1", 1, false);
        bench.register("n2", 2, false);
        bench.shard(&ShardEntry::create(who("n1/0", 1)));
        assert_eq!(bench.updates(), [], "nothing is reported before the snapshot is complete");
        let position =
            weir_etcd::HistoryPosition { cluster_id: 1, revision: Revision(9), raft_term: 1 };
        bench.map.take(MirrorEvent::SnapshotComplete { position });
        bench
    }

    fn put(&mut self, key: Key, value: &str) {
        self.revision += 1;
        let (value, mod_revision) = (value.as_bytes().to_vec(), Revision(self.revision));
        self.map.take(MirrorEvent::Put { key, value, mod_revision });
    }

    fn register(&mut self, node: &str, boot: u128, is_stopping: bool) {
        let boot = BootId(boot);
        let record = format!(
            r#"{{"boot_id":"{boot}","version":"0","capacity":1,"is_stopping":{is_stopping},"workers":[{{"index":0,"boot_id":"{boot}","weight":1}}]}}"#
        );
        self.put(Key::Node(node.parse().unwrap()), &record);
    }

    fn shard(&mut self, entry: &ShardEntry) {
        self.put(Key::Shard(ShardId(1)), &entry.to_json());
    }

    fn updates(&mut self) -> Vec<MapUpdate> {
        self.map.updates.drain(..).collect()
    }

    /// Applies a transition and takes its only message: the shard's state, and the differences.
    fn step(
        &mut self,
        entry: &mut ShardEntry,
        transition: &Transition,
    ) -> (ShardState, Vec<String>) {
        *entry = entry.after(entry.epoch(), transition).unwrap();
        self.shard(entry);
        match self.updates().as_slice() {
            [MapUpdate::Shard(line, what)] => {
                assert_eq!((line.shard, line.epoch), (1, entry.epoch().0));
                (line.state, what.clone())
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn every_change_of_a_shard_is_described_in_words() {
    let mut bench = Bench::new();
    let [MapUpdate::All(lines)] = &bench.updates()[..] else { panic!("the whole map comes first") };
    let states: Vec<ShardState> = lines.iter().map(|line| line.state).collect();
    assert_eq!(states, [ShardState::Unprotected, ShardState::Missing]);

    let mut entry = ShardEntry::create(who("n1/0", 1));
    let mut step = |bench: &mut Bench, transition| bench.step(&mut entry, &transition);
    let second = || who("n2/0", 2);
    assert_eq!(
        step(&mut bench, Transition::AddReplica(second())),
        (ShardState::Unprotected, vec!["n2/0 begins to copy".into()])
    );
    assert_eq!(
        step(&mut bench, Transition::Synced(second())),
        (ShardState::Moving, vec!["n2/0 is synced".into(), "lane 1: n1/0 -> n2/0".into()])
    );
    let settle = Transition::Settle { by: second(), lanes: LaneSet::EMPTY.with(1) };
    assert_eq!(step(&mut bench, settle), (ShardState::Whole, vec!["lane 1: at n2/0".into()]));
    assert_eq!(
        step(&mut bench, Transition::Promote(second())),
        (
            ShardState::Moving,
            vec!["n2/0 is primary".into(), "lane 2 3 4 5 6 7: n1/0 -> n2/0".into()]
        )
    );
    let fence = Transition::Fence(who("n1/0", 1));
    let (state, what) = step(&mut bench, fence);
    assert_eq!(state, ShardState::Unprotected);
    assert_eq!(what, ["n1/0 has left", "lane 0 2 3 4 5 6 7: at n2/0"]);
    bench.shard(&entry);
    assert_eq!(bench.updates(), [], "an unchanged entry is not reported");
    bench.map.take(MirrorEvent::Delete { key: Key::Shard(ShardId(1)) });
    assert_eq!(bench.updates(), [MapUpdate::Retired(ShardId(1))]);
}

#[test]
fn a_node_is_reported_when_it_registers_stops_or_is_gone() {
    let mut bench = Bench::new();
    bench.updates();
    let node = |update| vec![MapUpdate::Node("n1".into(), update)];
    bench.register("n1", 1, false);
    assert_eq!(bench.updates(), []);
    bench.register("n1", 1, true);
    assert_eq!(bench.updates(), node(NodeUpdate::Stopping));
    assert_eq!(lines(&bench.map.view)[0].members[0].life, "stopping");
    bench.map.take(MirrorEvent::Delete { key: Key::Node("n1".parse().unwrap()) });
    assert_eq!(bench.updates(), node(NodeUpdate::Gone));
    let line = &lines(&bench.map.view)[0];
    assert_eq!((line.state, line.members[0].life.as_str()), (ShardState::NoPrimary, "gone"));
    bench.register("n1", 3, false);
    assert_eq!(bench.updates(), node(NodeUpdate::Registered));
    assert_eq!(lines(&bench.map.view)[0].members[0].life, "restarted");
    bench.register("n1", 4, false);
    assert_eq!(bench.updates(), node(NodeUpdate::Restarted));
}

#[test]
fn silence_and_a_restore_of_etcd_are_reported_once() {
    let mut bench = Bench::new();
    bench.updates();
    let position =
        weir_etcd::HistoryPosition { cluster_id: 1, revision: Revision(9), raft_term: 1 };
    bench.map.take(MirrorEvent::Stale);
    bench.map.take(MirrorEvent::Stale);
    bench.map.take(MirrorEvent::SnapshotComplete { position });
    bench.map.take(MirrorEvent::SnapshotComplete { position });
    assert_eq!(bench.updates(), [MapUpdate::Silent, MapUpdate::Again]);
    let reason = weir_etcd::RestoreReason::ClusterId { before: 1, now: 2 };
    bench.map.take(MirrorEvent::Restored { reason, position });
    bench.map.take(MirrorEvent::SnapshotComplete { position });
    assert_eq!(bench.updates(), [MapUpdate::Restored, MapUpdate::All(vec![])]);
}

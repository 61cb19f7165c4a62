//! The rules that every write of a controller must keep.

use weir_controller::records::*;
use weir_etcd::{Key, NodeId, NodeRecord};
use weir_map::*;

use super::World;
use crate::fake_etcd::Changes;

impl World {
    /// Checks every rule that a write must keep in any situation.
    pub(super) fn check(&mut self, controller: usize, changes: &Changes) {
        let mut events: Vec<EventRecord> = Vec::new();
        let mut shards = Vec::new();
        for (key, before, after) in changes {
            match (key, after) {
                (Key::Event(_), Some(after)) => {
                    events.push(serde_json::from_slice(&after.value).unwrap());
                }
                (Key::Shard(id), Some(after)) => {
                    let entry = |value: &[u8]| ShardEntry::from_json(value).expect("valid");
                    let before = before.as_ref().map(|it| entry(&it.value));
                    shards.push((id.0, before, entry(&after.value)));
                }
                (Key::Shard(id), None) => {
                    let desired: DesiredView =
                        serde_json::from_slice(self.etcd.value(&Key::Desired).unwrap()).unwrap();
                    assert!(!desired.shards.iter().any(|shard| shard.id == id.0));
                }
                _ => {}
            }
        }
        for (id, before, after) in shards {
            let event = events.iter().rfind(|event| event.shard == Some(id));
            let event = event.expect("a decision is written with its event");
            self.check_entry(controller, before.as_ref(), &after, event);
        }
    }

    fn check_entry(
        &mut self,
        controller: usize,
        before: Option<&ShardEntry>,
        after: &ShardEntry,
        event: &EventRecord,
    ) {
        self.entries_written += 1;
        self.check_comers(controller, before, after);
        let goes_on = after.rebased() == Some(after.epoch());
        if let Some(before) = before.filter(|_| !goes_on) {
            assert_eq!(after.epoch().0, before.epoch().0 + 1);
            self.check_ends(before, after);
            self.check_freeze(controller, before, after);
            if event.is_move {
                self.check_move(controller, before, event);
            }
        }
        if event.is_move {
            self.moves_ms.push(self.ms);
            let minute = self.moves_ms.iter().filter(|&&ms| ms + 60_000 > self.ms).count();
            assert!(minute <= self.options.moves_per_min, "{minute} moves in a minute");
        }
    }

    /// Checks that a node that is about to end gets no shard.
    fn check_comers(&self, controller: usize, before: Option<&ShardEntry>, after: &ShardEntry) {
        let seen = &self.controllers[controller].seen;
        for member in after.members() {
            let who = &member.incarnation;
            if before.is_some_and(|before| before.member(who).is_some()) {
                continue;
            }
            let record = seen.get(&Key::Node(who.worker.node.clone()));
            let record = record.map(|value| serde_json::from_slice::<NodeRecord>(value).unwrap());
            assert!(record.is_none_or(|record| !record.is_stopping), "{before:?} {after:?}");
        }
    }

    /// Checks that no running incarnation loses its member slot while it has a lane.
    fn check_ends(&self, before: &ShardEntry, after: &ShardEntry) {
        for member in before.members() {
            if after.member(&member.incarnation).is_none() && self.runs(&member.incarnation) {
                assert!(before.lanes_of(member.slot).is_empty(), "{before:?} {after:?}");
            }
        }
    }

    fn check_freeze(&self, controller: usize, before: &ShardEntry, after: &ShardEntry) {
        let control = self.controllers[controller].seen.get(&Key::Control);
        let control = control.map(|value| serde_json::from_slice::<Control>(value).unwrap());
        if control.is_none_or(|control| control.freeze.is_none()) {
            return;
        }
        let had = |who: &Incarnation| {
            before.members().iter().any(|it| it.incarnation.worker == who.worker)
        };
        let lost_primary = after.member(&before.primary().incarnation).is_none();
        for member in after.members() {
            assert!(had(&member.incarnation) || lost_primary, "copied while frozen: {after:?}");
            let former = before.member(&member.incarnation);
            let began_to_leave = member.is_leaving && former.is_some_and(|it| !it.1.is_leaving);
            assert!(!began_to_leave, "retired while frozen: {after:?}");
        }
    }

    /// Checks that a move begins only on a shard that has all available copies.
    fn check_move(&self, controller: usize, before: &ShardEntry, event: &EventRecord) {
        let seen = &self.controllers[controller].seen;
        let desired: DesiredView = serde_json::from_slice(&seen[&Key::Desired]).unwrap();
        let copies = 1 + usize::from(desired.cluster.replicas);
        let is_drained = |node: &NodeId| {
            let intent = seen.get(&Key::Intent(node.clone()));
            intent.is_some_and(|it| serde_json::from_slice::<Intent>(it).unwrap().drain.is_some())
        };
        let open = seen.keys().filter(|key| match key {
            Key::Node(node) => !is_drained(node),
            _ => false,
        });
        let wanted = copies.min(open.count());
        let records: Vec<NodeRecord> = seen
            .iter()
            .filter(|(key, _)| matches!(key, Key::Node(_)))
            .map(|(_, value)| serde_json::from_slice(value).unwrap())
            .collect();
        let is_registered = |who: &Incarnation| {
            let boot_id = who.boot_id.to_string();
            records.iter().any(|it| it.workers.iter().any(|it| it.boot_id == boot_id))
        };
        let synced = before
            .members()
            .iter()
            .filter(|it| it.state == MemberState::Synced && is_registered(&it.incarnation));
        assert!(synced.count() >= wanted, "{event:?} of {before:?}");
    }
}

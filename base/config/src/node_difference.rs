//! The changes from one file of a single node to another, and what the running node can take of
//! them.

use serde_json::{Map, Value};

use crate::Effect;
use crate::desired::delegation_difference::delegation_difference;
use crate::desired::difference::{SettingChange, homes_of_access, object, section_changes, words};
use crate::desired::policy_difference::policy_changes;
use crate::desired::public_difference::public_difference;
use crate::types::{Config, ShardSettings};

/// Returns the differences in `new`: keys in the order of the file. Empty exactly if `old` and
/// `new` are equal. `start` is the file that the node began with: its tables were built for that.
pub fn node_difference(start: &Config, old: &Config, new: &Config) -> Vec<SettingChange> {
    let mut changes = Vec::new();
    for_restart("node", &object(&old.node), &object(&new.node), &mut changes);
    workers(old, new, &mut changes);
    for (section, of) in SECTIONS {
        let [start, old, new] = [start, old, new].map(of);
        let first = changes.len();
        section_changes(section, [&start, &old, &new], &mut changes);
        // What ends all flows of a cluster takes a restart of the node.
        for change in &mut changes[first..] {
            change.is_for_restarts |=
                matches!(change.effect, Effect::EndsAll | Effect::EndsOnRestart);
        }
    }
    homes_of_access(&old.access, &new.access, &mut changes);
    shards(old, new, &mut changes);
    changes.extend(policy_changes(&old.policy, &new.policy, quota_max(start)));
    changes.extend(public_difference(&old.public, &new.public));
    changes.extend(delegation_difference(&old.ipv6, &new.ipv6));
    changes
}

/// Returns the largest quota of ports for which the tables of a node with this file are built.
fn quota_max(start: &Config) -> u64 {
    let of_groups = start.policy.groups.iter().filter_map(|it| it.limits.ports_per_subscriber);
    of_groups.chain([start.nat.ports_per_subscriber]).max().map_or(0, u64::from)
}

/// Returns the keys of a section.
type KeysOf = fn(&Config) -> Map<String, Value>;

/// The sections with keys that a running node may take, apart from the lists in them.
const SECTIONS: [(&str, KeysOf); 6] = [
    ("access", |config| object(&config.access)),
    ("nat", |config| object(&config.nat)),
    ("timeouts", |config| object(&config.timeouts)),
    ("fragments", |config| object(&config.fragments)),
    ("limits", |config| object(&config.limits)),
    ("ipv6", |config| object(&config.ipv6)),
];

fn workers(old: &Config, new: &Config, changes: &mut Vec<SettingChange>) {
    let count = old.workers.len().max(new.workers.len());
    for number in 0..count {
        let subject = format!("worker {number}");
        match (old.workers.get(number), new.workers.get(number)) {
            (Some(old), Some(new)) => for_restart(&subject, &object(old), &object(new), changes),
            (old, _) => changes.push(whole(subject, old.is_some())),
        }
    }
}

fn shards(old: &Config, new: &Config, changes: &mut Vec<SettingChange>) {
    let find = |config: &Config, id: u32| -> Option<ShardSettings> {
        config.shards.iter().find(|shard| shard.id == id).cloned()
    };
    for shard in &old.shards {
        let subject = format!("shard {}", shard.id);
        match find(new, shard.id) {
            Some(new) => for_restart(&subject, &object(shard), &object(&new), changes),
            None => changes.push(whole(subject, true)),
        }
    }
    for shard in new.shards.iter().filter(|shard| find(old, shard.id).is_none()) {
        changes.push(whole(format!("shard {}", shard.id), false));
    }
}

/// Adds the keys that differ, none of which a running node takes.
fn for_restart(
    subject: &str,
    old: &Map<String, Value>,
    new: &Map<String, Value>,
    changes: &mut Vec<SettingChange>,
) {
    for (name, old) in old {
        let new = new.get(name).unwrap_or(&Value::Null);
        if old != new {
            changes.push(SettingChange {
                subject: format!("{subject}.{name}"),
                what: format!("{} -> {}", words(old), words(new)),
                effect: Effect::EndsOnRestart,
                is_for_restarts: true,
            });
        }
    }
}

fn whole(subject: String, is_removed: bool) -> SettingChange {
    let what = if is_removed { "removed" } else { "added" }.to_owned();
    SettingChange { subject, what, effect: Effect::EndsOnRestart, is_for_restarts: true }
}

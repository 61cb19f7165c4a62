//! Values that weir could have written except for their numbers, and answers of nodes.

use bolero::TypeGenerator;
use serde_json::{Value, json};
use weir_controller::records::*;
use weir_controller::state::{BirdDown, NodeDoubts, NodeReport, NodeTroubles};
use weir_etcd::Key;
use weir_map::*;

use super::START_MS;
use crate::fleet::{UNIX_MS, id, name};

const NODES: usize = 4;
const SHARDS: u32 = 4;

/// A small number, now and then an arbitrary one, or one at an end of its type.
#[derive(Clone, Copy, Debug, TypeGenerator)]
pub(super) struct Number(u8, u64);

impl Number {
    pub(super) const fn of(small: u8) -> Self {
        Self(small, 0)
    }

    fn value(self) -> u64 {
        const ENDS: [u64; 8] = [
            u64::MAX,
            u64::MAX - 1,
            i64::MAX as u64,
            1 << 53,
            u32::MAX as u64,
            1 << 32,
            UNIX_MS + START_MS,
            1 << 28,
        ];
        match self.0 {
            ..200 => u64::from(self.0 % 12),
            200..225 => self.1,
            end => ENDS[usize::from(end) % ENDS.len()],
        }
    }
}

/// A value in weir's format with arbitrary numbers, of which some bytes are then changed.
#[derive(Clone, Debug, TypeGenerator)]
pub(super) struct Written {
    what: What,
    edits: Option<Vec<(u16, u8)>>,
}

#[derive(Clone, Debug, TypeGenerator)]
pub(super) enum What {
    Node { node: u8, boots: Vec<u8>, weight: Number, room: Option<Number>, is_stopping: bool },
    Shard { shard: u8, primary: u8, changes: Vec<(u8, u8)>, epoch: Option<Number>, term: Number },
    Intent { node: u8, drain: Option<(Number, bool)>, fence: Option<Vec<u8>>, is_more: bool },
    Control { freeze: Option<bool>, rebalance: bool, rebase: bool, retire: Vec<u8>, at: Number },
    Desired { format: Number, replicas: u8, shards: Vec<u8> },
    Meta { format: Number },
    Event { slot: Number, number: Number, at: Number, is_move: bool },
    Report { at: Number, desired: Option<Number> },
    Bytes { key: u8, bytes: Vec<u8> },
}

/// A primary and an epoch: the entry that a node obeys.
type Held = (u8, Number);

/// A node's answer.
#[derive(Clone, Debug, TypeGenerator)]
pub(super) struct ReportedValues {
    node: u8,
    hears: Vec<(u8, bool)>,
    loads: Vec<(u8, Number)>,
    broken: Vec<u8>,
    bird_down: Option<(bool, bool)>,
    acting: Option<(u8, u8, Number)>,
    doubts: Vec<(u8, Number, Option<Held>)>,
    are_all: bool,
}

pub(super) fn who(any: u8) -> Incarnation {
    let node = usize::from(any) % NODES;
    let worker = WorkerId { node: id(node), index: u16::from(any >> 6 & 1) };
    Incarnation { worker, boot_id: BootId(u128::from(any % 16)) }
}

pub(super) fn shard(any: u8) -> u32 {
    1 + u32::from(any) % SHARDS
}

pub(super) fn entry(primary: u8, changes: &[(u8, u8)]) -> ShardEntry {
    let mut entry = ShardEntry::create(who(primary));
    for &(kind, by) in changes.iter().take(8) {
        let members = entry.members();
        let member = members[usize::from(by) % members.len()].incarnation.clone();
        let change = match kind % 8 {
            0 | 1 => Transition::AddReplica(who(by)),
            2 | 3 => Transition::Synced(member),
            4 => Transition::Promote(member),
            5 => Transition::Retire(member),
            6 => Transition::Fence(member),
            _ => Transition::Settle { by: member, lanes: LaneSet(by) },
        };
        entry = entry.after(entry.epoch(), &change).unwrap_or(entry);
    }
    entry
}

/// Returns the entry with other numbers if that is still a valid entry, else unchanged.
pub(super) fn renumbered(entry: &ShardEntry, epoch: Option<Number>, term: Number) -> Value {
    let mut value: Value = serde_json::from_str(&entry.to_json()).unwrap();
    if let Some(epoch) = epoch {
        (value["epoch"], value["term"]) = (epoch.value().into(), term.value().into());
    }
    value
}

impl What {
    pub(super) fn json(&self) -> (Key, Value) {
        let order = |at: Number| json!({"by": "ann", "at_ms": at.value()});
        match self {
            Self::Node { node, boots, weight, room, is_stopping } => {
                let workers = boots.iter().take(3).enumerate().map(|(index, boot)| {
                    let boot_id = BootId(u128::from(boot % 16)).to_string();
                    json!({"index": index, "boot_id": boot_id, "weight": weight.value(),
                        "shards_max": room.map(Number::value), "load_max": room.map(Number::value)})
                });
                let workers: Vec<Value> = workers.collect();
                let record = json!({"boot_id": "b", "version": "0", "capacity": 1,
                    "workers": workers, "is_stopping": is_stopping});
                (Key::Node(name(usize::from(*node) % NODES)), record)
            }
            Self::Shard { shard: at, primary, changes, epoch, term } => (
                Key::Shard(ShardId(shard(*at))),
                renumbered(&entry(*primary, changes), *epoch, *term),
            ),
            Self::Intent { node, drain, fence, is_more } => {
                let mut intent = json!({});
                if let Some((at, force)) = drain {
                    intent["drain"] = json!({"by": "a", "at_ms": at.value(), "force": force});
                }
                if let Some(boots) = fence {
                    let boots = boots.iter().map(|boot| BootId(u128::from(boot % 16)).to_string());
                    let boots: Vec<String> = boots.collect();
                    intent["fence"] = json!({"by": "a", "at_ms": 1, "boot_ids": boots});
                }
                if *is_more {
                    intent["of_later"] = json!([1]);
                }
                (Key::Intent(name(usize::from(*node) % NODES)), intent)
            }
            Self::Control { freeze, rebalance, rebase, retire, at } => {
                let retire: Vec<u32> = retire.iter().map(|any| shard(*any)).collect();
                let mut control = json!({"retire": retire, "of_later": {"a": 1}});
                if let Some(is_total) = freeze {
                    control["freeze"] =
                        json!({"by": "a", "at_ms": at.value(), "why": "", "is_total": is_total});
                }
                for (key, is) in [("rebalance", rebalance), ("rebase", rebase)] {
                    if *is {
                        control[key] = order(*at);
                    }
                }
                (Key::Control, control)
            }
            Self::Desired { format, replicas, shards } => {
                let shards = shards.iter().map(|any| json!({"id": shard(*any)}));
                let (shards, cluster) =
                    (shards.collect::<Vec<_>>(), json!({"replicas": replicas, "balance": "load"}));
                let format = if format.value() > 12 { format.value() } else { 1 };
                (Key::Desired, json!({"format": format, "cluster": cluster, "shard": shards}))
            }
            Self::Meta { format } => {
                let id = BootId(1).to_string();
                (Key::Meta, json!({"format": format.value(), "cluster_id": id}))
            }
            Self::Event { slot, number, at, is_move } => {
                let event = json!({"number": number.value(), "at_ms": at.value(), "by": "c",
                    "what": "w", "why": "y", "is_move": is_move});
                (Key::Event((slot.value() % 600) as u32), event)
            }
            Self::Report { at, desired } => {
                let report = LeaderReport { at_ms: at.value(), ..LeaderReport::default() };
                let mut report = serde_json::to_value(report).unwrap();
                report["desired"] = json!(desired.map(Number::value));
                (Key::Report, report)
            }
            Self::Bytes { key, .. } => (any_key(*key), Value::Null),
        }
    }
}

pub(super) fn any_key(any: u8) -> Key {
    let at = any >> 3;
    match any % 8 {
        0 => Key::Node(name(usize::from(at) % NODES)),
        1 => Key::Shard(ShardId(shard(at))),
        2 => Key::Intent(name(usize::from(at) % NODES)),
        3 => Key::Control,
        4 => Key::Desired,
        5 => Key::Meta,
        6 => Key::Event(u32::from(at)),
        _ => Key::Report,
    }
}

impl Written {
    pub(super) fn bytes(&self) -> (Key, Vec<u8>) {
        let (key, value) = self.what.json();
        let mut bytes = match &self.what {
            What::Bytes { bytes, .. } => bytes.clone(),
            _ => value.to_string().into_bytes(),
        };
        let edits = self.edits.iter().flatten();
        for (at, value) in edits.take(bytes.len() % 3) {
            let at = usize::from(*at) % bytes.len().max(1);
            bytes.get_mut(at).into_iter().for_each(|byte| *byte = *value);
        }
        (key, bytes)
    }
}

impl ReportedValues {
    pub(super) fn report(&self) -> NodeReport {
        let node = |any: u8| id(usize::from(any) % NODES);
        let doubts = self.doubts.iter().take(4).map(|(at, known, held)| {
            let held = held.and_then(|(primary, epoch)| {
                let value = renumbered(&entry(primary, &[]), Some(epoch), Number::of(1));
                ShardEntry::from_json(value.to_string().as_bytes()).ok()
            });
            (ShardId(shard(*at)), (Epoch(known.value()), held))
        });
        NodeReport {
            node: node(self.node),
            hears: self.hears.iter().map(|(about, is)| (node(*about), *is)).collect(),
            loads: self
                .loads
                .iter()
                .map(|(at, load)| (ShardId(shard(*at)), load.value()))
                .collect(),
            broken: self.broken.iter().map(|it| u16::from(*it)).collect(),
            bird_down: self
                .bird_down
                .iter()
                .filter_map(|(is_access, answers)| {
                    let side = if *is_access { "access" } else { "internet" };
                    BirdDown::new(side, if *answers { "no-session" } else { "no-answer" })
                })
                .collect(),
            acting: self
                .acting
                .iter()
                .map(|(at, by, term)| (ShardId(shard(*at)), who(*by), Term(term.value() as u32)))
                .collect(),
            doubts: NodeDoubts { shards: doubts.collect(), are_all: self.are_all },
            generation: None,
            troubles: NodeTroubles { is_still: self.are_all, why: vec!["any".into()] },
        }
    }
}

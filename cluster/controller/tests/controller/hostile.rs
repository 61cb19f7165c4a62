//! The controller among invalid keys, and nodes that report arbitrary values.
//!
//! Whatever etcd holds, the controller neither panics nor waits permanently, all that it writes can
//! be read back, and it never overwrites an entry, an intent or a `/meta` that it cannot read: an
//! unknown value is not an absent one.

mod values;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use bolero::{TypeGenerator, check};
use serde_json::{Value, json};
use weir_controller::records::*;
use weir_controller::state::{
    Controller, ControllerAction, ControllerEvent, ControllerOptions, ControllerTime,
};
use weir_etcd::{Key, MirrorEvent, NodeRecord, Outcome, RestoreReason, Revision, Swap, SwapChange};
use weir_map::{ShardEntry, ShardId};

use crate::fake_etcd::{FakeEtcd, silence};
use crate::fleet::UNIX_MS;
use values::{Number, ReportedValues, What, Written, any_key};

const START_MS: u64 = 10_000_000;

/// Number of steps played, printed as the number of inputs.
static STEPS: AtomicU64 = AtomicU64::new(0);

#[derive(Clone, Debug, TypeGenerator)]
enum Step {
    Write(Written),
    Delete(u8),
    Report(ReportedValues),
    Tick(u16),
    /// Makes work more likely than each of the other steps.
    Work,
    Fail(bool),
    Elect,
    Restored,
}

struct Bench {
    etcd: FakeEtcd,
    delivered: usize,
    controller: Controller,
    answer: Option<ControllerEvent>,
    is_failing: Option<bool>,
    ms: u64,
}

impl Bench {
    fn new() -> Self {
        let mut options = ControllerOptions::new("c", 1);
        options.balance_wait_ms = 5_000;
        let mut bench = Self {
            etcd: FakeEtcd::default(),
            delivered: 0,
            controller: Controller::new(options),
            answer: None,
            is_failing: None,
            ms: START_MS,
        };
        let at = bench.etcd.position();
        bench.handle(ControllerEvent::Mirror(MirrorEvent::SnapshotComplete { position: at }));
        // The initial cluster is valid and working.
        let desired = What::Desired { format: Number::of(1), replicas: 1, shards: vec![0, 1, 2] };
        let nodes = (0..3).map(|node| What::Node {
            node,
            boots: vec![node],
            weight: Number::of(10),
            room: None,
            is_stopping: false,
        });
        for what in nodes.chain([desired]) {
            let (key, value) = what.json();
            bench.etcd.put(key, value.to_string().into_bytes());
        }
        bench.elect();
        bench
    }

    fn elect(&mut self) {
        let revision = self.etcd.elect(0);
        self.handle(ControllerEvent::Elected(revision));
    }

    fn handle(&mut self, input: ControllerEvent) {
        let now = ControllerTime { monotonic_ms: self.ms, unix_ms: UNIX_MS + self.ms };
        let actions = self.controller.handle(input, now);
        assert!(actions.len() <= 1, "a controller has one action under way");
        for action in actions {
            assert!(self.answer.is_none(), "the last action is answered before the next");
            self.answer = Some(match action {
                ControllerAction::Write(swaps) => ControllerEvent::Written(self.write(&swaps)),
                ControllerAction::Read(keys) => {
                    let found = keys.iter().map(|key| self.etcd.keys.get(key).cloned());
                    ControllerEvent::Read(Some(found.collect()))
                }
            });
        }
    }

    fn write(&mut self, swaps: &[Swap]) -> Outcome {
        for swap in swaps {
            let before = self.etcd.keys.get(&swap.key);
            let before = before.filter(|held| Some(held.mod_revision) == swap.expected);
            check_swap(swap, before.map(|held| held.value.as_slice()));
            if let (Key::Shard(id), SwapChange::Delete) = (&swap.key, &swap.change) {
                let orders = self.etcd.value(&Key::Control).expect("orders");
                let orders: Control = serde_json::from_slice(orders).expect("orders");
                assert!(orders.retire.contains(&id.0), "a shard is deleted only by a retire order");
            }
        }
        match self.is_failing.take() {
            Some(true) => Outcome::Unknown(silence(true)),
            Some(false) => Outcome::Unavailable(silence(false)),
            None => self.etcd.transact(swaps, Some(0)).0,
        }
    }

    /// Delivers all changes, and the answers to all actions that follow.
    fn work(&mut self) {
        for _ in 0..32 {
            while let Some(change) = self.etcd.history.get(self.delivered) {
                let event = FakeEtcd::mirror_event(change);
                self.delivered += 1;
                self.handle(ControllerEvent::Mirror(event));
            }
            let Some(answer) = self.answer.take() else { return };
            self.handle(answer);
        }
    }

    fn play(&mut self, step: &Step) {
        match step {
            Step::Write(written) => {
                let (key, value) = written.bytes();
                self.etcd.put(key, value);
            }
            Step::Delete(any) => self.etcd.delete(any_key(*any)),
            Step::Report(values) => self.handle(ControllerEvent::Report(values.report())),
            Step::Tick(ms) => {
                self.ms += u64::from(*ms);
                self.handle(ControllerEvent::Tick);
            }
            Step::Work => {
                self.ms += 600;
                self.handle(ControllerEvent::Tick);
                self.work();
            }
            Step::Fail(is_unknown) => self.is_failing = Some(*is_unknown),
            Step::Elect => {
                self.handle(ControllerEvent::Deposed);
                self.elect();
            }
            Step::Restored => self.restored(),
        }
    }

    /// Restores etcd: its mirror lists all keys again.
    fn restored(&mut self) {
        let position = self.etcd.position();
        let (before, now) = (Revision::default(), Revision::default());
        let reason = RestoreReason::Revision { before, now };
        self.handle(ControllerEvent::Mirror(MirrorEvent::Restored { reason, position }));
        let keys: BTreeMap<_, _> = self.etcd.keys.clone();
        for (key, held) in keys {
            self.handle(ControllerEvent::Mirror(FakeEtcd::mirror_event(&(key, Some(held)))));
        }
        self.handle(ControllerEvent::Mirror(MirrorEvent::SnapshotComplete { position }));
    }
}

/// Checks that a written value can be read, and that the value it replaces could be.
fn check_swap(swap: &Swap, before: Option<&[u8]>) {
    fn is<T: serde::de::DeserializeOwned>(value: &[u8]) -> bool {
        serde_json::from_slice::<T>(value).is_ok()
    }
    let is_readable = |value: &[u8]| match &swap.key {
        Key::Shard(_) => ShardEntry::from_json(value).is_ok(),
        Key::Intent(_) => is::<Intent>(value),
        Key::Control => is::<Control>(value),
        Key::Meta => is::<Meta>(value),
        Key::Event(_) => is::<EventRecord>(value),
        Key::Report => is::<LeaderReport>(value),
        Key::Node(_) => is::<NodeRecord>(value),
        Key::Desired | Key::Leader => false,
    };
    let is_retired = matches!(swap.key, Key::Shard(_)) && swap.change == SwapChange::Delete;
    if swap.change == SwapChange::Keep || is_retired {
        return;
    }
    // The controller may overwrite its own notes. Over unreadable orders, which freeze everything,
    // it may write only a total freeze.
    if swap.key == Key::Control && before.is_some_and(|before| !is_readable(before)) {
        let SwapChange::Put(value) = &swap.change else { panic!("{swap:?}") };
        let control: Control = serde_json::from_slice(value).expect("it is valid JSON");
        assert!(control.freeze.is_some_and(|freeze| freeze.is_total));
        return;
    }
    let is_note = matches!(swap.key, Key::Event(_) | Key::Report);
    if let Some(before) = before.filter(|before| !is_note && !is_readable(before)) {
        panic!("{swap:?} over {}", String::from_utf8_lossy(before));
    }
    if let SwapChange::Put(value) = &swap.change {
        assert!(is_readable(value), "{:?}: {}", swap.key, String::from_utf8_lossy(value));
        if let (Key::Intent(_) | Key::Control, Some(before)) = (&swap.key, before) {
            let of = |value: &[u8]| serde_json::from_slice::<Value>(value).unwrap();
            assert_eq!(of(value).get("of_later"), of(before).get("of_later"), "of a later version");
        }
    }
}

#[test]
fn keys_and_answers() {
    check!().with_type::<Vec<Step>>().for_each(|steps| {
        let mut bench = Bench::new();
        for step in steps {
            bench.play(step);
        }
        STEPS.fetch_add(steps.len() as u64, Ordering::Relaxed);
        bench.ms += 600;
        bench.handle(ControllerEvent::Tick);
        bench.work();
    });
    println!("inputs: {}", STEPS.load(Ordering::Relaxed));
}

/// Events with the highest numbers and times of their types, written by any client with rights in
/// etcd.
#[test]
fn events_with_the_highest_number_and_time_do_not_stop_the_controller() {
    let mut bench = Bench::new();
    let event = |number, at_ms| {
        let (by, what, why) = (String::new(), String::new(), String::new());
        let event =
            EventRecord { number, at_ms, by, node: None, shard: None, what, why, is_move: true };
        serde_json::to_vec(&event).unwrap()
    };
    bench.etcd.put(Key::Event(510), event(u64::MAX, u64::MAX));
    bench.etcd.put(Key::Event(511), event(u64::MAX - 1, 7));
    bench.etcd.put(Key::Event(7), event(7, UNIX_MS));
    for _ in 0..20 {
        bench.play(&Step::Work);
    }
    let written = bench.etcd.keys.iter().filter_map(|(key, held)| match key {
        Key::Event(_) => serde_json::from_slice::<EventRecord>(&held.value).ok(),
        _ => None,
    });
    let mut numbers: Vec<u64> =
        written.filter(|event| event.by == "c").map(|event| event.number).collect();
    numbers.sort_unstable();
    // The first event was written before the controller saw these.
    assert!(numbers.len() > 3 && numbers.remove(0) == 1, "{numbers:?}");
    assert_eq!(numbers, (8..).take(numbers.len()).collect::<Vec<_>>());
}

/// Some of many shards to be created wait for the next transaction: an entry that exists by then
/// stays.
#[test]
fn a_shard_created_by_another_writer_meanwhile_is_not_overwritten() {
    let mut bench = Bench::new();
    let shards: Vec<Value> = (1..=200).map(|id| json!({"id": id})).collect();
    let desired = json!({"format": 1, "cluster": {"replicas": 1}, "shard": shards});
    bench.etcd.put(Key::Desired, desired.to_string().into_bytes());
    let shards =
        |bench: &Bench| bench.etcd.keys.keys().filter(|key| matches!(key, Key::Shard(_))).count();
    bench.work();
    while shards(&bench) == 0 {
        bench.ms += 600;
        let next = bench.answer.take().unwrap_or(ControllerEvent::Tick);
        bench.handle(next);
    }
    assert!(shards(&bench) < 100);
    let later = b"an entry of a later version".to_vec();
    bench.etcd.put(Key::Shard(ShardId(200)), later.clone());
    for _ in 0..20 {
        bench.play(&Step::Work);
    }
    assert_eq!(
        (shards(&bench), bench.etcd.value(&Key::Shard(ShardId(200)))),
        (200, Some(&later[..]))
    );
}

use bolero::check;
use weir_ids::ShardId;

use super::*;

const TIMES: Times = Times {
    progress_interval: Duration::from_secs(5),
    answer_timeout: Duration::from_secs(2),
    list_interval: Duration::from_secs(60),
    list_grace: Duration::from_secs(5),
};
const SECOND: Duration = Duration::from_secs(1);

fn back_off() -> BackOff {
    BackOff::new(Duration::from_millis(100), SECOND * 5, 1)
}

fn position(revision: i64) -> HistoryPosition {
    HistoryPosition { cluster_id: 1, revision: Revision(revision), raft_term: 2 }
}

fn entry(shard: u32, value: &str, revision: i64) -> MirrorEntry {
    MirrorEntry {
        key: Key::Shard(ShardId(shard)),
        value: value.into(),
        mod_revision: Revision(revision),
    }
}

fn put(shard: u32, value: &str, revision: i64) -> MirrorChange {
    MirrorChange::Put(entry(shard, value, revision))
}

fn put_event(shard: u32, value: &str, revision: i64) -> MirrorEvent {
    entry(shard, value, revision).into_put()
}

fn deleted(shard: u32) -> MirrorEvent {
    MirrorEvent::Delete { key: Key::Shard(ShardId(shard)) }
}

fn listed(revision: i64, entries: &[MirrorEntry]) -> MirrorInput {
    MirrorInput::Listed { position: position(revision), entries: entries.to_vec() }
}

/// Returns a mirror that watches shard 1 = "a" of revision 3, listed at revision 10.
fn watching(now: Instant) -> MirrorState {
    let mut state = MirrorState::new(TIMES, back_off(), None, now);
    assert_eq!(state.handle(MirrorInput::Tick, now).actions, [MirrorAction::List]);
    let output = state.handle(listed(10, &[entry(1, "a", 3)]), now);
    assert_eq!(output.actions, [MirrorAction::OpenWatch(Revision(10))]);
    assert_eq!(
        output.events,
        [put_event(1, "a", 3), MirrorEvent::SnapshotComplete { position: position(10) }]
    );
    state.handle(MirrorInput::WatchOpened, now);
    state
}

/// Advances a watching mirror until it requests its full list.
fn check_due(state: &mut MirrorState) -> Instant {
    loop {
        let now = state.deadline().expect("a watching mirror has a deadline");
        let actions = state.handle(MirrorInput::Tick, now).actions;
        if actions.contains(&MirrorAction::RequestProgress) {
            state.handle(MirrorInput::Watched(Vec::new()), now);
        }
        if actions.contains(&MirrorAction::List) {
            return now;
        }
    }
}

#[test]
fn a_silent_watch_is_asked_for_progress_and_then_given_up() {
    let start = Instant::now();
    let mut state = watching(start);
    let asked = start + TIMES.progress_interval;
    assert_eq!(state.handle(MirrorInput::Tick, asked).actions, [MirrorAction::RequestProgress]);
    // An answer without events suffices.
    state.handle(MirrorInput::Watched(Vec::new()), asked + SECOND);
    assert_eq!(state.deadline(), Some(asked + SECOND + TIMES.progress_interval));
    let asked = asked + SECOND + TIMES.progress_interval;
    state.handle(MirrorInput::Tick, asked);
    let output = state.handle(MirrorInput::Tick, asked + TIMES.answer_timeout);
    assert!(output.is_stalled);
    assert_eq!(output.actions, [MirrorAction::Distrust, MirrorAction::Close]);
    assert_eq!(output.events, [MirrorEvent::Stale]);
    let now = state.deadline().unwrap();
    assert_eq!(state.handle(MirrorInput::Tick, now).actions, [MirrorAction::List]);
}

#[test]
fn only_changed_keys_are_reported_after_a_compaction() {
    let start = Instant::now();
    let mut state = watching(start);
    assert_eq!(state.handle(MirrorInput::Compacted, start).actions, [MirrorAction::Close]);
    let now = state.deadline().unwrap();
    state.handle(MirrorInput::Tick, now);
    let output = state.handle(listed(20, &[entry(2, "b", 15)]), now);
    assert_eq!(
        output.events,
        [
            put_event(2, "b", 15),
            deleted(1),
            MirrorEvent::SnapshotComplete { position: position(20) }
        ]
    );
}

#[test]
fn no_change_is_reported_twice() {
    let start = Instant::now();
    let mut state = watching(start);
    let changes = vec![put(1, "a", 3), put(1, "b", 11), put(1, "b", 11)];
    assert_eq!(state.handle(MirrorInput::Watched(changes), start).events, [put_event(1, "b", 11)]);
    let gone = MirrorChange::Delete { key: Key::Shard(ShardId(1)), revision: Revision(12) };
    let changes = vec![gone.clone(), gone, put(1, "b", 11)];
    assert_eq!(state.handle(MirrorInput::Watched(changes), start).events[0], deleted(1));
}

#[test]
fn a_list_that_the_watch_catches_up_with_counts_no_difference() {
    let start = Instant::now();
    let mut state = watching(start);
    let now = check_due(&mut state);
    // The watch is ahead of the list with key 2, written and deleted, and behind it with keys 1 and
    // 3.
    let gone = MirrorChange::Delete { key: Key::Shard(ShardId(2)), revision: Revision(14) };
    state.handle(MirrorInput::Watched(vec![put(2, "x", 12), gone]), now);
    let list = [entry(2, "x", 12), entry(3, "c", 13)];
    assert_eq!(state.handle(listed(13, &list), now).actions, []);
    let gone = MirrorChange::Delete { key: Key::Shard(ShardId(1)), revision: Revision(13) };
    state.handle(MirrorInput::Watched(vec![gone, put(3, "c", 13)]), now + SECOND);
    let output = state.handle(MirrorInput::Tick, now + TIMES.list_grace + SECOND);
    assert_eq!(output.list_differences, 0);
    assert!(!output.actions.contains(&MirrorAction::List));
}

#[test]
fn a_watch_that_does_not_deliver_listed_keys_is_replaced_and_counted() {
    let start = Instant::now();
    let mut state = watching(start);
    let now = check_due(&mut state);
    let list = [entry(2, "b", 12)];
    state.handle(listed(13, &list), now);
    // The watch answers, but does not deliver.
    let late = now + TIMES.list_grace;
    state.handle(MirrorInput::Watched(Vec::new()), late - SECOND);
    let output = state.handle(MirrorInput::Tick, late);
    assert_eq!(output.list_differences, 2);
    assert_eq!(output.actions, [MirrorAction::Distrust, MirrorAction::Close, MirrorAction::List]);
    let output = state.handle(listed(13, &list), late);
    assert_eq!(output.events[..2], [put_event(2, "b", 12), deleted(1)]);
}

#[test]
fn a_list_that_fails_beside_a_watch_leaves_the_watch_alone() {
    let start = Instant::now();
    let mut state = watching(start);
    let now = check_due(&mut state);
    assert_eq!(state.handle(MirrorInput::ListFailed, now).actions, []);
    assert_eq!(state.handle(MirrorInput::Watched(vec![put(1, "b", 11)]), now).events.len(), 1);
}

#[test]
fn another_history_is_reported_before_all_keys_again() {
    let cases: [(HistoryPosition, &str, i64, RestoreReason); 5] = [
        (
            HistoryPosition { cluster_id: 9, ..position(30) },
            "a",
            3,
            RestoreReason::ClusterId { before: 1, now: 9 },
        ),
        (position(9), "a", 3, RestoreReason::Revision { before: Revision(10), now: Revision(9) }),
        (
            HistoryPosition { raft_term: 1, ..position(30) },
            "a",
            3,
            RestoreReason::RaftTerm { before: 2, now: 1 },
        ),
        (position(30), "a", 2, RestoreReason::Key { before: Revision(3), now: Revision(2) }),
        (position(30), "z", 3, RestoreReason::Key { before: Revision(3), now: Revision(3) }),
    ];
    for (position, value, revision, reason) in cases {
        let start = Instant::now();
        let mut state = watching(start);
        state.handle(MirrorInput::WatchFailed, start);
        let now = state.deadline().unwrap();
        state.handle(MirrorInput::Tick, now);
        let entries = vec![entry(1, value, revision)];
        let output = state.handle(MirrorInput::Listed { position, entries }, now);
        assert_eq!(
            output.events,
            [
                MirrorEvent::Restored { reason, position },
                put_event(1, value, revision),
                MirrorEvent::SnapshotComplete { position }
            ]
        );
    }
}

#[test]
fn a_position_stored_over_a_restart_reveals_a_restore_in_between() {
    let start = Instant::now();
    let mut state = MirrorState::new(TIMES, back_off(), Some(position(100)), start);
    state.handle(MirrorInput::Tick, start);
    let output = state.handle(listed(10, &[]), start);
    assert!(matches!(output.events[0], MirrorEvent::Restored { .. }));
}

#[test]
fn a_list_older_than_the_watch_is_no_restore() {
    let start = Instant::now();
    let mut state = watching(start);
    let now = check_due(&mut state);
    state.handle(MirrorInput::Watched(vec![put(1, "b", 50)]), now);
    assert_eq!(state.handle(listed(40, &[entry(1, "a", 3)]), now).events, []);
}

/// An etcd with its whole history, a watch that may lose events, and an owner that stores what is
/// reported.
struct Simulation {
    now: Instant,
    mirror: MirrorState,
    /// Each write: key and value, none when deleted. Its revision is the index + 1.
    history: Vec<(u32, Option<u8>)>,
    cluster_id: u64,
    compacted: usize,
    /// Index of the next write that the watch delivers.
    watch: Option<usize>,
    opening: Option<usize>,
    list: Option<(HistoryPosition, Vec<MirrorEntry>)>,
    owner: BTreeMap<Key, (Vec<u8>, Revision)>,
    is_complete: bool,
}

impl Simulation {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            now,
            mirror: MirrorState::new(TIMES, back_off(), None, now),
            history: Vec::new(),
            cluster_id: 1,
            compacted: 0,
            watch: None,
            opening: None,
            list: None,
            owner: BTreeMap::new(),
            is_complete: false,
        }
    }

    fn store(&self) -> BTreeMap<Key, (Vec<u8>, Revision)> {
        let mut store = BTreeMap::new();
        for (index, (shard, value)) in self.history.iter().enumerate() {
            match value {
                Some(value) => {
                    store.insert(
                        Key::Shard(ShardId(*shard)),
                        (vec![*value], Revision(index as i64 + 1)),
                    );
                }
                None => drop(store.remove(&Key::Shard(ShardId(*shard)))),
            }
        }
        store
    }

    fn handle(&mut self, input: MirrorInput) {
        let output = self.mirror.handle(input, self.now);
        for event in output.events {
            match event {
                MirrorEvent::Put { key, value, mod_revision } => {
                    let before = self.owner.insert(key, (value, mod_revision));
                    assert!(before.is_none_or(|(_, before)| before < mod_revision));
                }
                MirrorEvent::Delete { key } => assert!(self.owner.remove(&key).is_some()),
                MirrorEvent::SnapshotComplete { .. } => self.is_complete = true,
                MirrorEvent::Restored { .. } => self.owner.clear(),
                MirrorEvent::Stale => self.is_complete = false,
            }
        }
        for action in output.actions {
            match action {
                MirrorAction::List => {
                    let revision = Revision(self.history.len() as i64);
                    let position =
                        HistoryPosition { cluster_id: self.cluster_id, revision, raft_term: 1 };
                    let entries = self.store().into_iter().map(|(key, (value, mod_revision))| {
                        MirrorEntry { key, value, mod_revision }
                    });
                    self.list = Some((position, entries.collect()));
                }
                MirrorAction::OpenWatch(after) => {
                    self.watch = None;
                    self.list = None;
                    self.opening = Some(after.0 as usize);
                }
                MirrorAction::RequestProgress => {}
                MirrorAction::Close => (self.watch, self.opening, self.list) = (None, None, None),
                MirrorAction::Distrust => {}
            }
        }
    }

    /// Answers the pending list, or else the pending opening of a watch.
    fn serve(&mut self) {
        if let Some((position, entries)) = self.list.take() {
            self.handle(MirrorInput::Listed { position, entries });
        } else if let Some(from) = self.opening.take() {
            if from < self.compacted {
                self.handle(MirrorInput::Compacted);
            } else {
                self.watch = Some(from);
                self.handle(MirrorInput::WatchOpened);
            }
        }
    }

    fn deliver(&mut self) {
        let Some(next) = self.watch else { return };
        if next < self.compacted {
            self.watch = None;
            return self.handle(MirrorInput::Compacted);
        }
        let change = self.history.get(next).map(|(shard, value)| {
            let (key, revision) = (Key::Shard(ShardId(*shard)), Revision(next as i64 + 1));
            match value {
                Some(value) => MirrorChange::Put(MirrorEntry {
                    key,
                    value: vec![*value],
                    mod_revision: revision,
                }),
                None => MirrorChange::Delete { key, revision },
            }
        });
        self.watch = Some(next + usize::from(change.is_some()));
        self.handle(MirrorInput::Watched(change.into_iter().collect()));
    }

    fn act(&mut self, byte: u8) {
        let shard = u32::from(byte >> 4) % 4;
        match byte % 16 {
            0..=3 => self.history.push((shard, Some(byte))),
            4 if self.store().contains_key(&Key::Shard(ShardId(shard))) => {
                self.history.push((shard, None))
            }
            5 | 6 => self.serve(),
            7..=9 => self.deliver(),
            // The watch loses an event without noticing.
            10 => self.watch = self.watch.map(|next| (next + 1).min(self.history.len())),
            11 => self.compacted = self.history.len().saturating_sub(1),
            12 if self.watch.take().is_some() => self.handle(MirrorInput::WatchFailed),
            13 if self.list.take().is_some() => self.handle(MirrorInput::ListFailed),
            14 if byte > 200 => self.restore(),
            _ => {
                self.now += SECOND;
                self.handle(MirrorInput::Tick);
            }
        }
    }

    /// Restores an older backup: connections end, and other writes follow.
    fn restore(&mut self) {
        self.history.truncate(self.history.len() / 2);
        self.compacted = self.compacted.min(self.history.len());
        self.cluster_id += 1;
        (self.opening, self.list) = (None, None);
        if self.watch.take().is_some() {
            self.handle(MirrorInput::WatchFailed);
        } else {
            self.handle(MirrorInput::ListFailed);
        }
    }
}

#[test]
fn the_owner_ends_with_the_state_of_etcd_after_any_history() {
    check!().with_iterations(3000).for_each(|bytes: &[u8]| {
        let mut simulation = Simulation::new();
        for byte in bytes {
            simulation.act(*byte);
        }
        // etcd is quiet and well for longer than a full list and its grace time take.
        for _ in 0..200 {
            simulation.serve();
            simulation.deliver();
            simulation.now += SECOND / 2;
            simulation.handle(MirrorInput::Tick);
        }
        assert!(simulation.is_complete);
        assert_eq!(simulation.owner, simulation.store());
    });
}

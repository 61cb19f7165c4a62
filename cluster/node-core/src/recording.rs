//! The events of a node as text, to be replayed where there is time to look.
//!
//! A recording is JSON, one line each: first the state with which the node began, then every event
//! with its time, and a line for each turn. The keys of the cluster are not in it; names, addresses
//! and the map are.

use std::io::{self, BufRead, Write};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::action::CoreAction;
use crate::event::CoreEvent;
use crate::node_core::{Core, CoreStart};

/// A line of a recording. Times are those of the core, in microseconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum RecordingLine {
    /// The version of weir, and the state with which the node began.
    Start {
        version: String,
        at_us: u64,
        start: Box<CoreStart>,
    },
    Event {
        at_us: u64,
        event: CoreEvent,
    },
    Turn {
        at_us: u64,
    },
}

/// Writes a recording of at most `bytes_max` bytes.
#[derive(Debug)]
pub struct Recorder<W> {
    out: W,
    left: u64,
}

impl<W: Write> Recorder<W> {
    /// # Errors
    /// The recording cannot be written.
    pub fn new(out: W, bytes_max: u64, now: Duration, start: &CoreStart) -> io::Result<Self> {
        let mut recorder = Self { out, left: bytes_max };
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let start = Box::new(start.clone());
        recorder.write(&RecordingLine::Start { version, at_us: micros(now), start })?;
        Ok(recorder)
    }

    /// Records an event. To be called with every event that the core is handed.
    ///
    /// # Errors
    /// The recording cannot be written, or has reached its length limit: nothing more is to be
    /// recorded.
    pub fn event(&mut self, now: Duration, event: &CoreEvent) -> io::Result<()> {
        self.write(&RecordingLine::Event { at_us: micros(now), event: event.clone() })
    }

    /// Records a turn. To be called with every turn of the core.
    ///
    /// # Errors
    /// As for [`event`](Self::event).
    pub fn turn(&mut self, now: Duration) -> io::Result<()> {
        self.write(&RecordingLine::Turn { at_us: micros(now) })
    }

    fn write(&mut self, line: &RecordingLine) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        self.left = self.left.checked_sub(text.len() as u64).ok_or_else(|| {
            io::Error::new(io::ErrorKind::FileTooLarge, "the recording is as long as it may be")
        })?;
        self.out.write_all(&text)
    }
}

fn micros(now: Duration) -> u64 {
    now.as_micros() as u64
}

/// Replays a recording; `show` is called with each event before it is played, and with each action
/// after the turn that led to it.
///
/// # Errors
/// The line that cannot be read, and why. A last line that was not written to its end ends the
/// recording.
pub fn replay(
    text: impl BufRead,
    mut show: impl FnMut(Duration, Replayed<'_>),
) -> io::Result<Option<Core>> {
    let mut core: Option<Core> = None;
    let mut lines = text.lines().enumerate().peekable();
    while let Some((number, line)) = lines.next() {
        let line: RecordingLine = match serde_json::from_str(&line?) {
            Ok(line) => line,
            Err(_) if lines.peek().is_none() => break,
            Err(error) => return Err(invalid(number, &error.to_string())),
        };
        match (line, &mut core) {
            (RecordingLine::Start { start, .. }, None) if !start.is_whole() => {
                return Err(invalid(number, "its workers do not say where they are reached"));
            }
            (RecordingLine::Event { event, .. }, Some(core))
                if event.workers() > core.routes().len() =>
            {
                return Err(invalid(number, "an event of a worker that the node does not have"));
            }
            (RecordingLine::Start { at_us, start, .. }, None) => {
                core = Some(Core::new(Duration::from_micros(at_us), *start));
            }
            (RecordingLine::Event { at_us, event }, Some(core)) => {
                let now = Duration::from_micros(at_us);
                show(now, Replayed::Event(&event));
                core.step(now, event);
            }
            (RecordingLine::Turn { at_us }, Some(core)) => {
                let now = Duration::from_micros(at_us);
                core.turn(now);
                while let Some(action) = core.next_action() {
                    show(now, Replayed::Action(&action));
                }
            }
            (_, _) => return Err(invalid(number, "a recording begins with one start")),
        }
    }
    Ok(core)
}

/// Returns the error of a line; `number` counts from 0.
fn invalid(number: usize, why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("line {}: {why}", number + 1))
}

/// An event or action that a replay shows.
#[derive(Debug)]
pub enum Replayed<'a> {
    Event(&'a CoreEvent),
    Action(&'a CoreAction),
}

#[cfg(test)]
pub(crate) mod tests {
    use weir_etcd::{HistoryPosition, Key, MirrorEvent, NodeRecord, Revision, WorkerRecord};
    use weir_map::{BootId, Incarnation, NodeId, ShardEntry, ShardId, WorkerId};
    use weir_replication::WorkerEvent;
    use weir_routes::Fence;
    use weir_stream::{PeerIndex, PeerSigns};

    use super::*;
    use crate::event::{GuardReport, Registration, WorkerSlot, WriteResult};
    use crate::known_map::KnownMap;
    use crate::routes::WorkerAddresses;
    use crate::setup::tests::desired;

    pub(crate) fn start() -> CoreStart {
        let worker = WorkerRecord {
            index: 0,
            boot_id: BootId(7).to_string(),
            resumes: None,
            weight: 1,
            load_max: None,
            shards_max: None,
            replication: Some("10.1.0.1:7473".parse().unwrap()),
        };
        let record = NodeRecord {
            boot_id: BootId(7).to_string(),
            version: "0.1.0".into(),
            rack: None,
            capacity: 1,
            workers: vec![worker],
            admin: None,
            is_stopping: false,
            has_copies: false,
        };
        CoreStart {
            node: NodeId::new("n1").unwrap(),
            record,
            addresses: vec![WorkerAddresses {
                access: "10.1.0.1".parse().unwrap(),
                internet: "10.2.0.1".parse().unwrap(),
                access6: None,
                internet6: None,
            }],
            map: KnownMap::default(),
            desired: desired(),
            is_without_etcd: false,
        }
    }

    /// Events from the registration over a role to the hand-over and the end.
    fn events() -> Vec<CoreEvent> {
        let node = NodeId::new("n1").unwrap();
        let me = Incarnation { worker: WorkerId { node, index: 0 }, boot_id: BootId(7) };
        let shard = ShardId(1);
        let put = |key, value: Vec<u8>| {
            CoreEvent::Mirror(MirrorEvent::Put { key, value, mod_revision: Revision(5) })
        };
        let position = HistoryPosition { cluster_id: 1, revision: Revision(5), raft_term: 1 };
        let signs = PeerSigns { silent_ms: 3, seen_ms: None, is_witness: true };
        let slot = |slots| WorkerSlot {
            slots,
            peers: vec![(PeerIndex(0), signs)],
            busy: vec![shard],
            is_access_up: true,
            is_internet_up: true,
        };
        let mut events = vec![
            CoreEvent::Saved(Ok(())),
            CoreEvent::Registration(Registration::Held),
            put(Key::Shard(shard), ShardEntry::create(me).to_json().into_bytes()),
            put(Key::Report, b"\xff not text".to_vec()),
            CoreEvent::Mirror(MirrorEvent::SnapshotComplete { position }),
            CoreEvent::Saved(Ok(())),
            CoreEvent::Slot(vec![slot(1)]),
            CoreEvent::Worker { worker: 0, event: WorkerEvent::ShardAdded(shard) },
            CoreEvent::Guard(GuardReport::Set { worker: 0, number: 1 }),
            CoreEvent::Guard(GuardReport::Fenced { worker: 0 }),
            CoreEvent::Rejoined { worker: 0, fence: Fence(1), waited: 7 },
            CoreEvent::Written { shard, how: WriteResult::NotDone },
            CoreEvent::ClusterFound(Err("c2".into())),
            CoreEvent::HandOver,
        ];
        events.extend((2..250).map(|slots| CoreEvent::Slot(vec![slot(slots)])));
        // One save may be under way, the other is the last.
        events.extend([CoreEvent::End, CoreEvent::Saved(Ok(())), CoreEvent::Saved(Ok(()))]);
        events
    }

    /// Returns the actions of the core, as text, and the recording.
    fn play(bytes_max: u64) -> (Vec<String>, Vec<u8>) {
        let mut text = Vec::new();
        let mut now = Duration::from_millis(1);
        let mut core = Core::new(now, start());
        let mut actions = Vec::new();
        let mut recorder = Recorder::new(&mut text, bytes_max, now, &start()).unwrap();
        let mut is_recording = true;
        for event in events() {
            is_recording = is_recording && recorder.event(now, &event).is_ok();
            core.step(now, event);
            now += Duration::from_millis(10);
            is_recording = is_recording && recorder.turn(now).is_ok();
            core.turn(now);
            actions.extend(std::iter::from_fn(|| core.next_action().map(|it| format!("{it:?}"))));
        }
        (actions, text)
    }

    fn replayed(text: &[u8]) -> Vec<String> {
        let mut actions = Vec::new();
        let core = replay(text, |_, replayed| {
            if let Replayed::Action(action) = replayed {
                actions.push(format!("{action:?}"));
            }
        });
        assert!(core.unwrap().is_some());
        actions
    }

    #[test]
    fn a_recording_replayed_leads_to_the_same_actions() {
        let (actions, text) = play(u64::MAX);
        for kind in ["Save", "Join", "Command", "SetRoutes", "SetStake", "HandedOver", "Ended"] {
            assert!(actions.iter().any(|action| action.starts_with(kind)), "{kind}: {actions:?}");
        }
        assert_eq!(replayed(&text), actions);
    }

    #[test]
    fn a_recording_ends_where_it_is_as_long_as_it_may_be() {
        let (all, whole) = play(u64::MAX);
        let (_, text) = play(whole.len() as u64 / 2);
        assert!(text.len() <= whole.len() / 2 && whole.starts_with(&text));
        let begun = replayed(&text);
        assert!(!begun.is_empty() && all.starts_with(&begun));
    }

    #[test]
    fn a_last_line_that_was_cut_off_ends_the_replay_and_a_wrong_line_is_named() {
        let (all, mut text) = play(u64::MAX);
        text.truncate(text.len() - 5);
        assert!(all.starts_with(&replayed(&text)));
        let wrong = [b"{}\n", &text[..]].concat();
        let error = replay(&wrong[..], |_, _| {}).unwrap_err().to_string();
        assert!(error.starts_with("line 1: "), "{error}");
        let second = text.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        let error = replay(&text[second..], |_, _| {}).unwrap_err().to_string();
        assert!(error.contains("line 1: a recording begins with one start"), "{error}");
        assert!(replay(&b""[..], |_, _| {}).unwrap().is_none());
    }

    /// Any bytes are a recording or are refused with their line.
    #[test]
    fn text() {
        let (_, whole) = play(u64::MAX);
        bolero::check!().with_iterations(2_000).with_type::<Vec<(u32, u8)>>().for_each(|edits| {
            let mut text = whole[..whole.len().min(6_000)].to_vec();
            for (at, value) in edits {
                let at = *at as usize % text.len();
                text[at] = *value;
            }
            if let Err(error) = replay(&text[..], |_, _| {}) {
                let error = error.to_string();
                assert!(error.starts_with("line ") || error.contains("UTF-8"), "{error}");
            }
        });
    }
}

//! Lines of the operational log.

use std::io;
use std::sync::{Arc, Mutex};

use super::{lose, options, world};
use crate::fleet::{Fate, World};

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the lines that are logged while `happens` runs.
fn logged(happens: impl FnOnce()) -> Vec<String> {
    let lines = Lines::default();
    let sink = lines.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || sink.clone());
    tracing::subscriber::with_default(subscriber.finish(), happens);
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    text.lines().map(str::to_owned).collect()
}

fn count(lines: &[String], event: &str, words: &str) -> usize {
    let event = format!("event=\"{event}\"");
    lines.iter().filter(|line| line.contains(&event) && line.contains(words)).count()
}

#[test]
fn decisions_freezes_and_drains_are_logged() {
    let mut held = 0;
    let lines = logged(|| {
        let mut world = world(4, 12);
        held = world.held(0);
        world.drain(0, false);
        world.settle();
        world.turns(60_000);
        world.undrain(0);
        world.turns(2_000);
        world.freeze(true);
        world.turns(60_000);
        world.freeze(false);
        world.turns(2_000);
    });
    let text = lines.join("\n");
    assert_eq!(count(&lines, "shard-created", "INFO"), 12, "{text}");
    assert!(held > 0 && count(&lines, "shard-moved", "node=n0") >= held, "{text}");
    assert!(count(&lines, "shard-moved", "why=\"n0 is drained by") >= held, "{text}");
    for (event, words) in [
        ("drain-begun", "node=n0"),
        ("drain-done", "node=n0"),
        ("drain-ended", "node=n0"),
        ("cluster-frozen", "frozen by ann"),
        ("cluster-unfrozen", ""),
    ] {
        assert_eq!(count(&lines, event, words), 1, "{event}\n{text}");
    }
    assert_eq!(count(&lines, "cluster-frozen", "WARN"), 1);
}

#[test]
fn lost_nodes_and_their_repair_are_logged() {
    let lines = logged(|| {
        let mut world = World::new(5, 10, 1, options());
        world.elect(0);
        world.settle();
        lose(&mut world, 0);
        world.turns(60_000);
        world.fence(0);
        world.turns(60_000);
        lose(&mut world, 1);
        lose(&mut world, 2);
        world.turns(10_000);
        world.start(1);
        world.start(2);
        world.turns(60_000);
    });
    let text = lines.join("\n");
    assert!(count(&lines, "node-judged", "WARN") >= 2, "{text}");
    for event in ["primary-promoted", "shard-repaired", "member-fenced", "shard-followed"] {
        assert!(count(&lines, event, "why=") > 0, "{event}\n{text}");
    }
    assert_eq!(count(&lines, "cluster-halted", "WARN"), 1, "{text}");
    assert_eq!(count(&lines, "cluster-resumed", "INFO"), 1, "{text}");
    assert!(count(&lines, "order-done", "the fence is done") > 0, "{text}");
}

#[test]
fn a_decision_is_logged_only_once_it_is_written() {
    let lines = logged(|| {
        let mut world = World::new(3, 6, 1, options());
        world.elect(0);
        world.fate = Fate::Unavailable;
        world.settle();
        assert_eq!(world.fate, Fate::Answered, "a write has failed");
    });
    assert_eq!(count(&lines, "shard-created", ""), 6, "{lines:?}");
}

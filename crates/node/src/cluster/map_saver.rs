//! Keeps the newest of the map on disk by a thread of its own for each save: a disk takes its time, and one that stands
//! still must hold up neither a failover nor the end of the process.
//!
//! One save is under way at a time, and has all that was seen before it began. A save that entries wait for (see
//! [`news_queue`](super::news_queue)) begins at once. How long the oldest of what is not on disk has been waiting is
//! shown.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

use weir_shard::{BootId, Epoch, ShardEntry, ShardId};

use super::known_map::KnownMap;

/// What nobody waits for is saved at most this often; so is what could not be saved.
const SAVE_INTERVAL: Duration = Duration::from_secs(1);
/// The last save waits for the disk no longer than this.
const LAST_SAVE_MAX: Duration = Duration::from_secs(3);
/// A disk that has not ended a save for so long stands still.
const STALL: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(2);

type Save = dyn Fn(&KnownMap) -> io::Result<()> + Send + Sync;
type Wake = dyn Fn() + Send + Sync;

/// The map, and what of it is on disk.
pub(super) struct MapSaver {
    map: KnownMap,
    save: Arc<Save>,
    /// Called at the end of each save, by its thread.
    wake: Arc<Wake>,
    /// Counts what was seen.
    seen: Change,
    /// Up to which it is on disk.
    saved: Change,
    is_urgent: bool,
    began: Option<Instant>,
    /// Since when something waits for its save to begin.
    waiting: Option<Instant>,
    saving: Option<Saving>,
    /// Why the last save failed.
    error: Option<String>,
}

/// Names what was seen, to ask whether it is on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Change(u64);

/// A save under way.
struct Saving {
    end: Receiver<io::Result<()>>,
    /// Since when the oldest in it has been waiting.
    waiting: Option<Instant>,
    seen: Change,
}

impl MapSaver {
    /// `wake`: called whenever a save has ended.
    pub(super) fn new(map: KnownMap, wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self::with(map, KnownMap::save, wake)
    }

    pub(super) fn with(
        map: KnownMap,
        save: impl Fn(&KnownMap) -> io::Result<()> + Send + Sync + 'static,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        Self {
            map,
            save: Arc::new(save),
            wake: Arc::new(wake),
            seen: Change(0),
            saved: Change(0),
            is_urgent: false,
            began: None,
            waiting: None,
            saving: None,
            error: None,
        }
    }

    pub(super) fn map(&self) -> &KnownMap {
        &self.map
    }

    /// None: the shard is no more. One that is lower than what was seen changes nothing.
    pub(super) fn set_epoch(&mut self, now: Instant, shard: ShardId, epoch: Option<Epoch>) {
        let is_lower = epoch.is_some() && self.map.epoch(shard) >= epoch;
        if !is_lower && self.map.set_epoch(shard, epoch) {
            self.changed(now);
        }
    }

    /// An entry that somebody waits to obey. It is on disk once what is returned is.
    pub(super) fn set_entry(&mut self, now: Instant, shard: ShardId, entry: &ShardEntry) -> Change {
        if self.map.set_entry(shard, entry) {
            self.changed(now);
        }
        self.is_urgent |= !self.is_saved(self.seen);
        self.seen
    }

    pub(super) fn set_desired(&mut self, now: Instant, text: &str) {
        if self.map.set_desired(text) {
            self.changed(now);
        }
    }

    /// A node's record; none: it is not registered any more.
    pub(super) fn set_node(&mut self, now: Instant, name: &str, text: Option<&str>) {
        if self.map.set_node(name, text) {
            self.changed(now);
        }
    }

    /// As [`KnownMap::begin_lives`]. It is on disk once what is returned is.
    pub(super) fn begin_lives(&mut self, now: Instant, boot_ids: &[BootId]) -> Change {
        self.map.begin_lives(boot_ids);
        self.changed(now);
        self.is_urgent = true;
        self.seen
    }

    fn changed(&mut self, now: Instant) {
        self.seen.0 += 1;
        self.waiting.get_or_insert(now);
    }

    pub(super) fn is_saved(&self, change: Change) -> bool {
        self.saved >= change
    }

    /// The newest that is on disk.
    #[cfg(test)]
    pub(super) fn newest_saved(&self) -> Change {
        self.saved
    }

    /// Nothing is to be waited for: the disk has refused the last save, or stands still.
    pub(super) fn is_stalled(&self, now: Instant) -> bool {
        let is_late = |began: Instant| now.saturating_duration_since(began) >= STALL;
        self.error.is_some() || self.saving.is_some() && self.began.is_some_and(is_late)
    }

    /// Takes the end of a save, and begins the next one if it is due. Waits for nothing.
    pub(super) fn turn(&mut self, now: Instant) {
        self.take_end();
        let is_awaited = self.is_urgent && self.error.is_none();
        let is_due = is_awaited || self.began.is_none_or(|began| now >= began + SAVE_INTERVAL);
        if self.waiting.is_some() && is_due && self.saving.is_none() {
            self.begin(now);
        }
    }

    /// Since the oldest that is not on disk was seen; 0: all is.
    pub(super) fn unsaved(&self, now: Instant) -> Duration {
        let of_save = self.saving.as_ref().and_then(|saving| saving.waiting);
        let oldest = [of_save, self.waiting].into_iter().flatten().min();
        oldest.map(|since| now.saturating_duration_since(since)).unwrap_or_default()
    }

    /// Why the last save failed; none: it did not.
    pub(super) fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// The last save, before others are told that this process has ended. A disk that stands still is given up.
    pub(super) fn finish(mut self) {
        self.map.set_ended(true);
        let end = Instant::now() + LAST_SAVE_MAX;
        self.finish_by(end);
    }

    fn finish_by(&mut self, end: Instant) {
        // The one under way may be of older entries.
        for is_last in [false, true] {
            if is_last {
                self.begin(Instant::now());
            }
            while self.saving.is_some() {
                if Instant::now() >= end {
                    let unsaved_sec = self.unsaved(end).as_secs();
                    tracing::error!(
                        event = "epochs-not-kept",
                        unsaved_sec,
                        "the disk stands still"
                    );
                    return;
                }
                self.take_end();
                thread::sleep(POLL);
            }
        }
    }

    fn begin(&mut self, now: Instant) {
        self.began = Some(now);
        self.is_urgent = false;
        let map = self.map.clone();
        let (save, wake) = (Arc::clone(&self.save), Arc::clone(&self.wake));
        let (ended, end) = channel();
        let thread = thread::Builder::new().name("weir-map".into()).spawn(move || {
            // Nobody listens once the process ends.
            let _ = ended.send(save(&map));
            wake();
        });
        match thread {
            Ok(_) => {
                let waiting = self.waiting.take();
                self.saving = Some(Saving { end, waiting, seen: self.seen });
            }
            Err(error) => self.failed(error.to_string()),
        }
    }

    fn take_end(&mut self) {
        let Some(saving) = &self.saving else { return };
        let why = match saving.end.try_recv() {
            Err(TryRecvError::Empty) => return,
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(TryRecvError::Disconnected) => Some("the thread that saves them has failed".into()),
        };
        let Some(saving) = self.saving.take() else { return };
        match why {
            None => (self.saved, self.error) = (saving.seen, None),
            Some(why) => {
                self.waiting = saving.waiting.or(self.waiting);
                self.failed(why);
            }
        }
    }

    fn failed(&mut self, why: String) {
        tracing::error!(event = "epochs-not-kept", "{why}");
        self.error = Some(why);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::path::Path;
    use std::sync::Mutex;
    use std::sync::mpsc::Sender;

    use super::super::known_map::tests::entry;
    use super::*;

    /// A disk that takes a save when the test says so, and how that ends.
    pub(in crate::cluster) fn disk() -> (MapSaver, Sender<io::Result<()>>) {
        let (let_go, held) = channel::<io::Result<()>>();
        let held = Mutex::new(held);
        let map = KnownMap::load(Path::new("/nonexistent/n1.json")).unwrap();
        let saver = MapSaver::with(map, move |_| held.lock().unwrap().recv().unwrap(), || {});
        (saver, let_go)
    }

    pub(in crate::cluster) fn turn_until(
        saver: &mut MapSaver,
        now: Instant,
        is_it: impl Fn(&MapSaver) -> bool,
    ) {
        let end = Instant::now() + Duration::from_secs(20);
        while !is_it(saver) {
            assert!(Instant::now() < end);
            saver.turn(now);
            thread::sleep(POLL);
        }
    }

    #[test]
    fn a_disk_that_stands_still_holds_nobody_up_and_the_age_of_the_oldest_epoch_grows() {
        let (mut saver, let_go) = disk();
        let start = Instant::now();
        assert_eq!(saver.unsaved(start), Duration::ZERO);
        saver.set_epoch(start, ShardId(1), Some(Epoch(7)));
        // Each of these returns, though the disk takes nothing.
        for second in 0..30 {
            let now = start + Duration::from_secs(second);
            saver.set_epoch(now, ShardId(2), Some(Epoch(second)));
            saver.turn(now);
            assert_eq!(saver.unsaved(now), now - start);
        }
        // The first save ends: what has come since is waiting, and is saved next.
        let now = start + Duration::from_secs(30);
        let_go.send(Ok(())).unwrap();
        turn_until(&mut saver, now, |saver| saver.unsaved(now) < now - start);
        assert!(saver.unsaved(now) > Duration::ZERO);
        let_go.send(Ok(())).unwrap();
        turn_until(&mut saver, now, |saver| saver.unsaved(now).is_zero());
        assert_eq!(saver.error(), None);
    }

    #[test]
    fn a_full_disk_is_a_reason_until_a_save_succeeds() {
        let (mut saver, let_go) = disk();
        let start = Instant::now();
        saver.set_epoch(start, ShardId(1), Some(Epoch(7)));
        let_go.send(Err(io::ErrorKind::StorageFull.into())).unwrap();
        turn_until(&mut saver, start, |saver| saver.error().is_some());
        assert_eq!(saver.error(), Some("no storage space"));
        let later = start + SAVE_INTERVAL;
        assert_eq!(saver.unsaved(later), SAVE_INTERVAL, "it counts from the first try");
        let_go.send(Ok(())).unwrap();
        turn_until(&mut saver, later, |saver| saver.unsaved(later).is_zero());
        assert_eq!(saver.error(), None);
    }

    #[test]
    fn an_entry_is_saved_at_once_and_with_all_that_was_seen_before_the_save_began() {
        let (mut saver, let_go) = disk();
        let now = Instant::now();
        let first = saver.set_entry(now, ShardId(1), &entry(1));
        saver.turn(now);
        let second = saver.set_entry(now, ShardId(2), &entry(1));
        let third = saver.set_entry(now, ShardId(3), &entry(1));
        assert_eq!(saver.set_entry(now, ShardId(3), &entry(1)), third, "nothing new");
        assert!(!saver.is_saved(first));
        let_go.send(Ok(())).unwrap();
        turn_until(&mut saver, now, |saver| saver.is_saved(first));
        assert!(!saver.is_saved(second), "it came when the save was under way");
        let_go.send(Ok(())).unwrap();
        turn_until(&mut saver, now, |saver| saver.is_saved(second));
        assert!(saver.is_saved(third), "both by one save");
    }

    #[test]
    fn a_disk_that_refuses_or_stands_still_is_not_waited_for() {
        let (mut saver, let_go) = disk();
        let start = Instant::now();
        saver.set_entry(start, ShardId(1), &entry(1));
        saver.turn(start);
        assert!(!saver.is_stalled(start + STALL - POLL));
        assert!(saver.is_stalled(start + STALL));
        let_go.send(Err(io::ErrorKind::StorageFull.into())).unwrap();
        turn_until(&mut saver, start, |saver| saver.error().is_some());
        assert!(saver.is_stalled(start));
        let later = start + SAVE_INTERVAL;
        let_go.send(Ok(())).unwrap();
        turn_until(&mut saver, later, |saver| saver.unsaved(later).is_zero());
        assert!(!saver.is_stalled(later + 2 * STALL));
    }

    #[test]
    fn the_end_does_not_wait_for_a_disk_that_stands_still() {
        let (mut saver, let_go) = disk();
        let start = Instant::now();
        saver.set_epoch(start, ShardId(1), Some(Epoch(7)));
        saver.turn(start);
        saver.finish_by(Instant::now() + Duration::from_millis(10));
        drop(let_go);
    }

    #[test]
    fn the_last_save_has_the_newest_entries() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("n1.json");
        let mut saver = MapSaver::new(KnownMap::load(&path).unwrap(), || {});
        let start = Instant::now();
        saver.set_entry(start, ShardId(1), &entry(7));
        saver.turn(start);
        saver.set_entry(start, ShardId(1), &entry(8));
        saver.finish();
        let kept: Vec<_> = KnownMap::load(&path).unwrap().entries().collect();
        assert_eq!(kept, [(ShardId(1), entry(8))]);
    }
}

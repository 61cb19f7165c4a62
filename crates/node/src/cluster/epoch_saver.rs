//! Keeps the epochs on disk by a thread of its own for each save: a disk takes its time, and one that stands still must
//! hold up neither a failover nor the end of the process.
//!
//! One save is under way at a time. An entry is obeyed before its epoch is on disk: waiting would tie every failover to
//! the disk. So how long the oldest epoch has been waiting is shown.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use weir_shard::{Epoch, ShardId};

use super::known_epochs::KnownEpochs;

/// Epochs are saved at most this often.
const SAVE_INTERVAL: Duration = Duration::from_secs(1);
/// The last save waits for the disk no longer than this.
const LAST_SAVE_MAX: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_millis(2);

type Save = dyn Fn(&KnownEpochs) -> io::Result<()> + Send + Sync;

/// The epochs, and what of them is on disk.
pub(super) struct EpochSaver {
    epochs: KnownEpochs,
    save: Arc<Save>,
    began: Option<Instant>,
    /// Since when an epoch waits for its save to begin.
    waiting: Option<Instant>,
    saving: Option<Saving>,
    /// Why the last save failed.
    error: Option<String>,
}

/// A save under way.
struct Saving {
    thread: JoinHandle<io::Result<()>>,
    /// Since when the oldest epoch in it has been waiting.
    waiting: Option<Instant>,
}

impl EpochSaver {
    pub(super) fn new(epochs: KnownEpochs) -> Self {
        Self::with(epochs, KnownEpochs::save)
    }

    fn with(
        epochs: KnownEpochs,
        save: impl Fn(&KnownEpochs) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let save = Arc::new(save);
        Self { epochs, save, began: None, waiting: None, saving: None, error: None }
    }

    /// None: the shard is no more.
    pub(super) fn set(&mut self, now: Instant, shard: ShardId, epoch: Option<Epoch>) {
        self.epochs.set(shard, epoch);
        self.waiting.get_or_insert(now);
    }

    /// Takes the end of a save, and begins the next one if it is due. Waits for nothing.
    pub(super) fn turn(&mut self, now: Instant) {
        if let Some(saving) = self.saving.take_if(|saving| saving.thread.is_finished()) {
            self.end(saving);
        }
        let is_due = self.began.is_none_or(|began| now >= began + SAVE_INTERVAL);
        if self.waiting.is_some() && is_due && self.saving.is_none() {
            self.begin(now);
        }
    }

    /// Since the oldest epoch that is not on disk was seen; 0: all are.
    pub(super) fn unsaved(&self, now: Instant) -> Duration {
        let of_save = self.saving.as_ref().and_then(|saving| saving.waiting);
        let oldest = [of_save, self.waiting].into_iter().flatten().min();
        oldest.map(|since| now.saturating_duration_since(since)).unwrap_or_default()
    }

    /// Why the last save failed; none: it did not.
    pub(super) fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// The last save. A disk that stands still is given up.
    pub(super) fn finish(mut self) {
        let end = Instant::now() + LAST_SAVE_MAX;
        self.finish_by(end);
    }

    fn finish_by(&mut self, end: Instant) {
        // The one under way may be of older epochs.
        for is_last in [false, true] {
            if is_last {
                self.begin(Instant::now());
            }
            let Some(saving) = self.saving.take() else { continue };
            while !saving.thread.is_finished() {
                if Instant::now() >= end {
                    let unsaved_sec = self.unsaved(end).as_secs();
                    tracing::error!(
                        event = "epochs-not-kept",
                        unsaved_sec,
                        "the disk stands still"
                    );
                    return;
                }
                thread::sleep(POLL);
            }
            self.end(saving);
        }
    }

    fn begin(&mut self, now: Instant) {
        self.began = Some(now);
        let (epochs, save) = (self.epochs.clone(), Arc::clone(&self.save));
        match thread::Builder::new().name("weir-epochs".into()).spawn(move || save(&epochs)) {
            Ok(thread) => self.saving = Some(Saving { thread, waiting: self.waiting.take() }),
            Err(error) => self.failed(error.to_string()),
        }
    }

    fn end(&mut self, saving: Saving) {
        match saving.thread.join() {
            Ok(Ok(())) => self.error = None,
            Ok(Err(error)) => {
                self.waiting = saving.waiting.or(self.waiting);
                self.failed(error.to_string());
            }
            Err(_) => {
                self.waiting = saving.waiting.or(self.waiting);
                self.failed("the thread that saves them has failed".to_owned());
            }
        }
    }

    fn failed(&mut self, why: String) {
        tracing::error!(event = "epochs-not-kept", "{why}");
        self.error = Some(why);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Mutex;
    use std::sync::mpsc::{Sender, channel};

    use super::*;

    /// A disk that takes a save when the test says so, and how that ends.
    fn disk() -> (EpochSaver, Sender<io::Result<()>>) {
        let (let_go, held) = channel::<io::Result<()>>();
        let held = Mutex::new(held);
        let epochs = KnownEpochs::load(Path::new("/nonexistent/n1.json")).unwrap();
        let saver = EpochSaver::with(epochs, move |_| held.lock().unwrap().recv().unwrap());
        (saver, let_go)
    }

    fn turn_until(saver: &mut EpochSaver, now: Instant, is_it: impl Fn(&EpochSaver) -> bool) {
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
        saver.set(start, ShardId(1), Some(Epoch(7)));
        // Each of these returns, though the disk takes nothing.
        for second in 0..30 {
            let now = start + Duration::from_secs(second);
            saver.set(now, ShardId(2), Some(Epoch(second)));
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
        saver.set(start, ShardId(1), Some(Epoch(7)));
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
    fn the_end_does_not_wait_for_a_disk_that_stands_still() {
        let (mut saver, let_go) = disk();
        let start = Instant::now();
        saver.set(start, ShardId(1), Some(Epoch(7)));
        saver.turn(start);
        saver.finish_by(Instant::now() + Duration::from_millis(10));
        drop(let_go);
    }

    #[test]
    fn the_last_save_has_the_newest_epochs() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("n1.json");
        let mut saver = EpochSaver::new(KnownEpochs::load(&path).unwrap());
        let start = Instant::now();
        saver.set(start, ShardId(1), Some(Epoch(7)));
        saver.turn(start);
        saver.set(start, ShardId(1), Some(Epoch(8)));
        saver.finish();
        let kept: Vec<_> = KnownEpochs::load(&path).unwrap().epochs().collect();
        assert_eq!(kept, [(ShardId(1), Epoch(8))]);
    }
}

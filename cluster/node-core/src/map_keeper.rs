//! When the newest of the map is to be saved, and what of it is on disk. A disk takes its time, and
//! one that stalls must hold up neither a failover nor the end of the process.
//!
//! One save is under way at a time, and has everything that was seen before it began. A save that
//! entries wait for (see [`input_queue`](crate::input_queue)) begins at once. The keeper shows how
//! long the oldest change that is not on disk has been waiting.

use std::time::Duration;

use weir_map::{BootId, Epoch, ShardEntry, ShardId};

use crate::known_map::KnownMap;

/// Changes that nothing waits for are saved at most this often; so are changes that could not be
/// saved.
const SAVE_INTERVAL: Duration = Duration::from_secs(1);
/// The last save waits for the disk no longer than this.
const LAST_SAVE_MAX: Duration = Duration::from_secs(3);
/// A disk that has not ended a save for this long has stalled.
const STALL: Duration = Duration::from_secs(1);

/// The map, and what of it is on disk.
#[derive(Debug)]
pub struct MapKeeper {
    map: KnownMap,
    /// The number of changes that were seen.
    seen: ChangeNumber,
    /// The last change that is on disk.
    saved: ChangeNumber,
    is_urgent: bool,
    began: Option<Duration>,
    /// Since when a change waits for its save to begin.
    waiting: Option<Duration>,
    saving: Option<Saving>,
    /// The reason why the last save failed.
    error: Option<String>,
    last: Option<Last>,
}

/// The last save of a process.
#[derive(Debug)]
struct Last {
    /// Time up to which it is waited for.
    until: Duration,
    has_begun: bool,
}

/// Names a change that was seen, to ask whether it is on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ChangeNumber(u64);

/// A save under way.
#[derive(Debug)]
struct Saving {
    /// Since when the oldest change in it has been waiting.
    waiting: Option<Duration>,
    seen: ChangeNumber,
}

impl MapKeeper {
    pub(crate) fn new(map: KnownMap) -> Self {
        Self {
            map,
            seen: ChangeNumber(0),
            saved: ChangeNumber(0),
            is_urgent: false,
            began: None,
            waiting: None,
            saving: None,
            error: None,
            last: None,
        }
    }

    pub fn map(&self) -> &KnownMap {
        &self.map
    }

    /// Sets an epoch. None: the shard is no more. An epoch lower than one that was seen changes
    /// nothing.
    pub(crate) fn set_epoch(&mut self, now: Duration, shard: ShardId, epoch: Option<Epoch>) {
        let is_lower = epoch.is_some() && self.map.epoch(shard) >= epoch;
        if !is_lower && self.map.set_epoch(shard, epoch) {
            self.changed(now);
        }
    }

    /// Sets an entry that is to be obeyed once it is saved. It is on disk once the returned change
    /// is.
    pub(crate) fn set_entry(
        &mut self,
        now: Duration,
        shard: ShardId,
        entry: &ShardEntry,
    ) -> ChangeNumber {
        if self.map.set_entry(shard, entry) {
            self.changed(now);
        }
        self.is_urgent |= !self.is_saved(self.seen);
        self.seen
    }

    pub(crate) fn set_desired(&mut self, now: Duration, text: &str) {
        if self.map.set_desired(text) {
            self.changed(now);
        }
    }

    /// Sets a node's record. None: the node is not registered any more.
    pub(crate) fn set_node(&mut self, now: Duration, name: &str, text: Option<&str>) {
        if self.map.set_node(name, text) {
            self.changed(now);
        }
    }

    /// As [`KnownMap::begin_lives`]. The incarnations are on disk once the returned change is.
    pub(crate) fn begin_lives(&mut self, now: Duration, boot_ids: &[BootId]) -> ChangeNumber {
        self.map.begin_lives(boot_ids);
        self.changed(now);
        self.is_urgent = true;
        self.seen
    }

    fn changed(&mut self, now: Duration) {
        self.seen.0 += 1;
        self.waiting.get_or_insert(now);
    }

    pub(crate) fn is_saved(&self, change: ChangeNumber) -> bool {
        self.saved >= change
    }

    /// True if the disk is not to be waited for: it has refused the last save, or stalls.
    pub(crate) fn is_stalled(&self, now: Duration) -> bool {
        let is_late = |began: Duration| now.saturating_sub(began) >= STALL;
        self.error.is_some() || self.saving.is_some() && self.began.is_some_and(is_late)
    }

    /// Returns the map, if it is to be saved now. [`saved`](Self::saved) reports the end.
    pub(crate) fn next_save(&mut self, now: Duration) -> Option<KnownMap> {
        let is_awaited = self.is_urgent && self.error.is_none();
        let is_due = is_awaited || self.began.is_none_or(|began| now >= began + SAVE_INTERVAL);
        let is_wanted = self.waiting.is_some() && (is_due || self.last.is_some());
        if !is_wanted || self.saving.is_some() {
            return None;
        }
        self.began = Some(now);
        self.is_urgent = false;
        self.last.iter_mut().for_each(|last| last.has_begun = true);
        self.saving = Some(Saving { waiting: self.waiting.take(), seen: self.seen });
        Some(self.map.clone())
    }

    /// Notes that the save under way has ended: it is on disk, or could not be written for this
    /// reason.
    pub(crate) fn saved(&mut self, ended: Result<(), String>) {
        let Some(saving) = self.saving.take() else { return };
        match ended {
            Ok(()) => (self.saved, self.error) = (saving.seen, None),
            Err(why) => {
                tracing::error!(event = "epochs-not-kept", "{why}");
                self.waiting = saving.waiting.or(self.waiting);
                self.error = Some(why);
            }
        }
    }

    /// Begins the last save as soon as possible, with a mark that the process has ended, before the
    /// shutdown notice is sent.
    pub(crate) fn finish(&mut self, now: Duration) {
        self.map.set_ended(true);
        self.changed(now);
        self.last = Some(Last { until: now + LAST_SAVE_MAX, has_begun: false });
    }

    /// True if, after [`finish`](Self::finish), the last save has ended. A disk that stalls is
    /// given up.
    pub(crate) fn has_finished(&self, now: Duration) -> bool {
        let Some(last) = &self.last else { return false };
        let is_over = last.has_begun && self.saving.is_none();
        let is_late = !is_over && now >= last.until;
        if is_late {
            let unsaved_sec = self.unsaved(now).as_secs();
            tracing::error!(event = "epochs-not-kept", unsaved_sec, "the disk stands still");
        }
        is_over || is_late
    }

    /// Returns the time since the oldest change that is not on disk was seen; 0: all are on disk.
    pub fn unsaved(&self, now: Duration) -> Duration {
        let of_save = self.saving.as_ref().and_then(|saving| saving.waiting);
        let oldest = [of_save, self.waiting].into_iter().flatten().min();
        oldest.map(|since| now.saturating_sub(since)).unwrap_or_default()
    }

    /// Returns why the last save failed, or `None` if it did not.
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::known_map::tests::entry;

    const FULL: &str = "no storage space";

    fn keeper() -> MapKeeper {
        MapKeeper::new(KnownMap::default())
    }

    #[test]
    fn a_stalled_disk_holds_nothing_up_and_the_age_of_the_oldest_epoch_grows() {
        let mut keeper = keeper();
        let start = Duration::from_secs(100);
        assert_eq!(keeper.unsaved(start), Duration::ZERO);
        keeper.set_epoch(start, ShardId(1), Some(Epoch(7)));
        assert!(keeper.next_save(start).is_some());
        for second in 1..30 {
            let now = start + Duration::from_secs(second);
            keeper.set_epoch(now, ShardId(2), Some(Epoch(second)));
            assert!(keeper.next_save(now).is_none(), "one save at a time");
            assert_eq!(keeper.unsaved(now), now - start);
        }
        // The first save ends: changes that have come since wait, and are saved next.
        let now = start + Duration::from_secs(30);
        keeper.saved(Ok(()));
        assert_eq!(keeper.unsaved(now), Duration::from_secs(29));
        let map = keeper.next_save(now).unwrap();
        assert_eq!(map.epoch(ShardId(2)), Some(Epoch(29)));
        keeper.saved(Ok(()));
        assert!(keeper.unsaved(now).is_zero());
        assert_eq!(keeper.error(), None);
        assert!(keeper.next_save(now).is_none(), "nothing new");
    }

    #[test]
    fn a_full_disk_is_reported_until_a_save_succeeds() {
        let mut keeper = keeper();
        let start = Duration::from_secs(1);
        keeper.set_epoch(start, ShardId(1), Some(Epoch(7)));
        keeper.next_save(start).unwrap();
        keeper.saved(Err(FULL.into()));
        assert_eq!(keeper.error(), Some(FULL));
        let later = start + SAVE_INTERVAL;
        assert!(keeper.next_save(later - Duration::from_millis(1)).is_none());
        assert_eq!(keeper.unsaved(later), SAVE_INTERVAL, "the age counts from the first try");
        keeper.next_save(later).unwrap();
        keeper.saved(Ok(()));
        assert!(keeper.unsaved(later).is_zero());
        assert_eq!(keeper.error(), None);
    }

    #[test]
    fn an_entry_is_saved_at_once_and_with_all_that_was_seen_before_the_save_began() {
        let mut keeper = keeper();
        let now = Duration::from_secs(1);
        let first = keeper.set_entry(now, ShardId(1), &entry(1));
        keeper.next_save(now).unwrap();
        let second = keeper.set_entry(now, ShardId(2), &entry(1));
        let third = keeper.set_entry(now, ShardId(3), &entry(1));
        assert_eq!(keeper.set_entry(now, ShardId(3), &entry(1)), third, "nothing new");
        assert!(!keeper.is_saved(first));
        keeper.saved(Ok(()));
        assert!(keeper.is_saved(first) && !keeper.is_saved(second), "it came during the save");
        keeper.next_save(now).unwrap();
        keeper.saved(Ok(()));
        assert!(keeper.is_saved(second) && keeper.is_saved(third), "one save covers both entries");
    }

    #[test]
    fn a_disk_that_refuses_or_stalls_is_not_waited_for() {
        let mut keeper = keeper();
        let start = Duration::from_secs(1);
        keeper.set_entry(start, ShardId(1), &entry(1));
        keeper.next_save(start).unwrap();
        assert!(!keeper.is_stalled(start + STALL - Duration::from_millis(1)));
        assert!(keeper.is_stalled(start + STALL));
        keeper.saved(Err(FULL.into()));
        assert!(keeper.is_stalled(start));
        let later = start + SAVE_INTERVAL;
        keeper.next_save(later).unwrap();
        keeper.saved(Ok(()));
        assert!(!keeper.is_stalled(later + 2 * STALL));
    }

    #[test]
    fn the_end_waits_for_the_last_save_but_not_for_a_stalled_disk() {
        let mut keeper = keeper();
        let start = Duration::from_secs(1);
        keeper.set_epoch(start, ShardId(1), Some(Epoch(7)));
        keeper.next_save(start).unwrap();
        keeper.set_entry(start, ShardId(1), &entry(8));
        keeper.finish(start);
        assert!(keeper.next_save(start).is_none() && !keeper.has_finished(start));
        assert!(keeper.has_finished(start + LAST_SAVE_MAX), "the disk is given up");
        keeper.saved(Ok(()));
        assert!(!keeper.has_finished(start), "that save was of older entries");
        let last = keeper.next_save(start).unwrap();
        assert!(last.is_ended() && last.epoch(ShardId(1)) == Some(Epoch(8)));
        keeper.saved(Ok(()));
        assert!(keeper.has_finished(start));
    }

    #[test]
    fn a_last_save_that_fails_ends_the_wait() {
        let mut keeper = keeper();
        let start = Duration::from_secs(1);
        keeper.finish(start);
        keeper.next_save(start).unwrap();
        keeper.saved(Err(FULL.into()));
        assert!(keeper.has_finished(start));
    }
}

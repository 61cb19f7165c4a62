//! When a change of the entry that a role wants is handed out: one at a time, and not too often.

use weir_map::{Epoch, Transition};

use super::input::RolesOptions;

/// The changes that one shard role wants, one after another.
#[derive(Debug, Default)]
pub(super) struct EntryWrite {
    last: Option<(Epoch, Transition)>,
    is_out: bool,
    next_ms: u64,
    pause_ms: u64,
}

impl EntryWrite {
    /// True if the change is to be handed out now; then it is out until
    /// [`answered`](Self::answered). A change that is wanted again at the same epoch waits longer
    /// each time.
    pub(super) fn take(
        &mut self,
        now_ms: u64,
        at: Epoch,
        wanted: &Transition,
        options: &RolesOptions,
    ) -> bool {
        let is_same = self.last.as_ref().is_some_and(|last| last.0 == at && last.1 == *wanted);
        if self.is_out || is_same && now_ms < self.next_ms {
            return false;
        }
        if !is_same {
            self.last = Some((at, wanted.clone()));
            self.pause_ms = options.pause_ms;
        }
        self.is_out = true;
        true
    }

    pub(super) fn is_out(&self) -> bool {
        self.is_out
    }

    pub(super) fn answered(&mut self, now_ms: u64, options: &RolesOptions) {
        self.is_out = false;
        self.next_ms = now_ms + self.pause_ms;
        self.pause_ms = (self.pause_ms * 2).min(options.pause_max_ms);
    }
}

#[cfg(test)]
mod tests {
    use weir_map::{BootId, Incarnation};

    use super::*;

    #[test]
    fn a_change_is_tried_again_ever_more_rarely() {
        let options = RolesOptions::default();
        let worker = "n1/0".parse().expect("a worker");
        let me = Incarnation { worker, boot_id: BootId(1) };
        let (wanted, other) = (Transition::Synced(me.clone()), Transition::OutOfSync(me));
        let mut entry_write = EntryWrite::default();
        assert!(entry_write.take(0, Epoch(3), &wanted, &options));
        assert!(!entry_write.take(9_000, Epoch(4), &other, &options), "one at a time");
        entry_write.answered(9_000, &options);
        assert!(!entry_write.take(9_099, Epoch(3), &wanted, &options));
        assert!(entry_write.take(9_100, Epoch(3), &wanted, &options));
        entry_write.answered(9_100, &options);
        assert!(!entry_write.take(9_299, Epoch(3), &wanted, &options));
        assert!(entry_write.take(9_299, Epoch(4), &wanted, &options), "another entry: at once");
        for _ in 0..9 {
            entry_write.answered(20_000, &options);
            entry_write.take(30_000, Epoch(4), &wanted, &options);
        }
        entry_write.answered(40_000, &options);
        assert!(!entry_write.take(41_999, Epoch(4), &wanted, &options));
        assert!(entry_write.take(42_000, Epoch(4), &wanted, &options));
    }
}

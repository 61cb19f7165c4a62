//! Counters of what has happened in a play.

/// Events that were counted in a play: a test that saw none of a kind would show nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) grants_taken: u32,
    pub(crate) grants_of_old_moves: u32,
    pub(crate) old_entries: u32,
    pub(crate) fences: u32,
    pub(crate) acting: u32,
    pub(crate) promotions: u32,
    pub(crate) removals: u32,
    pub(crate) allocated: u32,
    /// Copies of lanes whose writer had ended.
    pub(crate) copies_taken: u32,
    pub(crate) set_back: u32,
    pub(crate) rebased: u32,
    /// Workers that started without the store and took a copy.
    pub(crate) guests: u32,
    /// Guests that became members with it; `guests_that_forgot`: guests that had to forget it.
    pub(crate) guests_that_stayed: u32,
    pub(crate) guests_that_forgot: u32,
}

impl Seen {
    pub(crate) fn add(&mut self, other: Self) {
        self.grants_taken += other.grants_taken;
        self.grants_of_old_moves += other.grants_of_old_moves;
        self.old_entries += other.old_entries;
        self.fences += other.fences;
        self.acting += other.acting;
        self.promotions += other.promotions;
        self.removals += other.removals;
        self.allocated += other.allocated;
        self.copies_taken += other.copies_taken;
        self.set_back += other.set_back;
        self.rebased += other.rebased;
        self.guests += other.guests;
        self.guests_that_stayed += other.guests_that_stayed;
        self.guests_that_forgot += other.guests_that_forgot;
    }
}

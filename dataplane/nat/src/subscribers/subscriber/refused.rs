//! What was refused to each home, for operators to list.

use super::Subscribers;

impl Subscribers {
    /// Counts a flow that was refused to a home.
    pub(crate) fn count_refused(&mut self, slot: u32) {
        let refused = &mut self.refused[slot as usize];
        *refused = refused.saturating_add(1);
    }

    /// Returns the flows that were refused to a home.
    pub(crate) fn refused_total(&self, slot: u32) -> u32 {
        self.refused[slot as usize]
    }
}

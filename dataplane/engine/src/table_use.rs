//! Usage of a worker's bounded tables.

use weir_nat::TableUse;
use weir_wire::frame::Frame;

use crate::engine::Engine;

/// Number of tables that [`Engine::table_uses`] reports.
pub const TABLES: usize = 12;

impl<F: Frame> Engine<F> {
    /// Returns the usage of each table that homes share, always in the same order.
    pub fn table_uses(&self) -> [TableUse; TABLES] {
        let [flows, mappings, sessions, homes, displaced, blocks] = self.nat.table_uses();
        let [up, down, away, early_up, early_down] = self.fragments.uses();
        [
            flows,
            mappings,
            sessions,
            homes,
            displaced,
            blocks,
            up,
            down,
            away,
            early_up,
            early_down,
            TableUse::new("uncommitted-packets", self.held.len() as u64, self.held.max() as u64),
        ]
    }
}

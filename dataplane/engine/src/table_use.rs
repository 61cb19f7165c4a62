//! How full the bounded tables of a worker are.

use weir_nat::TableUse;
use weir_wire::frame::Frame;

use crate::engine::Engine;

/// Tables that [`Engine::table_uses`] tells of.
pub const TABLES: usize = 12;

impl<F: Frame> Engine<F> {
    /// How full each table is that homes share, always in the same order.
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

//! How full the bounded tables of a worker are.

use weir_nat::TableUse;
use weir_wire::frame::Frame;

use crate::engine::Engine;

/// Tables that [`Engine::table_uses`] tells of.
pub const TABLES: usize = 11;

impl<F: Frame> Engine<F> {
    /// How full each table is that homes share, always in the same order.
    pub fn table_uses(&self) -> [TableUse; TABLES] {
        let [flows, mappings, sessions, homes, displaced, blocks] = self.nat.table_uses();
        let [datagrams_down, datagrams_up, fragments_down, fragments_up] = self.fragments.uses();
        [
            flows,
            mappings,
            sessions,
            homes,
            displaced,
            blocks,
            datagrams_up,
            datagrams_down,
            fragments_up,
            fragments_down,
            TableUse::new("uncommitted-packets", self.held.len() as u64, self.held.max() as u64),
        ]
    }
}

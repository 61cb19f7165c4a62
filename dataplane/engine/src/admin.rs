//! The part of [`Engine`] that operators use: its counters, and whether its links and tables do
//! well. What they ask of the tables of flows is [`Nat::admin`](weir_nat::Nat::admin).

use std::sync::Arc;

use weir_nat::TableUse;
use weir_wire::frame::Frame;

use crate::engine::Engine;
use crate::{EngineCounters, Side};

/// Number of tables that [`EngineAdmin::table_uses`] reports.
pub const TABLES: usize = 12;

/// What administration reads of an engine. See [`Engine::admin`].
#[derive(Debug)]
pub struct EngineAdmin<'a, F: Frame> {
    engine: &'a Engine<F>,
}

impl<F: Frame> Engine<F> {
    /// Returns what operators may read.
    #[inline]
    pub fn admin(&self) -> EngineAdmin<'_, F> {
        EngineAdmin { engine: self }
    }
}

impl<F: Frame> EngineAdmin<'_, F> {
    /// Returns the counters; other threads may read them at any time.
    pub fn counters(&self) -> Arc<EngineCounters> {
        Arc::clone(&self.engine.counters)
    }

    /// Whether a gateway of the side answers ARP.
    pub fn gateway_up(&self, side: Side) -> bool {
        self.engine.link(side).gateways.is_up()
    }

    /// Whether both sides can forward.
    pub fn is_ready(&self) -> bool {
        Side::ALL.into_iter().all(|side| self.gateway_up(side))
    }

    /// Returns the usage of each table that homes share, always in the same order.
    pub fn table_uses(&self) -> [TableUse; TABLES] {
        let Engine { nat, fragments, held, .. } = self.engine;
        let [flows, mappings, sessions, homes, displaced, blocks] = nat.admin().table_uses();
        let [up, down, away, early_up, early_down] = fragments.uses();
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
            TableUse::new("uncommitted-packets", held.len() as u64, held.max() as u64),
        ]
    }
}

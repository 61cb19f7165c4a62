//! The part of [`Engine`] that operators read: its counters, the state of its links, and how full
//! its tables are. Flows and homes are listed by [`Nat::admin`](weir_nat::Nat::admin).

use std::sync::Arc;

use weir_nat::TableUse;
use weir_wire::frame::Frame;

use crate::engine::Engine;
use crate::{EngineCounters, Side};

/// Number of tables that [`EngineAdmin::table_uses`] reports.
pub const TABLES: usize = 15;

/// An engine as operators read it: see [`Engine::admin`].
#[derive(Debug)]
pub struct EngineAdmin<'a, F: Frame> {
    engine: &'a Engine<F>,
}

impl<F: Frame> Engine<F> {
    /// Returns the part that operators read.
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

    /// Returns the number of the generation in force.
    pub fn generation(&self) -> u64 {
        self.engine.generation
    }

    /// Whether a gateway of each family that the side has answers, and its IPv6 addresses are its
    /// own.
    pub fn gateway_up(&self, side: Side) -> bool {
        self.engine.link(side).is_up()
    }

    /// Whether both sides can forward.
    pub fn is_ready(&self) -> bool {
        Side::ALL.into_iter().all(|side| self.gateway_up(side))
    }

    /// Returns the usage of each table that homes share, always in the same order.
    pub fn table_uses(&self) -> [TableUse; TABLES] {
        let Engine { nat, fragments, outer_fragments, held, .. } = self.engine;
        let [flows, mappings, sessions, homes, displaced, blocks, claims, outers] =
            nat.admin().table_uses();
        let [up, down, away, early_up, early_down] = fragments.uses();
        [
            flows,
            mappings,
            sessions,
            homes,
            displaced,
            blocks,
            claims,
            outers,
            up,
            down,
            away,
            early_up,
            early_down,
            outer_fragments.cache.held("fragments-of-tunnels"),
            TableUse::new("uncommitted-packets", held.len() as u64, held.max() as u64),
        ]
    }
}

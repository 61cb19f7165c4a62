//! A kind of record that replicas hold copies of: a table of the lane, and an image.
//!
//! Journal, copies, clears and sums treat all kinds alike. Only how a copy is put differs: that of
//! a mapping in `mirror.rs` and `attach.rs`, that of a further session in `mirror_session.rs`.

use weir_flow::{Record, RecordId, SlabId, Slabs};

use crate::nat::Nat;
use crate::replication::change::RecordTable;
use crate::replication::change_body::BodyWriter;
use crate::replication::journal::MarkKind;
use crate::replication::mirror::CopyRemoval;
use crate::sessions::mapping::{Mapping, Remote};
use crate::sessions::session::{FurtherSession, MARKED, NOTES};

pub(crate) trait LaneRecord: Record {
    const TABLE: RecordTable;

    fn table(nat: &Nat) -> &Slabs<Self>;
    fn table_mut(nat: &mut Nat) -> &mut Slabs<Self>;

    /// True if replicas get the record, if its lane has any.
    fn is_replicated(&self) -> bool;

    /// True if a mark in the journal waits for the record.
    fn is_marked(&self) -> bool;
    fn set_marked(&mut self, is_marked: bool);

    /// Returns the session that owner updates of the record report.
    fn remote(&self) -> &Remote;

    /// Records a change that packets wait for.
    fn await_change(nat: &mut Nat, slab: SlabId, id: RecordId, kind: MarkKind);

    /// Prefetches what the body needs beside the record, which may be dead.
    fn prefetch_body(&self, _nat: &Nat) {}

    /// Writes the record's image, and what it brings along.
    fn write_body(&self, nat: &Nat, writer: &mut BodyWriter<'_>);

    /// Returns the record's term of a sum, see [`sum_lane`](super::facet::Replica::sum_lane).
    fn term(&self, nat: &Nat, slot: u32) -> u64;

    /// Removes the copy of a record with all that belongs to it.
    fn remove_copy(nat: &mut Nat, id: RecordId, exit: CopyRemoval);
}

impl LaneRecord for Mapping {
    const TABLE: RecordTable = RecordTable::Mappings;

    #[inline(always)]
    fn table(nat: &Nat) -> &Slabs<Self> {
        &nat.mappings
    }

    #[inline(always)]
    fn table_mut(nat: &mut Nat) -> &mut Slabs<Self> {
        &mut nat.mappings
    }

    #[inline(always)]
    fn is_replicated(&self) -> bool {
        true
    }

    #[inline(always)]
    fn is_marked(&self) -> bool {
        self.flags & Self::MARKED != 0
    }

    #[inline(always)]
    fn set_marked(&mut self, is_marked: bool) {
        self.flags = self.flags & !Self::MARKED | if is_marked { Self::MARKED } else { 0 };
    }

    fn remote(&self) -> &Remote {
        &self.first
    }

    /// That a mapping has begun is recorded where that is marked.
    fn await_change(nat: &mut Nat, slab: SlabId, id: RecordId, kind: MarkKind) {
        if kind == MarkKind::Changed {
            nat.await_mapping(slab, id, false);
        }
    }

    /// The body of a mapping says whether its home has another address by now.
    #[inline(always)]
    fn prefetch_body(&self, nat: &Nat) {
        nat.subscribers.prefetch(self.subscriber);
    }

    #[inline(always)]
    fn write_body(&self, nat: &Nat, writer: &mut BodyWriter<'_>) {
        nat.write_mapping_body(self, writer);
    }

    fn term(&self, nat: &Nat, slot: u32) -> u64 {
        nat.mapping_term(slot, self)
    }

    fn remove_copy(nat: &mut Nat, id: RecordId, exit: CopyRemoval) {
        nat.remove_mapping(id, exit);
    }
}

impl LaneRecord for FurtherSession {
    const TABLE: RecordTable = RecordTable::Sessions;

    fn table(nat: &Nat) -> &Slabs<Self> {
        &nat.sessions
    }

    fn table_mut(nat: &mut Nat) -> &mut Slabs<Self> {
        &mut nat.sessions
    }

    fn is_replicated(&self) -> bool {
        !self.is_address()
    }

    fn is_marked(&self) -> bool {
        self.references & (NOTES | MARKED) == NOTES | MARKED
    }

    fn set_marked(&mut self, is_marked: bool) {
        let bit = if is_marked { MARKED } else { 0 };
        self.references = NOTES | self.references & !MARKED | bit;
    }

    fn remote(&self) -> &Remote {
        &self.remote
    }

    fn await_change(nat: &mut Nat, slab: SlabId, id: RecordId, kind: MarkKind) {
        if kind != MarkKind::Ended {
            nat.await_session(slab, id, kind == MarkKind::Begun);
        }
    }

    fn write_body(&self, nat: &Nat, writer: &mut BodyWriter<'_>) {
        nat.write_session_body(self, writer);
    }

    fn term(&self, nat: &Nat, slot: u32) -> u64 {
        nat.session_term(slot, self)
    }

    fn remove_copy(nat: &mut Nat, id: RecordId, exit: CopyRemoval) {
        nat.end_copy(id, exit);
    }
}

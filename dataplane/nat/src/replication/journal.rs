//! Hot. Changes of the replicated lanes that are still to be sent: a ring of marks, one per record.
//!
//! A mark is made where a record begins, ends or changes in a way that a replica must know; its
//! bytes are made from the record when they are sent. A record that changes again before it is sent
//! is thus sent once, in its latest state: while a mark of it waits, its `MARKED` bit is set and no
//! other is made. Beginnings and ends are sent one by one, in order: a port is never reported taken
//! again before it was reported free.
//!
//! Packets that only keep a session alive are not sent. For a record of another worker's lane, what
//! was seen here is sent to its owner, see `owner_update.rs`. A full ring loses marks and sets a
//! flag on the lane: every worker that holds a copy of it has to copy it again.

use weir_flow::{Record, RecordId, SlabId};

use crate::endpoint::ShardIndex;
use crate::nat::Nat;
use crate::replication::change::{BODY_MAX, ChangeKind, RecordTable, SlotChange, lane_slot};
use crate::replication::change_body::{BodyWriter, SegmentBody, StateBody};
use crate::replication::facet::{Replica, ReplicaMut};
use crate::replication::image::MappingImage;
use crate::replication::lane::{LaneFault, lane_of};
use crate::replication::lane_record::LaneRecord;
use crate::replication::session_image::SessionImage;
use crate::sessions::mapping::{Mapping, Remote};
use crate::sessions::session::FurtherSession;
use crate::sessions::session_state::SentBy;

/// Marks that can wait. A poll that makes more than a ring full of them is a flood, not a burst.
pub(crate) const MARKS_MAX: usize = 65_536;

/// The kind of change that a mark reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MarkKind {
    Begun,
    /// An IPv6 flow has begun.
    BegunIpv6,
    Changed,
    Ended,
    /// A TCP packet has changed what is known of its connection. Goes to the lane's owner, if that
    /// is another worker.
    Segment(TrackedSegment),
    /// The first flow of the record's home was answered. No packet waits for this change, and its
    /// loss requires no new copy.
    Answered,
    /// A session of another worker's lane has seen traffic here.
    OwnerUpdate,
    /// The shard of the record is gone.
    Void,
}

impl MarkKind {
    #[inline]
    pub(crate) fn segment(sender: SentBy, tcp_flags: u8) -> Self {
        Self::Segment(TrackedSegment { sender, tcp_flags })
    }
}

/// The part of a segment that TCP tracking uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TrackedSegment {
    pub(crate) sender: SentBy,
    pub(crate) tcp_flags: u8,
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    kind: MarkKind,
    table: RecordTable,
    slab: SlabId,
    version: u32,
    /// Id of the record; for a record that ended, its slot.
    record: u32,
}

impl Mark {
    const VOID: Self = Self {
        kind: MarkKind::Void,
        table: RecordTable::Mappings,
        slab: SlabId(0),
        version: 0,
        record: 0,
    };
}

/// The ring of marks.
#[derive(Debug)]
pub(crate) struct Journal {
    /// Indexed by the position in the journal, modulo [`MARKS_MAX`]; empty on a worker without
    /// replicas.
    ring: Box<[Mark]>,
    /// Marks taken from the ring so far, and marks made.
    taken: u64,
    made: u64,
}

const _: () = assert!(MARKS_MAX.is_power_of_two());

fn ring_index(position: u64) -> usize {
    position as usize % MARKS_MAX
}

impl Journal {
    /// Returns an empty ring.
    pub(crate) fn new(is_replicated: bool) -> Self {
        let marks = if is_replicated { MARKS_MAX } else { 0 };
        Self { ring: vec![Mark::VOID; marks].into(), taken: 0, made: 0 }
    }

    /// Appends a mark. Returns whether there was room.
    #[inline(always)]
    fn push(&mut self, mark: Mark) -> bool {
        if self.len() == MARKS_MAX {
            return false;
        }
        let Some(place) = self.ring.get_mut(ring_index(self.made)) else { return false };
        *place = mark;
        self.made += 1;
        true
    }

    #[inline(always)]
    fn first(&self) -> Option<&Mark> {
        if self.taken == self.made {
            return None;
        }
        self.ring.get(ring_index(self.taken))
    }

    /// Appends an owner update: a session of another worker's lane has seen traffic. Returns
    /// whether it will be sent.
    pub(crate) fn push_owner_update(
        &mut self,
        table: RecordTable,
        slab: SlabId,
        version: u32,
        id: RecordId,
    ) -> bool {
        self.push_for_owner(MarkKind::OwnerUpdate, table, slab, version, id)
    }

    /// As [`push_owner_update`](Self::push_owner_update).
    fn push_for_owner(
        &mut self,
        kind: MarkKind,
        table: RecordTable,
        slab: SlabId,
        version: u32,
        id: RecordId,
    ) -> bool {
        self.push(Mark { kind, table, slab, version, record: id.0 })
    }

    /// Voids the marks of a shard that is gone. They keep their positions, which callers may count.
    pub(crate) fn forget(&mut self, shard: ShardIndex) {
        for position in self.taken..self.made {
            let mark = &mut self.ring[ring_index(position)];
            if lane_of(mark.slab).0 == shard {
                mark.kind = MarkKind::Void;
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        (self.made - self.taken) as usize
    }
}

impl Replica<'_> {
    /// Returns the end of the journal: all changes so far are sent once [`is_sent`](Self::is_sent)
    /// is true of it.
    #[inline]
    pub fn journal_end(self) -> u64 {
        self.nat.journal.made
    }

    /// Returns how much of the journal [`next_change`](ReplicaMut::next_change) has returned.
    #[inline]
    pub fn journal_taken(self) -> u64 {
        self.nat.journal.taken
    }

    /// True if [`next_change`](ReplicaMut::next_change) has returned everything up to
    /// `journal_end`.
    #[inline]
    pub fn is_sent(self, journal_end: u64) -> bool {
        self.nat.journal.taken >= journal_end
    }
}

impl ReplicaMut<'_> {
    /// Returns the next change to send and the length of its body, which is written to `body`. None
    /// if there is none left.
    #[inline(always)]
    pub fn next_change(&mut self, body: &mut [u8; BODY_MAX]) -> Option<(SlotChange, usize)> {
        let mark = self.nat.journal.first()?;
        if mark.kind != MarkKind::Begun || mark.table != RecordTable::Mappings {
            return self.next_other_change(body);
        }
        let (slab, version, id) = (mark.slab, mark.version, RecordId(mark.record));
        self.nat.journal.taken += 1;
        match self.nat.write_record::<Mapping>(ChangeKind::Create, (slab, version, id), body) {
            None => self.next_other_change(body),
            change => change,
        }
    }

    /// As [`next_change`](Self::next_change), whatever the mark.
    #[inline(never)]
    fn next_other_change(&mut self, body: &mut [u8; BODY_MAX]) -> Option<(SlotChange, usize)> {
        loop {
            let mark = *self.nat.journal.first()?;
            self.nat.journal.taken += 1;
            let change = match mark.table {
                RecordTable::Mappings => self.nat.write_change::<Mapping>(&mark, body),
                RecordTable::Sessions => self.nat.write_change::<FurtherSession>(&mark, body),
            };
            if change.is_some() {
                return change;
            }
        }
    }
}

impl Nat {
    /// Appends that a mapping has begun, in a lane that this worker owns.
    #[inline]
    pub(crate) fn mark_begun(&mut self, slab: SlabId, id: RecordId) {
        self.mark_begun_as(MarkKind::Begun, slab, id);
    }

    /// As [`mark_begun`](Self::mark_begun), of an IPv6 flow.
    #[inline(never)]
    pub(crate) fn mark_flow6_begun(&mut self, slab: SlabId, id: RecordId) {
        self.mark_begun_as(MarkKind::BegunIpv6, slab, id);
    }

    #[inline(always)]
    fn mark_begun_as(&mut self, kind: MarkKind, slab: SlabId, id: RecordId) {
        let lane = self.lanes.get(slab);
        assert!(lane.is_owned, "a mapping begins only in a lane that this worker owns");
        if !lane.is_replicated || lane.is_awaited {
            self.await_begun(slab, id);
            if !self.lanes.get(slab).is_replicated {
                return;
            }
        }
        let mapping = self.mappings.get_mut(id);
        let version = mapping.version();
        let mark = Mark { kind, table: RecordTable::Mappings, slab, version, record: id.0 };
        if self.journal.push(mark) {
            mapping.flags |= Mapping::MARKED;
        } else {
            self.lose_mark(slab);
        }
    }

    /// Records a lost mark: the lane is to be copied again, and it cannot be known when the change
    /// is on replicas.
    #[cold]
    fn lose_mark(&mut self, slab: SlabId) {
        self.lanes.note(LaneFault::Lost, slab);
        if self.lanes.get(slab).is_awaited {
            self.commits.cannot_know();
        }
    }

    /// Appends that a mapping has changed or ended.
    #[inline]
    pub(crate) fn note_mapping(&mut self, kind: MarkKind, id: RecordId) {
        if self.lanes.is_any_marked {
            self.mark::<Mapping>(kind, id);
        }
    }

    /// Appends that a further session has begun, changed or ended.
    #[inline]
    pub(crate) fn note_session(&mut self, kind: MarkKind, id: RecordId) {
        if self.lanes.is_any_marked {
            self.mark::<FurtherSession>(kind, id);
        }
    }

    #[inline(never)]
    fn mark<R: LaneRecord>(&mut self, kind: MarkKind, id: RecordId) {
        let slab = R::table(self).slab_of(id);
        let lane = self.lanes.get(slab);
        let kind = match kind {
            MarkKind::Segment(_) if !lane.is_owned => {
                let version = R::table(self).get(id).version();
                self.journal.push_for_owner(kind, R::TABLE, slab, version, id);
                return;
            }
            MarkKind::Segment(_) => MarkKind::Changed,
            kind => kind,
        };
        if lane.is_awaited && lane.is_owned {
            R::await_change(self, slab, id, kind);
        }
        let (record, lane) = (R::table(self).get(id), self.lanes.get(slab));
        let is_marked =
            record.is_marked() && matches!(kind, MarkKind::Changed | MarkKind::Answered);
        if is_marked || !(lane.is_replicated && lane.is_owned && record.is_replicated()) {
            return;
        }
        let version = record.version();
        let named = match kind {
            MarkKind::Ended => R::table(self).slot_of(id),
            _ => id.0,
        };
        if self.journal.push(Mark { kind, table: R::TABLE, slab, version, record: named }) {
            R::table_mut(self).get_mut(id).set_marked(true);
        } else if kind != MarkKind::Answered {
            self.lose_mark(slab);
        }
    }

    fn write_end(&self, mark: &Mark) -> Option<(SlotChange, usize)> {
        let lane = self.lanes.get(mark.slab);
        let change = change(ChangeKind::Delete, mark, mark.record);
        lane.is_replicated.then_some((change, 0))
    }

    fn write_change<R: LaneRecord>(
        &mut self,
        mark: &Mark,
        body: &mut [u8; BODY_MAX],
    ) -> Option<(SlotChange, usize)> {
        let id = RecordId(mark.record);
        let kind = match mark.kind {
            MarkKind::Void => return None,
            MarkKind::Ended => return self.write_end(mark),
            MarkKind::OwnerUpdate | MarkKind::Segment(_) => {
                let record = R::table(self).get(id);
                let is_it = is_replicated_as(record, mark.version);
                return is_it
                    .then(|| (record.remote(), R::table(self).slot_of(id)))
                    .and_then(|(remote, slot)| self.write_owner_update(mark, remote, slot, body));
            }
            MarkKind::Begun | MarkKind::BegunIpv6 => ChangeKind::Create,
            MarkKind::Changed | MarkKind::Answered => ChangeKind::Change,
        };
        self.write_record::<R>(kind, (mark.slab, mark.version, id), body)
    }

    /// None if the record has ended, which has a mark of its own, or if changes of the lane are not
    /// to be sent any more.
    #[inline(always)]
    fn write_record<R: LaneRecord>(
        &mut self,
        kind: ChangeKind,
        (slab, version, id): (SlabId, u32, RecordId),
        body: &mut [u8; BODY_MAX],
    ) -> Option<(SlotChange, usize)> {
        let record = R::table_mut(self).get_mut(id);
        if !is_replicated_as(record, version) {
            return None;
        }
        record.set_marked(false);
        let table = R::table(self);
        if !self.lanes.get(slab).is_replicated || table.slab_of(id) != slab {
            return None;
        }
        let mut writer = BodyWriter::new(body);
        table.get(id).write_body(self, &mut writer);
        let slot = lane_slot(R::TABLE, table.slot_of(id));
        let (shard, lane) = lane_of(slab);
        Some((SlotChange { kind, shard, lane, slot, version }, writer.len()))
    }

    /// None if this worker has become the lane's owner, or its shard is being removed.
    fn write_owner_update(
        &self,
        mark: &Mark,
        remote: &Remote,
        slot: u32,
        body: &mut [u8; BODY_MAX],
    ) -> Option<(SlotChange, usize)> {
        let mut writer = BodyWriter::new(body);
        writer.idle(self.now.since(remote.last_seen));
        if let MarkKind::Segment(segment) = mark.kind {
            writer.segment(&SegmentBody { remote: remote.endpoint(), segment });
        }
        writer.state(&StateBody { remote: remote.endpoint(), state: remote.state });
        let change = (change(ChangeKind::OwnerUpdate, mark, slot), writer.len());
        let lane = self.lanes.get(mark.slab);
        (lane.is_present && !lane.is_owned).then_some(change)
    }

    #[inline(always)]
    pub(crate) fn write_mapping_body(&self, mapping: &Mapping, writer: &mut BodyWriter<'_>) {
        if mapping.kind.is_ipv6() {
            return self.write_flow6_body(mapping, writer);
        }
        writer.mapping(&MappingImage::of(mapping, self.now.since(mapping.created)));
        if let Some(asked) = mapping.asked() {
            writer.asked(asked);
        }
        if self.policy.enabled {
            let paired_address = self.subscribers.get(mapping.subscriber).paired_address;
            if paired_address != mapping.address {
                writer.paired_address(self.ports.public_address(paired_address));
            }
        }
        if mapping.flags & Mapping::OVER_IPV6 != 0 {
            self.write_outer6(mapping.outer, writer);
        }
    }

    #[inline(never)]
    fn write_flow6_body(&self, record: &Mapping, writer: &mut BodyWriter<'_>) {
        let image = self.flow_image(record);
        writer.flow6(&image);
        self.write_outer6(image.outer, writer);
    }

    /// Writes the outer address of a home whose tunnel is over IPv6.
    #[inline(never)]
    fn write_outer6(&self, outer: u32, writer: &mut BodyWriter<'_>) {
        if let Some(address) = self.outer_ipv6(outer) {
            writer.outer6(address);
        }
    }

    pub(crate) fn write_session_body(&self, session: &FurtherSession, writer: &mut BodyWriter<'_>) {
        let mapping = self.mappings.get(session.mapping);
        writer.session(&SessionImage {
            mapping_slot: lane_slot(RecordTable::Mappings, self.mappings.slot_of(session.mapping)),
            mapping_version: mapping.version(),
            remote: session.remote.endpoint(),
            state: session.remote.state,
        });
        self.write_mapping_body(mapping, writer);
    }
}

/// True if the record lives in this version, and replicas get it.
#[inline(always)]
fn is_replicated_as<R: LaneRecord>(record: &R, version: u32) -> bool {
    record.version() == version && record.is_live() && record.is_replicated()
}

#[inline]
fn change(kind: ChangeKind, mark: &Mark, slot: u32) -> SlotChange {
    let (shard, lane) = lane_of(mark.slab);
    SlotChange { kind, shard, lane, slot: lane_slot(mark.table, slot), version: mark.version }
}

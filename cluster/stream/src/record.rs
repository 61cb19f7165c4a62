//! Hot: the items of a stream. Each is a type, a length and fields, big-endian, never the memory
//! image.
//!
//! ```text
//!  0 type u8   1 length u8 of what follows   2 fields
//!  record      1..=11  shard u32 | slot u32 | version u32 | body, 0 to 200 bytes
//!  copy start  32      shard u32 | slots u32 | lineage u64 | lineage before u64 | provenance u8
//!                      (lineages: 0 if not there; provenance: left out if it is the writer)
//!  copy end    33      shard u32
//!  copy stop   35      shard u32
//!  sum         34      shard u32 | first slot u32 | slot after the last u32 | number u32 | sum u64
//! ```
//!
//! Unknown types are skipped, and so are fields behind those known here. The caller encodes and
//! parses the body, by the same rule.

use std::ops::Range;

use weir_ids::ShardId;

use crate::bytes::{ByteReader, ByteWriter};
use crate::identity::{Lineage, Provenance};

/// Bytes of the longest body.
pub const RECORD_BODY_MAX: usize = 200;

/// Bytes of a record without its body.
pub const RECORD_HEADER_LEN: usize = 14;

/// Bytes of the longest item.
pub(crate) const ITEM_LEN_MAX: usize = RECORD_HEADER_LEN + RECORD_BODY_MAX;

/// A change of a slot, or a message about its slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RecordKind {
    /// The slot holds this body from here on; the copy walk sends it too.
    Create = 1,
    /// The slot's content changed.
    Change = 2,
    /// The slot's record ended.
    Delete = 3,
    // Type 4 is taken: earlier versions know it as a port block that was given or taken back.
    /// Owner update: a worker that does not own the lane saw traffic of the record.
    OwnerUpdate = 5,
    /// No slot from `slot` on holds a record of `version` or earlier; the body holds the number of
    /// slots. The copy walk clears with it what ended while the receiver did not listen.
    Clear = 6,
    /// The lane of the shard is handed over: all that the sender wrote in it came before.
    Grant = 7,
    /// The sender's routes of the shard are out. Concerns no slot.
    Announced = 8,
    /// The sender lacks the lane's slab of the shard and asks for a copy. Concerns no slot.
    Want = 9,
    /// The sender writes the lane's slab of the shard from here on, in the lineage that the body
    /// gives, encoded as in a copy start. The lineage continues all that the sender has copied.
    /// Concerns no slot.
    Lineage = 10,
    /// The copy of the lane's slab of the shard that came in this epoch of the receiver's stream,
    /// and has this lineage, is complete and followed. Concerns no slot.
    Followed = 11,
}

impl RecordKind {
    /// All kinds.
    pub const ALL: [RecordKind; 10] = [
        RecordKind::Create,
        RecordKind::Change,
        RecordKind::Delete,
        RecordKind::OwnerUpdate,
        RecordKind::Clear,
        RecordKind::Grant,
        RecordKind::Announced,
        RecordKind::Want,
        RecordKind::Lineage,
        RecordKind::Followed,
    ];

    #[inline(always)]
    fn of(number: u8) -> Option<RecordKind> {
        const BY_NUMBER: [Option<RecordKind>; RecordKind::Followed as usize + 1] = {
            let mut kinds = [None; RecordKind::Followed as usize + 1];
            let mut index = 0;
            while index < RecordKind::ALL.len() {
                kinds[RecordKind::ALL[index] as usize] = Some(RecordKind::ALL[index]);
                index += 1;
            }
            kinds
        };
        BY_NUMBER.get(usize::from(number)).copied().flatten()
    }
}

/// A change of one slot of the slab (shard, lane of the stream).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamRecord<'a> {
    /// Kind of the change.
    pub kind: RecordKind,
    /// The shard of the slab; its lane is the stream's.
    pub shard: ShardId,
    /// The slot in the owner's slab, and thus in every copy.
    pub slot: u32,
    /// Version of the slot, in serial number arithmetic (RFC 1982).
    pub version: u32,
    /// At most [`RECORD_BODY_MAX`] bytes.
    pub body: &'a [u8],
}

impl StreamRecord<'_> {
    /// Bytes of the item.
    ///
    /// # Panics
    /// If the body is longer than [`RECORD_BODY_MAX`].
    #[inline(always)]
    fn len(&self) -> usize {
        assert!(
            self.body.len() <= RECORD_BODY_MAX,
            "a record's body has at most RECORD_BODY_MAX bytes"
        );
        RECORD_HEADER_LEN + self.body.len()
    }

    /// Writes the item. Each field is stored in its final position: a load that gathers several
    /// smaller stores would wait for them.
    #[inline(always)]
    fn emit(&self, room: &mut [u8]) {
        let Some((head, body)) = room.split_first_chunk_mut::<RECORD_HEADER_LEN>() else { return };
        head[0] = self.kind as u8;
        head[1] = (RECORD_HEADER_LEN - 2 + self.body.len()) as u8;
        head[2..6].copy_from_slice(&self.shard.0.to_be_bytes());
        head[6..10].copy_from_slice(&self.slot.to_be_bytes());
        head[10..14].copy_from_slice(&self.version.to_be_bytes());
        copy(body, self.body);
    }
}

/// Copies all bytes. A mapping's body is so short that a call would cost more than the copy: two
/// pieces that overlap.
#[inline(always)]
fn copy(to: &mut [u8], from: &[u8]) {
    const PIECE: usize = 32;
    if !(PIECE..=2 * PIECE).contains(&from.len()) {
        return to.copy_from_slice(from);
    }
    assert_eq!(to.len(), from.len(), "the room is as long as the bytes");
    let (first, last) = (from.first_chunk::<PIECE>(), from.last_chunk::<PIECE>());
    if let (Some(first), Some(last)) = (first, last) {
        to[..PIECE].copy_from_slice(first);
        to[from.len() - PIECE..].copy_from_slice(last);
    }
}

const COPY_START: u8 = 32;
const COPY_END: u8 = 33;
const SUM: u8 = 34;
const COPY_STOP: u8 = 35;

/// Provenance behind the lineage of a relayed copy. A receiver that does not know the field takes
/// the copy for the writer's.
const RELAY: u8 = 1;
const PARTIAL_RELAY: u8 = 2;

/// Items of a stream: records, and marks between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Item<'a> {
    Record(StreamRecord<'a>),
    CopyStart { shard: ShardId, slots: u32, lineage: Lineage },
    CopyEnd { shard: ShardId },
    CopyStop { shard: ShardId },
    Sum { shard: ShardId, slots: Range<u32>, number: u32, sum: u64 },
}

impl Item<'_> {
    /// Bytes of the item.
    ///
    /// # Panics
    /// If a record's body is longer than [`RECORD_BODY_MAX`].
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        match self {
            Item::Record(record) => record.len(),
            Item::CopyStart { lineage, .. } => 26 + usize::from(lineage.is_relayed()),
            Item::Sum { .. } => 26,
            Item::CopyEnd { .. } | Item::CopyStop { .. } => 6,
        }
    }

    /// Writes the item into a room of exactly its length.
    #[inline(always)]
    pub(crate) fn emit(&self, room: &mut [u8]) {
        match self {
            Item::Record(record) => record.emit(room),
            mark => mark.emit_mark(room),
        }
    }

    fn emit_mark(&self, room: &mut [u8]) {
        let length = room.len() as u8 - 2;
        let mut writer = ByteWriter::new(room);
        match self {
            Item::Record(_) => {}
            Item::CopyStart { shard, slots, lineage } => {
                writer.u8(COPY_START).u8(length).u32(shard.0).u32(*slots);
                writer.u64(lineage.now).u64(lineage.before);
                match lineage.provenance {
                    Provenance::Writer => {}
                    Provenance::Relay => _ = writer.u8(RELAY),
                    Provenance::PartialRelay => _ = writer.u8(PARTIAL_RELAY),
                }
            }
            Item::CopyEnd { shard } => _ = writer.u8(COPY_END).u8(length).u32(shard.0),
            Item::CopyStop { shard } => _ = writer.u8(COPY_STOP).u8(length).u32(shard.0),
            Item::Sum { shard, slots, number, sum } => {
                writer.u8(SUM).u8(length).u32(shard.0).u32(slots.start).u32(slots.end);
                writer.u32(*number).u64(*sum);
            }
        }
    }
}

/// Reads items; skips and counts unknown ones.
#[derive(Debug)]
pub(crate) struct Items<'a> {
    reader: ByteReader<'a>,
    pub(crate) skipped: u64,
}

impl<'a> Items<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { reader: ByteReader(bytes), skipped: 0 }
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = Item<'a>;

    #[inline]
    fn next(&mut self) -> Option<Item<'a>> {
        while !self.reader.0.is_empty() {
            let Some((kind, fields)) = self.reader.field() else {
                self.skipped += 1;
                self.reader = ByteReader(&[]);
                break;
            };
            match read(kind, fields) {
                Some(item) => return Some(item),
                None => self.skipped += 1,
            }
        }
        None
    }
}

/// Returns the item; None if its type is unknown or its fields are too short.
#[inline(always)]
fn read<'a>(kind: u8, mut fields: ByteReader<'a>) -> Option<Item<'a>> {
    if let Some(kind) = RecordKind::of(kind) {
        let ([shard, slot, version], body) = words(fields.0)?;
        return (body.len() <= RECORD_BODY_MAX).then_some(Item::Record(StreamRecord {
            kind,
            shard: ShardId(shard),
            slot,
            version,
            body,
        }));
    }
    let shard = ShardId(fields.u32()?);
    match kind {
        COPY_START => {
            let slots = fields.u32()?;
            let [now, before] = [fields.u64().unwrap_or(0), fields.u64().unwrap_or(0)];
            let provenance = match fields.u8() {
                None => Provenance::Writer,
                Some(RELAY) => Provenance::Relay,
                Some(_) => Provenance::PartialRelay,
            };
            Some(Item::CopyStart { shard, slots, lineage: Lineage { now, before, provenance } })
        }
        COPY_END => Some(Item::CopyEnd { shard }),
        COPY_STOP => Some(Item::CopyStop { shard }),
        SUM => {
            let slots = fields.u32()?..fields.u32()?;
            Some(Item::Sum { shard, slots, number: fields.u32()?, sum: fields.u64()? })
        }
        _ => None,
    }
}

/// Returns three words and the rest, behind one length check.
#[inline(always)]
fn words(bytes: &[u8]) -> Option<([u32; 3], &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<12>()?;
    let word = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    Some(([word(0), word(4), word(8)], rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn emitted(item: &Item<'_>) -> Vec<u8> {
        let mut bytes = vec![0; item.len()];
        item.emit(&mut bytes);
        bytes
    }

    #[test]
    fn what_is_written_is_read() {
        let shard = ShardId(7);
        let lineage = Lineage { now: u64::MAX - 1, before: 3, provenance: Provenance::Writer };
        let mut items = vec![
            Item::CopyStart { shard, slots: 4096, lineage },
            Item::CopyStart {
                shard,
                slots: 0,
                lineage: Lineage { provenance: Provenance::Relay, ..lineage },
            },
            Item::CopyStart {
                shard,
                slots: 1,
                lineage: Lineage { provenance: Provenance::PartialRelay, ..lineage },
            },
            Item::CopyEnd { shard },
            Item::CopyStop { shard },
            Item::Sum { shard, slots: 1024..2048, number: 9, sum: u64::MAX - 5 },
        ];
        for (length, kind) in [0, 1, 50, 199, 200, 64, 3, 8, 0, 16].into_iter().zip(RecordKind::ALL)
        {
            let body = &[0xA5; RECORD_BODY_MAX][..length];
            items.push(Item::Record(StreamRecord {
                kind,
                shard,
                slot: 12,
                version: 1 << 31,
                body,
            }));
        }
        let bytes: Vec<u8> = items.iter().flat_map(emitted).collect();
        let mut read = Items::new(&bytes);
        assert_eq!(read.by_ref().collect::<Vec<_>>(), items);
        assert_eq!(read.skipped, 0);
    }

    /// A later version adds types, and fields behind those we know.
    #[test]
    fn unknown_types_and_trailing_fields_are_skipped() {
        let known = Item::CopyEnd { shard: ShardId(3) };
        let mut longer = emitted(&known);
        longer.extend([1, 2, 3]);
        longer[1] += 3;
        let bytes = [vec![200, 2, 9, 9], longer, vec![0, 0], emitted(&known)].concat();
        let mut items = Items::new(&bytes);
        assert_eq!(items.by_ref().collect::<Vec<_>>(), [known.clone(), known]);
        assert_eq!(items.skipped, 2);
    }

    /// A truncated record, and a length beyond the end: skipped and counted, the rest is read.
    #[test]
    fn truncated_items_are_skipped_and_counted() {
        let good = emitted(&Item::CopyEnd { shard: ShardId(1) });
        let bytes =
            [vec![RecordKind::Create as u8, 11], vec![0; 11], good, vec![1, 200, 0]].concat();
        let mut items = Items::new(&bytes);
        assert_eq!(items.by_ref().count(), 1);
        assert_eq!(items.skipped, 2);
    }
}

//! Slabs as naive maps: those that a worker owns, and those that it keeps for others.

use std::collections::BTreeMap;
use std::ops::Range;

use weir_stream::{
    CopyRoom, ITEMS_MAX, Lane, Lineage, Origin, PeerId, Provenance, RecordKind, ShardId, Sink,
    Source, StreamRecord, Sum,
};

/// Lineage of all slabs.
const LINEAGE: Lineage = Lineage { now: 77, before: 76, provenance: Provenance::Writer };

/// A slot's last version, and its content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) version: u32,
    pub(crate) body: Option<Vec<u8>>,
}

pub(crate) type Slab = Vec<Slot>;

/// A worker's slabs. As a sink it checks that changes come in order and once.
#[derive(Debug, Default)]
pub(crate) struct World {
    pub(crate) own: BTreeMap<(ShardId, Lane), Slab>,
    pub(crate) copies: BTreeMap<(PeerId, ShardId, Lane), Slab>,
    /// Serial number of the last change by stream since its reset.
    last_serial: BTreeMap<(PeerId, Lane), u64>,
    pub(crate) finished: Vec<(PeerId, ShardId, Lane)>,
    pub(crate) resets: u64,
    /// There is no room: nothing may be delivered.
    pub(crate) is_full: bool,
}

pub(crate) fn is_newer(version: u32, than: u32) -> bool {
    (version.wrapping_sub(than) as i32) > 0
}

/// Returns the live slots with version and body, which must be equal.
pub(crate) fn live(slab: &Slab) -> BTreeMap<usize, &Slot> {
    slab.iter().enumerate().filter(|(_, slot)| slot.body.is_some()).collect()
}

fn sum(slab: Option<&Slab>, slots: Range<u32>) -> u64 {
    let mut sum = Sum::default();
    let all = slab.into_iter().flatten().enumerate();
    for (number, slot) in all.filter(|(number, _)| slots.contains(&(*number as u32))) {
        if let Some(body) = &slot.body {
            sum.add(number as u32, slot.version, body);
        }
    }
    sum.value()
}

impl World {
    fn copy_mut(&mut self, origin: Origin, shard: ShardId) -> &mut Slab {
        self.copies.entry((origin.worker, shard, origin.lane)).or_default()
    }

    fn check_order(&mut self, origin: Origin, record: &StreamRecord<'_>) {
        if !matches!(record.kind, RecordKind::Change | RecordKind::Delete) {
            return;
        }
        let serial = u64::from_be_bytes(*record.body.first_chunk().expect("a serial number"));
        let last = self.last_serial.entry((origin.worker, origin.lane)).or_default();
        assert!(serial > *last, "{origin:?}: {serial} came after {last}");
        *last = serial;
    }

    fn apply_one(&mut self, origin: Origin, record: &StreamRecord<'_>) {
        self.check_order(origin, record);
        let slab = self.copy_mut(origin, record.shard);
        let slot = record.slot as usize;
        if record.kind == RecordKind::Clear {
            let count = u32::from_be_bytes(record.body.try_into().expect("a count"));
            let end = slot.saturating_add(count as usize).min(slab.len());
            for slot in slab.get_mut(slot..end).into_iter().flatten() {
                if !is_newer(slot.version, record.version) {
                    slot.body = None;
                }
            }
            return;
        }
        if slab.len() <= slot {
            slab.resize(slot + 1, Slot::default());
        }
        if !is_newer(slab[slot].version, record.version) {
            let body = (record.kind != RecordKind::Delete).then(|| record.body.to_vec());
            slab[slot] = Slot { version: record.version, body };
        }
    }
}

impl Sink for World {
    fn room(&self) -> usize {
        if self.is_full { 0 } else { 100 * ITEMS_MAX }
    }

    fn apply(&mut self, origin: Origin, records: &[StreamRecord<'_>]) {
        assert!(!self.is_full, "nothing is delivered without room");
        for record in records {
            self.apply_one(origin, record);
        }
    }

    fn stream_reset(&mut self, origin: Origin) {
        self.last_serial.remove(&(origin.worker, origin.lane));
        self.resets += 1;
    }

    fn copy_started(&mut self, origin: Origin, shard: ShardId, _slots: u32, lineage: Lineage) {
        assert_eq!(lineage, LINEAGE, "the lineage is the source's");
        self.finished.retain(|copy| *copy != (origin.worker, shard, origin.lane));
    }

    fn copy_finished(&mut self, origin: Origin, shard: ShardId) {
        self.finished.push((origin.worker, shard, origin.lane));
    }

    fn copy_stopped(&mut self, origin: Origin, shard: ShardId) {
        self.finished.retain(|copy| *copy != (origin.worker, shard, origin.lane));
    }

    fn sum(&self, origin: Origin, shard: ShardId, slots: Range<u32>) -> u64 {
        sum(self.copies.get(&(origin.worker, shard, origin.lane)), slots)
    }
}

impl Source for World {
    fn lineage(&self, _: ShardId, _: Lane) -> Lineage {
        LINEAGE
    }

    fn slots(&self, shard: ShardId, lane: Lane) -> u32 {
        self.own.get(&(shard, lane)).map_or(0, |slab| slab.len() as u32)
    }

    fn walk(
        &mut self,
        shard: ShardId,
        lane: Lane,
        slots: Range<u32>,
        budget: u32,
        room: &mut CopyRoom<'_>,
    ) -> u32 {
        let empty = Slab::new();
        let slab = self.own.get(&(shard, lane)).unwrap_or(&empty);
        let total = slab.len() as u32;
        let last = slots.start.saturating_add(budget).min(slots.end);
        let mut slot = slots.start;
        while slot < last {
            let taken = match slab.get(slot as usize) {
                Some(Slot { version, body: Some(body) }) => {
                    let record = StreamRecord {
                        kind: RecordKind::Create,
                        shard,
                        slot,
                        version: *version,
                        body,
                    };
                    room.add(&record).then_some(slot + 1)
                }
                dead => {
                    let is_dead = |slot: &u32| slab[*slot as usize].body.is_none();
                    // Behind the last slot all slots are dead, up to the end of the range.
                    let end = match dead {
                        None => slots.end,
                        Some(_) => (slot..total.min(last)).take_while(is_dead).last().unwrap() + 1,
                    };
                    let run = slab.get(slot as usize..end.min(total) as usize).unwrap_or(&[]);
                    let version = run.iter().map(|slot| slot.version).max().unwrap_or(1 << 30);
                    let body = &(end - slot).to_be_bytes();
                    let record =
                        StreamRecord { kind: RecordKind::Clear, shard, slot, version, body };
                    room.add(&record).then_some(end)
                }
            };
            match taken {
                Some(next) => slot = next,
                None => break,
            }
        }
        slot
    }

    fn sum(&self, shard: ShardId, lane: Lane, slots: Range<u32>) -> u64 {
        sum(self.own.get(&(shard, lane)), slots)
    }
}

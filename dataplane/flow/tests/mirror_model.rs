//! Compares a mirror with its owner: same slots, same versions, in whatever order the changes
//! arrive; then the mirror takes over.

use std::collections::HashMap;

use weir_flow::{Cursor, HashKey, Record, RecordId, SlabId, Slabs, is_later_version};

#[derive(Clone, Copy, Debug, PartialEq)]
struct Flow {
    version: u32,
    payload: u32,
}

impl Record for Flow {
    const EMPTY: Flow = Flow { version: 0, payload: 0 };
    fn is_live(&self) -> bool {
        self.payload >= LIVE
    }
    fn version(&self) -> u32 {
        self.version
    }
    fn set_version(&mut self, version: u32) {
        self.version = version;
    }
    fn next_free(&self) -> u32 {
        self.payload
    }
    fn set_next_free(&mut self, next: u32) {
        self.payload = next;
    }
}

/// Payloads of live records are above any link.
const LIVE: u32 = 1 << 20;
const SLABS: u32 = 2;

#[derive(Clone, Copy, Debug)]
enum SlabChange {
    Create { slab: u32, slot: u32, version: u32, payload: u32 },
    Delete { slab: u32, slot: u32, version: u32 },
}

impl SlabChange {
    fn slab_and_slot(self) -> (u32, u32) {
        match self {
            SlabChange::Create { slab, slot, .. } | SlabChange::Delete { slab, slot, .. } => {
                (slab, slot)
            }
        }
    }
}

struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 += 1;
        (HashKey::new([3, 4]).hash([self.0, 0, 0]).0 >> 16) as usize % bound
    }
}

/// Applies a change as a replica does.
fn apply(mirror: &mut Slabs<Flow>, change: SlabChange) {
    let (slab, slot) = change.slab_and_slot();
    // The hint is right, of another slot, or none.
    let elsewhere = [slot, slot ^ 1, slot + 1024][slot as usize % 3];
    let hint = mirror.prefetch_slot(SlabId(slab), elsewhere);
    let held = mirror.held(SlabId(slab), slot, hint);
    assert_eq!(held, mirror.id_of(SlabId(slab), slot));
    let version_held = held.map_or(0, |id| mirror.get(id).version());
    let live = held.filter(|&id| mirror.get(id).is_live());
    match change {
        SlabChange::Create { version, payload, .. } if is_later_version(version, version_held) => {
            if let Some(id) = live {
                assert_eq!(mirror.put_newer(SlabId(slab), slot, version, hint), None);
                mirror.free(id);
            }
            let newer = mirror.put_newer(SlabId(slab), slot, version, hint);
            let put = newer.or_else(|| mirror.put(SlabId(slab), slot, version, hint));
            let id = put.expect("there is room");
            assert_eq!(*mirror.get(id), Flow { version, ..Flow::EMPTY });
            mirror.get_mut(id).payload = payload;
        }
        SlabChange::Delete { version, .. } if !is_later_version(version_held, version) => {
            live.into_iter().for_each(|id| mirror.free(id));
            mirror.bury(SlabId(slab), slot, version);
        }
        SlabChange::Create { version, .. } => {
            assert_eq!(mirror.put_newer(SlabId(slab), slot, version, hint), None);
        }
        SlabChange::Delete { .. } => {}
    }
}

fn records(slabs: &Slabs<Flow>, slab: u32) -> HashMap<u32, Flow> {
    let mut records = HashMap::new();
    slabs.walk_slab(SlabId(slab), 0, usize::MAX, |id, flow| {
        records.insert(slabs.slot_of(id), *flow);
    });
    records
}

/// Fills, empties and mixes the owner's slabs; returns the changes in order.
fn history(owner: &mut Slabs<Flow>, dice: &mut Dice, steps: usize) -> Vec<SlabChange> {
    let (mut changes, mut live) = (Vec::new(), Vec::<RecordId>::new());
    for step in 0..steps {
        let is_alloc = dice.below(8) < if step / 3000 % 2 == 0 { 6 } else { 2 };
        let slab = SlabId(dice.below(SLABS as usize) as u32);
        if let Some(id) = is_alloc.then(|| owner.alloc(slab)).flatten() {
            let payload = LIVE + step as u32;
            owner.get_mut(id).payload = payload;
            let (slot, version) = (owner.slot_of(id), owner.get(id).version());
            changes.push(SlabChange::Create { slab: slab.0, slot, version, payload });
            live.push(id);
        } else if !live.is_empty() {
            let id = live.swap_remove(dice.below(live.len()));
            let (slab, slot) = (owner.slab_of(id).0, owner.slot_of(id));
            changes.push(SlabChange::Delete { slab, slot, version: owner.get(id).version() });
            owner.free(id);
        }
    }
    changes
}

/// Moves changes about, but never past a change of the same slot.
fn shuffle(changes: &mut [SlabChange], dice: &mut Dice) {
    for _ in 0..changes.len() * 4 {
        let at = dice.below(changes.len() - 1);
        if changes[at].slab_and_slot() != changes[at + 1].slab_and_slot() {
            changes.swap(at, at + 1);
        }
    }
}

/// Many records in slots that are live and that were freed, inside the free lists and outside.
#[test]
fn mirror_equals_its_owner_and_continues_where_the_owner_ended() {
    for seed in 0..6 {
        let mut dice = Dice(seed << 32);
        let mut owner = Slabs::<Flow>::new(6000, SLABS as usize).unwrap();
        let mut mirror = Slabs::<Flow>::new(6000, SLABS as usize).unwrap();
        let mut changes = history(&mut owner, &mut dice, 15_000);
        shuffle(&mut changes, &mut dice);
        for &item in &changes {
            apply(&mut mirror, item);
            if dice.below(4) == 0 {
                apply(&mut mirror, item);
            }
        }
        for slab in 0..SLABS {
            assert_eq!(records(&mirror, slab), records(&owner, slab));
        }
        assert_eq!(mirror.live(), owner.live());
        goes_on(&mut mirror, &changes);
    }
}

/// The mirror allocates until it is full: no slot twice, each version later than any that the owner
/// assigned there.
fn goes_on(mirror: &mut Slabs<Flow>, changes: &[SlabChange]) {
    let mut last: HashMap<(u32, u32), u32> = HashMap::new();
    for item in changes {
        let (SlabChange::Create { version, .. } | SlabChange::Delete { version, .. }) = *item;
        let known = last.entry(item.slab_and_slot()).or_default();
        *known = (*known).max(version);
    }
    let mut taken: HashMap<(u32, u32), u32> = HashMap::new();
    for slab in 0..SLABS {
        let held = records(mirror, slab);
        taken.extend(held.iter().map(|(&slot, flow)| ((slab, slot), flow.version)));
        mirror.take_over(SlabId(slab));
    }
    let mut round = 0_u32;
    while let Some(id) = mirror.alloc(SlabId(round % SLABS)) {
        let (slab, slot) = (mirror.slab_of(id).0, mirror.slot_of(id));
        let version = mirror.get(id).version();
        assert!(version > last.get(&(slab, slot)).copied().unwrap_or(0) + 1000, "unreported too");
        assert_eq!(taken.insert((slab, slot), version), None, "the slot was free");
        mirror.get_mut(id).payload = LIVE + round;
        round += 1;
    }
    assert_eq!(mirror.live(), mirror.capacity());
    let mut seen = 0;
    mirror.walk(&mut Cursor::default(), usize::MAX, |id, slab, flow| {
        assert_eq!(taken.get(&(slab.0, mirror_slot(&taken, slab.0, flow))), Some(&flow.version));
        assert_ne!(id, RecordId::NONE);
        seen += 1;
    });
    assert_eq!(seen, mirror.capacity());
    // All records can be freed, and then one slab can use the whole arena.
    for slab in 0..SLABS {
        for &slot in records(mirror, slab).keys() {
            let id = mirror.id_of(SlabId(slab), slot).unwrap();
            mirror.free(id);
        }
    }
    assert_eq!(mirror.live(), 0);
    while let Some(id) = mirror.alloc(SlabId(1)) {
        mirror.get_mut(id).payload = LIVE;
    }
    assert_eq!(mirror.live(), mirror.capacity());
}

/// Returns some slot of the slab that holds this version; live records of a slab may share a
/// version.
fn mirror_slot(taken: &HashMap<(u32, u32), u32>, slab: u32, flow: &Flow) -> u32 {
    let found = taken
        .iter()
        .find(|(slab_and_slot, version)| slab_and_slot.0 == slab && **version == flow.version);
    found.expect("every live record has an entry in `taken`").0.1
}

/// Empty mirrored extents keep their versions until their room is needed, by any slab.
#[test]
fn empty_mirrored_extent_keeps_its_versions_until_it_is_needed() {
    let mut mirror = Slabs::<Flow>::new(2048, 1).unwrap();
    for position in 0..2 {
        let id = mirror.put(SlabId(0), position * 1024 + 7, 5, RecordId::NONE).unwrap();
        mirror.get_mut(id).payload = LIVE;
        mirror.free(id);
    }
    let version_at = |mirror: &Slabs<Flow>, slot| {
        mirror.id_of(SlabId(0), slot).map(|id| mirror.get(id).version())
    };
    assert_eq!((version_at(&mirror, 7), version_at(&mirror, 1031)), (Some(5), Some(5)));
    assert_eq!(version_at(&mirror, 6), Some(0), "nothing is known of a slot that was passed over");
    // The arena has two extents, both taken: another position needs one of them.
    assert_eq!(
        mirror.put(SlabId(0), 2 * 1024, 1, RecordId::NONE),
        None,
        "an arena of two has no third position"
    );
    mirror.take_over(SlabId(0));
    let id = mirror.alloc(SlabId(0)).unwrap();
    assert!(mirror.get(id).version() > 1000);
    assert_eq!(
        [7, 1031].iter().filter(|&&slot| version_at(&mirror, slot) == Some(5)).count(),
        1,
        "one was reclaimed"
    );
}

#[test]
fn forgotten_version_can_be_put_again() {
    let mut mirror = Slabs::<Flow>::new(1024, 1).unwrap();
    for _ in 0..3 {
        let id = mirror.put(SlabId(0), 9, 1, RecordId::NONE).unwrap();
        mirror.get_mut(id).payload = LIVE;
        mirror.forget(id);
        let id = mirror.id_of(SlabId(0), 9).unwrap();
        assert!(is_later_version(1, mirror.get(id).version()));
    }
    assert_eq!(mirror.live(), 0);
}

/// A slab is emptied and used for another lineage, whose versions are far behind.
#[test]
fn vacated_slab_accepts_any_version() {
    let mut mirror = Slabs::<Flow>::new(4096, 2).unwrap();
    let (slab, old, new) = (SlabId(0), 3_000_000_000, 7);
    for slot in [5, 6, 1024 + 5, 3 * 1024 + 5] {
        let id = mirror.put(slab, slot, old, RecordId::NONE).unwrap();
        mirror.get_mut(id).payload = LIVE;
        mirror.free(id);
    }
    mirror.bury(slab, 5, old + 1);
    assert!(!mirror.give_back(slab, 2), "a third extent is left");
    assert!(mirror.give_back(slab, 2));
    assert_eq!((mirror.id_of(slab, 5), mirror.floor(slab)), (None, old + 1));
    mirror.forget_versions(slab);
    assert_eq!(mirror.ceiling(slab, 0), 0);
    let id = mirror.put(slab, 5, new, RecordId::NONE).unwrap();
    mirror.get_mut(id).payload = LIVE;
    assert_eq!((mirror.floor(slab), mirror.ceiling(slab, 0)), (0, new));
    mirror.take_over(slab);
    let id = mirror.alloc(slab).unwrap();
    assert!(is_later_version(mirror.get(id).version(), new + 1000));
    // Any slab can use the extents that were given back.
    let taken = (0..3 * 1024).filter(|_| {
        let id = mirror.alloc(SlabId(1));
        id.is_some_and(|id| {
            mirror.get_mut(id).payload = LIVE;
            true
        })
    });
    assert_eq!(taken.count(), 3 * 1024);
}

#[test]
#[should_panic(expected = "is empty")]
fn an_extent_with_a_record_is_not_given_back() {
    let mut mirror = Slabs::<Flow>::new(1024, 1).unwrap();
    let id = mirror.put(SlabId(0), 9, 1, RecordId::NONE).unwrap();
    mirror.get_mut(id).payload = LIVE;
    mirror.give_back(SlabId(0), 1);
}

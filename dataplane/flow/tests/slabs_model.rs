//! Compares the slabs with a naive model: slots stay, versions only rise, extents are reused, walks
//! visit each live record.

use std::collections::{BTreeMap, HashMap};

use bolero::{TypeGenerator, check};
use weir_flow::{Cursor, HashKey, Record, RecordId, SlabId, Slabs};

/// The link shares its word with the payload, as in a packed record.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Flow {
    payload: u32,
    version: u32,
    is_live: bool,
}

impl Record for Flow {
    const EMPTY: Flow = Flow { payload: 0, version: 0, is_live: false };
    fn is_live(&self) -> bool {
        self.is_live
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

const SLABS: u32 = 3;
const RECORDS_MAX: usize = 4000;
/// 4,000 records fill four extents; each slab except one may leave one more extent partly unused.
const EXTENTS: usize = 6;

#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Step {
    /// Many at once: extents have 1,024 records.
    Alloc {
        slab: u8,
        #[generator(0..1500_u16)]
        count: u16,
    },
    Free {
        #[generator(0..1500_u16)]
        count: u16,
        draw: u16,
    },
    FreeSlab {
        slab: u8,
    },
    Walk {
        #[generator(1..3000_u16)]
        budget: u16,
    },
}

struct Model {
    slabs: Slabs<Flow>,
    /// Allocated records: id -> (slab, slot, version, payload).
    live: BTreeMap<u32, (u32, u32, u32, u32)>,
    /// The last version of each (slab, slot) that was ever used.
    versions: HashMap<(u32, u32), u32>,
    cursor: Cursor,
    payload: u32,
}

impl Model {
    fn new() -> Model {
        Model {
            slabs: Slabs::new(RECORDS_MAX, SLABS as usize).unwrap(),
            live: BTreeMap::new(),
            versions: HashMap::new(),
            cursor: Cursor::default(),
            payload: 0,
        }
    }

    /// Whether the slab has an extent with room or could get one.
    fn has_room(&self, slab: u32) -> bool {
        let mut extents = HashMap::new();
        for (id, flow) in &self.live {
            extents.entry(id / 1024).or_insert((flow.0, 0)).1 += 1;
        }
        extents.len() < EXTENTS || extents.values().any(|&(of, live)| of == slab && live < 1024)
    }

    fn alloc(&mut self, slab: u32) {
        let id = self.slabs.alloc(SlabId(slab));
        let Some(id) = id else {
            assert!(self.live.len() == RECORDS_MAX || !self.has_room(slab));
            return;
        };
        let version = self.slabs.get(id).version();
        assert_eq!(*self.slabs.get(id), Flow { version, ..Flow::EMPTY });
        let slot = self.slabs.slot_of(id);
        assert!(slot < EXTENTS as u32 * 1024, "slots stay dense");
        let last = self.versions.insert((slab, slot), version);
        assert!(version > last.unwrap_or(0), "version {version} after {last:?}");
        self.payload += 1;
        let flow = self.slabs.get_mut(id);
        flow.is_live = true;
        flow.payload = self.payload;
        let is_used = self.live.insert(id.0, (slab, slot, version, self.payload));
        assert_eq!(is_used, None, "{id} was given out twice");
    }

    fn free(&mut self, id: u32) {
        let (slab, slot, ..) = self.live.remove(&id).unwrap();
        self.slabs.free(RecordId(id));
        assert!(!self.slabs.get(RecordId(id)).is_live());
        if let Some(found) = self.slabs.id_of(SlabId(slab), slot) {
            assert_eq!(found, RecordId(id));
        }
    }

    fn ids_of(&self, slab: u32) -> Vec<u32> {
        let of_slab = self.live.iter().filter(|(_, flow)| flow.0 == slab);
        of_slab.map(|(&id, _)| id).collect()
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Alloc { slab, count } => {
                (0..count).for_each(|_| self.alloc(u32::from(slab) % SLABS));
            }
            Step::Free { count, draw } => {
                for number in 0..u32::from(count) {
                    let from = (u32::from(draw) + number * 2917) % (EXTENTS as u32 * 1024);
                    let at_or_after = self.live.range(from..).next();
                    let Some((&id, _)) = at_or_after.or(self.live.iter().next()) else {
                        return;
                    };
                    self.free(id);
                }
            }
            Step::FreeSlab { slab } => {
                for id in self.ids_of(u32::from(slab) % SLABS) {
                    self.free(id);
                }
            }
            Step::Walk { budget } => self.walk(budget.into()),
        }
        assert_eq!(self.slabs.live(), self.live.len());
    }

    /// A lap of budgeted walks visits each live record once, in order; no walk visits more than its
    /// budget.
    fn walk(&mut self, budget: usize) {
        while !self.slabs.walk(&mut self.cursor, budget, |_, _, _| {}) {}
        self.cursor = Cursor::default();
        let mut seen = Vec::new();
        loop {
            let before = seen.len();
            let has_wrapped = self.slabs.walk(&mut self.cursor, budget, |id, _, _| seen.push(id.0));
            assert!(seen.len() - before <= budget);
            if has_wrapped {
                break;
            }
        }
        // The last walk may have continued into the next lap.
        let all: Vec<u32> = self.live.keys().copied().collect();
        assert_eq!(seen[..all.len()], all);
        assert!(seen[all.len()..].iter().zip(&all).all(|(a, b)| a == b));
    }

    fn check(&mut self) {
        for (&id, &(slab, slot, version, payload)) in &self.live {
            let id = RecordId(id);
            assert_eq!(self.slabs.slab_of(id), SlabId(slab));
            assert_eq!(self.slabs.slot_of(id), slot);
            assert_eq!(self.slabs.id_of(SlabId(slab), slot), Some(id));
            let is_live = true;
            assert_eq!(*self.slabs.get(id), Flow { payload, version, is_live });
        }
        for slab in 0..SLABS {
            self.check_slab(slab);
        }
        // A budget for everything visits everything once, wherever the cursor is.
        let mut seen = 0;
        self.slabs.walk(&mut self.cursor, usize::MAX, |_, _, _| seen += 1);
        assert_eq!(seen, self.live.len());
    }

    /// A dump of a slab in pages visits its live records in slot order.
    fn check_slab(&self, slab: u32) {
        let mut seen = Vec::new();
        let mut from = Some(0);
        while let Some(slot) = from {
            let before = seen.len();
            from = self.slabs.walk_slab(SlabId(slab), slot, 100, |id, flow| {
                assert!(flow.is_live);
                seen.push(self.slabs.slot_of(id));
            });
            assert!(seen.len() - before <= 100);
            assert!(from.is_none_or(|next| next > slot));
        }
        let mut slots: Vec<u32> = self.ids_of(slab).iter().map(|id| self.live[id].1).collect();
        slots.sort_unstable();
        assert_eq!(seen, slots);
    }
}

fn run(steps: &[Step]) {
    let mut model = Model::new();
    for &step in steps {
        model.step(step);
    }
    model.check();
    // All records are freed; then any slab can use the arena again.
    for slab in 0..SLABS {
        model.step(Step::FreeSlab { slab: slab as u8 });
    }
    (0..RECORDS_MAX).for_each(|_| model.alloc(SLABS - 1));
    model.check();
}

#[test]
fn slabs_agree_with_a_naive_model() {
    check!().with_type::<Vec<Step>>().for_each(|steps| run(&steps[..steps.len().min(12)]));
}

#[test]
fn slabs_agree_with_a_naive_model_over_long_runs() {
    let key = HashKey::new([5, 6]);
    for seed in 0..8 {
        let steps: Vec<Step> = (0..60)
            .map(|number| {
                let draw = key.hash([seed, number, 0]).0;
                let (count, slab) = ((draw % 1500) as u16, (draw >> 24) as u8);
                match draw >> 32 & 15 {
                    0..7 => Step::Alloc { slab, count },
                    7..13 => Step::Free { count, draw: (draw >> 40) as u16 },
                    13 => Step::FreeSlab { slab },
                    _ => Step::Walk { budget: count.max(1) },
                }
            })
            .collect();
        run(&steps);
    }
}

/// However few records are requested, each slab can have some.
#[test]
fn few_records_suffice_for_many_slabs() {
    let mut slabs = Slabs::<Flow>::new(16, 16).unwrap();
    for slab in 0..16 {
        assert!(slabs.alloc(SlabId(slab)).is_some());
    }
    assert_eq!(slabs.alloc(SlabId(0)), None);
    assert_eq!((slabs.live(), slabs.capacity()), (16, 16));
}

/// A free extent costs one slot of the budget, as does the unused rest of one.
#[test]
fn free_extent_costs_a_walk_one_slot_of_its_budget() {
    let mut slabs = Slabs::<Flow>::new(RECORDS_MAX, SLABS as usize).unwrap();
    let mut cursor = Cursor::default();
    let walks: Vec<bool> = (0..6).map(|_| slabs.walk(&mut cursor, 2, |_, _, _| {})).collect();
    assert_eq!(walks, [false, false, true, false, false, true]);
}

/// A slab whose extent at a position changes keeps its versions rising.
#[test]
fn versions_survive_the_return_of_an_extent() {
    let mut slabs = Slabs::<Flow>::new(2048, 2).unwrap();
    let mut last = 0;
    for round in 0..10 {
        // In every other round the other slab takes an extent first, so that this slab gets
        // different ones.
        let other = (round % 2 == 0).then(|| slabs.alloc(SlabId(1)).unwrap());
        let id = slabs.alloc(SlabId(0)).unwrap();
        assert_eq!(slabs.slot_of(id), 0);
        let version = slabs.get(id).version();
        assert!(version > last);
        last = version;
        slabs.free(id);
        assert_eq!(slabs.id_of(SlabId(0), 0), None, "the extent went back");
        other.into_iter().for_each(|id| slabs.free(id));
    }
}

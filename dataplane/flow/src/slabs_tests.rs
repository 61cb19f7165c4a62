//! Versions and numbers of records, and the record that is prefetched.

use super::*;

#[derive(Clone, Copy, Debug)]
struct Flow {
    version: u32,
    link: u32,
}

impl Record for Flow {
    const EMPTY: Flow = Flow { version: 0, link: 0 };
    fn is_live(&self) -> bool {
        false
    }
    fn version(&self) -> u32 {
        self.version
    }
    fn set_version(&mut self, version: u32) {
        self.version = version;
    }
    fn next_free(&self) -> u32 {
        self.link
    }
    fn set_next_free(&mut self, next: u32) {
        self.link = next;
    }
}

/// The wrap skips 0, while an extent is attached and when it is attached again.
#[test]
fn versions_wrap_and_skip_0() {
    let mut slabs = Slabs::<Flow>::new(10, 1).unwrap();
    slabs.slabs[0].floor_version = u32::MAX - 3;
    let slab = SlabId(0);
    let keeper = slabs.alloc(slab).unwrap();
    assert_eq!(slabs.get(keeper).version(), u32::MAX - 2);
    for expected in [u32::MAX - 2, u32::MAX - 1, u32::MAX, 1, 2] {
        let id = slabs.alloc(slab).unwrap();
        assert_eq!(slabs.get(id).version(), expected);
        slabs.free(id);
    }
    slabs.free(keeper);
    let id = slabs.alloc(slab).unwrap();
    assert_eq!(slabs.get(id).version(), 3);
}

#[test]
fn the_record_that_is_prefetched_is_the_one_that_is_allocated_next() {
    let mut slabs = Slabs::<Flow>::new(8 * RECORDS as usize, 2).unwrap();
    let (mut held, mut random) = (Vec::new(), 1_u64);
    for round in 0..40_000 {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        let is_filling = round / 8000 % 2 == 0;
        if (random >> 60 < 10) == is_filling || held.is_empty() {
            let slab = SlabId((random >> 40) as u32 % 2);
            let Slab { next, room_head, .. } = slabs.slabs[slab.0 as usize];
            let Some(id) = slabs.alloc(slab) else { continue };
            assert!(next == id.0 || room_head == NONE, "round {round}");
            held.push(id);
        } else {
            slabs.free(held.swap_remove((random >> 32) as usize % held.len()));
        }
        if round % 8000 == 0 {
            slabs.take_over(SlabId(1));
        }
    }
}

#[test]
fn too_many_records_to_number_are_refused() {
    let error = Slabs::<Flow>::new(u32::MAX as usize, 1).unwrap_err();
    assert!(error.bytes >= u32::MAX as usize * size_of::<Flow>());
    assert!(Slabs::<Flow>::new(usize::MAX, usize::MAX).is_err());
}

#[test]
#[should_panic(expected = "freed twice")]
fn freeing_the_last_record_twice_panics() {
    let mut slabs = Slabs::<Flow>::new(10, 1).unwrap();
    let id = slabs.alloc(SlabId(0)).unwrap();
    slabs.free(id);
    slabs.free(id);
}

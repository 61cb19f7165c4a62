//! Makes room in a full bucket: moves an entry that is in its alternate bucket there back to its
//! primary bucket; otherwise does a breadth-first search for the shortest chain of entries that can
//! each move to their other bucket, the last of them to a free slot.
//!
//! Breadth first keeps chains short (Li, Andersen, Kaminsky, Freedman, EuroSys 2014, section
//! 4.3.2), and no chain visits a bucket twice: its first visit would have led to the end sooner. No
//! entry is moved before the end of a chain is known, so a failed search changes nothing.

use crate::bucket::{Bucket, BucketEntry, SLOTS};
use crate::index::Geometry;
use crate::prefetch::prefetch;

/// Number of buckets searched before giving up: the two of the new entry, those to which their
/// entries lead, and as many of the next generation as fit. Below a load of 0.9 a search of more
/// than a dozen does not happen with random hashes.
const SEARCHED_MAX: usize = 256;

/// Number of buckets that are prefetched before the first is read. Eight are no faster.
const ENDS_AHEAD: usize = 4;

/// Frees a slot of a full bucket: moves an entry that is in its alternate bucket here back to its
/// primary bucket, if that has room again. Without this, turnover at a load of 0.9 drives every
/// third entry from its primary bucket; with it, every fifth.
#[inline(never)]
pub(crate) fn send_home(
    buckets: &mut [Bucket],
    geometry: Geometry,
    bucket: usize,
) -> Option<usize> {
    for slot in buckets[bucket].all_away() {
        let entry = buckets[bucket].entry(slot);
        let home = geometry.other(bucket, entry.tag);
        if let Some(free) = buckets[home].free_slot() {
            move_entry(buckets, (bucket, slot), (home, free));
            return Some(slot);
        }
    }
    None
}

/// Frees a slot in one of the two `roots`, which are full. Returns (bucket, slot).
#[inline(never)]
pub(crate) fn make_room(
    buckets: &mut [Bucket],
    geometry: Geometry,
    roots: [usize; 2],
) -> Option<(usize, usize)> {
    // Nearly always one move is enough; its end is in no cache.
    for root in roots {
        for (_, next) in movable(buckets[root], root, geometry).take(ENDS_AHEAD) {
            prefetch(buckets, next);
        }
        let mut ends = movable(buckets[root], root, geometry);
        let end = ends.find_map(|(slot, next)| Some((slot, next, buckets[next].free_slot()?)));
        if let Some((slot, next, free)) = end {
            move_entry(buckets, (root, slot), (next, free));
            return Some((root, slot));
        }
    }
    search(buckets, geometry, roots)
}

/// Returns the slots of a full bucket whose entries may move, and the buckets to which they would
/// move.
#[inline(always)]
fn movable(
    bucket: Bucket,
    number: usize,
    geometry: Geometry,
) -> impl Iterator<Item = (usize, usize)> {
    (0..SLOTS).filter_map(move |slot| {
        let entry = bucket.entry(slot);
        let may_move = entry.is_away || bucket.can_overflow(entry.tag);
        may_move.then(|| (slot, geometry.other(number, entry.tag)))
    })
}

/// A bucket that the search reached, and the entry that would move into it.
#[derive(Clone, Copy)]
struct SearchNode {
    bucket: u32,
    /// Position in the queue of the bucket from which it was reached; its own position for the
    /// first two.
    parent: u16,
    /// Slot of the entry that would move here, in the parent's bucket.
    slot: u8,
}

/// Does what [`make_room`] does with a chain of any length.
#[cold]
fn search(buckets: &mut [Bucket], geometry: Geometry, roots: [usize; 2]) -> Option<(usize, usize)> {
    let mut queue = [SearchNode { bucket: 0, parent: 0, slot: 0 }; SEARCHED_MAX];
    for (position, &root) in roots.iter().enumerate() {
        queue[position].bucket = root as u32;
        queue[position].parent = position as u16;
    }
    let mut len = roots.len();
    let mut position = 0;
    while position < len {
        let number = queue[position].bucket as usize;
        for (slot, next) in movable(buckets[number], number, geometry) {
            if len == SEARCHED_MAX {
                return None;
            }
            queue[len] =
                SearchNode { bucket: next as u32, parent: position as u16, slot: slot as u8 };
            if let Some(free) = buckets[next].free_slot() {
                return Some(shift(buckets, &queue, len, free));
            }
            len += 1;
        }
        position += 1;
    }
    None
}

/// Moves the entries of the chain that ends at `position`, the last one first, and returns the slot
/// that became free, as (bucket, slot).
fn shift(
    buckets: &mut [Bucket],
    queue: &[SearchNode],
    mut position: usize,
    mut free: usize,
) -> (usize, usize) {
    while queue[position].parent as usize != position {
        let node = queue[position];
        let from = queue[node.parent as usize].bucket as usize;
        let slot = node.slot as usize;
        move_entry(buckets, (from, slot), (node.bucket as usize, free));
        free = slot;
        position = node.parent as usize;
    }
    (queue[position].bucket as usize, free)
}

/// Moves an entry to a free slot of its other bucket. `from` and `to` are (bucket, slot).
fn move_entry(buckets: &mut [Bucket], from: (usize, usize), to: (usize, usize)) {
    let entry = buckets[from.0].entry(from.1);
    buckets[from.0].clear(from.1);
    let is_away = !entry.is_away;
    buckets[to.0].put(to.1, BucketEntry { is_away, ..entry });
    if is_away {
        buckets[from.0].count_out(entry.tag);
    } else {
        buckets[to.0].count_in(entry.tag);
    }
}

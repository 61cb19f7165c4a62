//! Hot. Searches in a bitmap that go round.

use super::WORD_BITS;

/// Returns the position of the first set bit at or after `start`, going round. `view` turns a word
/// of the bitmap into the one to search in.
#[inline(always)]
pub(super) fn first_set_from(bitmap: &[u64], start: u32, view: impl Fn(u64) -> u64) -> Option<u32> {
    let first = (start / WORD_BITS) as usize;
    let from_start = u64::MAX << (start % WORD_BITS);
    match view(bitmap[first]) & from_start {
        0 => first_set_behind(bitmap, first, !from_start, view),
        word => Some(first as u32 * WORD_BITS + word.trailing_zeros()),
    }
}

/// Takes the first free port of a space of so many ports, round from `start` on, whose word has
/// none from there on; returns its offset.
#[cold]
#[inline(never)]
pub(super) fn take_behind(space: &mut [u64], ports: u32, start: u32) -> Option<u32> {
    let space = &mut space[..(ports / WORD_BITS) as usize];
    let offset = first_set_from(space, start, |word| !word)?;
    space[(offset / WORD_BITS) as usize] |= 1 << (offset % WORD_BITS);
    Some(offset)
}

/// Continues [`first_set_from`] when word `first` has no bit set from the start on; `below_start`
/// masks its other bits.
#[inline(never)]
fn first_set_behind(
    bitmap: &[u64],
    first: usize,
    below_start: u64,
    view: impl Fn(u64) -> u64,
) -> Option<u32> {
    let others = (first + 1..bitmap.len()).chain(0..first).map(|index| (index, u64::MAX));
    others.chain([(first, below_start)]).find_map(|(index, mask)| {
        let word = view(bitmap[index]) & mask;
        (word != 0).then(|| index as u32 * WORD_BITS + word.trailing_zeros())
    })
}

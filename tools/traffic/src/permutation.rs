//! The order in which flows are visited.
//!
//! A table filled and then visited in the same order would let the hardware prefetch the device's
//! records, which no real traffic allows: flows are created in one order and flooded in another.

/// Returns `0..len` in an order drawn from `seed`; the same seed gives the same order. `len` must
/// be below 2^32.
pub fn shuffled(len: u32, seed: u64) -> Vec<u32> {
    let mut order: Vec<u32> = (0..len).collect();
    let mut state = seed;
    // Fisher-Yates from the end.
    for last in (1..order.len()).rev() {
        let chosen = (u128::from(next(&mut state)) * (last as u128 + 1)) >> 64;
        order.swap(last, chosen as usize);
    }
    order
}

/// Returns `0..total` in pieces of `piece`, each shuffled separately: flows created in a piece are
/// also visited in it. The last piece may be shorter.
pub fn shuffled_in_pieces(total: u32, piece: u32, seed: u64) -> Vec<u32> {
    let mut order = Vec::with_capacity(total as usize);
    let mut start = 0;
    while start < total {
        let len = piece.clamp(1, total - start);
        let piece = shuffled(len, seed.wrapping_add(u64::from(start)));
        order.extend(piece.into_iter().map(|index| start + index));
        start += len;
    }
    order
}

/// SplitMix64 (Steele, Lea, Flood 2014): accepts any seed and returns 64 random bits a call, which
/// is all that a shuffle needs.
#[inline]
pub fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flow_is_visited_once() {
        for len in [0, 1, 2, 3, 1000, 10_007] {
            let mut order = shuffled(len, 7);
            order.sort_unstable();
            assert!(order.into_iter().eq(0..len));
        }
    }

    #[test]
    fn pieces_stay_together() {
        let order = shuffled_in_pieces(25, 10, 7);
        for (range, piece) in
            [(0..10, &order[..10]), (10..20, &order[10..20]), (20..25, &order[20..])]
        {
            let mut piece = piece.to_vec();
            piece.sort_unstable();
            assert!(piece.into_iter().eq(range));
        }
        assert_eq!(shuffled_in_pieces(10, 10, 7), shuffled(10, 7));
    }

    #[test]
    fn neighbours_in_creation_do_not_stay_neighbours() {
        let order = shuffled(10_000, 1);
        let close = order.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) < 10).count();
        assert!(close < 100, "{close} of 9999 steps are short");
    }

    #[test]
    fn a_seed_repeats_its_order() {
        assert_eq!(shuffled(1000, 3), shuffled(1000, 3));
        assert_ne!(shuffled(1000, 3), shuffled(1000, 4));
    }
}

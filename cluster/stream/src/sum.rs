//! A sum over records that does not depend on their order: what the scrub compares.

/// Adds up live records. It detects accidental differences, not malicious ones: streams are
/// authenticated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum(u64);

const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;

impl Sum {
    /// Adds a live record. The body is what both ends keep equal, in any encoding they share.
    #[inline]
    pub fn add(&mut self, slot: u32, version: u32, body: &[u8]) {
        let mut hash = fold(u64::from(slot) << 32 | u64::from(version), body.len() as u64);
        for chunk in body.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            hash = fold(hash, u64::from_le_bytes(word));
        }
        self.0 = self.0.wrapping_add(hash);
    }

    /// Returns the sum so far; 0 of no records.
    pub fn value(self) -> u64 {
        self.0
    }
}

#[inline]
fn fold(hash: u64, word: u64) -> u64 {
    let product = u128::from(hash ^ FACTOR) * u128::from(word ^ FACTOR.rotate_left(32));
    (product as u64) ^ ((product >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(records: &[(u32, u32, &[u8])]) -> u64 {
        let mut sum = Sum::default();
        for (slot, version, body) in records {
            sum.add(*slot, *version, body);
        }
        sum.value()
    }

    #[test]
    fn a_sum_ignores_record_order_and_nothing_else() {
        let base = sum(&[(1, 1, b"ab"), (2, 1, b"cd")]);
        assert_eq!(base, sum(&[(2, 1, b"cd"), (1, 1, b"ab")]));
        let others: [&[(u32, u32, &[u8])]; 5] = [
            &[(1, 1, b"ab")],
            &[(1, 1, b"cd"), (2, 1, b"ab")],
            &[(1, 2, b"ab"), (2, 1, b"cd")],
            &[(1, 1, b"ab\0"), (2, 1, b"cd")],
            &[(1, 1, b"ab"), (2, 1, b"cd"), (3, 1, b"")],
        ];
        for other in others {
            assert_ne!(base, sum(other));
        }
    }
}

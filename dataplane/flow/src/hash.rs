//! Hot: the keyed hash of a flow key of two, three or five words.
//!
//! Each step multiplies 64 x 64 -> 128 bits and combines the halves by exclusive or, the
//! construction of wyhash and foldhash. Unlike a seeded CRC it is not linear: without the key no
//! attacker can construct packets that share a bucket.

use std::hash::{BuildHasher, Hasher};

/// The hash of a key. The index takes the bucket from the upper half and the tag from the lowest 16
/// bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hash(pub u64);

/// The secret key of one table's hash.
#[derive(Clone)]
pub struct HashKey {
    words: [u64; 4],
}

impl HashKey {
    /// Expands 128 bits of entropy to the four words that are mixed in.
    pub const fn new(seed: [u64; 2]) -> HashKey {
        HashKey {
            words: [
                expand(seed[0], 1),
                expand(seed[1], 2),
                expand(seed[0] ^ seed[1].rotate_left(32), 3),
                expand(seed[1] ^ seed[0].rotate_left(17), 4),
            ],
        }
    }

    /// Hashes three words; every output bit depends on every input bit.
    #[inline(always)]
    pub const fn hash(&self, words: [u64; 3]) -> Hash {
        let [a, b, c, d] = self.words;
        let first = fold(words[0] ^ a, words[1] ^ b);
        let second = fold(words[2] ^ c, first ^ d);
        Hash(fold(second ^ a, first ^ c))
    }

    /// Hashes five words.
    #[inline(always)]
    pub const fn hash5(&self, words: [u64; 5]) -> Hash {
        let [a, b, c, d] = self.words;
        let first = fold(words[0] ^ a, words[1] ^ b);
        let second = fold(words[2] ^ c, words[3] ^ d);
        let third = fold(words[4] ^ first ^ b, second ^ c);
        Hash(fold(third ^ d, first ^ a))
    }

    /// Hashes two words with a product less than [`hash`](Self::hash); the results of the two
    /// functions have nothing to do with each other.
    #[inline(always)]
    pub const fn hash2(&self, words: [u64; 2]) -> Hash {
        let [a, b, c, d] = self.words;
        let first = fold(words[0] ^ a, words[1] ^ b);
        Hash(fold(first ^ c, d))
    }
}

/// Lets maps of the standard library use the hash. A key that writes three words with `write_u64`
/// costs three products.
impl BuildHasher for HashKey {
    type Hasher = WordHasher;

    #[inline]
    fn build_hasher(&self) -> WordHasher {
        WordHasher { key: self.clone(), words: [0; 3], count: 0 }
    }
}

/// Takes a key word by word.
#[derive(Clone, Debug)]
pub struct WordHasher {
    key: HashKey,
    words: [u64; 3],
    /// Number of words that were written and not hashed yet.
    count: usize,
}

impl Hasher for WordHasher {
    #[inline]
    fn write_u64(&mut self, word: u64) {
        if self.count == self.words.len() {
            self.words = [self.key.hash(self.words).0, 0, 0];
            self.count = 1;
        }
        self.words[self.count] = word;
        self.count += 1;
    }

    /// Writes the bytes in words of eight, then their number.
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
        self.write_u64(bytes.len() as u64);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.key.hash(self.words).0
    }
}

/// Keeps the key out of logs.
impl std::fmt::Debug for HashKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HashKey(..)")
    }
}

#[inline]
const fn fold(a: u64, b: u64) -> u64 {
    let product = (a as u128) * (b as u128);
    (product as u64) ^ ((product >> 64) as u64)
}

/// SplitMix64 (Steele, Lea, Flood 2014): equal or zero seeds still give different, well mixed
/// words.
const fn expand(seed: u64, step: u64) -> u64 {
    let mut z = seed.wrapping_add(step.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

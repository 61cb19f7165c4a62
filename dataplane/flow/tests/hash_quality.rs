//! The hash spreads keys that differ little, and depends on its key.

use weir_flow::{HashKey, Index};

fn keys() -> impl Iterator<Item = HashKey> {
    [[0, 0], [0, 1], [1, 0], [u64::MAX, u64::MAX], [0x0123, 0x4567]].into_iter().map(HashKey::new)
}

/// Flipping any input bit flips each output bit in about half of all cases.
#[test]
fn every_output_bit_depends_on_every_input_bit() {
    const SAMPLES: u64 = 1000;
    for key in keys() {
        for flipped in 0..192 {
            let mut flips = [0_u64; 64];
            for sample in 0..SAMPLES {
                // Addresses and ports as they occur: small numbers in each word.
                let words = [sample, 0x0A00_0000 + sample * 7, 0x6440_0001];
                let mut other = words;
                other[flipped / 64] ^= 1 << (flipped % 64);
                let change = key.hash(words).0 ^ key.hash(other).0;
                for (bit, flips) in flips.iter_mut().enumerate() {
                    *flips += change >> bit & 1;
                }
            }
            for (bit, flips) in flips.into_iter().enumerate() {
                // Six standard deviations of a fair coin are 95 of 1,000.
                assert!(
                    (380..620).contains(&flips),
                    "input bit {flipped}, output bit {bit}: {flips} of {SAMPLES}"
                );
            }
        }
    }
}

/// As above, for keys of two words.
#[test]
fn every_output_bit_of_two_words_depends_on_every_input_bit() {
    const SAMPLES: u64 = 1000;
    for key in keys() {
        for flipped in 0..128 {
            let mut flips = [0_u64; 64];
            for sample in 0..SAMPLES {
                let words = [sample, 0x0A00_0000 + sample * 7];
                let mut other = words;
                other[flipped / 64] ^= 1 << (flipped % 64);
                let change = key.hash2(words).0 ^ key.hash2(other).0;
                for (bit, flips) in flips.iter_mut().enumerate() {
                    *flips += change >> bit & 1;
                }
            }
            for (bit, flips) in flips.into_iter().enumerate() {
                assert!(
                    (380..620).contains(&flips),
                    "input bit {flipped}, output bit {bit}: {flips} of {SAMPLES}"
                );
            }
        }
    }
}

/// Sequential ports, sequential addresses, and both: an index fills to its promised load.
#[test]
fn sequential_keys_fill_an_index() {
    let patterns: [fn(u64) -> [u64; 3]; 4] = [
        |number| [number, 0, 0],
        |number| [0, number << 32, 0],
        |number| [0, 0, number << 40 | number >> 8],
        |number| [number & 0xFF, number >> 8, number << 20],
    ];
    for key in keys() {
        for pattern in patterns {
            let mut indexes = [Index::new(50_000).unwrap(), Index::new(50_000).unwrap()];
            for number in 0..50_000 {
                let [a, b, c] = pattern(number);
                let hashes = [key.hash([a, b, c]), key.hash2([a ^ c, b])];
                for (index, hash) in indexes.iter_mut().zip(hashes) {
                    assert_eq!(index.insert(hash, number as u32), Ok(()));
                }
            }
        }
    }
}

/// The tags come from the lowest 16 bits: sequential keys use them evenly (chi-squared over 256
/// classes).
#[test]
fn low_bits_of_the_hash_are_evenly_distributed() {
    for key in keys() {
        let mut counts = [0_u32; 256];
        for number in 0..256_000 {
            counts[(key.hash([0, number, 0]).0 & 0xFF) as usize] += 1;
        }
        let square = |count: &u32| (f64::from(*count) - 1000.0).powi(2) / 1000.0;
        let chi: f64 = counts.iter().map(square).sum();
        // Mean 255, standard deviation 22.6.
        assert!((120.0..390.0).contains(&chi), "chi-squared {chi}");
    }
}

#[test]
fn another_key_gives_another_hash() {
    let (a, b) = (HashKey::new([1, 2]), HashKey::new([1, 3]));
    assert_ne!(a.hash([1, 2, 3]), b.hash([1, 2, 3]));
    assert_ne!(a.hash([1, 2, 3]), a.hash([2, 1, 3]));
    assert_eq!(a.hash([1, 2, 3]), a.clone().hash([1, 2, 3]));
    assert_eq!(format!("{a:?}"), "HashKey(..)");
}

/// Writes words one by one, as maps of the standard library do.
#[test]
fn words_that_are_written_one_by_one_are_all_hashed() {
    use std::hash::{BuildHasher, Hasher};
    let key = HashKey::new([1, 2]);
    let hash = |words: &[u64]| {
        let mut hasher = key.build_hasher();
        words.iter().for_each(|&word| hasher.write_u64(word));
        hasher.finish()
    };
    assert_eq!(hash(&[7, 8, 9]), key.hash([7, 8, 9]).0);
    let words: Vec<u64> = (1..=8).collect();
    for changed in 0..words.len() {
        let mut other = words.clone();
        other[changed] ^= 1;
        assert_ne!(hash(&words), hash(&other), "word {changed}");
    }
    let of_bytes = |bytes: &[u8]| key.hash_one(bytes);
    assert_ne!(of_bytes(b"12345678"), of_bytes(b"12345678\0"));
    assert_ne!(of_bytes(b"123456789"), of_bytes(b"12345678a"));
    assert_ne!(hash(&words), HashKey::new([1, 3]).hash_one(&words), "another key");
}

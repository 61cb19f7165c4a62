//! The machine's own memory speed at the footprint of a table: an upper bound for every table.

use std::hint::black_box;
use std::time::{Duration, Instant};

use weir_flow::{OutOfMemory, Region};

use crate::population::BATCH;

#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Line([u64; 8]);

/// An array of cache lines.
#[derive(Debug)]
pub struct Lines {
    lines: Region<Line>,
    random: u64,
    indexes: Vec<u32>,
}

impl Lines {
    /// Makes an array of about `bytes`.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn new(bytes: usize) -> Result<Lines, OutOfMemory> {
        let lines = Region::new((bytes / size_of::<Line>()).max(1), Line([1; 8]))?;
        Ok(Lines { lines, random: 1, indexes: Vec::with_capacity(BATCH) })
    }

    /// Reads `batches` batches of random lines of the first `bytes`, in bursts: prefetches a burst,
    /// then reads it. Returns the time and the number of lines.
    pub fn read_random(&mut self, bytes: usize, burst: usize, batches: usize) -> (Duration, usize) {
        let lines = (bytes / size_of::<Line>()).clamp(1, self.lines.len()) as u64;
        let mut time = Duration::ZERO;
        for _ in 0..batches {
            self.indexes.clear();
            for _ in 0..BATCH {
                self.random = self
                    .random
                    .wrapping_mul(0x5851_F42D_4C95_7F2D)
                    .wrapping_add(0x1405_7B7E_F767_814F);
                self.indexes.push((((self.random >> 32) * lines) >> 32) as u32);
            }
            let start = Instant::now();
            let mut sum = 0;
            for indexes in self.indexes.chunks(burst) {
                for &index in indexes {
                    self.lines.prefetch(index as usize);
                }
                for &index in indexes {
                    sum += self.lines[index as usize].0[0];
                }
            }
            black_box(sum);
            time += start.elapsed();
        }
        (time, batches * BATCH)
    }

    /// Reads the first `bytes` in order, every word of each line. Returns the time and the number
    /// of lines.
    pub fn read_in_order(&self, bytes: usize) -> (Duration, usize) {
        let lines = &self.lines[..(bytes / size_of::<Line>()).clamp(1, self.lines.len())];
        let start = Instant::now();
        let mut sums = [0_u64; 8];
        for line in lines {
            for (sum, word) in sums.iter_mut().zip(line.0) {
                *sum = sum.wrapping_add(word);
            }
        }
        black_box(sums);
        (start.elapsed(), lines.len())
    }
}

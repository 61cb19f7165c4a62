//! The timed operations of each table, one batch at a time.

use std::fmt;
use std::time::{Duration, Instant};

use crate::flow::FlowKey;
use crate::population::{BATCH, Population};

/// A table under test.
pub trait Table {
    /// Looks the keys up in bursts. Returns how many are present.
    fn find(&mut self, keys: &[FlowKey], burst: usize) -> usize;

    /// Looks each key up, as a NAT does, then inserts it, as it is absent. `numbers` holds the
    /// keys' flow numbers.
    fn insert(&mut self, keys: &[FlowKey], numbers: &[u32], burst: usize);

    /// Removes keys that are present.
    fn remove(&mut self, keys: &[FlowKey], burst: usize);

    /// Visits all records and removes those of a residue class, whose flow numbers are appended to
    /// `ended`. Returns false if the table keeps no records.
    fn sweep(&mut self, class: u32, ended: &mut Vec<u32>) -> bool;

    /// Visits all records and returns the sum of their flow numbers. None if the table keeps no
    /// records.
    fn walk(&mut self) -> Option<u64>;

    /// Returns the bytes of memory, as far as the table's library reports them or its layout is
    /// known.
    fn bytes(&self) -> usize;

    /// Returns entries divided by slots.
    fn load(&self, entries: usize) -> f64;
}

/// A timed operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Hit,
    Miss,
    Insert,
    Delete,
    Sweep,
    Walk,
}

impl Operation {
    pub const ALL: [Operation; 6] = [
        Operation::Hit,
        Operation::Miss,
        Operation::Insert,
        Operation::Delete,
        Operation::Sweep,
        Operation::Walk,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Operation::Hit => "hit",
            Operation::Miss => "miss",
            Operation::Insert => "insert",
            Operation::Delete => "delete",
            Operation::Sweep => "sweep",
            Operation::Walk => "walk",
        }
    }
}

/// A table, its flows and its next keys.
pub struct Subject {
    pub name: &'static str,
    pub table: Box<dyn Table>,
    population: Population,
    burst: usize,
    keys: Vec<FlowKey>,
    new_keys: Vec<FlowKey>,
    numbers: Vec<u32>,
    next_class: u32,
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Subject {
    /// Fills an empty table with a population.
    pub fn new(
        name: &'static str,
        mut table: Box<dyn Table>,
        population: Population,
        burst: usize,
    ) -> Subject {
        let mut keys = Vec::with_capacity(BATCH);
        let mut numbers = Vec::with_capacity(BATCH);
        for first in (0..population.len() as u32).step_by(BATCH) {
            numbers.clear();
            numbers.extend(first..(first + BATCH as u32).min(population.len() as u32));
            keys.clear();
            keys.extend(numbers.iter().map(|&number| FlowKey::of(number)));
            table.insert(&keys, &numbers, burst);
        }
        Subject {
            name,
            table,
            population,
            burst,
            keys,
            new_keys: Vec::with_capacity(BATCH),
            numbers,
            next_class: 0,
        }
    }

    /// Times `batches` batches; a sweep or a walk counts as one batch and covers the whole table.
    /// Returns the time and the amount of work: keys, or records visited. None if the table does
    /// not support the operation.
    ///
    /// # Panics
    /// If the table does not find what it should.
    pub fn run(&mut self, operation: Operation, batches: usize) -> Option<(Duration, usize)> {
        let mut time = Duration::ZERO;
        match operation {
            Operation::Hit | Operation::Miss => {
                for _ in 0..batches {
                    time += self.find(operation == Operation::Hit);
                }
            }
            Operation::Insert | Operation::Delete => {
                for _ in 0..batches {
                    let (delete, insert) = self.turn_over();
                    time += if operation == Operation::Insert { insert } else { delete };
                }
            }
            Operation::Sweep => return self.sweep(),
            Operation::Walk => return self.walk(),
        }
        Some((time, batches * BATCH))
    }

    fn find(&mut self, is_hit: bool) -> Duration {
        if is_hit {
            self.population.some_present(&mut self.keys);
        } else {
            self.population.some_absent(&mut self.keys);
        }
        let start = Instant::now();
        let found = self.table.find(&self.keys, self.burst);
        let time = start.elapsed();
        assert_eq!(found, if is_hit { self.keys.len() } else { 0 }, "{} finds each key", self.name);
        time
    }

    /// Replaces a batch of flows by new ones. Returns the times of deletion and insertion.
    fn turn_over(&mut self) -> (Duration, Duration) {
        self.population.replace(&mut self.keys, &mut self.new_keys, &mut self.numbers);
        let start = Instant::now();
        self.table.remove(&self.keys, self.burst);
        let between = Instant::now();
        self.table.insert(&self.new_keys, &self.numbers, self.burst);
        (between - start, between.elapsed())
    }

    /// Times a sweep that ends one residue class; its flows are inserted again before the next
    /// batch.
    fn sweep(&mut self) -> Option<(Duration, usize)> {
        let class = self.next_class;
        self.next_class = (class + 1) % crate::flow::CLASSES;
        let mut ended = Vec::with_capacity(self.population.len());
        let start = Instant::now();
        if !self.table.sweep(class, &mut ended) {
            return None;
        }
        let time = start.elapsed();
        for numbers in ended.chunks(BATCH) {
            self.keys.clear();
            self.keys.extend(numbers.iter().map(|&number| FlowKey::of(number)));
            self.table.insert(&self.keys, numbers, self.burst);
        }
        Some((time, self.population.len()))
    }

    fn walk(&mut self) -> Option<(Duration, usize)> {
        let start = Instant::now();
        let sum = self.table.walk()?;
        let time = start.elapsed();
        assert_eq!(sum, self.population.sum(), "{} shows each record once", self.name);
        Some((time, self.population.len()))
    }
}

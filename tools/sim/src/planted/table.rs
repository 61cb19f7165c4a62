//! The table of the planted bugs: how many seeds it took to find each, and the violation that
//! showed it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use std::thread;

use weir_planted::Mutation;

use crate::planted::find;

/// Rows that wait until those in front of them are printed.
#[derive(Default)]
struct Table {
    rows: BTreeMap<usize, String>,
    printed: usize,
    are_found: bool,
}

/// Plays the seeds with each bug until one fails, on all cores, and prints the rows in the order of
/// the bugs. Returns whether every bug was found.
///
/// `is_known_first`: the history that has found a bug before is played first.
pub fn print_table(mutations: &[Mutation], seeds: Range<u64>, is_known_first: bool) -> bool {
    println!("| bug | what it does | seeds | at seed | found by |\n|---|---|---|---|---|");
    let waiting = Mutex::new(mutations.iter().enumerate());
    let table = Mutex::new(Table { are_found: true, ..Table::default() });
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some((number, mutation)) = next(&waiting) {
                    let known = mutation.found_by.filter(|_| is_known_first);
                    let row = row(mutation, known, seeds.clone());
                    table.lock().unwrap_or_else(PoisonError::into_inner).add(number, row);
                }
            });
        }
    });
    table.into_inner().unwrap_or_else(PoisonError::into_inner).are_found
}

fn next<T>(waiting: &Mutex<impl Iterator<Item = T>>) -> Option<T> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner).next()
}

/// Returns the row of a bug, and whether it was found.
fn row(
    Mutation { name, what, .. }: &Mutation,
    known: Option<u64>,
    seeds: Range<u64>,
) -> (String, bool) {
    let others = seeds.clone().filter(|&seed| Some(seed) != known);
    match find(name, known.into_iter().chain(others)) {
        Some(found) => {
            let (played, seed) = (found.played, found.seed);
            let violation = found.violation.replace('|', "/");
            (format!("| {name} | {what} | {played} | {seed} | {violation} |"), true)
        }
        None => {
            (format!("| {name} | {what} | not within {} | | |", seeds.end - seeds.start), false)
        }
    }
}

impl Table {
    fn add(&mut self, number: usize, (row, is_found): (String, bool)) {
        self.are_found &= is_found;
        self.rows.insert(number, row);
        while let Some(row) = self.rows.remove(&self.printed) {
            println!("{row}");
            self.printed += 1;
        }
    }
}

//! The table sizes and loads that are measured.

use std::env;
use std::fmt;

use crate::flow::FlowRecord;
use crate::hashbrown_table::HashbrownTable;
use crate::memory::Lines;
use crate::population::Population;
use crate::rte_hash::{RteHash, start_eal};
use crate::subject::{Operation, Subject, Table};
use crate::weir_table::WeirTable;

/// A measured size: entries in tables of given numbers of slots.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub entries: usize,
    /// Slots of weir's index.
    pub weir_slots: usize,
    /// Slots of `rte_hash`, a power of two. hashbrown chooses its own number for the entries.
    pub rte_slots: usize,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let load = self.entries as f64 / self.weir_slots as f64;
        write!(f, "{}@{load:.2}", self.entries)?;
        if self.weir_slots != self.rte_slots { f.write_str("-own") } else { Ok(()) }
    }
}

/// 16 Ki slots fit into a core's own cache, 256 Ki into the last level, the others into neither. 10
/// million entries fill 0.6 of 2^24 slots, which `rte_hash` takes for them; with "own", weir takes
/// as many slots as it needs for them.
const USUAL: &str = "14x0.9 18x0.9 21x0.9 24x0.6 10000000own 24x0.9 24x0.95";

/// Returns the points of `WEIR_BENCH_POINTS`, or the usual ones. A point is `BITSxLOAD`: tables of
/// 2^BITS slots, filled to LOAD; or `ENTRIESown`: each table as its user would make it for ENTRIES.
///
/// # Panics
/// If the variable holds anything else.
pub fn from_environment() -> Vec<Point> {
    let text = env::var("WEIR_BENCH_POINTS").unwrap_or_else(|_| USUAL.to_owned());
    text.split_whitespace()
        .map(|word| parse(word).unwrap_or_else(|| panic!("WEIR_BENCH_POINTS: what is `{word}`?")))
        .collect()
}

fn parse(word: &str) -> Option<Point> {
    if let Some(entries) = word.strip_suffix("own") {
        let entries: usize =
            entries.parse().ok().filter(|entries| (1..1 << 30).contains(entries))?;
        let rte_slots = entries.next_power_of_two();
        return Some(Point { entries, weir_slots: entries.div_ceil(9) * 10, rte_slots });
    }
    let (bits, load) = word.split_once('x')?;
    let bits: u32 = bits.parse().ok().filter(|bits| (13..30).contains(bits))?;
    let load: f64 = load.parse().ok().filter(|load| (0.1..0.99).contains(load))?;
    let slots = 1_usize << bits;
    Some(Point { entries: (slots as f64 * load) as usize, weir_slots: slots, rte_slots: slots })
}

/// Returns the keys per burst: `WEIR_BENCH_BURST`, or 32.
///
/// # Panics
/// If it is not a number from 1 to 64.
pub fn burst() -> usize {
    let text = env::var("WEIR_BENCH_BURST").unwrap_or_else(|_| "32".to_owned());
    let burst = text.parse().ok().filter(|burst| (1..=64).contains(burst));
    burst.unwrap_or_else(|| panic!("WEIR_BENCH_BURST: `{text}` is not a number from 1 to 64"))
}

/// Whether `WEIR_BENCH_SUBJECTS`, a list of the words `rte_hash`, `record` and `hashbrown`, names
/// this rival; unset, it names all. The largest tables do not fit into memory together.
fn is_wanted(subject: &str) -> bool {
    is_named("WEIR_BENCH_SUBJECTS", subject)
}

/// Returns the operations to measure: `WEIR_BENCH_OPERATIONS`, a list of the words `hit`, `miss`,
/// `insert`, `delete`, `sweep`, `walk`; unset, all of them.
pub fn operations() -> impl Iterator<Item = Operation> {
    Operation::ALL
        .into_iter()
        .filter(|operation| is_named("WEIR_BENCH_OPERATIONS", operation.name()))
}

fn is_named(variable: &str, name: &str) -> bool {
    env::var(variable).map_or(true, |words| words.split_whitespace().any(|word| word == name))
}

/// The subjects of a point, their tables filled, and the memory beside them.
#[derive(Debug)]
pub struct Bench {
    /// The tables, weir's first.
    pub subjects: Vec<Subject>,
    /// An array of cache lines as large as weir's table.
    pub lines: Lines,
    /// Bytes of weir's index alone: the memory that a miss touches.
    pub index_bytes: usize,
    /// Bytes of weir's records alone: the memory that a walk touches.
    pub record_bytes: usize,
}

impl Point {
    /// Makes and fills the tables.
    ///
    /// # Errors
    /// A sentence, if there is not enough memory or no DPDK.
    pub fn prepare(self, burst: usize) -> Result<Bench, String> {
        start_eal()?;
        let population = Population::new(self.entries);
        // DPDK takes reserved huge pages only; the other tables can do without. So `rte_hash`
        // allocates first.
        let mut tables: Vec<(&'static str, Box<dyn Table>)> = Vec::new();
        if is_wanted("rte_hash") {
            tables.push(("rte_hash", Box::new(self.rte_hash(false)?)));
        }
        if is_wanted("record") {
            tables.push(("rte_hash + record", Box::new(self.rte_hash(true)?)));
        }
        let weir = WeirTable::new(self.weir_slots, self.entries).map_err(|e| e.to_string())?;
        let total = weir.bytes();
        let record_bytes = self.entries * size_of::<FlowRecord>();
        tables.push(("weir", Box::new(weir)));
        if is_wanted("hashbrown") {
            tables.push(("hashbrown", Box::new(HashbrownTable::new(self.entries))));
        }
        let mut subjects: Vec<Subject> = tables
            .into_iter()
            .map(|(name, table)| Subject::new(name, table, population.clone(), burst))
            .collect();
        subjects.sort_by_key(|subject| subject.name != "weir");
        let index_bytes = total.saturating_sub(record_bytes);
        let lines = Lines::new(total).map_err(|e| e.to_string())?;
        Ok(Bench { subjects, lines, index_bytes, record_bytes })
    }

    fn rte_hash(self, has_records: bool) -> Result<RteHash, String> {
        RteHash::new(self.rte_slots, has_records).map_err(|e| format!("rte_hash: {e}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_read() {
        let slots = 1 << 20;
        let point = parse("20x0.5").unwrap();
        assert_eq!((point.entries, point.weir_slots, point.rte_slots), (slots / 2, slots, slots));
        assert_eq!(point.to_string(), "524288@0.50");
        let own = parse("10000000own").unwrap();
        assert_eq!((own.weir_slots, own.rte_slots), (11_111_120, 1 << 24));
        for word in ["", "x", "20x", "20x1.5", "40x0.5", "own", "0own", "20"] {
            assert_eq!(parse(word), None, "{word}");
        }
        assert_eq!(USUAL.split_whitespace().filter_map(parse).count(), 7);
    }
}

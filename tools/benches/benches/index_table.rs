//! One table with the operations of the flow table beside its rivals and the machine's memory:
//! `cargo bench -p weir-benches --bench index_table`. All subjects take turns of a few milliseconds
//! in each round; a ratio is the median over the rounds of the ratio within a round, so that a
//! machine whose speed changes does no harm.
//!
//! `WEIR_BENCH_ROUNDS` is the number of rounds (7); see `weir_benches::point` for the other
//! variables.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use weir_benches::point::{self, Bench, Point};
use weir_benches::subject::Operation;

/// Batches per turn: 131,072 keys, two to twenty milliseconds.
const BATCHES: usize = 32;
/// Batches before a turn that are not timed. After them the part of a table that fits into the
/// caches is there again, as if the table ran alone; with fewer, the last-level cache still held
/// the other tables.
const WARM_UP_BATCHES: usize = 192;
/// Untimed batches before insertions and deletions, which come after many look-ups in real use too.
const TURNOVER_WARM_UP_BATCHES: usize = 16;
/// Rounds of an operation on a whole table (sweep, walk).
const WHOLE_ROUNDS: usize = 3;

#[derive(Debug)]
struct Report {
    points: Vec<PointReport>,
}

#[derive(Debug, Serialize)]
struct PointReport {
    point: String,
    burst: usize,
    rounds: usize,
    entries: usize,
    tables: Vec<TableReport>,
    rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct TableReport {
    subject: &'static str,
    bytes_per_entry: f64,
    load: f64,
    /// Bytes per entry without the records.
    index_bytes_per_entry: Option<f64>,
}

/// An operation at a point. Rates are in millions per second: keys, or records visited.
#[derive(Debug, Serialize)]
struct Row {
    operation: &'static str,
    mops: Vec<Rate>,
    /// weir's rate divided by the subject's: median, least and greatest over the rounds.
    ratio_to: Vec<Rate>,
    /// The rate of cache lines as a fraction of the machine's: random lines, two per hit and one
    /// per miss; lines in order for a walk and a sweep. Median, least and greatest.
    line_fraction: Option<[f64; 3]>,
    mlines: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Rate {
    subject: &'static str,
    median: f64,
    least: f64,
    greatest: f64,
}

fn main() {
    let burst = point::burst();
    let rounds = rounds();
    let mut report = Report { points: Vec::new() };
    for point in point::from_environment() {
        match point.prepare(burst) {
            Ok(mut bench) => {
                let measured = measure(point, &mut bench, burst, rounds);
                print(&measured);
                report.points.push(measured);
            }
            Err(reason) => println!("\n{point}: not measured: {reason}"),
        }
        write(&report);
    }
}

fn warm_up_batches(operation: Operation) -> usize {
    match operation {
        Operation::Insert | Operation::Delete => TURNOVER_WARM_UP_BATCHES,
        _ => WARM_UP_BATCHES,
    }
}

fn rounds() -> usize {
    let text = std::env::var("WEIR_BENCH_ROUNDS").unwrap_or_else(|_| "7".to_owned());
    let rounds = text.parse().ok().filter(|&rounds| rounds > 0);
    rounds.unwrap_or_else(|| panic!("WEIR_BENCH_ROUNDS: `{text}` is not a number above 0"))
}

fn measure(point: Point, bench: &mut Bench, burst: usize, rounds: usize) -> PointReport {
    let entries = point.entries as f64;
    let tables = bench
        .subjects
        .iter()
        .map(|subject| TableReport {
            subject: subject.name,
            bytes_per_entry: subject.table.bytes() as f64 / entries,
            load: subject.table.load(point.entries),
            index_bytes_per_entry: (subject.name == "weir")
                .then(|| bench.index_bytes as f64 / entries),
        })
        .collect();
    let rows = point::operations().map(|operation| row(operation, bench, burst, rounds)).collect();
    PointReport { point: point.to_string(), burst, rounds, entries: point.entries, tables, rows }
}

/// Millions per second.
fn rate((time, count): (Duration, usize)) -> f64 {
    count as f64 / time.as_secs_f64() / 1e6
}

fn row(operation: Operation, bench: &mut Bench, burst: usize, rounds: usize) -> Row {
    let is_whole = matches!(operation, Operation::Sweep | Operation::Walk);
    let rounds = if is_whole { WHOLE_ROUNDS } else { rounds };
    let mut rates = vec![Vec::with_capacity(rounds); bench.subjects.len()];
    let mut lines = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        lines.extend(line_rate(operation, bench, burst));
        for (subject, rates) in bench.subjects.iter_mut().zip(&mut rates) {
            if !is_whole {
                subject.run(operation, warm_up_batches(operation));
            }
            rates.extend(subject.run(operation, BATCHES).map(rate));
        }
    }
    let weir = &rates[0];
    let lines_per_operation = if operation == Operation::Hit { 2.0 } else { 1.0 };
    let fractions = weir.iter().zip(&lines).map(|(weir, lines)| weir * lines_per_operation / lines);
    let fractions = spread(fractions.collect());
    let named = |rates: Vec<f64>, subject| {
        let [median, least, greatest] = spread(rates)?;
        Some(Rate { subject, median, least, greatest })
    };
    let names = bench.subjects.iter().map(|subject| subject.name);
    let mops = names.clone().zip(&rates).filter_map(|(name, rates)| named(rates.clone(), name));
    let ratio = |rates: &Vec<f64>| weir.iter().zip(rates).map(|(weir, rate)| weir / rate).collect();
    let ratio_to = names.zip(&rates).skip(1).filter_map(|(name, rates)| named(ratio(rates), name));
    Row {
        operation: operation.name(),
        mops: mops.collect(),
        ratio_to: ratio_to.collect(),
        line_fraction: fractions,
        mlines: spread(lines).map(|[median, ..]| median),
    }
}

/// The machine's rate of cache lines that bounds an operation, at weir's footprint. None for
/// insertions and deletions: how many lines they touch depends on the load.
fn line_rate(operation: Operation, bench: &mut Bench, burst: usize) -> Option<f64> {
    let (index, records) = (bench.index_bytes, bench.record_bytes);
    let mut random = |bytes| {
        bench.lines.read_random(bytes, burst, WARM_UP_BATCHES);
        rate(bench.lines.read_random(bytes, burst, BATCHES))
    };
    match operation {
        Operation::Hit => Some(random(usize::MAX)),
        Operation::Miss => Some(random(index)),
        Operation::Sweep | Operation::Walk => Some(rate(bench.lines.read_in_order(records))),
        Operation::Insert | Operation::Delete => None,
    }
}

/// Median, least and greatest.
fn spread(mut values: Vec<f64>) -> Option<[f64; 3]> {
    values.sort_by(f64::total_cmp);
    Some([*values.get(values.len() / 2)?, *values.first()?, *values.last()?])
}

fn print(report: &PointReport) {
    println!("\n{} entries (point {})", report.entries, report.point);
    for table in &report.tables {
        let index = table.index_bytes_per_entry;
        let index = index.map_or(String::new(), |bytes| format!(" (index alone {bytes:.1})"));
        println!(
            "  {:18} load {:.3}, {:.1} bytes per entry{index}",
            table.subject, table.load, table.bytes_per_entry
        );
    }
    println!(
        "  {:8}{:>10}{:>10}{:>10}{:>10} |{:>12}{:>12}{:>12} |{:>9}{:>9}",
        "Mops/s",
        "weir",
        "rte_hash",
        "+ record",
        "hashbrown",
        "weir / rte",
        "/ + record",
        "/ hashbr.",
        "Mlines/s",
        "fraction"
    );
    for row in &report.rows {
        let median = |rates: &[Rate], name| {
            let rate = rates.iter().find(|rate| rate.subject == name);
            rate.map_or("-".to_owned(), |rate| format!("{:.2}", rate.median))
        };
        let number = |value: Option<f64>| value.map_or("-".to_owned(), |v| format!("{v:.2}"));
        println!(
            "  {:8}{:>10}{:>10}{:>10}{:>10} |{:>12}{:>12}{:>12} |{:>9}{:>9}",
            row.operation,
            median(&row.mops, "weir"),
            median(&row.mops, "rte_hash"),
            median(&row.mops, "rte_hash + record"),
            median(&row.mops, "hashbrown"),
            median(&row.ratio_to, "rte_hash"),
            median(&row.ratio_to, "rte_hash + record"),
            median(&row.ratio_to, "hashbrown"),
            number(row.mlines),
            number(row.line_fraction.map(|[median, ..]| median)),
        );
    }
}

/// Writes `target/bench/index.json` of the workspace, whatever the current directory is. The points
/// of earlier runs stay unless they were measured again: a shared machine is measured one point at
/// a time.
fn write(report: &Report) {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("a workspace");
    let folder: PathBuf = workspace.join("target/bench");
    let path = folder.join("index.json");
    let former = fs::read_to_string(&path).ok().and_then(|text| serde_json::from_str(&text).ok());
    let Some(Value::Array(mut points)) = former else {
        return replace(&folder, &path, report, &[]);
    };
    points.retain(|former| {
        let is_again = |new: &PointReport| {
            former["point"] == new.point.as_str()
                && former["burst"] == new.burst
                && former["tables"].as_array().map(Vec::len) == Some(new.tables.len())
        };
        !report.points.iter().any(is_again)
    });
    replace(&folder, &path, report, &points);
}

fn replace(folder: &Path, path: &Path, report: &Report, former: &[Value]) {
    let new = report
        .points
        .iter()
        .map(|point| serde_json::to_value(point).expect("numbers and strings make JSON"));
    let points: Vec<Value> = former.iter().cloned().chain(new).collect();
    let text = serde_json::to_string_pretty(&points).expect("numbers and strings make JSON");
    let written = fs::create_dir_all(folder).and_then(|()| fs::write(path, text + "\n"));
    if let Err(error) = written {
        eprintln!("{}: {error}", path.display());
    }
}

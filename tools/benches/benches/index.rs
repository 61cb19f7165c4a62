//! The flow table and its rivals under criterion: `cargo bench -p weir-benches --bench index [--
//! FILTER]`.
//!
//! An iteration is a batch of 4,096 keys; for a sweep or a walk it is the whole table. The
//! benchmarks run one after the other for a second each: on a machine whose speed changes
//! meanwhile, believe the ratios of `index_table` instead.

use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput};
use weir_benches::point::{self, Bench, Point};
use weir_benches::population::BATCH;
use weir_benches::subject::Operation;

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(500))
        .configure_from_args();
    let burst = point::burst();
    for point in point::from_environment() {
        match point.prepare(burst) {
            Ok(mut bench) => measure(&mut criterion, point, &mut bench, burst),
            Err(reason) => eprintln!("{point}: not measured: {reason}"),
        }
    }
    criterion.final_summary();
}

fn measure(criterion: &mut Criterion, point: Point, bench: &mut Bench, burst: usize) {
    let index_bytes = bench.index_bytes;
    for operation in point::operations() {
        let mut group = criterion.benchmark_group(format!("{point}/{}", operation.name()));
        let is_whole = matches!(operation, Operation::Sweep | Operation::Walk);
        let elements = if is_whole { point.entries } else { BATCH };
        group.throughput(Throughput::Elements(elements as u64));
        for subject in &mut bench.subjects {
            let can_do = !is_whole || subject.name != "rte_hash";
            // Skips the sweep and the walk of a table of millions: each is one sample, of which at
            // most ten run in a second.
            if !can_do || (is_whole && point.entries > 1 << 21) {
                continue;
            }
            group.bench_function(subject.name, |bencher| {
                bencher.iter_custom(|iterations| {
                    let batches = if is_whole { 1 } else { iterations as usize };
                    let runs = if is_whole { iterations } else { 1 };
                    (0..runs)
                        .map(|_| subject.run(operation, batches).expect("it is supported").0)
                        .sum()
                });
            });
        }
        match operation {
            Operation::Hit => random_lines(&mut group, bench, usize::MAX, burst),
            Operation::Miss => random_lines(&mut group, bench, index_bytes, burst),
            _ => {}
        }
        group.finish();
    }
}

fn random_lines(
    group: &mut BenchmarkGroup<'_, WallTime>,
    bench: &mut Bench,
    bytes: usize,
    burst: usize,
) {
    group.bench_function("random lines", |bencher| {
        bencher.iter_custom(|batches| bench.lines.read_random(bytes, burst, batches as usize).0);
    });
}

//! Two workers in one process, each on a core of its own, against one worker alone: `cargo bench -p
//! weir-benches --bench workers`.
//!
//! ```text
//!   round    core 0: worker           core 0: -                core 0: worker
//!            core 1: -                core 1: worker           core 1: worker
//!            rate a                   rate b                   rates c and d
//!
//!   scaling = (c + d) / mean of a and b
//! ```
//!
//! A worker is the engine with the turn of its loop and tables of its own. It has no device: it
//! copies packets from its own memory. Workers share no line that one of them writes, so the
//! scaling is 2 unless the cores share more than the workers do: caches, memory, or, in a virtual
//! machine, one core of the host. The same is measured with cores that only compute and with cores
//! that read random lines, for comparison.
//!
//! A phase lasts milliseconds and the phases of a round follow each other at once. A phase in which
//! the kernel ran something else on a worker's core is repeated; `chrt -f 1` before the command
//! keeps other programs away on a machine that runs some. `WEIR_BENCH_ROUNDS` is the number of
//! rounds (21).

mod core_thread;
#[path = "../../../../cluster/replication/benches/replication/frame.rs"]
mod frame;
mod node;
mod source;
mod work;

use std::time::Instant;

use core_thread::CoreThread;
use work::Work;

/// Attempts at a phase that the kernel interrupts.
const ATTEMPTS_MAX: usize = 1000;

fn main() {
    let rounds = rounds();
    println!("sum of two workers / mean of one alone, median [least..most] of {rounds} rounds");
    let cores = [0, 1].map(CoreThread::new);
    for work in Work::ALL {
        cores.iter().for_each(|core| core.prepare(work));
        let mut rates: [Vec<f64>; 5] = Default::default();
        let mut repeated = 0;
        for _ in 0..rounds {
            let first = phase(&[&cores[0]], &mut repeated)[0];
            let second = phase(&[&cores[1]], &mut repeated)[0];
            let both = phase(&[&cores[0], &cores[1]], &mut repeated);
            let scaling = 2.0 * (both[0] + both[1]) / (first + second);
            let values = [first, second, both[0], both[1], scaling];
            rates.iter_mut().zip(values).for_each(|(rates, value)| rates.push(value));
        }
        let [first, second, both_first, both_second, scaling] = rates.map(spread);
        println!(
            "{:34} {:.2} [{:.2}..{:.2}]   M/s: alone {:.1}, {:.1}; both {:.1} + {:.1}   phases \
             repeated: {repeated}",
            work.name(),
            scaling[0],
            scaling[1],
            scaling[2],
            first[0],
            second[0],
            both_first[0],
            both_second[0],
        );
    }
}

/// Lets these cores work at the same time; returns the rate of each, in millions a second.
fn phase(cores: &[&CoreThread], repeated: &mut usize) -> Vec<f64> {
    for _ in 0..ATTEMPTS_MAX {
        cores.iter().for_each(|core| core.get_ready());
        cores.iter().for_each(|core| core.await_ready());
        let begin = Instant::now() + work::LEAD;
        cores.iter().for_each(|core| core.begin(begin));
        let rates: Vec<_> = cores.iter().map(|core| core.rate()).collect();
        if let Some(rates) = rates.into_iter().collect() {
            return rates;
        }
        *repeated += 1;
    }
    panic!("the machine runs too much else: {ATTEMPTS_MAX} phases in turn were interrupted")
}

fn rounds() -> usize {
    let text = std::env::var("WEIR_BENCH_ROUNDS").unwrap_or_else(|_| "21".to_owned());
    let rounds = text.parse().ok().filter(|&rounds| rounds > 0);
    rounds.unwrap_or_else(|| panic!("WEIR_BENCH_ROUNDS: `{text}` is not a number above 0"))
}

/// Median, least and greatest.
fn spread(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [values[values.len() / 2], values[0], values[values.len() - 1]]
}

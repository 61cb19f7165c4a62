//! The rules beside `rte_acl`, the tables of Quick NAT and a plain list: `cargo bench -p
//! weir-benches --bench rules`. All subjects take turns in each round; a ratio is the median over
//! the rounds of the ratio within a round. Rules of IPv6 are measured beside as many of IPv4.
//!
//! `WEIR_BENCH_ROUNDS` is the number of rounds (15), `WEIR_BENCH_RULES` the numbers of rules (1000,
//! 10000, 100000). `rte_acl` is built for up to `WEIR_BENCH_ACL_MAX` rules (10000): for 100,000 it
//! takes minutes. Every subject is compared with the plain list before it is measured.

use std::time::Instant;

use fastrand::Rng;
use weir_benches::rte_hash::start_eal;
use weir_benches::rules::quick_nat::QuickNat;
use weir_benches::rules::rte_acl::RteAcl;
use weir_benches::rules::{CompiledRules, LinearList, RuleTable, check};
use weir_rules::shapes::{RuleShape, ShapeAddress, filters, question};
use weir_rules::{
    Classifier, FlowKind, FlowKinds, FlowOrigin, IpAddress, PortRange, Prefix, Question,
    QuestionWalks, RuleFilter, TOGETHER,
};

/// Questions of a turn, as many as keep the caches as a worker's first packets would.
const QUESTIONS: usize = 1 << 15;
/// Questions that are compared with the plain list.
const CHECKED: usize = 2048;
/// Questions of a turn of the plain list, by the number of rules.
const LINEAR_COMPARISONS: usize = 1 << 22;

struct Subject<A> {
    name: &'static str,
    table: Box<dyn RuleTable<A>>,
    built_ms: f64,
    /// Nanoseconds a question, round by round.
    times: Vec<f64>,
}

fn main() {
    let rounds = number("WEIR_BENCH_ROUNDS", 15);
    let acl_max = number("WEIR_BENCH_ACL_MAX", 10_000);
    let eal = start_eal();
    if let Err(reason) = &eal {
        eprintln!("rte_acl is not measured: {reason}");
    }
    let acl_max = if eal.is_ok() { acl_max } else { 0 };
    for count in numbers("WEIR_BENCH_RULES", &[1_000, 10_000, 100_000]) {
        let filters = provider::<u32>(count as u32);
        let mut subjects = vec![subject("weir", || compile(&filters))];
        if count <= acl_max {
            subjects.push(subject("rte_acl", || {
                Box::new(RteAcl::new(&filters).expect("rte_acl builds"))
            }));
        }
        subjects.push(subject("list", || Box::new(LinearList(filters.clone()))));
        measure(&format!("{count} rules of an ISP"), &filters, subjects, rounds);
    }
    for count in numbers("WEIR_BENCH_RULES", &[1_000, 10_000, 100_000]) {
        let scattered = provider::<u128>(count as u32);
        let crowded = crowded(&scattered);
        for (filters, where_to) in [(scattered, ""), (crowded, " about 50 networks")] {
            let subjects = vec![
                subject("weir", || compile(&filters)),
                subject("list", || Box::new(LinearList(filters.clone()))),
            ];
            let title = format!("{count} rules of an ISP, IPv6{where_to}");
            measure(&title, &filters, subjects, rounds);
        }
    }
    for count in numbers("WEIR_BENCH_RULES", &[1_000, 10_000, 100_000]) {
        let filters = prefixes_and_ports(count as u32);
        let subjects = vec![
            subject("weir", || compile(&filters)),
            subject("Quick NAT", || Box::new(QuickNat::new(&filters))),
        ];
        measure(&format!("{count} rules of 32 lengths"), &filters, subjects, rounds);
    }
}

fn compile<A: IpAddress + 'static>(filters: &[RuleFilter<A>]) -> Box<dyn RuleTable<A>> {
    let classifier = Classifier::new(filters).expect("the rules compile");
    Box::new(CompiledRules { classifier, walks: QuestionWalks::default() })
}

fn subject<A>(name: &'static str, build: impl FnOnce() -> Box<dyn RuleTable<A>>) -> Subject<A> {
    let start = Instant::now();
    let table = build();
    Subject { name, table, built_ms: start.elapsed().as_secs_f64() * 1e3, times: Vec::new() }
}

/// Rules of an ISP, of one kind or of all, and of all groups: what `rte_acl` can hold.
fn provider<A: ShapeAddress>(count: u32) -> Vec<RuleFilter<A>> {
    let rng = &mut Rng::with_seed(u64::from(count));
    let mut filters = filters::<A>(RuleShape::Provider, count, rng);
    for filter in &mut filters {
        let mut kinds = FlowKind::all().filter(|&kind| filter.kinds.has(kind));
        let is_one = rng.u8(0..4) > 0 && filter.kinds != FlowKinds::ALL;
        filter.kinds = match kinds.next() {
            Some(kind) if is_one => [kind].into_iter().collect(),
            _ => FlowKinds::ALL,
        };
        filter.groups = u16::MAX;
    }
    filters
}

/// The same rules with all remotes in 50 networks of 32 bits: the addresses have their first bits
/// in common, and half of the subnets have small numbers, as networks assign them.
fn crowded(filters: &[RuleFilter<u128>]) -> Vec<RuleFilter<u128>> {
    let rng = &mut Rng::with_seed(3);
    let networks: Vec<u128> = (0..50)
        .map(|_| u128::from(0x2a00_0000 + (rng.u32(0..16) << 16 | rng.u32(0..0x1_0000))) << 96)
        .collect();
    let mut crowded = filters.to_vec();
    for filter in crowded.iter_mut().filter(|filter| !filter.remote.is_all()) {
        let subnet: u32 = if rng.bool() { rng.u32(..) } else { rng.u32(..) & 0x00ff_00ff };
        let network = networks[rng.usize(0..networks.len())] | u128::from(subnet) << 64;
        let address = network | u128::from(rng.u64(..));
        filter.remote = Prefix::new(address, filter.remote.bits());
    }
    crowded
}

/// Rules of one prefix, of any length, and one port, as Quick NAT has them: the longest prefix
/// comes first, and destinations before sources.
fn prefixes_and_ports(count: u32) -> Vec<RuleFilter<u32>> {
    let rng = &mut Rng::with_seed(u64::from(count));
    let mut drawn: Vec<(bool, Prefix<u32>, u16)> = (0..count)
        .map(|_| {
            // Few rules have a short prefix, since all of these would meet in each packet.
            let shortest = if rng.u16(0..1000) == 0 { 1 } else { 12 };
            (rng.bool(), Prefix::new(rng.u32(..), rng.u8(shortest..=32)), rng.u16(1..1024))
        })
        .collect();
    drawn.sort_by_key(|&(is_source, prefix, port)| (is_source, 32 - prefix.bits(), prefix, port));
    drawn.dedup();
    let numbered = drawn.into_iter().zip(0..);
    numbered
        .map(|((is_source, prefix, port), rule)| {
            let mut filter = RuleFilter {
                remote_ports: PortRange { first: port, last: port },
                ..RuleFilter::all(rule)
            };
            *(if is_source { &mut filter.local } else { &mut filter.remote }) = prefix;
            filter
        })
        .collect()
}

fn measure<A: ShapeAddress>(
    title: &str,
    filters: &[RuleFilter<A>],
    mut subjects: Vec<Subject<A>>,
    rounds: usize,
) {
    let rng = &mut Rng::with_seed(7);
    let kind = FlowKind::new(FlowOrigin::Home, 6).expect("TCP is a kind");
    let questions: Vec<Question<A>> = (0..QUESTIONS)
        .map(|_| match rng.bool() {
            true => question(filters, rng),
            // Half of the flows fit no rule, or the last.
            false => Question { kind, ..question(&[], rng) },
        })
        .collect();
    for subject in &mut subjects {
        check(&mut *subject.table, subject.name, filters, &questions[..CHECKED]);
    }
    for _ in 0..rounds {
        for subject in &mut subjects {
            let count = match subject.name {
                "list" => (LINEAR_COMPARISONS / filters.len()).clamp(TOGETHER, QUESTIONS),
                _ => QUESTIONS,
            };
            // Once without a look at the clock, for the caches.
            for is_timed in [false, true] {
                let start = Instant::now();
                for questions in questions[..count].chunks(TOGETHER) {
                    let mut found = [0; TOGETHER];
                    subject.table.find(questions, &mut found);
                    std::hint::black_box(&found);
                }
                if is_timed {
                    let nanoseconds = start.elapsed().as_secs_f64() * 1e9;
                    subject.times.push(nanoseconds / count as f64);
                }
            }
        }
    }
    print_table(title, filters.len(), &subjects);
}

fn print_table<A>(title: &str, rules: usize, subjects: &[Subject<A>]) {
    println!("\n{title}");
    println!(
        "{:<12}{:>10}{:>12}{:>34}{:>34}",
        "", "built, ms", "bytes/rule", "ns a question", "weir's rate / this one's"
    );
    for subject in subjects {
        let bytes =
            subject.table.bytes().map(|bytes| format!("{:.1}", bytes as f64 / rules as f64));
        let ratios = subject.times.iter().zip(&subjects[0].times).map(|(own, weir)| own / weir);
        println!(
            "{:<12}{:>10.1}{:>12}{:>34}{:>34}",
            subject.name,
            subject.built_ms,
            bytes.unwrap_or_else(|| "-".to_owned()),
            spread(subject.times.iter().copied(), 1),
            spread(ratios, 2),
        );
    }
}

/// Returns median, least and greatest.
fn spread(values: impl Iterator<Item = f64>, digits: usize) -> String {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let [least, .., greatest] = *values else { return "-".to_owned() };
    let median = values[values.len() / 2];
    format!("{median:.digits$} [{least:.digits$}..{greatest:.digits$}]")
}

fn number(variable: &str, usual: usize) -> usize {
    numbers(variable, &[usual])[0]
}

fn numbers(variable: &str, usual: &[usize]) -> Vec<usize> {
    let Ok(text) = std::env::var(variable) else { return usual.to_vec() };
    text.split_whitespace()
        .map(|word| word.parse().unwrap_or_else(|_| panic!("{variable}: what is `{word}`?")))
        .collect()
}

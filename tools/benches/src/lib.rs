//! The flow table beside DPDK's `rte_hash`, hashbrown and the machine's memory: the same keys in
//! the same random order, the same bursts, all on huge pages.
//!
//! | subject | a hit | memory |
//! |---|---|---|
//! | weir | index line, record with the whole key to compare | index + 64-byte records |
//! | `rte_hash` | two bucket lines, its copy of the key; returns a position | buckets + keys |
//! | `rte_hash` + record | the same, then the 64-byte record there | buckets + keys + records |
//! | hashbrown | control bytes, 64-byte record; no prefetch, no burst | slots + control bytes |
//!
//! hashbrown hashes with weir's keyed hash, so that only the tables differ; `rte_hash` with its own
//! default. The memory's own speed is the last subject: random cache lines in bursts, and lines in
//! order.
//!
//! `cargo bench -p weir-benches` runs four programs. `index`, with criterion, and `index_table`,
//! which alternates the subjects every few milliseconds, prints one table of ratios and writes it
//! to `target/bench/index.json`, take their points from `WEIR_BENCH_POINTS`, see
//! [`point::from_environment`]. `workers` is about no table: it sets two workers beside one of them
//! alone. `rules` compares the rules with other searches for the first that fits: `rte_acl`, the
//! tables of Quick NAT, a plain list.

pub mod flow;
pub mod hashbrown_table;
pub mod huge_allocator;
pub mod memory;
pub mod point;
pub mod population;
pub mod rte_hash;
pub mod rules;
pub mod subject;
pub mod weir_table;

/// Keys of the longest burst: more cache misses than a core keeps in flight.
pub const BURST_MAX: usize = 64;

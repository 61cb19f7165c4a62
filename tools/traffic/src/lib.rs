//! A stateful traffic generator on DPDK ports, and the benchmark that uses it.
//!
//! One thread simulates everything around the device under test: the homes behind the access
//! gateway and the hosts behind the internet gateway. It knows every flow, so it can distinguish a
//! correct packet from a wrong translation, a wrong home, a bad checksum, a duplicate and a loss.
//!
//! ```text
//!            access port                           internet port
//!   homes ── GRE or plain ──▶ device under test ──── UDP or TCP ──▶ hosts
//!         ◀─────────────────                     ◀────────────────
//!
//!   scenario ─▶ table (one record a flow) ─▶ packet (bytes out, bytes in)
//!                          ─▶ ledger (what came back), latency (when)
//!       └───────── generator: resolve, learn, flood (pacing: when to send) ─────────┘
//!                  attack: packets that a hostile home or station sends beside the flows
//!   search: the rates of RFC 9693
//!   bench: weir and testpmd in alternating rounds under the same flood
//!   linux_nat: the kernel's own NAT, fed inside the kernel
//! ```
//!
//! Pure parts, testable without DPDK: `attack`, `families`, `scenario`, `permutation`, `packet`,
//! `table`, `ledger`, `latency`, `pacing`, `gateway`, `search::bisection`, `bench::rounds`.

#![deny(unsafe_code)]

pub mod attack;
pub mod bench;
pub mod families;
pub mod gateway;
pub mod generator;
pub mod latency;
pub mod ledger;
pub mod linux_nat;
pub mod pacing;
pub mod packet;
pub mod permutation;
mod rule_mix;
pub mod run;
pub mod scenario;
pub mod search;
pub mod side;
pub mod table;

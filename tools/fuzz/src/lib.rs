//! Fuzz targets: every parser and the engine.
//!
//! Each target is a property: whatever the input, nothing panics, every reported length lies within
//! the input, and edited packets stay valid. It runs as a test with random inputs and all files
//! kept for it, and under a coverage-guided fuzzer (README.md). An input is the bytes that a parser
//! gets, so a file is a packet.

#![forbid(unsafe_code)]
#![cfg(test)]

mod arp;
mod block_log;
mod change;
mod config;
mod describe;
mod ethernet;
mod gre;
mod icmp;
mod icmp6;
mod ipv4;
mod ipv6;
mod layers;
mod map;
mod ndp;
mod policy;
mod replica;
mod tcp;
mod udp;

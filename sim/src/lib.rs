//! The whole cluster in virtual time, from one seed.
//!
//! - [`etcd`]: a model of etcd, with its faults.
//! - [`control`]: what a node's process and a controller's have of it, with the production code that decides.
//!
//! No I/O, no thread and no clock: time is an argument, in microseconds.

#![forbid(unsafe_code)]

pub mod control;
pub mod dice;
pub mod etcd;

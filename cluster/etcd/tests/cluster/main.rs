//! The cluster's keys in a real etcd: killed, stopped, full, restored, slow, encrypted.
//!
//! Each test starts etcd daemons of its own on loopback addresses that belong to this process, with
//! their data in memory, and ends them by their ids.

mod bench;
mod certificates;
mod elections;
mod etcd;
mod members;
mod mirrors;
mod proxy;
mod rights;
mod trust;
mod writes;

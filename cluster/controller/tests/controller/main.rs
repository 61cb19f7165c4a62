//! The controller: its decisions on an etcd in memory, and two controllers on a real etcd.

mod admin;
mod apply;
#[path = "../../../etcd/tests/cluster/etcd.rs"]
#[allow(dead_code, reason = "some of it serves the other crate's tests only")]
mod etcd;
mod fake_etcd;
mod fleet;
mod histories;
mod hostile;
mod many;
mod processes;
mod rules;

//! etcd, controllers and the roles of nodes, with workers that only obey and tell, under the faults of a seed.

mod fault;
mod histories;
mod processes;
mod watching;
/// The worker of the tests of roles: it obeys orders and tells news as a real one would.
#[path = "../../../crates/member/tests/roles/worker.rs"]
mod worker;
mod world;

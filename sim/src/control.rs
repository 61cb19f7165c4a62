//! What the processes of a cluster have of etcd and of each other besides packets.
//!
//! ```text
//!   NodeClient:        Link, Claim (registration), Mirror, writes of entries --> Event of the node's core
//!   ControllerProcess: Link, Claim (election),     Mirror, transactions      --> state::Controller
//!   Management:        questions of controllers to nodes, and their reports
//!   Operator:          orders, written as they are
//!   Plane:             all of them together
//! ```
//!
//! Everything that decides is production code: the states of `weir_cluster`, the core of a node, the controller. What
//! stands here does what their tasks do between them, in virtual time.

mod claim;
mod clock;
mod controller_process;
mod link;
mod management;
mod mirror;
mod node_client;
mod node_report;
mod operator;
mod plane;

pub use clock::ProcessClock;
pub use controller_process::{ControllerProcess, ControllerSetup, Question};
pub use management::{Delivery, Management};
pub use node_client::{NodeClient, NodeSetup, Told};
pub use node_report::{NodeFacts, report_of};
pub use operator::Operator;
pub use plane::{CONTROLLERS, Plane, PlaneOptions, controller_name};

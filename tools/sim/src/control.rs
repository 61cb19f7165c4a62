//! The connections of a cluster's processes to etcd and to each other, besides packets.
//!
//! ```text
//!   NodeClient:        Link, Claim (registration), MirrorClient, writes of entries
//!                      --> Event of the node's core
//!   ControllerProcess: the controller's own Process
//!   Wire:              between the link of each of them and the model of etcd
//!   Management:        questions of controllers to nodes, and their reports
//!   Operator:          orders, written past all faults
//!   Plane:             all of them together
//! ```
//!
//! Everything that makes decisions is production code: the clients of `weir_etcd`, the core of a
//! node, the process of `weir_controller`. The code here carries their requests and supplies the
//! time, for which the product has a transport and clocks.

mod clock;
mod controller;
mod management;
mod node_client;
mod node_report;
mod operator;
mod plane;
mod wire;

pub use clock::ProcessClock;
pub use controller::{ControllerProcess, ControllerSetup};
pub use management::{Delivery, Management};
pub use node_client::{NodeClient, NodeInput, NodeSetup};
pub use node_report::{NodeFacts, report_of};
pub use operator::Operator;
pub use plane::{CONTROLLERS, Plane, PlaneOptions, controller_name};

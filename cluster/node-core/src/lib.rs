//! The decisions of a cluster's node beside its packets: events and the time in, actions out.
//!
//! ```text
//!   Event                                  Core                                  Action
//!   etcd: keys, registration, writes --+   news queue --> Roles -------- WorkerCommand --> workers
//!   disk: a save has ended ------------+      |  ^         | | |
//!   workers: events, slots, rejoined --+-> map keeper      | | +-- Write, Join, Register --> etcd
//!   guard: routes set, fences ---------+      |            | +--- SetRoutes, SetStake --> guard
//!   process: hand over, end -----------+      +-- Save     +-- HandedOver, Ended --> process
//! ```
//!
//! - The core has no thread, clock, socket or file: `weir-node run` drives it with real ones, the
//!   simulator with simulated ones, and [`recording`] with the recorded events of a node. The same
//!   events at the same times lead to the same actions.
//! - A driver hands in what has happened ([`Core::step`]), then turns the core ([`Core::turn`]) and
//!   carries out what it wants ([`Core::next_action`]); it turns at least every 10 ms, when it
//!   hands in what the workers show ([`CoreEvent::Slot`]).
//! - An entry of the map is obeyed once it is on disk (`input_queue`), and etcd hears of a node
//!   once its incarnations are on disk (`node_core/joining.rs`).
//! - Messages that come while the driver stalls wait as [`Notices`] and [`StallEnd`] decide, and
//!   are handed in [`InTurn`].
//! - Events come late, in any order between their senders, and more than once; an answer may never
//!   come.
//!
//! Beside the core: what a node starts with ([`first_look`]), its shutdown notice
//! ([`shutdown_notice`]), the configuration of a worker's NAT ([`nat_setup`]), the part of it that
//! changes at run time ([`live`]) and the memory of its tables ([`TableMemory`]).

#![forbid(unsafe_code)]

mod action;
mod event;
pub mod first_look;
mod flow_settings;
mod hand_over;
mod input_queue;
mod known_map;
pub mod live;
mod map_keeper;
pub mod nat_setup;
mod node_core;
pub mod recording;
mod routes;
pub mod setup;
pub mod shutdown_notice;
mod table_memory;
mod waiting;

pub use action::CoreAction;
pub use event::{CoreEvent, GuardReport, Registration, WorkerSlot, WriteResult};
pub use flow_settings::{FlowSettings, NamedRule};
pub use hand_over::HAND_OVER_MAX;
pub use known_map::KnownMap;
pub use map_keeper::MapKeeper;
pub use nat_setup::ClusterRoom;
pub use node_core::joining::Outside;
pub use node_core::{Core, CoreStart, GuardState};
pub use routes::{RouteList, WorkerAddresses};
pub use table_memory::TableMemory;
pub use waiting::{GUARD_EVENTS_MAX, InTurn, Notice, Notices, StallEnd};

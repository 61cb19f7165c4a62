//! What the core shows.

use std::net::SocketAddr;

use weir_config::Desired;
use weir_map::{NodeId, WorkerId};
use weir_roles::{Roles, SidesUp};

use super::joining::Outside;
use super::{Core, GuardState};
use crate::map_keeper::MapKeeper;
use crate::routes::RouteList;

impl Core {
    pub fn node(&self) -> &NodeId {
        &self.node
    }

    pub fn roles(&self) -> &Roles {
        &self.roles
    }

    pub fn desired(&self) -> &Desired {
        &self.desired
    }

    /// The map, and what of it is on disk.
    pub fn keeper(&self) -> &MapKeeper {
        &self.keeper
    }

    /// By worker.
    pub fn routes(&self) -> &[RouteList] {
        &self.routes
    }

    /// By worker.
    pub fn sides(&self) -> &[SidesUp] {
        &self.sides
    }

    /// The name of the worker that is reached there.
    pub fn name_of(&self, address: &SocketAddr) -> Option<&WorkerId> {
        self.names.get(address)
    }

    /// Until the node joins: it was started without etcd.
    pub fn outside(&self) -> Option<&Outside> {
        self.joining.as_ref()?.outside.as_ref()
    }

    pub fn is_registered(&self) -> bool {
        self.is_registered
    }

    /// The cluster has been told that it ends.
    pub fn is_stopping(&self) -> bool {
        self.hand_over.is_told()
    }

    pub fn guard_state(&self) -> &GuardState {
        &self.guard
    }

    pub fn guard_restarts_total(&self) -> u64 {
        self.guard_restarts_total
    }

    pub fn watchdog_trips_total(&self) -> u64 {
        self.watchdog_trips_total
    }
}

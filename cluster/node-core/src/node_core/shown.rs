//! The state that the core shows.

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

    /// Returns the map, and what of it is on disk.
    pub fn keeper(&self) -> &MapKeeper {
        &self.keeper
    }

    /// Returns the route lists, by worker.
    pub fn routes(&self) -> &[RouteList] {
        &self.routes
    }

    /// Returns the state of the ports and gateways, by worker.
    pub fn sides(&self) -> &[SidesUp] {
        &self.sides
    }

    /// Returns the name of the worker that is reached at an address.
    pub fn name_of(&self, address: &SocketAddr) -> Option<&WorkerId> {
        self.names.get(address)
    }

    /// Returns the state of a node that was started without etcd, until it joins.
    pub fn outside(&self) -> Option<&Outside> {
        self.joining.as_ref()?.outside.as_ref()
    }

    pub fn is_registered(&self) -> bool {
        self.is_registered
    }

    /// True if the cluster has been notified that the node ends.
    pub fn is_stopping(&self) -> bool {
        self.hand_over.is_announced()
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

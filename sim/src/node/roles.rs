//! What joins a node's roles with its workers, its guard and the map, as `crates/node/src/cluster/roles_thread.rs` does.

use weir_engine::Side;
use weir_member::roles::{Input, SidesUp, WantedRoute};
use weir_replica::PeerIndex;
use weir_steer::Route;
use weir_steer::wanted::{self, Limits};
use weir_worker::PEERS_MAX;

use super::GuardNews;
use super::process::{Inbox, Process, Set};
use crate::site::{self, Place};

/// A list of routes that the guard has not answered for so long is not waited for.
const ROUTES_PATIENCE_US: u64 = 1_000_000;

/// A list of routes for the guard.
#[derive(Debug)]
pub(crate) struct RouteOrder {
    pub(crate) worker: usize,
    pub(crate) number: u64,
    pub(crate) fence: u32,
    pub(crate) routes: Vec<Route>,
}

impl Process {
    pub(crate) fn take(&mut self, now_us: u64, clock_ms: u64, message: Inbox) {
        match message {
            Inbox::Worker { worker, news } => {
                self.roles.on(clock_ms, Input::News { worker, news });
            }
            Inbox::Rejoined { worker, fence } => {
                let set = &mut self.sets[worker];
                (set.fence, set.retry_us, set.ordered_us) = (fence, Some(now_us), None);
                self.roles.on(clock_ms, Input::Rejoined { worker });
            }
            Inbox::Guard(GuardNews::Set { worker, number }) => {
                let set = &mut self.sets[worker];
                if set.number == number {
                    (set.retry_us, set.ordered_us) = (None, None);
                }
                self.roles.on(clock_ms, Input::RoutesOut { worker, number });
            }
            Inbox::Guard(GuardNews::Fenced { .. }) => {}
        }
    }

    /// What the workers show, and the end of a slot.
    pub(crate) fn end_slot(&mut self, clock_ms: u64) {
        for worker in 0..self.workers.len() {
            let it = &mut self.workers[worker];
            let shards = std::mem::take(&mut it.link_mut().busy);
            // A worker that has not looked knows nothing of its peers' silence.
            let slots = it.link().slots;
            let has_looked = slots != std::mem::replace(&mut self.slots[worker], slots);
            if has_looked {
                for place in 0..PEERS_MAX as u16 {
                    let signs = self.workers[worker].link().signs[usize::from(place)];
                    if let Some(signs) = signs {
                        let place = PeerIndex(place);
                        self.roles.on(clock_ms, Input::Heard { worker, place, signs });
                    }
                }
            }
            if !shards.is_empty() {
                let shards = shards.into_iter().collect();
                self.roles.on(clock_ms, Input::Traffic { worker, shards });
            }
            let sides = self.look_at_sides(worker);
            if sides != self.sides[worker] {
                self.sides[worker] = sides;
                self.roles.on(clock_ms, Input::Sides { worker, sides });
            }
        }
        self.roles.on(clock_ms, Input::Tick);
    }

    fn look_at_sides(&mut self, worker: usize) -> SidesUp {
        let is_up = |side| self.workers[worker].engine().gateway_up(side);
        let (is_access_up, is_internet_up) = (is_up(Side::Access), is_up(Side::Internet));
        self.has_been_up[worker] |= is_access_up && is_internet_up;
        SidesUp { is_ready: self.has_been_up[worker], is_access_up, is_internet_up }
    }

    /// Orders of the roles for the workers, which come at `due_us`.
    pub(crate) fn hand_on_orders(&mut self, due_us: u64) {
        for worker in 0..self.workers.len() {
            while let Some(order) = self.roles.next_order(worker) {
                self.workers[worker].order(due_us, order);
            }
        }
    }

    /// Lists that changed, and lists that are to be tried again, one at a time for each worker.
    pub(crate) fn route_orders(&mut self, now_us: u64) -> Vec<RouteOrder> {
        let is_due = |worker: &usize| {
            let set = &self.sets[*worker];
            let is_awaited =
                set.ordered_us.is_some_and(|at_us| now_us < at_us + ROUTES_PATIENCE_US);
            let is_new = self.roles.routes_number(*worker) != set.number;
            !is_awaited && (is_new || set.retry_us.is_some_and(|at_us| now_us >= at_us))
        };
        let due: Vec<usize> = (0..self.sets.len()).filter(is_due).collect();
        if due.is_empty() {
            return Vec::new();
        }
        let lists = self.wanted_routes();
        let orders = due.into_iter().map(|worker| {
            let number = self.roles.routes_number(worker);
            let (routes, fence) = (lists[worker].clone(), self.sets[worker].fence);
            let ordered_us = Some(now_us);
            self.sets[worker] = Set { number, fence, retry_us: None, ordered_us };
            RouteOrder { worker, number, fence, routes }
        });
        orders.collect()
    }

    fn wanted_routes(&self) -> Vec<Vec<Route>> {
        let workers = self.sides.iter().enumerate().map(|(worker, sides)| {
            let place = Place { node: self.node, worker };
            wanted::Worker {
                access: site::address(place, Side::Access),
                internet: site::address(place, Side::Internet),
                is_access_up: sides.is_access_up,
                is_internet_up: sides.is_internet_up,
            }
        });
        let workers: Vec<wanted::Worker> = workers.collect();
        let routes: Vec<(usize, WantedRoute)> = self.roles.all_wanted_routes();
        let shards: Vec<wanted::Shard<'_>> = routes
            .iter()
            .map(|(worker, route)| wanted::Shard {
                endpoints: std::slice::from_ref(&route.shard.access),
                prefixes: &route.shard.setup.nat.public,
                worker: *worker as weir_steer::WorkerIndex,
                metric: Some(route.metric.0),
                is_last_copy: route.is_last_copy,
                is_held_off: route.is_held_off,
            })
            .collect();
        let limits = Limits { max_routes: usize::MAX, max_next_hops: usize::MAX };
        wanted::wanted(&workers, &shards, limits).expect("routes of one node are not alike")
    }
}

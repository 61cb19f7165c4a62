//! The route lists of a node's workers: what the guard is to set, when, and whether it has.
//!
//! ```text
//!   wanted (numbered) --> ordered --Set--> in the kernel
//!      ^                   |    |
//!      |    NotSet, after  |    | no answer for a second: another list may go
//!      +----- a second ----+    |
//!      +--- the worker was fenced and goes on: at once, under its new fence
//! ```

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weir_config::{ClusterSettings, InterfaceSettings, WorkerSettings};
use weir_roles::{SidesUp, WantedRoute};
use weir_routes::wanted::{self, RouteLimits, WantedError};
use weir_routes::{Fence, Route, WorkerIndex};

/// A list of routes that the guard has not answered for this long is not waited for.
const PATIENCE: Duration = Duration::from_secs(1);
/// A list of routes that the kernel refused in part is set again after this.
const RETRY: Duration = Duration::from_secs(1);

/// The routes of a worker as they were last sent to the guard.
#[derive(Clone, Debug, Default)]
pub struct RouteList {
    /// The number by which the roles count the list.
    number: u64,
    /// The last fence that the worker has acknowledged.
    fence: Fence,
    pub routes: Vec<Route>,
    pub is_set: bool,
    retry: Option<Duration>,
    /// When the list was sent, until the guard has answered: changes gather meanwhile.
    ordered: Option<Duration>,
}

impl RouteList {
    /// True if a list is to be sent now, when the roles want the one of this number. One list is
    /// under way at a time: its cost grows with its length, so changes that come while the guard
    /// sets one go with the next.
    pub(crate) fn is_due(&self, now: Duration, wanted: u64) -> bool {
        let is_awaited = self.ordered.is_some_and(|ordered| now < ordered + PATIENCE);
        let is_new = wanted != self.number;
        !is_awaited && (is_new || self.retry.is_some_and(|retry| now >= retry))
    }

    /// Notes that the list of this number goes to the guard, and returns the fence to send with it.
    pub(crate) fn order(&mut self, now: Duration, number: u64, routes: Vec<Route>) -> Fence {
        let fence = self.fence;
        *self = Self { number, fence, routes, is_set: false, retry: None, ordered: Some(now) };
        fence
    }

    /// Notes that the list of this number cannot be set, and is to be tried again.
    pub(crate) fn impossible(&mut self, now: Duration, number: u64) {
        self.number = number;
        self.retry = Some(now + RETRY);
    }

    pub(crate) fn set(&mut self, number: u64) {
        if self.number == number {
            (self.is_set, self.retry, self.ordered) = (true, None, None);
        }
    }

    pub(crate) fn not_set(&mut self, now: Duration, number: u64) {
        if self.number == number {
            (self.retry, self.ordered) = (Some(now + RETRY), None);
        }
    }

    /// Notes that the guard has counted the worker as dead: the routes are a last resort, or
    /// withdrawn if its thread has ended.
    pub(crate) fn fenced(&mut self) {
        self.is_set = false;
    }

    /// Notes that the worker goes on under this fence: its routes are set again, as the roles want
    /// them now.
    pub(crate) fn rejoined(&mut self, now: Duration, fence: Fence) {
        (self.fence, self.retry, self.ordered) = (fence, Some(now), None);
    }
}

/// The addresses of a worker on both sides: next hops of its routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerAddresses {
    pub access: Ipv4Addr,
    pub internet: Ipv4Addr,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access6: Option<Ipv6Addr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub internet6: Option<Ipv6Addr>,
}

impl WorkerAddresses {
    /// Returns those of a worker with these settings.
    pub fn of(worker: &WorkerSettings) -> Self {
        let ipv6 = |side: &InterfaceSettings| side.ipv6.as_ref().map(|it| it.address.addr());
        Self {
            access: worker.access.address.addr(),
            internet: worker.internet.address.addr(),
            access6: ipv6(&worker.access),
            internet6: ipv6(&worker.internet),
        }
    }
}

/// Returns the routes of all workers, sorted.
pub(crate) fn lists(
    addresses: &[WorkerAddresses],
    sides: &[SidesUp],
    wanted: &[(usize, WantedRoute)],
    cluster: &ClusterSettings,
) -> Result<Vec<Vec<Route>>, WantedError> {
    let workers = addresses.iter().zip(sides).map(|(&addresses, sides)| {
        let SidesUp { is_access_up, is_internet_up, .. } = *sides;
        let WorkerAddresses { access, internet, access6, internet6 } = addresses;
        wanted::RouteWorker { access, internet, access6, internet6, is_access_up, is_internet_up }
    });
    let workers: Vec<wanted::RouteWorker> = workers.collect();
    let shards: Vec<wanted::ServedShard<'_>> = wanted
        .iter()
        .map(|(worker, route)| wanted::ServedShard {
            endpoints: std::slice::from_ref(&route.shard.access),
            endpoints6: route.shard.access6.as_slice(),
            prefixes: &route.shard.setup.nat.public,
            prefixes6: &route.shard.setup.nat.public6,
            worker: *worker as WorkerIndex,
            metric: Some(route.metric.0),
            is_last_copy: route.is_last_copy,
            is_held_off: route.is_held_off,
        })
        .collect();
    let limit = |max: Option<u32>| max.map_or(usize::MAX, |max| max as usize);
    let limits = RouteLimits {
        max_routes: limit(cluster.max_routes),
        max_next_hops: limit(cluster.max_next_hops),
    };
    wanted::wanted(&workers, &shards, limits)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(10);

    fn ordered() -> RouteList {
        let mut list = RouteList::default();
        list.order(NOW, 1, Vec::new());
        list
    }

    #[test]
    fn a_list_goes_when_the_one_before_is_answered_or_after_a_second() {
        let mut list = ordered();
        assert!(!list.is_due(NOW, 2), "the guard is at work");
        assert!(list.is_due(NOW + PATIENCE, 2));
        list.set(1);
        assert!(list.is_set && !list.is_due(NOW, 1) && list.is_due(NOW, 2));
    }

    #[test]
    fn a_list_that_the_kernel_refused_is_tried_again_after_a_second() {
        let mut list = ordered();
        list.not_set(NOW, 1);
        assert!(!list.is_due(NOW, 1) && list.is_due(NOW + RETRY, 1));
        assert!(list.is_due(NOW, 2), "a new list goes at once");
    }

    #[test]
    fn a_worker_that_goes_on_after_a_fence_has_its_routes_set_again_at_once() {
        let mut list = ordered();
        list.set(1);
        list.fenced();
        assert!(!list.is_set && !list.is_due(NOW, 1), "the worker stalls");
        list.rejoined(NOW, Fence(1));
        assert!(list.is_due(NOW, 1));
        assert_eq!(list.order(NOW, 1, Vec::new()), Fence(1));
    }

    #[test]
    fn an_answer_to_a_former_list_does_not_count_for_the_current_one() {
        let mut list = ordered();
        list.set(1);
        list.order(NOW, 2, Vec::new());
        list.set(1);
        list.not_set(NOW, 1);
        assert!(!list.is_set && !list.is_due(NOW, 3), "the second list is under way");
    }
}

//! A switch of one side: it knows the routes that the nodes announce, each change late, and which
//! nodes it reaches.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use weir_engine::Side;
use weir_routes::Route;

use crate::site::{self, WorkerPosition};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Learned {
    metric: u32,
    from: WorkerPosition,
}

#[derive(Debug)]
pub(crate) struct Switch {
    side: Side,
    /// By prefix; the best route first.
    routes: BTreeMap<IpNet, Vec<Learned>>,
    /// By node: true if its routes count.
    trusts: Vec<bool>,
}

impl Switch {
    pub(crate) fn new(side: Side, nodes: usize) -> Self {
        Self { side, routes: BTreeMap::new(), trusts: vec![true; nodes] }
    }

    pub(crate) fn trusts(&self, node: usize) -> bool {
        self.trusts[node]
    }

    /// Marks the link to a node as dead, and forgets all routes learned over it; or trusts it
    /// again.
    pub(crate) fn set_trust(&mut self, node: usize, is_trusted: bool) {
        self.trusts[node] = is_trusted;
        if !is_trusted {
            self.routes.values_mut().for_each(|known| known.retain(|one| one.from.node != node));
        }
    }

    /// Replaces all routes of a worker. Routes of the other side are left out; those of a node that
    /// is not trusted are ignored.
    pub(crate) fn learn(&mut self, from: WorkerPosition, routes: &[Route]) {
        if !self.trusts[from.node] {
            return;
        }
        self.routes.values_mut().for_each(|known| known.retain(|one| one.from != from));
        for route in routes.iter().filter(|route| route.side as usize == self.side as usize) {
            let known = self.routes.entry(route.prefix).or_default();
            known.push(Learned { metric: route.metric, from });
            // The two switches choose differently between two equally good routes.
            let is_access = self.side == Side::Access;
            known.sort_by_key(|one| {
                let node = if is_access { one.from.node } else { usize::MAX - one.from.node };
                (one.metric, node, one.from.worker)
            });
        }
    }

    /// Returns the worker that receives packets to this address.
    pub(crate) fn next_hop(&self, to: IpAddr) -> Option<WorkerPosition> {
        let prefix = match self.side {
            Side::Access => IpNet::from(to),
            Side::Internet => site::public_prefix_of(to),
        };
        self.routes.get(&prefix)?.first().map(|best| best.from)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn the_lowest_metric_wins_until_its_node_is_not_reached() {
        let mut switch = Switch::new(Side::Internet, 2);
        let routes = |metric| {
            let prefix = site::public(1).into();
            let next_hop = Ipv4Addr::UNSPECIFIED.into();
            vec![Route { side: weir_routes::RouteSide::Internet, prefix, metric, next_hop }]
        };
        let [a, b] = [0, 1].map(|node| WorkerPosition { node, worker: 0 });
        let to = site::public(1).addr().into();
        assert_eq!(switch.next_hop(to), None);
        switch.learn(a, &routes(9));
        switch.learn(b, &routes(8));
        assert_eq!(switch.next_hop(to), Some(b));
        switch.set_trust(1, false);
        assert_eq!(switch.next_hop(to), Some(a));
        switch.learn(b, &routes(1));
        assert_eq!(switch.next_hop(to), Some(a), "routes of an untrusted node are ignored");
        switch.set_trust(1, true);
        switch.learn(b, &routes(8));
        switch.learn(b, &routes(10));
        assert_eq!(switch.next_hop(to), Some(a));
    }
}

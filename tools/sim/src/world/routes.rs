//! Carries lists of routes to the switches: each switch learns late and independently, and trusts a
//! link or not.

use weir_engine::Side;
use weir_node_core::{GuardReport, Notice};
use weir_routes::{Route, WorkerIndex};

use super::{Event, World};
use crate::fault::{Fault, Way};
use crate::node::RouteOrder;
use crate::site::WorkerPosition;

impl World {
    pub(super) fn routes_ordered(&mut self, node: usize, life: u64, order: RouteOrder) {
        if let Some(until_us) = self.frozen_until(node) {
            self.queue.push(until_us, Event::Routes { node, life, order: Box::new(order) });
            return;
        }
        let RouteOrder { worker, number, fence, routes } = order;
        let Some(process) = self.process(node, life) else { return };
        let beat = process.workers[worker].link().beat;
        if process.guard.takes(worker, fence, !routes.is_empty(), beat) {
            self.send_to_switches(WorkerPosition { node, worker }, routes);
            let worker = worker as WorkerIndex;
            self.send_to_core(node, Notice::Guard(GuardReport::Set { worker, number }));
        }
    }

    /// Announces a change of a worker's kernel routes to both switches, each with its own delay.
    pub(super) fn send_to_switches(&mut self, from: WorkerPosition, routes: Vec<Route>) {
        self.nodes[from.node].kernel_routes[from.worker].clone_from(&routes);
        for side in Side::ALL {
            self.send_to_switch(side, from, routes.clone());
        }
    }

    fn send_to_switch(&mut self, side: Side, from: WorkerPosition, routes: Vec<Route>) {
        let slow_ms = self.active.values().map(|fault| match *fault {
            Fault::SlowSwitch { side: of, by_ms, .. } if of == side => by_ms,
            _ => 0,
        });
        let slow_us = slow_ms.max().unwrap_or(0) * 1_000;
        let range = (self.options.switch_min_us, self.options.switch_max_us);
        let delay_us = self.network_dice.between(range) + slow_us;
        let last_us = &mut self.nodes[from.node].routes_due_us[side as usize];
        *last_us = (self.now_us + delay_us).max(*last_us);
        let at_us = *last_us;
        self.queue.push(at_us, Event::Learn { side, from, routes });
    }

    pub(super) fn learn(&mut self, side: Side, from: WorkerPosition, routes: &[Route]) {
        // Announcements into a cut are repeated when it is mended; a dead machine announces
        // nothing.
        if !self.is_link_good(from.node, side) {
            return;
        }
        self.timeline.add(self.now_us, || {
            let of_side = routes.iter().filter(|route| route.side as usize == side as usize);
            let list: Vec<String> =
                of_side.map(|route| format!("{} {}", route.prefix, route.metric)).collect();
            format!(
                "{} switch: n{}/{} has [{}]",
                side.name(),
                from.node,
                from.worker,
                list.join(", ")
            )
        });
        self.switches[side as usize].learn(from, routes);
        self.look_at_hops();
    }

    /// Whether the routing daemon runs and a frame would pass both ways, so that BGP and BFD keep
    /// the session.
    fn is_link_good(&self, node: usize, side: Side) -> bool {
        self.is_running_machine(node)
            && !self.is_unplugged(node, side, Way::In)
            && !self.is_unplugged(node, side, Way::Out)
            && self.bird_gone_since(node).is_none()
    }

    /// Notes changes of a node's links, which the switches detect later.
    pub(super) fn look_at_links(&mut self, node: usize) {
        for side in Side::ALL {
            let is_good = self.is_link_good(node, side);
            let link = &mut self.links[node][side as usize];
            if link.is_good != is_good {
                if is_good {
                    self.queue.push(self.now_us, Event::Resend { node, side });
                }
                *link = super::LinkState { is_good, since_us: self.now_us };
                let after_us = if is_good { self.options.trust_us } else { self.options.detect_us };
                self.queue.push(self.now_us + after_us, Event::Detect { node, side });
            }
        }
    }

    pub(super) fn detect(&mut self, node: usize, side: Side) {
        let link = self.links[node][side as usize];
        let after_us = if link.is_good { self.options.trust_us } else { self.options.detect_us };
        let is_trusted = self.switches[side as usize].trusts(node);
        // Another look follows for the changes since.
        if self.now_us < link.since_us + after_us || is_trusted == link.is_good {
            return;
        }
        self.switches[side as usize].set_trust(node, link.is_good);
        let what = if link.is_good { "trusts" } else { "has lost" };
        self.timeline.add(self.now_us, || format!("{} switch {what} n{node}", side.name()));
        if link.is_good {
            self.resend(node, side);
        }
    }

    /// Announces all routes again, as the session to a switch continues or starts again.
    pub(super) fn resend(&mut self, node: usize, side: Side) {
        for worker in 0..self.options.workers_per_node {
            let routes = self.nodes[node].kernel_routes[worker].clone();
            self.send_to_switch(side, WorkerPosition { node, worker }, routes);
        }
    }
}

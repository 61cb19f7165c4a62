//! Disturbances that must lose no packet: workers that stall repeatedly, one after the other, and a
//! node that hands over. While workers stall in turn, no shard is without a route, and routes move
//! only a few times.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::{Event, World};
use crate::site::{self, WorkerPosition};
use crate::traffic::Stage;

/// Most changes of the next hop of a shard at a switch: each of two workers is fenced twice before
/// its routes are held off, a change may come in two steps, in the end the routes come back, and
/// the controller may still hand the shard back after the fault before.
const MOVES_MAX: u32 = 12;
/// Late packets arrive within this time after the last stall.
const ARRIVES_US: u64 = 2_000_000;

/// Next hops by the address that a switch is asked for, and how often each has changed.
type Hops = BTreeMap<IpAddr, (Option<WorkerPosition>, u32)>;

/// State that must not change while a whole cluster is disturbed. The watch is dropped when
/// something else fails.
#[derive(Debug)]
pub(super) struct LossWatch {
    /// The disturbance, for people.
    what: &'static str,
    /// Time since which the disturbance is over.
    over_us: Option<u64>,
    /// The next hops, while workers stall in turn.
    hops: Option<Hops>,
    /// Flows of protected sockets, by number, with the packets that they had lost before.
    flows: Vec<(usize, (u64, u64))>,
}

impl World {
    /// Begins stalls of `positions` in turn. `is_only`: the cluster was whole, and nothing else
    /// fails.
    pub(super) fn begin_stalls(
        &mut self,
        positions: [WorkerPosition; 2],
        plan: &[(u64, usize, u64)],
        is_only: bool,
    ) {
        for &(after_ms, turn, ms) in plan {
            let at_us = self.now_us + 1_000 * after_ms;
            let until_us = at_us + 1_000 * ms;
            self.queue.push(at_us, Event::StandStill { position: positions[turn], until_us });
        }
        let what = "workers stood still for less than late packets may wait";
        self.watch_losses(what, Some(BTreeMap::new()), is_only);
        self.look_at_hops();
    }

    /// Begins a watch while a node hands over: nothing may be lost.
    pub(super) fn watch_hand_over(&mut self, is_only: bool) {
        self.watch_losses("a node has handed over", None, is_only);
    }

    fn watch_losses(&mut self, what: &'static str, hops: Option<Hops>, is_only: bool) {
        // Packets that wait for copies are dropped when their worker has stalled.
        let is_lossless = self.options.loss_ppm == 0 && self.options.commit.is_none();
        let flows = self.traffic.flows.iter().enumerate();
        let flows = flows.filter(|(_, flow)| {
            let is_protected = self.traffic.sockets[flow.socket].protected.is_some();
            is_lossless && flow.stage == Stage::Established && is_protected
        });
        let flows = flows.map(|(number, flow)| (number, flow.missing())).collect();
        let watch = LossWatch { what, over_us: None, hops, flows };
        self.checks.losses = is_only.then_some(watch);
    }

    /// Stalls the worker, whatever it is doing.
    pub(super) fn stand_still(
        &mut self,
        WorkerPosition { node, worker }: WorkerPosition,
        until_us: u64,
    ) {
        if let Some(process) = &mut self.nodes[node].process {
            self.timeline.add(self.now_us, || format!("n{node}/{worker} stands still"));
            let worker = &mut process.workers[worker];
            worker.stalled_until_us = worker.stalled_until_us.max(until_us);
        }
    }

    /// Checks the next hops, when a switch has learned routes.
    pub(super) fn look_at_hops(&mut self) {
        let Some(mut watch) = self.checks.losses.take() else { return };
        let Some(hops) = &mut watch.hops else {
            self.checks.losses = Some(watch);
            return;
        };
        for shard in self.shards() {
            for (side, to) in site::routed(shard.0) {
                let hop = self.switches[side as usize].next_hop(to);
                let seen = hops.entry(to).or_insert((hop, 0));
                if seen.0 != hop {
                    *seen = (hop, seen.1 + 1);
                }
                let side = side.name();
                if hop.is_none() {
                    self.fail(format!(
                        "the {side} switch has no route of shard {shard}: its workers stood still in turn"
                    ));
                } else if seen.1 > MOVES_MAX {
                    self.fail(format!(
                        "the {side} switch has changed the route of shard {shard} {} times while its workers stood still in turn",
                        seen.1
                    ));
                }
            }
        }
        self.checks.losses = Some(watch);
    }

    /// Checks at every look whether the late packets have arrived.
    pub(super) fn look_at_late_packets(&mut self, is_over: bool) {
        let Some(mut watch) = self.checks.losses.take_if(|_| is_over) else { return };
        let flows = &self.traffic.flows;
        watch.flows.retain(|&(flow, before)| {
            let missing = flows[flow].missing();
            missing.0 > before.0 || missing.1 > before.1
        });
        let over_us = *watch.over_us.get_or_insert(self.now_us);
        if self.now_us < over_us + ARRIVES_US {
            self.checks.losses = Some(watch);
        } else if let Some(&(number, before)) = watch.flows.first() {
            let flow = &flows[number];
            let socket = &self.traffic.sockets[flow.socket];
            let lost = format!(
                "{socket} has lost packets up and down while {}: {:?}, {before:?} before",
                watch.what,
                flow.missing()
            );
            self.fail(lost);
        }
    }
}

//! Strikes and mends faults.

use weir_node_core::{KnownMap, Notice};

use super::{Event, World};
use crate::fault::{Fault, stalls};
use crate::site::WorkerPosition;

impl World {
    /// Whether the whole machine is stalled.
    pub(super) fn is_frozen(&self, node: usize) -> bool {
        let is_it = |fault: &Fault| matches!(*fault, Fault::Freeze { node: of, .. } if of == node);
        self.active.values().any(is_it)
    }

    /// Returns until when all of a node's processes are stalled, its guard included; `None` if they
    /// run.
    pub(super) fn frozen_until(&self, node: usize) -> Option<u64> {
        let ends = self.active.iter().filter_map(|(&number, fault)| match *fault {
            Fault::Freeze { node: of, .. } | Fault::Suspend { node: of, .. } if of == node => {
                Some(self.end_of(number))
            }
            _ => None,
        });
        ends.max()
    }

    /// Returns until when the thread of a node's core is stalled; `None` if it runs.
    pub(super) fn core_stopped_until(&self, node: usize) -> Option<u64> {
        let ends = self.active.iter().filter_map(|(&number, fault)| match *fault {
            Fault::StallCore { node: of, .. } if of == node => Some(self.end_of(number)),
            _ => None,
        });
        ends.max().max(self.stopped_until(node))
    }

    /// Returns since when the routing daemon of a node is gone; `None` if it runs.
    pub(super) fn bird_gone_since(&self, node: usize) -> Option<u64> {
        let began = self.active.iter().filter_map(|(&number, fault)| match *fault {
            Fault::BirdDown { node: of, .. } if of == node => Some(self.struck_us[number]),
            _ => None,
        });
        began.min()
    }

    fn end_of(&self, number: usize) -> u64 {
        self.struck_us[number] + 1_000 * self.faults[number].fault.ms()
    }

    pub(super) fn strike(&mut self, number: usize) {
        let fault = self.faults[number].fault.clone();
        self.struck_us[number] = self.now_us;
        self.timeline.add(self.now_us, || format!("--- {fault}"));
        self.note(2_000 + number as u64);
        let is_only = self.checks.strike(&fault, &mut self.traffic);
        self.promise(&fault, is_only);
        if is_only && fault.is_death() {
            self.protect_left();
        }
        let protected = self.traffic.count_protected();
        self.timeline.add(self.now_us, || format!("{protected} sockets must keep their mappings"));
        let until_us = self.end_of(number);
        if until_us > self.now_us {
            self.active.insert(number, fault.clone());
            self.queue.push(until_us, Event::Mend(number));
        }
        match fault {
            Fault::Crash { node, keeps_disk, .. } => {
                self.nodes[node].is_up = false;
                self.end(node);
                // Processes of an earlier start of the machine are unknown to the next one.
                self.control.forget_lives(node);
                if !keeps_disk {
                    self.nodes[node].disk = KnownMap::default();
                }
            }
            Fault::PowerLoss { nodes, .. } => {
                for node in nodes {
                    self.nodes[node].is_up = false;
                    self.end(node);
                    self.nodes[node].disk = KnownMap::default();
                    self.control.forget_lives(node);
                }
            }
            Fault::Kill { node, .. } => self.end(node),
            Fault::Stop { node, .. } => {
                if let Some(process) = &mut self.nodes[node].process {
                    process.stopped_until_us = process.stopped_until_us.max(until_us);
                }
            }
            Fault::Stall { node, worker, .. } => {
                if let Some(process) = &mut self.nodes[node].process {
                    let worker = &mut process.workers[worker];
                    worker.stalled_until_us = worker.stalled_until_us.max(until_us);
                }
            }
            Fault::StallInTurn { nodes, worker, seed, ms } => {
                let positions = nodes.map(|node| WorkerPosition { node, worker });
                self.begin_stalls(positions, &stalls(seed, ms), is_only);
            }
            Fault::Restart { node, ms } => {
                self.watch_hand_over(is_only && !self.active.values().any(Fault::is_weather));
                self.begin_to_stop(node, ms);
            }
            Fault::Site { ms } => {
                for node in 0..self.nodes.len() {
                    self.nodes[node].is_up = false;
                    self.end(node);
                    self.control.forget_lives(node);
                    self.queue.push(self.now_us + 1_000 * ms, Event::PowerOn(node));
                }
                self.control.strike(self.now_us, &fault);
            }
            _ => self.control.strike(self.now_us, &fault),
        }
        self.check_left();
        (0..self.nodes.len()).for_each(|node| self.look_at_links(node));
        self.wake_control();
    }

    pub(super) fn mend(&mut self, number: usize) {
        let Some(fault) = self.active.remove(&number) else { return };
        let is_weather = fault.is_weather();
        if !is_weather {
            self.timeline.add(self.now_us, || format!("+++ over: {fault}"));
        }
        match fault {
            Fault::Crash { .. } | Fault::PowerLoss { .. } => {
                for &node in fault.dark_nodes() {
                    self.power_on(node);
                }
            }
            Fault::Kill { node, .. } => self.queue.push(self.now_us, Event::Start(node)),
            _ => self.control.mend(self.now_us, &fault, self.active.values()),
        }
        for node in 0..self.nodes.len() {
            self.look_at_links(node);
            for worker in 0..self.options.workers_per_node {
                self.wake(WorkerPosition { node, worker }, 0);
            }
        }
        self.wake_control();
    }

    /// Powers a machine on, unless another fault keeps it off.
    pub(super) fn power_on(&mut self, node: usize) {
        if !self.active.values().any(|fault| fault.dark_nodes().contains(&node)) {
            self.nodes[node].is_up = true;
            // The machine boots.
            self.queue.push(self.now_us + 200_000, Event::Start(node));
        }
    }

    /// Stops a node's process, as SIGTERM does.
    fn begin_to_stop(&mut self, node: usize, down_ms: u64) {
        let it = &mut self.nodes[node];
        if it.process.is_some() && it.stops_for_ms.is_none() {
            it.stops_for_ms = Some(down_ms);
            self.send_to_core(node, Notice::HandOver);
        }
    }

    /// Whether something is broken, or a process is ending.
    pub(super) fn is_under_fault(&self) -> bool {
        let is_ending =
            self.nodes.iter().any(|node| node.process.is_none() || node.stops_for_ms.is_some());
        is_ending || self.active.values().any(|fault| !fault.is_weather())
    }
}

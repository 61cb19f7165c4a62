//! The nodes' processes: starts, turns, roles, guards, ends.

use std::time::Duration;

use weir_node_core::first_look::FoundCluster;
use weir_node_core::{CoreAction, CoreEvent, GuardReport, KnownMap, Notice};
use weir_routes::WorkerIndex;
use weir_routes::difference::last_resort;
use weir_routes::watchdog::Alarm;

use super::{Event, World};
use crate::fault::Fault;
use crate::node::{Message, Process, ProcessConfig, RouteOrder, Turn};
use crate::site::{WorkerPosition, live_settings};

const SLOT_US: u64 = 10_000;
/// Cost of a turn, and of each packet in it.
const TURN_US: u64 = 5;
const PACKET_US: u64 = 1;
/// Duration of a save, least and most.
const DISK_US: (u64, u64) = (200, 8_000);
/// Interval of the turns of a worker that holds packets and checks whether they may leave.
const HOLD_US: u64 = 50;
/// Longest time for the shutdown notice.
const SHUTDOWN_NOTICE_MAX_US: u64 = 10_000_000;

impl World {
    /// True if the machine has power and is not stalled.
    pub(super) fn is_running_machine(&self, node: usize) -> bool {
        self.nodes[node].is_up && !self.is_frozen(node)
    }

    /// Returns the process of a node, if this life is the present one.
    pub(super) fn process(&mut self, node: usize, life: u64) -> Option<&mut Process> {
        let node = &mut self.nodes[node];
        node.process.as_mut().filter(|_| node.life == life)
    }

    /// Returns until when the whole process is stopped; `None` if it runs.
    pub(super) fn stopped_until(&self, node: usize) -> Option<u64> {
        let stopped_us = self.nodes[node].process.as_ref().map_or(0, |it| it.stopped_until_us);
        let stopped_us = Some(stopped_us).filter(|until_us| *until_us > self.now_us);
        stopped_us.max(self.frozen_until(node))
    }

    /// Returns the factor by which everything takes longer.
    pub(super) fn slowness(&self, node: usize) -> u64 {
        let slow = self.active.values().filter_map(|fault| match *fault {
            Fault::Slow { node: of, factor, .. } if of == node => Some(factor),
            _ => None,
        });
        slow.max().unwrap_or(1)
    }

    /// Starts a process, which looks for its cluster.
    pub(super) fn start(&mut self, node: usize) {
        let it = &self.nodes[node];
        if it.process.is_some() || !it.is_up || self.control.plane.is_started(node) {
            return;
        }
        let skew_ppm = it.clock.skew_ppm();
        self.control.plane.start_node(self.now_us, node, &it.name, it.disk.clone(), skew_ppm);
        self.wake_control();
    }

    /// Starts the workers of a process that has found its cluster.
    pub(super) fn begin_process(&mut self, node: usize, found: FoundCluster) {
        let Self { nodes, options, node_dice, policy, .. } = self;
        let desired = found.desired.clone();
        let it = &nodes[node];
        let clock_us = it.clock.at(self.now_us);
        let (name, disk) = (&it.name, &it.disk);
        let without = if found.is_without_etcd { " without etcd" } else { "" };
        let config = ProcessConfig { node, name, clock_us, disk, found, options };
        let mut process = Process::new(config, node_dice);
        for (worker, it) in process.workers.iter_mut().enumerate() {
            let position = WorkerPosition { node, worker };
            it.begin_with(live_settings(options, position, 0, &desired, policy.of(&desired)));
            it.start(clock_us);
        }
        self.control.plane.begin_life(node, process.boots[0].to_string());
        let it = &mut self.nodes[node];
        it.life += 1;
        it.process = Some(process);
        let life = it.life;
        let boot = it.process.as_ref().expect("the process was just created").boots[0].0;
        self.block_logs.open(self.now_us, node, it.name.as_str(), boot);
        self.expect_nothing(node);
        self.timeline.add(self.now_us, || format!("n{node} starts{without}, life {life}"));
        for worker in 0..self.options.workers_per_node {
            self.wake(WorkerPosition { node, worker }, 0);
        }
        self.queue.push(self.now_us + SLOT_US, Event::Slot { node, life });
        self.queue.push(self.now_us + SLOT_US, Event::Guard { node, life });
        self.note(node as u64);
    }

    /// Ends the process and all that was under way in it. Its guard withdraws the routes, if the
    /// machine runs.
    pub(super) fn end(&mut self, node: usize) {
        self.control.end(node);
        let it = &mut self.nodes[node];
        // This also ends a process that was about to leave.
        it.life += 1;
        it.stops_for_ms = None;
        self.stop_working(node);
    }

    /// Ends all of the process except its client of etcd, which may still have a shutdown notice to
    /// send.
    fn stop_working(&mut self, node: usize) {
        if self.nodes[node].process.is_none() {
            return;
        }
        let workers = 0..self.options.workers_per_node;
        let tables = workers.map(|worker| self.table(WorkerPosition { node, worker })).collect();
        self.commits.lose(self.now_us, node, tables);
        let it = &mut self.nodes[node];
        it.process = None;
        it.life += 1;
        self.block_logs.cut(node);
        self.timeline.add(self.now_us, || format!("n{node} has ended"));
        for worker in 0..self.options.workers_per_node {
            self.send_to_switches(WorkerPosition { node, worker }, Vec::new());
        }
        self.note(1_000 + node as u64);
    }

    /// Schedules the next turn of a worker that has work, unless an earlier one is due.
    pub(super) fn wake(&mut self, position: WorkerPosition, after_us: u64) {
        let due_us = self.now_us + after_us * self.slowness(position.node);
        let it = &mut self.nodes[position.node];
        let life = it.life;
        let Some(process) = &mut it.process else { return };
        let worker = &mut process.workers[position.worker];
        let is_later = worker.turn_due_us > due_us || worker.turn_due_us <= self.now_us;
        if is_later {
            worker.turn_due_us = due_us;
            self.queue.push(due_us, Event::Turn { position, life });
        }
    }

    pub(super) fn turn(&mut self, position: WorkerPosition, life: u64) {
        let WorkerPosition { node, worker } = position;
        let (now_us, stopped_until) = (self.now_us, self.stopped_until(node));
        let slowness = self.slowness(node);
        let it = &mut self.nodes[node];
        let clock_us = it.clock.at(now_us);
        let Some(process) = it.process.as_mut().filter(|_| it.life == life) else { return };
        let (fence, free) = (process.guard.fences[worker], process.inbox.room(worker));
        let it = &mut process.workers[worker];
        // An earlier turn was scheduled meanwhile.
        if it.turn_due_us != now_us {
            return;
        }
        let stands_until =
            stopped_until.max(Some(it.stalled_until_us)).filter(|until| *until > now_us);
        if let Some(until_us) = stands_until {
            it.turn_due_us = until_us;
            self.queue.push(until_us, Event::Turn { position, life });
            return;
        }
        // A stall that was not reported for lack of room comes before all other events.
        let room = free.saturating_sub(usize::from(it.stall.is_waiting()));
        let turn = it.turn(now_us, clock_us, fence, room);
        turn.events.iter().for_each(|event| self.block_logs.take(now_us, node, event));
        if let Some((fence, waited)) = turn.rejoined {
            self.timeline.add(now_us, || format!("n{node}/{worker} goes on"));
            it.stall.add(fence, waited);
        }
        let stall = if turn.worker_events.len() < free { it.stall.take() } else { None };
        let cost_us = (TURN_US + PACKET_US * turn.packets as u64) * slowness;
        let next_us = match &turn {
            Turn { is_busy: true, .. } => cost_us,
            Turn { is_holding: true, .. } => HOLD_US * slowness,
            _ => self.options.idle_turn_us * slowness,
        };
        it.turn_due_us = now_us + next_us.max(cost_us);
        self.queue.push(it.turn_due_us, Event::Turn { position, life });
        self.send_all(position, cost_us);
        if let Some((fence, waited)) = stall {
            let event = CoreEvent::Rejoined { worker, fence, waited };
            self.send_to_core(node, Message::FromWorker { worker, event });
        }
        for event in turn.worker_events {
            self.timeline.add(now_us, || format!("n{node}/{worker}: {event:?}"));
            let event = CoreEvent::Worker { worker, event };
            self.send_to_core(node, Message::FromWorker { worker, event });
        }
    }

    /// Sends the frames that the worker has made.
    fn send_all(&mut self, position: WorkerPosition, after_us: u64) {
        let Some(process) = &mut self.nodes[position.node].process else { return };
        let mut frames = Vec::new();
        process.workers[position.worker].take_frames(|side, frame| frames.push((side, frame)));
        self.check_commit(position, &frames);
        for (side, frame) in frames {
            self.send(position, side, frame, after_us);
        }
    }

    /// Lets the workers of a process send the packets that they hold, at its orderly end.
    fn let_go(&mut self, node: usize) {
        let clock_us = self.nodes[node].clock.at(self.now_us);
        for worker in 0..self.options.workers_per_node {
            if let Some(process) = &mut self.nodes[node].process {
                let events = process.workers[worker].let_go(clock_us);
                events.iter().for_each(|event| self.block_logs.take(self.now_us, node, event));
            }
            self.send_all(WorkerPosition { node, worker }, 0);
        }
        self.block_logs.close(self.now_us, node);
    }

    pub(super) fn slot(&mut self, node: usize, life: u64) {
        if let Some(until_us) = self.core_stopped_until(node) {
            self.queue.push(until_us, Event::Slot { node, life });
            return;
        }
        if self.process(node, life).is_none() {
            return;
        }
        self.block_logs.write(self.now_us, node);
        self.take_messages(node);
        let now = self.core_now(node);
        let Some(process) = self.process(node, life) else { return };
        let slots = process.slots();
        process.core.step(now, CoreEvent::Slot(slots));
        self.queue.push(self.now_us + SLOT_US, Event::Slot { node, life });
        self.carry_out(node);
    }

    /// Returns the time of a node's core.
    pub(super) fn core_now(&self, node: usize) -> Duration {
        Duration::from_micros(self.nodes[node].clock.at(self.now_us))
    }

    /// Passes the waiting messages to the core and carries out its actions, unless it is stalled.
    pub(super) fn carry_out(&mut self, node: usize) {
        if self.core_stopped_until(node).is_some() {
            return;
        }
        let delay_us = self.node_dice.below(self.options.message_us) * self.slowness(node);
        let (due_us, now) = (self.now_us + delay_us, self.core_now(node));
        self.take_messages(node);
        let Some(process) = &mut self.nodes[node].process else { return };
        process.core.turn(now);
        while let Some(process) = &mut self.nodes[node].process
            && let Some(action) = process.core.next_action()
        {
            self.act(node, due_us, action);
        }
        self.check_rejoined(node);
        self.wake_control();
    }

    fn act(&mut self, node: usize, due_us: u64, action: CoreAction) {
        let (now_us, life) = (self.now_us, self.nodes[node].life);
        let Some(process) = &mut self.nodes[node].process else { return };
        match action {
            CoreAction::Command { worker, command } => {
                process.workers[worker].command(due_us, command)
            }
            CoreAction::Write { shard, expected, entry } => {
                self.timeline.add(now_us, || {
                    let entry = super::checks::show_entry(&entry);
                    format!("n{node} wants of shard {shard}: {entry}")
                });
                self.check_synced(node, shard, &entry);
                self.control.plane.write(node, shard, expected, &entry);
            }
            CoreAction::SetRoutes { worker, number, fence, routes } => {
                self.note_ordered(node, worker, fence);
                let order = RouteOrder { worker, number, fence, routes };
                self.check_routes(node, &order);
                let delay_us = 100 + self.node_dice.below(2_000) * self.slowness(node);
                let order = Box::new(order);
                self.queue.push(now_us + delay_us, Event::Routes { node, life, order });
            }
            CoreAction::SetStake { worker, stake } => process.stakes[worker] = stake,
            CoreAction::Save(map) => {
                let delay_us = self.node_dice.between(DISK_US) * self.slowness(node);
                self.queue.push(now_us + delay_us, Event::Saved { node, life, map });
            }
            CoreAction::Join(record) => self.control.plane.take_part(now_us, node, &record),
            CoreAction::Register(record) => self.control.plane.update_node(now_us, node, &record),
            CoreAction::TakeSettings { number, desired } => {
                let flows = self.policy.of(&desired);
                for (worker, it) in process.workers.iter_mut().enumerate() {
                    let position = WorkerPosition { node, worker };
                    let settings = live_settings(&self.options, position, number, &desired, flows);
                    it.take_settings(due_us, settings);
                }
            }
            CoreAction::HandedOver => {
                self.timeline.add(now_us, || format!("n{node} has handed over"));
                process.is_ending = true;
                self.send_to_core(node, Notice::End);
            }
            CoreAction::Ended => self.ended(node),
        }
    }

    /// Takes the end of a save.
    pub(super) fn saved(&mut self, node: usize, life: u64, map: Box<KnownMap>) {
        if let Some(until_us) = self.stopped_until(node) {
            self.queue.push(until_us, Event::Saved { node, life, map });
        } else if self.process(node, life).is_some() {
            self.nodes[node].disk = *map;
            self.send_to_core(node, Notice::Saved(Ok(())));
        }
    }

    pub(super) fn guard(&mut self, node: usize, life: u64) {
        if let Some(until_us) = self.frozen_until(node) {
            self.queue.push(until_us, Event::Guard { node, life });
            return;
        }
        let clock_us = self.nodes[node].clock.at(self.now_us);
        let Some(process) = self.process(node, life) else { return };
        let beats: Vec<u64> = process.workers.iter().map(|worker| worker.link().beat).collect();
        let alarms = process.guard.look(clock_us, &beats, &process.stakes);
        let next_us = process.guard.interval_us().unwrap_or(SLOT_US);
        self.queue.push(self.now_us + next_us, Event::Guard { node, life });
        for alarm in alarms {
            match alarm {
                Alarm::Silent(worker) | Alarm::Gone(worker) => {
                    let is_silent = matches!(alarm, Alarm::Silent(_));
                    let worker = usize::from(worker);
                    self.timeline
                        .add(self.now_us, || format!("n{node}/{worker} is fenced by its guard"));
                    let routes = &self.nodes[node].kernel_routes[worker];
                    let routes = if is_silent { last_resort(routes) } else { Vec::new() };
                    self.send_to_switches(WorkerPosition { node, worker }, routes);
                    let worker = worker as WorkerIndex;
                    self.send_to_core(node, Notice::Guard(GuardReport::Fenced { worker }));
                }
                Alarm::Hung(worker) => {
                    self.timeline.add(self.now_us, || format!("n{node}/{worker} hangs: killed"));
                    self.end(node);
                    // The service manager starts it again.
                    self.queue.push(self.now_us + 100_000, Event::Start(node));
                    return;
                }
            }
        }
    }

    /// Ends a process in an orderly way, once the map is on disk: routes are withdrawn, workers
    /// end, and the shutdown notice is sent.
    fn ended(&mut self, node: usize) {
        let Some(process) = &self.nodes[node].process else { return };
        let boots = process.boots.clone();
        self.let_go(node);
        self.stop_working(node);
        self.control.plane.leave(self.now_us, node, boots);
        let (life, began_us) = (self.nodes[node].life, self.now_us);
        self.queue.push(self.now_us, Event::Leave { node, life, began_us });
    }

    /// Starts a node again that has sent its shutdown notice, or has tried for long enough.
    pub(super) fn leave(&mut self, node: usize, life: u64, began_us: u64) {
        self.wake_control();
        if self.nodes[node].life != life {
            return;
        }
        let is_late = self.now_us - began_us >= SHUTDOWN_NOTICE_MAX_US;
        if self.control.plane.has_left(node) || is_late {
            if self.control.plane.is_unsent(node) {
                self.nodes[node].disk.set_ended(false);
            }
            self.control.end(node);
            let down_ms = self.nodes[node].stops_for_ms.take().unwrap_or_default();
            self.queue.push(self.now_us + 1_000 * down_ms, Event::Start(node));
        } else {
            self.queue.push(self.now_us + 10_000, Event::Leave { node, life, began_us });
        }
    }
}

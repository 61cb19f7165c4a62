//! The nodes' processes: starts, turns, roles, guards, ends.

use weir_member::roles::{AtStake, Input};
use weir_steer::Stake;
use weir_steer::difference::last_resort;
use weir_steer::watchdog::Alarm;

use super::{Event, World};
use crate::fault::Fault;
use crate::node::{GuardNews, Inbox, Process, ProcessConfig, Turn};
use crate::site::Place;

const SLOT_US: u64 = 10_000;
/// What a turn costs, and each packet of it.
const TURN_US: u64 = 5;
const PACKET_US: u64 = 1;
/// A worker that holds packets does not rest: so often it looks whether they may leave.
const HOLD_US: u64 = 50;
/// Changes of entries that are written together.
const CHANGES_MAX: usize = 256;
/// The longest time for a hand-over, and the quiet that ends it.
const HAND_OVER_MAX_US: u64 = 60_000_000;
const SETTLE_US: u64 = 1_000_000;
/// The longest time for the last word.
const FAREWELL_MAX_US: u64 = 10_000_000;

impl World {
    /// A machine that has power and goes on.
    pub(super) fn is_running_machine(&self, node: usize) -> bool {
        self.nodes[node].is_up && !self.is_frozen(node)
    }

    /// The process of a node in this life of it.
    pub(super) fn process(&mut self, node: usize, life: u64) -> Option<&mut Process> {
        let node = &mut self.nodes[node];
        node.process.as_mut().filter(|_| node.life == life)
    }

    /// Until when nothing of the process goes on. None: it does.
    pub(super) fn stopped_until(&self, node: usize) -> Option<u64> {
        let stopped_us = self.nodes[node].process.as_ref().map_or(0, |it| it.stopped_until_us);
        let stopped_us = Some(stopped_us).filter(|until_us| *until_us > self.now_us);
        stopped_us.max(self.frozen_until(node))
    }

    /// How many times as long everything takes.
    fn slowness(&self, node: usize) -> u64 {
        let slow = self.active.values().filter_map(|fault| match *fault {
            Fault::Slow { node: of, factor, .. } if of == node => Some(factor),
            _ => None,
        });
        slow.max().unwrap_or(1)
    }

    pub(super) fn start(&mut self, node: usize) {
        if self.nodes[node].process.is_some() || !self.nodes[node].is_up {
            return;
        }
        let Self { nodes, options, node_dice, .. } = self;
        let it = &nodes[node];
        let (name, known_epochs) = (&it.name, &it.known_epochs);
        let config = ProcessConfig { node, name, known_epochs, options };
        let mut process = Process::new(&config, node_dice);
        let clock_us = it.clock.at(self.now_us);
        process.workers.iter_mut().for_each(|worker| worker.start(clock_us));
        process.roles.on(clock_us / 1_000, Input::Tick);
        self.control.start(
            self.now_us,
            node,
            &it.name,
            process.registration(),
            it.clock.skew_ppm(),
        );
        let it = &mut self.nodes[node];
        it.life += 1;
        it.process = Some(process);
        let life = it.life;
        self.timeline.say(self.now_us, || format!("n{node} starts, life {life}"));
        for worker in 0..self.options.workers_per_node {
            self.wake(Place { node, worker }, 0);
        }
        self.queue.push(self.now_us + SLOT_US, Event::Slot { node, life });
        self.queue.push(self.now_us + SLOT_US, Event::Guard { node, life });
        self.note(node as u64);
    }

    /// The process is gone, and all that was under way in it. Its guard takes the routes away, if the machine goes on.
    pub(super) fn end(&mut self, node: usize) {
        self.control.end(node);
        self.stop_working(node);
    }

    /// Nothing of the process runs any more, but what is left to be said to etcd.
    fn stop_working(&mut self, node: usize) {
        if self.nodes[node].process.is_none() {
            return;
        }
        let workers = 0..self.options.workers_per_node;
        let tables = workers.map(|worker| self.table(Place { node, worker })).collect();
        self.commits.lose(self.now_us, node, tables);
        let it = &mut self.nodes[node];
        it.process = None;
        it.life += 1;
        self.timeline.say(self.now_us, || format!("n{node} has ended"));
        for worker in 0..self.options.workers_per_node {
            self.tell_switches(Place { node, worker }, Vec::new());
        }
        self.note(1_000 + node as u64);
    }

    /// A worker has something to do: its next turn comes so soon, if not sooner.
    pub(super) fn wake(&mut self, place: Place, after_us: u64) {
        let due_us = self.now_us + after_us * self.slowness(place.node);
        let it = &mut self.nodes[place.node];
        let life = it.life;
        let Some(process) = &mut it.process else { return };
        let worker = &mut process.workers[place.worker];
        let is_later = worker.turn_due_us > due_us || worker.turn_due_us <= self.now_us;
        if is_later {
            worker.turn_due_us = due_us;
            self.queue.push(due_us, Event::Turn { place, life });
        }
    }

    pub(super) fn turn(&mut self, place: Place, life: u64) {
        let Place { node, worker } = place;
        let (now_us, stopped_until) = (self.now_us, self.stopped_until(node));
        let slowness = self.slowness(node);
        let it = &mut self.nodes[node];
        let clock_us = it.clock.at(now_us);
        let Some(process) = it.process.as_mut().filter(|_| it.life == life) else { return };
        let fence = process.guard.fences[worker];
        let it = &mut process.workers[worker];
        // It was woken for a sooner one.
        if it.turn_due_us != now_us {
            return;
        }
        let stands_until =
            stopped_until.max(Some(it.stalled_until_us)).filter(|until| *until > now_us);
        if let Some(until_us) = stands_until {
            it.turn_due_us = until_us;
            self.queue.push(until_us, Event::Turn { place, life });
            return;
        }
        let turn = it.turn(now_us, clock_us, fence);
        let cost_us = (TURN_US + PACKET_US * turn.packets as u64) * slowness;
        let next_us = match &turn {
            Turn { is_busy: true, .. } => cost_us,
            Turn { is_holding: true, .. } => HOLD_US * slowness,
            _ => self.options.idle_turn_us * slowness,
        };
        it.turn_due_us = now_us + next_us.max(cost_us);
        self.queue.push(it.turn_due_us, Event::Turn { place, life });
        self.send_all(place, cost_us);
        for news in turn.news {
            self.timeline.say(now_us, || format!("n{node}/{worker}: {news:?}"));
            self.post(node, Inbox::Worker { worker, news });
        }
        if let Some(fence) = turn.rejoined {
            self.timeline.say(now_us, || format!("n{node}/{worker} goes on"));
            self.post(node, Inbox::Rejoined { worker, fence });
        }
    }

    /// What the worker has made goes out.
    fn send_all(&mut self, place: Place, after_us: u64) {
        let Some(process) = &mut self.nodes[place.node].process else { return };
        let mut frames = Vec::new();
        process.workers[place.worker].take_frames(|side, frame| frames.push((side, frame)));
        self.check_commit(place, &frames);
        for (side, frame) in frames {
            self.send(place, side, frame, after_us);
        }
    }

    /// The workers of a process that ends in order hold nothing any more.
    fn let_go(&mut self, node: usize) {
        let clock_us = self.nodes[node].clock.at(self.now_us);
        for worker in 0..self.options.workers_per_node {
            if let Some(process) = &mut self.nodes[node].process {
                process.workers[worker].let_go(clock_us);
            }
            self.send_all(Place { node, worker }, 0);
        }
    }

    /// A message to the roles of a node, which takes a moment.
    pub(super) fn post(&mut self, node: usize, message: Inbox) {
        let delay_us = self.node_dice.below(self.options.message_us) * self.slowness(node);
        let due_us = self.now_us + delay_us;
        let life = self.nodes[node].life;
        if let Some(process) = &mut self.nodes[node].process {
            let due_us = process.send(due_us, message);
            self.queue.push(due_us, Event::Messages { node, life });
        }
    }

    pub(super) fn messages(&mut self, node: usize, life: u64) {
        if let Some(until_us) = self.stopped_until(node) {
            self.queue.push(until_us, Event::Messages { node, life });
            return;
        }
        let (now_us, clock_ms) = (self.now_us, self.nodes[node].clock_ms(self.now_us));
        let Some(process) = self.process(node, life) else { return };
        let mut is_any = false;
        while process.inbox.front().is_some_and(|(due_us, _)| *due_us <= now_us) {
            let (_, message) = process.inbox.pop_front().expect("there is one");
            process.take(now_us, clock_ms, message);
            is_any = true;
        }
        if is_any {
            self.carry_out(node);
        }
    }

    pub(super) fn slot(&mut self, node: usize, life: u64) {
        if let Some(until_us) = self.stopped_until(node) {
            self.queue.push(until_us, Event::Slot { node, life });
            return;
        }
        let clock_ms = self.nodes[node].clock_ms(self.now_us);
        let Some(process) = self.process(node, life) else { return };
        process.end_slot(clock_ms);
        self.queue.push(self.now_us + SLOT_US, Event::Slot { node, life });
        self.carry_out(node);
        self.hand_over(node);
    }

    /// What the store tells a node.
    pub(super) fn tell(&mut self, node: usize, input: Input) {
        let known = &self.nodes[node].known_epochs;
        if let Input::Entry { shard, entry } = &input
            && known.get(shard) < Some(&entry.epoch())
        {
            self.timeline.say(self.now_us, || {
                format!("n{node} sees shard {shard}: {}", super::checks::show_entry(entry))
            });
        }
        let clock_ms = self.nodes[node].clock_ms(self.now_us);
        if let Some(process) = &mut self.nodes[node].process {
            process.roles.on(clock_ms, input);
        }
    }

    /// Everything that the roles want now.
    pub(super) fn carry_out(&mut self, node: usize) {
        let delay_us = self.node_dice.below(self.options.message_us) * self.slowness(node);
        let (now_us, due_us) = (self.now_us, self.now_us + delay_us);
        let it = &mut self.nodes[node];
        let life = it.life;
        let Some(process) = &mut it.process else { return };
        process.hand_on_orders(due_us);
        for (shard, epoch) in process.roles.take_epochs() {
            match epoch {
                Some(epoch) => it.known_epochs.insert(shard, epoch),
                None => it.known_epochs.remove(&shard),
            };
        }
        let changes = process.roles.take_changes(CHANGES_MAX);
        let orders = process.route_orders(now_us);
        for order in orders {
            self.check_routes(node, &order);
            let delay_us = 100 + self.node_dice.below(2_000) * self.slowness(node);
            let order = Box::new(order);
            self.queue.push(now_us + delay_us, Event::Routes { node, life, order });
        }
        for change in changes {
            self.timeline.say(now_us, || {
                format!(
                    "n{node} wants of shard {} at {}: {:?}",
                    change.shard, change.at, change.transition
                )
            });
            self.check_synced(node, &change);
            self.control.write(node, change);
        }
        self.wake_control();
    }

    pub(super) fn guard(&mut self, node: usize, life: u64) {
        if let Some(until_us) = self.frozen_until(node) {
            self.queue.push(until_us, Event::Guard { node, life });
            return;
        }
        let clock_us = self.nodes[node].clock.at(self.now_us);
        let Some(process) = self.process(node, life) else { return };
        let beats: Vec<u64> = process.workers.iter().map(|worker| worker.link().beat).collect();
        let stake = |worker: usize| {
            let AtStake { is_serving, is_only_copy } = process.roles.at_stake(worker);
            Stake::new(is_serving, is_only_copy)
        };
        let stakes: Vec<Stake> = (0..beats.len()).map(stake).collect();
        let alarms = process.guard.look(clock_us, &beats, &stakes);
        let next_us = process.guard.interval_us().unwrap_or(SLOT_US);
        self.queue.push(self.now_us + next_us, Event::Guard { node, life });
        for alarm in alarms {
            match alarm {
                Alarm::Silent(worker) | Alarm::Gone(worker) => {
                    let is_silent = matches!(alarm, Alarm::Silent(_));
                    let worker = usize::from(worker);
                    self.timeline
                        .say(self.now_us, || format!("n{node}/{worker} is fenced by its guard"));
                    let routes = &self.nodes[node].kernel_routes[worker];
                    let routes = if is_silent { last_resort(routes) } else { Vec::new() };
                    self.tell_switches(Place { node, worker }, routes);
                    self.post(node, Inbox::Guard(GuardNews::Fenced { worker }));
                }
                Alarm::Hung(worker) => {
                    self.timeline.say(self.now_us, || format!("n{node}/{worker} hangs: killed"));
                    self.end(node);
                    // The service manager starts it again.
                    self.queue.push(self.now_us + 100_000, Event::Start(node));
                    return;
                }
            }
        }
    }

    /// A process that ends in order: whether nothing is left to be handed over.
    fn hand_over(&mut self, node: usize) {
        let now_us = self.now_us;
        let Some(process) = &mut self.nodes[node].process else { return };
        let Some(stopping) = &mut process.stopping else { return };
        let is_left = process.roles.has_to_hand_over();
        if is_left {
            stopping.quiet_since_us = now_us;
        }
        let is_quiet = now_us - stopping.quiet_since_us >= SETTLE_US;
        let is_late = now_us - stopping.began_us >= HAND_OVER_MAX_US;
        if is_quiet || is_late {
            let down_ms = stopping.down_ms;
            let boots = process.boots.clone();
            self.let_go(node);
            self.stop_working(node);
            self.control.leave(node, boots);
            self.queue.push(now_us, Event::Leave { node, began_us: now_us, down_ms });
        }
    }

    /// Who has said its last word, or has tried for long enough, is gone, and is started again.
    pub(super) fn leave(&mut self, node: usize, began_us: u64, down_ms: u64) {
        self.wake_control();
        let is_late = self.now_us - began_us >= FAREWELL_MAX_US;
        if self.control.plane.has_left(node) || is_late {
            self.control.end(node);
            self.queue.push(self.now_us + 1_000 * down_ms, Event::Start(node));
        } else {
            self.queue.push(self.now_us + 10_000, Event::Leave { node, began_us, down_ms });
        }
    }
}

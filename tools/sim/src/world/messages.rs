//! Messages for the core of a node, which wait while it stalls. A naive model of them defines which
//! must wait: the newest of each state, and the guard's events in their order, up to a bound. The
//! core never receives an older state after a newer one, and it orders the routes of a worker that
//! continues after a fence.

use std::collections::{BTreeMap, VecDeque};

use weir_etcd::{Key, MirrorEvent};
use weir_map::ShardEntry;
use weir_node_core::{CoreEvent, GUARD_EVENTS_MAX, GuardReport, Notice, Registration};
use weir_routes::{Fence, WorkerIndex};

use super::checks::show_entry;
use super::{Event, World};
use crate::control::NodeInput;
use crate::node::Message;

/// The notices that must wait for a core.
#[derive(Debug, Default)]
pub(super) struct Expected {
    /// The newest notice of each state.
    newest: Vec<Notice>,
    /// Events of the guard, in their order.
    events: VecDeque<Notice>,
    /// The number of the newest list of routes of each worker that the core knows to be set.
    set: BTreeMap<WorkerIndex, u64>,
    /// Workers that continue under these fences, and until when their routes must be ordered again.
    rejoined: BTreeMap<usize, (Fence, u64)>,
}

/// Longest time from the event that a worker continues to the order of its routes.
const ORDERED_MAX_US: u64 = 1_000_000;

/// True if the later notice replaces the other one.
fn is_of_same_state(one: &Notice, other: &Notice) -> bool {
    use GuardReport::{NotSet, Set};
    use Notice::{ClusterFound, End, Guard, HandOver, Saved, Written};
    let is_silence = |it: &Registration| *it == Registration::Silent;
    match (one, other) {
        (Written { shard: one, .. }, Written { shard: other, .. }) => one == other,
        (Guard(Set { worker: one, .. }), Guard(Set { worker: other, .. }))
        | (Guard(NotSet { worker: one, .. }), Guard(NotSet { worker: other, .. })) => one == other,
        // A silent etcd says nothing about the registration it holds.
        (Notice::Registration(one), Notice::Registration(other)) => {
            is_silence(one) == is_silence(other)
        }
        (ClusterFound(_), ClusterFound(_)) | (Saved(_), Saved(_)) => true,
        (HandOver, HandOver) | (End, End) => true,
        _ => false,
    }
}

/// True for an event of the guard, which is no state: each one counts.
fn is_event(notice: &Notice) -> bool {
    !is_of_same_state(notice, notice)
}

impl Expected {
    fn came(&mut self, notice: Notice) {
        if is_event(&notice) {
            self.events.push_back(notice);
            if self.events.len() > GUARD_EVENTS_MAX {
                self.events.pop_front();
            }
        } else {
            self.newest.retain(|former| !is_of_same_state(former, &notice));
            self.newest.push(notice);
        }
    }

    fn len(&self) -> usize {
        self.newest.len() + self.events.len()
    }

    /// Notes that the core receives a notice; the error names what is wrong with it.
    fn on_notice(&mut self, notice: &Notice) -> Result<(), String> {
        if let Notice::Guard(GuardReport::Set { worker, number }) = *notice
            && let Some(newer) = self.set.insert(worker, number).filter(|it| *it > number)
        {
            return Err(format!("is told of list {number} of worker {worker} after {newer}"));
        }
        if is_event(notice) {
            let first = self.events.pop_front();
            return match first.as_ref() == Some(notice) {
                true => Ok(()),
                false => Err(format!("is told {notice:?} where {first:?} comes next")),
            };
        }
        let index = self.newest.iter().position(|it| it == notice);
        let index =
            index.ok_or_else(|| format!("is told {notice:?}, which is no news any more"))?;
        self.newest.remove(index);
        Ok(())
    }
}

impl World {
    /// Sends a message to the core of a node, with a delay.
    pub(super) fn send_to_core(&mut self, node: usize, message: impl Into<Message>) {
        let delay_us = self.node_dice.below(self.options.message_us) * self.slowness(node);
        let due_us = self.now_us + delay_us;
        let life = self.nodes[node].life;
        if let Some(process) = &mut self.nodes[node].process {
            let due_us = process.inbox.send(due_us, message.into());
            self.queue.push(due_us, Event::Messages { node, life });
        }
    }

    /// Lets the messages that have arrived wait until the core looks: at once, unless it is
    /// stalled.
    pub(super) fn messages(&mut self, node: usize, life: u64) {
        let now_us = self.now_us;
        while let Some(message) =
            self.process(node, life).and_then(|process| process.inbox.arrival(now_us))
        {
            self.message_came(node, message);
        }
        if let Some(until_us) = self.core_stopped_until(node) {
            self.queue.push(until_us, Event::Messages { node, life });
        } else if self.process(node, life).is_some_and(|process| !process.inbox.is_empty()) {
            self.carry_out(node);
        }
    }

    /// Takes an event of etcd for a node: it waits until the core looks.
    pub(super) fn take_input(&mut self, node: usize, input: NodeInput) {
        let message = match input {
            NodeInput::Found(found) => return self.begin_process(node, *found),
            NodeInput::Mirror(event) => Message::Mirror(event),
            NodeInput::Notice(notice) => Message::Notice(notice),
        };
        if let Message::Mirror(MirrorEvent::Put { key: Key::Shard(shard), value, .. }) = &message
            && let Ok(entry) = ShardEntry::from_json(value)
        {
            self.timeline.add(self.now_us, || {
                format!("n{node} hears of shard {shard}: {}", show_entry(&entry))
            });
        }
        self.message_came(node, message);
    }

    /// Lets a message wait. No more notices wait than there are states and events.
    fn message_came(&mut self, node: usize, message: Message) {
        let Some(process) = &mut self.nodes[node].process else { return };
        let expected = &mut self.expected[node];
        if let Message::Notice(notice) = &message {
            expected.came(notice.clone());
        }
        process.inbox.put(message);
        let (waiting, expected) = (process.inbox.notices(), expected.len());
        if waiting != expected {
            self.fail(format!(
                "{waiting} notices wait for the core of n{node}, where the newest are {expected}"
            ));
        }
    }

    /// Passes all waiting messages to the core.
    pub(super) fn take_messages(&mut self, node: usize) {
        let (now, now_us) = (self.core_now(node), self.now_us);
        let (mut wrong, expected) = (None, &mut self.expected[node]);
        let Some(process) = &mut self.nodes[node].process else { return };
        while let Some(message) = process.inbox.next() {
            if let Message::Notice(notice) = &message
                && let Err(why) = expected.on_notice(notice)
            {
                wrong.get_or_insert(why);
            }
            if let Message::FromWorker {
                event: CoreEvent::Rejoined { worker, fence, .. }, ..
            } = message
            {
                expected.rejoined.insert(worker, (fence, now_us + ORDERED_MAX_US));
            }
            process.core.step(now, message.into());
        }
        if let Some(why) = wrong {
            self.fail(format!("the core of n{node} {why}"));
        }
    }

    /// Notes a list of a worker's routes for the guard.
    pub(super) fn note_ordered(&mut self, node: usize, worker: usize, fence: Fence) {
        self.expected[node]
            .rejoined
            .retain(|&of, &mut (wanted, _)| of != worker || fence.0 < wanted.0);
    }

    /// Checks, when the core has taken all its actions, that the routes of workers that continue
    /// were ordered.
    pub(super) fn check_rejoined(&mut self, node: usize) {
        let is_ending = self.nodes[node].process.as_ref().is_none_or(|process| process.is_ending);
        let mut rejoined = self.expected[node].rejoined.iter();
        let late = rejoined.find(|(_, (_, until_us))| !is_ending && self.now_us > *until_us);
        if let Some((worker, (fence, _))) = late {
            self.fail(format!(
                "n{node}/{worker} goes on under fence {}, and its routes are not set again",
                fence.0
            ));
        }
    }

    /// Resets the expectation for a new core: nothing waits for it.
    pub(super) fn expect_nothing(&mut self, node: usize) {
        self.expected[node] = Expected::default();
    }
}

#[cfg(test)]
mod tests {
    use weir_node_core::Notices;

    use super::*;

    fn set(number: u64) -> Notice {
        Notice::Guard(GuardReport::Set { worker: 0, number })
    }

    #[test]
    fn the_products_waiting_notices_match_the_naive_model() {
        let fenced = |worker| Notice::Guard(GuardReport::Fenced { worker });
        let (mut notices, mut expected) = (Notices::default(), Expected::default());
        for number in 0..2 * GUARD_EVENTS_MAX as u64 {
            let how = [Registration::Gone, Registration::Held, Registration::Silent];
            let how = how[number as usize % 3].clone();
            for notice in [set(number), fenced(number as WorkerIndex), Notice::Registration(how)] {
                expected.came(notice.clone());
                notices.push(notice);
                assert_eq!(notices.len(), expected.len());
            }
        }
        while let Some(notice) = notices.pop() {
            expected.on_notice(&notice).unwrap();
        }
        assert_eq!(expected.len(), 0);
    }

    #[test]
    fn a_replaced_notice_and_a_decreasing_list_number_are_refused() {
        let mut expected = Expected::default();
        expected.came(Notice::Registration(Registration::Gone));
        expected.came(Notice::Registration(Registration::Held));
        assert!(expected.on_notice(&Notice::Registration(Registration::Gone)).is_err());
        assert!(expected.on_notice(&Notice::Registration(Registration::Held)).is_ok());
        assert!(expected.on_notice(&Notice::Registration(Registration::Held)).is_err(), "twice");
        for number in [7, 6] {
            expected.came(set(number));
            assert_eq!(expected.on_notice(&set(number)).is_ok(), number == 7);
        }
    }
}

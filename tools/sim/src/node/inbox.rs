//! The messages on their way to the core of a node, and those that wait for it; as in the product,
//! [`weir_node_core`] decides which wait.

use std::collections::VecDeque;

use weir_etcd::MirrorEvent;
use weir_node_core::{CoreEvent, InTurn, Notice, Notices};

/// Most events of a worker that are on their way or wait: far fewer than in the product, so that
/// workers keep theirs while a core stalls.
const WORKER_EVENTS_MAX: usize = 16;

/// A message for the core.
#[derive(Debug)]
pub(crate) enum Message {
    Notice(Notice),
    /// In etcd's order; none is lost.
    Mirror(MirrorEvent),
    FromWorker {
        worker: usize,
        event: CoreEvent,
    },
}

impl From<Notice> for Message {
    fn from(notice: Notice) -> Self {
        Self::Notice(notice)
    }
}

impl From<Message> for CoreEvent {
    fn from(message: Message) -> Self {
        match message {
            Message::Notice(notice) => notice.into(),
            Message::Mirror(event) => Self::Mirror(event),
            Message::FromWorker { event, .. } => event,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Inbox {
    /// Messages on their way in the order of their arrival, with its time.
    under_way: VecDeque<(u64, Message)>,
    notices: Notices,
    /// The mirror's events; in the product the mirror's task holds back excess ones, here they
    /// wait.
    mirror: VecDeque<Message>,
    workers: Vec<VecDeque<Message>>,
    in_turn: InTurn,
}

impl Inbox {
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            under_way: VecDeque::new(),
            notices: Notices::default(),
            mirror: VecDeque::new(),
            workers: (0..workers).map(|_| VecDeque::new()).collect(),
            in_turn: InTurn::default(),
        }
    }

    /// Sends a message, which arrives after all messages that were sent before; returns the time.
    pub(crate) fn send(&mut self, due_us: u64, message: Message) -> u64 {
        let last_us = self.under_way.back().map_or(0, |(due_us, _)| *due_us);
        let due_us = due_us.max(last_us);
        self.under_way.push_back((due_us, message));
        due_us
    }

    /// Returns the next message that has arrived, to be passed to [`put`](Self::put).
    pub(crate) fn arrival(&mut self, now_us: u64) -> Option<Message> {
        let has_come = self.under_way.front().is_some_and(|(due_us, _)| *due_us <= now_us);
        if has_come { self.under_way.pop_front().map(|(_, message)| message) } else { None }
    }

    /// Lets a message wait for the core.
    pub(crate) fn put(&mut self, message: Message) {
        match message {
            Message::Notice(notice) => drop(self.notices.push(notice)),
            Message::Mirror(_) => self.mirror.push_back(message),
            Message::FromWorker { worker, .. } => self.workers[worker].push_back(message),
        }
    }

    /// Returns the next message for the core.
    pub(crate) fn next(&mut self) -> Option<Message> {
        let Self { notices, mirror, workers, in_turn, .. } = self;
        in_turn.next(workers.len() + 2, |way| match way {
            0 => notices.pop().map(Message::Notice),
            1 => mirror.pop_front(),
            way => workers[way - 2].pop_front(),
        })
    }

    /// Returns the number of waiting notices.
    pub(crate) fn notices(&self) -> usize {
        self.notices.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.notices.is_empty()
            && self.mirror.is_empty()
            && self.workers.iter().all(VecDeque::is_empty)
    }

    /// Returns how many more events a worker may send.
    pub(crate) fn room(&self, worker: usize) -> usize {
        let is_its = |message: &Message| match message {
            Message::FromWorker { worker: of, .. } => *of == worker,
            Message::Notice(_) | Message::Mirror(_) => false,
        };
        let under_way = self.under_way.iter().filter(|(_, message)| is_its(message)).count();
        WORKER_EVENTS_MAX.saturating_sub(under_way + self.workers[worker].len())
    }
}

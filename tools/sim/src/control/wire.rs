//! Between a client of etcd and the model of etcd: carries orders there and events back, in virtual time.
//!
//! The model numbers the requests of all clients, whatever life they are of: an answer to a process that has ended
//! finds nobody.

use std::collections::BTreeMap;
use std::time::Instant;

use weir_etcd::message::{Event, Order, Request, RequestId};

use crate::etcd::{ClientId, Etcd};

/// One moment, as the world counts it and as the process reads it.
#[derive(Clone, Copy, Debug)]
pub(super) struct At {
    pub(super) us: u64,
    pub(super) now: Instant,
}

#[derive(Debug)]
pub(super) struct Wire {
    client: ClientId,
    /// The client's ids of the model's requests and watches.
    ids: BTreeMap<RequestId, RequestId>,
}

impl Wire {
    pub(super) fn new(client: ClientId) -> Self {
        Self { client, ids: BTreeMap::new() }
    }

    /// Sends what a link has ordered.
    pub(super) fn carry(&mut self, etcd: &mut Etcd, us: u64, order: Order) {
        let (id, request) = match order {
            Order::Connect { id, probe, .. } => (id, probe),
            Order::Ask { id, request } => (id, request),
            // Nobody tells etcd that an answer is not waited for any more.
            Order::Forget(_) => return,
        };
        let request = match request {
            Request::Progress(watch) => self.of_model(watch).map(Request::Progress),
            Request::Cancel(watch) => self.of_model(watch).map(Request::Cancel),
            request => Some(request),
        };
        let Some(request) = request else { return };
        if let Request::Cancel(watch) = request {
            self.ids.remove(&watch);
        }
        let is_answered = !matches!(request, Request::Progress(_) | Request::Cancel(_));
        let given = etcd.request(us, self.client, request);
        if is_answered {
            self.ids.insert(given, id);
        }
    }

    /// What the model tells, in the ids of the client. None: an earlier process asked for it.
    pub(super) fn event(&mut self, event: Event) -> Option<Event> {
        match event {
            Event::Answered { request, answer } => {
                let request = self.ids.remove(&request)?;
                Some(Event::Answered { request, answer })
            }
            Event::Watched { watch, news } => {
                let watch = *self.ids.get(&watch)?;
                Some(Event::Watched { watch, news })
            }
        }
    }

    fn of_model(&self, watch: RequestId) -> Option<RequestId> {
        let known = self.ids.iter().rev().find(|(_, id)| **id == watch);
        known.map(|(given, _)| *given)
    }
}

//! Carries requests from a client of etcd to the model of etcd, and events back, in virtual time.
//!
//! The model numbers the requests of all clients and all their incarnations together: an answer to
//! a process that has ended reaches no process.

use std::collections::BTreeMap;
use std::time::Instant;

use weir_etcd::message::{Event, Order, Request, RequestId};

use crate::etcd::{ClientId, Etcd};

/// One moment, as the world and as the process read it.
#[derive(Clone, Copy, Debug)]
pub(super) struct At {
    pub(super) us: u64,
    pub(super) now: Instant,
}

#[derive(Debug)]
pub(super) struct Wire {
    client: ClientId,
    /// The client's ids of requests and watches, by the ids of the model.
    ids: BTreeMap<RequestId, RequestId>,
}

impl Wire {
    pub(super) fn new(client: ClientId) -> Self {
        Self { client, ids: BTreeMap::new() }
    }

    /// Carries out an order of a link.
    pub(super) fn carry(&mut self, etcd: &mut Etcd, us: u64, order: Order) {
        let (id, request) = match order {
            Order::Connect { id, probe, .. } => (id, probe),
            Order::Ask { id, request } => (id, request),
            // The client does not notify etcd that it stopped waiting for an answer.
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

    /// Translates an event of the model into the ids of the client. `None`: an earlier process made
    /// the request.
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

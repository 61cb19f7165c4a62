//! Carries requests from a client of etcd to the model of etcd, and events back, in virtual time.
//!
//! The model numbers the requests of all clients and all their incarnations together: an answer to
//! a process that has ended reaches no process.

use std::collections::BTreeMap;
use std::time::Instant;

use weir_etcd::message::{EtcdRequest, RequestId, TransportEvent, TransportOrder};

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
    pub(super) fn carry(&mut self, etcd: &mut Etcd, us: u64, order: TransportOrder) {
        let (id, request) = match order {
            TransportOrder::Connect { id, probe, .. } => (id, probe),
            TransportOrder::Ask { id, request } => (id, request),
            // The client does not notify etcd that it stopped waiting for an answer.
            TransportOrder::Forget(_) => return,
        };
        let request = match request {
            EtcdRequest::Progress(watch) => self.of_model(watch).map(EtcdRequest::Progress),
            EtcdRequest::Cancel(watch) => self.of_model(watch).map(EtcdRequest::Cancel),
            request => Some(request),
        };
        let Some(request) = request else { return };
        if let EtcdRequest::Cancel(watch) = request {
            self.ids.remove(&watch);
        }
        let is_answered = !matches!(request, EtcdRequest::Progress(_) | EtcdRequest::Cancel(_));
        let given = etcd.request(us, self.client, request);
        if is_answered {
            self.ids.insert(given, id);
        }
    }

    /// Translates an event of the model into the ids of the client. `None`: an earlier process made
    /// the request.
    pub(super) fn event(&mut self, event: TransportEvent) -> Option<TransportEvent> {
        match event {
            TransportEvent::Answered { request, answer } => {
                let request = self.ids.remove(&request)?;
                Some(TransportEvent::Answered { request, answer })
            }
            TransportEvent::Watched { watch, event } => {
                let watch = *self.ids.get(&watch)?;
                Some(TransportEvent::Watched { watch, event })
            }
        }
    }

    fn of_model(&self, watch: RequestId) -> Option<RequestId> {
        let known = self.ids.iter().rev().find(|(_, id)| **id == watch);
        known.map(|(given, _)| *given)
    }
}

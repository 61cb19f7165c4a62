//! The watches of all clients: the changes that each has still to send, and the next look at it.
//!
//! A watch sends whole revisions in their order. One that lags sends them later, and if the
//! revisions that it needs are compacted meanwhile, it ends. One that stalls sends nothing, not
//! even its end: its connection is open and dead.

use std::collections::BTreeMap;

use weir_etcd::message::{RequestId, WatchEvent};

use super::message::ClientId;
use super::store::Store;

#[derive(Clone, Debug)]
struct Watch {
    client: ClientId,
    prefix: String,
    /// The first revision that it has not sent.
    next: i64,
    is_stalled: bool,
    /// True while a look at it is scheduled.
    is_due: bool,
    /// Arrival time of what it sent last: later messages may not arrive before.
    arrives_us: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Watches {
    all: BTreeMap<RequestId, Watch>,
}

impl Watches {
    pub(super) fn open(&mut self, id: RequestId, client: ClientId, prefix: String, from: i64) {
        let watch =
            Watch { client, prefix, next: from, is_stalled: false, is_due: false, arrives_us: 0 };
        self.all.insert(id, watch);
    }

    pub(super) fn close(&mut self, id: RequestId) {
        self.all.remove(&id);
    }

    pub(super) fn close_all(&mut self, client: ClientId) {
        self.all.retain(|_, watch| watch.client != client);
    }

    pub(super) fn client(&self, id: RequestId) -> Option<ClientId> {
        self.all.get(&id).map(|watch| watch.client)
    }

    pub(super) fn is_stalled(&self, id: RequestId) -> bool {
        self.all.get(&id).is_some_and(|watch| watch.is_stalled)
    }

    /// Silences the present watches of a client.
    pub(super) fn stall(&mut self, client: ClientId) {
        for watch in self.all.values_mut().filter(|watch| watch.client == client) {
            watch.is_stalled = true;
        }
    }

    /// Returns the watches that have changes to send and no scheduled look, and marks them as
    /// scheduled.
    pub(super) fn become_due(&mut self, store: &Store) -> Vec<RequestId> {
        let newest = store.revision().0;
        let due = self.all.iter_mut().filter(|(_, watch)| !watch.is_due && watch.next <= newest);
        due.map(|(id, watch)| {
            watch.is_due = true;
            *id
        })
        .collect()
    }

    /// Returns the changes that a watch sends at this look. A watch that has ended is closed.
    pub(super) fn look(&mut self, id: RequestId, store: &Store) -> Vec<WatchEvent> {
        let Some(watch) = self.all.get_mut(&id).filter(|watch| !watch.is_stalled) else {
            return Vec::new();
        };
        watch.is_due = false;
        match store.changes_from(&watch.prefix, watch.next) {
            Some(changes) => {
                watch.next = watch.next.max(store.revision().0 + 1);
                changes.into_iter().map(WatchEvent::Changes).collect()
            }
            None => {
                self.all.remove(&id);
                vec![WatchEvent::Compacted(store.compacted())]
            }
        }
    }

    /// Returns when a message of the watch arrives that would take until `arrives_us`: never before
    /// an earlier one.
    pub(super) fn arrival(&mut self, id: RequestId, arrives_us: u64) -> u64 {
        let Some(watch) = self.all.get_mut(&id) else { return arrives_us };
        watch.arrives_us = watch.arrives_us.max(arrives_us);
        watch.arrives_us
    }

    /// True if it has sent all changes.
    pub(super) fn is_up_to_date(&self, id: RequestId, store: &Store) -> bool {
        self.all.get(&id).is_some_and(|watch| watch.next > store.revision().0)
    }

    /// Ends all watches; returns those that can report it.
    pub(super) fn end_all(&mut self) -> Vec<(RequestId, ClientId)> {
        let ended = std::mem::take(&mut self.all).into_iter();
        ended.filter(|(_, watch)| !watch.is_stalled).map(|(id, watch)| (id, watch.client)).collect()
    }
}

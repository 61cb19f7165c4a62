//! A process's link to etcd: requests with deadlines, one connection for all of them, a new one
//! after a failure.
//!
//! ```text
//!   ask(tag, request) --> queued --+ connected                     +--> next_done():
//!                           |      +---> Order::Ask ---> event() --+    tag, answer or error
//!                           +--> Order::Connect, to one endpoint after the other
//! ```
//!
//! A connection is made when a request needs one, by reading a key: that checks trust, user, role
//! and quorum at once. A failure that another connection may cure gives the connection up; requests
//! under way continue on the old one. For a while after a failed attempt to connect, requests fail
//! at once, with the error of the attempt. Every request has a deadline that includes connecting;
//! no request is retried here.
//!
//! The link does no I/O and has no clock: its owner carries out the orders, and passes in events
//! and the time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use crate::back_off::BackOff;
use crate::contact::Contact;
use crate::counters::count;
use crate::error::{Cause, Error};
use crate::keys::{Key, Keys};
use crate::leadership::Leadership;
use crate::message::{
    EtcdAnswer, EtcdRequest, RequestFailure, RequestId, TransportEvent, TransportOrder, WatchEvent,
};
use crate::options::EtcdOptions;
use crate::swap::Outcome;

/// Reason that a request has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failed {
    NoSuchLease,
    Etcd(Error),
}

/// The result of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Got {
    Answer(EtcdAnswer),
    /// A watch is open on the connection of this generation.
    Opened {
        watch: RequestId,
        generation: u64,
    },
}

/// A completed request.
#[derive(Debug)]
pub struct CompletedRequest<T> {
    /// Tag that the request was made with.
    pub tag: T,
    pub got: Result<Got, Failed>,
}

#[derive(Debug)]
struct Queued<T> {
    tag: T,
    request: EtcdRequest,
    until: Instant,
}

#[derive(Debug)]
struct Pending<T> {
    tag: T,
    operation: String,
    until: Instant,
    generation: u64,
    endpoint: usize,
}

#[derive(Debug)]
struct Probe {
    request: RequestId,
    until: Instant,
    endpoint: usize,
}

/// A link; `T` identifies the purpose of a request.
#[derive(Debug)]
pub struct EtcdLink<T> {
    pub keys: Keys,
    pub options: EtcdOptions,
    contact: Arc<Contact>,
    back_off: BackOff,
    /// Generation of the newest connection: the generations are numbered.
    generation: u64,
    /// Endpoint of the newest connection.
    endpoint: usize,
    is_connected: bool,
    /// The connection attempt under way.
    probe: Option<Probe>,
    /// Endpoint to try next.
    next_endpoint: usize,
    /// Time until which no connection is tried, and the error of the last attempt.
    rest: Option<(Instant, Error)>,
    /// Requests that wait for a connection, the oldest first.
    queued: Vec<Queued<T>>,
    /// Requests in the order in which they were sent: the first one times out first.
    pending: BTreeMap<RequestId, Pending<T>>,
    ids: u64,
    orders: VecDeque<TransportOrder>,
    done: VecDeque<CompletedRequest<T>>,
}

impl<T> EtcdLink<T> {
    /// Creates a link that is not connected. Its traffic is counted in `contact`.
    pub fn new(options: EtcdOptions, contact: Arc<Contact>) -> Self {
        let back_off = BackOff::new(options.retry_first, options.retry_max, options.seed);
        // Nodes begin with different members of etcd.
        let next_endpoint = (options.seed % options.endpoints.len().max(1) as u64) as usize;
        Self {
            keys: Keys::new(options.cluster.clone()),
            options,
            contact,
            back_off,
            generation: 0,
            endpoint: 0,
            is_connected: false,
            probe: None,
            next_endpoint,
            rest: None,
            queued: Vec::new(),
            pending: BTreeMap::new(),
            ids: 0,
            orders: VecDeque::new(),
            done: VecDeque::new(),
        }
    }

    /// Returns the counters and errors of the link.
    pub fn contact(&self) -> &Contact {
        &self.contact
    }

    /// Makes a request; its result comes from [`next_done`](Self::next_done).
    pub fn ask(&mut self, now: Instant, tag: T, request: EtcdRequest) {
        let until = now + self.options.request_timeout;
        if self.is_connected {
            return self.send(Queued { tag, request, until });
        }
        if self.probe.is_none() {
            if let Some((_, error)) = self.rest.as_ref().filter(|(until, _)| now < *until) {
                let error = Error { operation: request.operation(), ..error.clone() };
                return self
                    .done
                    .push_back(CompletedRequest { tag, got: Err(Failed::Etcd(error)) });
            }
            self.connect(now);
        }
        self.queued.push(Queued { tag, request, until });
    }

    /// Sends a request that has no answer: `Progress` or `Cancel`.
    pub fn send_unanswered(&mut self, request: EtcdRequest) {
        let id = self.next_id();
        self.orders.push_back(TransportOrder::Ask { id, request });
    }

    /// Gives a connection up: the next request makes a new one.
    pub fn distrust(&mut self, generation: u64) {
        self.is_connected &= self.generation > generation;
    }

    /// Returns the time of the next time-out.
    pub fn deadline(&self) -> Option<Instant> {
        let probe = self.probe.iter().map(|probe| probe.until);
        let queued = self.queued.first().map(|queued| queued.until);
        let pending = self.pending.first_key_value().map(|(_, pending)| pending.until);
        probe.chain(queued).chain(pending).min()
    }

    /// Gives up the requests and attempts that have timed out.
    pub fn tick(&mut self, now: Instant) {
        if let Some(probe) = self.probe.take_if(|probe| now >= probe.until) {
            self.orders.push_back(TransportOrder::Forget(probe.request));
            // Connecting may take half of a request's time: the other half is for the request.
            let limit = self.options.request_timeout / 2;
            let error = Error::timeout(self.endpoint_name(probe.endpoint), "connect", limit);
            self.not_connected(now, error);
        }
        let limit = self.options.request_timeout;
        let late = self.queued.iter().take_while(|queued| now >= queued.until).count();
        for Queued { tag, request, .. } in self.queued.drain(..late).collect::<Vec<_>>() {
            let (all, operation) = (self.options.endpoints.join(", "), request.operation());
            let detail = format!("no connection within {limit:?}");
            let error = Error::unsent(&all, &operation, Cause::Timeout, detail);
            self.note(now, None, &error);
            self.done.push_back(CompletedRequest { tag, got: Err(Failed::Etcd(error)) });
        }
        while let Some(first) = self.pending.first_entry().filter(|it| now >= it.get().until) {
            let (id, pending) = first.remove_entry();
            self.orders.push_back(TransportOrder::Forget(id));
            let endpoint = self.endpoint_name(pending.endpoint);
            let error = Error::timeout(endpoint, &pending.operation, limit);
            self.end(now, pending, Err(Failed::Etcd(error)));
        }
    }

    /// Takes an event of the transport. Returns the news of an open watch.
    pub fn event(
        &mut self,
        now: Instant,
        event: TransportEvent,
    ) -> Option<(RequestId, WatchEvent)> {
        match event {
            TransportEvent::Answered { request, answer } => {
                if let Some(probe) = self.probe.take_if(|probe| probe.request == request) {
                    self.probed(now, probe.endpoint, answer);
                } else if let Some(pending) = self.pending.remove(&request) {
                    let got = answer.map(Got::Answer);
                    let got = got.map_err(|failure| self.failed(&pending, failure));
                    self.end(now, pending, got);
                }
                // An answer after the time-out is dropped.
                None
            }
            TransportEvent::Watched { watch, event } => {
                let Some(pending) = self.pending.remove(&watch) else {
                    if !matches!(event, WatchEvent::Ended(_)) {
                        self.note_contact(now);
                    }
                    return Some((watch, event));
                };
                let failure =
                    |cause, detail: &str| RequestFailure::Failed { cause, detail: detail.into() };
                let got = match event {
                    WatchEvent::Created => {
                        Ok(Got::Opened { watch, generation: pending.generation })
                    }
                    WatchEvent::Compacted(_) => Err(failure(Cause::Compacted, "its start is gone")),
                    WatchEvent::Ended(failure) => Err(failure),
                    WatchEvent::Changes(_) | WatchEvent::Progress => {
                        Err(failure(Cause::Other, "news of a watch that is not open"))
                    }
                };
                let got = got.map_err(|failure| self.failed(&pending, failure));
                self.end(now, pending, got);
                None
            }
        }
    }

    /// Returns the outcome of a write whose transaction compared the leadership of `leader`. Counts
    /// a lost race.
    pub fn outcome(&self, got: Result<Got, Failed>, leader: Option<Leadership>) -> Outcome {
        let outcome = match got {
            Ok(Got::Answer(EtcdAnswer::Decided(decided))) => Outcome::of_decided(decided, leader),
            Err(Failed::Etcd(error)) => Outcome::of_error(error),
            _ => {
                let detail = "the answer to another request".to_owned();
                Outcome::of_error(Error::asked("any", "write", Cause::Other, detail))
            }
        };
        if matches!(outcome, Outcome::LostRace(_)) {
            count(&self.contact.counters.conflicts_total);
        }
        outcome
    }

    /// Returns the next completed request.
    pub fn next_done(&mut self) -> Option<CompletedRequest<T>> {
        self.done.pop_front()
    }

    /// Returns the next order for the transport.
    pub fn next_order(&mut self) -> Option<TransportOrder> {
        self.orders.pop_front()
    }

    fn next_id(&mut self) -> RequestId {
        self.ids += 1;
        RequestId(self.ids)
    }

    fn connect(&mut self, now: Instant) {
        let (id, endpoint) = (self.next_id(), self.next_endpoint);
        self.next_endpoint = (endpoint + 1) % self.options.endpoints.len().max(1);
        let probe = EtcdRequest::get(&self.keys.path(&Key::Meta));
        let until = now + self.options.request_timeout / 2;
        self.probe = Some(Probe { request: id, until, endpoint });
        self.orders.push_back(TransportOrder::Connect { id, endpoint, probe });
    }

    fn probed(
        &mut self,
        now: Instant,
        endpoint: usize,
        answer: Result<EtcdAnswer, RequestFailure>,
    ) {
        let failure = match answer {
            Ok(_) => {
                count(&self.contact.counters.connects_total);
                self.generation += 1;
                (self.is_connected, self.endpoint, self.rest) = (true, endpoint, None);
                self.back_off.reset();
                return std::mem::take(&mut self.queued).into_iter().for_each(|it| self.send(it));
            }
            Err(failure) => failure,
        };
        let error = match failure {
            RequestFailure::Failed { cause, detail } => {
                Error::unsent(self.endpoint_name(endpoint), "connect", cause, detail)
            }
            RequestFailure::NoSuchLease => Error::unsent(
                self.endpoint_name(endpoint),
                "connect",
                Cause::Other,
                "no such lease".to_owned(),
            ),
        };
        self.not_connected(now, error);
    }

    fn not_connected(&mut self, now: Instant, error: Error) {
        count(&self.contact.counters.failures_total);
        // The requests that wait for the connection were never sent.
        let error = Error { may_have_happened: false, ..error };
        for Queued { tag, request, .. } in self.queued.drain(..) {
            let error = Error { operation: request.operation(), ..error.clone() };
            self.done.push_back(CompletedRequest { tag, got: Err(Failed::Etcd(error)) });
        }
        self.contact.set_error(Some(error.clone()));
        self.rest = Some((now + self.back_off.next_wait(), error));
    }

    fn send(&mut self, Queued { tag, request, until }: Queued<T>) {
        let (id, operation) = (self.next_id(), request.operation());
        let (generation, endpoint) = (self.generation, self.endpoint);
        self.pending.insert(id, Pending { tag, operation, until, generation, endpoint });
        self.orders.push_back(TransportOrder::Ask { id, request });
    }

    fn end(&mut self, now: Instant, pending: Pending<T>, got: Result<Got, Failed>) {
        match &got {
            Ok(_) | Err(Failed::NoSuchLease) => self.note_contact(now),
            Err(Failed::Etcd(error)) => self.note(now, Some(pending.generation), error),
        }
        self.done.push_back(CompletedRequest { tag: pending.tag, got });
    }

    /// Records an answer of etcd.
    fn note_contact(&self, now: Instant) {
        self.contact.counters.note_contact(now);
        self.contact.set_error(None);
    }

    /// Records a failed request; `generation` is that of its connection.
    fn note(&mut self, now: Instant, generation: Option<u64>, error: &Error) {
        if error.cause.is_silence() {
            self.contact.counters.failures_total.fetch_add(1, Relaxed);
        } else {
            self.contact.counters.note_contact(now);
        }
        if let Some(generation) = generation.filter(|_| error.cause.wants_another_connection()) {
            self.distrust(generation);
        }
        tracing::debug!(%error, "etcd");
        self.contact.set_error(Some(error.clone()));
    }

    fn failed(&self, pending: &Pending<T>, failure: RequestFailure) -> Failed {
        let RequestFailure::Failed { cause, detail } = failure else { return Failed::NoSuchLease };
        let endpoint = self.endpoint_name(pending.endpoint);
        Failed::Etcd(Error::asked(endpoint, &pending.operation, cause, detail))
    }

    fn endpoint_name(&self, endpoint: usize) -> &str {
        self.options.endpoints.get(endpoint).map_or("etcd", String::as_str)
    }
}

#[cfg(test)]
#[path = "link_tests.rs"]
mod tests;

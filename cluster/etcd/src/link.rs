//! A process's way to etcd: requests with their time, one connection for all of them, another one after a failure.
//!
//! ```text
//!   ask(tag, request) --> queued --+ connected                     +--> next_done() -> tag, answer or error
//!                           |      +---> Order::Ask ---> event() --+
//!                           +--> Order::Connect, to one endpoint after the other
//! ```
//!
//! A connection is made when something is asked and there is none, by reading a key: that shows trust, user, role and
//! quorum at once. Each failure that another connection may cure gives the connection up; what is under way on it goes
//! on there. After an attempt to connect that failed, requests fail at once for a while, with that error. Every request
//! has its time, connecting included; none is repeated here.
//!
//! Does no I/O and has no clock: whatever owns it carries its orders out, tells it the events and the time.

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
use crate::message::{Answer, Event, Failure, Order, Request, RequestId, WatchNews};
use crate::options::Options;
use crate::swap::Outcome;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failed {
    NoSuchLease,
    Etcd(Error),
}

/// What a request has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Got {
    Answer(Answer),
    /// A watch is open, on the connection of this generation.
    Opened {
        watch: RequestId,
        generation: u64,
    },
}

/// The end of a request.
#[derive(Debug)]
pub struct Done<T> {
    /// What it was asked for.
    pub tag: T,
    pub got: Result<Got, Failed>,
}

#[derive(Debug)]
struct Queued<T> {
    tag: T,
    request: Request,
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

/// `T` names what a request is for.
#[derive(Debug)]
pub struct Link<T> {
    pub keys: Keys,
    pub options: Options,
    contact: Arc<Contact>,
    back_off: BackOff,
    /// The newest connection's: each has the next number.
    generation: u64,
    /// And its endpoint.
    endpoint: usize,
    is_connected: bool,
    /// The connection that is being made.
    probe: Option<Probe>,
    /// The endpoint that is tried next.
    next_endpoint: usize,
    /// Until when no connection is tried, and why.
    rest: Option<(Instant, Error)>,
    /// They wait for a connection, the oldest first.
    queued: Vec<Queued<T>>,
    /// Sent in the order in which they were asked: the first is the first that takes too long.
    pending: BTreeMap<RequestId, Pending<T>>,
    ids: u64,
    orders: VecDeque<Order>,
    done: VecDeque<Done<T>>,
}

impl<T> Link<T> {
    /// Not connected yet. What it does is counted in `contact`.
    pub fn new(options: Options, contact: Arc<Contact>) -> Self {
        let back_off = BackOff::new(options.retry_first, options.retry_max, options.seed);
        // Nodes begin with different members.
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

    /// Where it counts.
    pub fn contact(&self) -> &Contact {
        &self.contact
    }

    /// Asks; the end comes from [`next_done`](Self::next_done).
    pub fn ask(&mut self, now: Instant, tag: T, request: Request) {
        let until = now + self.options.request_timeout;
        if self.is_connected {
            return self.send(Queued { tag, request, until });
        }
        if self.probe.is_none() {
            if let Some((_, error)) = self.rest.as_ref().filter(|(until, _)| now < *until) {
                let error = Error { operation: request.operation(), ..error.clone() };
                return self.done.push_back(Done { tag, got: Err(Failed::Etcd(error)) });
            }
            self.connect(now);
        }
        self.queued.push(Queued { tag, request, until });
    }

    /// Asks what is not answered: `Progress` and `Cancel`.
    pub fn say(&mut self, request: Request) {
        let id = self.next_id();
        self.orders.push_back(Order::Ask { id, request });
    }

    /// Gives a connection up: the next request makes another one.
    pub fn distrust(&mut self, generation: u64) {
        self.is_connected &= self.generation > generation;
    }

    /// When something takes too long.
    pub fn deadline(&self) -> Option<Instant> {
        let probe = self.probe.iter().map(|probe| probe.until);
        let queued = self.queued.first().map(|queued| queued.until);
        let pending = self.pending.first_key_value().map(|(_, pending)| pending.until);
        probe.chain(queued).chain(pending).min()
    }

    /// Gives up what has taken too long.
    pub fn tick(&mut self, now: Instant) {
        if let Some(probe) = self.probe.take_if(|probe| now >= probe.until) {
            self.orders.push_back(Order::Forget(probe.request));
            // Half of a request's time: the other half is for the request.
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
            self.done.push_back(Done { tag, got: Err(Failed::Etcd(error)) });
        }
        while let Some(first) = self.pending.first_entry().filter(|it| now >= it.get().until) {
            let (id, pending) = first.remove_entry();
            self.orders.push_back(Order::Forget(id));
            let endpoint = self.endpoint_name(pending.endpoint);
            let error = Error::timeout(endpoint, &pending.operation, limit);
            self.end(now, pending, Err(Failed::Etcd(error)));
        }
    }

    /// Takes what the transport tells. News of a watch that was opened are given back.
    pub fn event(&mut self, now: Instant, event: Event) -> Option<(RequestId, WatchNews)> {
        match event {
            Event::Answered { request, answer } => {
                if let Some(probe) = self.probe.take_if(|probe| probe.request == request) {
                    self.probed(now, probe.endpoint, answer);
                } else if let Some(pending) = self.pending.remove(&request) {
                    let got = answer.map(Got::Answer);
                    let got = got.map_err(|failure| self.failed(&pending, failure));
                    self.end(now, pending, got);
                }
                // An answer that comes too late is not waited for any more.
                None
            }
            Event::Watched { watch, news } => {
                let Some(pending) = self.pending.remove(&watch) else {
                    if !matches!(news, WatchNews::Ended(_)) {
                        self.heard(now);
                    }
                    return Some((watch, news));
                };
                let failure =
                    |cause, detail: &str| Failure::Failed { cause, detail: detail.into() };
                let got = match news {
                    WatchNews::Created => Ok(Got::Opened { watch, generation: pending.generation }),
                    WatchNews::Compacted(_) => Err(failure(Cause::Compacted, "its start is gone")),
                    WatchNews::Ended(failure) => Err(failure),
                    WatchNews::Changes(_) | WatchNews::Progress => {
                        Err(failure(Cause::Other, "news of a watch that is not open"))
                    }
                };
                let got = got.map_err(|failure| self.failed(&pending, failure));
                self.end(now, pending, got);
                None
            }
        }
    }

    /// What a write has come to, whose transaction compared the leadership of `leader`. A lost race is counted.
    pub fn outcome(&self, got: Result<Got, Failed>, leader: Option<Leadership>) -> Outcome {
        let outcome = match got {
            Ok(Got::Answer(Answer::Decided(decided))) => Outcome::of_decided(decided, leader),
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

    /// The next request that has ended.
    pub fn next_done(&mut self) -> Option<Done<T>> {
        self.done.pop_front()
    }

    /// The next thing that the transport is to do.
    pub fn next_order(&mut self) -> Option<Order> {
        self.orders.pop_front()
    }

    fn next_id(&mut self) -> RequestId {
        self.ids += 1;
        RequestId(self.ids)
    }

    fn connect(&mut self, now: Instant) {
        let (id, endpoint) = (self.next_id(), self.next_endpoint);
        self.next_endpoint = (endpoint + 1) % self.options.endpoints.len().max(1);
        let probe = Request::get(&self.keys.path(&Key::Meta));
        let until = now + self.options.request_timeout / 2;
        self.probe = Some(Probe { request: id, until, endpoint });
        self.orders.push_back(Order::Connect { id, endpoint, probe });
    }

    fn probed(&mut self, now: Instant, endpoint: usize, answer: Result<Answer, Failure>) {
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
            Failure::Failed { cause, detail } => {
                Error::unsent(self.endpoint_name(endpoint), "connect", cause, detail)
            }
            Failure::NoSuchLease => Error::unsent(
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
        // The requests themselves were never sent.
        let error = Error { may_have_happened: false, ..error };
        for Queued { tag, request, .. } in self.queued.drain(..) {
            let error = Error { operation: request.operation(), ..error.clone() };
            self.done.push_back(Done { tag, got: Err(Failed::Etcd(error)) });
        }
        self.contact.set_error(Some(error.clone()));
        self.rest = Some((now + self.back_off.next_wait(), error));
    }

    fn send(&mut self, Queued { tag, request, until }: Queued<T>) {
        let (id, operation) = (self.next_id(), request.operation());
        let (generation, endpoint) = (self.generation, self.endpoint);
        self.pending.insert(id, Pending { tag, operation, until, generation, endpoint });
        self.orders.push_back(Order::Ask { id, request });
    }

    fn end(&mut self, now: Instant, pending: Pending<T>, got: Result<Got, Failed>) {
        match &got {
            Ok(_) | Err(Failed::NoSuchLease) => self.heard(now),
            Err(Failed::Etcd(error)) => self.note(now, Some(pending.generation), error),
        }
        self.done.push_back(Done { tag: pending.tag, got });
    }

    /// etcd answered.
    fn heard(&self, now: Instant) {
        self.contact.counters.heard(now);
        self.contact.set_error(None);
    }

    /// A request failed; `generation` is its connection's.
    fn note(&mut self, now: Instant, generation: Option<u64>, error: &Error) {
        if error.cause.is_silence() {
            self.contact.counters.failures_total.fetch_add(1, Relaxed);
        } else {
            self.contact.counters.heard(now);
        }
        if let Some(generation) = generation.filter(|_| error.cause.wants_another_connection()) {
            self.distrust(generation);
        }
        tracing::debug!(%error, "etcd");
        self.contact.set_error(Some(error.clone()));
    }

    fn failed(&self, pending: &Pending<T>, failure: Failure) -> Failed {
        let Failure::Failed { cause, detail } = failure else { return Failed::NoSuchLease };
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

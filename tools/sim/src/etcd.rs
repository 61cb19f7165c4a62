//! A model of etcd v3 as weir uses it: one state machine behind a network with delays and faults.
//!
//! ```text
//!   request(now, client) --delay--> arrives --> Store --> answer --delay--> poll(now) -> Event
//!                             |                   |
//!                             |                   +--> watches --lag, delay--> poll(now) -> Event
//!                             +-- waits while etcd stalls or has no leader: done later, or never
//! ```
//!
//! - A client that gets no answer cannot know whether its request was done, is still to be done, or
//!   never will be.
//! - Requests of a client may overtake each other; the events of a watch do not.
//! - Time is in microseconds and an argument; all random choices come from the seed.
//!
//! Not modelled: single members (their divergence is a watch that lags, their loss a time without a
//! leader), users and TLS, sizes of messages. Reads are linearizable, as all of weir's are.

mod faults;
mod message;
mod store;
mod watches;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use weir_etcd::message::{
    ChangedKey, EtcdAnswer, EtcdRequest, RequestId, TransportEvent, WatchEvent, end_of,
};
use weir_etcd::transaction::{Decided, Operation, Transaction};
use weir_etcd::{HistoryPosition, LeaseId, Revision, Versioned};

use crate::dice::Dice;
pub use message::{ClientId, Refusal};
use store::Store;
use watches::Watches;

/// Interval at which etcd looks for expired leases.
const LEASES_INTERVAL_US: u64 = 500_000;
/// After so long without a leader, watches are ended (`WithRequireLeader`).
const LEADERLESS_US: u64 = 2_000_000;
/// Within this time the data arrives that TCP resends after a cut.
const RESENT_US: (u64, u64) = (1_000, 1_500_000);

/// Times of the model; a pair is the least and the most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdModelOptions {
    /// Delay in one direction between a client and etcd.
    pub delay_us: (u64, u64),
    /// Time from a change until a watch sends it.
    pub watch_lag_us: (u64, u64),
    /// The shortest lease that is granted: one and a half election timeouts.
    pub lease_min_sec: u64,
}

impl Default for EtcdModelOptions {
    fn default() -> Self {
        Self { delay_us: (200, 3_000), watch_lag_us: (0, 5_000), lease_min_sec: 2 }
    }
}

/// The state of an etcd at one moment, to be restored later.
#[derive(Clone, Debug)]
pub struct Backup(Store);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Up,
    /// Killed: connections are refused.
    Down,
    /// Stalled, as after SIGSTOP.
    Paused,
    Leaderless,
}

#[derive(Clone, Debug)]
enum Flight {
    ToServer(ClientId, RequestId, EtcdRequest),
    ToClient(ClientId, TransportEvent),
    Look(RequestId),
    EndWatches,
}

#[derive(Clone, Copy, Debug, Default)]
struct Cut {
    to_server: bool,
    to_client: bool,
}

#[derive(Debug)]
pub struct Etcd {
    options: EtcdModelOptions,
    dice: Dice,
    store: Store,
    watches: Watches,
    mode: Mode,
    has_space: bool,
    cluster_id: u64,
    raft_term: u64,
    leases_given: i64,
    requests: u64,
    flights: BTreeMap<(u64, u64), Flight>,
    flown: u64,
    leases_due_us: u64,
    /// Requests that arrived while etcd stalled or had no leader.
    waiting: VecDeque<(ClientId, RequestId, EtcdRequest)>,
    /// Requests that have arrived, and whose answers the clients have not received.
    unanswered: BTreeSet<(ClientId, RequestId)>,
    cuts: BTreeMap<ClientId, Cut>,
    /// Messages that were sent into a cut.
    held: Vec<(ClientId, Flight)>,
}

impl Etcd {
    /// Creates an empty store, up.
    pub fn new(options: EtcdModelOptions, seed: u64) -> Self {
        Self {
            options,
            dice: Dice::new(seed),
            store: Store::new(),
            watches: Watches::default(),
            mode: Mode::Up,
            has_space: true,
            cluster_id: 1,
            raft_term: 2,
            leases_given: 0,
            requests: 0,
            flights: BTreeMap::new(),
            flown: 0,
            leases_due_us: 0,
            waiting: VecDeque::new(),
            unanswered: BTreeSet::new(),
            cuts: BTreeMap::new(),
            held: Vec::new(),
        }
    }

    /// Sends a request; the events that result are returned by [`poll`](Self::poll), if there are
    /// any.
    pub fn request(&mut self, now_us: u64, client: ClientId, request: EtcdRequest) -> RequestId {
        self.requests += 1;
        let id = RequestId(self.requests);
        let flight = Flight::ToServer(client, id, request);
        if self.cut_of(client).to_server {
            self.held.push((client, flight));
        } else {
            let due_us = now_us + self.dice.between(self.options.delay_us);
            self.fly(due_us, flight);
        }
        id
    }

    /// Returns when the next event is due.
    pub fn next_us(&self) -> Option<u64> {
        let first = self.flights.first_key_value().map(|((due_us, _), _)| *due_us);
        let leases = (self.mode == Mode::Up).then_some(self.leases_due_us);
        first.into_iter().chain(leases).min()
    }

    /// Handles everything that is due until `now_us`; appends the events for clients.
    pub fn poll(&mut self, now_us: u64, delivered: &mut Vec<(ClientId, TransportEvent)>) {
        while let Some(due_us) = self.next_us().filter(|due_us| *due_us <= now_us) {
            if self.mode == Mode::Up && self.leases_due_us <= due_us {
                self.leases_due_us = due_us + LEASES_INTERVAL_US;
                if self.store.end_leases(due_us) {
                    self.notify_watches(due_us);
                }
                continue;
            }
            let (_, flight) = self.flights.pop_first().expect("a flight is due");
            match flight {
                Flight::ToServer(client, id, request) => self.arrive(due_us, client, id, request),
                Flight::ToClient(client, event) if self.cut_of(client).to_client => {
                    self.held.push((client, Flight::ToClient(client, event)));
                }
                Flight::ToClient(client, event) => {
                    if let TransportEvent::Answered { request, .. } = event {
                        self.unanswered.remove(&(client, request));
                    }
                    delivered.push((client, event));
                }
                Flight::Look(watch) => self.look(due_us, watch),
                Flight::EndWatches if self.mode == Mode::Leaderless => self.end_watches(due_us),
                Flight::EndWatches => {}
            }
        }
    }

    /// Returns the present value of a key, past all faults: for checks, not for processes.
    pub fn get(&self, path: &str) -> Option<Versioned> {
        self.store.get(path)
    }

    /// Returns all keys below a prefix, past all faults.
    pub fn list(&self, prefix: &str) -> Vec<(String, Versioned)> {
        self.store.range(prefix, &end_of(prefix), usize::MAX, None).map_or(Vec::new(), |it| it.0)
    }

    /// Carries out a transaction past all faults, for tests and scenarios.
    ///
    /// # Panics
    /// If etcd would refuse the transaction.
    pub fn do_now(&mut self, now_us: u64, transaction: &Transaction) -> Decided {
        let decided = self.store.transact(transaction).expect("etcd takes the transaction");
        self.notify_watches(now_us);
        decided
    }

    /// Returns all changes of each revision from one on, past all faults; `None` if they are
    /// compacted.
    pub fn changes(&self, from: Revision) -> Option<Vec<Vec<ChangedKey>>> {
        self.store.changes_from("/", from.0)
    }

    /// Returns the store's revision, past all faults.
    pub fn revision(&self) -> Revision {
        self.store.revision()
    }

    fn fly(&mut self, due_us: u64, flight: Flight) {
        self.flown += 1;
        self.flights.insert((due_us, self.flown), flight);
    }

    fn cut_of(&self, client: ClientId) -> Cut {
        self.cuts.get(&client).copied().unwrap_or_default()
    }

    fn send(&mut self, now_us: u64, client: ClientId, event: TransportEvent) {
        let mut due_us = now_us + self.dice.between(self.options.delay_us);
        if let TransportEvent::Watched { watch, .. } = &event {
            due_us = self.watches.arrival(*watch, due_us);
        }
        self.fly(due_us, Flight::ToClient(client, event));
    }

    fn arrive(&mut self, now_us: u64, client: ClientId, id: RequestId, request: EtcdRequest) {
        match (self.mode, &request) {
            (_, EtcdRequest::Cancel(watch)) => self.watches.close(*watch),
            (Mode::Down, EtcdRequest::Watch { .. }) => {
                self.watched(now_us, client, id, WatchEvent::Ended(Refusal::Broken.into()))
            }
            (Mode::Down, _) => self.answer(now_us, client, id, Err(Refusal::Unreachable)),
            (Mode::Paused | Mode::Leaderless, _) => {
                self.unanswered.insert((client, id));
                self.waiting.push_back((client, id, request));
            }
            (Mode::Up, _) => {
                self.unanswered.insert((client, id));
                self.serve(now_us, client, id, request);
            }
        }
    }

    fn answer(
        &mut self,
        now_us: u64,
        client: ClientId,
        request: RequestId,
        answer: Result<EtcdAnswer, Refusal>,
    ) {
        let answer = answer.map_err(Refusal::into);
        self.send(now_us, client, TransportEvent::Answered { request, answer });
    }

    fn watched(&mut self, now_us: u64, client: ClientId, watch: RequestId, event: WatchEvent) {
        self.send(now_us, client, TransportEvent::Watched { watch, event });
    }

    fn serve(&mut self, now_us: u64, client: ClientId, id: RequestId, request: EtcdRequest) {
        let answer = match request {
            EtcdRequest::Watch { prefix, from } => {
                self.unanswered.remove(&(client, id));
                self.watches.open(id, client, prefix, from.0);
                self.watched(now_us, client, id, WatchEvent::Created);
                self.notify_watches(now_us);
                return;
            }
            EtcdRequest::Progress(watch) => {
                self.unanswered.remove(&(client, id));
                // etcd 3.4 answers for watches that are up to date; the others send changes soon
                // anyway.
                let is_due = self.watches.is_up_to_date(watch, &self.store);
                if is_due && !self.watches.is_stalled(watch) {
                    self.watched(now_us, client, watch, WatchEvent::Progress);
                }
                return;
            }
            EtcdRequest::Cancel(_) => return,
            EtcdRequest::Grant { ttl_sec } => self.grant(now_us, ttl_sec),
            EtcdRequest::KeepAlive(lease) => {
                self.store.keep_alive(lease, now_us).map(|()| EtcdAnswer::KeptAlive)
            }
            EtcdRequest::Revoke(lease) => self.store.revoke(lease).map(|()| EtcdAnswer::Revoked),
            EtcdRequest::Transact(transaction) => {
                let mut operations = transaction.then.iter().chain(&transaction.otherwise);
                let may_put = operations.any(|it| matches!(it, Operation::Put { .. }));
                // Whether the comparisons hold is not checked first (`quotaApplierV3`).
                if !self.has_space && may_put {
                    Err(Refusal::NoSpace)
                } else {
                    self.store.transact(&transaction).map(EtcdAnswer::Decided)
                }
            }
            EtcdRequest::Range { start, end, limit, revision } => {
                self.store.range(&start, &end, limit, revision).map(|(found, has_more)| {
                    EtcdAnswer::Range { position: self.position(), found, has_more }
                })
            }
        };
        self.answer(now_us, client, id, answer);
        self.notify_watches(now_us);
    }

    fn grant(&mut self, now_us: u64, ttl_sec: u64) -> Result<EtcdAnswer, Refusal> {
        if !self.has_space {
            return Err(Refusal::NoSpace);
        }
        self.leases_given += 1;
        // Never reused, even after a restore: etcd draws them at random.
        let lease = LeaseId(self.leases_given);
        let ttl_sec = ttl_sec.max(self.options.lease_min_sec);
        self.store.grant(lease, ttl_sec, now_us);
        Ok(EtcdAnswer::Granted { lease, ttl_sec })
    }

    fn position(&self) -> HistoryPosition {
        let Self { cluster_id, raft_term, .. } = *self;
        HistoryPosition { cluster_id, revision: self.store.revision(), raft_term }
    }

    /// Schedules a look at the watches that have something to send.
    fn notify_watches(&mut self, now_us: u64) {
        for watch in self.watches.become_due(&self.store) {
            let due_us = now_us + self.dice.between(self.options.watch_lag_us);
            self.fly(due_us, Flight::Look(watch));
        }
    }

    fn look(&mut self, now_us: u64, watch: RequestId) {
        let Some(client) = self.watches.client(watch) else { return };
        for event in self.watches.look(watch, &self.store) {
            self.watched(now_us, client, watch, event);
        }
    }

    fn end_watches(&mut self, now_us: u64) {
        for (watch, client) in self.watches.end_all() {
            self.watched(now_us, client, watch, WatchEvent::Ended(Refusal::Broken.into()));
        }
    }
}

#[cfg(test)]
mod tests;

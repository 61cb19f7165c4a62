//! A lease and the one key held with it: a pure state machine of answers and times.
//!
//! ```text
//!   no lease --grant--> lease --claim--> mine ---------------+
//!      ^                  |  ^             | renewed         |
//!      |                  |  +-- other <---+ another's       |
//!      +--- gone (etcd says so) ---------------------------- +
//! ```
//!
//! The owner acts only before `valid_until`: the moment the last renewal was *sent* plus the
//! lease's time, less a margin. etcd counts from the moment it received the renewal, so no other
//! process can hold the key before. The claimed key is read after every renewal, so a key that
//! another client deleted is noticed and written again.
//!
//! Invariants: one request is under way at a time; a lease that may have ended is not used.
//! [`transactions`](super::transactions) decides whose key may be taken over. Clocks must be
//! monotonic. A machine that sleeps does not notice the time, which is why the writes of a leader
//! also compare its key. The state has no access to etcd, tasks or clocks.

use std::time::{Duration, Instant};

use crate::back_off::BackOff;
use crate::revision::{LeaseId, Revision};

/// Renewals within the time of a lease: two may be lost.
const RENEWALS_PER_LEASE: u32 = 4;

/// An event for the owner of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimEvent {
    /// etcd answers, for the first time or again after `Lost`.
    Connected,
    /// etcd has not answered since `since`.
    Lost { since: Instant },
    /// The lease has ended, or may have: the owner must treat the key as gone.
    Expired,
    /// This process holds the key. An unchanged `create_revision` means that it has held the key
    /// without interruption.
    Held { create_revision: Revision },
    /// Another process holds the key.
    HeldByOther { boot_id: String },
    /// Another client deleted or took the key while the lease was alive.
    TakenAway,
}

/// A request to etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimRequest {
    /// Grant a new lease.
    Grant,
    /// Renew the lease.
    KeepAlive(LeaseId),
    /// Create the key if it is missing, otherwise report its holder.
    Claim(LeaseId),
}

/// The next thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimStep {
    Ask(ClaimRequest),
    /// Nothing until then, unless an event comes before.
    Wait(Instant),
}

/// The result of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimAnswer {
    /// `ttl`: the time that etcd granted, which may differ from the request. `sent_at`: when the
    /// request was sent.
    Granted { lease: LeaseId, ttl: Duration, sent_at: Instant },
    /// `sent_at` as above: the time of the lease counts from then.
    KeptAlive { sent_at: Instant },
    /// etcd knows no such lease.
    NoSuchLease,
    /// The key is held with this lease and has this claim's value.
    Mine { create_revision: Revision },
    /// The key is held by another process.
    Other { boot_id: String },
    /// etcd did not answer.
    Silence,
    /// An answer that does not help: the request is retried later.
    Refused,
}

/// A key that is held until `valid_until`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldKey {
    pub create_revision: Revision,
    pub lease: LeaseId,
    pub valid_until: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lease {
    id: LeaseId,
    ttl: Duration,
    valid_until: Instant,
    renew_at: Instant,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum KeyHolder {
    Unknown,
    Mine(Revision),
    Other(String),
}

/// The state of the lease and the key, and the times of the next requests.
#[derive(Debug)]
pub struct ClaimState {
    margin: Duration,
    claim_interval: Duration,
    back_off: BackOff,
    lease: Option<Lease>,
    /// Whether the end of this lease has been reported.
    is_expired: bool,
    holder: KeyHolder,
    claim_at: Instant,
    rest_until: Instant,
    /// Time of etcd's last answer; the start before the first answer.
    answered_at: Instant,
    is_connected: Option<bool>,
}

impl ClaimState {
    /// Creates a state that holds nothing. `margin` is the part of the lease's time that its owner
    /// does not use, `claim_interval` the time between two reads of a key that another process
    /// holds; `back_off` is for requests that fail.
    pub fn new(
        margin: Duration,
        claim_interval: Duration,
        back_off: BackOff,
        now: Instant,
    ) -> Self {
        Self {
            margin,
            claim_interval,
            back_off,
            lease: None,
            is_expired: false,
            holder: KeyHolder::Unknown,
            claim_at: now,
            rest_until: now,
            answered_at: now,
            is_connected: None,
        }
    }

    /// Returns the current lease, so that it can be revoked.
    pub fn lease(&self) -> Option<LeaseId> {
        self.lease.map(|lease| lease.id)
    }

    /// Returns the key, if this process holds it.
    pub fn held(&self) -> Option<HeldKey> {
        match (&self.holder, self.lease) {
            (KeyHolder::Mine(create_revision), Some(lease)) => Some(HeldKey {
                create_revision: *create_revision,
                lease: lease.id,
                valid_until: lease.valid_until,
            }),
            _ => None,
        }
    }

    /// Returns the time at which the lease must be treated as ended, if that has not been reported.
    /// It applies even while a request is under way.
    pub fn expiry(&self) -> Option<Instant> {
        self.lease.filter(|_| !self.is_expired).map(|lease| lease.valid_until)
    }

    /// Claims the key at once, because its value has changed.
    pub fn claim_now(&mut self, now: Instant) {
        self.claim_at = now;
    }

    /// Reports the end of the lease if its time is over.
    pub fn tick(&mut self, now: Instant) -> Vec<ClaimEvent> {
        let mut events = Vec::new();
        if self.expiry().is_some_and(|expiry| now >= expiry) {
            self.expire(&mut events);
        }
        events
    }

    /// Returns the next step. The caller asks again after each event, answer and wait.
    pub fn step(&mut self, now: Instant) -> ClaimStep {
        if now < self.rest_until {
            return ClaimStep::Wait(self.rest_until);
        }
        let Some(lease) = self.lease else { return ClaimStep::Ask(ClaimRequest::Grant) };
        if now >= lease.renew_at {
            return ClaimStep::Ask(ClaimRequest::KeepAlive(lease.id));
        }
        // A lease may outlive its time, but only a renewal can show that.
        if now >= self.claim_at && !self.is_expired {
            return ClaimStep::Ask(ClaimRequest::Claim(lease.id));
        }
        let claim_at = if self.is_expired { lease.renew_at } else { self.claim_at };
        ClaimStep::Wait(lease.renew_at.min(claim_at))
    }

    /// Takes the result of the request that [`step`](Self::step) returned.
    pub fn answer(&mut self, answer: ClaimAnswer, now: Instant) -> Vec<ClaimEvent> {
        // The answer may come after the end of the lease.
        let mut events = self.tick(now);
        match answer {
            ClaimAnswer::Silence => {
                if self.is_connected != Some(false) {
                    self.is_connected = Some(false);
                    events.push(ClaimEvent::Lost { since: self.answered_at });
                }
                self.retry(now);
            }
            ClaimAnswer::Refused => {
                self.on_contact(now, &mut events);
                self.retry(now);
            }
            ClaimAnswer::Granted { lease, ttl, sent_at } => {
                self.succeeded(now, &mut events);
                self.hold(lease, ttl, sent_at);
                self.claim_at = now;
            }
            ClaimAnswer::KeptAlive { sent_at } => {
                self.succeeded(now, &mut events);
                if let Some(lease) = self.lease {
                    self.hold(lease.id, lease.ttl, sent_at);
                }
                // A process that waits for another holder's key reads it at `claim_interval`.
                if !matches!(self.holder, KeyHolder::Other(_)) {
                    self.claim_at = now;
                }
            }
            ClaimAnswer::NoSuchLease => {
                self.succeeded(now, &mut events);
                if self.lease.is_some() && !self.is_expired {
                    self.expire(&mut events);
                }
                self.lease = None;
            }
            ClaimAnswer::Mine { .. } | ClaimAnswer::Other { .. } if self.is_expired => {
                self.succeeded(now, &mut events);
            }
            ClaimAnswer::Mine { create_revision } => {
                self.succeeded(now, &mut events);
                self.claimed(KeyHolder::Mine(create_revision), &mut events);
                self.claim_at = self.lease.map_or(now, |lease| lease.renew_at);
            }
            ClaimAnswer::Other { boot_id } => {
                self.succeeded(now, &mut events);
                self.claimed(KeyHolder::Other(boot_id), &mut events);
                self.claim_at = now + self.back_off.jitter(self.claim_interval);
            }
        }
        events.extend(self.tick(now));
        events
    }

    fn hold(&mut self, id: LeaseId, ttl: Duration, sent_at: Instant) {
        let valid_until = sent_at + ttl.saturating_sub(self.margin);
        let renew_at = sent_at + ttl / RENEWALS_PER_LEASE;
        self.lease = Some(Lease { id, ttl, valid_until, renew_at });
        self.is_expired = false;
    }

    fn claimed(&mut self, holder: KeyHolder, events: &mut Vec<ClaimEvent>) {
        if holder == self.holder {
            return;
        }
        if matches!(self.holder, KeyHolder::Mine(_)) {
            events.push(ClaimEvent::TakenAway);
        }
        events.push(match &holder {
            KeyHolder::Mine(create_revision) => {
                ClaimEvent::Held { create_revision: *create_revision }
            }
            KeyHolder::Other(boot_id) => ClaimEvent::HeldByOther { boot_id: boot_id.clone() },
            KeyHolder::Unknown => return,
        });
        self.holder = holder;
    }

    fn expire(&mut self, events: &mut Vec<ClaimEvent>) {
        self.is_expired = true;
        self.holder = KeyHolder::Unknown;
        events.push(ClaimEvent::Expired);
    }

    fn retry(&mut self, now: Instant) {
        self.rest_until = now + self.back_off.next_wait();
    }

    fn on_contact(&mut self, now: Instant, events: &mut Vec<ClaimEvent>) {
        self.answered_at = now;
        if self.is_connected != Some(true) {
            self.is_connected = Some(true);
            events.push(ClaimEvent::Connected);
        }
    }

    fn succeeded(&mut self, now: Instant, events: &mut Vec<ClaimEvent>) {
        self.on_contact(now, events);
        self.back_off.reset();
        self.rest_until = now;
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;

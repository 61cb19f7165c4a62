//! A lease and the one key held with it: what to do next, told what happened and when.
//!
//! ```text
//!   no lease --grant--> lease --claim--> mine ---------------+
//!      ^                  |  ^             | renewed         |
//!      |                  |  +-- other <---+ somebody else's |
//!      +--- gone (etcd says so) ---------------------------- +
//! ```
//!
//! The owner acts only before `valid_until`: the moment the last renewal was *sent* plus the lease's time, less a margin.
//! etcd counts from when it received it, so nobody else can hold the key before. What is claimed is looked at after
//! every renewal, so a key that somebody deleted is noticed and written again.
//!
//! Invariants: one request at a time; a lease that may have ended is not acted on. Whose key may be taken over is decided in
//! [`transactions`](super::transactions). Clocks must be monotonic: a machine that sleeps does not notice the time. That is
//! why the writes of a leader compare its key as well. Knows no etcd, no task and no clock.

use std::time::{Duration, Instant};

use crate::back_off::BackOff;
use crate::revision::{LeaseId, Revision};

/// Renewals in the time of a lease: two may be lost.
const RENEWALS_PER_LEASE: u32 = 4;

/// What a claim tells its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimEvent {
    /// etcd answers; again, after `Lost`.
    Connected,
    /// etcd has not answered since then.
    Lost { since: Instant },
    /// The lease ended, or may have: the key is to be taken for gone.
    Expired,
    /// The key is ours. The same `create_revision` as before means that it was ours all the time.
    Held { create_revision: Revision },
    /// Another process holds the key.
    HeldByOther { boot_id: String },
    /// Somebody took the key away while the lease lived.
    TakenAway,
}

/// What to ask of etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// A new lease.
    Grant,
    /// Renew the lease.
    KeepAlive(LeaseId),
    /// Create the key if it is missing, say whose it is otherwise.
    Claim(LeaseId),
}

/// What is to be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Ask(Request),
    /// Nothing until then, unless something happens.
    Wait(Instant),
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// `ttl`: what etcd gives it, whatever was asked for. `sent_at`: when the request was sent.
    Granted { lease: LeaseId, ttl: Duration, sent_at: Instant },
    /// `sent_at` as above: the lease's time counts from then.
    KeptAlive { sent_at: Instant },
    /// etcd knows no such lease.
    NoSuchLease,
    /// The key is held with our lease and has our value.
    Mine { create_revision: Revision },
    /// The key is held by another process.
    Other { boot_id: String },
    /// No answer at all.
    Silence,
    /// An answer that does not help: the request is tried again later.
    Refused,
}

/// A key that is ours until a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
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
enum Holder {
    Unknown,
    Mine(Revision),
    Other(String),
}

/// What is known of the lease and the key, and when to ask next.
#[derive(Debug)]
pub struct ClaimState {
    margin: Duration,
    claim_interval: Duration,
    back_off: BackOff,
    lease: Option<Lease>,
    /// Whether the end of this lease was told.
    is_expired: bool,
    holder: Holder,
    claim_at: Instant,
    rest_until: Instant,
    /// When etcd last answered; the start before its first answer.
    answered_at: Instant,
    is_connected: Option<bool>,
}

impl ClaimState {
    /// Nothing is held yet. `margin` is the part of the lease's time that its owner does not use, `claim_interval` the time
    /// between two looks at a key that another process holds; `back_off` is for requests that fail.
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
            holder: Holder::Unknown,
            claim_at: now,
            rest_until: now,
            answered_at: now,
            is_connected: None,
        }
    }

    /// The lease that there is, for its end.
    pub fn lease(&self) -> Option<LeaseId> {
        self.lease.map(|lease| lease.id)
    }

    /// The key, if it is ours.
    pub fn held(&self) -> Option<Held> {
        match (&self.holder, self.lease) {
            (Holder::Mine(create_revision), Some(lease)) => Some(Held {
                create_revision: *create_revision,
                lease: lease.id,
                valid_until: lease.valid_until,
            }),
            _ => None,
        }
    }

    /// When the lease must be taken for ended, if that was not told: looked at even while a request is under way.
    pub fn expiry(&self) -> Option<Instant> {
        self.lease.filter(|_| !self.is_expired).map(|lease| lease.valid_until)
    }

    /// The value to be held has changed: claim at once.
    pub fn claim_now(&mut self, now: Instant) {
        self.claim_at = now;
    }

    /// Time went by.
    pub fn tick(&mut self, now: Instant) -> Vec<ClaimEvent> {
        let mut events = Vec::new();
        if self.expiry().is_some_and(|expiry| now >= expiry) {
            self.expire(&mut events);
        }
        events
    }

    /// What to do now. To be asked again after each event, answer and wait.
    pub fn step(&mut self, now: Instant) -> Step {
        if now < self.rest_until {
            return Step::Wait(self.rest_until);
        }
        let Some(lease) = self.lease else { return Step::Ask(Request::Grant) };
        if now >= lease.renew_at {
            return Step::Ask(Request::KeepAlive(lease.id));
        }
        // After the end of its time a lease may live on, but only a renewal can tell.
        if now >= self.claim_at && !self.is_expired {
            return Step::Ask(Request::Claim(lease.id));
        }
        let claim_at = if self.is_expired { lease.renew_at } else { self.claim_at };
        Step::Wait(lease.renew_at.min(claim_at))
    }

    /// The request that [`step`](Self::step) wanted has ended like this.
    pub fn answer(&mut self, answer: Answer, now: Instant) -> Vec<ClaimEvent> {
        // An answer may come too late for the lease.
        let mut events = self.tick(now);
        match answer {
            Answer::Silence => {
                if self.is_connected != Some(false) {
                    self.is_connected = Some(false);
                    events.push(ClaimEvent::Lost { since: self.answered_at });
                }
                self.retry(now);
            }
            Answer::Refused => {
                self.heard(now, &mut events);
                self.retry(now);
            }
            Answer::Granted { lease, ttl, sent_at } => {
                self.succeeded(now, &mut events);
                self.hold(lease, ttl, sent_at);
                self.claim_at = now;
            }
            Answer::KeptAlive { sent_at } => {
                self.succeeded(now, &mut events);
                if let Some(lease) = self.lease {
                    self.hold(lease.id, lease.ttl, sent_at);
                }
                // One who waits for another's key looks at it at its own pace.
                if !matches!(self.holder, Holder::Other(_)) {
                    self.claim_at = now;
                }
            }
            Answer::NoSuchLease => {
                self.succeeded(now, &mut events);
                if self.lease.is_some() && !self.is_expired {
                    self.expire(&mut events);
                }
                self.lease = None;
            }
            Answer::Mine { .. } | Answer::Other { .. } if self.is_expired => {
                self.succeeded(now, &mut events);
            }
            Answer::Mine { create_revision } => {
                self.succeeded(now, &mut events);
                self.claimed(Holder::Mine(create_revision), &mut events);
                self.claim_at = self.lease.map_or(now, |lease| lease.renew_at);
            }
            Answer::Other { boot_id } => {
                self.succeeded(now, &mut events);
                self.claimed(Holder::Other(boot_id), &mut events);
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

    fn claimed(&mut self, holder: Holder, events: &mut Vec<ClaimEvent>) {
        if holder == self.holder {
            return;
        }
        if matches!(self.holder, Holder::Mine(_)) {
            events.push(ClaimEvent::TakenAway);
        }
        events.push(match &holder {
            Holder::Mine(create_revision) => ClaimEvent::Held { create_revision: *create_revision },
            Holder::Other(boot_id) => ClaimEvent::HeldByOther { boot_id: boot_id.clone() },
            Holder::Unknown => return,
        });
        self.holder = holder;
    }

    fn expire(&mut self, events: &mut Vec<ClaimEvent>) {
        self.is_expired = true;
        self.holder = Holder::Unknown;
        events.push(ClaimEvent::Expired);
    }

    fn retry(&mut self, now: Instant) {
        self.rest_until = now + self.back_off.next_wait();
    }

    fn heard(&mut self, now: Instant, events: &mut Vec<ClaimEvent>) {
        self.answered_at = now;
        if self.is_connected != Some(true) {
            self.is_connected = Some(true);
            events.push(ClaimEvent::Connected);
        }
    }

    fn succeeded(&mut self, now: Instant, events: &mut Vec<ClaimEvent>) {
        self.heard(now, events);
        self.back_off.reset();
        self.rest_until = now;
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;

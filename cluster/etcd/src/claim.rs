//! A lease and the one key held with it: [`ClaimState`] decides when to ask, [`Claim`] makes the
//! requests and reads their answers.

pub mod state;
pub mod transactions;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::back_off::BackOff;
use crate::claim::state::{Answer, ClaimEvent, ClaimState, Held, Request as Wanted, Step};
use crate::claim::transactions::{Claiming, Found};
use crate::keys::{Key, Keys};
use crate::link::{Failed, Got};
use crate::message::{Answer as Said, Request};
use crate::options::Options;
use crate::revision::{LeaseId, Revision};

/// The request under way.
#[derive(Debug)]
enum Asked {
    Grant { sent_at: Instant },
    KeepAlive { sent_at: Instant },
    Create(Claiming),
    Replace(Revision),
}

/// Claims a key as long as it exists. One request is under way at a time; does no I/O.
#[derive(Debug)]
pub struct Claim {
    state: ClaimState,
    path: String,
    boot_id: String,
    ended: Vec<String>,
    value: Vec<u8>,
    /// Whether the value has not been sent yet.
    is_changed: bool,
    ttl: Duration,
    asked: Option<Asked>,
    /// Time before which no request is made.
    waits_until: Option<Instant>,
    events: VecDeque<ClaimEvent>,
    is_over: bool,
}

impl Claim {
    /// Begins to claim `key`. `boot_id` is the claimant's, which `value` begins with; `margin` is
    /// the part of the lease's time that its owner does not use.
    pub fn new(
        options: &Options,
        key: &Key,
        boot_id: String,
        margin: Duration,
        value: Vec<u8>,
        now: Instant,
    ) -> Self {
        let seed = options.seed.rotate_left(16);
        let back_off = BackOff::new(options.retry_first, options.lease_ttl / 8, seed);
        Self {
            state: ClaimState::new(margin, options.claim_interval, back_off, now),
            path: Keys::new(options.cluster.clone()).path(key),
            boot_id,
            ended: Vec::new(),
            value,
            is_changed: false,
            ttl: options.lease_ttl,
            asked: None,
            waits_until: Some(now),
            events: VecDeque::new(),
            is_over: false,
        }
    }

    /// Takes over the key of a holder with one of these boot ids, which has certainly ended.
    pub fn after(self, ended: Vec<String>) -> Self {
        Self { ended, ..self }
    }

    /// Returns the key, if it is held. The caller must compare `valid_until` with the clock.
    pub fn held(&self) -> Option<Held> {
        self.state.held().filter(|_| !self.is_over)
    }

    /// Replaces the value; it is written at the next opportunity.
    pub fn replace(&mut self, value: Vec<u8>, now: Instant) {
        (self.value, self.is_changed) = (value, true);
        self.waits_until = Some(now);
    }

    /// Ends the claim. Returns the lease to revoke.
    pub fn close(&mut self) -> Option<LeaseId> {
        self.is_over = true;
        self.state.lease()
    }

    /// Returns the time at which to call [`next_request`](Self::next_request) again, if no answer
    /// comes before.
    pub fn deadline(&self) -> Option<Instant> {
        let wait = self.waits_until.filter(|_| self.asked.is_none());
        self.state.expiry().into_iter().chain(wait).min().filter(|_| !self.is_over)
    }

    /// Returns the next request, if one is due. The end of the lease is reported even while one is
    /// under way.
    pub fn next_request(&mut self, now: Instant) -> Option<Request> {
        if self.is_over {
            return None;
        }
        let events = self.state.tick(now);
        self.events.extend(events);
        if self.asked.is_some() {
            return None;
        }
        if self.is_changed {
            self.state.claim_now(now);
        }
        match self.state.step(now) {
            Step::Wait(until) => {
                self.waits_until = Some(until);
                None
            }
            Step::Ask(wanted) => {
                self.waits_until = None;
                Some(self.ask(wanted, now))
            }
        }
    }

    fn ask(&mut self, wanted: Wanted, now: Instant) -> Request {
        let (asked, request) = match wanted {
            Wanted::Grant => {
                (Asked::Grant { sent_at: now }, Request::Grant { ttl_sec: self.ttl.as_secs() })
            }
            Wanted::KeepAlive(lease) => {
                (Asked::KeepAlive { sent_at: now }, Request::KeepAlive(lease))
            }
            Wanted::Claim(lease) => {
                let (path, boot_id) = (self.path.clone(), self.boot_id.clone());
                let (ended, value) = (self.ended.clone(), self.value.clone());
                self.is_changed = false;
                let claiming = Claiming { path, boot_id, ended, lease, value };
                let create = claiming.create();
                (Asked::Create(claiming), Request::Transact(create))
            }
        };
        self.asked = Some(asked);
        request
    }

    /// Takes the result of a request. Returns a follow-up request, if there is one.
    pub fn done(&mut self, got: Result<Got, Failed>, now: Instant) -> Option<Request> {
        let asked = self.asked.take().filter(|_| !self.is_over)?;
        let answer = match (asked, got) {
            (_, Err(Failed::NoSuchLease)) => Answer::NoSuchLease,
            (_, Err(Failed::Etcd(error))) if error.cause.is_silence() => Answer::Silence,
            (Asked::Grant { sent_at }, Ok(Got::Answer(Said::Granted { lease, ttl_sec }))) => {
                // etcd may grant a longer time than requested, never a shorter one.
                Answer::Granted { lease, ttl: Duration::from_secs(ttl_sec), sent_at }
            }
            (Asked::KeepAlive { sent_at }, Ok(Got::Answer(Said::KeptAlive))) => {
                Answer::KeptAlive { sent_at }
            }
            (Asked::Create(claiming), Ok(Got::Answer(Said::Decided(decided)))) => {
                match claiming.created(decided) {
                    Found::Answer(answer) => answer,
                    Found::OwnOther { create_revision, mod_revision } => {
                        let replace = claiming.replace(mod_revision);
                        self.asked = Some(Asked::Replace(create_revision));
                        return Some(Request::Transact(replace));
                    }
                }
            }
            (Asked::Replace(create_revision), Ok(Got::Answer(Said::Decided(decided)))) => {
                Claiming::replaced(create_revision, &decided)
            }
            _ => Answer::Refused,
        };
        let events = self.state.answer(answer, now);
        self.events.extend(events);
        self.waits_until = Some(now);
        None
    }

    /// Returns the next event of the claim.
    pub fn next_event(&mut self) -> Option<ClaimEvent> {
        self.events.pop_front()
    }
}

#[cfg(test)]
#[path = "claim_tests.rs"]
mod tests;

//! A lease and the one key held with it: [`ClaimState`] decides when to ask, [`Claim`] makes the
//! requests and reads their answers.

pub mod state;
pub mod transactions;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::back_off::BackOff;
use crate::claim::state::{ClaimAnswer, ClaimEvent, ClaimRequest, ClaimState, ClaimStep, HeldKey};
use crate::claim::transactions::{Claiming, FoundHolder};
use crate::keys::{Key, Keys};
use crate::link::{Failed, Got};
use crate::message::{EtcdAnswer, EtcdRequest};
use crate::options::EtcdOptions;
use crate::revision::{LeaseId, Revision};

/// The request under way.
#[derive(Debug)]
enum ClaimUnderWay {
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
    asked: Option<ClaimUnderWay>,
    /// Time before which no request is made.
    waits_until: Option<Instant>,
    events: VecDeque<ClaimEvent>,
    is_over: bool,
}

impl Claim {
    /// Begins to claim `key`. `boot_id` is the claimant's, which `value` begins with; `margin` is
    /// the part of the lease's time that its owner does not use.
    pub fn new(
        options: &EtcdOptions,
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
    pub fn held(&self) -> Option<HeldKey> {
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
    pub fn next_request(&mut self, now: Instant) -> Option<EtcdRequest> {
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
            ClaimStep::Wait(until) => {
                self.waits_until = Some(until);
                None
            }
            ClaimStep::Ask(wanted) => {
                self.waits_until = None;
                Some(self.ask(wanted, now))
            }
        }
    }

    fn ask(&mut self, wanted: ClaimRequest, now: Instant) -> EtcdRequest {
        let (asked, request) = match wanted {
            ClaimRequest::Grant => (
                ClaimUnderWay::Grant { sent_at: now },
                EtcdRequest::Grant { ttl_sec: self.ttl.as_secs() },
            ),
            ClaimRequest::KeepAlive(lease) => {
                (ClaimUnderWay::KeepAlive { sent_at: now }, EtcdRequest::KeepAlive(lease))
            }
            ClaimRequest::Claim(lease) => {
                let (path, boot_id) = (self.path.clone(), self.boot_id.clone());
                let (ended, value) = (self.ended.clone(), self.value.clone());
                self.is_changed = false;
                let claiming = Claiming { path, boot_id, ended, lease, value };
                let create = claiming.create();
                (ClaimUnderWay::Create(claiming), EtcdRequest::Transact(create))
            }
        };
        self.asked = Some(asked);
        request
    }

    /// Takes the result of a request. Returns a follow-up request, if there is one.
    pub fn done(&mut self, got: Result<Got, Failed>, now: Instant) -> Option<EtcdRequest> {
        let asked = self.asked.take().filter(|_| !self.is_over)?;
        let answer = match (asked, got) {
            (_, Err(Failed::NoSuchLease)) => ClaimAnswer::NoSuchLease,
            (_, Err(Failed::Etcd(error))) if error.cause.is_silence() => ClaimAnswer::Silence,
            (
                ClaimUnderWay::Grant { sent_at },
                Ok(Got::Answer(EtcdAnswer::Granted { lease, ttl_sec })),
            ) => {
                // etcd may grant a longer time than requested, never a shorter one.
                ClaimAnswer::Granted { lease, ttl: Duration::from_secs(ttl_sec), sent_at }
            }
            (ClaimUnderWay::KeepAlive { sent_at }, Ok(Got::Answer(EtcdAnswer::KeptAlive))) => {
                ClaimAnswer::KeptAlive { sent_at }
            }
            (ClaimUnderWay::Create(claiming), Ok(Got::Answer(EtcdAnswer::Decided(decided)))) => {
                match claiming.created(decided) {
                    FoundHolder::Answer(answer) => answer,
                    FoundHolder::OwnOther { create_revision, mod_revision } => {
                        let replace = claiming.replace(mod_revision);
                        self.asked = Some(ClaimUnderWay::Replace(create_revision));
                        return Some(EtcdRequest::Transact(replace));
                    }
                }
            }
            (
                ClaimUnderWay::Replace(create_revision),
                Ok(Got::Answer(EtcdAnswer::Decided(decided))),
            ) => Claiming::replaced(create_revision, &decided),
            _ => ClaimAnswer::Refused,
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

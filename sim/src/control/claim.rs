//! A key held with a lease, as `weir_cluster` holds it: [`ClaimState`] decides, this asks.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use weir_cluster::back_off::BackOff;
use weir_cluster::claim::state::{Answer, ClaimState, Held, Request as Wish, Step};
use weir_cluster::claim::transactions::{Claiming, Found};
use weir_cluster::{ClaimEvent, Key, LeaseId, Options, Revision};

use super::link::{Failed, Got};
use crate::etcd::{Answer as Said, Request};

#[derive(Debug)]
enum Asked {
    Grant { sent_at: Instant },
    KeepAlive { sent_at: Instant },
    Create(Claiming),
    Replace(Revision),
}

#[derive(Debug)]
pub(super) struct Claim {
    state: ClaimState,
    path: String,
    boot_id: String,
    ended: Vec<String>,
    value: Vec<u8>,
    ttl: Duration,
    asked: Option<Asked>,
    /// Nothing is to be asked before.
    waits_until: Option<Instant>,
    events: VecDeque<ClaimEvent>,
    is_over: bool,
}

impl Claim {
    pub(super) fn new(
        options: &Options,
        key: &Key,
        boot_id: String,
        margin: Duration,
        value: Vec<u8>,
        now: Instant,
    ) -> Self {
        let seed = options.seed.rotate_left(16);
        let back_off = BackOff::new(options.retry_first, options.lease_ttl / 8, seed);
        let keys = weir_cluster::Keys::new(options.cluster.clone());
        Self {
            state: ClaimState::new(margin, options.claim_interval, back_off, now),
            path: keys.path(key),
            boot_id,
            ended: Vec::new(),
            value,
            ttl: options.lease_ttl,
            asked: None,
            waits_until: Some(now),
            events: VecDeque::new(),
            is_over: false,
        }
    }

    /// Holders of these boot ids have certainly ended.
    pub(super) fn after(self, ended: Vec<String>) -> Self {
        Self { ended, ..self }
    }

    pub(super) fn held(&self) -> Option<Held> {
        self.state.held().filter(|_| !self.is_over)
    }

    /// Another value is written at the next occasion.
    pub(super) fn replace(&mut self, value: Vec<u8>, now: Instant) {
        self.value = value;
        self.state.claim_now(now);
        self.waits_until = Some(now);
    }

    /// Nothing is claimed any more. The lease, to be revoked.
    pub(super) fn close(&mut self) -> Option<LeaseId> {
        self.is_over = true;
        self.state.lease()
    }

    /// When to look again, if no answer comes before.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let wait = self.waits_until.filter(|_| self.asked.is_none());
        self.state.expiry().into_iter().chain(wait).min().filter(|_| !self.is_over)
    }

    /// The next request, if it is time for one.
    pub(super) fn next_request(&mut self, now: Instant) -> Option<Request> {
        if self.is_over {
            return None;
        }
        let events = self.state.tick(now);
        self.events.extend(events);
        if self.asked.is_some() {
            return None;
        }
        match self.state.step(now) {
            Step::Wait(until) => {
                self.waits_until = Some(until);
                None
            }
            Step::Ask(wish) => {
                self.waits_until = None;
                Some(self.ask(wish, now))
            }
        }
    }

    fn ask(&mut self, wish: Wish, now: Instant) -> Request {
        let (asked, request) = match wish {
            Wish::Grant => {
                (Asked::Grant { sent_at: now }, Request::Grant { ttl_sec: self.ttl.as_secs() })
            }
            Wish::KeepAlive(lease) => {
                (Asked::KeepAlive { sent_at: now }, Request::KeepAlive(lease))
            }
            Wish::Claim(lease) => {
                let (path, boot_id) = (self.path.clone(), self.boot_id.clone());
                let (ended, value) = (self.ended.clone(), self.value.clone());
                let claiming = Claiming { path, boot_id, ended, lease, value };
                let create = claiming.create();
                (Asked::Create(claiming), Request::Transact(create))
            }
        };
        self.asked = Some(asked);
        request
    }

    /// Takes the end of a request; there may be another one that belongs to it.
    pub(super) fn done(&mut self, got: Result<Got, Failed>, now: Instant) -> Option<Request> {
        let asked = self.asked.take().filter(|_| !self.is_over)?;
        let answer = match (asked, got) {
            (_, Err(Failed::NoSuchLease)) => Answer::NoSuchLease,
            (_, Err(Failed::Etcd(error))) if error.cause.is_silence() => Answer::Silence,
            (Asked::Grant { sent_at }, Ok(Got::Answer(Said::Granted { lease, ttl_sec }))) => {
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

    pub(super) fn next_event(&mut self) -> Option<ClaimEvent> {
        self.events.pop_front()
    }
}

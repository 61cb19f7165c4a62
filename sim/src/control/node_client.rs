//! A node's process at etcd: it looks for its cluster, registers, mirrors the keys, writes entries and says its last word.
//! What it looks, registers and writes for is decided by [`weir_node_core`].

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use weir_cluster::swap::{self, Change as Put, Outcome, Swap};
use weir_cluster::{
    Cause, ClusterName, Key, LeaseId, NodeId, NodeRecord, Options, Revision, Versioned,
};
use weir_node_core::farewell::{Farewell, Step};
use weir_node_core::first_look::{FirstLook, Found, LOOK_INTERVAL, NotFound, found, is_known};
use weir_node_core::{Event as NodeEvent, KnownMap, Registration, Written};
use weir_shard::{BootId, ShardEntry, ShardId};

use super::claim::Claim;
use super::clock::ProcessClock;
use super::link::{At, Done, Failed, Got, Link};
use super::mirror::{Job, Mirror, Wish};
use crate::etcd::{Answer, ClientId, Etcd, Event, Request};

/// Who a process is.
#[derive(Clone, Debug)]
pub struct NodeSetup {
    pub client: ClientId,
    pub cluster: ClusterName,
    pub name: NodeId,
    /// Of its jitter: different in each process.
    pub seed: u64,
    pub clock: ProcessClock,
    /// Boot ids of its former processes, which have ended.
    pub ended: Vec<String>,
    /// As it lies on the node's disk.
    pub map: KnownMap,
}

/// What a node's process is told.
#[derive(Debug)]
pub enum Told {
    /// What it begins with.
    Found(Box<Found>),
    /// Then this.
    Event(NodeEvent),
}

/// What is looked for at etcd.
#[derive(Debug)]
enum Looking {
    /// What the cluster is.
    First(FirstLook),
    /// Whether etcd holds the cluster of this id.
    For(String),
    No,
}

#[derive(Clone, Debug)]
enum Tag {
    Desired,
    Meta,
    Claim,
    Mirror(Job),
    Entry(ShardId),
    Intent,
    Farewell,
    Revoke,
}

/// The last word.
#[derive(Debug)]
enum Leaving {
    Saying(Farewell),
    Revoking,
    Left,
}

/// Lives as long as its process.
#[derive(Debug)]
pub struct NodeClient {
    setup: NodeSetup,
    link: Link<Tag>,
    looking: Looking,
    look_at: Option<Instant>,
    /// The cluster's file as it was found by the look under way.
    desired: Option<Vec<u8>>,
    claim: Option<Claim>,
    mirror: Option<Mirror>,
    writes: Vec<(ShardId, Revision, Vec<u8>)>,
    told: VecDeque<Told>,
    leaving: Option<Leaving>,
    /// What is to be done next for the last word.
    next_step: Option<Step>,
    is_unsaid: bool,
}

impl NodeClient {
    /// Begins to look for what the cluster is.
    pub fn new(setup: NodeSetup, now_us: u64) -> Self {
        // The addresses of etcd's members mean nothing here.
        let options = Options::new(setup.cluster.clone(), Vec::new(), setup.seed);
        Self {
            looking: Looking::First(FirstLook::new(setup.clock.since(now_us))),
            look_at: Some(setup.clock.instant(now_us)),
            link: Link::new(setup.client, options),
            setup,
            desired: None,
            claim: None,
            mirror: None,
            writes: Vec::new(),
            told: VecDeque::new(),
            leaving: None,
            next_step: None,
            is_unsaid: false,
        }
    }

    /// The node registers, and mirrors the keys from now on.
    pub fn take_part(&mut self, now_us: u64, record: &NodeRecord) {
        let (now, options) = (self.setup.clock.instant(now_us), &self.link.options);
        let key = Key::Node(self.setup.name.clone());
        let boot_id = record.boot_id.clone();
        let claim = Claim::new(options, &key, boot_id, Duration::ZERO, json(record), now);
        self.claim = Some(claim.after(self.setup.ended.clone()));
        self.mirror = Some(Mirror::new(options, now));
    }

    /// Another record of the node, of the same boot.
    pub fn update(&mut self, now_us: u64, record: &NodeRecord) {
        if let Some(claim) = &mut self.claim {
            claim.replace(json(record), self.setup.clock.instant(now_us));
        }
    }

    /// Writes a shard's entry if it still has this revision; [`NodeEvent::Written`] follows.
    pub fn write(&mut self, shard: ShardId, expected: Revision, entry: &ShardEntry) {
        self.writes.push((shard, expected, entry.to_json().into_bytes()));
    }

    /// The last words: these lives have ended, and the node's key goes at once.
    pub fn leave(&mut self, now_us: u64, boot_ids: Vec<BootId>) {
        let at_ms = self.setup.clock.now(now_us).unix_ms;
        let (farewell, step) = Farewell::new(self.setup.name.clone(), boot_ids, at_ms);
        self.leaving = Some(Leaving::Saying(farewell));
        self.next_step = Some(step);
    }

    /// The last words are said, or will never be.
    pub fn has_left(&self) -> bool {
        matches!(self.leaving, Some(Leaving::Left))
    }

    /// For certain nobody has heard the last words.
    pub fn is_unsaid(&self) -> bool {
        self.is_unsaid
    }

    /// The next thing that the process is told.
    pub fn next_told(&mut self) -> Option<Told> {
        self.told.pop_front()
    }

    /// When [`poll`](Self::poll) is due, if etcd tells nothing before.
    pub fn next_us(&self) -> Option<u64> {
        let claim = self.claim.as_ref().and_then(Claim::deadline);
        let mirror = self.mirror.as_ref().and_then(Mirror::deadline);
        let deadlines = [self.link.deadline(), self.look_at, claim, mirror];
        let first = deadlines.into_iter().flatten().min()?;
        Some(self.setup.clock.us_at(first))
    }

    /// Takes what etcd tells this client.
    pub fn event(&mut self, now_us: u64, etcd: &mut Etcd, event: Event) {
        let at = self.at(now_us);
        if let Some((watch, news)) = self.link.event(etcd, at, event)
            && let Some(mirror) = &mut self.mirror
        {
            mirror.news(watch, news, at.now);
        }
        self.poll(now_us, etcd);
    }

    /// Does everything that is due.
    pub fn poll(&mut self, now_us: u64, etcd: &mut Etcd) {
        let at = self.at(now_us);
        self.link.tick(at);
        loop {
            self.ask(etcd, at);
            let Some(done) = self.link.next_done() else { break };
            self.done(etcd, at, done);
        }
    }

    fn at(&self, now_us: u64) -> At {
        At { us: now_us, now: self.setup.clock.instant(now_us) }
    }

    fn ask(&mut self, etcd: &mut Etcd, at: At) {
        if self.look_at.is_some_and(|look_at| at.now >= look_at) {
            self.look_at = None;
            self.get(etcd, at, Tag::Desired, &Key::Desired);
        }
        if let Some(request) = self.claim.as_mut().and_then(|claim| claim.next_request(at.now)) {
            self.link.ask(etcd, at, Tag::Claim, request);
        }
        if let Some(mirror) = &mut self.mirror {
            mirror.tick(at.now);
            while let Some(wish) = mirror.next_wish() {
                match wish {
                    Wish::Ask(job, request) => self.link.ask(etcd, at, Tag::Mirror(job), request),
                    Wish::Say(request) => self.link.say(etcd, at, request),
                    Wish::Distrust(generation) => self.link.distrust(generation),
                }
            }
            while let Some(event) = mirror.next_event() {
                self.told.push_back(Told::Event(NodeEvent::Mirror(event)));
            }
        }
        while let Some(event) = self.claim.as_mut().and_then(Claim::next_event) {
            let registration = Registration::of(&event).map(NodeEvent::Registration);
            self.told.extend(registration.map(Told::Event));
        }
        for (shard, revision, value) in std::mem::take(&mut self.writes) {
            let (key, expected) = (Key::Shard(shard), Some(revision));
            let swap = Swap { key, expected, change: Put::Put(value) };
            self.transact(etcd, at, Tag::Entry(shard), &[swap]);
        }
        match self.next_step.take() {
            Some(Step::Read(key)) => self.get(etcd, at, Tag::Intent, &key),
            Some(Step::Write(swap)) => self.transact(etcd, at, Tag::Farewell, &[swap]),
            Some(Step::Leave { is_unsaid }) => {
                self.is_unsaid = is_unsaid;
                self.revoke(etcd, at);
            }
            None => {}
        }
    }

    fn get(&mut self, etcd: &mut Etcd, at: At, tag: Tag, key: &Key) {
        let start = self.link.keys.path(key);
        let end = format!("{start}\0");
        self.link.ask(etcd, at, tag, Request::Range { start, end, limit: 1, revision: None });
    }

    fn transact(&mut self, etcd: &mut Etcd, at: At, tag: Tag, swaps: &[Swap]) {
        let transaction =
            swap::transaction(&self.link.keys, swaps, None).expect("one key, and not too large");
        self.link.ask(etcd, at, tag, Request::Transact(transaction));
    }

    fn done(&mut self, etcd: &mut Etcd, at: At, done: Done<Tag>) {
        match done.tag {
            Tag::Desired => self.found_desired(etcd, at, one(done.got)),
            Tag::Meta => self.found_meta(at, one(done.got)),
            Tag::Claim => {
                let claim = self.claim.as_mut();
                if let Some(request) = claim.and_then(|it| it.done(done.got, at.now)) {
                    self.link.ask(etcd, at, Tag::Claim, request);
                }
            }
            Tag::Mirror(job) => {
                if let Some(mirror) = &mut self.mirror {
                    mirror.done(job, done.got, at.now);
                }
            }
            Tag::Entry(shard) => {
                let how = Written::of(&outcome(done.got));
                self.told.push_back(Told::Event(NodeEvent::Written { shard, how }));
            }
            Tag::Intent => {
                if let Some(Leaving::Saying(farewell)) = &self.leaving {
                    let found = one(done.got).ok_or_else(|| "no answer".to_owned());
                    self.next_step = Some(farewell.read(found));
                }
            }
            Tag::Farewell => {
                if let Some(Leaving::Saying(farewell)) = &mut self.leaving {
                    self.next_step = Some(farewell.written(&outcome(done.got)));
                }
            }
            Tag::Revoke => self.leaving = Some(Leaving::Left),
        }
    }

    /// None: no answer. Some of none: there is no such key.
    fn found_desired(&mut self, etcd: &mut Etcd, at: At, held: Option<Option<Versioned>>) {
        match held {
            Some(Some(desired)) => {
                self.desired = Some(desired.value);
                self.get(etcd, at, Tag::Meta, &Key::Meta);
            }
            Some(None) => self.looked(at, found(None, None)),
            None => self.looked(at, Err(NotFound::Silent("no answer".into()))),
        }
    }

    fn found_meta(&mut self, at: At, held: Option<Option<Versioned>>) {
        let desired = self.desired.take();
        let looked = match held {
            Some(meta) => found(desired.as_deref(), meta.as_ref().map(|meta| &meta.value[..])),
            None => Err(NotFound::Silent("no answer".into())),
        };
        self.looked(at, looked);
    }

    /// A look has ended like this.
    fn looked(&mut self, at: At, looked: Result<(String, weir_config::Desired), NotFound>) {
        self.look_at = Some(at.now + LOOK_INTERVAL);
        match &mut self.looking {
            Looking::First(looks) => {
                let (map, name) = (&self.setup.map, self.setup.cluster.to_string());
                let Some(found) = looks.take(self.setup.clock.since(at.us), looked, map, &name)
                else {
                    return;
                };
                self.looking = match found.is_without_etcd {
                    true => Looking::For(found.cluster_id.clone()),
                    false => Looking::No,
                };
                self.told.push_back(Told::Found(Box::new(found)));
            }
            Looking::For(cluster_id) => {
                let Some(found) = is_known(looked, cluster_id) else { return };
                if found.is_ok() {
                    self.looking = Looking::No;
                }
                self.told.push_back(Told::Event(NodeEvent::ClusterFound(found)));
            }
            Looking::No => {}
        }
        if matches!(self.looking, Looking::No) {
            self.look_at = None;
        }
    }

    fn revoke(&mut self, etcd: &mut Etcd, at: At) {
        let lease: Option<LeaseId> = self.claim.as_mut().and_then(Claim::close);
        self.mirror = None;
        self.leaving = Some(Leaving::Revoking);
        match lease {
            Some(lease) => self.link.ask(etcd, at, Tag::Revoke, Request::Revoke(lease)),
            None => self.leaving = Some(Leaving::Left),
        }
    }
}

/// What a key is; none if there was no answer.
pub(super) fn one(got: Result<Got, Failed>) -> Option<Option<Versioned>> {
    match got {
        Ok(Got::Answer(Answer::Range { found, .. })) => {
            Some(found.into_iter().next().map(|(_, held)| held))
        }
        _ => None,
    }
}

fn outcome(got: Result<Got, Failed>) -> Outcome {
    match got {
        Ok(Got::Answer(Answer::Decided(decided))) => Outcome::of_decided(decided, None),
        Err(Failed::Etcd(error)) => Outcome::of_error(error),
        _ => Outcome::of_error(super::link::error(Cause::Other, "another answer", true)),
    }
}

pub(super) fn json(value: &impl serde::Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("texts and numbers")
}

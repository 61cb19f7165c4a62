//! A node's process as a client of etcd: it looks for its cluster, registers, mirrors the keys,
//! writes entries and sends its shutdown notice. [`weir_node_core`] decides what it looks for,
//! registers and writes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use weir_etcd::claim::Claim;
use weir_etcd::link::{CompletedRequest, EtcdLink, Failed, Got};
use weir_etcd::message::{EtcdAnswer, EtcdRequest, TransportEvent};
use weir_etcd::mirror::{MirrorClient, MirrorJob};
use weir_etcd::swap::{self, Swap, SwapChange};
use weir_etcd::{
    ClusterName, Contact, EtcdOptions, Key, KeyRange, LeaseId, MirrorEvent, NodeId, NodeRecord,
    Revision, Versioned, json, registration,
};
use weir_map::{BootId, ShardEntry, ShardId};
use weir_node_core::first_look::{
    FirstLook, FoundCluster, LOOK_INTERVAL, NotFound, found, is_known,
};
use weir_node_core::shutdown_notice::{NoticeStep, ShutdownNotice};
use weir_node_core::{KnownMap, Notice, Registration, WriteResult};

use super::clock::ProcessClock;
use super::wire::{At, Wire};
use crate::etcd::{ClientId, Etcd};

/// The identity, clock and disk content of a node's process.
#[derive(Clone, Debug)]
pub struct NodeSetup {
    pub client: ClientId,
    pub cluster: ClusterName,
    pub name: NodeId,
    /// Seed of its jitter: different in each process.
    pub seed: u64,
    pub clock: ProcessClock,
    /// Boot ids of the node's former processes, which have ended.
    pub ended: Vec<String>,
    /// The map on the node's disk.
    pub map: KnownMap,
}

/// An event for a node's process.
#[derive(Debug)]
pub enum NodeInput {
    /// The cluster that it has found; the first event.
    Found(Box<FoundCluster>),
    /// Changes of the mirrored keys, in etcd's order.
    Mirror(MirrorEvent),
    Notice(Notice),
}

/// The look-up at etcd that is under way.
#[derive(Debug)]
enum Looking {
    /// Which cluster it is.
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
    Mirror(MirrorJob),
    Entry(ShardId),
    Intent,
    ShutdownNotice,
    Revoke,
}

/// The progress of the shutdown notice.
#[derive(Debug)]
enum Leaving {
    Sending(ShutdownNotice),
    Revoking,
    Left,
}

/// A node's process at etcd, from its start to its end.
#[derive(Debug)]
pub struct NodeClient {
    setup: NodeSetup,
    link: EtcdLink<Tag>,
    contact: Arc<Contact>,
    wire: Wire,
    looking: Looking,
    look_at: Option<Instant>,
    /// The cluster's file as the look-up under way has found it.
    desired: Option<Vec<u8>>,
    claim: Option<Claim>,
    mirror: Option<MirrorClient>,
    writes: Vec<(ShardId, Revision, Vec<u8>)>,
    inputs: VecDeque<NodeInput>,
    leaving: Option<Leaving>,
    /// The next step of the shutdown notice.
    next_step: Option<NoticeStep>,
    is_unsent: bool,
}

impl NodeClient {
    /// Creates a client, which begins to look for its cluster.
    pub fn new(setup: NodeSetup, now_us: u64) -> Self {
        // The model needs no addresses of etcd's members.
        let options = EtcdOptions::new(setup.cluster.clone(), Vec::new(), setup.seed);
        let now = setup.clock.instant(now_us);
        let contact = Contact::new(now);
        Self {
            looking: Looking::First(FirstLook::new(setup.clock.since(now_us))),
            look_at: Some(now),
            link: EtcdLink::new(options, Arc::clone(&contact)),
            contact,
            wire: Wire::new(setup.client),
            setup,
            desired: None,
            claim: None,
            mirror: None,
            writes: Vec::new(),
            inputs: VecDeque::new(),
            leaving: None,
            next_step: None,
            is_unsent: false,
        }
    }

    /// Registers the node and begins to mirror the keys.
    pub fn take_part(&mut self, now_us: u64, record: &NodeRecord) {
        let (now, options) = (self.setup.clock.instant(now_us), &self.link.options);
        let (name, ended) = (self.setup.name.clone(), self.setup.ended.clone());
        self.claim = Some(registration(options, name, record, ended, now));
        let contact = Arc::clone(&self.contact);
        self.mirror = Some(MirrorClient::new(options, contact, KeyRange::All, None, now));
    }

    /// Replaces the record of the node by another one of the same boot.
    pub fn update(&mut self, now_us: u64, record: &NodeRecord) {
        if let Some(claim) = &mut self.claim {
            claim.replace(json(record), self.setup.clock.instant(now_us));
        }
    }

    /// Writes a shard's entry if it still has this revision; [`Notice::Written`] follows.
    pub fn write(&mut self, shard: ShardId, expected: Revision, entry: &ShardEntry) {
        self.writes.push((shard, expected, entry.to_json().into_bytes()));
    }

    /// Sends the shutdown notice: these incarnations have ended, and the node's key is removed at
    /// once.
    pub fn leave(&mut self, now_us: u64, boot_ids: Vec<BootId>) {
        let at_ms = self.setup.clock.now(now_us).unix_ms;
        let (shutdown_notice, step) = ShutdownNotice::new(self.setup.name.clone(), boot_ids, at_ms);
        self.leaving = Some(Leaving::Sending(shutdown_notice));
        self.next_step = Some(step);
    }

    /// True if the shutdown notice was sent, or will never be.
    pub fn has_left(&self) -> bool {
        matches!(self.leaving, Some(Leaving::Left))
    }

    /// True if the shutdown notice has certainly reached no reader.
    pub fn is_unsent(&self) -> bool {
        self.is_unsent
    }

    /// Returns the next event for the process.
    pub fn next_input(&mut self) -> Option<NodeInput> {
        self.inputs.pop_front()
    }

    /// Returns when [`poll`](Self::poll) is due, if no event of etcd arrives before.
    pub fn next_us(&self) -> Option<u64> {
        let claim = self.claim.as_ref().and_then(Claim::deadline);
        let mirror = self.mirror.as_ref().and_then(MirrorClient::deadline);
        let deadlines = [self.link.deadline(), self.look_at, claim, mirror];
        let first = deadlines.into_iter().flatten().min()?;
        Some(self.setup.clock.us_at(first))
    }

    /// Takes an event of etcd for this client.
    pub fn event(&mut self, now_us: u64, etcd: &mut Etcd, event: TransportEvent) {
        let at = self.at(now_us);
        let event = self.wire.event(event);
        if let Some((watch, event)) = event.and_then(|event| self.link.event(at.now, event))
            && let Some(mirror) = &mut self.mirror
        {
            mirror.on_watch_event(watch, event, at.now);
        }
        self.poll(now_us, etcd);
    }

    /// Does everything that is due.
    pub fn poll(&mut self, now_us: u64, etcd: &mut Etcd) {
        let at = self.at(now_us);
        self.link.tick(at.now);
        loop {
            self.ask(at);
            let Some(done) = self.link.next_done() else { break };
            self.done(at, done);
        }
        while let Some(order) = self.link.next_order() {
            self.wire.carry(etcd, now_us, order);
        }
    }

    fn at(&self, now_us: u64) -> At {
        At { us: now_us, now: self.setup.clock.instant(now_us) }
    }

    fn ask(&mut self, at: At) {
        if self.look_at.is_some_and(|look_at| at.now >= look_at) {
            self.look_at = None;
            self.get(at, Tag::Desired, &Key::Desired);
        }
        if let Some(request) = self.claim.as_mut().and_then(|claim| claim.next_request(at.now)) {
            self.link.ask(at.now, Tag::Claim, request);
        }
        if let Some(mirror) = &mut self.mirror {
            mirror.tick(at.now);
            mirror.ask(&mut self.link, at.now, Tag::Mirror);
            while let Some(event) = mirror.next_event() {
                self.inputs.push_back(NodeInput::Mirror(event));
            }
        }
        while let Some(event) = self.claim.as_mut().and_then(Claim::next_event) {
            let registration = Registration::of(&event).map(Notice::Registration);
            self.inputs.extend(registration.map(NodeInput::Notice));
        }
        for (shard, revision, value) in std::mem::take(&mut self.writes) {
            let (key, expected) = (Key::Shard(shard), Some(revision));
            let swap = Swap { key, expected, change: SwapChange::Put(value) };
            self.transact(at, Tag::Entry(shard), &[swap]);
        }
        match self.next_step.take() {
            Some(NoticeStep::Read(key)) => self.get(at, Tag::Intent, &key),
            Some(NoticeStep::Write(swap)) => self.transact(at, Tag::ShutdownNotice, &[swap]),
            Some(NoticeStep::Leave { is_unsent }) => {
                self.is_unsent = is_unsent;
                self.revoke(at);
            }
            None => {}
        }
    }

    fn get(&mut self, at: At, tag: Tag, key: &Key) {
        let request = EtcdRequest::get(&self.link.keys.path(key));
        self.link.ask(at.now, tag, request);
    }

    fn transact(&mut self, at: At, tag: Tag, swaps: &[Swap]) {
        let transaction =
            swap::transaction(&self.link.keys, swaps, None).expect("one key fits a transaction");
        self.link.ask(at.now, tag, EtcdRequest::Transact(transaction));
    }

    fn done(&mut self, at: At, done: CompletedRequest<Tag>) {
        match done.tag {
            Tag::Desired => self.found_desired(at, one(done.got)),
            Tag::Meta => self.found_meta(at, one(done.got)),
            Tag::Claim => {
                let claim = self.claim.as_mut();
                if let Some(request) = claim.and_then(|it| it.done(done.got, at.now)) {
                    self.link.ask(at.now, Tag::Claim, request);
                }
            }
            Tag::Mirror(job) => {
                if let Some(mirror) = &mut self.mirror {
                    mirror.done(job, done.got, at.now);
                }
            }
            Tag::Entry(shard) => {
                let how = WriteResult::of(&self.link.outcome(done.got, None));
                self.inputs.push_back(NodeInput::Notice(Notice::Written { shard, how }));
            }
            Tag::Intent => {
                if let Some(Leaving::Sending(shutdown_notice)) = &self.leaving {
                    let found = one(done.got).ok_or_else(|| "no answer".to_owned());
                    self.next_step = Some(shutdown_notice.read(found));
                }
            }
            Tag::ShutdownNotice => {
                if let Some(Leaving::Sending(shutdown_notice)) = &mut self.leaving {
                    self.next_step =
                        Some(shutdown_notice.written(&self.link.outcome(done.got, None)));
                }
            }
            Tag::Revoke => self.leaving = Some(Leaving::Left),
        }
    }

    /// Continues with the cluster's file. `None`: no answer; `Some(None)`: the key does not exist.
    fn found_desired(&mut self, at: At, held: Option<Option<Versioned>>) {
        match held {
            Some(Some(desired)) => {
                self.desired = Some(desired.value);
                self.get(at, Tag::Meta, &Key::Meta);
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

    /// Takes the result of a look-up.
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
                self.inputs.push_back(NodeInput::Found(Box::new(found)));
            }
            Looking::For(cluster_id) => {
                let Some(found) = is_known(looked, cluster_id) else { return };
                if found.is_ok() {
                    self.looking = Looking::No;
                }
                self.inputs.push_back(NodeInput::Notice(Notice::ClusterFound(found)));
            }
            Looking::No => {}
        }
        if matches!(self.looking, Looking::No) {
            self.look_at = None;
        }
    }

    fn revoke(&mut self, at: At) {
        let lease: Option<LeaseId> = self.claim.as_mut().and_then(Claim::close);
        self.mirror = None;
        self.leaving = Some(Leaving::Revoking);
        match lease {
            Some(lease) => self.link.ask(at.now, Tag::Revoke, EtcdRequest::Revoke(lease)),
            None => self.leaving = Some(Leaving::Left),
        }
    }
}

/// Returns the value of a key; `None` if there was no answer.
fn one(got: Result<Got, Failed>) -> Option<Option<Versioned>> {
    match got {
        Ok(Got::Answer(EtcdAnswer::Range { found, .. })) => {
            Some(found.into_iter().next().map(|(_, held)| held))
        }
        _ => None,
    }
}

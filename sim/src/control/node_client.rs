//! A node's process at etcd: it looks for its cluster, registers, mirrors the keys and writes entries.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_cluster::claim::Claim;
use weir_cluster::link::{Done, Failed, Got, Link};
use weir_cluster::message::{Answer, Event, Request};
use weir_cluster::mirror::{Job, MirrorClient};
use weir_cluster::swap::{self, Change as Put, Outcome, Swap};
use weir_cluster::{
    ClaimEvent, ClusterName, Contact, Key, LeaseId, NodeName, NodeRecord, Options, Range, Revision,
    Versioned, json, registration,
};
use weir_config::Desired;
use weir_controller::records::{FenceOrder, Intent, Meta, Order};
use weir_member::roles::{Change, Input};
use weir_shard::{BootId, ShardId};

use super::clock::ProcessClock;
use super::map_inputs::MapInputs;
use super::wire::{At, Wire};
use crate::etcd::{ClientId, Etcd};

/// Between two looks for what the cluster is.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// So often the last word is tried when others write at the same time.
const TRIES: u32 = 5;

/// Who a process is.
#[derive(Clone, Debug)]
pub struct NodeSetup {
    pub client: ClientId,
    pub cluster: ClusterName,
    pub name: NodeName,
    /// Of its jitter: different in each process.
    pub seed: u64,
    pub clock: ProcessClock,
    /// Boot ids of its former processes, which have ended.
    pub ended: Vec<String>,
}

/// What a node waits for before it has packets.
#[derive(Clone, Debug)]
pub struct Joined {
    pub cluster_id: String,
    pub desired: Desired,
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

#[derive(Debug)]
enum Farewell {
    /// These lives have ended: so often it is still tried to say so.
    Saying {
        boot_ids: Vec<BootId>,
        tries: u32,
    },
    Leaving,
    Left,
}

/// Lives as long as its process.
#[derive(Debug)]
pub struct NodeClient {
    setup: NodeSetup,
    link: Link<Tag>,
    contact: Arc<Contact>,
    wire: Wire,
    look_at: Option<Instant>,
    desired: Option<Desired>,
    joined: Option<Joined>,
    claim: Option<Claim>,
    mirror: Option<MirrorClient>,
    map: MapInputs,
    writes: Vec<Change>,
    inputs: VecDeque<Input>,
    notices: VecDeque<ClaimEvent>,
    farewell: Option<Farewell>,
    is_begun: bool,
}

impl NodeClient {
    /// Begins to look for what the cluster is.
    pub fn new(setup: NodeSetup, now_us: u64) -> Self {
        // The addresses of etcd's members mean nothing here.
        let options = Options::new(setup.cluster.clone(), Vec::new(), setup.seed);
        let now = setup.clock.instant(now_us);
        let contact = Contact::new(now);
        Self {
            look_at: Some(now),
            link: Link::new(options, Arc::clone(&contact)),
            contact,
            wire: Wire::new(setup.client),
            setup,
            desired: None,
            joined: None,
            claim: None,
            mirror: None,
            map: MapInputs::default(),
            writes: Vec::new(),
            inputs: VecDeque::new(),
            notices: VecDeque::new(),
            farewell: None,
            is_begun: false,
        }
    }

    /// What the cluster is, once it is known; then it is time for [`take_part`](Self::take_part).
    pub fn joined(&self) -> Option<&Joined> {
        self.joined.as_ref()
    }

    /// The node registers, and mirrors the keys from now on.
    pub fn take_part(&mut self, now_us: u64, record: &NodeRecord) {
        let (now, options) = (self.setup.clock.instant(now_us), &self.link.options);
        let (name, ended) = (self.setup.name.clone(), self.setup.ended.clone());
        self.claim = Some(registration(options, name, record, ended, now));
        let contact = Arc::clone(&self.contact);
        self.mirror = Some(MirrorClient::new(options, contact, Range::All, None, now));
        self.look_at = None;
        self.is_begun = true;
    }

    /// Another record of the node, of the same boot.
    pub fn update(&mut self, now_us: u64, record: &NodeRecord) {
        if let Some(claim) = &mut self.claim {
            claim.replace(json(record), self.setup.clock.instant(now_us));
        }
    }

    /// A change that the roles want written; [`Input::Written`] follows in any case.
    pub fn write(&mut self, change: Change) {
        self.writes.push(change);
    }

    /// The last words: these lives have ended, and the node's key goes at once.
    pub fn leave(&mut self, boot_ids: Vec<BootId>) {
        self.farewell = Some(Farewell::Saying { boot_ids, tries: TRIES });
    }

    /// The last words are said, or will never be.
    pub fn has_left(&self) -> bool {
        matches!(self.farewell, Some(Farewell::Left))
    }

    /// The next thing for the roles.
    pub fn next_input(&mut self) -> Option<Input> {
        self.inputs.pop_front()
    }

    /// The next thing about its registration, for whoever shows it.
    pub fn next_notice(&mut self) -> Option<ClaimEvent> {
        self.notices.pop_front()
    }

    /// When [`poll`](Self::poll) is due, if etcd tells nothing before.
    pub fn next_us(&self) -> Option<u64> {
        let claim = self.claim.as_ref().and_then(Claim::deadline);
        let mirror = self.mirror.as_ref().and_then(MirrorClient::deadline);
        let deadlines = [self.link.deadline(), self.look_at, claim, mirror];
        let first = deadlines.into_iter().flatten().min()?;
        Some(self.setup.clock.us_at(first))
    }

    /// Takes what etcd tells this client.
    pub fn event(&mut self, now_us: u64, etcd: &mut Etcd, event: Event) {
        let at = self.at(now_us);
        let event = self.wire.event(event);
        if let Some((watch, news)) = event.and_then(|event| self.link.event(at.now, event))
            && let Some(mirror) = &mut self.mirror
        {
            mirror.news(watch, news, at.now);
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
                self.inputs.extend(self.map.take(event));
            }
        }
        if let Some(claim) = &mut self.claim {
            self.notices.extend(std::iter::from_fn(|| claim.next_event()));
        }
        for change in std::mem::take(&mut self.writes) {
            self.write_entry(at, &change);
        }
        if self.is_begun && matches!(self.farewell, Some(Farewell::Saying { .. })) {
            self.is_begun = false;
            self.get(at, Tag::Intent, &Key::Intent(self.setup.name.clone()));
        }
    }

    fn get(&mut self, at: At, tag: Tag, key: &Key) {
        let request = Request::get(&self.link.keys.path(key));
        self.link.ask(at.now, tag, request);
    }

    fn write_entry(&mut self, at: At, change: &Change) {
        let shard = change.shard;
        let Some((revision, value)) = self.map.write_of(change) else {
            return self.inputs.push_back(Input::Written { shard, is_done: false });
        };
        let key = Key::Shard(shard.0);
        let swap = Swap { key, expected: Some(revision), change: Put::Put(value) };
        self.transact(at, Tag::Entry(shard), &[swap]);
    }

    fn transact(&mut self, at: At, tag: Tag, swaps: &[Swap]) {
        let transaction =
            swap::transaction(&self.link.keys, swaps, None).expect("one key, and not too large");
        self.link.ask(at.now, tag, Request::Transact(transaction));
    }

    fn done(&mut self, at: At, done: Done<Tag>) {
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
                let is_done = matches!(self.link.outcome(done.got, None), Outcome::Done(_));
                self.inputs.push_back(Input::Written { shard, is_done });
            }
            Tag::Intent => self.say_ended(at, one(done.got)),
            Tag::Farewell => self.said(at, &self.link.outcome(done.got, None)),
            Tag::Revoke => self.farewell = Some(Farewell::Left),
        }
    }

    /// None: no answer, so it is looked again later. Some of none: there is no such key.
    fn found_desired(&mut self, at: At, found: Option<Option<Versioned>>) {
        let found = found.flatten();
        self.desired = found.and_then(|found| serde_json::from_slice(&found.value).ok());
        match self.desired {
            Some(_) => self.get(at, Tag::Meta, &Key::Meta),
            None => self.look_at = Some(at.now + LOOK_INTERVAL),
        }
    }

    fn found_meta(&mut self, at: At, found: Option<Option<Versioned>>) {
        let meta = found.flatten();
        let meta = meta.and_then(|found| serde_json::from_slice::<Meta>(&found.value).ok());
        match (meta, self.desired.take()) {
            (Some(Meta { cluster_id, .. }), Some(desired)) => {
                self.joined = Some(Joined { cluster_id, desired });
            }
            _ => self.look_at = Some(at.now + LOOK_INTERVAL),
        }
    }

    /// As `weir_controller::operate::Operator::say_ended`.
    fn say_ended(&mut self, at: At, found: Option<Option<Versioned>>) {
        let Some(Farewell::Saying { boot_ids, .. }) = &self.farewell else { return };
        let Some(found) = found else { return self.revoke(at) };
        let held = found.as_ref().map(|found| serde_json::from_slice::<Intent>(&found.value));
        let Ok(mut intent) = held.transpose().map(Option::unwrap_or_default) else {
            return self.revoke(at);
        };
        let by = format!("{} as it ended", self.setup.name);
        let order = Order { by, at_ms: self.setup.clock.now(at.us).unix_ms };
        intent.fence = Some(FenceOrder { order, boot_ids: boot_ids.clone() });
        let key = Key::Intent(self.setup.name.clone());
        let expected: Option<Revision> = found.map(|found| found.mod_revision);
        let swap = Swap { key, expected, change: Put::Put(json(&intent)) };
        self.transact(at, Tag::Farewell, &[swap]);
    }

    fn said(&mut self, at: At, outcome: &Outcome) {
        let Some(Farewell::Saying { tries, .. }) = &mut self.farewell else { return };
        *tries -= 1;
        if matches!(outcome, Outcome::LostRace(_)) && *tries > 0 {
            return self.get(at, Tag::Intent, &Key::Intent(self.setup.name.clone()));
        }
        // Unsaid, its lanes wait for its next start.
        self.revoke(at);
    }

    fn revoke(&mut self, at: At) {
        let lease: Option<LeaseId> = self.claim.as_mut().and_then(Claim::close);
        self.mirror = None;
        self.farewell = Some(Farewell::Leaving);
        match lease {
            Some(lease) => self.link.ask(at.now, Tag::Revoke, Request::Revoke(lease)),
            None => self.farewell = Some(Farewell::Left),
        }
    }
}

/// What a key is; none if there was no answer.
fn one(got: Result<Got, Failed>) -> Option<Option<Versioned>> {
    match got {
        Ok(Got::Answer(Answer::Range { found, .. })) => {
            Some(found.into_iter().next().map(|(_, held)| held))
        }
        _ => None,
    }
}

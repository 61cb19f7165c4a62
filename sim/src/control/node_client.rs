//! A node's process at etcd: it looks for its cluster, registers, mirrors the keys and writes entries.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use weir_cluster::swap::{self, Change as Put, Outcome, Swap};
use weir_cluster::{
    Cause, ClaimEvent, ClusterName, Key, LeaseId, NodeId, NodeRecord, Options, Revision, Versioned,
};
use weir_config::Desired;
use weir_controller::records::{FenceOrder, Intent, Meta, Order};
use weir_member::roles::{Change, Input};
use weir_shard::{BootId, ShardId};

use super::claim::Claim;
use super::clock::ProcessClock;
use super::link::{At, Done, Failed, Got, Link};
use super::map_inputs::MapInputs;
use super::mirror::{Job, Mirror, Wish};
use crate::etcd::{Answer, ClientId, Etcd, Event, Request};

/// Between two looks for what the cluster is.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// So often the last word is tried when others write at the same time.
const TRIES: u32 = 5;

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
    look_at: Option<Instant>,
    desired: Option<Desired>,
    joined: Option<Joined>,
    claim: Option<Claim>,
    mirror: Option<Mirror>,
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
        Self {
            look_at: Some(setup.clock.instant(now_us)),
            link: Link::new(setup.client, options),
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
        let key = Key::Node(self.setup.name.clone());
        let boot_id = record.boot_id.clone();
        let claim = Claim::new(options, &key, boot_id, Duration::ZERO, json(record), now);
        self.claim = Some(claim.after(self.setup.ended.clone()));
        self.mirror = Some(Mirror::new(options, now));
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
                self.inputs.extend(self.map.take(event));
            }
        }
        if let Some(claim) = &mut self.claim {
            self.notices.extend(std::iter::from_fn(|| claim.next_event()));
        }
        for change in std::mem::take(&mut self.writes) {
            self.write_entry(etcd, at, &change);
        }
        if self.is_begun && matches!(self.farewell, Some(Farewell::Saying { .. })) {
            self.is_begun = false;
            self.get(etcd, at, Tag::Intent, &Key::Intent(self.setup.name.clone()));
        }
    }

    fn get(&mut self, etcd: &mut Etcd, at: At, tag: Tag, key: &Key) {
        let start = self.link.keys.path(key);
        let end = format!("{start}\0");
        self.link.ask(etcd, at, tag, Request::Range { start, end, limit: 1, revision: None });
    }

    fn write_entry(&mut self, etcd: &mut Etcd, at: At, change: &Change) {
        let shard = change.shard;
        let Some((revision, value)) = self.map.write_of(change) else {
            return self.inputs.push_back(Input::Written { shard, is_done: false });
        };
        let key = Key::Shard(shard);
        let swap = Swap { key, expected: Some(revision), change: Put::Put(value) };
        self.transact(etcd, at, Tag::Entry(shard), &[swap]);
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
                let is_done = matches!(outcome(done.got), Outcome::Done(_));
                self.inputs.push_back(Input::Written { shard, is_done });
            }
            Tag::Intent => self.say_ended(etcd, at, one(done.got)),
            Tag::Farewell => self.said(etcd, at, &outcome(done.got)),
            Tag::Revoke => self.farewell = Some(Farewell::Left),
        }
    }

    /// None: no answer, so it is looked again later. Some of none: there is no such key.
    fn found_desired(&mut self, etcd: &mut Etcd, at: At, found: Option<Option<Versioned>>) {
        let found = found.flatten();
        self.desired = found.and_then(|found| serde_json::from_slice(&found.value).ok());
        match self.desired {
            Some(_) => self.get(etcd, at, Tag::Meta, &Key::Meta),
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
    fn say_ended(&mut self, etcd: &mut Etcd, at: At, found: Option<Option<Versioned>>) {
        let Some(Farewell::Saying { boot_ids, .. }) = &self.farewell else { return };
        let Some(found) = found else { return self.revoke(etcd, at) };
        let held = found.as_ref().map(|found| serde_json::from_slice::<Intent>(&found.value));
        let Ok(mut intent) = held.transpose().map(Option::unwrap_or_default) else {
            return self.revoke(etcd, at);
        };
        let by = format!("{} as it ended", self.setup.name);
        let order = Order { by, at_ms: self.setup.clock.now(at.us).unix_ms };
        intent.fence = Some(FenceOrder { order, boot_ids: boot_ids.clone() });
        let key = Key::Intent(self.setup.name.clone());
        let expected: Option<Revision> = found.map(|found| found.mod_revision);
        let swap = Swap { key, expected, change: Put::Put(json(&intent)) };
        self.transact(etcd, at, Tag::Farewell, &[swap]);
    }

    fn said(&mut self, etcd: &mut Etcd, at: At, outcome: &Outcome) {
        let Some(Farewell::Saying { tries, .. }) = &mut self.farewell else { return };
        *tries -= 1;
        if matches!(outcome, Outcome::LostRace(_)) && *tries > 0 {
            return self.get(etcd, at, Tag::Intent, &Key::Intent(self.setup.name.clone()));
        }
        // Unsaid, its lanes wait for its next start.
        self.revoke(etcd, at);
    }

    fn revoke(&mut self, etcd: &mut Etcd, at: At) {
        let lease: Option<LeaseId> = self.claim.as_mut().and_then(Claim::close);
        self.mirror = None;
        self.farewell = Some(Farewell::Leaving);
        match lease {
            Some(lease) => self.link.ask(etcd, at, Tag::Revoke, Request::Revoke(lease)),
            None => self.farewell = Some(Farewell::Left),
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

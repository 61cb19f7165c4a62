//! A controller's process: a [`Controller`] with its election, its mirror, its writes and the answers of nodes.
//!
//! As `weir_controller::run`: one write or read is under way at a time, and whether it leads is asked of the election,
//! with the clock of that moment, before each event and again before each write.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use weir_cluster::claim::state::Held;
use weir_cluster::swap::{self, Outcome, Swap};
use weir_cluster::{
    Cause, ClusterName, Key, LeaderRecord, Leadership, Options, Revision, Versioned,
};
use weir_controller::state::{Action, Controller, Event, NodeReport, Options as ControllerOptions};
use weir_shard::NodeId;

use super::claim::Claim;
use super::clock::ProcessClock;
use super::link::{At, Done, Failed, Got, Link, error};
use super::mirror::{Job, Mirror, Wish};
use super::node_client::{json, one};
use crate::etcd::{Answer, ClientId, Etcd, Event as Told, Request};

/// Time between two questions to the same node, and the longest wait for its answer.
const ASK_INTERVAL: Duration = Duration::from_secs(1);

/// Who a process is.
#[derive(Clone, Debug)]
pub struct ControllerSetup {
    pub client: ClientId,
    pub cluster: ClusterName,
    /// Of its jitter: different in each process.
    pub seed: u64,
    /// Different each time that it starts.
    pub boot_id: String,
    pub clock: ProcessClock,
    pub options: ControllerOptions,
}

/// A node is asked for its report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// For the answer.
    pub number: u64,
    pub node: NodeId,
}

#[derive(Clone, Debug)]
enum Tag {
    Claim,
    Mirror(Job),
    Write(Leadership),
    /// The place of a key among those that are read.
    Read(usize),
    Revoke,
}

#[derive(Debug)]
enum UnderWay {
    Write,
    Read { keys: Vec<Key>, found: Vec<Option<Versioned>> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    Ordered,
    Leaving,
    Stopped,
}

/// Lives as long as its process.
#[derive(Debug)]
pub struct ControllerProcess {
    setup: ControllerSetup,
    link: Link<Tag>,
    election: Claim,
    mirror: Mirror,
    controller: Controller,
    elected_at: Option<Revision>,
    under_way: Option<UnderWay>,
    /// Found out without etcd: told after what is being handled.
    answer: Option<Event>,
    tick: Duration,
    tick_at: Instant,
    ask_at: Instant,
    questions: u64,
    /// Whose answers are awaited, and until when.
    asking: BTreeMap<u64, Instant>,
    asked: Vec<Question>,
    stop: Option<Stop>,
}

impl ControllerProcess {
    /// Stands for election from now on.
    pub fn new(setup: ControllerSetup, now_us: u64) -> Self {
        let options = Options::new(setup.cluster.clone(), Vec::new(), setup.seed);
        let now = setup.clock.instant(now_us);
        let record =
            LeaderRecord { boot_id: setup.boot_id.clone(), name: setup.options.name.clone() };
        let (boot_id, margin) = (record.boot_id.clone(), options.leader_margin);
        let tick_ms = setup.options.tick_ms.min(setup.options.tick_busy_ms);
        Self {
            election: Claim::new(&options, &Key::Leader, boot_id, margin, json(&record), now),
            mirror: Mirror::new(&options, now),
            link: Link::new(setup.client, options),
            controller: Controller::new(setup.options.clone()),
            setup,
            elected_at: None,
            under_way: None,
            answer: None,
            tick: Duration::from_millis(tick_ms),
            tick_at: now,
            ask_at: now,
            questions: 0,
            asking: BTreeMap::new(),
            asked: Vec::new(),
            stop: None,
        }
    }

    /// Whether it acts as the leader, by its own clock.
    pub fn is_leading(&self, now_us: u64) -> bool {
        self.leadership(self.setup.clock.instant(now_us)).is_some()
    }

    /// Waits for the answer to what is under way, and steps down.
    pub fn stop(&mut self) {
        self.stop.get_or_insert(Stop::Ordered);
    }

    pub fn has_stopped(&self) -> bool {
        self.stop == Some(Stop::Stopped)
    }

    /// Questions to be carried to their nodes.
    pub fn take_questions(&mut self) -> Vec<Question> {
        std::mem::take(&mut self.asked)
    }

    /// A node's answer. One that comes too late is not taken.
    pub fn answered(&mut self, now_us: u64, etcd: &mut Etcd, number: u64, report: NodeReport) {
        let at = self.at(now_us);
        if self.asking.remove(&number).is_some_and(|until| at.now < until) {
            self.tell(etcd, at, Event::Report(report));
        }
        self.poll(now_us, etcd);
    }

    /// When [`poll`](Self::poll) is due, if nothing is told before.
    pub fn next_us(&self) -> Option<u64> {
        let deadlines = [self.link.deadline(), self.election.deadline(), self.mirror.deadline()];
        let ticks = [self.tick_at, self.ask_at];
        let ticks = ticks.into_iter().filter(|_| self.stop.is_none());
        let first = deadlines.into_iter().flatten().chain(ticks).min()?;
        (!self.has_stopped()).then(|| self.setup.clock.us_at(first))
    }

    /// Takes what etcd tells this client.
    pub fn event(&mut self, now_us: u64, etcd: &mut Etcd, event: Told) {
        let at = self.at(now_us);
        if let Some((watch, news)) = self.link.event(etcd, at, event) {
            self.mirror.news(watch, news, at.now);
        }
        self.poll(now_us, etcd);
    }

    /// Does everything that is due.
    pub fn poll(&mut self, now_us: u64, etcd: &mut Etcd) {
        let at = self.at(now_us);
        if self.has_stopped() {
            return;
        }
        self.link.tick(at);
        loop {
            self.ask(etcd, at);
            self.follow_election(etcd, at);
            if let Some(event) = self.mirror.next_event() {
                self.tell(etcd, at, Event::Mirror(event));
            } else if let Some(event) = self.answer.take() {
                self.under_way = None;
                self.tell(etcd, at, event);
            } else if let Some(done) = self.link.next_done() {
                self.done(etcd, at, done);
            } else if self.stop == Some(Stop::Ordered) && self.under_way.is_none() {
                self.leave(etcd, at);
            } else if self.stop.is_none() && at.now >= self.tick_at {
                self.tick_at = at.now + self.tick;
                self.tell(etcd, at, Event::Tick);
            } else if self.stop.is_none() && at.now >= self.ask_at {
                self.ask_at = at.now + ASK_INTERVAL;
                self.ask_nodes(at);
            } else {
                return;
            }
        }
    }

    fn at(&self, now_us: u64) -> At {
        At { us: now_us, now: self.setup.clock.instant(now_us) }
    }

    fn leadership(&self, now: Instant) -> Option<Leadership> {
        let held = self.election.held().filter(|held| now < held.valid_until)?;
        let Held { create_revision, lease, valid_until } = held;
        Some(Leadership { create_revision, lease, valid_until })
    }

    /// Tells the state when the leadership has come, gone, or been another one meanwhile.
    fn follow_election(&mut self, etcd: &mut Etcd, at: At) {
        let elected_at = self.leadership(at.now).map(|leadership| leadership.create_revision);
        if elected_at == self.elected_at {
            return;
        }
        if self.elected_at.is_some() {
            self.handle(etcd, at, Event::Deposed);
        }
        self.elected_at = elected_at;
        if let Some(revision) = elected_at {
            self.handle(etcd, at, Event::Elected(revision));
        }
    }

    fn tell(&mut self, etcd: &mut Etcd, at: At, event: Event) {
        self.follow_election(etcd, at);
        self.handle(etcd, at, event);
    }

    fn handle(&mut self, etcd: &mut Etcd, at: At, event: Event) {
        // Once it is to stop, the answer to its last write is waited for, and nothing decided on it.
        if self.stop.is_some() {
            return;
        }
        let now = self.setup.clock.now(at.us);
        for action in self.controller.handle(event, now) {
            self.carry_out(etcd, at, action);
        }
    }

    fn carry_out(&mut self, etcd: &mut Etcd, at: At, action: Action) {
        match action {
            Action::Write(swaps) => {
                self.under_way = Some(UnderWay::Write);
                match self.leadership(at.now) {
                    Some(leadership) => self.write(etcd, at, &swaps, leadership),
                    None => self.answer = Some(Event::Written(Outcome::NotLeader)),
                }
            }
            Action::Read(keys) => {
                self.under_way = Some(UnderWay::Read { keys, found: Vec::new() });
                self.read_next(etcd, at);
            }
        }
    }

    fn write(&mut self, etcd: &mut Etcd, at: At, swaps: &[Swap], leadership: Leadership) {
        match swap::transaction(&self.link.keys, swaps, Some(leadership)) {
            Ok(transaction) => {
                let request = Request::Transact(transaction);
                self.link.ask(etcd, at, Tag::Write(leadership), request);
            }
            Err((cause, detail)) => {
                let outcome = Outcome::of_error(error(cause, &detail, false));
                self.answer = Some(Event::Written(outcome));
            }
        }
    }

    fn read_next(&mut self, etcd: &mut Etcd, at: At) {
        let Some(UnderWay::Read { keys, found }) = &mut self.under_way else { return };
        let place = found.len();
        let Some(key) = keys.get(place) else {
            self.answer = Some(Event::Read(Some(std::mem::take(found))));
            return;
        };
        let start = self.link.keys.path(key);
        let end = format!("{start}\0");
        let request = Request::Range { start, end, limit: 1, revision: None };
        self.link.ask(etcd, at, Tag::Read(place), request);
    }

    fn ask(&mut self, etcd: &mut Etcd, at: At) {
        if let Some(request) = self.election.next_request(at.now) {
            self.link.ask(etcd, at, Tag::Claim, request);
        }
        // What it says is looked up when something is told.
        while self.election.next_event().is_some() {}
        self.mirror.tick(at.now);
        while let Some(wish) = self.mirror.next_wish() {
            match wish {
                Wish::Ask(job, request) => self.link.ask(etcd, at, Tag::Mirror(job), request),
                Wish::Say(request) => self.link.say(etcd, at, request),
                Wish::Distrust(generation) => self.link.distrust(generation),
            }
        }
    }

    fn done(&mut self, etcd: &mut Etcd, at: At, done: Done<Tag>) {
        match done.tag {
            Tag::Claim => {
                if let Some(request) = self.election.done(done.got, at.now) {
                    self.link.ask(etcd, at, Tag::Claim, request);
                }
            }
            Tag::Mirror(job) => self.mirror.done(job, done.got, at.now),
            Tag::Write(leadership) => {
                self.answer = Some(Event::Written(outcome(done.got, leadership)));
            }
            Tag::Read(place) => self.has_read(etcd, at, place, one(done.got)),
            Tag::Revoke => self.stop = Some(Stop::Stopped),
        }
    }

    fn has_read(&mut self, etcd: &mut Etcd, at: At, place: usize, got: Option<Option<Versioned>>) {
        let Some(UnderWay::Read { found, .. }) = &mut self.under_way else { return };
        debug_assert_eq!(place, found.len(), "one at a time");
        match got {
            Some(one) => {
                found.push(one);
                self.read_next(etcd, at);
            }
            None => self.answer = Some(Event::Read(None)),
        }
    }

    /// Only the leader asks, and nobody twice at once.
    fn ask_nodes(&mut self, at: At) {
        self.asking.retain(|_, until| at.now < *until);
        if self.elected_at.is_none() || !self.asking.is_empty() {
            return;
        }
        for (node, _) in self.controller.registered() {
            self.questions += 1;
            self.asking.insert(self.questions, at.now + ASK_INTERVAL);
            self.asked.push(Question { number: self.questions, node: node.clone() });
        }
    }

    fn leave(&mut self, etcd: &mut Etcd, at: At) {
        self.stop = Some(Stop::Leaving);
        match self.election.close() {
            Some(lease) => self.link.ask(etcd, at, Tag::Revoke, Request::Revoke(lease)),
            None => self.stop = Some(Stop::Stopped),
        }
    }
}

fn outcome(got: Result<Got, Failed>, leadership: Leadership) -> Outcome {
    match got {
        Ok(Got::Answer(Answer::Decided(decided))) => Outcome::of_decided(decided, Some(leadership)),
        Err(Failed::Etcd(error)) => Outcome::of_error(error),
        _ => Outcome::of_error(error(Cause::Other, "another answer", true)),
    }
}

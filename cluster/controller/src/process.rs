//! A controller's process, without I/O: a [`Controller`] with its link to etcd, its election, its
//! mirror, its writes, and the questions to nodes.
//!
//! ```text
//!   etcd <--orders---- Link <-- Claim (leader's key) ---> leadership ----+
//!        ----events-->      <-- MirrorClient (all keys) --> MirrorEvent -+--> Controller
//!                           <-- one write or read under way <--- Action -+       |
//!   nodes <--Question--------- asked while it leads <---- registered nodes ------+
//!         ---report----------> answered ---------------------------------> Event::Report
//! ```
//!
//! One write or read is under way at a time. The election is asked whether this process leads
//! before each event and again before each write, with the clock of that moment: a process that was
//! stalled knows at once that its leadership has expired, and if it did not, etcd would refuse its
//! write. The owner carries out the orders and questions of the process, and passes it events,
//! reports and the time.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_etcd::claim::Claim;
use weir_etcd::link::{Done, Failed, Got, Link};
use weir_etcd::message::{Answer, Event as Told, Order, Request};
use weir_etcd::mirror::{Job, MirrorClient};
use weir_etcd::swap::{self, Outcome, Swap};
use weir_etcd::{
    Contact, Error, Key, LeaderRecord, Leadership, Options as EtcdOptions, Range, Revision,
    Versioned, candidacy,
};
use weir_map::NodeId;

use crate::standing::Standing;
use crate::state::{Action, Controller, Event, NodeReport, Now, Options};

/// Time between two questions to the same node, and the longest wait for its answer.
pub const ASK_INTERVAL: Duration = Duration::from_secs(1);

/// One moment on the clocks of a process.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Clock for the waits on etcd and on nodes.
    pub instant: Instant,
    /// Time that is passed to the controller.
    pub now: Now,
}

/// A request to ask a node for its report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Identifies the answer.
    pub number: u64,
    pub node: NodeId,
    /// Address that the node's record names for questions.
    pub admin: Option<SocketAddr>,
}

#[derive(Clone, Debug)]
enum Tag {
    Claim,
    Mirror(Job),
    Write(Leadership),
    /// Position of a key in the list of keys to read.
    Read(usize),
    Revoke,
}

#[derive(Debug)]
enum UnderWay {
    Write,
    Read { keys: Vec<Key>, found: Vec<Option<Versioned>> },
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Stop {
    Ordered,
    Leaving,
    Stopped(Result<(), Error>),
}

/// One controller process, from its start to its end.
#[derive(Debug)]
pub struct Process {
    link: Link<Tag>,
    election: Claim,
    mirror: MirrorClient,
    controller: Controller,
    elected_at: Option<Revision>,
    under_way: Option<UnderWay>,
    /// Answer found without asking etcd: handled after the current event.
    answer: Option<Event>,
    tick: Duration,
    tick_at: Instant,
    ask_at: Instant,
    questions: u64,
    /// Questions that may still be answered, and their deadlines.
    asking: BTreeMap<u64, Instant>,
    asked: Vec<Question>,
    stop: Option<Stop>,
}

impl Process {
    /// Stands for election from now on. Its traffic with etcd is counted in `contact`.
    pub fn new(
        etcd: &EtcdOptions,
        contact: &Arc<Contact>,
        record: &LeaderRecord,
        options: Options,
        now: Instant,
    ) -> Self {
        Self {
            election: candidacy(etcd, record, now),
            mirror: MirrorClient::new(etcd, Arc::clone(contact), Range::All, None, now),
            link: Link::new(etcd.clone(), Arc::clone(contact)),
            tick: Duration::from_millis(options.tick_ms.min(options.tick_busy_ms)),
            controller: Controller::new(options),
            elected_at: None,
            under_way: None,
            answer: None,
            tick_at: now,
            ask_at: now,
            questions: 0,
            asking: BTreeMap::new(),
            asked: Vec::new(),
            stop: None,
        }
    }

    /// Whether it acts as the leader, according to the clock.
    pub fn is_leading(&self, now: Instant) -> bool {
        self.leadership(now).is_some()
    }

    /// Returns the state as of its last decision round as a leader.
    pub fn standing(&self) -> &Standing {
        self.controller.standing()
    }

    /// Waits for the answer to the write or read under way, then steps down: another controller is
    /// elected at once.
    pub fn stop(&mut self) {
        self.stop.get_or_insert(Stop::Ordered);
    }

    /// Returns the result once it has stepped down. An error means that the lease could not be
    /// revoked: another controller is then elected when the lease ends.
    pub fn stopped(&self) -> Option<&Result<(), Error>> {
        match &self.stop {
            Some(Stop::Stopped(result)) => Some(result),
            _ => None,
        }
    }

    /// Takes the questions that are to be carried to their nodes.
    pub fn take_questions(&mut self) -> Vec<Question> {
        std::mem::take(&mut self.asked)
    }

    /// Returns the next order for the transport.
    pub fn next_order(&mut self) -> Option<Order> {
        self.link.next_order()
    }

    /// Takes a node's answer. An answer after the deadline is dropped.
    pub fn answered(&mut self, at: Moment, number: u64, report: NodeReport) {
        if self.asking.remove(&number).is_some_and(|until| at.instant < until) {
            self.tell(at, Event::Report(report));
        }
        self.poll(at);
    }

    /// Returns the time at which [`poll`](Self::poll) is due, if no event comes before.
    pub fn deadline(&self) -> Option<Instant> {
        let deadlines = [self.link.deadline(), self.election.deadline(), self.mirror.deadline()];
        let ticks = [self.tick_at, self.ask_at];
        let ticks = ticks.into_iter().filter(|_| self.stop.is_none());
        let first = deadlines.into_iter().flatten().chain(ticks).min();
        first.filter(|_| self.stopped().is_none())
    }

    /// Takes an event of the transport.
    pub fn event(&mut self, at: Moment, event: Told) {
        if let Some((watch, news)) = self.link.event(at.instant, event) {
            self.mirror.news(watch, news, at.instant);
        }
        // Timers do not run here: other events may have waited longer.
        self.advance(at, false);
    }

    /// Does everything that is due.
    pub fn poll(&mut self, at: Moment) {
        self.advance(at, true);
    }

    fn advance(&mut self, at: Moment, has_time: bool) {
        if self.stopped().is_some() {
            return;
        }
        if has_time {
            self.link.tick(at.instant);
            self.mirror.tick(at.instant);
        }
        loop {
            self.ask(at);
            self.follow_election(at);
            let is_running = self.stop.is_none() && has_time;
            if let Some(event) = self.mirror.next_event() {
                self.tell(at, Event::Mirror(event));
            } else if let Some(event) = self.answer.take() {
                self.under_way = None;
                self.tell(at, event);
            } else if let Some(done) = self.link.next_done() {
                self.done(at, done);
            } else if self.stop == Some(Stop::Ordered) && self.under_way.is_none() {
                self.leave(at);
            } else if is_running && at.instant >= self.tick_at {
                self.tick_at = at.instant + self.tick;
                self.tell(at, Event::Tick);
            } else if is_running && at.instant >= self.ask_at {
                self.ask_at = at.instant + ASK_INTERVAL;
                self.ask_nodes(at.instant);
            } else {
                return;
            }
        }
    }

    fn leadership(&self, now: Instant) -> Option<Leadership> {
        Leadership::of(self.election.held(), now)
    }

    /// Notifies the controller when the leadership was won, lost, or replaced by another one.
    fn follow_election(&mut self, at: Moment) {
        let elected_at = self.leadership(at.instant).map(|leadership| leadership.create_revision);
        if elected_at == self.elected_at {
            return;
        }
        if self.elected_at.is_some() {
            tracing::warn!(event = "controller-deposed", "this controller leads no more");
            self.handle(at, Event::Deposed);
        }
        self.elected_at = elected_at;
        if let Some(revision) = elected_at {
            tracing::info!(event = "controller-elected", "this controller leads now");
            self.handle(at, Event::Elected(revision));
        }
    }

    fn tell(&mut self, at: Moment, event: Event) {
        self.follow_election(at);
        self.handle(at, event);
    }

    fn handle(&mut self, at: Moment, event: Event) {
        // A stopping process waits for the answer to its last write, and decides nothing on it.
        if self.stop.is_some() {
            return;
        }
        for action in self.controller.handle(event, at.now) {
            self.carry_out(at, action);
        }
    }

    fn carry_out(&mut self, at: Moment, action: Action) {
        match action {
            Action::Write(swaps) => {
                self.under_way = Some(UnderWay::Write);
                match self.leadership(at.instant) {
                    Some(leadership) => self.write(at, &swaps, leadership),
                    None => self.answer = Some(Event::Written(Outcome::NotLeader)),
                }
            }
            Action::Read(keys) => {
                self.under_way = Some(UnderWay::Read { keys, found: Vec::new() });
                self.read_next(at);
            }
        }
    }

    fn write(&mut self, at: Moment, swaps: &[Swap], leadership: Leadership) {
        match swap::transaction(&self.link.keys, swaps, Some(leadership)) {
            Ok(transaction) => {
                let request = Request::Transact(transaction);
                self.link.ask(at.instant, Tag::Write(leadership), request);
            }
            Err((cause, detail)) => {
                let error = Error::unsent("any", "write", cause, detail);
                self.written(Outcome::of_error(error));
            }
        }
    }

    fn written(&mut self, outcome: Outcome) {
        if let Outcome::Unavailable(error) | Outcome::Unknown(error) | Outcome::Refused(error) =
            &outcome
        {
            tracing::warn!(event = "map-unwritten", %error, "the map could not be written");
        }
        self.answer = Some(Event::Written(outcome));
    }

    fn read_next(&mut self, at: Moment) {
        let Some(UnderWay::Read { keys, found }) = &mut self.under_way else { return };
        let position = found.len();
        let Some(key) = keys.get(position) else {
            self.answer = Some(Event::Read(Some(std::mem::take(found))));
            return;
        };
        let request = Request::get(&self.link.keys.path(key));
        self.link.ask(at.instant, Tag::Read(position), request);
    }

    fn ask(&mut self, at: Moment) {
        if let Some(request) = self.election.next_request(at.instant) {
            self.link.ask(at.instant, Tag::Claim, request);
        }
        // The election's events are dropped: its state is looked up before each event.
        while self.election.next_event().is_some() {}
        self.mirror.ask(&mut self.link, at.instant, Tag::Mirror);
    }

    fn done(&mut self, at: Moment, done: Done<Tag>) {
        match done.tag {
            Tag::Claim => {
                if let Some(request) = self.election.done(done.got, at.instant) {
                    self.link.ask(at.instant, Tag::Claim, request);
                }
            }
            Tag::Mirror(job) => self.mirror.done(job, done.got, at.instant),
            Tag::Write(leadership) => {
                let outcome = self.link.outcome(done.got, Some(leadership));
                self.written(outcome);
            }
            Tag::Read(position) => self.has_read(at, position, done.got),
            Tag::Revoke => {
                self.stop = Some(Stop::Stopped(match done.got {
                    Err(Failed::Etcd(error)) => Err(error),
                    _ => Ok(()),
                }));
            }
        }
    }

    fn has_read(&mut self, at: Moment, position: usize, got: Result<Got, Failed>) {
        let Some(UnderWay::Read { found, .. }) = &mut self.under_way else { return };
        debug_assert_eq!(position, found.len(), "keys are read one at a time, in order");
        match got {
            Ok(Got::Answer(Answer::Range { found: one, .. })) => {
                found.push(one.into_iter().next().map(|(_, held)| held));
                self.read_next(at);
            }
            _ => self.answer = Some(Event::Read(None)),
        }
    }

    /// Asks all registered nodes, as the leader only. No node is asked twice at once.
    fn ask_nodes(&mut self, now: Instant) {
        self.asking.retain(|_, until| now < *until);
        if self.elected_at.is_none() || !self.asking.is_empty() {
            return;
        }
        for (node, admin) in self.controller.registered() {
            self.questions += 1;
            self.asking.insert(self.questions, now + ASK_INTERVAL);
            self.asked.push(Question { number: self.questions, node: node.clone(), admin });
        }
    }

    fn leave(&mut self, at: Moment) {
        self.stop = Some(Stop::Leaving);
        match self.election.close() {
            Some(lease) => self.link.ask(at.instant, Tag::Revoke, Request::Revoke(lease)),
            None => self.stop = Some(Stop::Stopped(Ok(()))),
        }
    }
}

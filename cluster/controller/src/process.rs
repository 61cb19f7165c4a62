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
use weir_etcd::link::{CompletedRequest, EtcdLink, Failed, Got};
use weir_etcd::message::{EtcdAnswer, EtcdRequest, TransportEvent, TransportOrder};
use weir_etcd::mirror::{MirrorClient, MirrorJob};
use weir_etcd::swap::{self, Outcome, Swap};
use weir_etcd::{
    Contact, Error, EtcdOptions, Key, KeyRange, LeaderRecord, Leadership, Revision, Versioned,
    candidacy,
};
use weir_map::NodeId;

use crate::standing::ControllerStanding;
use crate::state::{
    Controller, ControllerAction, ControllerEvent, ControllerOptions, ControllerTime, NodeReport,
};

/// Time between two questions to the same node, and the longest wait for its answer.
pub const ASK_INTERVAL: Duration = Duration::from_secs(1);

/// One moment on the clocks of a process.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Clock for the waits on etcd and on nodes.
    pub instant: Instant,
    /// Time that is passed to the controller.
    pub now: ControllerTime,
}

/// A request to ask a node for its report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportQuestion {
    /// Identifies the answer.
    pub number: u64,
    pub node: NodeId,
    /// Address that the node's record names for questions.
    pub admin: Option<SocketAddr>,
}

#[derive(Clone, Debug)]
enum ProcessTag {
    Claim,
    Mirror(MirrorJob),
    Write(Leadership),
    /// Position of a key in the list of keys to read.
    Read(usize),
    Revoke,
}

#[derive(Debug)]
enum ProcessUnderWay {
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
    link: EtcdLink<ProcessTag>,
    election: Claim,
    mirror: MirrorClient,
    controller: Controller,
    elected_at: Option<Revision>,
    under_way: Option<ProcessUnderWay>,
    /// Answer found without asking etcd: handled after the current event.
    answer: Option<ControllerEvent>,
    tick: Duration,
    tick_at: Instant,
    ask_at: Instant,
    questions: u64,
    /// Questions that may still be answered, and their deadlines.
    asking: BTreeMap<u64, Instant>,
    asked: Vec<ReportQuestion>,
    stop: Option<Stop>,
}

impl Process {
    /// Stands for election from now on. Its traffic with etcd is counted in `contact`.
    pub fn new(
        etcd: &EtcdOptions,
        contact: &Arc<Contact>,
        record: &LeaderRecord,
        options: ControllerOptions,
        now: Instant,
    ) -> Self {
        Self {
            election: candidacy(etcd, record, now),
            mirror: MirrorClient::new(etcd, Arc::clone(contact), KeyRange::All, None, now),
            link: EtcdLink::new(etcd.clone(), Arc::clone(contact)),
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
    pub fn standing(&self) -> &ControllerStanding {
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
    pub fn take_questions(&mut self) -> Vec<ReportQuestion> {
        std::mem::take(&mut self.asked)
    }

    /// Returns the next order for the transport.
    pub fn next_order(&mut self) -> Option<TransportOrder> {
        self.link.next_order()
    }

    /// Takes a node's answer. An answer after the deadline is dropped.
    pub fn answered(&mut self, at: Moment, number: u64, report: NodeReport) {
        if self.asking.remove(&number).is_some_and(|until| at.instant < until) {
            self.follow_and_handle(at, ControllerEvent::Report(report));
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
    pub fn event(&mut self, at: Moment, event: TransportEvent) {
        if let Some((watch, event)) = self.link.event(at.instant, event) {
            self.mirror.on_watch_event(watch, event, at.instant);
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
                self.follow_and_handle(at, ControllerEvent::Mirror(event));
            } else if let Some(event) = self.answer.take() {
                self.under_way = None;
                self.follow_and_handle(at, event);
            } else if let Some(done) = self.link.next_done() {
                self.done(at, done);
            } else if self.stop == Some(Stop::Ordered) && self.under_way.is_none() {
                self.leave(at);
            } else if is_running && at.instant >= self.tick_at {
                self.tick_at = at.instant + self.tick;
                self.follow_and_handle(at, ControllerEvent::Tick);
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
            self.handle(at, ControllerEvent::Deposed);
        }
        self.elected_at = elected_at;
        if let Some(revision) = elected_at {
            tracing::info!(event = "controller-elected", "this controller leads now");
            self.handle(at, ControllerEvent::Elected(revision));
        }
    }

    fn follow_and_handle(&mut self, at: Moment, event: ControllerEvent) {
        self.follow_election(at);
        self.handle(at, event);
    }

    fn handle(&mut self, at: Moment, event: ControllerEvent) {
        // A stopping process waits for the answer to its last write, and decides nothing on it.
        if self.stop.is_some() {
            return;
        }
        for action in self.controller.handle(event, at.now) {
            self.carry_out(at, action);
        }
    }

    fn carry_out(&mut self, at: Moment, action: ControllerAction) {
        match action {
            ControllerAction::Write(swaps) => {
                self.under_way = Some(ProcessUnderWay::Write);
                match self.leadership(at.instant) {
                    Some(leadership) => self.write(at, &swaps, leadership),
                    None => self.answer = Some(ControllerEvent::Written(Outcome::NotLeader)),
                }
            }
            ControllerAction::Read(keys) => {
                self.under_way = Some(ProcessUnderWay::Read { keys, found: Vec::new() });
                self.read_next(at);
            }
        }
    }

    fn write(&mut self, at: Moment, swaps: &[Swap], leadership: Leadership) {
        match swap::transaction(&self.link.keys, swaps, Some(leadership)) {
            Ok(transaction) => {
                let request = EtcdRequest::Transact(transaction);
                self.link.ask(at.instant, ProcessTag::Write(leadership), request);
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
        self.answer = Some(ControllerEvent::Written(outcome));
    }

    fn read_next(&mut self, at: Moment) {
        let Some(ProcessUnderWay::Read { keys, found }) = &mut self.under_way else { return };
        let position = found.len();
        let Some(key) = keys.get(position) else {
            self.answer = Some(ControllerEvent::Read(Some(std::mem::take(found))));
            return;
        };
        let request = EtcdRequest::get(&self.link.keys.path(key));
        self.link.ask(at.instant, ProcessTag::Read(position), request);
    }

    fn ask(&mut self, at: Moment) {
        if let Some(request) = self.election.next_request(at.instant) {
            self.link.ask(at.instant, ProcessTag::Claim, request);
        }
        // The election's events are dropped: its state is looked up before each event.
        while self.election.next_event().is_some() {}
        self.mirror.ask(&mut self.link, at.instant, ProcessTag::Mirror);
    }

    fn done(&mut self, at: Moment, done: CompletedRequest<ProcessTag>) {
        match done.tag {
            ProcessTag::Claim => {
                if let Some(request) = self.election.done(done.got, at.instant) {
                    self.link.ask(at.instant, ProcessTag::Claim, request);
                }
            }
            ProcessTag::Mirror(job) => self.mirror.done(job, done.got, at.instant),
            ProcessTag::Write(leadership) => {
                let outcome = self.link.outcome(done.got, Some(leadership));
                self.written(outcome);
            }
            ProcessTag::Read(position) => self.has_read(at, position, done.got),
            ProcessTag::Revoke => {
                self.stop = Some(Stop::Stopped(match done.got {
                    Err(Failed::Etcd(error)) => Err(error),
                    _ => Ok(()),
                }));
            }
        }
    }

    fn has_read(&mut self, at: Moment, position: usize, got: Result<Got, Failed>) {
        let Some(ProcessUnderWay::Read { found, .. }) = &mut self.under_way else { return };
        debug_assert_eq!(position, found.len(), "keys are read one at a time, in order");
        match got {
            Ok(Got::Answer(EtcdAnswer::Range { found: one, .. })) => {
                found.push(one.into_iter().next().map(|(_, held)| held));
                self.read_next(at);
            }
            _ => self.answer = Some(ControllerEvent::Read(None)),
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
            self.asked.push(ReportQuestion { number: self.questions, node: node.clone(), admin });
        }
    }

    fn leave(&mut self, at: Moment) {
        self.stop = Some(Stop::Leaving);
        match self.election.close() {
            Some(lease) => {
                self.link.ask(at.instant, ProcessTag::Revoke, EtcdRequest::Revoke(lease))
            }
            None => self.stop = Some(Stop::Stopped(Ok(()))),
        }
    }
}

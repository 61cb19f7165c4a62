//! The task on the thread `etcd`: one link, and all claims, mirrors and requests of the process
//! that use it.
//!
//! It decides nothing: it passes the time, the events of the transport and the commands of the
//! owners to the clients, and the clients' requests and events to the transport and the owners.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use crate::claim::Claim;
use crate::claim::state::{ClaimEvent, HeldKey};
use crate::contact::Contact;
use crate::counters::count;
use crate::error::{Cause, Error};
use crate::keys::KeyRange;
use crate::link::{CompletedRequest, EtcdLink, Failed, Got};
use crate::message::{EtcdAnswer, EtcdRequest, TransportEvent};
use crate::mirror::event::MirrorEvent;
use crate::mirror::{MirrorClient, MirrorJob};
use crate::options::EtcdOptions;
use crate::revision::HistoryPosition;
use crate::transport::Transport;

/// Most events that are taken before the clock is read: a claim must not wait for a long queue.
const EVENTS_MAX: usize = 256;

type Reply = oneshot::Sender<Result<Got, Failed>>;

/// A command of an owner. Each claim and mirror has a number.
#[derive(Debug)]
pub(crate) enum TaskCommand {
    Claim {
        number: u64,
        claim: Box<Claim>,
        events: mpsc::Sender<ClaimEvent>,
        held: watch::Sender<Option<HeldKey>>,
    },
    /// Replaces the value of a claim.
    Replace {
        number: u64,
        value: Vec<u8>,
    },
    /// Ends a claim, and its lease at once.
    Revoke {
        number: u64,
        reply: Reply,
    },
    Mirror {
        number: u64,
        range: KeyRange,
        seen: Option<HistoryPosition>,
        events: mpsc::Sender<MirrorEvent>,
    },
    /// The owner of a claim or mirror is gone.
    End(u64),
    Ask {
        request: EtcdRequest,
        reply: Reply,
    },
}

/// The owners' end. Unbounded: an owner has few commands under way, and a command that ends
/// something must not wait.
#[derive(Clone, Debug)]
pub(crate) struct Commands {
    sender: mpsc::UnboundedSender<TaskCommand>,
    numbers: Arc<AtomicU64>,
}

impl Commands {
    pub(crate) fn new() -> (Self, mpsc::UnboundedReceiver<TaskCommand>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self { sender, numbers: Arc::default() }, receiver)
    }

    pub(crate) fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Relaxed)
    }

    pub(crate) fn send(&self, command: TaskCommand) {
        // Once the thread has ended, no command can have an effect.
        let _ = self.sender.send(command);
    }

    /// Makes one request.
    pub(crate) async fn ask(&self, request: EtcdRequest) -> Result<EtcdAnswer, Error> {
        let operation = request.operation();
        let got = self.reply(|reply| TaskCommand::Ask { request, reply }).await;
        let detail = match got {
            Some(Ok(Got::Answer(answer))) => return Ok(answer),
            Some(Err(Failed::Etcd(error))) => return Err(error),
            Some(Err(Failed::NoSuchLease)) => "no such lease",
            Some(Ok(Got::Opened { .. })) => "a watch is no answer",
            None => "the thread for etcd has ended",
        };
        Err(Error::unsent("any", &operation, Cause::Other, detail.to_owned()))
    }

    /// Gives a claim up.
    ///
    /// # Errors
    /// When the lease could not be revoked.
    pub(crate) async fn revoke(&self, number: u64) -> Result<(), Error> {
        match self.reply(|reply| TaskCommand::Revoke { number, reply }).await {
            Some(Err(Failed::Etcd(error))) => Err(error),
            _ => Ok(()),
        }
    }

    async fn reply(
        &self,
        command: impl FnOnce(Reply) -> TaskCommand,
    ) -> Option<Result<Got, Failed>> {
        let (reply, answer) = oneshot::channel();
        self.send(command(reply));
        answer.await.ok()
    }
}

/// The purpose of a request.
#[derive(Debug)]
enum TaskTag {
    Claim(u64),
    Mirror(u64, MirrorJob),
    Reply(Reply),
}

#[derive(Debug)]
struct OwnedClaim {
    claim: Claim,
    events: mpsc::Sender<ClaimEvent>,
    held: watch::Sender<Option<HeldKey>>,
}

#[derive(Debug)]
struct OwnedMirror {
    mirror: MirrorClient,
    events: mpsc::Sender<MirrorEvent>,
    /// Whether the owner does not take its events: nothing is read for it, and its timers stop.
    is_held_up: bool,
}

/// The loop's state; it runs until it is dropped.
#[derive(Debug)]
pub(crate) struct Tasks {
    link: EtcdLink<TaskTag>,
    contact: Arc<Contact>,
    transport: Transport,
    claims: BTreeMap<u64, OwnedClaim>,
    mirrors: BTreeMap<u64, OwnedMirror>,
    /// Tasks that wait for room in the queue of a mirror that is held up.
    room: JoinSet<u64>,
}

impl Tasks {
    pub(crate) fn new(options: EtcdOptions, contact: Arc<Contact>) -> Self {
        Self {
            transport: Transport::new(options.clone()),
            link: EtcdLink::new(options, Arc::clone(&contact)),
            contact,
            claims: BTreeMap::new(),
            mirrors: BTreeMap::new(),
            room: JoinSet::new(),
        }
    }

    pub(crate) async fn run(mut self, mut commands: mpsc::UnboundedReceiver<TaskCommand>) {
        loop {
            self.poll(Instant::now()).await;
            let deadline = self.deadline();
            let time = async {
                match deadline {
                    Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                event = self.transport.next_event() => self.event(event),
                command = commands.recv() => match command {
                    Some(command) => self.command(command),
                    None => return,
                },
                Some(number) = self.room.join_next() => self.has_room(number.ok()),
                () = time => {}
            }
            // News of a watch go before timers: they may have waited for the owner, or for this
            // task.
            for _ in 0..EVENTS_MAX {
                let Some(event) = self.transport.ready_event().await else { break };
                self.event(event);
            }
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let claims = self.claims.values().filter_map(|it| it.claim.deadline());
        let mirrors = self.mirrors.values().filter(|it| !it.is_held_up);
        let mirrors = mirrors.filter_map(|it| it.mirror.deadline());
        self.link.deadline().into_iter().chain(claims).chain(mirrors).min()
    }

    /// Does everything that is due.
    async fn poll(&mut self, now: Instant) {
        self.link.tick(now);
        loop {
            let link = &mut self.link;
            for (&number, owned) in &mut self.claims {
                if let Some(request) = owned.claim.next_request(now) {
                    link.ask(now, TaskTag::Claim(number), request);
                }
            }
            for (&number, owned) in &mut self.mirrors {
                if !owned.is_held_up {
                    owned.mirror.tick(now);
                }
                owned.mirror.ask(link, now, |job| TaskTag::Mirror(number, job));
            }
            let Some(done) = link.next_done() else { break };
            self.done(done, now);
        }
        self.claims.values_mut().for_each(|owned| owned.report(&self.contact));
        self.report_mirrors();
        while let Some(order) = self.link.next_order() {
            self.transport.carry_out(order).await;
        }
    }

    fn done(&mut self, CompletedRequest { tag, got }: CompletedRequest<TaskTag>, now: Instant) {
        match tag {
            TaskTag::Claim(number) => {
                let owned = self.claims.get_mut(&number);
                if let Some(request) = owned.and_then(|owned| owned.claim.done(got, now)) {
                    self.link.ask(now, TaskTag::Claim(number), request);
                }
            }
            TaskTag::Mirror(number, job) => {
                if let Some(owned) = self.mirrors.get_mut(&number) {
                    owned.mirror.done(job, got, now);
                } else if let Ok(Got::Opened { watch, .. }) = got {
                    self.link.send_unanswered(EtcdRequest::Cancel(watch));
                }
            }
            // The asker may be gone.
            TaskTag::Reply(reply) => drop(reply.send(got)),
        }
    }

    fn event(&mut self, event: TransportEvent) {
        let now = Instant::now();
        if let Some((watch, event)) = self.link.event(now, event) {
            let mut mirrors = self.mirrors.values_mut();
            if let Some(owned) = mirrors.find(|owned| owned.mirror.watch() == Some(watch)) {
                owned.mirror.on_watch_event(watch, event, now);
            }
        }
        while let Some(done) = self.link.next_done() {
            self.done(done, now);
        }
        self.report_mirrors();
    }

    fn command(&mut self, command: TaskCommand) {
        let now = Instant::now();
        match command {
            TaskCommand::Claim { number, claim, events, held } => {
                self.claims.insert(number, OwnedClaim { claim: *claim, events, held });
            }
            TaskCommand::Replace { number, value } => {
                if let Some(owned) = self.claims.get_mut(&number) {
                    owned.claim.replace(value, now);
                }
            }
            TaskCommand::Revoke { number, reply } => {
                let claim = self.claims.remove(&number);
                match claim.and_then(|mut owned| owned.claim.close()) {
                    Some(lease) => {
                        self.link.ask(now, TaskTag::Reply(reply), EtcdRequest::Revoke(lease))
                    }
                    None => drop(reply.send(Err(Failed::NoSuchLease))),
                }
            }
            TaskCommand::Mirror { number, range, seen, events } => {
                let contact = Arc::clone(&self.contact);
                let mirror = MirrorClient::new(&self.link.options, contact, range, seen, now);
                self.mirrors.insert(number, OwnedMirror { mirror, events, is_held_up: false });
            }
            TaskCommand::End(number) => {
                self.claims.remove(&number);
                if let Some(mut owned) = self.mirrors.remove(&number) {
                    owned.mirror.close();
                    owned.mirror.ask(&mut self.link, now, |job| TaskTag::Mirror(number, job));
                }
            }
            TaskCommand::Ask { request, reply } => {
                self.link.ask(now, TaskTag::Reply(reply), request)
            }
        }
    }

    fn has_room(&mut self, number: Option<u64>) {
        if let Some(number) = number
            && let Some(owned) = self.mirrors.get_mut(&number)
        {
            owned.is_held_up = false;
            self.report_mirror(number);
        }
    }

    fn report_mirrors(&mut self) {
        for number in self.mirrors.keys().copied().collect::<Vec<_>>() {
            self.report_mirror(number);
        }
    }

    fn report_mirror(&mut self, number: u64) {
        let Some(owned) = self.mirrors.get_mut(&number) else { return };
        if !owned.is_held_up {
            owned.report();
            if owned.is_held_up {
                let events = owned.events.clone();
                self.room.spawn(async move {
                    // This also ends when the owner is gone; the end of the mirror follows then.
                    drop(events.reserve().await);
                    number
                });
            }
        }
        if let Some(watch) = owned.mirror.watch() {
            self.transport.pause(watch, owned.is_held_up);
        }
    }
}

impl OwnedClaim {
    fn report(&mut self, contact: &Contact) {
        self.held.send_if_modified(|held| {
            let now = self.claim.held();
            std::mem::replace(held, now) != now
        });
        while let Some(event) = self.claim.next_event() {
            if event == ClaimEvent::Expired {
                count(&contact.counters.lease_losses_total);
            }
            // The lease is kept, whether its owner takes events or not.
            if self.events.try_send(event).is_err() {
                count(&contact.counters.notices_dropped_total);
            }
        }
    }
}

impl OwnedMirror {
    fn report(&mut self) {
        while self.mirror.has_events() {
            let Ok(permit) = self.events.try_reserve() else {
                self.is_held_up = true;
                return;
            };
            if let Some(event) = self.mirror.next_event() {
                permit.send(event);
            }
        }
    }
}

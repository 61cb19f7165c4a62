//! A process's connection to etcd: requests with their time, and a new connection after a failure.
//!
//! As `weir_cluster`'s own link: one connection for all, made when something is asked and there is none, by reading a
//! key; whoever finds that it does not work gives it up; after an attempt that failed requests fail at once for a while.
//! What is under way on a connection that was given up goes on there.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use weir_cluster::back_off::BackOff;
use weir_cluster::{Cause, Error, Key, Keys, Options};

use crate::etcd::{Answer, ClientId, Etcd, Event, Failure, Request, RequestId, WatchNews, end_of};

/// Why there is no answer.
#[derive(Clone, Debug)]
pub(super) enum Failed {
    NoSuchLease,
    Etcd(Error),
}

/// What a request has come to.
#[derive(Clone, Debug)]
pub(super) enum Got {
    Answer(Answer),
    Opened { watch: RequestId, generation: u64 },
}

/// The end of a request.
#[derive(Debug)]
pub(super) struct Done<T> {
    pub(super) tag: T,
    pub(super) got: Result<Got, Failed>,
}

#[derive(Debug)]
struct Pending<T> {
    tag: T,
    until: Instant,
    generation: u64,
}

#[derive(Debug)]
struct Probe {
    request: RequestId,
    until: Instant,
}

/// `T` names what a request is for.
#[derive(Debug)]
pub(super) struct Link<T> {
    client: ClientId,
    pub(super) keys: Keys,
    pub(super) options: Options,
    back_off: BackOff,
    /// Of the connection there is, or the last.
    generation: u64,
    is_connected: bool,
    probe: Option<Probe>,
    rest_until: Option<Instant>,
    /// They wait for a connection.
    queued: Vec<(T, Request, Instant)>,
    pending: BTreeMap<RequestId, Pending<T>>,
    done: VecDeque<Done<T>>,
}

impl<T> Link<T> {
    pub(super) fn new(client: ClientId, options: Options) -> Self {
        let back_off = BackOff::new(options.retry_first, options.retry_max, options.seed);
        Self {
            client,
            keys: Keys::new(options.cluster.clone()),
            options,
            back_off,
            generation: 0,
            is_connected: false,
            probe: None,
            rest_until: None,
            queued: Vec::new(),
            pending: BTreeMap::new(),
            done: VecDeque::new(),
        }
    }

    /// Asks; the end comes from [`next_done`](Self::next_done).
    pub(super) fn ask(&mut self, etcd: &mut Etcd, clock: At, tag: T, request: Request) {
        let until = clock.now + self.options.request_timeout;
        if self.is_connected {
            return self.send(etcd, clock, tag, request, until);
        }
        if self.probe.is_none() {
            if self.rest_until.is_some_and(|until| clock.now < until) {
                let error = error(Cause::Unreachable, "no connection yet", false);
                return self.done.push_back(Done { tag, got: Err(Failed::Etcd(error)) });
            }
            let start = self.keys.path(&Key::Meta);
            let end = end_of(&start);
            let probe = Request::Range { start, end, limit: 1, revision: None };
            let request = etcd.request(clock.us, self.client, probe);
            let until = clock.now + self.options.request_timeout / 2;
            self.probe = Some(Probe { request, until });
        }
        self.queued.push((tag, request, until));
    }

    /// Something that is not answered, on the connection of a watch.
    pub(super) fn say(&self, etcd: &mut Etcd, clock: At, request: Request) {
        etcd.request(clock.us, self.client, request);
    }

    /// Gives a connection up: the next request makes another one.
    pub(super) fn distrust(&mut self, generation: u64) {
        self.is_connected &= self.generation > generation;
    }

    fn send(&mut self, etcd: &mut Etcd, clock: At, tag: T, request: Request, until: Instant) {
        let id = etcd.request(clock.us, self.client, request);
        self.pending.insert(id, Pending { tag, until, generation: self.generation });
    }

    /// When something takes too long.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let probe = self.probe.iter().map(|probe| probe.until);
        let queued = self.queued.iter().map(|(.., until)| *until);
        probe.chain(queued).chain(self.pending.values().map(|pending| pending.until)).min()
    }

    /// Gives up what has taken too long.
    pub(super) fn tick(&mut self, clock: At) {
        if self.probe.as_ref().is_some_and(|probe| clock.now >= probe.until) {
            self.probe = None;
            self.not_connected(clock, Cause::Timeout);
        }
        let is_late = |(_, _, until): &mut (T, Request, Instant)| clock.now >= *until;
        for (tag, ..) in self.queued.extract_if(.., is_late) {
            let error = error(Cause::Timeout, "no connection in time", false);
            self.done.push_back(Done { tag, got: Err(Failed::Etcd(error)) });
        }
        let late = self.pending.iter().filter(|(_, pending)| clock.now >= pending.until);
        let late: Vec<RequestId> = late.map(|(id, _)| *id).collect();
        for id in late {
            self.end(id, Err(Failed::Etcd(error(Cause::Timeout, "no answer in time", true))));
        }
    }

    fn not_connected(&mut self, clock: At, cause: Cause) {
        self.rest_until = Some(clock.now + self.back_off.next_wait());
        for (tag, ..) in self.queued.drain(..) {
            let error = error(cause, "no connection", false);
            self.done.push_back(Done { tag, got: Err(Failed::Etcd(error)) });
        }
    }

    /// Takes what etcd tells. News of a watch that was opened are given back.
    pub(super) fn event(
        &mut self,
        etcd: &mut Etcd,
        clock: At,
        event: Event,
    ) -> Option<(RequestId, WatchNews)> {
        match event {
            Event::Answered { request, answer } => {
                if self.probe.take_if(|probe| probe.request == request).is_some() {
                    self.probed(etcd, clock, answer);
                } else {
                    self.end(request, answer.map(Got::Answer).map_err(failed));
                }
                None
            }
            Event::Watched { watch, news } => {
                let Some(pending) = self.pending.get(&watch) else { return Some((watch, news)) };
                let generation = pending.generation;
                let got = match news {
                    WatchNews::Created => Ok(Got::Opened { watch, generation }),
                    _ => Err(failed(Failure::Broken)),
                };
                self.end(watch, got);
                None
            }
        }
    }

    fn probed(&mut self, etcd: &mut Etcd, clock: At, answer: Result<Answer, Failure>) {
        match answer {
            Ok(_) => {
                self.generation += 1;
                (self.is_connected, self.rest_until) = (true, None);
                self.back_off.reset();
                for (tag, request, until) in std::mem::take(&mut self.queued) {
                    self.send(etcd, clock, tag, request, until);
                }
            }
            Err(Failure::NoLeader) => self.not_connected(clock, Cause::NoQuorum),
            Err(_) => self.not_connected(clock, Cause::Unreachable),
        }
    }

    fn end(&mut self, id: RequestId, got: Result<Got, Failed>) {
        // Whoever comes too late is not waited for any more.
        let Some(pending) = self.pending.remove(&id) else { return };
        if let Err(Failed::Etcd(error)) = &got
            && error.cause.wants_another_connection()
        {
            self.distrust(pending.generation);
        }
        self.done.push_back(Done { tag: pending.tag, got });
    }

    pub(super) fn next_done(&mut self) -> Option<Done<T>> {
        self.done.pop_front()
    }
}

/// One moment, as the world counts it and as the process reads it.
#[derive(Clone, Copy, Debug)]
pub(super) struct At {
    pub(super) us: u64,
    pub(super) now: Instant,
}

fn failed(failure: Failure) -> Failed {
    let (cause, may_have_happened) = match failure {
        Failure::NoSuchLease => return Failed::NoSuchLease,
        // The client library cannot say that a request on an open connection was not sent.
        Failure::Unreachable | Failure::Broken => (Cause::Unreachable, true),
        Failure::NoLeader => (Cause::NoQuorum, true),
        Failure::NoSpace => (Cause::NoSpace, false),
        Failure::Compacted => (Cause::Compacted, false),
        Failure::Future => (Cause::Other, true),
        Failure::TooLarge => (Cause::TooLarge, false),
        Failure::Duplicate => (Cause::Invalid, false),
    };
    Failed::Etcd(error(cause, "as the model says", may_have_happened))
}

pub(super) fn error(cause: Cause, detail: &str, may_have_happened: bool) -> Error {
    Error {
        endpoint: "etcd".into(),
        operation: "request".into(),
        cause,
        detail: detail.into(),
        may_have_happened,
    }
}

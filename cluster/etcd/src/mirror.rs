//! A copy of a range of keys: [`MirrorState`] decides, [`MirrorClient`] turns its actions into
//! requests and reads their answers.

mod check;
pub mod event;
pub mod state;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use crate::back_off::BackOff;
use crate::contact::Contact;
use crate::counters::count;
use crate::error::Cause;
use crate::keys::{KeyRange, Keys};
use crate::link::{EtcdLink, Failed, Got};
use crate::list::{KeyListing, ListedKeys};
use crate::message::{ChangedKey, EtcdAnswer, EtcdRequest, RequestFailure, RequestId, WatchEvent};
use crate::mirror::event::{
    MirrorAction, MirrorChange, MirrorEntry, MirrorEvent, MirrorInput, MirrorOutput,
};
use crate::mirror::state::{MirrorState, Times};
use crate::options::EtcdOptions;
use crate::revision::{HistoryPosition, Revision};

/// A command of a mirror to its link.
#[derive(Clone, Debug)]
enum LinkCommand {
    /// Make a request for this job.
    Ask(MirrorJob, EtcdRequest),
    /// Send a request that has no answer.
    Send(EtcdRequest),
    /// Distrust the connection of this generation.
    Distrust(u64),
}

/// A list or the opening of a watch; a newer job replaces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MirrorJob(u64);

/// Copies a range of keys as long as it exists. Does no I/O.
#[derive(Debug)]
pub struct MirrorClient {
    state: MirrorState,
    contact: Arc<Contact>,
    keys: Keys,
    prefix: String,
    keys_max: usize,
    jobs: u64,
    listing: Option<(MirrorJob, KeyListing)>,
    opening: Option<MirrorJob>,
    /// The open watch, and the generation of its connection.
    watch: Option<(RequestId, u64)>,
    commands: VecDeque<LinkCommand>,
    events: VecDeque<MirrorEvent>,
}

impl MirrorClient {
    /// Begins to mirror. `seen` is the last position that an earlier process stored: it reveals an
    /// etcd restored since.
    pub fn new(
        options: &EtcdOptions,
        contact: Arc<Contact>,
        range: KeyRange,
        seen: Option<HistoryPosition>,
        now: Instant,
    ) -> Self {
        let times = Times {
            progress_interval: options.progress_interval,
            answer_timeout: options.request_timeout,
            list_interval: options.list_interval,
            list_grace: options.list_grace,
        };
        let seed = options.seed.rotate_left(32).wrapping_add(range as u64);
        let back_off = BackOff::new(options.retry_first, options.retry_max, seed);
        let keys = Keys::new(options.cluster.clone());
        Self {
            state: MirrorState::new(times, back_off, seen, now),
            contact,
            prefix: keys.range(range),
            keys,
            keys_max: options.keys_max,
            jobs: 0,
            listing: None,
            opening: None,
            watch: None,
            commands: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// Returns the time at which [`tick`](Self::tick) is due, if no input comes before.
    pub fn deadline(&self) -> Option<Instant> {
        self.state.deadline()
    }

    /// Runs the timers. To be called after all pending events of etcd: a watch is given up for its
    /// silence.
    pub fn tick(&mut self, now: Instant) {
        if self.state.deadline().is_some_and(|deadline| now >= deadline) {
            self.handle(MirrorInput::Tick, now);
        }
    }

    /// Passes the pending commands to the link; `tag` identifies a job of this mirror there.
    pub fn ask<T>(&mut self, link: &mut EtcdLink<T>, now: Instant, tag: impl Fn(MirrorJob) -> T) {
        for command in self.commands.drain(..) {
            match command {
                LinkCommand::Ask(job, request) => link.ask(now, tag(job), request),
                LinkCommand::Send(request) => link.send_unanswered(request),
                LinkCommand::Distrust(generation) => link.distrust(generation),
            }
        }
    }

    /// Returns the next event for the owner.
    pub fn next_event(&mut self) -> Option<MirrorEvent> {
        self.events.pop_front()
    }

    pub(crate) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Returns the open watch.
    pub(crate) fn watch(&self) -> Option<RequestId> {
        self.watch.map(|(watch, _)| watch)
    }

    /// Stops mirroring, because the owner is gone.
    pub(crate) fn close(&mut self) {
        self.carry_out(MirrorAction::Close);
    }

    fn handle(&mut self, input: MirrorInput, now: Instant) {
        let MirrorOutput { actions, events, list_differences, is_stalled } =
            self.state.handle(input, now);
        let counters = &self.contact.counters;
        counters.list_differences_total.fetch_add(list_differences, Relaxed);
        if is_stalled {
            count(&counters.stalls_total);
        }
        for event in &events {
            if let MirrorEvent::Restored { .. } = event {
                count(&counters.restores_total);
            }
        }
        for action in actions {
            self.carry_out(action);
        }
        self.events.extend(events);
    }

    fn carry_out(&mut self, action: MirrorAction) {
        match action {
            MirrorAction::List => {
                let (job, listing) =
                    (self.next_job(), KeyListing::new(&self.prefix, self.keys_max));
                self.opening = None;
                self.ask_page(job, listing);
            }
            MirrorAction::OpenWatch(after) => {
                self.drop_watch();
                self.listing = None;
                let job = self.next_job();
                self.opening = Some(job);
                let from = Revision(after.0 + 1);
                let request = EtcdRequest::Watch { prefix: self.prefix.clone(), from };
                self.commands.push_back(LinkCommand::Ask(job, request));
            }
            MirrorAction::RequestProgress => {
                let progress =
                    self.watch.map(|(watch, _)| LinkCommand::Send(EtcdRequest::Progress(watch)));
                self.commands.extend(progress);
            }
            MirrorAction::Distrust => {
                self.commands
                    .extend(self.watch.map(|(_, generation)| LinkCommand::Distrust(generation)));
            }
            MirrorAction::Close => {
                self.drop_watch();
                (self.listing, self.opening) = (None, None);
            }
        }
    }

    fn next_job(&mut self) -> MirrorJob {
        self.jobs += 1;
        MirrorJob(self.jobs)
    }

    fn drop_watch(&mut self) {
        let cancel =
            self.watch.take().map(|(watch, _)| LinkCommand::Send(EtcdRequest::Cancel(watch)));
        self.commands.extend(cancel);
    }

    fn ask_page(&mut self, job: MirrorJob, listing: KeyListing) {
        self.commands.push_back(LinkCommand::Ask(job, listing.request()));
        self.listing = Some((job, listing));
    }

    /// Takes the result of a request.
    pub fn done(&mut self, job: MirrorJob, got: Result<Got, Failed>, now: Instant) {
        if self.opening == Some(job) {
            self.opening = None;
            return self.opened(got, now);
        }
        let Some((_, mut listing)) = self.listing.take_if(|(of, _)| *of == job) else {
            if let Ok(Got::Opened { watch, .. }) = got {
                self.commands.push_back(LinkCommand::Send(EtcdRequest::Cancel(watch)));
            }
            return;
        };
        let page = match got {
            Ok(Got::Answer(page @ EtcdAnswer::Range { .. })) => page,
            _ => return self.handle(MirrorInput::ListFailed, now),
        };
        match listing.take(page) {
            Ok(None) => self.ask_page(job, listing),
            Ok(Some(listed)) => self.listed(listed, now),
            Err(failure) => {
                tracing::debug!(?failure, prefix = self.prefix, "the list failed");
                self.handle(MirrorInput::ListFailed, now);
            }
        }
    }

    fn opened(&mut self, got: Result<Got, Failed>, now: Instant) {
        match got {
            Ok(Got::Opened { watch, generation }) => {
                self.watch = Some((watch, generation));
                self.handle(MirrorInput::WatchOpened, now);
            }
            Err(Failed::Etcd(error)) if error.cause == Cause::Compacted => self.compacted(now),
            _ => self.handle(MirrorInput::WatchFailed, now),
        }
    }

    fn compacted(&mut self, now: Instant) {
        count(&self.contact.counters.compactions_total);
        self.handle(MirrorInput::Compacted, now);
    }

    fn listed(&mut self, (position, found): ListedKeys, now: Instant) {
        let entries = found.into_iter();
        let entries =
            entries.filter_map(|(path, held)| self.entry(&path, held.value, held.mod_revision));
        let entries = entries.collect();
        self.handle(MirrorInput::Listed { position, entries }, now);
    }

    /// Takes news of a watch.
    pub fn on_watch_event(&mut self, watch: RequestId, event: WatchEvent, now: Instant) {
        if self.watch() != Some(watch) {
            return;
        }
        match event {
            WatchEvent::Changes(changes) => {
                let changes = changes.into_iter().filter_map(|it| self.change(it)).collect();
                self.handle(MirrorInput::Watched(changes), now);
            }
            WatchEvent::Progress | WatchEvent::Created => {
                self.handle(MirrorInput::Watched(Vec::new()), now);
            }
            WatchEvent::Compacted(_) => self.compacted(now),
            WatchEvent::Ended(failure) => {
                if let RequestFailure::Failed { detail, .. } = failure {
                    tracing::debug!(detail, prefix = self.prefix, "the watch ended");
                }
                self.handle(MirrorInput::WatchFailed, now);
            }
        }
    }

    fn change(&self, ChangedKey { path, value, revision }: ChangedKey) -> Option<MirrorChange> {
        let is_deleted = value.is_none();
        let entry = self.entry(&path, value.unwrap_or_default(), revision)?;
        Some(if is_deleted {
            MirrorChange::Delete { key: entry.key, revision }
        } else {
            MirrorChange::Put(entry)
        })
    }

    /// Parses a key. None: this version does not know it.
    fn entry(&self, path: &str, value: Vec<u8>, mod_revision: Revision) -> Option<MirrorEntry> {
        let key = self.keys.parse(path.as_bytes());
        if key.is_err() {
            count(&self.contact.counters.unknown_keys_total);
        }
        Some(MirrorEntry { key: key.ok()?, value, mod_revision })
    }
}

//! A copy of all keys of a cluster, as `weir_cluster` keeps it: [`MirrorState`] decides, this lists and watches.

use std::collections::VecDeque;
use std::time::Instant;

use weir_cluster::back_off::BackOff;
use weir_cluster::mirror::event::{Action, Change, Entry, Input, Output};
use weir_cluster::mirror::state::{MirrorState, Times};
use weir_cluster::{Keys, MirrorEvent, Options, Place, Range, Revision, Versioned};

use super::link::{Failed, Got};
use crate::etcd::{Answer, Changed, Request, RequestId, WatchNews, end_of};

/// Keys of one page of a list.
const PAGE_KEYS: usize = 256;

/// What is to be asked for the mirror.
#[derive(Clone, Debug)]
pub(super) enum Wish {
    /// A request, and the job that it belongs to.
    Ask(Job, Request),
    /// Nothing comes back of this but news.
    Say(Request),
    /// Of a connection of this generation.
    Distrust(u64),
}

/// A list or the opening of a watch; a newer one replaces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Job(u64);

#[derive(Debug)]
struct Listing {
    job: Job,
    next: String,
    place: Option<Place>,
    found: Vec<(String, Versioned)>,
}

#[derive(Debug)]
pub(super) struct Mirror {
    state: MirrorState,
    keys: Keys,
    prefix: String,
    jobs: u64,
    listing: Option<Listing>,
    opening: Option<Job>,
    /// And the generation of its connection.
    watch: Option<(RequestId, u64)>,
    wishes: VecDeque<Wish>,
    events: VecDeque<MirrorEvent>,
}

impl Mirror {
    pub(super) fn new(options: &Options, now: Instant) -> Self {
        let times = Times {
            progress_interval: options.progress_interval,
            answer_timeout: options.request_timeout,
            list_interval: options.list_interval,
            list_grace: options.list_grace,
        };
        let seed = options.seed.rotate_left(32).wrapping_add(Range::All as u64);
        let back_off = BackOff::new(options.retry_first, options.retry_max, seed);
        let keys = Keys::new(options.cluster.clone());
        Self {
            state: MirrorState::new(times, back_off, None, now),
            prefix: keys.range(Range::All),
            keys,
            jobs: 0,
            listing: None,
            opening: None,
            watch: None,
            wishes: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.state.deadline()
    }

    /// Time went by.
    pub(super) fn tick(&mut self, now: Instant) {
        if self.state.deadline().is_some_and(|deadline| now >= deadline) {
            self.handle(Input::Tick, now);
        }
    }

    pub(super) fn next_wish(&mut self) -> Option<Wish> {
        self.wishes.pop_front()
    }

    pub(super) fn next_event(&mut self) -> Option<MirrorEvent> {
        self.events.pop_front()
    }

    fn handle(&mut self, input: Input, now: Instant) {
        let Output { actions, events, .. } = self.state.handle(input, now);
        for action in actions {
            self.carry_out(action);
        }
        self.events.extend(events);
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::List => {
                let job = self.next_job();
                let next = self.prefix.clone();
                self.opening = None;
                self.listing = Some(Listing { job, next, place: None, found: Vec::new() });
                self.ask_page();
            }
            Action::OpenWatch(after) => {
                self.drop_watch();
                self.listing = None;
                let job = self.next_job();
                self.opening = Some(job);
                let from = Revision(after.0 + 1);
                let request = Request::Watch { prefix: self.prefix.clone(), from };
                self.wishes.push_back(Wish::Ask(job, request));
            }
            Action::RequestProgress => {
                let progress = self.watch.map(|(watch, _)| Wish::Say(Request::Progress(watch)));
                self.wishes.extend(progress);
            }
            Action::Distrust => {
                self.wishes.extend(self.watch.map(|(_, generation)| Wish::Distrust(generation)));
            }
            Action::Close => {
                self.drop_watch();
                (self.listing, self.opening) = (None, None);
            }
        }
    }

    fn next_job(&mut self) -> Job {
        self.jobs += 1;
        Job(self.jobs)
    }

    fn drop_watch(&mut self) {
        let cancel = self.watch.take().map(|(watch, _)| Wish::Say(Request::Cancel(watch)));
        self.wishes.extend(cancel);
    }

    fn ask_page(&mut self) {
        let Some(Listing { job, next, place, .. }) = &self.listing else { return };
        let request = Request::Range {
            start: next.clone(),
            end: end_of(&self.prefix),
            limit: PAGE_KEYS,
            revision: place.map(|place| place.revision),
        };
        self.wishes.push_back(Wish::Ask(*job, request));
    }

    /// Takes the end of a request.
    pub(super) fn done(&mut self, job: Job, got: Result<Got, Failed>, now: Instant) {
        if self.opening == Some(job) {
            self.opening = None;
            match got {
                Ok(Got::Opened { watch, generation }) => {
                    self.watch = Some((watch, generation));
                    self.handle(Input::WatchOpened, now);
                }
                _ => self.handle(Input::WatchFailed, now),
            }
            return;
        }
        let Some(mut listing) = self.listing.take_if(|listing| listing.job == job) else {
            if let Ok(Got::Opened { watch, .. }) = got {
                self.wishes.push_back(Wish::Say(Request::Cancel(watch)));
            }
            return;
        };
        let Ok(Got::Answer(Answer::Range { place, found, has_more })) = got else {
            return self.handle(Input::ListFailed, now);
        };
        let place = *listing.place.get_or_insert(place);
        listing.found.extend(found);
        match listing.found.last() {
            Some((last, _)) if has_more => {
                listing.next = format!("{last}\0");
                self.listing = Some(listing);
                self.ask_page();
            }
            _ => {
                let found = listing.found.into_iter();
                let entries = found.filter_map(|(path, held)| {
                    let key = self.keys.parse(path.as_bytes()).ok()?;
                    Some(Entry { key, value: held.value, mod_revision: held.mod_revision })
                });
                let entries = entries.collect();
                self.handle(Input::Listed { place, entries }, now);
            }
        }
    }

    pub(super) fn news(&mut self, watch: RequestId, news: WatchNews, now: Instant) {
        if self.watch.is_none_or(|(current, _)| current != watch) {
            return;
        }
        let input = match news {
            WatchNews::Changes(changes) => Input::Watched(self.changes(changes)),
            WatchNews::Progress | WatchNews::Created => Input::Watched(Vec::new()),
            WatchNews::Compacted(_) => Input::Compacted,
            WatchNews::Ended => Input::WatchFailed,
        };
        self.handle(input, now);
    }

    fn changes(&self, changes: Vec<Changed>) -> Vec<Change> {
        let changes = changes.into_iter().filter_map(|Changed { path, value, revision }| {
            let key = self.keys.parse(path.as_bytes()).ok()?;
            Some(match value {
                Some(value) => Change::Put(Entry { key, value, mod_revision: revision }),
                None => Change::Delete { key, revision },
            })
        });
        changes.collect()
    }
}

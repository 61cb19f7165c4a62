//! A copy of a range of keys: what is decided, and the task that lists and watches what [`MirrorState`] wants.
//!
//! An owner that does not take its events holds the task up; etcd then keeps what is to come, and if it compacts
//! that, everything is listed again. So memory is bounded by one list and the queue.

mod check;
pub mod event;
pub mod state;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use etcd_client::{EventType, KeyValue, WatchOptions, WatchResponse, WatchStream};
use tokio::sync::mpsc;

use crate::back_off::BackOff;
use crate::counters::count;
use crate::error::Error;
use crate::keys::{KeyError, Range};
use crate::link::{Connection, Link};
use crate::list::list;
use crate::mirror::event::{Action, Change, Entry, Input, MirrorEvent, Output};
use crate::mirror::state::{MirrorState, Times};
use crate::revision::{Place, Revision};

/// A copy of a range of keys, told as events. Ends when dropped.
#[derive(Debug)]
pub struct Mirror {
    events: mpsc::Receiver<MirrorEvent>,
    task: tokio::task::JoinHandle<()>,
}

impl Mirror {
    /// Starts to mirror; to be called inside a runtime.
    pub(crate) fn open(link: Arc<Link>, range: Range, seen: Option<Place>) -> Self {
        let (sender, events) = mpsc::channel(link.options.queue_len);
        let options = &link.options;
        let times = Times {
            progress_interval: options.progress_interval,
            answer_timeout: options.request_timeout,
            list_interval: options.list_interval,
            list_grace: options.list_grace,
        };
        let seed = options.seed.rotate_left(32).wrapping_add(range as u64);
        let back_off = BackOff::new(options.retry_first, options.retry_max, seed);
        let copying = Copying {
            state: MirrorState::new(times, back_off, seen, Instant::now()),
            link,
            range,
            events: sender,
            watch: None,
        };
        Self { events, task: tokio::spawn(copying.run()) }
    }

    /// What happened next. Cancel safe.
    pub async fn next_event(&mut self) -> Option<MirrorEvent> {
        self.events.recv().await
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Copying {
    link: Arc<Link>,
    range: Range,
    state: MirrorState,
    events: mpsc::Sender<MirrorEvent>,
    watch: Option<(WatchStream, Connection)>,
}

/// A list or the opening of a watch under way.
type Job = std::pin::Pin<Box<dyn Future<Output = Done> + Send>>;

enum Done {
    Listed(Result<(Place, Vec<KeyValue>), Error>),
    Opened(Result<Box<Opened>, Error>),
}

struct Opened {
    watch: WatchStream,
    first: WatchResponse,
    connection: Connection,
}

impl Copying {
    async fn run(mut self) {
        let mut job: Option<Job> = None;
        loop {
            let input = self.next_input(&mut job).await;
            let output = self.state.handle(input, Instant::now());
            if self.carry_out(output, &mut job).await.is_err() {
                // Nobody listens any more.
                return;
            }
        }
    }

    /// Waits for whatever happens first. What the watch says goes before the clock: it may have waited for the owner.
    async fn next_input(&mut self, job: &mut Option<Job>) -> Input {
        let deadline = self.state.deadline();
        let message = async {
            match &mut self.watch {
                Some((watch, _)) => watch.message().await,
                None => std::future::pending().await,
            }
        };
        let done = async {
            match job {
                Some(job) => job.await,
                None => std::future::pending().await,
            }
        };
        let time = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            message = message => match message {
                Ok(Some(response)) => self.watched(&response),
                Ok(None) => Input::WatchFailed,
                Err(error) => {
                    tracing::debug!(%error, range = ?self.range, "the watch ended");
                    Input::WatchFailed
                }
            },
            done = done => {
                *job = None;
                match done {
                    Done::Listed(answer) => self.listed(answer),
                    Done::Opened(answer) => self.opened(answer),
                }
            }
            () = time => Input::Tick,
        }
    }

    async fn carry_out(&mut self, output: Output, job: &mut Option<Job>) -> Result<(), ()> {
        let counters = &self.link.counters;
        counters.list_differences_total.fetch_add(output.list_differences, Relaxed);
        if output.is_stalled {
            count(&counters.stalls_total);
        }
        for action in output.actions {
            match action {
                Action::List => *job = Some(Box::pin(list_job(Arc::clone(&self.link), self.range))),
                Action::OpenWatch(after) => {
                    self.watch = None;
                    *job = Some(Box::pin(open_job(Arc::clone(&self.link), self.range, after)));
                }
                Action::RequestProgress => {
                    if let Some((watch, _)) = &mut self.watch {
                        // A watch that cannot be asked does not answer, which ends it.
                        let _ = watch.request_progress().await;
                    }
                }
                Action::Distrust => {
                    if let Some((_, connection)) = &self.watch {
                        self.link.distrust(connection);
                    }
                }
                Action::Close => {
                    self.watch = None;
                    *job = None;
                }
            }
        }
        for event in output.events {
            if let MirrorEvent::Restored { .. } = event {
                count(&self.link.counters.restores_total);
            }
            self.events.send(event).await.map_err(|_| ())?;
        }
        Ok(())
    }

    fn listed(&self, answer: Result<(Place, Vec<KeyValue>), Error>) -> Input {
        match answer {
            Ok((place, found)) => {
                let entries = found.iter().filter_map(|pair| self.entry(pair)).collect();
                Input::Listed { place, entries }
            }
            Err(_) => Input::ListFailed,
        }
    }

    fn opened(&mut self, answer: Result<Box<Opened>, Error>) -> Input {
        let Ok(opened) = answer else { return Input::WatchFailed };
        if opened.first.canceled() {
            return self.canceled(&opened.first);
        }
        self.watch = Some((opened.watch, opened.connection));
        Input::WatchOpened
    }

    fn watched(&self, response: &WatchResponse) -> Input {
        self.link.heard();
        if response.canceled() {
            return self.canceled(response);
        }
        Input::Watched(response.events().iter().filter_map(|event| self.change(event)).collect())
    }

    fn canceled(&self, response: &WatchResponse) -> Input {
        if response.compact_revision() > 0 {
            count(&self.link.counters.compactions_total);
            return Input::Compacted;
        }
        tracing::debug!(reason = response.cancel_reason(), range = ?self.range, "watch canceled");
        Input::WatchFailed
    }

    fn change(&self, event: &etcd_client::Event) -> Option<Change> {
        let pair = event.kv()?;
        let entry = self.entry(pair)?;
        Some(match event.event_type() {
            EventType::Put => Change::Put(entry),
            EventType::Delete => Change::Delete { key: entry.key, revision: entry.mod_revision },
        })
    }

    fn entry(&self, pair: &KeyValue) -> Option<Entry> {
        let key = match self.link.keys.parse(pair.key()) {
            Ok(key) => key,
            Err(KeyError::Unknown(_) | KeyError::Foreign(..)) => {
                count(&self.link.counters.unknown_keys_total);
                return None;
            }
        };
        let mod_revision = Revision(pair.mod_revision());
        Some(Entry { key, value: pair.value().to_vec(), mod_revision })
    }
}

async fn list_job(link: Arc<Link>, range: Range) -> Done {
    Done::Listed(list(&link, range).await)
}

/// Opens a watch and waits for etcd to confirm it.
async fn open_job(link: Arc<Link>, range: Range, after: Revision) -> Done {
    let prefix = link.keys.range(range);
    let options = WatchOptions::new().with_prefix().with_start_revision(after.0 + 1);
    let operation = format!("watch {prefix}");
    let opened = link
        .request_of(&operation, async |mut client| {
            let mut watch = client.watch(prefix, Some(options)).await?;
            let first = watch.message().await?;
            first
                .map(|first| (watch, first))
                .ok_or_else(|| etcd_client::Error::WatchError("etcd closed the watch".to_owned()))
        })
        .await;
    Done::Opened(
        opened.map(|((watch, first), connection)| Box::new(Opened { watch, first, connection })),
    )
}

//! A lease and the one key held with it: what is decided, and the task that asks etcd what [`ClaimState`] wants asked.

pub mod state;
pub mod transactions;

use std::sync::Arc;
use std::time::{Duration, Instant};

use etcd_client::Error as ClientError;
use tokio::sync::{mpsc, watch};

use crate::back_off::BackOff;
use crate::claim::state::{Answer, ClaimEvent, ClaimState, Held, Request, Step};
use crate::claim::transactions::{Claiming, Found};
use crate::counters::count;
use crate::error::Error;
use crate::keys::Key;
use crate::link::Link;
use crate::revision::LeaseId;
use crate::transaction::{Decided, Transaction};
use crate::txn::{decided, txn_of};

/// What is claimed, and by whom.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) key: Key,
    pub(crate) boot_id: String,
    /// Boot ids of holders that have certainly ended.
    pub(crate) ended: Vec<String>,
    /// The part of the lease's time that is not used.
    pub(crate) margin: Duration,
}

/// The owner's end of a claim. Its task ends when it is dropped; the lease then ends by itself.
#[derive(Debug)]
pub(crate) struct Claim {
    link: Arc<Link>,
    pub(crate) events: mpsc::Receiver<ClaimEvent>,
    held: watch::Receiver<Option<Held>>,
    lease: watch::Receiver<Option<LeaseId>>,
    value: watch::Sender<Vec<u8>>,
    task: tokio::task::JoinHandle<()>,
}

impl Claim {
    /// Starts to claim; to be called inside a runtime.
    pub(crate) fn open(link: Arc<Link>, wanted: Wanted, value: Vec<u8>) -> Self {
        let (events_sender, events) = mpsc::channel(link.options.queue_len);
        let (held_sender, held) = watch::channel(None);
        let (lease_sender, lease) = watch::channel(None);
        let (value, value_receiver) = watch::channel(value);
        let options = &link.options;
        let seed = options.seed.rotate_left(16);
        let state = ClaimState::new(
            wanted.margin,
            options.claim_interval,
            BackOff::new(options.retry_first, options.lease_ttl / 8, seed),
            Instant::now(),
        );
        let holding = Holding {
            link: Arc::clone(&link),
            wanted,
            value: value_receiver,
            state,
            events: events_sender,
            held: held_sender,
            lease: lease_sender,
        };
        Self { link, events, held, lease, value, task: tokio::spawn(holding.run()) }
    }

    /// The key, if it is ours. It is up to the caller to compare `valid_until` with the clock.
    pub(crate) fn held(&self) -> Option<Held> {
        *self.held.borrow()
    }

    /// Writes another value at the next occasion.
    pub(crate) fn replace(&self, value: Vec<u8>) {
        self.value.send_replace(value);
    }

    /// Gives the key up at once.
    ///
    /// # Errors
    /// When etcd could not be told; the key then goes when the lease ends.
    pub(crate) async fn close(mut self) -> Result<(), Error> {
        self.task.abort();
        // The task is gone before its lease: it cannot claim again with another one.
        let _ = (&mut self.task).await;
        let Some(lease) = *self.lease.borrow() else { return Ok(()) };
        self.link
            .request("revoke the lease", async |mut client| {
                match client.lease_revoke(lease.0).await {
                    Err(ClientError::GRpcStatus(status)) if says_no_lease(status.message()) => {
                        Ok(())
                    }
                    answer => answer.map(|_| ()),
                }
            })
            .await
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn says_no_lease(words: &str) -> bool {
    words.contains("requested lease not found")
}

struct Holding {
    link: Arc<Link>,
    wanted: Wanted,
    value: watch::Receiver<Vec<u8>>,
    state: ClaimState,
    events: mpsc::Sender<ClaimEvent>,
    held: watch::Sender<Option<Held>>,
    lease: watch::Sender<Option<LeaseId>>,
}

impl Holding {
    async fn run(mut self) {
        loop {
            match self.state.step(Instant::now()) {
                Step::Ask(request) => self.ask(request).await,
                Step::Wait(until) => self.wait(until).await,
            }
        }
    }

    /// Waits, but no longer than the lease is valid.
    async fn wait(&mut self, until: Instant) {
        let until = self.state.expiry().map_or(until, |expiry| until.min(expiry));
        tokio::select! {
            () = tokio::time::sleep_until(until.into()) => {}
            Ok(()) = self.value.changed() => self.state.claim_now(Instant::now()),
        }
        let events = self.state.tick(Instant::now());
        self.tell(events);
    }

    /// Makes one request; the end of the lease is told even while it is under way.
    async fn ask(&mut self, request: Request) {
        let value = self.value.borrow_and_update().clone();
        let (link, wanted) = (Arc::clone(&self.link), self.wanted.clone());
        let mut answer = std::pin::pin!(answer_of(&link, &wanted, request, value));
        let answer = loop {
            let Some(expiry) = self.state.expiry() else { break answer.await };
            tokio::select! {
                answer = &mut answer => break answer,
                () = tokio::time::sleep_until(expiry.into()) => {
                    let events = self.state.tick(Instant::now());
                    self.tell(events);
                }
            }
        };
        let events = self.state.answer(answer, Instant::now());
        self.tell(events);
    }

    fn tell(&self, events: Vec<ClaimEvent>) {
        self.held.send_if_modified(|held| {
            let now = self.state.held();
            std::mem::replace(held, now) != now
        });
        self.lease.send_replace(self.state.lease());
        for event in events {
            if event == ClaimEvent::Expired {
                count(&self.link.counters.lease_losses_total);
            }
            // The task keeps the lease, whether its owner listens or not.
            if self.events.try_send(event).is_err() {
                count(&self.link.counters.notices_dropped_total);
            }
        }
    }
}

async fn answer_of(link: &Link, wanted: &Wanted, request: Request, value: Vec<u8>) -> Answer {
    let answer = match request {
        Request::Grant => grant(link).await,
        Request::KeepAlive(lease) => keep_alive(link, lease).await,
        Request::Claim(lease) => claim(link, wanted, lease, value).await,
    };
    answer.unwrap_or_else(
        |error| {
            if error.cause.is_silence() { Answer::Silence } else { Answer::Refused }
        },
    )
}

async fn grant(link: &Link) -> Result<Answer, Error> {
    let ttl_sec = i64::try_from(link.options.lease_ttl.as_secs()).unwrap_or(i64::MAX);
    let sent_at = Instant::now();
    let granted = link
        .request("grant a lease", async |mut client| client.lease_grant(ttl_sec, None).await)
        .await?;
    // etcd may grant more than was asked for, never less.
    let ttl = Duration::from_secs(u64::try_from(granted.ttl()).unwrap_or(0));
    Ok(Answer::Granted { lease: LeaseId(granted.id()), ttl, sent_at })
}

async fn keep_alive(link: &Link, lease: LeaseId) -> Result<Answer, Error> {
    let sent_at = Instant::now();
    link.request("renew the lease", async |mut client| {
        match client.lease_keep_alive(lease.0).await {
            Ok(_) => Ok(Answer::KeptAlive { sent_at }),
            // So the client library says that etcd answered with no time left.
            Err(ClientError::LeaseKeepAliveError(_)) => Ok(Answer::NoSuchLease),
            Err(error) => Err(error),
        }
    })
    .await
}

/// Creates the key, or finds whose it is. A key of the same boot id, or of one that has ended, is taken over, and written if
/// it differs.
async fn claim(
    link: &Link,
    wanted: &Wanted,
    lease: LeaseId,
    value: Vec<u8>,
) -> Result<Answer, Error> {
    let (path, boot_id) = (link.keys.path(&wanted.key), wanted.boot_id.clone());
    let operation = format!("claim {path}");
    let ended = wanted.ended.clone();
    let claiming = Claiming { path, boot_id, ended, lease, value };
    let Some(decided) = transact(link, &operation, claiming.create()).await? else {
        return Ok(Answer::NoSuchLease);
    };
    let (create_revision, mod_revision) = match claiming.created(decided) {
        Found::Answer(answer) => return Ok(answer),
        Found::OwnOther { create_revision, mod_revision } => (create_revision, mod_revision),
    };
    let replaced = transact(link, &operation, claiming.replace(mod_revision)).await?;
    Ok(replaced.map_or(Answer::NoSuchLease, |it| Claiming::replaced(create_revision, &it)))
}

/// None if etcd does not know the lease.
async fn transact(
    link: &Link,
    operation: &str,
    transaction: Transaction,
) -> Result<Option<Decided>, Error> {
    let txn = txn_of(transaction);
    link.request(operation, async |mut client| match client.txn(txn).await {
        Err(ClientError::GRpcStatus(status)) if says_no_lease(status.message()) => Ok(None),
        response => Ok(Some(decided(&response?))),
    })
    .await
}

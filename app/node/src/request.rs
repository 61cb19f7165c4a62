//! Requests to a worker and the queue that carries them.
//!
//! ```text
//!   admin task --SyncSender--> [bounded queue] --> worker, one look per loop
//!        ^        + "pending" flag                      |
//!        +-------------- oneshot <----------------------+
//! ```
//!
//! As long as there is no request, the worker only reads the flag, with a relaxed load.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use tokio::sync::oneshot;
use weir_engine::LiveSettings;
use weir_nat::{
    HomeSelector, LoggedFlow, PageCursor, SessionFilter, SessionView, ShardId, SubscriberCursor,
    SubscriberPart, SubscriberView,
};

use crate::capture::CapturePoint;
use crate::trace::TracePoint;

/// Most requests that wait for one worker at once.
const QUEUE: usize = 16;
/// Time after which a worker counts as not answering.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// A page of a session dump.
#[derive(Debug)]
pub(crate) struct Page {
    pub cursor: PageCursor,
    pub sessions: Vec<SessionView>,
    pub has_more: bool,
}

/// A page of the homes with one name and what they hold.
#[derive(Debug)]
pub(crate) struct SubscriberPage {
    pub cursor: SubscriberCursor,
    pub parts: Vec<SubscriberPart>,
    pub has_more: bool,
}

/// A page of the homes of a worker.
#[derive(Debug)]
pub(crate) struct HomesPage {
    pub cursor: u32,
    pub homes: Vec<SubscriberView>,
    pub has_more: bool,
}

/// What each rule of a generation has decided.
#[derive(Debug)]
pub(crate) struct RuleCounts {
    pub generation: u64,
    pub hits: Vec<u64>,
    /// False if a worker has another generation.
    pub is_whole: bool,
}

/// Flows that rules with `log` have decided on.
#[derive(Debug)]
pub(crate) struct RuleLogPage {
    pub flows: Vec<LoggedFlow>,
    /// Flows that are missing.
    pub lost: u64,
}

/// A request to a worker.
#[derive(Debug)]
pub(crate) enum WorkerRequest {
    /// Fills `page` up to the capacity of its vector, going on from its cursor. It comes back
    /// earlier, even without a session, when many slots have been visited.
    Sessions { page: Page, filter: SessionFilter, reply: oneshot::Sender<Page> },
    /// Fills `page` up to the capacity of its vector, going on from its cursor.
    Subscriber { name: HomeSelector, page: SubscriberPage, reply: oneshot::Sender<SubscriberPage> },
    /// As [`Sessions`](Self::Sessions), with all homes, or those of one shard.
    Homes { page: HomesPage, shard: Option<ShardId>, reply: oneshot::Sender<HomesPage> },
    /// Removes the mappings and IPv6 flows of the homes with a name; answers how many there were.
    Flush { name: HomeSelector, reply: oneshot::Sender<usize> },
    /// Copies frames into the capture point until its reader goes away; false when a capture
    /// already runs.
    Capture { point: Box<CapturePoint>, reply: oneshot::Sender<bool> },
    /// Records the way of packets until its reader goes away; false when a trace already runs.
    Trace { point: Box<TracePoint>, reply: oneshot::Sender<bool> },
    /// Adds the counts of the rules to as many places, if there are as many rules. The numbers of
    /// a generation: another one may be in force by now.
    RuleHits { counts: RuleCounts, reply: oneshot::Sender<RuleCounts> },
    /// Fills `page` with the flows that rules with `log` have decided on since the last one.
    RuleLog { page: RuleLogPage, reply: oneshot::Sender<RuleLogPage> },
    /// Puts a generation of settings in force between two turns.
    SwapLive(LiveSwap),
}

/// A generation for a worker. The former one comes back in the same box, so that the worker frees
/// nothing.
#[derive(Debug)]
pub(crate) struct LiveSwap {
    pub settings: Box<LiveSettings>,
    pub reply: oneshot::Sender<Box<LiveSettings>>,
}

/// Why a worker did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AskError {
    #[error("the worker has too many requests waiting")]
    QueueFull,
    #[error("the worker did not answer within {} s", ANSWER_TIMEOUT.as_secs())]
    Timeout,
    #[error("the worker has stopped")]
    Stopped,
}

/// The requester's end.
#[derive(Clone, Debug)]
pub(crate) struct Requester {
    queue: SyncSender<WorkerRequest>,
    is_pending: Arc<AtomicBool>,
}

/// The worker's end.
#[derive(Debug)]
pub(crate) struct Mailbox {
    queue: Receiver<WorkerRequest>,
    is_pending: Arc<AtomicBool>,
}

/// Creates both ends of a worker's queue.
pub(crate) fn mailbox() -> (Requester, Mailbox) {
    let (sender, receiver) = sync_channel(QUEUE);
    let is_pending = Arc::new(AtomicBool::new(false));
    let requester = Requester { queue: sender, is_pending: Arc::clone(&is_pending) };
    (requester, Mailbox { queue: receiver, is_pending })
}

impl Requester {
    /// Sends the request that `make` builds around the reply channel, and waits for the answer.
    ///
    /// # Errors
    /// When the worker's queue is full, the worker is gone, or it does not answer in time.
    pub(crate) async fn ask<T>(
        &self,
        make: impl FnOnce(oneshot::Sender<T>) -> WorkerRequest,
    ) -> Result<T, AskError> {
        let (reply, answer) = oneshot::channel();
        self.send(make(reply)).map_err(|error| match *error {
            TrySendError::Full(_) => AskError::QueueFull,
            TrySendError::Disconnected(_) => AskError::Stopped,
        })?;
        match tokio::time::timeout(ANSWER_TIMEOUT, answer).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(_)) => Err(AskError::Stopped),
            Err(_) => Err(AskError::Timeout),
        }
    }

    /// Puts a request into the worker's queue.
    ///
    /// # Errors
    /// The request comes back if the worker's queue is full, or the worker is gone.
    pub(crate) fn send(
        &self,
        request: WorkerRequest,
    ) -> Result<(), Box<TrySendError<WorkerRequest>>> {
        self.queue.try_send(request).map_err(Box::new)?;
        self.is_pending.store(true, Ordering::Release);
        Ok(())
    }
}

impl Mailbox {
    /// Returns the next request, if there is one. Never blocks.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<WorkerRequest> {
        if !self.is_pending.load(Ordering::Relaxed) {
            return None;
        }
        // Cleared before the check, so that a request sent meanwhile sets it again.
        self.is_pending.swap(false, Ordering::AcqRel);
        let request = self.queue.try_recv().ok()?;
        self.is_pending.store(true, Ordering::Release);
        Some(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    #[test]
    fn every_request_is_answered_by_a_worker_that_polls() {
        let (requester, mut mailbox) = mailbox();
        let worker = std::thread::spawn(move || {
            let mut answered = 0;
            while answered < 100 {
                if let Some(WorkerRequest::Flush { name: HomeSelector::Ipv4(outer), reply }) =
                    mailbox.take()
                {
                    reply.send(outer as usize + 1).unwrap();
                    answered += 1;
                }
                std::thread::yield_now();
            }
        });
        runtime().block_on(async {
            for outer in 0..100 {
                let name = HomeSelector::Ipv4(outer);
                let answer = requester.ask(|reply| WorkerRequest::Flush { name, reply }).await;
                assert_eq!(answer, Ok(outer as usize + 1));
            }
        });
        worker.join().unwrap();
    }

    #[test]
    fn a_stopped_worker_and_a_full_queue_give_different_errors() {
        let name = HomeSelector::Ipv4(1);
        let (requester, mailbox) = mailbox();
        runtime().block_on(async {
            let (replies, _answers): (Vec<_>, Vec<_>) =
                (0..QUEUE).map(|_| oneshot::channel::<usize>()).unzip();
            for reply in replies {
                requester.queue.try_send(WorkerRequest::Flush { name, reply }).unwrap();
            }
            let answer = requester.ask(|reply| WorkerRequest::Flush { name, reply }).await;
            assert_eq!(answer, Err(AskError::QueueFull));
            drop(mailbox);
            let answer = requester.ask(|reply| WorkerRequest::Flush { name, reply }).await;
            assert_eq!(answer, Err(AskError::Stopped));
        });
    }
}

//! The real routes under the real HTTP server, over connections in memory.

use tokio::io::{DuplexStream, duplex};
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::yield_now;
use weir_process::http::{ConnectionRemote, ListenerLimits, PeerUser};

use crate::admin::routes::server;
use crate::request::{Mailbox, WorkerRequest};
use crate::sample_node::{HOME, sample_node, session, show_homes, show_subscriber};

/// Bytes that a connection buffers each way: more than any answer but a capture.
const WIRE_BYTES: usize = 256 << 10;

/// The real routes under the real HTTP server, with a task in the worker's place.
pub(super) struct Server {
    pub(super) runtime: Runtime,
    connect: UnboundedSender<(DuplexStream, u32)>,
}

impl Server {
    pub(super) fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (node, mailbox) = sample_node();
        let (connect, mut connections) = unbounded_channel::<(DuplexStream, u32)>();
        let server = server(&node, ListenerLimits::ADMIN);
        runtime.spawn(async move {
            while let Some((stream, uid)) = connections.recv().await {
                server.admit(
                    stream,
                    ConnectionRemote::User(Some(uid)),
                    PeerUser { uid: Some(uid) },
                );
            }
        });
        runtime.spawn(answer(mailbox));
        Self { runtime, connect }
    }

    pub(super) fn connect(&self, uid: u32) -> DuplexStream {
        let (ours, theirs) = duplex(WIRE_BYTES);
        self.connect.send((theirs, uid)).expect("the server's task runs");
        ours
    }
}

/// Answers as a worker with one home. A capture of this worker ends at once.
async fn answer(mut mailbox: Mailbox) {
    loop {
        match mailbox.take() {
            None => yield_now().await,
            Some(WorkerRequest::Sessions { mut page, filter, reply }) => {
                let fits = filter.subscriber.is_none_or(|home| home == HOME.into());
                page.sessions.extend(fits.then(|| session(4_000)));
                page.has_more = false;
                let _ = reply.send(page);
            }
            Some(WorkerRequest::Subscriber { name, mut page, reply }) => {
                show_subscriber(name, &mut page);
                let _ = reply.send(page);
            }
            Some(WorkerRequest::Homes { mut page, shard, reply }) => {
                show_homes(shard, &mut page);
                let _ = reply.send(page);
            }
            Some(WorkerRequest::Flush { reply, .. }) => drop(reply.send(1)),
            Some(WorkerRequest::RuleHits { counts, reply }) => drop(reply.send(counts)),
            Some(WorkerRequest::RuleLog { page, reply }) => drop(reply.send(page)),
            Some(WorkerRequest::SwapLive(swap)) => drop(swap.reply.send(swap.settings)),
            Some(WorkerRequest::Capture { reply, .. } | WorkerRequest::Trace { reply, .. }) => {
                let _ = reply.send(true);
            }
        }
    }
}

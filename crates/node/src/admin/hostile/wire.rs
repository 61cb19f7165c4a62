//! The real routes under the real HTTP server, over connections in memory.

use std::future::pending;
use std::io;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use tokio::io::{DuplexStream, duplex};
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::yield_now;

use crate::admin::peer::Peer;
use crate::admin::routes::service;
use crate::request::{Mailbox, Request};
use crate::sample_node::{HOME, sample_node, session, subscriber};

/// Bytes that a connection holds each way: more than any answer but a capture.
const WIRE_BYTES: usize = 256 << 10;

/// Connections in memory, each with the user at its other end.
struct Wire(UnboundedReceiver<(DuplexStream, u32)>);

impl Listener for Wire {
    type Io = DuplexStream;
    type Addr = u32;

    async fn accept(&mut self) -> (DuplexStream, u32) {
        match self.0.recv().await {
            Some(connection) => connection,
            None => pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<u32> {
        Ok(0)
    }
}

impl Connected<IncomingStream<'_, Wire>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Wire>) -> Self {
        Self { uid: Some(*stream.remote_addr()) }
    }
}

/// The real routes under the real HTTP server, with a task in the worker's place.
pub(super) struct Server {
    pub(super) runtime: Runtime,
    connect: UnboundedSender<(DuplexStream, u32)>,
}

impl Server {
    pub(super) fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (node, mailbox) = sample_node();
        let (connect, connections) = unbounded_channel();
        runtime.spawn(async move { axum::serve(Wire(connections), service(node)).await });
        runtime.spawn(answer(mailbox));
        Self { runtime, connect }
    }

    pub(super) fn connect(&self, uid: u32) -> DuplexStream {
        let (ours, theirs) = duplex(WIRE_BYTES);
        self.connect.send((theirs, uid)).expect("it serves");
        ours
    }
}

/// A worker with one home. A capture of it ends at once.
async fn answer(mut mailbox: Mailbox) {
    loop {
        match mailbox.take() {
            None => yield_now().await,
            Some(Request::Sessions { mut page, filter, reply }) => {
                let fits = filter.subscriber.is_none_or(|home| home == HOME);
                page.sessions.extend(fits.then(|| session(4_000)));
                page.has_more = false;
                let _ = reply.send(page);
            }
            Some(Request::Subscriber { outer, reply }) => {
                let _ = reply.send(if outer == HOME { vec![subscriber()] } else { Vec::new() });
            }
            Some(Request::Flush { reply, .. }) => drop(reply.send(1)),
            Some(Request::Capture { reply, .. }) => drop(reply.send(true)),
        }
    }
}

//! A response body whose pieces are made while the reader takes them.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Bytes, Frame};
use serde::Serialize;
use tokio::sync::mpsc;
use weir_admin::api::Problem;

use crate::request::AskError;

/// Pieces buffered for the reader; the sender waits for room when there are this many.
const PIECES: usize = 4;

/// The reading end, given to the HTTP server, which drops it when the peer goes away.
#[derive(Debug)]
pub(super) struct PieceBody(mpsc::Receiver<Bytes>);

/// Returns both ends of a body.
pub(super) fn pieces() -> (mpsc::Sender<Bytes>, PieceBody) {
    let (sender, receiver) = mpsc::channel(PIECES);
    (sender, PieceBody(receiver))
}

impl hyper::body::Body for PieceBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|piece| piece.map(|bytes| Ok(Frame::data(bytes))))
    }
}

/// Returns one JSON line per value, or one empty line if there is no value.
pub(super) fn json_lines(values: impl Iterator<Item = impl Serialize>) -> Bytes {
    let mut text = Vec::new();
    for value in values {
        // Writing into memory does not fail.
        let _ = serde_json::to_writer(&mut text, &value);
        text.push(b'\n');
    }
    if text.is_empty() {
        text.push(b'\n');
    }
    text.into()
}

pub(super) fn problem_line(worker: usize, error: AskError) -> Bytes {
    let problem = Problem { error: format!("worker {worker}: {error}") };
    let mut text = serde_json::to_vec(&problem).unwrap_or_default();
    text.push(b'\n');
    text.into()
}

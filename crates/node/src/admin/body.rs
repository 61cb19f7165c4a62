//! A response body whose pieces are made while the reader takes them.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Bytes, Frame};
use tokio::sync::mpsc;

/// Pieces waiting for the reader: the maker waits when there are more.
const PIECES: usize = 4;

/// The reading end, given to the HTTP server, which drops it when the peer goes away.
#[derive(Debug)]
pub(super) struct PieceBody(mpsc::Receiver<Bytes>);

/// Both ends of a body.
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

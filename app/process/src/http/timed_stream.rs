//! A stream that reports reads and writes to its [`ClientConnection`], and a body that reports its
//! end.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use axum::body::Body;
use hyper::body::{Bytes, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connection::ClientConnection;

#[derive(Debug)]
pub(super) struct TimedStream<S> {
    pub(super) stream: S,
    pub(super) connection: Arc<ClientConnection>,
    /// Same as in [`ListenerLimits`](super::limits::ListenerLimits).
    pub(super) stall_bytes_min: usize,
}

impl<S: AsyncRead + Unpin> AsyncRead for TimedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        if buffer.filled().len() > before {
            self.connection.has_read(Instant::now());
        }
        Poll::Ready(Ok(()))
    }
}

impl<S> TimedStream<S> {
    fn note(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        let taken = match &written {
            Poll::Pending => None,
            Poll::Ready(Ok(bytes)) => Some(*bytes),
            Poll::Ready(Err(_)) => return written,
        };
        self.connection.has_written(taken, self.stall_bytes_min, Instant::now());
        written
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.note(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.note(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(context))?;
        self.connection.has_flushed(Instant::now());
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// The body of an answer.
#[derive(Debug)]
pub(super) struct TimedBody {
    pub(super) body: Body,
    pub(super) connection: Arc<ClientConnection>,
}

impl hyper::body::Body for TimedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The server drops the body when it has taken all of it, and where the method forbids one.
impl Drop for TimedBody {
    fn drop(&mut self) {
        self.connection.end_body();
    }
}

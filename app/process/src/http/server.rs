//! The server of a listener, HTTP/1: a bounded number of connections, each with bounded times and
//! sizes.
//!
//! Whatever clients do, a request that arrives whole is answered: connections that wait for bytes
//! give way to newer ones, and each wait is bounded. Nothing here is shared with workers.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::connect_info::ConnectInfo;
use axum::http::StatusCode;
use axum::http::header::CONNECTION;
use axum::response::{IntoResponse, Response};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::Request;
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};

use super::connection::Connection;
use super::limits::Limits;
use super::peer::Peer;
use super::problem::Refused;
use super::refusals::{HttpNumbers, ListenerNumbers, Refusal};
use super::table::{Remote, Table};
use super::timed_stream::{TimedBody, TimedStream};

/// Connections accepted before the other tasks get [`TURN`] to run. A flood of connections
/// displaces a new one only after `connections_per_remote_max / 4` such turns, in which its request
/// is read and answered.
const ACCEPTS_PER_TURN: u32 = 4;
const TURN: Duration = Duration::from_millis(1);
/// Pause after a failed accept, for example without free file descriptors.
const ACCEPT_REST: Duration = Duration::from_millis(100);

const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2";
const HTTP2_ANSWER: &[u8] =
    b"HTTP/1.1 505 HTTP Version Not Supported\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// Routes, limits and connections of one listener.
#[derive(Debug)]
pub struct Server {
    routes: TowerToHyperService<Router>,
    limits: Limits,
    numbers: Arc<HttpNumbers>,
    of: fn(&HttpNumbers) -> &ListenerNumbers,
    table: Mutex<Table>,
}

impl Server {
    /// Creates a server; `of` selects this listener's numbers.
    pub fn new(
        routes: Router,
        limits: Limits,
        numbers: Arc<HttpNumbers>,
        of: fn(&HttpNumbers) -> &ListenerNumbers,
    ) -> Arc<Self> {
        let routes = TowerToHyperService::new(routes);
        Arc::new(Self { routes, limits, numbers, of, table: Mutex::default() })
    }

    /// Serves the socket file until the task is dropped.
    pub async fn serve_unix(self: Arc<Self>, listener: UnixListener) -> Infallible {
        self.serve(|context| {
            let (stream, _) = ready!(listener.poll_accept(context))?;
            let uid = stream.peer_cred().ok().map(|credentials| credentials.uid());
            Poll::Ready(Ok((stream, Remote::User(uid), Peer { uid })))
        })
        .await
    }

    /// Serves a TCP address until the task is dropped.
    pub async fn serve_tcp(self: Arc<Self>, listener: TcpListener) -> Infallible {
        self.serve(|context| {
            let (stream, address) = ready!(listener.poll_accept(context))?;
            Poll::Ready(Ok((stream, Remote::of(address.ip()), Peer { uid: None })))
        })
        .await
    }

    /// Accepts connections and spawns a task for each.
    async fn serve<S>(
        self: Arc<Self>,
        mut accept: impl FnMut(&mut Context<'_>) -> Poll<io::Result<(S, Remote, Peer)>>,
    ) -> Infallible
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut accepted: u32 = 0;
        loop {
            match poll_fn(&mut accept).await {
                Ok((stream, remote, peer)) => self.admit(stream, remote, peer),
                // A client that has already disconnected is no reason to pause.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(_) => {
                    self.numbers().count(Refusal::NotAccepted);
                    tokio::time::sleep(ACCEPT_REST).await;
                }
            }
            accepted = accepted.wrapping_add(1);
            if accepted.is_multiple_of(ACCEPTS_PER_TURN) {
                tokio::time::sleep(TURN).await;
            }
        }
    }

    /// Serves a connection if the table has a slot for it; else closes and counts it.
    pub fn admit<S>(self: &Arc<Self>, stream: S, remote: Remote, peer: Peer)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let place = {
            let mut table = self.table();
            let place = table.admit(remote, &self.limits, Instant::now());
            self.numbers().set_open(table.len());
            place
        };
        let Some((number, connection)) = place else {
            self.numbers().count(Refusal::Limit);
            return;
        };
        let place = Place { server: Arc::clone(self), number };
        tokio::spawn(async move {
            if let Some(refusal) = place.server.hold(stream, peer, connection).await {
                place.server.numbers().count(refusal);
            }
        });
    }

    /// Answers the requests of a connection until it ends. Returns the reason if this end is
    /// counted.
    async fn hold<S>(&self, stream: S, peer: Peer, connection: Arc<Connection>) -> Option<Refusal>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let stream = TimedStream {
            stream,
            connection: Arc::clone(&connection),
            stall_bytes_min: self.limits.stall_bytes_min,
        };
        let answer = service_fn(|request| self.answer(request, peer, &connection));
        let mut exchange = http1::Builder::new()
            .timer(TokioTimer::new())
            // All deadlines are those of `Connection`.
            .header_read_timeout(None)
            .max_headers(self.limits.headers_max)
            .max_header_size(self.limits.head_bytes_max)
            .max_buf_size(2 * self.limits.head_bytes_max)
            .serve_connection(TokioIo::new(stream), answer);
        let result = tokio::select! {
            result = &mut exchange => result,
            refusal = self.over(&connection) => return Some(refusal),
        };
        let error = result.err()?;
        let parts = exchange.into_parts();
        if parts.read_buf.starts_with(HTTP2_PREFACE) {
            let mut stream = parts.io.into_inner().stream;
            // A client that does not take the answer is no concern of the server.
            let _ = tokio::time::timeout(self.limits.head_timeout, async {
                stream.write_all(HTTP2_ANSWER).await?;
                stream.shutdown().await
            })
            .await;
            return Some(Refusal::Http2);
        }
        (error.is_parse() || error.is_parse_too_large()).then_some(Refusal::Malformed)
    }

    /// Returns once a deadline of the connection has passed, or another displaced it.
    async fn over(&self, connection: &Connection) -> Refusal {
        loop {
            match connection.deadline(&self.limits, Instant::now()) {
                Err(refusal) => return refusal,
                Ok(next) => tokio::select! {
                    () = tokio::time::sleep_until(next.into()) => {}
                    () = connection.displaced() => {}
                },
            }
        }
    }

    /// Reads a request to its end, and answers it.
    async fn answer(
        &self,
        request: Request<Incoming>,
        peer: Peer,
        connection: &Arc<Connection>,
    ) -> Result<Response<TimedBody>, Infallible> {
        let response = match self.whole(request).await {
            Ok(mut request) => {
                connection.begin_answer(Instant::now());
                request.extensions_mut().insert(ConnectInfo(peer));
                self.make(request).await
            }
            Err(refused) => {
                connection.begin_answer(Instant::now());
                let mut response = refused.into_response();
                response.headers_mut().insert(CONNECTION, "close".parse().expect("a token"));
                response
            }
        };
        let is_open_ended = response.body().size_hint().exact().is_none();
        connection.begin_body(is_open_ended, Instant::now());
        let connection = Arc::clone(connection);
        Ok(response.map(|body| TimedBody { body, connection }))
    }

    /// Reads the whole body of the request.
    async fn whole(&self, request: Request<Incoming>) -> Result<Request<Body>, Refused> {
        let max = self.limits.body_bytes_max;
        let (head, body) = request.into_parts();
        let is_too_large = body.size_hint().lower() > max as u64;
        let body = match is_too_large {
            true => Err(None),
            false => Limited::new(body, max).collect().await.map_err(Some),
        };
        match body {
            Ok(body) => Ok(Request::from_parts(head, Body::from(body.to_bytes()))),
            Err(Some(error)) if !error.is::<LengthLimitError>() => {
                self.numbers().count(Refusal::Malformed);
                Err(Refused::new(StatusCode::BAD_REQUEST, format!("the body: {error}")))
            }
            Err(_) => {
                self.numbers().count(Refusal::BodyTooLarge);
                let error = format!("a body of more than {max} bytes, where none is needed");
                Err(Refused::new(StatusCode::PAYLOAD_TOO_LARGE, error))
            }
        }
    }

    async fn make(&self, request: Request<Body>) -> Response {
        let time = self.limits.answer_timeout;
        let Ok(answer) = tokio::time::timeout(time, self.routes.call(request)).await else {
            self.numbers().count(Refusal::AnswerTimeout);
            let error = format!("no answer within {} s", time.as_secs());
            return Refused::new(StatusCode::SERVICE_UNAVAILABLE, error).into_response();
        };
        answer.unwrap_or_else(|never| match never {})
    }

    fn numbers(&self) -> &ListenerNumbers {
        (self.of)(&self.numbers)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection's slot in the table, freed however its task ends.
struct Place {
    server: Arc<Server>,
    number: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut table = self.server.table();
        table.remove(self.number);
        self.server.numbers().set_open(table.len());
    }
}

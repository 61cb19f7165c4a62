//! `GET /sessions`: sessions as JSON lines, made page by page while the reader takes them.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use hyper::body::Bytes;
use serde::Deserialize;
use tokio::sync::mpsc;
use weir_nat::{Endpoint, PageCursor, SessionFilter, SessionView};

use super::body::pieces;
use super::problem::Refused;
use crate::api::Session;
use crate::node::Node;
use crate::request::{AskError, Page, Request};

/// Room of a page, in sessions.
const PAGE: usize = 1024;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    subscriber: Option<String>,
    public: Option<String>,
    remote: Option<String>,
    limit: Option<u64>,
}

pub(super) async fn sessions(
    State(node): State<Arc<Node>>,
    wanted: Result<Query<Wanted>, QueryRejection>,
) -> Result<Response, Refused> {
    let Query(wanted) = wanted?;
    let filter = SessionFilter {
        subscriber: parse::<Ipv4Addr>("subscriber", &wanted.subscriber, "an IPv4 address")?
            .map(u32::from),
        public: parse("public", &wanted.public, "ADDRESS:PORT")?.map(endpoint),
        remote: parse("remote", &wanted.remote, "ADDRESS:PORT")?.map(endpoint),
    };
    let left = wanted.limit.unwrap_or(u64::MAX);
    let (sender, body) = pieces();
    tokio::spawn(list(node, filter, left, sender));
    Ok(([(CONTENT_TYPE, "application/x-ndjson")], Body::new(body)).into_response())
}

fn parse<T: std::str::FromStr>(
    name: &str,
    text: &Option<String>,
    what: &str,
) -> Result<Option<T>, Refused> {
    text.as_deref()
        .map(|text| {
            let error = || format!("{name}: '{text}' is not {what}");
            text.parse().map_err(|_| Refused::new(StatusCode::BAD_REQUEST, error()))
        })
        .transpose()
}

fn endpoint(address: SocketAddrV4) -> Endpoint {
    Endpoint::new(u32::from(*address.ip()), address.port())
}

/// Worker after worker, page after page, as long as the reader takes them. A worker that does not answer is left out
/// after a line that says so.
async fn list(node: Arc<Node>, filter: SessionFilter, mut left: u64, sender: mpsc::Sender<Bytes>) {
    for worker in &node.workers {
        let mut page = Page {
            cursor: PageCursor::default(),
            sessions: Vec::with_capacity(PAGE),
            has_more: true,
        };
        while page.has_more && left > 0 {
            page.sessions.clear();
            let make = |reply| Request::Sessions { page, filter, reply };
            page = match worker.requester.ask(make).await {
                Ok(page) => page,
                Err(error) => {
                    let _ = sender.send(problem_line(worker.worker, error)).await;
                    break;
                }
            };
            page.sessions.truncate(usize::try_from(left).unwrap_or(usize::MAX));
            left -= page.sessions.len() as u64;
            let lines = lines(worker.worker, &page.sessions);
            if !lines.is_empty() && sender.send(lines).await.is_err() {
                return;
            }
        }
    }
}

fn lines(worker: usize, views: &[SessionView]) -> Bytes {
    let mut text = Vec::new();
    for view in views {
        // Writing into memory does not fail.
        let _ = serde_json::to_writer(&mut text, &session(worker, view));
        text.push(b'\n');
    }
    text.into()
}

fn problem_line(worker: usize, error: AskError) -> Bytes {
    let problem = crate::api::Problem { error: format!("worker {worker}: {error}") };
    let mut text = serde_json::to_vec(&problem).unwrap_or_default();
    text.push(b'\n');
    text.into()
}

fn session(worker: usize, view: &SessionView) -> Session {
    let address =
        |endpoint: Endpoint| SocketAddrV4::new(Ipv4Addr::from(endpoint.address), endpoint.port);
    Session {
        worker,
        shard: view.shard.0,
        subscriber: Ipv4Addr::from(view.outer),
        gre_key: view.gre_key,
        protocol: view.protocol.name().into(),
        inside: address(view.inside),
        public: address(view.public),
        remote: address(view.remote),
        state: view.state.into(),
        age_sec: view.age_sec,
        idle_sec: view.idle_sec,
        timeout_sec: view.timeout_sec,
    }
}

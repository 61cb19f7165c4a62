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
use ipnet::Ipv4Net;
use serde::Deserialize;
use tokio::sync::mpsc;
use weir_admin::api::Session;
use weir_nat::{
    Endpoint, EndpointRange, FlowClass, PageCursor, Protocol, SESSION_STATES, SessionFilter,
    SessionView,
};
use weir_process::http::RefusedRequest;

use super::body::{json_lines, pieces, problem_line};
use crate::node::{Node, RoleNames};
use crate::request::{Page, WorkerRequest};

/// Sessions in a page.
const PAGE: usize = 1024;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SessionsQuery {
    subscriber: Option<String>,
    inside: Option<String>,
    public: Option<String>,
    remote: Option<String>,
    protocol: Option<String>,
    state: Option<String>,
    older: Option<u32>,
    younger: Option<u32>,
    limit: Option<u64>,
}

pub(super) async fn sessions(
    State(node): State<Arc<Node>>,
    wanted: Result<Query<SessionsQuery>, QueryRejection>,
) -> Result<Response, RefusedRequest> {
    let Query(wanted) = wanted?;
    let filter = SessionFilter {
        subscriber: parse::<Ipv4Addr>("subscriber", &wanted.subscriber, "an IPv4 address")?
            .map(u32::from),
        inside: range("inside", &wanted.inside)?,
        public: range("public", &wanted.public)?,
        remote: range("remote", &wanted.remote)?,
        protocol: known("protocol", &wanted.protocol, Protocol::ALL.map(|it| (it.name(), it)))?,
        state: known("state", &wanted.state, SESSION_STATES.map(|name| (name, name)))?,
        age_min_sec: wanted.older,
        age_max_sec: wanted.younger,
    };
    let left = wanted.limit.unwrap_or(u64::MAX);
    let (sender, body) = pieces();
    tokio::spawn(list(node, filter, left, sender));
    Ok(([(CONTENT_TYPE, "application/x-ndjson")], Body::new(body)).into_response())
}

pub(super) fn parse<T: std::str::FromStr>(
    name: &str,
    text: &Option<String>,
    what: &str,
) -> Result<Option<T>, RefusedRequest> {
    text.as_deref()
        .map(|text| {
            let error = || format!("{name}: '{text}' is not {what}");
            text.parse().map_err(|_| RefusedRequest::new(StatusCode::BAD_REQUEST, error()))
        })
        .transpose()
}

/// Parses one of some words.
pub(super) fn known<T: Copy, const N: usize>(
    name: &str,
    text: &Option<String>,
    words: [(&'static str, T); N],
) -> Result<Option<T>, RefusedRequest> {
    let Some(text) = text else { return Ok(None) };
    let found = words.iter().find(|(word, _)| word == text);
    found.map(|(_, value)| Some(*value)).ok_or_else(|| {
        let words = words.map(|(word, _)| word).join(", ");
        let error = format!("{name}: '{text}' is none of {words}");
        RefusedRequest::new(StatusCode::BAD_REQUEST, error)
    })
}

/// Parses an address, a prefix, or an address with a port.
pub(super) fn range(
    name: &str,
    text: &Option<String>,
) -> Result<Option<EndpointRange>, RefusedRequest> {
    let Some(text) = text else { return Ok(None) };
    if let Ok(one) = text.parse::<SocketAddrV4>() {
        return Ok(Some(Endpoint::new(u32::from(*one.ip()), one.port()).into()));
    }
    let net = text.parse::<Ipv4Addr>().map(Ipv4Net::from).or_else(|_| text.parse::<Ipv4Net>());
    let range = net.map(|net| EndpointRange {
        network: u32::from(net.network()),
        mask: u32::from(net.netmask()),
        port: None,
    });
    range.map(Some).map_err(|_| {
        let error = format!("{name}: '{text}' is not ADDRESS, ADDRESS/LENGTH or ADDRESS:PORT");
        RefusedRequest::new(StatusCode::BAD_REQUEST, error)
    })
}

/// Sends the sessions of one worker after the other, page by page, as long as the reader takes
/// them. An empty page becomes an empty line, so that the reader sees that the search goes on. A
/// worker that does not answer is left out after a line that says so.
async fn list(node: Arc<Node>, filter: SessionFilter, mut left: u64, sender: mpsc::Sender<Bytes>) {
    let roles = node.roles();
    for worker in &node.workers {
        let mut page = Page {
            cursor: PageCursor::default(),
            sessions: Vec::with_capacity(PAGE),
            has_more: true,
        };
        while page.has_more && left > 0 {
            page.sessions.clear();
            let make = |reply| WorkerRequest::Sessions { page, filter, reply };
            page = match worker.requester.ask(make).await {
                Ok(page) => page,
                Err(error) => {
                    let _ = sender.send(problem_line(worker.worker, error)).await;
                    break;
                }
            };
            page.sessions.truncate(usize::try_from(left).unwrap_or(usize::MAX));
            left -= page.sessions.len() as u64;
            let sessions = page.sessions.iter().map(|view| session(worker.worker, view, &roles));
            if sender.send(json_lines(sessions)).await.is_err() {
                return;
            }
        }
    }
}

fn session(worker: usize, view: &SessionView, roles: &RoleNames) -> Session {
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
        asked: view.asked.map(address),
        state: view.state.into(),
        age_sec: view.age_sec,
        idle_sec: view.idle_sec,
        timeout_sec: view.timeout_sec,
        class: (view.class != FlowClass::NONE).then(|| view.class.number()),
        role: roles.of(worker, view.shard.0),
    }
}

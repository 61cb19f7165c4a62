//! `GET /sessions`: sessions as JSON lines, made page by page while the reader takes them.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use hyper::body::Bytes;
use ipnet::{Ipv4Net, Ipv6Net};
use serde::Deserialize;
use tokio::sync::mpsc;
use weir_admin::api::Session;
use weir_admin::{HomeName, HomeNameError};
use weir_nat::{
    Endpoint, Endpoint6, EndpointRange, EndpointRange6, FamilyRange, FlowClass, IpFamily,
    PageCursor, Protocol, SESSION_STATES, SessionEnds, SessionFilter, SessionView,
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
    family: Option<String>,
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
        family: known("family", &wanted.family, IpFamily::ALL.map(|it| (it.name(), it)))?,
        subscriber: home("subscriber", &wanted.subscriber)?.map(Into::into),
        inside: family_range("inside", &wanted.inside)?,
        public: range("public", &wanted.public)?,
        remote: family_range("remote", &wanted.remote)?,
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

/// Parses the name of a home.
pub(super) fn home(name: &str, text: &Option<String>) -> Result<Option<HomeName>, RefusedRequest> {
    let Some(text) = text else { return Ok(None) };
    text.parse().map(Some).map_err(|error: HomeNameError| {
        RefusedRequest::new(StatusCode::BAD_REQUEST, format!("{name}: {error}"))
    })
}

/// Parses an address, a prefix, or an address with a port, of either family.
pub(super) fn family_range(
    name: &str,
    text: &Option<String>,
) -> Result<Option<FamilyRange>, RefusedRequest> {
    let Some(wanted) = text.as_deref().filter(|text| text.matches(':').count() > 1) else {
        return Ok(range(name, text)?.map(FamilyRange::Ipv4));
    };
    range6(wanted).map(|range| Some(FamilyRange::Ipv6(range))).ok_or_else(|| {
        let error = format!("{name}: '{wanted}' is not ADDRESS, ADDRESS/LENGTH or [ADDRESS]:PORT");
        RefusedRequest::new(StatusCode::BAD_REQUEST, error)
    })
}

fn range6(text: &str) -> Option<EndpointRange6> {
    if let Ok(one) = text.parse::<SocketAddrV6>() {
        return Some(Endpoint6::new(one.ip().to_bits(), one.port()).into());
    }
    let address = text.parse::<Ipv6Addr>().map(Ipv6Net::from).ok();
    let net = address.or_else(|| text.parse().ok())?;
    let (network, mask) = (net.network().to_bits(), net.netmask().to_bits());
    Some(EndpointRange6 { network, mask, port: None })
}

/// Parses an IPv4 address, a prefix, or an address with a port.
fn range(name: &str, text: &Option<String>) -> Result<Option<EndpointRange>, RefusedRequest> {
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

pub(super) fn session(worker: usize, view: &SessionView, roles: &RoleNames) -> Session {
    let (family, inside, public, remote, asked) = match view.ends {
        SessionEnds::Ipv4(ends) => {
            let [inside, remote] = [ends.inside, ends.remote].map(SocketAddr::from);
            (4, inside, Some(ends.public.into()), remote, ends.asked.map(Into::into))
        }
        SessionEnds::Ipv6(ends) => (6, ends.inside.into(), None, ends.remote.into(), None),
    };
    Session {
        worker,
        shard: view.shard.0,
        family,
        subscriber: view.home.into(),
        gre_key: view.home.gre_key(),
        protocol: view.protocol.name().into(),
        inside,
        public,
        remote,
        asked,
        state: view.state.into(),
        age_sec: view.age_sec,
        idle_sec: view.idle_sec,
        timeout_sec: view.timeout_sec,
        class: (view.class != FlowClass::NONE).then(|| view.class.number()),
        role: roles.of(worker, view.shard.0),
    }
}

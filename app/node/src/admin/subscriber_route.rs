//! `/subscriber/ADDRESS` shows or flushes what a home holds; `/subscribers` lists all homes.

use std::net::Ipv4Addr;
use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use hyper::body::Bytes;
use serde::Deserialize;
use tokio::sync::mpsc;
use weir_admin::api::{Block, ClaimedPrefix, Flushed, SubscriberLimits, SubscriberStatus};
use weir_admin::{HomeName, HomeNameError};
use weir_nat::{
    HomeLimits, ShardId, SubscriberCursor, SubscriberPart, SubscriberView, subscriber_views,
};
use weir_process::http::RefusedRequest;

use super::body::{json_lines, pieces, problem_line};
use crate::node::{Node, RoleNames, WorkerHandle};
use crate::request::{HomesPage, SubscriberPage, WorkerRequest};

/// Homes, blocks or prefixes in a page.
const PAGE: usize = 1024;
/// Most homes, blocks and prefixes of a worker in one answer.
const PARTS_MAX: usize = 1 << 20;

pub(super) async fn show(
    State(node): State<Arc<Node>>,
    address: Result<Path<String>, PathRejection>,
) -> Result<Json<Vec<SubscriberStatus>>, RefusedRequest> {
    let Path(address) = address?;
    let name = parse(&address)?;
    let (mut found, roles) = (Vec::new(), node.roles());
    for worker in &node.workers {
        let parts = parts(worker, name).await?;
        let views = subscriber_views(parts).into_iter();
        found.extend(views.map(|view| subscriber(worker.worker, view, &roles)));
    }
    if found.is_empty() {
        let error = match name {
            HomeName::Ipv4(_) => {
                format!("{name} holds nothing: no packet of it was translated lately")
            }
            HomeName::Ipv6(_) => {
                format!("{name} is of no home that holds flows, or of more than one home")
            }
        };
        return Err(RefusedRequest::new(StatusCode::NOT_FOUND, error));
    }
    Ok(Json(found))
}

/// Returns all pieces of a worker's answer, fetched page by page.
async fn parts(
    worker: &WorkerHandle,
    name: HomeName,
) -> Result<Vec<SubscriberPart>, RefusedRequest> {
    let name = name.into();
    let mut all = Vec::new();
    let mut page = SubscriberPage {
        cursor: SubscriberCursor::default(),
        parts: Vec::with_capacity(PAGE),
        has_more: true,
    };
    while page.has_more {
        let make = |reply| WorkerRequest::Subscriber { name, page, reply };
        page = worker.requester.ask(make).await?;
        all.append(&mut page.parts);
        if all.len() > PARTS_MAX {
            let error = format!("more than {PARTS_MAX} homes, blocks and prefixes have this name");
            return Err(RefusedRequest::new(StatusCode::SERVICE_UNAVAILABLE, error));
        }
    }
    Ok(all)
}

pub(super) async fn flush(
    State(node): State<Arc<Node>>,
    address: Result<Path<String>, PathRejection>,
) -> Result<Json<Flushed>, RefusedRequest> {
    let Path(address) = address?;
    let name = parse(&address)?.into();
    let mut mappings = 0;
    for worker in &node.workers {
        mappings += worker.requester.ask(|reply| WorkerRequest::Flush { name, reply }).await?;
    }
    Ok(Json(Flushed { mappings }))
}

fn parse(address: &str) -> Result<HomeName, RefusedRequest> {
    let refuse =
        |error: HomeNameError| RefusedRequest::new(StatusCode::BAD_REQUEST, error.to_string());
    address.parse().map_err(refuse)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HomesQuery {
    shard: Option<u32>,
}

/// Lists all homes, or those of a shard, as JSON lines.
pub(super) async fn list(
    State(node): State<Arc<Node>>,
    wanted: Result<Query<HomesQuery>, QueryRejection>,
) -> Result<Response, RefusedRequest> {
    let Query(HomesQuery { shard }) = wanted?;
    let (sender, body) = pieces();
    tokio::spawn(list_homes(node, shard.map(ShardId), sender));
    Ok(([(CONTENT_TYPE, "application/x-ndjson")], Body::new(body)).into_response())
}

async fn list_homes(node: Arc<Node>, shard: Option<ShardId>, sender: mpsc::Sender<Bytes>) {
    let roles = node.roles();
    for worker in &node.workers {
        let mut page = HomesPage { cursor: 0, homes: Vec::with_capacity(PAGE), has_more: true };
        while page.has_more {
            page.homes.clear();
            let make = |reply| WorkerRequest::Homes { page, shard, reply };
            page = match worker.requester.ask(make).await {
                Ok(page) => page,
                Err(error) => {
                    let _ = sender.send(problem_line(worker.worker, error)).await;
                    break;
                }
            };
            let homes = page.homes.drain(..);
            let homes = homes.map(|view| subscriber(worker.worker, view, &roles));
            if sender.send(json_lines(homes)).await.is_err() {
                return;
            }
        }
    }
}

fn subscriber(worker: usize, view: SubscriberView, roles: &RoleNames) -> SubscriberStatus {
    let blocks = view.blocks.iter().map(|block| Block {
        public_address: Ipv4Addr::from(block.public_address),
        port_first: block.port_first,
        port_last: block.port_last,
    });
    let claims =
        view.claims.iter().map(|claim| ClaimedPrefix { prefix: claim.prefix, flows: claim.flows });
    SubscriberStatus {
        worker,
        shard: view.shard.0,
        subscriber: view.home.into(),
        gre_key: view.home.gre_key(),
        public_address: view.public_address.map(Ipv4Addr::from),
        blocks: blocks.collect(),
        claims: claims.collect(),
        ports_used: view.ports_used,
        mappings: view.mappings,
        flows: view.flows,
        flows6: view.flows6,
        sessions: view.sessions,
        blocks_held: view.blocks_held,
        new_flows_left: view.new_flows_left,
        refused_total: view.refused_total,
        limits: limits(view.limits),
        role: roles.of(worker, view.shard.0),
    }
}

fn limits(limits: HomeLimits) -> SubscriberLimits {
    let bound = |limit: u32| (limit != u32::MAX).then_some(limit);
    SubscriberLimits {
        blocks: bound(limits.blocks),
        flows: bound(limits.flows),
        sessions: bound(limits.sessions),
        new_flows_per_sec: bound(limits.new_flows_per_sec),
    }
}

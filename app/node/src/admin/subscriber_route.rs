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
use weir_admin::api::{Block, Flushed, SubscriberLimits, SubscriberStatus};
use weir_nat::{
    HomeLimits, ShardId, SubscriberCursor, SubscriberPart, SubscriberView, subscriber_views,
};
use weir_process::http::RefusedRequest;

use super::body::{json_lines, pieces, problem_line};
use crate::node::{Node, RoleNames, WorkerHandle};
use crate::request::{HomesPage, SubscriberPage, WorkerRequest};

/// Homes or blocks in a page.
const PAGE: usize = 1024;
/// Most homes and blocks of a worker in one answer.
const PARTS_MAX: usize = 1 << 20;

pub(super) async fn show(
    State(node): State<Arc<Node>>,
    address: Result<Path<String>, PathRejection>,
) -> Result<Json<Vec<SubscriberStatus>>, RefusedRequest> {
    let Path(address) = address?;
    let outer = u32::from(parse(&address)?);
    let (mut found, roles) = (Vec::new(), node.roles());
    for worker in &node.workers {
        let parts = parts(worker, outer).await?;
        let views = subscriber_views(parts).into_iter();
        found.extend(views.map(|view| subscriber(worker.worker, view, &roles)));
    }
    if found.is_empty() {
        let error = format!("{address} holds nothing: no packet of it was translated lately");
        return Err(RefusedRequest::new(StatusCode::NOT_FOUND, error));
    }
    Ok(Json(found))
}

/// Returns all pieces of a worker's answer, fetched page by page.
async fn parts(worker: &WorkerHandle, outer: u32) -> Result<Vec<SubscriberPart>, RefusedRequest> {
    let mut all = Vec::new();
    let mut page = SubscriberPage {
        cursor: SubscriberCursor::default(),
        parts: Vec::with_capacity(PAGE),
        has_more: true,
    };
    while page.has_more {
        let make = |reply| WorkerRequest::Subscriber { outer, page, reply };
        page = worker.requester.ask(make).await?;
        all.append(&mut page.parts);
        if all.len() > PARTS_MAX {
            let error = format!("more than {PARTS_MAX} homes and blocks have this address");
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
    let outer = u32::from(parse(&address)?);
    let mut mappings = 0;
    for worker in &node.workers {
        mappings += worker.requester.ask(|reply| WorkerRequest::Flush { outer, reply }).await?;
    }
    Ok(Json(Flushed { mappings }))
}

fn parse(address: &str) -> Result<Ipv4Addr, RefusedRequest> {
    address.parse().map_err(|_| {
        RefusedRequest::new(StatusCode::BAD_REQUEST, format!("'{address}' is not an IPv4 address"))
    })
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
    SubscriberStatus {
        worker,
        shard: view.shard.0,
        subscriber: Ipv4Addr::from(view.outer),
        gre_key: view.gre_key,
        public_address: view.public_address.map(Ipv4Addr::from),
        blocks: blocks.collect(),
        ports_used: view.ports_used,
        mappings: view.mappings,
        flows: view.flows,
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

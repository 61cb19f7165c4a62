//! `/subscriber/ADDRESS`: what a home holds, and ending all of it.

use std::net::Ipv4Addr;
use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use weir_nat::{SubscriberCursor, SubscriberPart, SubscriberView, subscriber_views};

use super::problem::Refused;
use crate::api::{Block, Flushed, SubscriberStatus};
use crate::node::{Node, WorkerHandle};
use crate::request::{Request, SubscriberPage};

/// Room of a page, in homes and blocks.
const PAGE: usize = 1024;
/// Homes and blocks of a worker in one answer.
const PARTS_MAX: usize = 1 << 20;

pub(super) async fn show(
    State(node): State<Arc<Node>>,
    address: Result<Path<String>, PathRejection>,
) -> Result<Json<Vec<SubscriberStatus>>, Refused> {
    let Path(address) = address?;
    let outer = u32::from(parse(&address)?);
    let mut found = Vec::new();
    for worker in &node.workers {
        let parts = parts(worker, outer).await?;
        let views = subscriber_views(parts).into_iter();
        found.extend(views.map(|view| subscriber(worker.worker, view)));
    }
    if found.is_empty() {
        let error = format!("{address} holds nothing: no packet of it was translated lately");
        return Err(Refused::new(StatusCode::NOT_FOUND, error));
    }
    Ok(Json(found))
}

/// All pieces of a worker's answer, page by page.
async fn parts(worker: &WorkerHandle, outer: u32) -> Result<Vec<SubscriberPart>, Refused> {
    let mut all = Vec::new();
    let mut page = SubscriberPage {
        cursor: SubscriberCursor::default(),
        parts: Vec::with_capacity(PAGE),
        has_more: true,
    };
    while page.has_more {
        let make = |reply| Request::Subscriber { outer, page, reply };
        page = worker.requester.ask(make).await?;
        all.append(&mut page.parts);
        if all.len() > PARTS_MAX {
            let error = format!("more than {PARTS_MAX} homes and blocks have this address");
            return Err(Refused::new(StatusCode::SERVICE_UNAVAILABLE, error));
        }
    }
    Ok(all)
}

pub(super) async fn flush(
    State(node): State<Arc<Node>>,
    address: Result<Path<String>, PathRejection>,
) -> Result<Json<Flushed>, Refused> {
    let Path(address) = address?;
    let outer = u32::from(parse(&address)?);
    let mut mappings = 0;
    for worker in &node.workers {
        mappings += worker.requester.ask(|reply| Request::Flush { outer, reply }).await?;
    }
    Ok(Json(Flushed { mappings }))
}

fn parse(address: &str) -> Result<Ipv4Addr, Refused> {
    address.parse().map_err(|_| {
        Refused::new(StatusCode::BAD_REQUEST, format!("'{address}' is not an IPv4 address"))
    })
}

fn subscriber(worker: usize, view: SubscriberView) -> SubscriberStatus {
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
    }
}

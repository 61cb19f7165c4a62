//! `GET /capture`: a pcapng file that grows until the reader disconnects.

use std::fmt::Display;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use hyper::body::Bytes;
use serde::Deserialize;
use tokio::sync::{mpsc, oneshot};
use weir_engine::Side;
use weir_process::http::RefusedRequest;

use super::body::pieces;
use crate::capture::{CaptureOptions, CaptureReader, CaptureRecorder, capture_point};
use crate::node::{Node, WorkerHandle};
use crate::request::WorkerRequest;

/// Time between two polls of the workers' rings.
const POLL: Duration = Duration::from_millis(5);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CaptureQuery {
    worker: Option<usize>,
    side: Option<String>,
    #[serde(default)]
    inner: bool,
    filter: Option<String>,
    count: Option<u64>,
}

pub(super) async fn capture(
    State(node): State<Arc<Node>>,
    wanted: Result<Query<CaptureQuery>, QueryRejection>,
) -> Result<Response, RefusedRequest> {
    let Query(wanted) = wanted?;
    let options = options(wanted)?;
    let workers: Vec<&WorkerHandle> = node
        .workers
        .iter()
        .filter(|worker| options.worker.is_none_or(|number| number == worker.worker))
        .collect();
    if workers.is_empty() {
        return Err(RefusedRequest::new(StatusCode::NOT_FOUND, "no such worker"));
    }
    let (points, readers): (Vec<_>, Vec<_>) = workers
        .iter()
        .map(|worker| {
            let (point, reader) = capture_point(options.side, node.frame_max);
            (point, (worker.worker, reader))
        })
        .unzip();
    // Compile the filter before any worker copies frames, so that a wrong filter costs nothing.
    let recorder = recorder(&node, &options, readers).await?;
    for (worker, point) in workers.iter().zip(points) {
        let make = |reply| WorkerRequest::Capture { point: Box::new(point), reply };
        if !worker.requester.ask(make).await? {
            let error = format!("worker {} is already being captured", worker.worker);
            return Err(RefusedRequest::new(StatusCode::CONFLICT, error));
        }
    }
    let filter = options.filter.as_deref().unwrap_or("");
    tracing::info!(event = "capture-started", workers = workers.len(), filter, "capture started");
    let (sender, body) = pieces();
    tokio::spawn(record(recorder, sender));
    Ok(([(CONTENT_TYPE, "application/x-pcapng")], Body::new(body)).into_response())
}

/// Builds the recorder on a thread of its own, because libpcap asks DNS for the names in a filter.
/// The calling thread watches over the workers and must not block, and the end of the process does
/// not wait for a detached thread.
async fn recorder(
    node: &Node,
    options: &CaptureOptions,
    readers: Vec<(usize, CaptureReader)>,
) -> Result<CaptureRecorder, RefusedRequest> {
    let (name, options, clock) = (node.name.clone(), options.clone(), node.clock);
    let (reply, made) = oneshot::channel();
    let make = move || {
        // The requester may have disconnected meanwhile.
        let _ = reply.send(CaptureRecorder::new(&name, &options, readers, clock));
    };
    let failed = |error: &dyn Display| {
        RefusedRequest::new(
            StatusCode::SERVICE_UNAVAILABLE,
            format!("the filter cannot be read: {error}"),
        )
    };
    thread::Builder::new().name("filter".into()).spawn(make).map_err(|error| failed(&error))?;
    let made = made.await.map_err(|error| failed(&error))?;
    made.map_err(|error| RefusedRequest::new(StatusCode::BAD_REQUEST, error.to_string()))
}

fn options(wanted: CaptureQuery) -> Result<CaptureOptions, RefusedRequest> {
    let side = match wanted.side.as_deref() {
        None => None,
        Some("access") => Some(Side::Access),
        Some("internet") => Some(Side::Internet),
        Some(_) => {
            let error = "side is neither 'access' nor 'internet'";
            return Err(RefusedRequest::new(StatusCode::BAD_REQUEST, error));
        }
    };
    let CaptureQuery { worker, inner, filter, count, .. } = wanted;
    Ok(CaptureOptions { worker, side, inner, filter, count })
}

/// Sends the file until enough packets are recorded or the reader disconnects. Dropping the
/// recorder makes the workers stop copying.
async fn record(mut recorder: CaptureRecorder, sender: mpsc::Sender<Bytes>) {
    while let Ok(bytes) = recorder.poll() {
        let is_idle = bytes.is_empty();
        if !is_idle && sender.send(bytes.into()).await.is_err() {
            break;
        }
        if recorder.is_done() {
            break;
        }
        if is_idle {
            tokio::select! {
                () = sender.closed() => break,
                () = tokio::time::sleep(POLL) => {}
            }
        }
    }
    tracing::info!(event = "capture-stopped", lost = recorder.lost(), "capture stopped");
}

//! `GET /capture`: a pcapng file as long as the reader stays.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use hyper::body::Bytes;
use serde::Deserialize;
use tokio::sync::mpsc;
use weir_engine::Side;

use super::body::pieces;
use super::problem::Refused;
use crate::capture::{Options, Recorder, tap};
use crate::node::{Node, WorkerHandle};
use crate::request::Request;

/// Between two looks at the workers' rings.
const POLL: Duration = Duration::from_millis(5);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    worker: Option<usize>,
    side: Option<String>,
    #[serde(default)]
    inner: bool,
    filter: Option<String>,
    count: Option<u64>,
}

pub(super) async fn capture(
    State(node): State<Arc<Node>>,
    Query(wanted): Query<Wanted>,
) -> Result<Response, Refused> {
    let options = options(wanted)?;
    let workers: Vec<&WorkerHandle> = node
        .workers
        .iter()
        .filter(|worker| options.worker.is_none_or(|number| number == worker.worker))
        .collect();
    if workers.is_empty() {
        return Err(Refused::new(StatusCode::NOT_FOUND, "no such worker"));
    }
    let (taps, readers): (Vec<_>, Vec<_>) = workers
        .iter()
        .map(|worker| {
            let (tap, reader) = tap(options.side, node.frame_max);
            (tap, (worker.worker, reader))
        })
        .unzip();
    // Before any worker copies anything, so that a wrong filter costs nothing.
    let recorder = Recorder::new(&node.name, &options, readers, node.clock)
        .map_err(|error| Refused::new(StatusCode::BAD_REQUEST, error.to_string()))?;
    for (worker, tap) in workers.iter().zip(taps) {
        let make = |reply| Request::Capture { tap: Box::new(tap), reply };
        if !worker.requester.ask(make).await? {
            let error = format!("worker {} is already being captured", worker.worker);
            return Err(Refused::new(StatusCode::CONFLICT, error));
        }
    }
    let filter = options.filter.as_deref().unwrap_or("");
    tracing::info!(event = "capture-started", workers = workers.len(), filter, "capture started");
    let (sender, body) = pieces();
    tokio::spawn(record(recorder, sender));
    Ok(([(CONTENT_TYPE, "application/x-pcapng")], Body::new(body)).into_response())
}

fn options(wanted: Wanted) -> Result<Options, Refused> {
    let side = match wanted.side.as_deref() {
        None => None,
        Some("access") => Some(Side::Access),
        Some("internet") => Some(Side::Internet),
        Some(_) => {
            let error = "side is neither 'access' nor 'internet'";
            return Err(Refused::new(StatusCode::BAD_REQUEST, error));
        }
    };
    let Wanted { worker, inner, filter, count, .. } = wanted;
    Ok(Options { worker, side, inner, filter, count })
}

/// Until enough is recorded or the reader goes away. Dropping the recorder ends the workers' copying.
async fn record(mut recorder: Recorder, sender: mpsc::Sender<Bytes>) {
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

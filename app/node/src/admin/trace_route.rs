//! `GET /trace`: the way of chosen packets, one JSON line for each, until there are enough of them,
//! the time is over, or the reader disconnects.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use hyper::body::Bytes;
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio::time::Instant;
use weir_engine::{Side, TraceFilter};
use weir_nat::Protocol;
use weir_process::http::RefusedRequest;

use super::body::{json_lines, pieces};
use super::sessions_route::{family_range, home, known};
use crate::node::{Node, WorkerHandle};
use crate::request::WorkerRequest;
use crate::trace::{TraceReader, trace_point, traced_packet};

/// Time between two looks at the workers' rings.
const POLL: Duration = Duration::from_millis(20);
/// Time without a packet after which an empty line says that the trace goes on.
const HEARTBEAT: Duration = Duration::from_secs(1);
const COUNT: u64 = 10;
const SECONDS: u64 = 60;
const SECONDS_MAX: u64 = 86_400;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TraceQuery {
    worker: Option<usize>,
    side: Option<String>,
    subscriber: Option<String>,
    protocol: Option<String>,
    remote: Option<String>,
    count: Option<u64>,
    seconds: Option<u64>,
}

pub(super) async fn trace(
    State(node): State<Arc<Node>>,
    wanted: Result<Query<TraceQuery>, QueryRejection>,
) -> Result<Response, RefusedRequest> {
    let Query(wanted) = wanted?;
    let filter = filter(&wanted)?;
    let count = wanted.count.unwrap_or(COUNT);
    let is_wanted = |worker: &&WorkerHandle| wanted.worker.is_none_or(|it| it == worker.worker);
    let workers: Vec<&WorkerHandle> = node.workers.iter().filter(is_wanted).collect();
    if workers.is_empty() {
        return Err(RefusedRequest::new(StatusCode::NOT_FOUND, "no such worker"));
    }
    let mut readers = Vec::new();
    for worker in workers {
        let (point, reader) = trace_point(filter, count);
        let make = |reply| WorkerRequest::Trace { point: Box::new(point), reply };
        if !worker.requester.ask(make).await? {
            let error = format!("worker {} is already being traced", worker.worker);
            return Err(RefusedRequest::new(StatusCode::CONFLICT, error));
        }
        readers.push((worker.worker, reader));
    }
    let seconds = wanted.seconds.unwrap_or(SECONDS).min(SECONDS_MAX);
    tracing::info!(event = "trace-started", workers = readers.len(), count, "trace started");
    let (sender, body) = pieces();
    tokio::spawn(record(readers, count, Duration::from_secs(seconds), sender));
    Ok(([(CONTENT_TYPE, "application/x-ndjson")], Body::new(body)).into_response())
}

fn filter(wanted: &TraceQuery) -> Result<TraceFilter, RefusedRequest> {
    Ok(TraceFilter {
        side: known("side", &wanted.side, Side::ALL.map(|side| (side.name(), side)))?,
        subscriber: home("subscriber", &wanted.subscriber)?.map(Into::into),
        protocol: known("protocol", &wanted.protocol, Protocol::ALL.map(|it| (it.name(), it)))?,
        remote: family_range("remote", &wanted.remote)?,
    })
}

/// Sends packets as they come. Dropping the readers ends the trace in the workers.
async fn record(
    mut readers: Vec<(usize, TraceReader)>,
    mut left: u64,
    time: Duration,
    sender: mpsc::Sender<Bytes>,
) {
    let end = Instant::now() + time;
    let mut said = Instant::now();
    while left > 0 && Instant::now() < end {
        let is_over = readers.iter().all(|(_, reader)| reader.is_closed());
        let mut packets = Vec::new();
        for (worker, reader) in &mut readers {
            while let Some(trace) = (packets.len() as u64 != left).then(|| reader.next()).flatten()
            {
                packets.push(traced_packet(*worker, &trace));
            }
        }
        left -= packets.len() as u64;
        if !packets.is_empty() || said.elapsed() >= HEARTBEAT {
            said = Instant::now();
            if sender.send(json_lines(packets.into_iter())).await.is_err() {
                break;
            }
            continue;
        }
        if is_over {
            break;
        }
        tokio::select! {
            () = sender.closed() => break,
            () = tokio::time::sleep(POLL) => {}
        }
    }
    tracing::info!(event = "trace-stopped", left, "trace stopped");
}

#[cfg(test)]
mod tests {
    use weir_nat::{Endpoint6, EndpointRange6, FamilyRange, HomeSelector};

    use super::*;

    fn of_subscriber(text: &str) -> Option<HomeSelector> {
        let subscriber = Some(text.to_owned());
        filter(&TraceQuery { subscriber, ..TraceQuery::default() }).ok()?.subscriber
    }

    fn of_remote(text: &str) -> Option<FamilyRange> {
        let remote = Some(text.to_owned());
        filter(&TraceQuery { remote, ..TraceQuery::default() }).ok()?.remote
    }

    #[test]
    fn filter_of_a_trace_names_homes_and_remotes_of_both_families() {
        assert_eq!(of_subscriber("10.200.1.5"), Some(HomeSelector::Ipv4(0x0ac8_0105)));
        let named = |net: &str| Some(HomeSelector::Ipv6(net.parse().unwrap()));
        assert_eq!(of_subscriber("2001:db8:e::5"), named("2001:db8:e::5/128"));
        assert_eq!(of_subscriber("2001:db8:1000:1ff::/56"), named("2001:db8:1000:100::/56"));
        let address = 0x2001_0db8_0009_0000_0000_0000_0000_0001;
        let endpoint: FamilyRange = Endpoint6::new(address, 443).into();
        assert_eq!(of_remote("[2001:db8:9::1]:443"), Some(endpoint));
        let range = |mask| EndpointRange6 { network: address & mask, mask, port: None };
        assert_eq!(of_remote("2001:db8:9::1"), Some(range(u128::MAX).into()));
        assert_eq!(of_remote("2001:db8:9::/48"), Some(range(u128::MAX << 80).into()));
        assert!(matches!(of_remote("198.51.100.53:53"), Some(FamilyRange::Ipv4(_))));
        let refused = |wanted: TraceQuery| filter(&wanted).is_err();
        let wrong = Some("2001:db8::/129".to_owned());
        assert!(refused(TraceQuery { remote: wrong.clone(), ..TraceQuery::default() }));
        assert!(refused(TraceQuery { subscriber: wrong, ..TraceQuery::default() }));
    }
}

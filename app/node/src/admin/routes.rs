//! The routes of the admin API and its server.

use std::io;
use std::os::unix::net::UnixListener;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{Method, StatusCode, Uri};
use axum::routing::{get, post};
use axum::{Json, Router, middleware};
use weir_admin::api::{DropCount, MemberStatus, RunningSettings, ShardStatus, Status};
use weir_process::http::{ListenerLimits, RefusedRequest, Server};

use super::peer::guard;
use super::{
    capture_route, metrics_server, reload_route, rules_route, sessions_route, subscriber_route,
    trace_route,
};
use crate::node::Node;

/// Serves until the task is dropped.
///
/// # Errors
/// When the runtime cannot take the socket.
pub(crate) async fn serve(listener: UnixListener, node: Arc<Node>) -> io::Result<()> {
    let listener = tokio::net::UnixListener::from_std(listener)?;
    match server(&node, ListenerLimits::ADMIN).serve_unix(listener).await {}
}

/// Returns the server of the admin API, for connections over any transport.
pub(super) fn server(node: &Arc<Node>, limits: ListenerLimits) -> Arc<Server> {
    let numbers = Arc::clone(&node.http);
    Server::new(router(Arc::clone(node)), limits, numbers, |numbers| &numbers.admin)
}

fn router(node: Arc<Node>) -> Router {
    Router::new()
        .route("/status", get(status))
        .route("/shards", get(shards))
        .route("/member", get(member))
        .route("/drops", get(drops))
        .route("/sessions", get(sessions_route::sessions))
        .route("/subscribers", get(subscriber_route::list))
        .route("/subscriber/{address}", get(subscriber_route::show))
        .route("/subscriber/{address}/flush", post(subscriber_route::flush))
        .route("/reload", get(reload_route::compare).post(reload_route::reload))
        .route("/rules", get(rules_route::hits))
        .route("/settings", get(settings))
        .route("/capture", get(capture_route::capture))
        .route("/trace", get(trace_route::trace))
        .merge(metrics_server::router())
        .fallback(unknown)
        .method_not_allowed_fallback(not_allowed)
        .layer(middleware::from_fn(guard))
        .with_state(node)
}

async fn status(State(node): State<Arc<Node>>) -> Json<Status> {
    Json(node.status())
}

async fn shards(State(node): State<Arc<Node>>) -> Json<Vec<ShardStatus>> {
    Json(node.shards())
}

async fn member(State(node): State<Arc<Node>>) -> Result<Json<MemberStatus>, RefusedRequest> {
    let alone = || RefusedRequest::new(StatusCode::NOT_FOUND, "this node is in no cluster");
    let member = node.member.get().ok_or_else(alone)?;
    Ok(Json(MemberStatus::clone(&member.status())))
}

async fn drops(State(node): State<Arc<Node>>) -> Json<Vec<DropCount>> {
    Json(node.drops())
}

async fn settings(State(node): State<Arc<Node>>) -> Result<Json<RunningSettings>, RefusedRequest> {
    let (generation, source) = node.generations.source();
    let starting = || RefusedRequest::new(StatusCode::NOT_FOUND, "the node has no settings yet");
    let source = source.ok_or_else(starting)?.as_ref().clone();
    Ok(Json(RunningSettings { generation, source }))
}

async fn not_allowed(method: Method, uri: Uri) -> RefusedRequest {
    let error = format!("{method} is nothing that {} answers", uri.path());
    RefusedRequest::new(StatusCode::METHOD_NOT_ALLOWED, error)
}

async fn unknown(uri: Uri) -> RefusedRequest {
    RefusedRequest::new(StatusCode::NOT_FOUND, format!("no such path: {}", uri.path()))
}

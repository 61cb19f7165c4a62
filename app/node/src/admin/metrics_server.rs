//! `/metrics` on its own TCP address, for Prometheus, and `/report`, for the controller of a
//! cluster. Nothing else is served there.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Json, Router};
use weir_controller::records::NodeAnswer;
use weir_process::http::{ListenerLimits, RefusedRequest, Server, in_format, listen};

use crate::metrics;
use crate::node::Node;

/// A bound address.
#[derive(Debug)]
pub(crate) struct MetricsServer(TcpListener);

impl MetricsServer {
    /// # Errors
    /// When the address is in use or does not belong to this machine.
    pub(crate) fn bind(address: SocketAddr) -> io::Result<Self> {
        Ok(Self(TcpListener::bind(address)?))
    }

    /// A second handle of the listening socket.
    ///
    /// # Errors
    /// When the process has no file descriptor left.
    pub(crate) fn listener(&self) -> io::Result<TcpListener> {
        self.0.try_clone()
    }

    /// Serves until the task is dropped.
    ///
    /// # Errors
    /// When the runtime cannot take the socket.
    pub(crate) async fn serve(self, node: Arc<Node>) -> io::Result<()> {
        let listener = listen(self.0)?;
        match server(node, ListenerLimits::METRICS).serve_tcp(listener).await {}
    }
}

/// Returns the server of the metrics address.
pub(super) fn server(node: Arc<Node>, limits: ListenerLimits) -> Arc<Server> {
    let numbers = Arc::clone(&node.http);
    Server::new(router().with_state(node), limits, numbers, |numbers| &numbers.metrics)
}

/// Returns the routes of the metrics address, which are also part of the admin API.
pub(super) fn router() -> Router<Arc<Node>> {
    Router::new().route("/metrics", get(numbers)).route("/report", get(report))
}

async fn report(State(node): State<Arc<Node>>) -> Result<Json<NodeAnswer>, RefusedRequest> {
    let alone = || RefusedRequest::new(StatusCode::NOT_FOUND, "this node is in no cluster");
    Ok(Json(node.answer().ok_or_else(alone)?))
}

async fn numbers(State(node): State<Arc<Node>>, headers: HeaderMap) -> impl IntoResponse {
    in_format(&headers, metrics::text(&node))
}

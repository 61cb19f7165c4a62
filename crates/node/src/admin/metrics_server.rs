//! `/metrics` on its own TCP address, for Prometheus, and `/report`, for the controller of a cluster. Nothing else is
//! served there.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Json, Router};
use weir_controller::records::NodeAnswer;

use super::problem::Refused;
use crate::metrics;
use crate::node::Node;

/// A bound address.
#[derive(Debug)]
pub(crate) struct MetricsServer(TcpListener);

impl MetricsServer {
    /// # Errors
    /// When the address is in use or not of this machine.
    pub(crate) fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Self(listener))
    }

    /// Serves until the task is dropped.
    ///
    /// # Errors
    /// When the runtime cannot take the socket.
    pub(crate) async fn serve(self, node: Arc<Node>) -> io::Result<()> {
        let listener = tokio::net::TcpListener::from_std(self.0)?;
        axum::serve(listener, router().with_state(node)).await
    }
}

/// The routes, also part of the admin API.
pub(super) fn router() -> Router<Arc<Node>> {
    Router::new().route("/metrics", get(numbers)).route("/report", get(report))
}

async fn report(State(node): State<Arc<Node>>) -> Result<Json<NodeAnswer>, Refused> {
    let alone = || Refused::new(StatusCode::NOT_FOUND, "this node is in no cluster");
    Ok(Json(node.answer().ok_or_else(alone)?))
}

async fn numbers(State(node): State<Arc<Node>>) -> impl IntoResponse {
    ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], metrics::text(&node))
}

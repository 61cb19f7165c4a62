//! `/metrics` alone, for a process that is not a node.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::runtime::Builder;

use super::limits::ListenerLimits;
use super::listen::{in_format, listen};
use super::problem::RefusedRequest;
use super::server::Server;

/// Returns the present metrics as OpenMetrics text.
type MetricsText = Arc<dyn Fn() -> String + Send + Sync>;

/// Serves a bound address from a thread that runs until the process ends.
///
/// # Errors
/// When the system gives no thread, or the runtime cannot take the listener.
pub(crate) fn serve_text(listener: TcpListener, text: MetricsText) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let listener = {
        let _context = runtime.enter();
        listen(listener)?
    };
    let routes = Router::new().route("/metrics", get(numbers)).fallback(unknown).with_state(text);
    let server =
        Server::new(routes, ListenerLimits::METRICS, Arc::default(), |numbers| &numbers.metrics);
    let serve = move || match runtime.block_on(server.serve_tcp(listener)) {};
    std::thread::Builder::new().name("weir-metrics".into()).spawn(serve)?;
    Ok(())
}

async fn numbers(State(text): State<MetricsText>, headers: HeaderMap) -> impl IntoResponse {
    in_format(&headers, text())
}

async fn unknown(uri: Uri) -> RefusedRequest {
    RefusedRequest::new(StatusCode::NOT_FOUND, format!("no such path: {}", uri.path()))
}

//! Serves the admin socket and the metrics address while the node starts: they report what it waits
//! for, and nothing else.

use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::thread::JoinHandle;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Json, Router};
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use weir_admin::api::Status;
use weir_process::http::{HttpNumbers, ListenerLimits, RefusedRequest, Server, in_format, listen};

use crate::metrics;
use crate::start_progress::StartProgress;

/// A thread that serves both listeners until it is dropped.
#[derive(Debug)]
pub(crate) struct StartServer {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl StartServer {
    /// Starts the thread. It runs `on_start` first, to stay off the cores of workers.
    ///
    /// # Errors
    /// When the system gives no thread, or the runtime cannot take a listener.
    pub(crate) fn begin(
        progress: StartProgress,
        numbers: &Arc<HttpNumbers>,
        admin: UnixListener,
        metrics: Option<TcpListener>,
        on_start: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (admin, metrics) = {
            let _context = runtime.enter();
            (tokio::net::UnixListener::from_std(admin)?, metrics.map(listen).transpose()?)
        };
        let of_metrics = Router::new().route("/metrics", get(numbers_of_start));
        let of_admin = of_metrics.clone().route("/status", get(status));
        let routes = |routes: Router<StartProgress>| {
            let routes = routes.fallback(refused).method_not_allowed_fallback(refused);
            routes.with_state(progress.clone())
        };
        let (of_admin, of_metrics) = (routes(of_admin), routes(of_metrics));
        let of_admin =
            Server::new(of_admin, ListenerLimits::ADMIN, Arc::clone(numbers), |numbers| {
                &numbers.admin
            });
        let of_metrics =
            Server::new(of_metrics, ListenerLimits::METRICS, Arc::clone(numbers), |numbers| {
                &numbers.metrics
            });
        let (stop, stopped) = oneshot::channel();
        let serve = move || {
            on_start();
            runtime.block_on(async move {
                if let Some(metrics) = metrics {
                    tokio::spawn(of_metrics.serve_tcp(metrics));
                }
                tokio::spawn(of_admin.serve_unix(admin));
                // Returns when the `StartServer` is dropped.
                let _ = stopped.await;
            });
        };
        let thread = std::thread::Builder::new().name("weir-start".into()).spawn(serve)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for StartServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been logged.
            let _ = thread.join();
        }
    }
}

async fn status(State(progress): State<StartProgress>) -> Json<Status> {
    Json(progress.status())
}

async fn numbers_of_start(
    State(progress): State<StartProgress>,
    headers: HeaderMap,
) -> impl IntoResponse {
    in_format(&headers, metrics::text_of_start(&progress))
}

async fn refused(State(progress): State<StartProgress>) -> RefusedRequest {
    RefusedRequest::new(StatusCode::SERVICE_UNAVAILABLE, progress.problem())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpStream};
    use std::time::{Duration, Instant};

    use weir_admin::api::ShardStatus;
    use weir_admin::client::{Client, ClientError};
    use weir_node_core::first_look::{Awaited, Wait};

    use super::*;
    use crate::admin::AdminSocket;

    #[test]
    fn a_node_that_waits_for_etcd_answers_on_both_listeners() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("n1.sock");
        let socket = AdminSocket::claim(&path, None).unwrap();
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = tcp.local_addr().unwrap();
        let progress = StartProgress::begin("n1");
        let numbers = Arc::<HttpNumbers>::default();
        let second = tcp.try_clone().unwrap();
        let server = StartServer::begin(
            progress.clone(),
            &numbers,
            socket.listener().unwrap(),
            Some(second),
            || (),
        )
        .unwrap();
        let wait = Wait {
            awaited: Awaited::Etcd,
            since: Duration::ZERO,
            why: "connection refused".into(),
        };
        progress.waits(&wait, Instant::now());

        let client = Client::new(path.clone());
        let status: Status = client.get("/status").unwrap();
        assert_eq!(status.waiting.unwrap().awaited, "etcd");
        assert!(status.reasons[0].ends_with(": connection refused"), "{:?}", status.reasons);
        let text = client.get_text("/metrics").unwrap();
        assert!(text.contains("weir_waiting_seconds{for=\"etcd\"} "), "{text}");
        assert!(text.contains("weir_waiting_seconds{for=\"cluster-file\"} 0.0\n"), "{text}");
        let refused = [
            client.get::<Vec<ShardStatus>>("/shards").unwrap_err(),
            client.post::<()>("/status").unwrap_err(),
        ];
        for error in refused {
            assert!(matches!(error, ClientError::Refused { code: 503, .. }), "{error:?}");
            assert!(error.to_string().starts_with("the node has waited for etcd for "), "{error}");
        }

        let get = |path: &str| {
            let mut stream = TcpStream::connect(address).unwrap();
            write!(stream, "GET {path} HTTP/1.1\r\nHost: weir\r\nConnection: close\r\n\r\n")
                .unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        };
        assert!(get("/metrics").contains("weir_waiting_seconds{for=\"etcd\"} "));
        for path in ["/status", "/report"] {
            assert!(get(path).starts_with("HTTP/1.1 503 "), "{path}");
        }

        // The sockets stay open: the next server accepts what arrives meanwhile.
        drop(server);
        let (node, _mailbox) = crate::sample_node::sample_node();
        let listener = socket.listener().unwrap();
        std::thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(crate::admin::serve(listener, node))
        });
        let status: Status = client.get("/status").unwrap();
        assert_eq!(status.waiting, None);
    }
}

//! The rights of the peer at the other end of the socket.

use axum::extract::Request;
use axum::extract::connect_info::ConnectInfo;
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use weir_process::http::{PeerUser, RefusedRequest};

/// Marks the answer to a request that has changed nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unchanged;

/// Whether a request may change something. The safe methods of RFC 9110 section 9.2.1 do not.
fn changes(method: &Method) -> bool {
    !method.is_safe()
}

/// True if `peer` may send a request with this method: reading is for every user that the socket
/// file admits, changing state for root.
fn may(peer: PeerUser, method: &Method) -> bool {
    method == Method::GET || method == Method::HEAD || peer.uid == Some(0)
}

/// Refuses what the peer may not do, and logs the changes it makes.
pub(super) async fn guard(
    ConnectInfo(peer): ConnectInfo<PeerUser>,
    request: Request,
    next: Next,
) -> Response {
    if !may(peer, request.method()) {
        return RefusedRequest::new(StatusCode::FORBIDDEN, "only root may change state")
            .into_response();
    }
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let response = next.run(request).await;
    let has_changed = response.extensions().get::<Unchanged>().is_none();
    if changes(&method) && response.status().is_success() && has_changed {
        tracing::info!(event = "admin-change", %method, path, "state changed");
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_root_changes_state() {
        let root = PeerUser { uid: Some(0) };
        let operator = PeerUser { uid: Some(1000) };
        let unknown = PeerUser { uid: None };
        for peer in [root, operator, unknown] {
            assert!(may(peer, &Method::GET));
            assert!(may(peer, &Method::HEAD));
        }
        for method in [Method::POST, Method::DELETE, Method::PUT, Method::PATCH] {
            assert!(may(root, &method));
            assert!(!may(operator, &method));
            assert!(!may(unknown, &method));
        }
    }
}

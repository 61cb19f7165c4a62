//! `/reload` takes the settings of the node's file again, or says what that would do.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::Deserialize;
use weir_admin::api::{Reload, ReloadOutcome};
use weir_process::http::RefusedRequest;

use super::peer::Unchanged;
use crate::generations::reload::ReloadWish;
use crate::node::Node;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReloadQuery {
    #[serde(default)]
    force: bool,
}

pub(super) async fn compare(
    State(node): State<Arc<Node>>,
    wanted: Result<Query<ReloadQuery>, QueryRejection>,
) -> Result<Json<Reload>, RefusedRequest> {
    let Query(ReloadQuery { force }) = wanted?;
    answer(node, ReloadWish { is_dry_run: true, may_strand: force }).await.map(Json)
}

pub(super) async fn reload(
    State(node): State<Arc<Node>>,
    wanted: Result<Query<ReloadQuery>, QueryRejection>,
) -> Result<Response, RefusedRequest> {
    let Query(ReloadQuery { force }) = wanted?;
    let reload = answer(node, ReloadWish { is_dry_run: false, may_strand: force }).await?;
    Ok(match reload.outcome {
        ReloadOutcome::Applied => Json(reload).into_response(),
        _ => (Extension(Unchanged), Json(reload)).into_response(),
    })
}

async fn answer(node: Arc<Node>, wish: ReloadWish) -> Result<Reload, RefusedRequest> {
    // A task of its own: a requester that goes away does not leave a reload half done.
    let done = tokio::spawn(async move { node.generations.reload(&node.workers, wish).await });
    let of_cluster = "this node is in a cluster: `weir apply` changes its settings, and its own file is read when it \
                      starts";
    let refused = |error: &str| RefusedRequest::new(StatusCode::CONFLICT, error.to_owned());
    match done.await {
        Ok(reload) => reload.ok_or_else(|| refused(of_cluster)),
        Err(error) => Err(RefusedRequest::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("the reload did not end: {error}"),
        )),
    }
}

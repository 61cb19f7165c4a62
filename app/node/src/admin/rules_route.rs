//! `GET /rules`: what each rule has decided, in the order of the rules.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use weir_admin::api::RuleCount;
use weir_process::http::RefusedRequest;

use crate::counted_rules::{CountError, count};
use crate::node::Node;

pub(super) async fn hits(
    State(node): State<Arc<Node>>,
) -> Result<Json<Vec<RuleCount>>, RefusedRequest> {
    let counts = count(&node).await.map_err(|error| match error {
        CountError::Worker(error) => error.into(),
        CountError::Changing => RefusedRequest::new(StatusCode::CONFLICT, error.to_string()),
    })?;
    Ok(Json(counts))
}

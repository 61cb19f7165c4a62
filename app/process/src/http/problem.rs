//! A refused request: a status code and one sentence as JSON.

use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use weir_admin::api::Problem;

/// The error that a handler returns instead of an answer.
#[derive(Debug)]
pub struct RefusedRequest {
    code: StatusCode,
    error: String,
}

impl RefusedRequest {
    pub fn new(code: StatusCode, error: impl Into<String>) -> Self {
        Self { code, error: error.into() }
    }
}

impl IntoResponse for RefusedRequest {
    fn into_response(self) -> Response {
        (self.code, Json(Problem { error: self.error })).into_response()
    }
}

/// Keeps axum's text, which names the parameter.
impl From<QueryRejection> for RefusedRequest {
    fn from(rejection: QueryRejection) -> Self {
        Self::new(StatusCode::BAD_REQUEST, rejection.body_text())
    }
}

impl From<PathRejection> for RefusedRequest {
    fn from(rejection: PathRejection) -> Self {
        Self::new(StatusCode::BAD_REQUEST, rejection.body_text())
    }
}

//! A worker that does not answer, as the refusal of the request that asked it.

use axum::http::StatusCode;
use weir_process::http::RefusedRequest;

use crate::request::AskError;

impl From<AskError> for RefusedRequest {
    fn from(error: AskError) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
    }
}

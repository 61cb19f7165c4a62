//! The state that the roles thread publishes: replaced a few times a second, read by any thread.

use std::sync::{Arc, Mutex, PoisonError};

use weir_controller::records::NodeAnswer;

use weir_admin::api::MemberStatus;

/// The newest status, and the newest answer to the controller.
#[derive(Debug, Default)]
pub(crate) struct MemberSnapshot(Mutex<Shown>);

#[derive(Debug, Default)]
struct Shown {
    status: Arc<MemberStatus>,
    answer: Arc<NodeAnswer>,
}

impl MemberSnapshot {
    pub(crate) fn status(&self) -> Arc<MemberStatus> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner).status)
    }

    /// Returns the answer for a controller that asks.
    pub(crate) fn answer(&self) -> Arc<NodeAnswer> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner).answer)
    }

    pub(crate) fn show(&self, status: MemberStatus, answer: NodeAnswer) {
        let shown = Shown { status: Arc::new(status), answer: Arc::new(answer) };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = shown;
    }
}

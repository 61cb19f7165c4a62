//! The shutdown notice of a node: its incarnations have ended, and nothing of it can come back, so
//! the members that are left may have its lanes at once. To be sent when no worker runs any more.
//!
//! ```text
//!   Read --(intent)--> Write --done, or perhaps---> Leave
//!     ^                  |  \--certainly not-------> Leave; its next start may be a guest
//!     +--another wrote --+
//! ```

use weir_controller::records::{FenceOrder, Intent, OrderAuthor};
use weir_etcd::swap::{Swap, SwapChange};
use weir_etcd::{Key, NodeId, Outcome, Revision, Versioned};
use weir_map::BootId;

/// Number of tries of the shutdown notice while others write at the same time.
const TRIES: u32 = 5;

/// The progress of a shutdown notice.
#[derive(Debug)]
pub struct ShutdownNotice {
    name: NodeId,
    boot_ids: Vec<BootId>,
    at_ms: u64,
    tries: u32,
}

/// The next step of the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoticeStep {
    /// This key is to be read; [`ShutdownNotice::read`] follows.
    Read(Key),
    /// This change is to be written; [`ShutdownNotice::written`] follows.
    Write(Swap),
    /// The node's registration is to be given up, and that is all.
    Leave {
        /// Whether it is certain that no other node knows of this process's end: the next process
        /// may begin where this one was a member.
        is_unsent: bool,
    },
}

impl ShutdownNotice {
    /// `at_ms`: milliseconds since 1970.
    pub fn new(name: NodeId, boot_ids: Vec<BootId>, at_ms: u64) -> (Self, NoticeStep) {
        let read = NoticeStep::Read(Key::Intent(name.clone()));
        (Self { name, boot_ids, at_ms, tries: TRIES }, read)
    }

    /// Takes the key as it is: `Some` value, `None` if there is none, or why there is no answer.
    pub fn read(&self, found: Result<Option<Versioned>, String>) -> NoticeStep {
        let found = match found {
            Ok(found) => found,
            Err(error) => return unsent(&error),
        };
        let held = found.as_ref().map(|found| serde_json::from_slice::<Intent>(&found.value));
        let mut intent = match held.transpose() {
            Ok(intent) => intent.unwrap_or_default(),
            Err(error) => return unsent(&format!("the node's intent cannot be read: {error}")),
        };
        let by = format!("{} as it ended", self.name);
        let order = OrderAuthor { by, at_ms: self.at_ms };
        intent.fence = Some(FenceOrder { order, boot_ids: self.boot_ids.clone() });
        let value = serde_json::to_vec(&intent).expect("texts and numbers");
        let expected: Option<Revision> = found.map(|found| found.mod_revision);
        let key = Key::Intent(self.name.clone());
        NoticeStep::Write(Swap { key, expected, change: SwapChange::Put(value) })
    }

    pub fn written(&mut self, outcome: &Outcome) -> NoticeStep {
        self.tries -= 1;
        match outcome {
            Outcome::Done(_) => NoticeStep::Leave { is_unsent: false },
            Outcome::LostRace(_) if self.tries > 0 => {
                NoticeStep::Read(Key::Intent(self.name.clone()))
            }
            Outcome::LostRace(_) | Outcome::NotLeader => unsent("others write all the time"),
            Outcome::Unavailable(error) | Outcome::Refused(error) => unsent(&error.to_string()),
            Outcome::Unknown(error) => {
                tracing::warn!(event = "shutdown-notice-failed", "{error}");
                NoticeStep::Leave { is_unsent: false }
            }
        }
    }
}

/// Leaves with the notice certainly not sent: the node's lanes wait for its next start.
fn unsent(why: &str) -> NoticeStep {
    tracing::warn!(event = "shutdown-notice-failed", "{why}");
    NoticeStep::Leave { is_unsent: true }
}

#[cfg(test)]
mod tests {
    use weir_etcd::{Cause, Error};

    use super::*;

    fn begin() -> ShutdownNotice {
        ShutdownNotice::new("n1".parse().unwrap(), vec![BootId(7)], 1_000).0
    }

    fn held(intent: &Intent, revision: i64) -> Option<Versioned> {
        let revision = Revision(revision);
        let value = serde_json::to_vec(intent).unwrap();
        Some(Versioned { value, create_revision: revision, mod_revision: revision, lease: None })
    }

    fn error(may_have_happened: bool) -> Error {
        let cause = Cause::Timeout;
        let (endpoint, operation, detail) = ("e".into(), "o".into(), "d".into());
        Error { endpoint, operation, cause, detail, may_have_happened }
    }

    #[test]
    fn a_shutdown_notice_fences_its_incarnations_and_keeps_the_intent() {
        let drained: Intent =
            serde_json::from_str(r#"{"drain":{"by":"op","at_ms":1,"force":false}}"#).unwrap();
        let NoticeStep::Write(swap) = begin().read(Ok(held(&drained, 5))) else { panic!() };
        assert_eq!(swap.expected, Some(Revision(5)));
        let SwapChange::Put(value) = swap.change else { panic!() };
        let intent: Intent = serde_json::from_slice(&value).unwrap();
        assert_eq!(intent.fence.unwrap().boot_ids, [BootId(7)]);
        assert_eq!(intent.drain, drained.drain);
    }

    #[test]
    fn an_intent_that_another_wrote_first_is_read_again_a_few_times() {
        let mut shutdown_notice = begin();
        for _ in 1..TRIES {
            let again = shutdown_notice.written(&Outcome::LostRace(Vec::new()));
            assert!(matches!(again, NoticeStep::Read(_)));
            assert!(matches!(
                shutdown_notice.read(Ok(None)),
                NoticeStep::Write(Swap { expected: None, .. })
            ));
        }
        let last = shutdown_notice.written(&Outcome::LostRace(Vec::new()));
        assert_eq!(last, NoticeStep::Leave { is_unsent: true });
    }

    #[test]
    fn a_shutdown_notice_that_was_perhaps_written_counts_as_sent() {
        let leave = |is_unsent| NoticeStep::Leave { is_unsent };
        assert_eq!(begin().written(&Outcome::Done(Revision(6))), leave(false));
        assert_eq!(begin().written(&Outcome::Unknown(error(true))), leave(false));
        assert_eq!(begin().written(&Outcome::Unavailable(error(false))), leave(true));
        assert_eq!(begin().read(Err("no answer".into())), leave(true));
    }
}

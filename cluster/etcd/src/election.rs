//! The acting controller: the one that holds the leader's key.
//!
//! A leader stops acting at `lease - margin` after it sent its last successful renewal. etcd gives
//! the key to another controller only at `lease` after it received the renewal, so two never act at
//! once if their clocks are sound. On any clocks, each of its writes compares the create revision
//! and the lease of its key ([`Store`](crate::Store)), and fails once it is not the leader.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::claim::Claim;
use crate::claim::state::ClaimEvent;
use crate::error::Error;
use crate::keys::Key;
use crate::leadership::Leadership;
use crate::options::EtcdOptions;
use crate::owner::ClaimOwner;
use crate::session::json;
use crate::tasks::Commands;

/// The value of the leader's key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaderRecord {
    /// Changes with each start of the process.
    pub boot_id: String,
    /// Where the controller runs, for the operator.
    pub name: String,
}

/// Creates the claim of the leader's key.
pub fn candidacy(options: &EtcdOptions, record: &LeaderRecord, now: Instant) -> Claim {
    let boot_id = record.boot_id.clone();
    Claim::new(options, &Key::Leader, boot_id, options.leader_margin, json(record), now)
}

/// A candidate; it stands for election until it is closed or dropped.
#[derive(Debug)]
pub struct Election {
    claim: ClaimOwner,
}

impl Election {
    pub(crate) fn open(commands: Commands, options: &EtcdOptions, record: &LeaderRecord) -> Self {
        let claim = candidacy(options, record, Instant::now());
        Self { claim: ClaimOwner::open(commands, options, claim) }
    }

    /// Returns the next event. `Held`: elected. `HeldByOther`: another controller leads. `Expired`
    /// or `TakenAway`: stop acting at once. Cancel safe.
    pub async fn next_event(&mut self) -> Option<ClaimEvent> {
        self.claim.next_event().await
    }

    /// Returns the leadership, while it lasts: the clock is read now, whatever the tasks are doing.
    /// To be asked for before each step, not stored.
    pub fn leadership(&self) -> Option<Leadership> {
        Leadership::of(self.claim.held(), Instant::now())
    }

    /// Steps down at once.
    ///
    /// # Errors
    /// When the lease could not be revoked; another controller is then elected when the lease ends.
    pub async fn close(self) -> Result<(), Error> {
        self.claim.close().await
    }
}

//! Which controller acts: the one that holds the leader's key.
//!
//! A leader stops at `lease - margin` after it sent its last successful renewal, and etcd gives the key to another one
//! only at `lease` after it received it, so two never act at once on sound clocks. On any clocks, each of its
//! writes compares the create revision and the lease of its key ([`Store`](crate::Store)), and fails once it is not the leader any more.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::claim::Claim;
use crate::claim::state::ClaimEvent;
use crate::error::Error;
use crate::keys::Key;
use crate::leadership::Leadership;
use crate::options::Options;
use crate::owner::ClaimOwner;
use crate::session::json;
use crate::tasks::Commands;

/// The value of the leader's key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaderRecord {
    /// Different each time that the process starts.
    pub boot_id: String,
    /// Where the controller runs, for the operator.
    pub name: String,
}

/// The claim of the leader's key.
pub fn candidacy(options: &Options, record: &LeaderRecord, now: Instant) -> Claim {
    let boot_id = record.boot_id.clone();
    Claim::new(options, &Key::Leader, boot_id, options.leader_margin, json(record), now)
}

/// A candidate; it stands until it is closed or dropped.
#[derive(Debug)]
pub struct Election {
    claim: ClaimOwner,
}

impl Election {
    pub(crate) fn open(commands: Commands, options: &Options, record: &LeaderRecord) -> Self {
        let claim = candidacy(options, record, Instant::now());
        Self { claim: ClaimOwner::open(commands, options, claim) }
    }

    /// What happened next: `Held` is elected, `HeldByOther` is following, `Expired` or `TakenAway` is to stop at once.
    /// Cancel safe.
    pub async fn next_event(&mut self) -> Option<ClaimEvent> {
        self.claim.next_event().await
    }

    /// The leadership, while it lasts: the clock is looked at now, whatever the tasks are doing. To be asked for before
    /// each step, not kept.
    pub fn leadership(&self) -> Option<Leadership> {
        Leadership::of(self.claim.held(), Instant::now())
    }

    /// Steps down at once.
    ///
    /// # Errors
    /// When etcd could not be told; another one is then elected when the lease ends.
    pub async fn close(self) -> Result<(), Error> {
        self.claim.close().await
    }
}

//! Which controller acts: the one that holds the leader's key.
//!
//! A leader stops at `lease - margin` after it sent its last successful renewal, and etcd gives the key to another one
//! only at `lease` after it received it, so two never act at once on sound clocks. On any clocks, each of its
//! writes compares the create revision and the lease of its key ([`Store`](crate::Store)), and fails once it is not the leader any more.

use std::sync::Arc;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::claim::state::{ClaimEvent, Held};
use crate::claim::{Claim, Wanted};
use crate::error::Error;
use crate::keys::Key;
use crate::link::Link;
use crate::revision::{LeaseId, Revision};
use crate::session::json;

/// The value of the leader's key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaderRecord {
    /// Different each time that the process starts.
    pub boot_id: String,
    /// Where the controller runs, for the operator.
    pub name: String,
}

/// That this process was elected, and until when it may rely on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leadership {
    /// Create revision of the leader's key: different for each leader.
    pub create_revision: Revision,
    /// Its lease: different too, even when etcd was restored and counts the same revisions again.
    pub lease: LeaseId,
    /// Grows with each renewal.
    pub valid_until: Instant,
}

/// A candidate; it stands until it is closed or dropped.
#[derive(Debug)]
pub struct Election {
    claim: Claim,
}

impl Election {
    pub(crate) fn open(link: Arc<Link>, record: &LeaderRecord) -> Self {
        let margin = link.options.leader_margin;
        let boot_id = record.boot_id.clone();
        let wanted = Wanted { key: Key::Leader, boot_id, ended: Vec::new(), margin };
        Self { claim: Claim::open(link, wanted, json(record)) }
    }

    /// What happened next: `Held` is elected, `HeldByOther` is following, `Expired` or `TakenAway` is to stop at once.
    /// Cancel safe.
    pub async fn next_event(&mut self) -> Option<ClaimEvent> {
        self.claim.events.recv().await
    }

    /// The leadership, while it lasts: the clock is looked at now, whatever the tasks are doing. To be asked for before
    /// each step, not kept.
    pub fn leadership(&self) -> Option<Leadership> {
        let Held { create_revision, lease, valid_until } = self.claim.held()?;
        let leadership = Leadership { create_revision, lease, valid_until };
        (Instant::now() < valid_until).then_some(leadership)
    }

    /// Steps down at once.
    ///
    /// # Errors
    /// When etcd could not be told; another one is then elected when the lease ends.
    pub async fn close(self) -> Result<(), Error> {
        self.claim.close().await
    }
}

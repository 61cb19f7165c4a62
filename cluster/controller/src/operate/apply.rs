//! The cluster file: what it changes, its writing, and how far the controller is with it.
//!
//! What is written was compared with what is replaced, by its revision: nobody's file is written over unseen.

use serde::Serialize;
use weir_config::{Change, Desired, DesiredError, difference};
use weir_etcd::{Change as KeyChange, Key, Outcome, Range, Revision, Swap};
use weir_map::ShardId;

use super::order::{OperateError, Operator, TRIES, put};
use super::status::risk;
use super::words;
use crate::records::{ControllerState, FORMAT, Meta, Order};
use crate::state::View;

/// A cluster file beside what is wanted now.
#[derive(Clone, Debug)]
pub struct Comparison {
    wish: Desired,
    /// What it was compared with; none: nothing was wanted.
    seen: Option<Revision>,
    /// Why that cannot be read, if it cannot.
    pub unreadable: Option<String>,
    /// Who applied that.
    pub applied: Option<Order>,
    /// What would be different; empty when nothing was wanted, or that cannot be read.
    pub changes: Vec<Change>,
    /// Shards that are served, and not in the file: they stay until they are retired.
    pub leftover: Vec<u32>,
}

/// How far the controller is with what was applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ApplyProgress {
    /// The leading controller decides on it.
    pub is_taken: bool,
    /// Shards of the file, and how many of them are served.
    pub wanted: usize,
    pub served: usize,
    /// Why it does not go on; empty if it does.
    pub waits: String,
    /// Why one more failure would end flows, or nobody would repair it; none: neither is so.
    pub risk: Option<String>,
}

impl ApplyProgress {
    pub fn is_served(&self) -> bool {
        self.is_taken && self.served == self.wanted
    }

    /// Served, and as safe as the file wants it.
    pub fn is_done(&self) -> bool {
        self.is_served() && self.risk.is_none()
    }
}

/// The value of `/desired`.
#[derive(Serialize)]
struct Applied<'d> {
    #[serde(flatten)]
    wish: &'d Desired,
    applied: Order,
}

impl Comparison {
    /// Nothing was wanted before.
    pub fn is_first(&self) -> bool {
        self.seen.is_none()
    }

    /// The file says what is wanted already.
    pub fn is_same(&self) -> bool {
        !self.is_first() && self.unreadable.is_none() && self.changes.is_empty()
    }

    /// Changes that end live flows.
    pub fn stranding(&self) -> usize {
        self.changes.iter().filter(|change| change.effect.is_stranding()).count()
    }

    /// Live flows end by it, or nobody can say.
    pub fn needs_force(&self) -> bool {
        self.unreadable.is_some() || self.stranding() > 0
    }
}

impl Operator {
    /// What a cluster file would change.
    ///
    /// # Errors
    /// When it is another cluster's, or what is wanted now is of a newer version.
    pub async fn compare(&self, wish: Desired) -> Result<Comparison, OperateError> {
        let keys = self.store.cluster().to_string();
        if wish.cluster.name != keys {
            return Err(OperateError::OtherCluster { file: wish.cluster.name, keys });
        }
        let (_, found) = self.store.list(Range::All).await?;
        let view = View::of(&found);
        refuse_newer(&view)?;
        let held = found.iter().find(|(key, _)| *key == Key::Desired).map(|(_, held)| held);
        let (changes, unreadable) = match held.map(|held| read(&held.value)) {
            None => (Vec::new(), None),
            Some(Ok(old)) => (difference(&old, &wish), None),
            Some(Err(DesiredError::Format(_))) => return Err(OperateError::Newer("desired")),
            Some(Err(error)) => (Vec::new(), Some(error.to_string())),
        };
        let is_leftover = |id: &u32| wish.shard(*id).is_none();
        Ok(Comparison {
            seen: held.map(|held| held.mod_revision),
            unreadable,
            applied: view.desired().and_then(|desired| desired.applied.clone()),
            changes,
            leftover: view.shards.keys().map(|id| id.0).filter(is_leftover).collect(),
            wish,
        })
    }

    /// Writes the file that was compared, unless somebody has applied one since. The first one makes
    /// the cluster, with the identity `new_cluster_id`, drawn at random. Gives its revision.
    ///
    /// # Errors
    /// When it ends live flows and that is not forced, or it was not written.
    pub async fn apply(
        &self,
        comparison: &Comparison,
        force: bool,
        new_cluster_id: u128,
        at_ms: u64,
    ) -> Result<Revision, OperateError> {
        match &comparison.unreadable {
            Some(why) if !force => return Err(OperateError::Unreadable(why.clone())),
            None if !force && comparison.needs_force() => {
                return Err(OperateError::Strands(comparison.stranding()));
            }
            _ => {}
        }
        let wish = put(&Applied { wish: &comparison.wish, applied: self.order(at_ms) });
        for _ in 0..TRIES {
            let view = self.look().await?;
            refuse_newer(&view)?;
            if view.revision(&Key::Desired) != comparison.seen {
                return Err(OperateError::Outrun { by: applied_by(&view) });
            }
            let desired =
                Swap { key: Key::Desired, expected: comparison.seen, change: wish.clone() };
            let meta = match view.revision(&Key::Meta) {
                None => {
                    let cluster_id = format!("{new_cluster_id:032x}");
                    put(&Meta { format: FORMAT, cluster_id })
                }
                Some(_) => KeyChange::Keep,
            };
            let expected = view.revision(&Key::Meta);
            let meta = Swap { key: Key::Meta, expected, change: meta };
            match self.store.transact(&[desired, meta], None).await {
                Outcome::Done(revision) => return Ok(revision),
                Outcome::LostRace(_) | Outcome::NotLeader => {}
                Outcome::Unavailable(error) | Outcome::Unknown(error) | Outcome::Refused(error) => {
                    return Err(error.into());
                }
            }
        }
        Err(OperateError::Busy)
    }

    /// How far the controller is with what was applied at `revision`.
    ///
    /// # Errors
    /// When somebody has applied another file since.
    pub async fn apply_progress(&self, revision: Revision) -> Result<ApplyProgress, OperateError> {
        let view = self.look().await?;
        if view.revision(&Key::Desired) != Some(revision) {
            return Err(OperateError::Outrun { by: applied_by(&view) });
        }
        let wanted = view.desired().map_or(&[][..], |desired| &desired.shards);
        let is_served = |id: u32| view.entry(ShardId(id)).is_some();
        let report = view.report.as_ref().and_then(|held| held.value.as_ref());
        let leader = self.store.get(&Key::Leader).await?;
        let risk = risk(leader.as_ref().map(|_| String::new()), report.cloned(), &view);
        let waits = match report.map(|report| (report.state, report.why.clone())) {
            _ if leader.is_none() => words::NO_LEADER.to_owned(),
            Some((ControllerState::Frozen | ControllerState::Halted, why)) => why,
            _ => String::new(),
        };
        Ok(ApplyProgress {
            is_taken: report.is_some_and(|report| report.desired >= Some(revision)),
            wanted: wanted.len(),
            served: wanted.iter().filter(|shard| is_served(shard.id)).count(),
            waits,
            risk,
        })
    }
}

fn read(value: &[u8]) -> Result<Desired, DesiredError> {
    Desired::from_json(&String::from_utf8_lossy(value))
}

fn refuse_newer(view: &View) -> Result<(), OperateError> {
    let is_newer = view.meta.as_ref().is_some_and(|meta| meta.value.is_none());
    if is_newer { Err(OperateError::Newer("meta")) } else { Ok(()) }
}

fn applied_by(view: &View) -> String {
    let applied = view.desired().and_then(|desired| desired.applied.as_ref());
    applied.map_or_else(|| "somebody".to_owned(), |applied| applied.by.clone())
}

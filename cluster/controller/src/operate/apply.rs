//! The cluster file: comparing it with the one in etcd, writing it, and the progress of the
//! controller with it.
//!
//! A file is written only over the revision that it was compared with, so no file is replaced that
//! the operator has not seen.

use serde::Serialize;
use weir_config::{Desired, DesiredError, SettingChange, difference};
use weir_etcd::{Key, KeyRange, Outcome, Revision, Swap, SwapChange};
use weir_map::ShardId;

use super::order::{OperateError, Operator, TRIES, put};
use super::status::risk;
use super::words;
use crate::records::{ControllerState, FORMAT, LeaderReport, Meta, OrderAuthor, ReportedNode};
use crate::state::View;

/// A cluster file compared with the desired state in etcd.
#[derive(Clone, Debug)]
pub struct Comparison {
    desired: Desired,
    /// Revision of `/desired` that the file was compared with; none: there was no such key.
    seen: Option<Revision>,
    /// Error that made the value of `/desired` unreadable, if it was.
    pub unreadable: Option<String>,
    /// Author and time of the value in `/desired`.
    pub applied: Option<OrderAuthor>,
    /// Differences; empty when there is no `/desired`, or it is unreadable.
    pub changes: Vec<SettingChange>,
    /// Shards that have a key and are not in the file: they stay until they are retired.
    pub leftover: Vec<u32>,
}

/// Progress of the controller with an applied file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ApplyProgress {
    /// Whether the leading controller decides on this file.
    pub is_taken: bool,
    /// Number of shards in the file; `served` is the number of those that have an entry.
    pub wanted: usize,
    pub served: usize,
    /// Nodes that run and have not taken the file's settings.
    pub lagging: Vec<String>,
    /// Reason that nothing proceeds; empty if it does.
    pub waits: String,
    /// Reason that one more failure would end flows or would not be repaired; none: neither is so.
    pub risk: Option<String>,
}

impl ApplyProgress {
    pub fn is_served(&self) -> bool {
        self.is_taken && self.served == self.wanted
    }

    /// True if all shards of the file are served, all nodes have taken its settings and no risk is
    /// left.
    pub fn is_done(&self) -> bool {
        self.is_served() && self.lagging.is_empty() && self.risk.is_none()
    }
}

/// The value of `/desired`.
#[derive(Serialize)]
struct AppliedFile<'d> {
    #[serde(flatten)]
    desired: &'d Desired,
    applied: OrderAuthor,
}

impl Comparison {
    /// True if `/desired` does not exist yet.
    pub fn is_first(&self) -> bool {
        self.seen.is_none()
    }

    /// True if the file equals the value of `/desired`.
    pub fn is_same(&self) -> bool {
        !self.is_first() && self.unreadable.is_none() && self.changes.is_empty()
    }

    /// Number of changes that end live flows.
    pub fn stranding(&self) -> usize {
        self.changes.iter().filter(|change| change.effect.is_stranding()).count()
    }

    /// True if applying the file ends live flows, or if that cannot be determined.
    pub fn needs_force(&self) -> bool {
        self.unreadable.is_some() || self.stranding() > 0
    }
}

impl Operator {
    /// Compares a cluster file with the value of `/desired`.
    ///
    /// # Errors
    /// When the file is of another cluster, or a newer version of weir wrote `/meta` or `/desired`.
    pub async fn compare(&self, desired: Desired) -> Result<Comparison, OperateError> {
        let keys = self.store.cluster().to_string();
        if desired.cluster.name != keys {
            return Err(OperateError::OtherCluster { file: desired.cluster.name, keys });
        }
        let (_, found) = self.store.list(KeyRange::All).await?;
        let view = View::of(&found);
        refuse_newer(&view)?;
        let held = found.iter().find(|(key, _)| *key == Key::Desired).map(|(_, held)| held);
        let (changes, unreadable) = match held.map(|held| read(&held.value)) {
            None => (Vec::new(), None),
            Some(Ok(old)) => (difference(&old, &desired), None),
            Some(Err(DesiredError::Format(_))) => return Err(OperateError::Newer("desired")),
            Some(Err(error)) => (Vec::new(), Some(error.to_string())),
        };
        let is_leftover = |id: &u32| desired.shard(*id).is_none();
        Ok(Comparison {
            seen: held.map(|held| held.mod_revision),
            unreadable,
            applied: view.desired().and_then(|desired| desired.applied.clone()),
            changes,
            leftover: view.shards.keys().map(|id| id.0).filter(is_leftover).collect(),
            desired,
        })
    }

    /// Writes the compared file, unless another file has been applied since. The first file creates
    /// the cluster, with the random identity `new_cluster_id`. Returns the revision of the write.
    ///
    /// # Errors
    /// When the file ends live flows and `force` is not set, or when it was not written.
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
        let value = put(&AppliedFile { desired: &comparison.desired, applied: self.order(at_ms) });
        for _ in 0..TRIES {
            let view = self.look().await?;
            refuse_newer(&view)?;
            if view.revision(&Key::Desired) != comparison.seen {
                return Err(OperateError::Outrun { by: applied_by(&view) });
            }
            let desired =
                Swap { key: Key::Desired, expected: comparison.seen, change: value.clone() };
            let meta = match view.revision(&Key::Meta) {
                None => {
                    let cluster_id = format!("{new_cluster_id:032x}");
                    put(&Meta { format: FORMAT, cluster_id })
                }
                Some(_) => SwapChange::Keep,
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

    /// Reports the progress of the controller with the file applied at `revision`.
    ///
    /// # Errors
    /// When another file has been applied since.
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
            lagging: report.map(|report| lagging(report, revision)).unwrap_or_default(),
            waits,
            risk,
        })
    }
}

/// Returns the nodes that run and have taken other settings than those of this revision. A node of
/// an earlier version names none: it takes settings when it restarts.
fn lagging(report: &LeaderReport, revision: Revision) -> Vec<String> {
    let is_running = |node: &&ReportedNode| ["alive", "cut-off", "suspect"].contains(&&*node.life);
    let taken = |node: &ReportedNode| node.generation.and_then(|it| i64::try_from(it).ok());
    let lags = |node: &&ReportedNode| taken(node).is_some_and(|it| it != revision.0);
    report.nodes.iter().filter(is_running).filter(lags).map(|node| node.node.clone()).collect()
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

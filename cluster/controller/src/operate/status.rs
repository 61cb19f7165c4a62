//! The state of the cluster, as one verdict with its reasons, and the progress of a drain.

use serde::Serialize;
use weir_etcd::{Key, LeaderRecord, NodeId};
use weir_map::ShardId;

use super::order::{OperateError, Operator};
use super::words;
use crate::records::{ControllerState, LeaderReport, ReportedNode};
use crate::state::{View, frozen};

/// One word on the state of the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MapVerdict {
    Ok,
    /// Every shard has its copies; something else needs attention.
    Degraded,
    /// One more failure would end flows, or would not be repaired.
    AtRisk,
}

impl MapVerdict {
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::Degraded => "DEGRADED",
            Self::AtRisk => "AT RISK",
        }
    }
}

/// The cluster as its leader reports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClusterStatus {
    pub verdict: MapVerdict,
    /// Everything that is wrong, and what to do about it; empty when all is well.
    pub reasons: Vec<String>,
    /// Name of the leading controller; none: no controller leads.
    pub leader: Option<String>,
    /// The author and the reason of a freeze; none: the map is not frozen.
    pub freeze: Option<String>,
    pub report: Option<LeaderReport>,
}

/// Progress of a drain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DrainProgress {
    /// Shards that the node still holds.
    pub left: usize,
    /// Those of these shards that it is primary of.
    pub primaries: usize,
    /// Reason that the drain does not proceed; empty if it does.
    pub waits: String,
}

impl Operator {
    /// Returns the verdict on the cluster, its reasons, and the leader's report.
    ///
    /// # Errors
    /// When etcd could not be read.
    pub async fn status(&self) -> Result<ClusterStatus, OperateError> {
        let view = self.look().await?;
        let leader = self.store.get(&Key::Leader).await?;
        let leader = leader.map(|held| {
            serde_json::from_slice(&held.value)
                .map_or_else(|_| "unknown".to_owned(), |record: LeaderRecord| record.name)
        });
        let (gap, freeze) = (gap(&view), freeze_of(&view));
        let report = view.report.and_then(|held| held.value);
        Ok(status_of(leader, report, &gap, freeze))
    }

    /// Returns the progress of the node's drain.
    ///
    /// # Errors
    /// When etcd could not be read.
    pub async fn drain_progress(&self, node: &NodeId) -> Result<DrainProgress, OperateError> {
        let view = self.look().await?;
        let mut progress = DrainProgress { left: 0, primaries: 0, waits: String::new() };
        for (_, entry) in view.entries() {
            let mut members = entry.members().iter();
            if let Some(rank) = members.position(|it| it.incarnation.worker.node == *node) {
                progress.left += 1;
                progress.primaries += usize::from(rank == 0);
            }
        }
        let report = view.report.and_then(|held| held.value);
        let seen = report.and_then(|it| it.nodes.into_iter().find(|it| it.node == node.as_str()));
        progress.waits = seen.map_or_else(String::new, |seen| seen.waits);
        if self.store.get(&Key::Leader).await?.is_none() {
            progress.waits = words::NO_LEADER.to_owned();
        }
        Ok(progress)
    }
}

/// Difference between the map and the cluster file.
#[derive(Default)]
struct Gap {
    /// Number of desired shards that have no key yet.
    missing: usize,
    /// Shards that have a key and are not desired.
    leftover: Vec<u32>,
}

fn gap(view: &View) -> Gap {
    let Some(desired) = view.desired() else { return Gap::default() };
    let is_missing = |id: u32| !view.shards.contains_key(&ShardId(id));
    Gap {
        missing: desired.shards.iter().filter(|shard| is_missing(shard.id)).count(),
        leftover: view.shards.keys().map(|id| id.0).filter(|id| !desired.has(*id)).collect(),
    }
}

/// A freeze, and whether it is total because the map itself is in doubt.
#[derive(Clone)]
struct Freeze {
    why: String,
    is_total: bool,
}

fn freeze_of(view: &View) -> Option<Freeze> {
    let Some(control) = view.control() else {
        let why = "the key `control` cannot be read: `weir controller unfreeze`".to_owned();
        return Some(Freeze { why, is_total: true });
    };
    let freeze = control.freeze?;
    Some(Freeze { why: frozen(&freeze), is_total: freeze.is_total })
}

/// Returns the reasons that one more failure would end flows or would not be repaired; none: the
/// verdict is better.
pub(super) fn risk(
    leader: Option<String>,
    report: Option<LeaderReport>,
    view: &View,
) -> Option<String> {
    let status = status_of(leader, report, &Gap::default(), freeze_of(view));
    (status.verdict == MapVerdict::AtRisk).then(|| status.reasons.join("; "))
}

fn status_of(
    leader: Option<String>,
    report: Option<LeaderReport>,
    gap: &Gap,
    freeze: Option<Freeze>,
) -> ClusterStatus {
    let mut reasons: Vec<(MapVerdict, String)> = Vec::new();
    if leader.is_none() {
        reasons.push((MapVerdict::AtRisk, words::NO_LEADER.to_owned()));
    }
    // The order itself counts: the leader's report may be older, as after a restore of etcd.
    if let Some(Freeze { why, is_total: true }) = &freeze {
        reasons.push((MapVerdict::AtRisk, words::map_frozen(why)));
    }
    match &report {
        None => reasons.push((MapVerdict::AtRisk, "no controller has reported yet".to_owned())),
        Some(report) => {
            match report.state {
                // The total freeze is among the reasons already.
                ControllerState::Frozen if freeze.as_ref().is_some_and(|it| it.is_total) => {}
                ControllerState::Frozen => reasons.push((
                    MapVerdict::Degraded,
                    format!("{}; nothing is moved or repaired", report.why),
                )),
                ControllerState::Halted => reasons.push((MapVerdict::AtRisk, report.why.clone())),
                ControllerState::Resting | ControllerState::Working => {}
            }
            if report.unprotected > 0 {
                let text = words::unprotected(report.unprotected, report.shards);
                reasons.push((MapVerdict::AtRisk, text));
            }
            if report.in_doubt > 0 {
                let text = words::in_doubt(report.in_doubt, report.shards);
                reasons.push((MapVerdict::AtRisk, text));
                reasons.extend(report.doubts.iter().map(|it| (MapVerdict::AtRisk, it.clone())));
            }
            let is_well = |node: &ReportedNode| node.life == "alive" && node.cut_off.is_empty();
            let nodes = report.nodes.iter().filter(|node| !is_well(node));
            reasons.extend(nodes.map(|node| (MapVerdict::Degraded, words::node(node))));
            // The note on a halt equals the reason of the state, which is among the reasons
            // already.
            let notes = report.notes.iter().filter(|note| **note != report.why);
            reasons.extend(notes.map(|note| (MapVerdict::Degraded, note.clone())));
        }
    }
    if gap.missing > 0 {
        reasons.push((MapVerdict::Degraded, words::missing(gap.missing)));
    }
    if !gap.leftover.is_empty() {
        reasons.push((MapVerdict::Degraded, words::leftover(&gap.leftover)));
    }
    let verdict = reasons.iter().map(|(verdict, _)| *verdict).max().unwrap_or(MapVerdict::Ok);
    let reasons = reasons.into_iter().map(|(_, text)| text).collect();
    let freeze = freeze.map(|freeze| freeze.why);
    ClusterStatus { verdict, reasons, leader, freeze, report }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(change: impl FnOnce(&mut LeaderReport)) -> ClusterStatus {
        let mut report = LeaderReport { shards: 8, whole: 8, ..LeaderReport::default() };
        change(&mut report);
        status_of(Some("c1".into()), Some(report), &Gap::default(), None)
    }

    /// The leader's report may be of the history before the restore.
    #[test]
    fn a_map_that_is_frozen_as_a_whole_is_at_risk_whatever_the_report_says() {
        let freeze = Freeze { why: "frozen by c1: etcd was restored".into(), is_total: true };
        let report = LeaderReport { shards: 8, whole: 8, ..LeaderReport::default() };
        let leader = || Some("c1".to_owned());
        let status = status_of(leader(), Some(report), &Gap::default(), Some(freeze.clone()));
        assert_eq!((status.verdict, status.reasons.len()), (MapVerdict::AtRisk, 1), "{status:?}");
        assert!(status.reasons[0].contains("frozen by c1: etcd was restored"), "{status:?}");
        let order = Freeze { is_total: false, ..freeze };
        let status =
            status_of(leader(), Some(LeaderReport::default()), &Gap::default(), Some(order));
        assert_eq!(status.freeze.as_deref(), Some("frozen by c1: etcd was restored"));
    }

    #[test]
    fn the_status_has_a_verdict_and_every_reason() {
        assert_eq!((status(|_| ()).verdict, status(|_| ()).reasons.len()), (MapVerdict::Ok, 0));
        let frozen = status(|report| {
            (report.state, report.why) = (ControllerState::Frozen, "frozen by ann".into());
        });
        assert_eq!(frozen.verdict, MapVerdict::Degraded);
        assert_eq!(frozen.reasons, ["frozen by ann; nothing is moved or repaired"]);
        let bare = status(|report| report.unprotected = 3);
        assert_eq!(bare.verdict, MapVerdict::AtRisk);
        assert!(bare.reasons[0].starts_with("3 of 8 shards"));
        let gap = Gap { missing: 2, leftover: vec![7, 8] };
        assert_eq!(
            status_of(None, Some(LeaderReport::default()), &gap, None).verdict,
            MapVerdict::AtRisk
        );
        assert_eq!(status_of(Some("c1".into()), None, &gap, None).verdict, MapVerdict::AtRisk);
        let between = status_of(Some("c1".into()), Some(LeaderReport::default()), &gap, None);
        assert_eq!(between.verdict, MapVerdict::Degraded);
        assert!(between.reasons[0].ends_with("yet: 2; the controller creates them"), "{between:?}");
        assert!(between.reasons[1].contains("`weir controller retire 7 8`"), "{between:?}");
    }
}

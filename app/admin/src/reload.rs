//! Settings that change while the node runs, as JSON.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The settings that change while the node runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GenerationStatus {
    /// Number of the newest generation; in a cluster the revision of `weir apply`. 0: the settings
    /// of the start.
    pub number: u64,
    /// Reason why the settings that were read last were refused; none if they were taken.
    pub refused: Option<String>,
    /// Keys of the newest generation that this node takes only when it restarts.
    pub for_restart: Vec<String>,
}

/// What a reload does with the node's file, or would do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reload {
    pub outcome: ReloadOutcome,
    /// Number of the generation in force after it.
    pub generation: u64,
    /// Why it is refused: the errors of the file, or the keys that cannot be taken.
    pub errors: Vec<String>,
    /// Findings that do not keep the file from being taken.
    pub warnings: Vec<String>,
    /// The differences between the file and what is in force.
    pub changes: Vec<ReloadChange>,
    /// Workers that have not taken the generation yet.
    pub lagging: Vec<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReloadOutcome {
    /// The file is in force.
    Applied,
    /// The file says what is in force already.
    Unchanged,
    /// The file can be applied; this was a dry run.
    WouldApply,
    /// Nothing has changed.
    Refused,
}

/// A difference between a file and what is in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReloadChange {
    /// The key, the worker or the shard.
    pub subject: String,
    pub what: String,
    /// What it does to live flows.
    pub effect: String,
    /// Whether live flows end by it, so that it needs `force`.
    pub is_stranding: bool,
    /// Whether a running node cannot take it.
    pub needs_restart: bool,
}

/// What a rule has decided since its generation came into force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleCount {
    pub rule: String,
    /// `accept`, `drop` or `reject`.
    pub action: String,
    /// Flows that began, and packets that were refused or passed without a session, on all workers.
    pub hits_total: u64,
}

/// The settings that a node has in force, as they were written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningSettings {
    pub generation: u64,
    pub source: SettingsSource,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SettingsSource {
    /// What a single node read.
    File(SettingsTexts),
    /// What was applied to the cluster: JSON of the cluster file.
    Cluster(String),
}

/// The text of a single node's file and of the files that it names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SettingsTexts {
    /// Absolute path of the node's file.
    pub path: PathBuf,
    pub text: String,
    pub named: BTreeMap<PathBuf, String>,
}

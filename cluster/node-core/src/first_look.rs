//! Which cluster a node belongs to: etcd reports it, or, while etcd does not answer, the disk of a
//! node that was part of it.

use std::time::Duration;

use weir_config::Desired;
use weir_controller::records::Meta;

use crate::known_map::KnownMap;

/// Time between two looks.
pub const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Time between two log lines while the node waits.
pub const REPORT_INTERVAL: Duration = Duration::from_secs(10);
/// An etcd that has not answered for this long is not waited for by a node that knows its cluster.
const ETCD_PATIENCE: Duration = Duration::from_secs(5);

/// The cluster that a node starts with.
#[derive(Debug)]
pub struct FoundCluster {
    pub cluster_id: String,
    pub desired: Desired,
    /// Whether the settings are those on disk.
    pub is_without_etcd: bool,
}

/// Why there is no cluster yet.
#[derive(Debug)]
pub enum NotFound {
    /// etcd does not answer, or refuses to.
    Silent(String),
    /// etcd has answered, but an operator has to act.
    Missing(Awaited, String),
}

/// The thing that a node waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// An answer of etcd.
    Etcd,
    /// A cluster file that this version can read.
    ClusterFile,
    /// The first controller, which gives the cluster its identity.
    Controller,
}

impl Awaited {
    pub const ALL: [Self; 3] = [Self::Etcd, Self::ClusterFile, Self::Controller];

    /// As a label of metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ClusterFile => "cluster-file",
            Self::Controller => "controller",
        }
    }
}

/// A wait of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    pub awaited: Awaited,
    pub since: Duration,
    /// For people.
    pub why: String,
}

/// The result of the looks so far.
#[derive(Debug)]
pub struct FirstLook {
    began: Duration,
    reported: Option<Duration>,
    /// Since when no look was answered.
    silent: Option<Duration>,
    wait: Wait,
}

impl FirstLook {
    pub fn new(began: Duration) -> Self {
        // Until the first look is answered, the node waits for etcd.
        let why = "it has not answered yet".to_owned();
        let wait = Wait { awaited: Awaited::Etcd, since: began, why };
        Self { began, reported: None, silent: Some(began), wait }
    }

    /// The wait as of the last look.
    pub fn wait(&self) -> &Wait {
        &self.wait
    }

    /// Takes the result of a look. Returns what the node starts with, once there is that. `name`:
    /// the cluster that the node's file names.
    pub fn take(
        &mut self,
        now: Duration,
        looked: Result<(String, Desired), NotFound>,
        map: &KnownMap,
        name: &str,
    ) -> Option<FoundCluster> {
        let (awaited, why) = match looked {
            Ok((cluster_id, desired)) => {
                return Some(FoundCluster { cluster_id, desired, is_without_etcd: false });
            }
            Err(NotFound::Missing(awaited, why)) => {
                self.silent = None;
                (awaited, why)
            }
            Err(NotFound::Silent(why)) => {
                let silent = *self.silent.get_or_insert(now);
                match on_disk(map, name) {
                    Ok((cluster_id, desired)) if now >= silent + ETCD_PATIENCE => {
                        return Some(FoundCluster { cluster_id, desired, is_without_etcd: true });
                    }
                    Ok(_) => (Awaited::Etcd, why),
                    Err(no_start) => {
                        let why = format!("{why}; it cannot start without etcd: {no_start}");
                        (Awaited::Etcd, why)
                    }
                }
            }
        };
        if self.reported.is_none_or(|reported| now >= reported + REPORT_INTERVAL) {
            self.reported = Some(now);
            let waited_sec = now.saturating_sub(self.began).as_secs();
            tracing::warn!(event = "cluster-awaited", waited_sec, "{why}");
        }
        let since = if awaited == self.wait.awaited { self.wait.since } else { now };
        self.wait = Wait { awaited, since, why };
        None
    }
}

/// Returns what the disk knows of the cluster, or why that is not enough to start.
fn on_disk(map: &KnownMap, name: &str) -> Result<(String, Desired), String> {
    match map.cluster() {
        Ok(Some((id, desired))) if desired.cluster.name == name => Ok((id.to_owned(), desired)),
        Ok(Some((_, desired))) => {
            Err(format!("its disk knows the cluster {} only", desired.cluster.name))
        }
        Ok(None) => Err("its disk knows no cluster yet".to_owned()),
        Err(error) => Err(format!("what its disk knows of the cluster cannot be read: {error}")),
    }
}

/// Returns the id of the cluster and what the operator wants of it, from the keys of both as etcd
/// has them.
///
/// # Errors
/// [`NotFound::Missing`], with what an operator has to do.
pub fn found(desired: Option<&[u8]>, meta: Option<&[u8]>) -> Result<(String, Desired), NotFound> {
    let missing = |awaited, why: &str| NotFound::Missing(awaited, why.to_owned());
    let unreadable = |awaited, what: &str, error: &dyn std::fmt::Display| {
        NotFound::Missing(awaited, format!("{what} cannot be read: {error}"))
    };
    let (file, controller) = (Awaited::ClusterFile, Awaited::Controller);
    let desired = desired.ok_or_else(|| {
        missing(file, "no cluster file has been applied yet: `weir apply cluster.toml`")
    })?;
    let desired = serde_json::from_slice(desired)
        .map_err(|error| unreadable(file, "what the cluster is", &error))?;
    let meta =
        meta.ok_or_else(|| missing(controller, "no controller has run yet: `weir controller`"))?;
    let meta: Meta = serde_json::from_slice(meta)
        .map_err(|error| unreadable(controller, "the cluster's own record", &error))?;
    Ok((meta.cluster_id, desired))
}

/// Returns whether etcd holds the cluster of this id, or the id of the one that it holds. None: it
/// holds none, or does not answer.
pub fn is_known(
    looked: Result<(String, Desired), NotFound>,
    known: &str,
) -> Option<Result<(), String>> {
    let (found, _) = looked.ok()?;
    Some(if found == known { Ok(()) } else { Err(found) })
}

#[cfg(test)]
#[path = "first_look_tests.rs"]
mod tests;

//! What the cluster is: etcd says so, or the disk of a node that was part of it, while etcd does not answer.

use std::time::Duration;

use weir_config::Desired;
use weir_controller::records::Meta;

use crate::known_map::KnownMap;

/// Between two looks.
pub const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// While it waits it says so this often.
pub const SAY_INTERVAL: Duration = Duration::from_secs(10);
/// An etcd that has not answered for so long is not waited for by a node that knows its cluster.
const ETCD_PATIENCE: Duration = Duration::from_secs(5);

/// What a node starts with.
#[derive(Debug)]
pub struct Found {
    pub cluster_id: String,
    pub desired: Desired,
    /// As the disk has it.
    pub is_without_etcd: bool,
}

/// Why there is nothing yet.
#[derive(Debug)]
pub enum NotFound {
    /// etcd does not answer, or refuses to.
    Silent(String),
    /// It has answered: there is something for an operator to do.
    Missing(String),
}

/// The looks so far.
#[derive(Debug)]
pub struct FirstLook {
    began: Duration,
    said: Option<Duration>,
    /// Since when no look was answered.
    silent: Option<Duration>,
}

impl FirstLook {
    pub fn new(began: Duration) -> Self {
        // What waits for an answer to the first look waits for etcd.
        Self { began, said: None, silent: Some(began) }
    }

    /// A look has ended like this. The start, once there is one. `name`: the cluster that the node's file names.
    pub fn take(
        &mut self,
        now: Duration,
        looked: Result<(String, Desired), NotFound>,
        map: &KnownMap,
        name: &str,
    ) -> Option<Found> {
        let why = match looked {
            Ok((cluster_id, desired)) => {
                return Some(Found { cluster_id, desired, is_without_etcd: false });
            }
            Err(NotFound::Missing(why)) => {
                self.silent = None;
                why
            }
            Err(NotFound::Silent(why)) => {
                let silent = *self.silent.get_or_insert(now);
                match on_disk(map, name) {
                    Ok((cluster_id, desired)) if now >= silent + ETCD_PATIENCE => {
                        return Some(Found { cluster_id, desired, is_without_etcd: true });
                    }
                    Ok(_) => why,
                    Err(no_start) => format!("{why}; it cannot start without etcd: {no_start}"),
                }
            }
        };
        if self.said.is_none_or(|said| now >= said + SAY_INTERVAL) {
            self.said = Some(now);
            let waited_sec = now.saturating_sub(self.began).as_secs();
            tracing::warn!(event = "cluster-awaited", waited_sec, "{why}");
        }
        None
    }
}

/// What the disk knows of the cluster, or why that is not enough to start.
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

/// The id of the cluster and what the operator wants of it, from the keys of both as etcd has them.
///
/// # Errors
/// What an operator has to do.
pub fn found(desired: Option<&[u8]>, meta: Option<&[u8]>) -> Result<(String, Desired), NotFound> {
    let missing = |why: &str| NotFound::Missing(why.to_owned());
    let unreadable = |what: &str, error: &dyn std::fmt::Display| {
        NotFound::Missing(format!("{what} cannot be read: {error}"))
    };
    let desired = desired.ok_or_else(|| {
        missing("no cluster file has been applied yet: `weir apply cluster.toml`")
    })?;
    let desired = serde_json::from_slice(desired)
        .map_err(|error| unreadable("what the cluster is", &error))?;
    let meta = meta.ok_or_else(|| missing("no controller has run yet: `weir controller`"))?;
    let meta: Meta = serde_json::from_slice(meta)
        .map_err(|error| unreadable("the cluster's own record", &error))?;
    Ok((meta.cluster_id, desired))
}

/// Whether etcd holds the cluster of this id, or of which id the one is that it holds. None: it holds none, or does not
/// answer.
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

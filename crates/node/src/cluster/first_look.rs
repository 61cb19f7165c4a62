//! What the cluster is: etcd says so, or the disk of a node that was part of it, while etcd does not answer.

use std::time::{Duration, Instant};

use weir_cluster::{Cluster, Key, Store};
use weir_config::Desired;
use weir_controller::records::Meta;

use super::known_map::KnownMap;

/// Between two looks.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// While it waits it says so this often.
pub(super) const SAY_INTERVAL: Duration = Duration::from_secs(10);
/// An etcd that has not answered for so long is not waited for by a node that knows its cluster.
const ETCD_PATIENCE: Duration = Duration::from_secs(5);

/// What a node starts with.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) cluster_id: String,
    pub(super) desired: Desired,
    /// As the disk has it.
    pub(super) is_without_etcd: bool,
}

/// Why there is nothing yet.
#[derive(Debug)]
pub(super) enum NotFound {
    /// etcd does not answer, or refuses to.
    Silent(String),
    /// It has answered: there is something for an operator to do.
    Missing(String),
}

/// The id of the cluster and what the operator wants of it, once both are known. `name`: the cluster that the node's file
/// names.
pub(super) fn wait_for_cluster(cluster: &Cluster, map: &KnownMap, name: &str) -> Found {
    let mut wait = Wait::new(Instant::now());
    loop {
        let looked = cluster.handle().block_on(look(&cluster.store()));
        if let Some(found) = wait.take(Instant::now(), looked, map, name) {
            return found;
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
}

/// The looks so far.
#[derive(Debug)]
struct Wait {
    began: Instant,
    said: Option<Instant>,
    /// Since when no look was answered.
    silent: Option<Instant>,
}

impl Wait {
    fn new(began: Instant) -> Self {
        // What waits for an answer to the first look waits for etcd.
        Self { began, said: None, silent: Some(began) }
    }

    fn take(
        &mut self,
        now: Instant,
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
            let waited_sec = now.saturating_duration_since(self.began).as_secs();
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

/// The id of the cluster and what the operator wants of it, or what there is to wait for.
pub(super) async fn look(store: &Store) -> Result<(String, Desired), NotFound> {
    let get = async |key| {
        let found = store.get(&key).await;
        found.map_err(|error| NotFound::Silent(error.to_string()))
    };
    let missing = |why: &str| NotFound::Missing(why.to_owned());
    let unreadable = |what: &str, error: &dyn std::fmt::Display| {
        NotFound::Missing(format!("{what} cannot be read: {error}"))
    };
    let desired = get(Key::Desired).await?.ok_or_else(|| {
        missing("no cluster file has been applied yet: `weir apply cluster.toml`")
    })?;
    let desired = serde_json::from_slice(&desired.value)
        .map_err(|error| unreadable("what the cluster is", &error))?;
    let meta = get(Key::Meta).await?;
    let meta = meta.ok_or_else(|| missing("no controller has run yet: `weir controller`"))?;
    let meta: Meta = serde_json::from_slice(&meta.value)
        .map_err(|error| unreadable("the cluster's own record", &error))?;
    Ok((meta.cluster_id, desired))
}

/// Whether etcd holds the cluster of this id, or of which id the one is that it holds. None: it holds none, or does not
/// answer.
pub(super) fn is_known(
    looked: Result<(String, Desired), NotFound>,
    known: &str,
) -> Option<Result<(), String>> {
    let (found, _) = looked.ok()?;
    Some(if found == known { Ok(()) } else { Err(found) })
}

#[cfg(test)]
#[path = "first_look_tests.rs"]
mod tests;

//! Reads from etcd what the cluster is. [`weir_node_core::first_look`] decides what the node makes
//! of it.

use std::time::Instant;

use weir_config::Desired;
use weir_etcd::{EtcdCluster, Key, Store};
use weir_node_core::KnownMap;
use weir_node_core::first_look::{FirstLook, FoundCluster, LOOK_INTERVAL, NotFound, found};

use crate::start_progress::StartProgress;

/// Waits for the id of the cluster and the operator's settings for it, until both are known.
/// `name`: the cluster that the node's file names. `progress` shows meanwhile what is waited for.
pub(super) fn wait_for_cluster(
    cluster: &EtcdCluster,
    map: &KnownMap,
    name: &str,
    progress: &StartProgress,
) -> FoundCluster {
    let began = Instant::now();
    let mut looks = FirstLook::new(began.elapsed());
    loop {
        progress.waits(looks.wait(), began);
        let looked = cluster.handle().block_on(look(&cluster.store()));
        if let Some(found) = looks.take(began.elapsed(), looked, map, name) {
            progress.goes_on();
            return found;
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
}

/// Returns the id of the cluster and the operator's settings for it, or what there is to wait for.
pub(super) async fn look(store: &Store) -> Result<(String, Desired), NotFound> {
    let get = async |key| {
        let held = store.get(&key).await;
        let held = held.map_err(|error| NotFound::Silent(error.to_string()))?;
        Ok(held.map(|held| held.value))
    };
    let desired = get(Key::Desired).await?;
    let meta = if desired.is_some() { get(Key::Meta).await? } else { None };
    found(desired.as_deref(), meta.as_deref())
}

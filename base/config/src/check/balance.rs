//! Shards are balanced by load only where load is counted.

use crate::cluster_types::{BalanceSetting, ClusterFile};
use crate::findings::Findings;

const BALANCE: &str = "cluster.balance";

pub(super) fn check(file: &ClusterFile, findings: &mut Findings<'_>) {
    if file.cluster.balance == BalanceSetting::Load && !file.nat.enabled {
        let message =
            "\"load\" with nat.enabled = false: no public port is in use, so no load is counted";
        findings.error(BALANCE, message, "write balance = \"shards\", or remove it");
    }
}

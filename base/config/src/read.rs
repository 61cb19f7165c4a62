//! Reads the document into values: types, ranges and formats of each section. Checks that need
//! several keys come later.

mod access;
pub(crate) mod address;
pub(crate) mod address6;
mod cluster;
mod collector;
mod fragments;
mod interface;
mod interface6;
mod ipv6;
mod limits;
mod nat;
mod node;
pub(crate) mod policy;
mod pool;
mod public;
mod shard;
mod timeouts;
mod worker;

use toml::de::DeTable;

use crate::cluster_types::{ClusterFile, MemberFile};
use crate::file_kind::FileKind;
use crate::findings::Findings;
use crate::ipv6_types::Ipv6Settings;
use crate::policy_types::PolicySettings;
use crate::public_types::PublicSettings;
use crate::section::Section;
use crate::types::{
    Access, Config, Fragments, LimitSettings, NatSettings, NodeSettings, SessionLogSetting,
    TimeoutSettings, WorkerSettings,
};

/// Reads the file of a single node. The result is valid only if there are no errors.
pub(crate) fn single(document: &DeTable<'_>, findings: &mut Findings<'_>) -> Config {
    let root = Section::root(document, FileKind::Single, findings);
    let (node, workers) = machine(&root, findings);
    let Service { access, nat, timeouts, fragments, limits, policy, public, ipv6 } =
        service(&root, findings);
    let sections = root.sections("shard", "shard", findings);
    let shards = sections
        .iter()
        .enumerate()
        .map(|(index, section)| shard::read(section, index, &workers, findings))
        .collect();
    Config { node, workers, access, nat, timeouts, fragments, limits, policy, public, ipv6, shards }
}

/// Reads the file of a cluster's node. The result is valid only if there are no errors.
pub(crate) fn member(document: &DeTable<'_>, findings: &mut Findings<'_>) -> MemberFile {
    let root = Section::root(document, FileKind::Member, findings);
    let (node, workers) = machine(&root, findings);
    let cluster = root.section("cluster", "cluster", findings);
    MemberFile { node, workers, cluster: cluster::membership(&cluster, findings) }
}

/// Reads a cluster file, or with [`FileKind::Stored`] its form in etcd. The result is valid only if
/// there are no errors.
pub(crate) fn cluster(
    document: &DeTable<'_>,
    file: FileKind,
    findings: &mut Findings<'_>,
) -> ClusterFile {
    let root = Section::root(document, file, findings);
    let cluster = cluster::read(&root.section("cluster", "cluster", findings), findings);
    let Service { access, nat, timeouts, fragments, limits, policy, public, ipv6 } =
        service(&root, findings);
    let pools = match file {
        FileKind::Stored => Vec::new(),
        _ => root.sections("pool", "pool", findings),
    };
    let pools = pools.iter().map(|section| pool::read(section, findings)).collect();
    let shards = root.sections("shard", "shard", findings);
    let shards = shards.iter().map(|section| shard::of_cluster(section, findings)).collect();
    ClusterFile {
        cluster,
        access,
        nat,
        timeouts,
        fragments,
        limits,
        policy,
        public,
        ipv6,
        pools,
        shards,
    }
}

/// Reads the keys of one machine.
fn machine(root: &Section<'_>, findings: &mut Findings<'_>) -> (NodeSettings, Vec<WorkerSettings>) {
    let mut node = node::read(&root.section("node", "node", findings), findings);
    let collectors = root.sections("collector", "collector", findings);
    node.collectors = collectors.iter().map(|it| collector::read(it, findings)).collect();
    collector::check_twice(&node.collectors, findings);
    if node.session_log != SessionLogSetting::None && node.collectors.is_empty() {
        let message = "only collectors get sessions, and there is none";
        findings.error("node.session_log", message, "add a [[collector]], or remove it");
    }
    let workers = root.sections("worker", "worker", findings);
    (node, workers.iter().map(|section| worker::read(section, findings)).collect())
}

/// The service that all homes get, whichever worker serves them.
struct Service {
    access: Access,
    nat: NatSettings,
    timeouts: TimeoutSettings,
    fragments: Fragments,
    limits: LimitSettings,
    policy: PolicySettings,
    public: PublicSettings,
    ipv6: Ipv6Settings,
}

fn service(root: &Section<'_>, findings: &mut Findings<'_>) -> Service {
    let access = access::read(&root.section("access", "access", findings), findings);
    Service {
        nat: nat::read(&root.section("nat", "nat", findings), access.mode, findings),
        access,
        timeouts: timeouts::read(&root.section("timeouts", "timeouts", findings), findings),
        fragments: fragments::read(&root.section("fragments", "fragments", findings), findings),
        limits: limits::read(&root.section("limits", "limits", findings), findings),
        policy: policy::read(root, findings),
        public: public::read(&root.section("public", "public", findings), findings),
        ipv6: ipv6::read(root, findings),
    }
}

//! From etcd's values to the settings of a node's roles.

use weir_config::{ClusterShard, Desired, ShardSettings};
use weir_etcd::NodeRecord;
use weir_map::{BootId, ShardId};
use weir_replication::command::ShardSetup;
use weir_roles::{DesiredShard, NodeWorker, RolesInput};
use weir_stream::{Fingerprint, FingerprintPart};

/// Returns the cluster's file as roles take it.
pub fn desired_input(desired: &Desired) -> RolesInput {
    let shards = desired.shards.iter().filter_map(|shard| desired_shard(desired, shard));
    RolesInput::Desired { shards: shards.collect(), fingerprint: fingerprint(desired) }
}

fn desired_shard(desired: &Desired, shard: &ClusterShard) -> Option<DesiredShard> {
    let access = shard.endpoint.or(shard.steer)?;
    let access6 = shard.access6();
    let awaits_replicas = desired.is_committed(shard);
    let shard = ShardSettings {
        id: shard.id,
        endpoint: shard.endpoint,
        endpoint6: shard.endpoint6,
        subscribers: shard.subscribers.clone(),
        public: shard.public.clone(),
        public6: shard.public6.clone(),
        subscribers_max: shard.subscribers_max,
        worker: 0,
    };
    let nat = nat_shard(&shard, desired.nat.enabled);
    let setup = ShardSetup { engine: engine_shard(&shard), nat, awaits_replicas };
    Some(DesiredShard { id: ShardId(shard.id), access, access6, setup })
}

/// Returns a shard as the data path knows it.
pub fn engine_shard(shard: &ShardSettings) -> weir_engine::ShardConfig {
    weir_engine::ShardConfig {
        id: ShardId(shard.id),
        endpoint: shard.endpoint.map(u32::from),
        endpoint6: shard.endpoint6.map(u128::from),
        subscribers: shard.subscribers.clone(),
    }
}

/// Returns a shard as the NAT knows it. Without translation the homes' own addresses stand where
/// public ones would.
pub fn nat_shard(shard: &ShardSettings, is_translating: bool) -> weir_nat::NatShardConfig {
    let has_public = is_translating || !shard.public.is_empty();
    weir_nat::NatShardConfig {
        id: ShardId(shard.id),
        public: if has_public { shard.public.clone() } else { shard.subscribers.clone() },
        public6: shard.public6.clone(),
        subscribers_max: shard.subscribers_max,
    }
}

/// Returns the workers that state where they are reached.
pub(crate) fn workers_of(record: &NodeRecord) -> Vec<NodeWorker> {
    let workers = record.workers.iter().filter_map(|worker| {
        let boot_id = BootId::try_from(worker.boot_id.clone()).ok()?;
        let replication = worker.replication.filter(|it| !it.ip().is_unspecified())?;
        Some(NodeWorker { index: worker.index, boot_id, replication })
    });
    workers.collect()
}

/// Returns the fingerprint that sessions between workers compare.
pub fn fingerprint(desired: &Desired) -> Fingerprint {
    let digests = desired.fingerprint();
    Fingerprint::default()
        .with(FingerprintPart::Prefixes, digests.prefixes)
        .with(FingerprintPart::BlockSize, digests.block_size)
        .with(FingerprintPart::Lanes, digests.lanes)
        .with(FingerprintPart::Shards, digests.shards)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const FILE: &str = r#"[cluster]
name = "edge"
replicas = 1

[access]
subscribers = ["10.200.0.0/16"]

[[shard]]
id = 1
endpoint = "10.101.0.1"
public = ["198.51.100.0/28"]
"#;

    /// A cluster `edge` of one shard.
    pub(crate) fn desired() -> Desired {
        weir_config::parse_cluster(FILE, "t.toml").unwrap().0
    }

    #[test]
    fn worker_with_a_wrong_boot_id_or_address_in_its_record_is_left_out() {
        let record = |boot_id: &str, replication: &str| -> NodeRecord {
            let text = format!(
                r#"{{"boot_id":"b","version":"0","capacity":1,"workers":[
                {{"index":0,"boot_id":"{boot_id}","weight":1,"replication":{replication}}}]}}"#
            );
            serde_json::from_str(&text).unwrap()
        };
        let life = BootId(7).to_string();
        let count = |boot_id, replication| workers_of(&record(boot_id, replication)).len();
        assert_eq!(count(&life, r#""10.1.0.1:7473""#), 1);
        assert_eq!(count(&life, r#""0.0.0.0:7473""#), 0);
        assert_eq!(count(&life, "null"), 0);
        assert_eq!(count("7", r#""10.1.0.1:7473""#), 0);
    }

    #[test]
    fn without_translation_homes_addresses_stand_where_public_ones_would() {
        let net = |text: &str| text.parse().unwrap();
        let shard = |public: &[&str]| ShardSettings {
            id: 1,
            endpoint: None,
            endpoint6: None,
            subscribers: vec![net("10.200.0.0/16")],
            public: public.iter().copied().map(net).collect(),
            public6: Vec::new(),
            subscribers_max: 10,
            worker: 0,
        };
        assert_eq!(nat_shard(&shard(&[]), false).public, [net("10.200.0.0/16")]);
        assert!(nat_shard(&shard(&[]), true).public.is_empty());
        let public = "198.51.100.0/28";
        assert_eq!(nat_shard(&shard(&[public]), false).public, [net(public)]);
    }
}

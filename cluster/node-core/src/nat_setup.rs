//! Turns the configuration file into the configuration of one worker's NAT.

use std::collections::BTreeMap;

use weir_config::{AccessSetting, Config, DelegationMode, GroupSettings, ShardSettings};
use weir_engine::CommitLimits;
use weir_nat::{
    ClassSettings, Delegation, Filtering, FlowClass, HomeAllowance, NatConfig, Pooling, SessionLog,
    ShardRoom, Timeouts,
};

use crate::setup::nat_shard;

/// Room that a worker of a cluster has, beyond the settings of its file.
#[derive(Clone, Copy, Debug)]
pub struct ClusterRoom {
    pub shards: ShardRoom,
    /// Copies of a shard on other workers.
    pub replicas: u8,
    /// Workers of other nodes that it speaks with.
    pub peers: usize,
    /// UDP port of copies.
    pub replication_port: u16,
    /// Limits of packets that wait for copies; without limits none ever waits.
    pub commit: Option<CommitLimits>,
}

/// Returns the shards of a worker, in file order.
pub fn shards_of(config: &Config, worker: usize) -> impl Iterator<Item = &ShardSettings> {
    config.shards.iter().filter(move |shard| shard.worker == worker)
}

/// Returns the configuration of the NAT of worker `worker`, with its shards in file order. `seed`
/// makes its hashes and ports hard to guess.
pub fn nat_config(
    config: &Config,
    worker: usize,
    room: Option<&ClusterRoom>,
    seed: [u64; 4],
) -> NatConfig {
    let (nat, limits) = (&config.nat, &config.limits);
    let tables = NatConfig {
        enabled: nat.enabled,
        filtering: match nat.filtering {
            weir_config::FilteringSetting::AddressAndPortDependent => {
                Filtering::AddressAndPortDependent
            }
            weir_config::FilteringSetting::AddressDependent => Filtering::AddressDependent,
            weir_config::FilteringSetting::EndpointIndependent => Filtering::EndpointIndependent,
        },
        port_block: nat.port_block,
        ports_per_subscriber: nat.ports_per_subscriber,
        flows_max: nat.flows_max,
        sessions_max: nat.sessions_max,
        new_flows_per_sec: limits.new_flows_per_sec,
        new_flows_burst: limits.new_flows_burst,
        new_homes_per_sec: limits.new_homes_per_sec,
        timeouts: timeouts(&config.timeouts),
        classes: classes(config),
        quarantine_sec: nat.quarantine_sec,
        udp_inbound_refresh: nat.udp_inbound_refresh,
        inbound_sessions_max: nat.inbound_sessions_max,
        pooling: match nat.pooling {
            weir_config::PoolingSetting::Hard => Pooling::Hard,
            weir_config::PoolingSetting::Soft => Pooling::Soft,
        },
        delegation: delegation(config, worker),
        gre_key_identifies_home: config.access.gre_key == weir_config::GreKey::Subscriber,
        subscribers: config.access.subscribers.clone(),
        subscribers6: config.access.subscribers6.clone(),
        shards: shards_of(config, worker).map(|shard| nat_shard(shard, nat.enabled)).collect(),
        seed,
        replicas: room.map_or(0, |room| room.replicas),
        room: room.map(|room| room.shards).unwrap_or_default(),
        session_log: match config.node.session_log {
            weir_config::SessionLogSetting::None => SessionLog::None,
            weir_config::SessionLogSetting::Mappings => SessionLog::Mappings,
            weir_config::SessionLogSetting::Destinations => SessionLog::Destinations,
        },
        ..NatConfig::default()
    };
    let flows = limits.flows.or(nat.flows_per_subscriber);
    let mut tables = NatConfig {
        flows_per_subscriber: flows.unwrap_or_else(|| share(HOME_FLOWS, tables.flows_max)),
        sessions_per_subscriber: limits
            .sessions
            .unwrap_or_else(|| share(HOME_SESSIONS, tables.sessions_max())),
        ..tables
    };
    // The numbers that the rules have for the groups.
    let of_groups = (1..).zip(&config.policy.groups);
    let allowances = of_groups.map(|(group, settings)| (group, allowance(&tables, settings)));
    tables.group_allowances = allowances.collect();
    tables
}

/// Returns how homes get their IPv6 addresses, if the worker has IPv6.
fn delegation(config: &Config, worker: usize) -> Option<Delegation> {
    config.workers[worker].internet.ipv6.as_ref()?;
    let ipv6 = &config.ipv6;
    Some(match (config.access.mode, ipv6.delegation) {
        (AccessSetting::Plain, _) => Delegation::Prefix { home_length: ipv6.home_length6 },
        (AccessSetting::Gre, DelegationMode::Claim) => {
            Delegation::Claim { hold_sec: ipv6.claim_hold_sec }
        }
        (AccessSetting::Gre, DelegationMode::Static) => Delegation::Static,
    })
}

/// Returns what the flows of each class get.
fn classes(config: &Config) -> BTreeMap<FlowClass, ClassSettings> {
    let classes = config.policy.classes.iter().filter_map(|class| {
        let timeouts = timeouts(&config.timeouts.with(&class.timeouts));
        Some((FlowClass::new(class.id)?, ClassSettings { timeouts, dscp: class.dscp }))
    });
    classes.collect()
}

/// Returns what a home of a group may have.
fn allowance(all: &NatConfig, group: &GroupSettings) -> HomeAllowance {
    let limits = &group.limits;
    HomeAllowance {
        ports: limits.ports_per_subscriber.unwrap_or(all.ports_per_subscriber),
        flows: limits.flows.unwrap_or(all.flows_per_subscriber),
        sessions: limits.sessions.unwrap_or(all.sessions_per_subscriber),
        new_flows_per_sec: limits.new_flows_per_sec.unwrap_or(all.new_flows_per_sec),
        new_flows_burst: limits.new_flows_burst.unwrap_or(all.new_flows_burst),
    }
}

/// Flows and further sessions of a home, unless the file says how many: more than a house needs,
/// whatever it does.
const HOME_FLOWS: u32 = 16_384;
const HOME_SESSIONS: u32 = 4096;

/// Limits a home to a small part of a table, too, so that it takes many homes to fill the table.
fn share(limit: u32, table: u32) -> u32 {
    limit.min((table / 16).max(16))
}

fn timeouts(seconds: &weir_config::TimeoutSettings) -> Timeouts {
    Timeouts {
        tcp_syn_sent: seconds.tcp_syn_sent_sec,
        tcp_syn_received: seconds.tcp_syn_received_sec,
        tcp_established: seconds.tcp_established_sec,
        tcp_fin_wait: seconds.tcp_fin_wait_sec,
        tcp_close_wait: seconds.tcp_close_wait_sec,
        tcp_last_ack: seconds.tcp_last_ack_sec,
        tcp_time_wait: seconds.tcp_time_wait_sec,
        tcp_close: seconds.tcp_close_sec,
        tcp_reset: seconds.tcp_reset_sec,
        udp: seconds.udp_sec,
        udp_stream: seconds.udp_stream_sec,
        icmp: seconds.icmp_sec,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A node of one worker and one shard, with further lines in its file.
    pub(crate) fn config(lines: &str) -> Config {
        let text = format!(
            "[[worker]]\ncore = 1\n\
             access = {{ device = \"net_null0\", address = \"10.1.0.1/24\", gateway = \"10.1.0.2\" }}\n\
             internet = {{ device = \"net_null1\", address = \"10.2.0.1/24\", gateway = \"10.2.0.2\" }}\n\
             [access]\nsubscribers = [\"10.200.0.0/16\"]\n\
             [[shard]]\nid = 1\nendpoint = \"10.100.0.1\"\npublic = [\"203.0.113.0/28\"]\n{lines}"
        );
        weir_config::parse(&text, "t.toml").expect(lines).0
    }

    fn nat(lines: &str) -> NatConfig {
        nat_config(&config(lines), 0, None, [0; 4])
    }

    #[test]
    fn one_home_gets_a_small_share_of_every_table_unless_the_file_says_otherwise() {
        let limits = |nat: &NatConfig| (nat.flows_per_subscriber, nat.sessions_per_subscriber);
        assert_eq!(limits(&nat("")), (16_384, 4096));
        assert_eq!(limits(&nat("[nat]\nflows_max = 32_000\n")), (2000, 2000));
        let few = "[nat]\nflows_max = 32_000\nsessions_max = 1600\n";
        assert_eq!(limits(&nat(few)), (2000, 100));
        assert_eq!(limits(&nat("[nat]\nflows_per_subscriber = 99\n")), (99, 4096));
        let both = nat(
            "[limits]\nflows = 5000\nsessions = 5000\nnew_flows_per_sec = 7\nnew_flows_burst = 9\nnew_homes_per_sec = 3\n",
        );
        assert_eq!(limits(&both), (5000, 5000));
        assert_eq!((both.new_flows_per_sec, both.new_flows_burst), (7, 9));
        assert_eq!(both.new_homes_per_sec, Some(3));
        assert_eq!(nat("").new_homes_per_sec, None, "a share of the shard's homes");
    }

    #[test]
    fn class_has_its_own_timers_and_those_of_all_flows_for_the_rest() {
        let both = nat("[timeouts]\nicmp_sec = 90\n\
             [[class]]\nid = 2\nname = \"dns\"\ndscp = \"af21\"\ntimeouts = { udp_sec = 20 }\n");
        let class = both.classes[&FlowClass::new(2).unwrap()];
        assert_eq!((class.dscp, class.timeouts.udp, class.timeouts.icmp), (Some(18), 20, 90));
        assert_eq!((both.classes.len(), both.timeouts.udp), (1, 300));
    }

    #[test]
    fn group_has_its_own_limits_and_those_of_all_homes_for_the_rest() {
        let both = nat("[limits]\nflows = 5000\nnew_flows_burst = 9\n\
             [[group]]\nname = \"business\"\nsubscribers = \"10.200.16.0/20\"\n\
             limits = { ports_per_subscriber = 4096, flows = 20_000 }\n\
             [[group]]\nname = \"other\"\nsubscribers = \"10.200.32.0/20\"\n");
        let of = |group| {
            let HomeAllowance { ports, flows, new_flows_burst, .. } = both.group_allowances[&group];
            (ports, flows, new_flows_burst)
        };
        assert_eq!([of(1), of(2)], [(4096, 20_000, 9), (2048, 5000, 9)]);
    }
}

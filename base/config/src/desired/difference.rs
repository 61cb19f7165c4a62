//! The changes from one desired state to another, in an operator's words, and the effect of each
//! change on live flows.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::{Map, Value};

use crate::cluster_types::{ClusterShard, Commit};
use crate::desired::Desired;
use crate::desired::delegation_difference::delegation_difference;
use crate::desired::policy_difference::policy_difference;
use crate::desired::public_difference::public_difference;
use crate::read::address::overlap;
use crate::types::Access;

/// One change. Displays as `shard 12: public prefix 203.0.113.16/28 added (flows go on)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingChange {
    /// The key or the shard.
    pub subject: String,
    /// Description of the change.
    pub what: String,
    pub effect: Effect,
    /// Whether running nodes apply the change only when they restart.
    pub is_for_restarts: bool,
}

/// The effect of a change on the flows that are live when it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// No effect.
    None,
    /// Live flows continue; new flows follow the new rule.
    NewFlows,
    /// Flows that have been idle for longer than the new timer end.
    IdleFlows,
    /// Live flows that a rule with `rematch` refuses end.
    Rematch,
    /// The flows of static mappings that are removed or changed end.
    EndsStatic,
    /// Flows on the quarantined addresses end.
    EndsQuarantined,
    /// Flows on public addresses that the shard loses get no answers.
    StrandsPrefix { shard: u32, prefix: IpNet },
    /// Flows of homes that are not served after the change end.
    StrandsHomes { prefix: IpNet },
    /// All flows of the shard lose their path to it.
    StrandsShard { shard: u32 },
    /// The IPv6 flows of the shard lose their path to it.
    StrandsIpv6 { shard: u32 },
    /// All flows of the cluster end.
    EndsAll,
    /// A node applies the change when it restarts, and replicates only with nodes that have applied
    /// it, too.
    EndsOnRestart,
}

impl Effect {
    /// Whether the change loses live flows.
    pub fn is_stranding(&self) -> bool {
        // A rule with `rematch` says itself that it ends flows.
        !matches!(self, Self::None | Self::NewFlows | Self::IdleFlows | Self::Rematch)
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("flows go on"),
            Self::NewFlows => f.write_str("for new flows"),
            Self::IdleFlows => f.write_str("ends flows that are idle for longer"),
            Self::Rematch => {
                f.write_str("for new flows, and ends those that a rule with rematch refuses")
            }
            Self::EndsStatic => f.write_str("ends flows of mappings that are removed or changed"),
            Self::EndsQuarantined => f.write_str("ends flows on these addresses"),
            Self::StrandsPrefix { shard, prefix } => {
                write!(f, "strands the flows of {prefix} in shard {shard}")
            }
            Self::StrandsHomes { prefix } => {
                write!(f, "strands the flows of the homes in {prefix}")
            }
            Self::StrandsShard { shard } => write!(f, "strands all flows of shard {shard}"),
            Self::StrandsIpv6 { shard } => write!(f, "strands the IPv6 flows of shard {shard}"),
            Self::EndsAll => f.write_str("ends all flows"),
            Self::EndsOnRestart => {
                f.write_str("taken by each node when it restarts, and its flows end then")
            }
        }
    }
}

impl fmt::Display for SettingChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let when = if self.is_for_restarts { "; each node takes it when it restarts" } else { "" };
        write!(f, "{}: {} ({}{when})", self.subject, self.what, self.effect)
    }
}

/// Returns the differences in `new`: keys in the order of the file, then shards by number, then
/// sets, groups, rules, classes, source pools, public addresses and delegations. Empty exactly if
/// both are equal.
pub fn difference(old: &Desired, new: &Desired) -> Vec<SettingChange> {
    let mut changes = Vec::new();
    keys(old, new, &mut changes);
    homes_of_access(&old.access, &new.access, &mut changes);
    for shard in &old.shards {
        match new.shard(shard.id) {
            Some(changed) if changed != shard => shard_changes(shard, changed, new, &mut changes),
            Some(_) => {}
            None => changes.push(SettingChange {
                subject: format!("shard {}", shard.id),
                what: format!("removed{}", whereabouts(public_prefixes(shard).next(), new)),
                effect: Effect::StrandsShard { shard: shard.id },
                is_for_restarts: false,
            }),
        }
    }
    added_shards(old, new, &mut changes);
    changes.extend(policy_difference(&old.policy, &new.policy));
    changes.extend(public_difference(&old.public, &new.public));
    changes.extend(delegation_difference(&old.ipv6, &new.ipv6));
    changes
}

/// The effect of a key's new value on live flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    Unnoticed,
    NewFlows,
    EndsAll,
    EndsOnRestart,
    /// A timer: a lower one ends flows, a higher one none.
    Timer,
    /// A switch that keeps flows alive while it is on.
    KeepsAlive,
}

/// Returns the rule of a key that is no list; `None` if there is no such key.
fn rule(section: &str, name: &str) -> Option<Rule> {
    let rule = match (section, name) {
        ("cluster", "name") => Rule::EndsAll,
        ("cluster", "replicas" | "balance" | "max_routes" | "max_next_hops") => Rule::Unnoticed,
        ("cluster", "commit" | "commit_replicas") => Rule::NewFlows,
        ("cluster", "commit_timeout_ms" | "commit_on_timeout") => Rule::Unnoticed,
        // Workers with different ports do not replicate with each other.
        ("cluster", "replication_port") => Rule::EndsOnRestart,
        // These keys determine the identity of a home, and which port belongs to which writer.
        ("access", "mode" | "gre_key") => Rule::EndsAll,
        ("nat", "enabled" | "port_block") => Rule::EndsAll,
        ("nat", "udp_inbound_refresh") => Rule::KeepsAlive,
        (
            "nat",
            "filtering"
            | "ports_per_subscriber"
            | "flows_max"
            | "sessions_max"
            | "flows_per_subscriber"
            | "quarantine_sec"
            | "pooling"
            | "inbound_sessions_max"
            | "mss_clamp",
        ) => Rule::NewFlows,
        ("nat", "forward_source_routes") => Rule::Unnoticed,
        ("timeouts", "profile") => Rule::Unnoticed,
        ("timeouts", name) if name.ends_with("_sec") => Rule::Timer,
        ("fragments", "datagrams_max" | "held_max" | "held_per_datagram_max" | "timeout_sec") => {
            Rule::Unnoticed
        }
        (
            "limits",
            "flows" | "sessions" | "new_flows_per_sec" | "new_flows_burst" | "new_homes_per_sec"
            | "redirects_per_sec",
        ) => Rule::NewFlows,
        (
            "limits",
            "fragments_percent"
            | "icmp_errors_per_sec"
            | "icmp_errors_to_homes"
            | "icmp_errors_to_internet"
            | "worker_icmp_errors_per_sec"
            | "slow_path_packets_per_sec",
        ) => Rule::Unnoticed,
        ("ipv6", "delegation") => Rule::NewFlows,
        ("ipv6", "claim_hold_sec") => Rule::Unnoticed,
        // Workers that tell homes apart in different ways do not replicate with each other.
        ("ipv6", "home_length6") => Rule::EndsOnRestart,
        _ => return None,
    };
    Some(rule)
}

impl Rule {
    fn effect(self, old: &Value, new: &Value) -> Effect {
        match self {
            Self::Unnoticed => Effect::None,
            Self::NewFlows => Effect::NewFlows,
            Self::EndsAll => Effect::EndsAll,
            Self::EndsOnRestart => Effect::EndsOnRestart,
            Self::Timer if new.as_u64() < old.as_u64() => Effect::IdleFlows,
            Self::KeepsAlive if *new == Value::Bool(false) => Effect::IdleFlows,
            Self::Timer | Self::KeepsAlive => Effect::None,
        }
    }
}

fn keys(old: &Desired, new: &Desired, changes: &mut Vec<SettingChange>) {
    let sections = [
        ("cluster", object(&old.cluster), object(&new.cluster)),
        ("access", object(&old.access), object(&new.access)),
        ("nat", object(&old.nat), object(&new.nat)),
        ("timeouts", object(&old.timeouts), object(&new.timeouts)),
        ("fragments", object(&old.fragments), object(&new.fragments)),
        ("limits", object(&old.limits), object(&new.limits)),
        ("ipv6", object(&old.ipv6), object(&new.ipv6)),
    ];
    for (section, old, new) in sections {
        section_changes(section, [&old, &old, &new], changes);
    }
}

/// Adds the keys of a section that differ. `values`: those of the start, the former and the new
/// ones.
pub(crate) fn section_changes(
    section: &str,
    values: [&Map<String, Value>; 3],
    changes: &mut Vec<SettingChange>,
) {
    let [_, old, new] = values;
    let fresh = new.keys().filter(|name| !old.contains_key(*name));
    for name in old.keys().chain(fresh) {
        let [start, old, new] = values.map(|keys| keys.get(name).unwrap_or(&Value::Null));
        // Lists have differences of their own.
        if old == new || old.is_array() || new.is_array() {
            continue;
        }
        let rule = rule(section, name)
            .unwrap_or_else(|| panic!("{section}.{name} has no rule for live flows"));
        let effect = rule.effect(old, new);
        changes.push(SettingChange {
            subject: format!("{section}.{name}"),
            what: format!("{} -> {}", words(old), words(new)),
            effect,
            is_for_restarts: needs_restart(section, name, start, new) && effect != Effect::EndsAll,
        });
    }
}

/// True if a node that began with the value `start` takes `new` only when it restarts. All other
/// keys are taken while packets pass.
fn needs_restart(section: &str, name: &str, start: &Value, new: &Value) -> bool {
    match (section, name) {
        // The packets and changes that wait have their room.
        ("cluster", name) => name.starts_with("commit"),
        // Tables have their size.
        ("nat", "sessions_max") => true,
        ("fragments", name) => name != "timeout_sec",
        ("nat", "flows_max" | "ports_per_subscriber") => new.as_u64() > start.as_u64(),
        // The remote addresses of the live sessions are counted, or they are not.
        ("nat", "filtering") => new == "address-dependent" && new != start,
        _ => false,
    }
}

pub(crate) fn object(section: &impl serde::Serialize) -> Map<String, Value> {
    match serde_json::to_value(section) {
        Ok(Value::Object(object)) => object,
        other => panic!("a section is an object: {other:?}"),
    }
}

pub(crate) fn words(value: &Value) -> String {
    match value {
        Value::Null => "not set".to_owned(),
        value => value.to_string(),
    }
}

pub(crate) fn homes<N: Copy + PartialEq + fmt::Display + Into<IpNet>>(
    old: &[N],
    new: &[N],
    subject: &str,
    changes: &mut Vec<SettingChange>,
) {
    for net in old.iter().filter(|net| !new.contains(net)) {
        let is_served = is_covered(*net, new);
        changes.push(SettingChange {
            subject: subject.to_owned(),
            what: format!("{net} removed{}", if is_served { ", its homes stay" } else { "" }),
            effect: if is_served {
                Effect::None
            } else {
                Effect::StrandsHomes { prefix: (*net).into() }
            },
            is_for_restarts: false,
        });
    }
    for net in new.iter().filter(|net| !old.contains(net)) {
        changes.push(SettingChange {
            subject: subject.to_owned(),
            what: format!("{net} added"),
            effect: Effect::None,
            is_for_restarts: false,
        });
    }
}

/// Adds the changes of the homes' prefixes, of both families.
pub(crate) fn homes_of_access(old: &Access, new: &Access, changes: &mut Vec<SettingChange>) {
    homes(&old.subscribers, &new.subscribers, "access.subscribers", changes);
    homes(&old.subscribers6, &new.subscribers6, "access.subscribers6", changes);
}

fn shard_changes(
    old: &ClusterShard,
    new: &ClusterShard,
    desired: &Desired,
    changes: &mut Vec<SettingChange>,
) {
    let subject = format!("shard {}", old.id);
    let strands = Effect::StrandsShard { shard: old.id };
    let change = |what: String, effect| {
        let subject = subject.clone();
        SettingChange { subject, what, effect, is_for_restarts: false }
    };
    // Without IPv6 before, there are no flows of it.
    let strands6 = match old.access6() {
        Some(_) => Effect::StrandsIpv6 { shard: old.id },
        None => Effect::None,
    };
    let strands_over6 = if old.endpoint6.is_some() { strands } else { Effect::None };
    let ipv4 = |address: Option<std::net::Ipv4Addr>| address.map(IpAddr::from);
    let ipv6 = |address: Option<std::net::Ipv6Addr>| address.map(IpAddr::from);
    for (name, old, new, effect) in [
        ("endpoint", ipv4(old.endpoint), ipv4(new.endpoint), strands),
        ("endpoint6", ipv6(old.endpoint6), ipv6(new.endpoint6), strands_over6),
        ("steer", ipv4(old.steer), ipv4(new.steer), strands),
        ("steer6", ipv6(old.steer6), ipv6(new.steer6), strands6),
    ] {
        if old != new {
            let words = |address: Option<IpAddr>| {
                address.map_or_else(|| "none".to_owned(), |address| address.to_string())
            };
            changes.push(change(format!("{name} {} -> {}", words(old), words(new)), effect));
        }
    }
    let (before, after): (Vec<_>, Vec<_>) =
        (public_prefixes(old).collect(), public_prefixes(new).collect());
    for net in before.iter().filter(|net| !after.contains(net)) {
        let effect = match is_covered(*net, &after) {
            true => Effect::None,
            false => Effect::StrandsPrefix { shard: old.id, prefix: *net },
        };
        let stays = match effect {
            Effect::None => ", its addresses stay".to_owned(),
            _ => whereabouts(Some(*net), desired),
        };
        changes.push(change(format!("public prefix {net} removed{stays}"), effect));
    }
    for net in after.iter().filter(|net| !before.contains(net)) {
        changes.push(change(format!("public prefix {net} added"), Effect::None));
    }
    if old.subscribers_max != new.subscribers_max {
        let what = format!("subscribers_max {} -> {}", old.subscribers_max, new.subscribers_max);
        changes.push(change(what, Effect::NewFlows));
    }
    if old.commit != new.commit {
        let what = format!("commit {} -> {}", commit(old), commit(new));
        let is_for_restarts = true;
        changes.push(SettingChange { is_for_restarts, ..change(what, Effect::NewFlows) });
    }
    homes(&old.subscribers, &new.subscribers, &format!("{subject} subscribers"), changes);
}

/// Returns the shard's setting of `commit`, as the file writes it.
fn commit(shard: &ClusterShard) -> &'static str {
    match shard.commit {
        None => "as the cluster",
        Some(Commit::Async) => "async",
        Some(Commit::Replicated) => "replicated",
    }
}

/// Adds one change for each run of new shards: a pool may grow by hundreds.
fn added_shards(old: &Desired, new: &Desired, changes: &mut Vec<SettingChange>) {
    let added: Vec<&ClusterShard> =
        new.shards.iter().filter(|shard| old.shard(shard.id).is_none()).collect();
    for run in added.chunk_by(|one, next| next.id - one.id == 1) {
        let subject = match run {
            [shard] => format!("shard {}", shard.id),
            [first, .., last] => format!("shards {}..={}", first.id, last.id),
            [] => continue,
        };
        let public: Vec<IpNet> = run.iter().flat_map(|shard| public_prefixes(shard)).collect();
        let what = match public[..] {
            [net] => format!("added with {net}"),
            _ => format!("added with {} public prefixes", public.len()),
        };
        changes.push(SettingChange { subject, what, effect: Effect::None, is_for_restarts: false });
    }
}

/// Returns the public prefixes of a shard, of both families.
pub(crate) fn public_prefixes(shard: &ClusterShard) -> impl Iterator<Item = IpNet> + '_ {
    let ipv6 = shard.public6.iter().map(|net| IpNet::from(*net));
    shard.public.iter().map(|net| IpNet::from(*net)).chain(ipv6)
}

/// Describes which shard has a public prefix in the new state: a slip in a pool moves addresses
/// between shards.
fn whereabouts(public: Option<IpNet>, desired: &Desired) -> String {
    let Some(net) = public else { return String::new() };
    let has = |shard: &&ClusterShard| public_prefixes(shard).any(|held| overlap(held, net));
    match desired.shards.iter().find(has) {
        Some(holder) => format!(", {net} is in shard {} now", holder.id),
        None => String::new(),
    }
}

/// Whether every address of `net` is in `nets`, which must not overlap each other.
fn is_covered<N: Copy + Into<IpNet>>(net: N, nets: &[N]) -> bool {
    let net: IpNet = net.into();
    // Parts of `net` have at least its length.
    let size = |part: IpNet| 1_u128 << (net.max_prefix_len() - part.prefix_len()).min(127);
    let nets = nets.iter().map(|held| (*held).into()).filter(|held: &IpNet| overlap(*held, net));
    let held: u128 = nets.map(|held| size(if held.contains(&net) { net } else { held })).sum();
    held == size(net)
}

#[cfg(test)]
mod tests {
    use ipnet::Ipv4Net;

    use super::*;
    use crate::file_kind::FileKind;
    use crate::key_table::KEYS;

    #[test]
    fn every_key_of_the_cluster_has_a_rule() {
        let lists = ["access.subscribers", "access.subscribers6"];
        let sections = ["cluster", "access", "nat", "timeouts", "fragments", "limits", "ipv6"];
        for key in KEYS.iter().filter(|key| key.files().has(FileKind::Cluster)) {
            let path = format!("{}.{}", key.section, key.name);
            let is_value = sections.contains(&key.section) && !lists.contains(&path.as_str());
            assert_eq!(rule(key.section, key.name).is_some(), is_value, "{path}");
        }
    }

    #[test]
    fn a_prefix_is_covered_by_its_parts_and_by_what_contains_it() {
        let net = |text: &str| text.parse::<Ipv4Net>().unwrap();
        let whole = net("203.0.113.0/28");
        let (low, high) = (net("203.0.113.0/29"), net("203.0.113.8/29"));
        assert!(is_covered(whole, &[low, high]));
        assert!(is_covered(whole, &[net("203.0.113.0/24")]));
        assert!(!is_covered(whole, &[low]));
        assert!(!is_covered(whole, &[net("203.0.114.0/24")]));
        let net = |text: &str| text.parse::<IpNet>().unwrap();
        let halves = [net("2001:db8::/41"), net("2001:db8:80::/41")];
        assert!(is_covered(net("2001:db8::/40"), &halves));
        assert!(!is_covered(net("2001:db8::/40"), &halves[..1]));
        assert!(!is_covered(net("2001:db8::/40"), &[net("0.0.0.0/0")]));
    }
}

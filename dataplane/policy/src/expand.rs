//! From a rule to its filters.

use std::collections::HashMap;

use ipnet::Ipv4Net;
use weir_config::{
    GROUPS_MAX, LoadedSet, OriginSetting, PolicySettings, PortSpan, ProtocolSetting, RuleAddress,
    RuleSettings,
};
use weir_rules::{FlowKind, FlowKinds, FlowOrigin, GROUPS, PortRange, Prefix, RuleFilter};

use crate::error::PolicyError;

/// Most filters of all rules.
const FILTERS_MAX: u64 = 2_000_000;

// Group 0 has the homes that are in no other.
const _: () = assert!(GROUPS_MAX + 1 == GROUPS as usize);

/// What rules refer to, by name.
struct Names<'p> {
    /// The entries of the sets, merged.
    sets: HashMap<&'p str, Vec<Ipv4Net>>,
    groups: HashMap<&'p str, u8>,
}

/// Returns the filters of all rules, in the order of the rules. A rule about sets without entries
/// has none.
pub(crate) fn filters(
    policy: &PolicySettings,
    sets: &[LoadedSet],
) -> Result<Vec<RuleFilter<u32>>, PolicyError> {
    let names = Names {
        sets: sets.iter().map(|set| (set.name.as_str(), Ipv4Net::aggregate(&set.ipv4))).collect(),
        groups: group_numbers(policy).collect(),
    };
    let mut filters = Vec::new();
    for (number, rule) in policy.rules.iter().enumerate() {
        let local = names.prefixes(&rule.subscribers, rule)?;
        let remote = names.prefixes(&rule.remote, rule)?;
        let (local_ports, remote_ports) = (ports(&rule.inside_port), ports(&rule.remote_port));
        let lists = [local.len(), remote.len(), local_ports.len(), remote_ports.len()];
        let product =
            lists.iter().fold(1, |product: u64, &list| product.saturating_mul(list as u64));
        let count = product.saturating_add(filters.len() as u64);
        if count > FILTERS_MAX {
            let lists = lists.map(|list| list.to_string()).join(" x ");
            return Err(PolicyError::TooManyCombinations {
                rule: rule.name.clone(),
                count,
                max: FILTERS_MAX,
                lists,
            });
        }
        let form = RuleFilter {
            kinds: kinds(rule),
            groups: names.groups(&rule.groups),
            ..RuleFilter::all(number as u32)
        };
        for &local in &local {
            for &remote in &remote {
                for &local_ports in &local_ports {
                    filters.extend(remote_ports.iter().map(|&remote_ports| RuleFilter {
                        local,
                        remote,
                        local_ports,
                        remote_ports,
                        ..form
                    }));
                }
            }
        }
    }
    Ok(filters)
}

/// Returns the number of each group.
pub(crate) fn group_numbers(policy: &PolicySettings) -> impl Iterator<Item = (&str, u8)> {
    policy.groups.iter().map(|group| group.name.as_str()).zip(1..)
}

impl Names<'_> {
    /// Returns the addresses of a list as few prefixes; those of an absent one are all.
    fn prefixes(
        &self,
        list: &[RuleAddress],
        rule: &RuleSettings,
    ) -> Result<Vec<Prefix<u32>>, PolicyError> {
        if list.is_empty() {
            return Ok(vec![Prefix::all()]);
        }
        let set_of = |name: &str| {
            self.sets.get(name).ok_or_else(|| PolicyError::SetNotLoaded {
                rule: rule.name.clone(),
                set: name.to_owned(),
            })
        };
        let mut nets = Vec::new();
        for address in list {
            match address {
                RuleAddress::Net(net) => nets.push(*net),
                RuleAddress::Set(name) => nets.extend(set_of(name)?),
            }
        }
        // The entries of one set are merged already.
        if !matches!(list, [RuleAddress::Set(_)]) {
            nets = Ipv4Net::aggregate(&nets);
        }
        Ok(nets.into_iter().map(prefix).collect())
    }

    /// Returns the groups of a list bit by bit; all, if it is absent.
    fn groups(&self, list: &[String]) -> u16 {
        match list.is_empty() {
            true => u16::MAX,
            false => list.iter().fold(0, |bits, name| bits | 1 << self.groups[name.as_str()]),
        }
    }
}

pub(crate) fn prefix(net: Ipv4Net) -> Prefix<u32> {
    Prefix::new(net.network().into(), net.prefix_len())
}

/// Returns the ports of a list as few ranges; those of an absent one are all.
fn ports(list: &[PortSpan]) -> Vec<PortRange> {
    if list.is_empty() {
        return vec![PortRange::ALL];
    }
    let mut sorted = list.to_vec();
    sorted.sort_unstable();
    let mut ranges: Vec<PortRange> = Vec::new();
    for PortSpan { first, last } in sorted {
        match ranges.last_mut() {
            Some(before) if u32::from(first) <= u32::from(before.last) + 1 => {
                before.last = before.last.max(last);
            }
            _ => ranges.push(PortRange { first, last }),
        }
    }
    ranges
}

fn kinds(rule: &RuleSettings) -> FlowKinds {
    let origins: &[FlowOrigin] = match rule.from {
        OriginSetting::Home => &[FlowOrigin::Home],
        OriginSetting::Internet => &[FlowOrigin::Internet],
        OriginSetting::Any => &[FlowOrigin::Home, FlowOrigin::Internet],
    };
    let all = [ProtocolSetting::Tcp, ProtocolSetting::Udp, ProtocolSetting::Icmp];
    let protocols = if rule.protocol.is_empty() { &all[..] } else { &rule.protocol[..] };
    let kinds = origins.iter().flat_map(|&origin| {
        protocols.iter().filter_map(move |&protocol| FlowKind::new(origin, number(protocol)))
    });
    kinds.collect()
}

/// Returns the number of an IP protocol.
pub(crate) fn number(protocol: ProtocolSetting) -> u8 {
    match protocol {
        ProtocolSetting::Tcp => 6,
        ProtocolSetting::Udp => 17,
        ProtocolSetting::Icmp => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_that_overlap_or_adjoin_are_one_range() {
        let span = |(first, last)| PortSpan { first, last };
        let merged = |list: &[(u16, u16)]| {
            let list: Vec<PortSpan> = list.iter().copied().map(span).collect();
            ports(&list).iter().map(|it| (it.first, it.last)).collect::<Vec<_>>()
        };
        assert_eq!(merged(&[]), [(0, 65535)]);
        assert_eq!(merged(&[(90, 99), (80, 89), (25, 25), (85, 95)]), [(25, 25), (80, 99)]);
        assert_eq!(merged(&[(65535, 65535), (0, 65534)]), [(0, 65535)]);
    }
}

//! From a rule to its filters.

use std::collections::HashMap;

use weir_config::{
    GROUPS_MAX, LoadedSet, OriginSetting, PolicySettings, PortSpan, ProtocolSetting, RuleAddress,
    RuleSettings,
};
use weir_rules::{FlowKind, FlowKinds, FlowOrigin, GROUPS, PortRange, Prefix, RuleFilter};

use crate::error::PolicyError;
use crate::family::{FamilyAddress, Filters};

/// Most filters of all rules, of both families.
const FILTERS_MAX: u64 = 2_000_000;

// Group 0 has the homes that are in no other.
const _: () = assert!(GROUPS_MAX + 1 == GROUPS as usize);

/// What rules refer to, by name.
struct Names<'p> {
    /// With merged entries.
    sets: HashMap<&'p str, LoadedSet>,
    groups: HashMap<&'p str, u8>,
}

/// Both ends of the flows of a rule in one family, as few prefixes; all of an absent list. Empty:
/// no address of the list is of this family.
struct RuleEnds<A> {
    local: Vec<Prefix<A>>,
    remote: Vec<Prefix<A>>,
}

/// Returns the filters of all rules, in the order of the rules. A rule has filters in each family
/// of which it has both ends; a rule that gives its flows addresses of IPv4 in that family alone. A
/// rule about sets without entries has none.
pub(crate) fn filters(policy: &PolicySettings, sets: &[LoadedSet]) -> Result<Filters, PolicyError> {
    let names = Names {
        sets: sets.iter().map(|set| (set.name.as_str(), merged(set))).collect(),
        groups: group_numbers(policy).collect(),
    };
    let mut filters = Filters::default();
    for (number, rule) in (0..).zip(&policy.rules) {
        let (ipv4, ipv6) = (names.ends::<u32>(rule)?, names.ends::<u128>(rule)?);
        check_families(rule, &ipv4, &ipv6)?;
        let before = filters.ipv6.len();
        expand(&names, (number, rule), ipv4, &mut filters.ipv4, before)?;
        if !is_about_ipv4_alone(rule) {
            let before = filters.ipv4.len();
            expand(&names, (number, rule), ipv6, &mut filters.ipv6, before)?;
        }
    }
    Ok(filters)
}

/// Whether a rule gives its flows an address of IPv4, as IPv6 is not translated.
pub(crate) fn is_about_ipv4_alone(rule: &RuleSettings) -> bool {
    rule.source_pool.is_some() || rule.to.is_some()
}

fn merged(set: &LoadedSet) -> LoadedSet {
    LoadedSet {
        name: set.name.clone(),
        ipv4: u32::merged(&set.ipv4),
        ipv6: u128::merged(&set.ipv6),
    }
}

/// Refuses a rule with the homes of one family and the remotes of the other.
fn check_families(
    rule: &RuleSettings,
    ipv4: &RuleEnds<u32>,
    ipv6: &RuleEnds<u128>,
) -> Result<(), PolicyError> {
    let families = |of_ipv4: bool, of_ipv6: bool| match (of_ipv4, of_ipv6) {
        (true, false) => Some(u32::NAME),
        (false, true) => Some(u128::NAME),
        _ => None,
    };
    let subscribers = families(!ipv4.local.is_empty(), !ipv6.local.is_empty());
    let remotes = families(!ipv4.remote.is_empty(), !ipv6.remote.is_empty());
    match subscribers.zip(remotes) {
        Some((subscribers, remotes)) if subscribers != remotes => {
            Err(PolicyError::TwoFamilies { rule: rule.name.clone(), subscribers, remotes })
        }
        _ => Ok(()),
    }
}

/// Adds the filters of a rule in one family. There are `before` filters of the other one.
fn expand<A: FamilyAddress>(
    names: &Names<'_>,
    (number, rule): (u32, &RuleSettings),
    ends: RuleEnds<A>,
    filters: &mut Vec<RuleFilter<A>>,
    before: usize,
) -> Result<(), PolicyError> {
    let RuleEnds { local, remote } = ends;
    let (local_ports, remote_ports) = (ports(&rule.inside_port), ports(&rule.remote_port));
    let lists = [local.len(), remote.len(), local_ports.len(), remote_ports.len()];
    let product = lists.iter().fold(1, |product: u64, &list| product.saturating_mul(list as u64));
    let count = product.saturating_add((before + filters.len()) as u64);
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
        ..RuleFilter::all(number)
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
    Ok(())
}

/// Returns the number of each group.
pub(crate) fn group_numbers(policy: &PolicySettings) -> impl Iterator<Item = (&str, u8)> {
    policy.groups.iter().map(|group| group.name.as_str()).zip(1..)
}

impl Names<'_> {
    fn ends<A: FamilyAddress>(&self, rule: &RuleSettings) -> Result<RuleEnds<A>, PolicyError> {
        Ok(RuleEnds {
            local: self.prefixes(&rule.subscribers, rule)?,
            remote: self.prefixes(&rule.remote, rule)?,
        })
    }

    /// Returns the addresses of a list that are of one family; those of an absent list are all.
    fn prefixes<A: FamilyAddress>(
        &self,
        list: &[RuleAddress],
        rule: &RuleSettings,
    ) -> Result<Vec<Prefix<A>>, PolicyError> {
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
                RuleAddress::Net(net) => nets.extend(A::net(*net)),
                RuleAddress::Set(name) => nets.extend(A::entries(set_of(name)?)),
            }
        }
        // The entries of one set are merged already.
        if !matches!(list, [RuleAddress::Set(_)]) {
            nets = A::merged(&nets);
        }
        Ok(nets.into_iter().map(A::prefix).collect())
    }

    /// Returns the groups of a list bit by bit; all, if it is absent.
    fn groups(&self, list: &[String]) -> u16 {
        match list.is_empty() {
            true => u16::MAX,
            false => list.iter().fold(0, |bits, name| bits | 1 << self.groups[name.as_str()]),
        }
    }
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

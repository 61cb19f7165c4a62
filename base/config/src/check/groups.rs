//! Groups: how many, homes that two of them have, homes that none of them can have.

use ipnet::{IpNet, Ipv4Net};

use crate::findings::Findings;
use crate::policy_types::{GROUPS_MAX, GroupSettings};
use crate::read::address::overlap;
use crate::types::{Access, AccessSetting};

/// A prefix of a group, its key, and the group's position.
struct GroupPrefix {
    key: String,
    net: IpNet,
    group: usize,
}

pub(crate) fn check(groups: &[GroupSettings], access: &Access, findings: &mut Findings<'_>) {
    if groups.len() > GROUPS_MAX {
        let message = format!("{} groups, at most {GROUPS_MAX} fit", groups.len());
        let fix = "use fewer groups, or sets of subscribers in the rules";
        findings.error(&format!("group[{GROUPS_MAX}]"), message, fix);
    }
    refuse_shared(groups, findings);
    for (index, group) in groups.iter().enumerate() {
        let key = format!("group[{index}].subscribers");
        refuse_ipv6_behind_tunnels(group, &key, access, findings);
        warn_of_strangers(group.subscribers.iter().map(|net| Some(*net)), &key, access, findings);
    }
}

/// Reports groups that have homes in common. In order of addresses a prefix can only overlap the
/// one before it that reaches furthest, and all of IPv4 come before those of IPv6.
fn refuse_shared(groups: &[GroupSettings], findings: &mut Findings<'_>) {
    let mut homes = Vec::new();
    for (group, settings) in groups.iter().enumerate() {
        let key = format!("group[{group}].subscribers");
        if !findings.is_whole(&key) {
            continue;
        }
        for (position, &net) in settings.subscribers.iter().enumerate() {
            let key = findings.element(&key, position);
            if findings.is_good(&key) {
                homes.push(GroupPrefix { key, net, group });
            }
        }
    }
    homes.sort_by_key(|home| (home.net.network(), home.net.prefix_len(), home.group));
    let mut reach: Option<&GroupPrefix> = None;
    for home in &homes {
        let Some(before) = reach.filter(|before| before.net.broadcast() >= home.net.network())
        else {
            reach = Some(home);
            continue;
        };
        let (first, second) =
            if before.group <= home.group { (before, home) } else { (home, before) };
        if first.group != second.group {
            let (net, other) = (words(second.net), words(first.net));
            let message = format!("{net} overlaps {other} of {}", first.key);
            findings.error(&second.key, message, "a home is in one group at most");
        }
    }
}

/// Behind tunnels a home is the outer address of its tunnel, whatever its inside addresses are.
fn refuse_ipv6_behind_tunnels(
    group: &GroupSettings,
    key: &str,
    access: &Access,
    findings: &mut Findings<'_>,
) {
    if access.mode == AccessSetting::Plain
        || !findings.is_good("access.mode")
        || !findings.is_whole(key)
    {
        return;
    }
    for (index, net) in group.subscribers.iter().enumerate() {
        if let IpNet::V6(net) = net {
            let message = format!(
                "{net}: with access.mode = \"gre\" the outer address of its tunnel decides on the \
                 group of a home"
            );
            let fix = "write IPv4 prefixes of outer addresses; the IPv6 flows of these homes are in \
                       the group, too";
            findings.error(&findings.element(key, index), message, fix);
        }
    }
}

/// Warns of IPv4 prefixes of subscribers that no home has. A position without one is a set.
pub(crate) fn warn_of_strangers(
    nets: impl Iterator<Item = Option<IpNet>>,
    key: &str,
    access: &Access,
    findings: &mut Findings<'_>,
) {
    if !findings.is_whole(key) || !findings.is_whole("access.subscribers") {
        return;
    }
    for (index, net) in nets.enumerate() {
        let Some(IpNet::V4(net)) = net else { continue };
        if access.subscribers.iter().any(|served| served.contains(&net)) {
            continue;
        }
        let is_partly_served = |served: &Ipv4Net| overlap(*served, net);
        let message = match access.subscribers.iter().any(is_partly_served) {
            true => format!("{net} reaches beyond access.subscribers"),
            false => format!("{net} is outside access.subscribers: no home is in it"),
        };
        findings.warning(&findings.element(key, index), message, "");
    }
}

/// Formats a prefix; a single address without its length.
fn words(net: IpNet) -> String {
    match net.prefix_len() == net.max_prefix_len() {
        true => net.addr().to_string(),
        false => net.to_string(),
    }
}

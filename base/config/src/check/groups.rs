//! Groups: how many, homes that two of them have, homes that none of them can have.

use ipnet::IpNet;

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
        check_outer_ipv6(group, &key, access, findings);
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
fn check_outer_ipv6(
    group: &GroupSettings,
    key: &str,
    access: &Access,
    findings: &mut Findings<'_>,
) {
    const HOMES: &str = "access.subscribers6";
    if access.mode == AccessSetting::Plain
        || !findings.is_good("access.mode")
        || !findings.is_whole(key)
        || !findings.is_whole(HOMES)
    {
        return;
    }
    for (index, &net) in group.subscribers.iter().enumerate() {
        if net.addr().is_ipv4() {
            continue;
        }
        let key = findings.element(key, index);
        if access.subscribers6.is_empty() {
            let message = format!(
                "{net}: with access.mode = \"gre\" the outer address of its tunnel decides on the \
                 group of a home"
            );
            let fix = "write IPv4 prefixes of outer addresses, or access.subscribers6; the IPv6 \
                       flows of these homes are in the group, too";
            findings.error(&key, message, fix);
        } else {
            warn_of_stranger(net, HOMES, &access.subscribers6, &key, findings);
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
    const HOMES: &str = "access.subscribers";
    if !findings.is_whole(key) || !findings.is_whole(HOMES) {
        return;
    }
    for (index, net) in nets.enumerate() {
        if let Some(net) = net.filter(|net| net.addr().is_ipv4()) {
            let key = findings.element(key, index);
            warn_of_stranger(net, HOMES, &access.subscribers, &key, findings);
        }
    }
}

/// Warns of a prefix with addresses that no home has: `homes` are those of the key `name`.
fn warn_of_stranger<N: Copy + Into<IpNet>>(
    net: IpNet,
    name: &str,
    homes: &[N],
    key: &str,
    findings: &mut Findings<'_>,
) {
    let mut homes = homes.iter().map(|&served| served.into());
    if homes.clone().any(|served| served.contains(&net)) {
        return;
    }
    let message = match homes.any(|served| overlap(served, net)) {
        true => format!("{net} reaches beyond {name}"),
        false => format!("{net} is outside {name}: no home is in it"),
    };
    findings.warning(key, message, "");
}

/// Formats a prefix; a single address without its length.
fn words(net: IpNet) -> String {
    match net.prefix_len() == net.max_prefix_len() {
        true => net.addr().to_string(),
        false => net.to_string(),
    }
}

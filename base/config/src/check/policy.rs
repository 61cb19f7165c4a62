//! Sets, groups, classes and rules: names, references, ports. Groups, the families of a rule's
//! addresses and what rules give their flows have files of their own.

use std::collections::BTreeSet;

use crate::check::address_plan::AddressPlan;
use crate::check::flow_policy::{self, PolicyNames};
use crate::check::{families, groups, refuse_repeats, source_pools, timeouts};
use crate::findings::Findings;
use crate::policy_types::{
    ActionSetting, FlowClassSettings, PolicySettings, ProtocolSetting, RuleAddress, RuleSettings,
};
use crate::types::{Access, AccessSetting};

pub(crate) fn check(policy: &PolicySettings, plan: &AddressPlan<'_>, findings: &mut Findings<'_>) {
    let access = plan.access;
    repeats("set", policy.sets.iter().map(|set| &set.name), findings);
    repeats("group", policy.groups.iter().map(|group| &group.name), findings);
    repeats("class", policy.classes.iter().map(|class| &class.name), findings);
    repeats("source_pool", policy.source_pools.iter().map(|pool| &pool.name), findings);
    repeats("rule", policy.rules.iter().map(|rule| &rule.name), findings);
    groups::check(&policy.groups, access, findings);
    let sets = names("set", policy.sets.iter().map(|set| &set.name), findings);
    let group_names = names("group", policy.groups.iter().map(|group| &group.name), findings);
    let pools = policy.source_pools.iter().map(|pool| &pool.name);
    let given = PolicyNames {
        classes: names("class", policy.classes.iter().map(|class| &class.name), findings),
        source_pools: names("source_pool", pools, findings),
    };
    for (index, rule) in policy.rules.iter().enumerate() {
        let path = |name: &str| format!("rule[{index}].{name}");
        if let Some(groups) = &group_names {
            check_groups(rule, &path("groups"), groups, findings);
        }
        if let Some(sets) = &sets {
            check_sets(&rule.subscribers, &path("subscribers"), sets, findings);
            check_sets(&rule.remote, &path("remote"), sets, findings);
        }
        families::check(rule, &format!("rule[{index}]"), findings);
        flow_policy::check(rule, &format!("rule[{index}]"), &given, plan, findings);
        let lets_pass = rule.action.begins_flows() || rule.action == ActionSetting::Bypass;
        if rule.rematch && lets_pass && findings.is_good(&path("action")) {
            let message = "beside an action that ends no flow";
            findings.error(&path("rematch"), message, "remove it, or write \"drop\" or \"reject\"");
        }
        check_bypass(rule, &path("action"), access, findings);
        for name in ["inside_port", "remote_port"] {
            check_ports(rule, &path(name), &path("protocol"), findings);
        }
        let nets = rule.subscribers.iter().map(|address| match address {
            RuleAddress::Net(net) => Some(*net),
            RuleAddress::Set(_) => None,
        });
        groups::warn_of_strangers(nets, &path("subscribers"), access, findings);
    }
    check_classes(&policy.classes, findings);
    source_pools::check(policy, plan, findings);
}

/// Reports names that occur twice, also if they differ by case only.
fn repeats<'n>(
    section: &str,
    names: impl Iterator<Item = &'n String>,
    findings: &mut Findings<'_>,
) {
    let named = names
        .enumerate()
        .map(|(index, name)| (format!("{section}[{index}].name"), name.to_ascii_lowercase()));
    let named: Vec<_> = named.filter(|(_, name)| !name.is_empty()).collect();
    refuse_repeats(named, "the name", findings);
}

/// Returns the names that rules may use. `None` if one of them is wrong: a rule may mean that one.
fn names<'n>(
    section: &str,
    names: impl Iterator<Item = &'n String>,
    findings: &Findings<'_>,
) -> Option<BTreeSet<&'n str>> {
    let is_good = |index: usize| findings.is_good(&format!("{section}[{index}].name"));
    let named = names.enumerate();
    named.map(|(index, name)| is_good(index).then_some(name.as_str())).collect()
}

fn check_groups(
    rule: &RuleSettings,
    key: &str,
    groups: &BTreeSet<&str>,
    findings: &mut Findings<'_>,
) {
    if !findings.is_whole(key) {
        return;
    }
    for (index, name) in rule.groups.iter().enumerate() {
        if !groups.contains(name.as_str()) {
            let message = format!("there is no group {name}");
            let fix = known("write a [[group]]", groups);
            findings.error(&findings.element(key, index), message, fix);
        }
    }
}

/// Without a tunnel a home's address is its own. Behind tunnels homes may use the same addresses.
fn check_bypass(rule: &RuleSettings, key: &str, access: &Access, findings: &mut Findings<'_>) {
    if rule.action == ActionSetting::Bypass
        && access.mode != AccessSetting::Plain
        && findings.is_good("access.mode")
    {
        let message = "bypass needs access.mode = \"plain\": behind tunnels the addresses of homes \
                       are not unique, and nothing finds the way back";
        findings.error(key, message, "write accept, drop or reject");
    }
}

fn check_classes(classes: &[FlowClassSettings], findings: &mut Findings<'_>) {
    let path = |index: usize, name: &str| format!("class[{index}].{name}");
    let ids = classes.iter().enumerate().map(|(index, class)| (path(index, "id"), class.id));
    refuse_repeats(ids, "the number", findings);
    for (index, class) in classes.iter().enumerate() {
        let of = |name: &str| class.timeouts.get(name).copied().map(u64::from);
        timeouts::check_minima(&path(index, "timeouts"), of, findings);
        if !["dscp", "timeouts"].iter().any(|name| findings.is_given(&path(index, name))) {
            let message = "gives its flows nothing: it has neither dscp nor timeouts";
            findings.warning(&path(index, "name"), message, "");
        }
    }
}

fn check_sets(
    addresses: &[RuleAddress],
    key: &str,
    sets: &BTreeSet<&str>,
    findings: &mut Findings<'_>,
) {
    if !findings.is_whole(key) {
        return;
    }
    for (index, address) in addresses.iter().enumerate() {
        let RuleAddress::Set(name) = address else { continue };
        if !sets.contains(name.as_str()) {
            let message = format!("there is no set {name}");
            let fix = known("write a [[set]]", sets);
            findings.error(&findings.element(key, index), message, fix);
        }
    }
}

/// Returns the fix for an unknown name.
pub(crate) fn known(fix: &str, names: &BTreeSet<&str>) -> String {
    const SHOWN: usize = 5;
    match names.is_empty() {
        true => fix.to_owned(),
        false => {
            let names: Vec<&str> = names.iter().take(SHOWN).copied().collect();
            format!("{fix}; there are {}", names.join(", "))
        }
    }
}

/// Whether all flows that the rule fits have ports.
pub(crate) fn has_ports(rule: &RuleSettings) -> bool {
    !rule.protocol.is_empty() && !rule.protocol.contains(&ProtocolSetting::Icmp)
}

fn check_ports(rule: &RuleSettings, key: &str, protocol: &str, findings: &mut Findings<'_>) {
    if findings.is_given(key) && !has_ports(rule) && findings.is_whole(protocol) {
        let message = match rule.protocol.is_empty() {
            true => "without a protocol: ICMP has no ports",
            false => "beside protocol = \"icmp\", which has no ports",
        };
        let fix =
            "write protocol = \"tcp\", \"udp\" or [\"tcp\", \"udp\"]; a rule of its own for ICMP";
        findings.error(key, message, fix);
    }
}

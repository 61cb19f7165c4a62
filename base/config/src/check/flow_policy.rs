//! What a rule gives the flows that it lets begin: a class, a source pool, a destination.

use std::collections::BTreeSet;

use crate::check::address_plan::AddressPlan;
use crate::check::policy::{has_ports, known};
use crate::findings::Findings;
use crate::policy_types::{ActionSetting, OriginSetting, RedirectSetting, RuleSettings};
use crate::types::AccessSetting;

/// Names of the classes and source pools that rules may use; `None` if one of them is wrong.
pub(crate) struct PolicyNames<'n> {
    pub(crate) classes: Option<BTreeSet<&'n str>>,
    pub(crate) source_pools: Option<BTreeSet<&'n str>>,
}

/// Checks a rule; `path` is its own.
pub(crate) fn check(
    rule: &RuleSettings,
    path: &str,
    names: &PolicyNames<'_>,
    plan: &AddressPlan<'_>,
    findings: &mut Findings<'_>,
) {
    let path = |name: &str| format!("{path}.{name}");
    check_name(&rule.class, ("class", "[[class]]"), &path("class"), &names.classes, findings);
    let pool = ("source pool", "[[source_pool]]");
    check_name(&rule.source_pool, pool, &path("source_pool"), &names.source_pools, findings);
    let is_action_good = findings.is_good(&path("action"));
    for (key, is_given) in
        [("class", rule.class.is_some()), ("source_pool", rule.source_pool.is_some())]
    {
        if is_given && !rule.action.begins_flows() && is_action_good {
            let message = "beside an action that lets no flow begin";
            findings.error(&path(key), message, "remove it, or write action = \"accept\"");
        }
    }
    if rule.source_pool.is_some()
        && rule.from == OriginSetting::Internet
        && findings.is_good(&path("from"))
    {
        let message = "beside from = \"internet\": such a flow has the public address that it came \
                       to";
        findings.error(&path("source_pool"), message, "remove it, or write from = \"home\"");
    }
    if rule.source_pool.is_some() && !plan.is_translated {
        let message = "there are no public addresses without translation";
        findings.error(&path("source_pool"), message, "remove it, or write nat.enabled = true");
    }
    if is_action_good {
        check_redirect(rule, path, plan, findings);
    }
}

fn check_name(
    name: &Option<String>,
    (what, section): (&str, &str),
    key: &str,
    names: &Option<BTreeSet<&str>>,
    findings: &mut Findings<'_>,
) {
    let Some((name, names)) = name.as_deref().zip(names.as_ref()) else { return };
    if !names.contains(name) {
        let message = format!("there is no {what} {name}");
        findings.error(key, message, known(&format!("write a {section}"), names));
    }
}

fn check_redirect(
    rule: &RuleSettings,
    path: impl Fn(&str) -> String,
    plan: &AddressPlan<'_>,
    findings: &mut Findings<'_>,
) {
    let key = path("to");
    if rule.action != ActionSetting::Redirect {
        if findings.is_given(&key) {
            let message = "beside an action that changes no destination";
            findings.error(&key, message, "remove it, or write action = \"redirect\"");
        }
        return;
    }
    if !plan.is_translated {
        let message = "redirect needs translation";
        findings.error(&path("action"), message, "write nat.enabled = true, or another action");
        return;
    }
    if rule.from != OriginSetting::Home && findings.is_good(&path("from")) {
        let message = "beside action = \"redirect\", which is for flows from homes only";
        findings.error(&path("from"), message, "write from = \"home\"");
    }
    if !findings.is_given(&key) {
        let message = "missing: action = \"redirect\" needs it";
        findings.error(&key, message, "write the address of a host, e.g. to = \"192.0.2.53\"");
    }
    let Some(to) = rule.to.filter(|_| findings.is_good(&key)) else { return };
    if let Some((message, fix)) = loop_error(to, plan) {
        findings.error(&key, message, fix);
    } else if to.port.is_some() && !has_ports(rule) && findings.is_whole(&path("protocol")) {
        let message = match rule.protocol.is_empty() {
            true => "a port without a protocol: ICMP has no ports",
            false => "a port beside protocol = \"icmp\", which has no ports",
        };
        let fix = "write protocol = \"tcp\", \"udp\" or [\"tcp\", \"udp\"], or leave the port out";
        findings.error(&key, message, fix);
    }
}

/// Returns what is wrong with a destination from which packets come back, and the fix.
fn loop_error(to: RedirectSetting, plan: &AddressPlan<'_>) -> Option<(String, &'static str)> {
    let address = to.address;
    let back = "its packets would come back to weir";
    let fix = "name a host that the internet side reaches without weir";
    if let Some(public) = plan.public_prefix(address) {
        let message =
            format!("{address} is in the public prefix {} ({}): {back}", public.net, public.key);
        return Some((message, fix));
    }
    if let Some(own) = plan.own_address(address) {
        return Some((format!("{address} is weir's own ({}): {back}", own.key), fix));
    }
    let homes = plan.access.subscribers.iter().find(|net| net.contains(&address));
    let homes = homes.filter(|_| plan.access.mode == AccessSetting::Plain)?;
    Some((format!("{address} is a home of {homes} (access.subscribers): {back}"), fix))
}

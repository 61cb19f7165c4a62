//! The families of a rule's addresses: a rule is about those of which it has both ends.

use ipnet::IpNet;

use crate::findings::Findings;
use crate::policy_types::{ActionSetting, RuleAddress, RuleSettings};

/// Checks a rule; `path` is its own. What its sets have is known only when it is compiled.
pub(crate) fn check(rule: &RuleSettings, path: &str, findings: &mut Findings<'_>) {
    let [subscribers, remote] = ["subscribers", "remote"].map(|name| format!("{path}.{name}"));
    if !findings.is_whole(&subscribers) || !findings.is_whole(&remote) {
        return;
    }
    refuse_two_families(rule, &remote, findings);
    let ipv4_alone = match (rule.action, &rule.source_pool) {
        (ActionSetting::Redirect, _) => "action = \"redirect\"",
        (_, Some(_)) => "a source pool",
        _ => return,
    };
    for (key, list) in [(&subscribers, &rule.subscribers), (&remote, &rule.remote)] {
        for (index, address) in list.iter().enumerate() {
            let RuleAddress::Net(IpNet::V6(net)) = address else { continue };
            let message = format!(
                "{net} beside {ipv4_alone}, which is for flows of IPv4: IPv6 is not translated"
            );
            let fix = "remove it; write a rule of its own about IPv6";
            findings.error(&findings.element(key, index), message, fix);
        }
    }
}

/// Reports a rule with the homes of one family and the remotes of the other.
fn refuse_two_families(rule: &RuleSettings, remote: &str, findings: &mut Findings<'_>) {
    let families = [one_family(&rule.subscribers), one_family(&rule.remote)];
    let [Some(homes), Some(remotes)] = families else { return };
    if homes != remotes {
        let message = format!("{remotes} alone beside subscribers of {homes} alone: no flow fits");
        let fix = "write both in one family, or a rule of its own for each";
        findings.error(remote, message, fix);
    }
}

/// Returns the family of addresses that are all of one; `None` also if sets are among them, or if
/// there are none.
fn one_family(list: &[RuleAddress]) -> Option<&'static str> {
    let family = |address: &RuleAddress| match address {
        RuleAddress::Net(IpNet::V4(_)) => Some("IPv4"),
        RuleAddress::Net(IpNet::V6(_)) => Some("IPv6"),
        RuleAddress::Set(_) => None,
    };
    let first = list.first().and_then(family)?;
    list.iter().all(|it| family(it) == Some(first)).then_some(first)
}

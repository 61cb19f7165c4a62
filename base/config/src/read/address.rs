//! IPv4 addresses and prefixes, and those that no network may use; lists of prefixes of both
//! families.

use std::fmt::Display;
use std::net::Ipv4Addr;

use ipnet::{IpNet, Ipv4Net};

use crate::findings::Findings;
use crate::key::AllowedValues;
use crate::section::Section;

/// Placeholder for an address that could not be read.
pub(crate) const RELAY: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::UNSPECIFIED, 32);

/// The form of a key that also accepts one prefix without brackets.
const PREFIX_OR_LIST: &str = "string or list of strings";

/// Prefixes that are no unicast addresses of a network (RFC 6890, RFC 1112).
const SPECIAL: [(Ipv4Net, &str); 4] = [
    (Ipv4Net::new_assert(Ipv4Addr::new(0, 0, 0, 0), 8), "\"this network\" (0.0.0.0/8)"),
    (Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8), "loopback (127.0.0.0/8)"),
    (Ipv4Net::new_assert(Ipv4Addr::new(224, 0, 0, 0), 4), "multicast (224.0.0.0/4)"),
    (Ipv4Net::new_assert(Ipv4Addr::new(240, 0, 0, 0), 4), "class E (240.0.0.0/4)"),
];

/// Returns the unicast address at `name`; `None` where the file has none.
pub(crate) fn unicast(
    section: &Section<'_>,
    name: &str,
    findings: &mut Findings<'_>,
) -> Option<Ipv4Addr> {
    let text = section.text(name, findings, |text| text.parse::<Ipv4Addr>().is_ok())?;
    let address: Ipv4Addr = text.parse().ok()?;
    if let Some(kind) = special(address.into()) {
        let message = format!("{address} is {kind}");
        findings.error(&section.path_of(name), message, "use a unicast address");
    }
    Some(address)
}

/// Returns the special prefix that `net` is in or contains.
pub(crate) fn special(net: Ipv4Net) -> Option<&'static str> {
    SPECIAL.iter().find(|(special, _)| overlap(*special, net)).map(|(_, kind)| *kind)
}

/// Whether two prefixes have an address in common. Those of two families have none.
pub(crate) fn overlap(one: impl Into<IpNet>, other: impl Into<IpNet>) -> bool {
    let (one, other) = (one.into(), other.into());
    one.contains(&other) || other.contains(&one)
}

/// Returns a list of prefixes, of one element where the file gives a string; elements with an error
/// are [`RELAY`], so that positions are kept.
pub(crate) fn prefixes(
    section: &Section<'_>,
    name: &str,
    findings: &mut Findings<'_>,
) -> Vec<Ipv4Net> {
    let otherwise = (RELAY, "write a unicast prefix as \"a.b.c.d/length\"");
    prefix_list(section, name, prefix, otherwise, findings)
}

/// Returns a list of prefixes that `read` accepts or states the error of, for which `otherwise` has
/// a placeholder and the fix.
pub(super) fn prefix_list<N: Copy + Display + Into<IpNet>>(
    section: &Section<'_>,
    name: &str,
    read: impl Fn(&str) -> Result<N, String>,
    otherwise: (N, &str),
    findings: &mut Findings<'_>,
) -> Vec<N> {
    let Some(entry) = section.entry(name, findings) else { return Vec::new() };
    let is_single =
        entry.value.is_str() && matches!(entry.key.kind, AllowedValues::Form(PREFIX_OR_LIST, _));
    let elements = match is_single {
        true => Some(vec![(entry.path.clone(), entry.value)]),
        false => entry.elements(findings),
    };
    let Some(elements) = elements else { return Vec::new() };
    if elements.is_empty() {
        findings.error(&entry.path, "an empty list", "name at least one prefix");
    }
    let mut nets: Vec<N> = Vec::new();
    for (path, element) in elements {
        match element.as_str().ok_or("not a string".to_owned()).and_then(&read) {
            Ok(net) => {
                if let Some(before) = nets.iter().find(|before| overlap(**before, net)) {
                    findings.error(
                        &path,
                        format!("{net} overlaps {before} before it"),
                        "remove one",
                    );
                }
                nets.push(net);
            }
            Err(message) => {
                findings.error(&path, message, otherwise.1);
                nets.push(otherwise.0);
            }
        }
    }
    nets
}

fn prefix(text: &str) -> Result<Ipv4Net, String> {
    let net: Ipv4Net = text.parse().map_err(|_| format!("{text:?} is not an IPv4 prefix"))?;
    if net.addr() != net.network() {
        return Err(format!("{net} has host bits; its prefix is {}", net.trunc()));
    }
    match special(net) {
        Some(kind) if overlap(net, SPECIAL[0].0) && net.prefix_len() < 8 => {
            Err(format!("{net} contains {kind}"))
        }
        Some(kind) => Err(format!("{net} is {kind}")),
        None => Ok(net),
    }
}

//! IPv6 addresses and prefixes, and those that no network may use.

use std::net::Ipv6Addr;
use std::ops::RangeInclusive;

use ipnet::Ipv6Net;

use crate::findings::Findings;
use crate::read::address::prefix_list;
use crate::section::Section;

/// Placeholder for a prefix that could not be read.
pub(crate) const RELAY6: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::UNSPECIFIED, 128);

/// Lengths of the prefixes that homes have their addresses from.
pub(crate) const PUBLIC6_BITS: RangeInclusive<u8> = 16..=64;

/// Link-local addresses (RFC 4291 section 2.5.6).
pub(crate) const LINK_LOCAL: Ipv6Net =
    Ipv6Net::new_assert(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10);

/// Unique local addresses (RFC 4193), which the internet does not route.
pub(crate) const UNIQUE_LOCAL: Ipv6Net =
    Ipv6Net::new_assert(Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7);

/// Global unicast addresses (RFC 4291 section 2.4).
const GLOBAL: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);

/// Prefixes whose addresses are often taken for unicast addresses of a network (RFC 4291).
const SPECIAL: [(Ipv6Net, &str); 5] = [
    (RELAY6, "the unspecified address"),
    (Ipv6Net::new_assert(Ipv6Addr::LOCALHOST, 128), "loopback (::1)"),
    (
        Ipv6Net::new_assert(Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96),
        "IPv4-mapped (::ffff:0:0/96)",
    ),
    (LINK_LOCAL, "link-local (fe80::/10)"),
    (Ipv6Net::new_assert(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8), "multicast (ff00::/8)"),
];

/// Returns the reason that a prefix is neither global nor unique local unicast.
pub(crate) fn special(net: Ipv6Net) -> Option<&'static str> {
    if GLOBAL.contains(&net) || UNIQUE_LOCAL.contains(&net) {
        return None;
    }
    let kind = SPECIAL.iter().find(|(special, _)| special.contains(&net)).map(|(_, kind)| *kind);
    Some(kind.unwrap_or("neither global (2000::/3) nor unique local unicast (fc00::/7)"))
}

/// Returns the unicast address at `name`; `None` where the file has none.
pub(crate) fn unicast(
    section: &Section<'_>,
    name: &str,
    findings: &mut Findings<'_>,
) -> Option<Ipv6Addr> {
    let text = section.text(name, findings, |text| text.parse::<Ipv6Addr>().is_ok())?;
    let address: Ipv6Addr = text.parse().ok()?;
    if let Some(kind) = special(address.into()) {
        let message = format!("{address} is {kind}");
        findings.error(&section.path_of(name), message, "use a global or unique local address");
    }
    Some(address)
}

/// Returns a list of prefixes whose lengths are in `bits`, of one element where the file gives a
/// string; elements with an error are [`RELAY6`], so that positions are kept.
pub(crate) fn prefixes(
    section: &Section<'_>,
    name: &str,
    bits: RangeInclusive<u8>,
    findings: &mut Findings<'_>,
) -> Vec<Ipv6Net> {
    let fix = "write a unicast prefix as \"2001:db8::/length\"";
    prefix_list(section, name, |text| prefix(text, &bits), (RELAY6, fix), findings)
}

/// Reads a unicast prefix whose length is in `bits`.
pub(crate) fn prefix(text: &str, bits: &RangeInclusive<u8>) -> Result<Ipv6Net, String> {
    let net: Ipv6Net = text.parse().map_err(|_| format!("{text:?} is not an IPv6 prefix"))?;
    if net.addr() != net.network() {
        return Err(format!("{net} has host bits; its prefix is {}", net.trunc()));
    }
    if !bits.contains(&net.prefix_len()) {
        let (least, most) = (bits.start(), bits.end());
        return Err(format!("{net} has a length of {}, not {least} to {most}", net.prefix_len()));
    }
    match special(net) {
        Some(kind) => Err(format!("{net} is {kind}")),
        None => Ok(net),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_global_and_unique_local_prefixes_are_unicast() {
        let kind = |text: &str| special(text.parse().unwrap());
        for unicast in ["2001:db8::/32", "2000::/16", "3fff::/20", "fd00::/16", "fc00::1/128"] {
            assert_eq!(kind(unicast), None, "{unicast}");
        }
        for (net, expected) in [
            ("::/128", "the unspecified address"),
            ("::1/128", "loopback (::1)"),
            ("::ffff:10.1.0.1/128", "IPv4-mapped (::ffff:0:0/96)"),
            ("fe80::/64", "link-local (fe80::/10)"),
            ("ff02::1/128", "multicast (ff00::/8)"),
            ("64:ff9b::/96", "neither global (2000::/3) nor unique local unicast (fc00::/7)"),
            ("4000::/16", "neither global (2000::/3) nor unique local unicast (fc00::/7)"),
            ("::/0", "neither global (2000::/3) nor unique local unicast (fc00::/7)"),
        ] {
            assert_eq!(kind(net), Some(expected), "{net}");
        }
    }
}

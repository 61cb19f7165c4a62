//! The IPv6 keys of `worker.access` and `worker.internet`.

use std::net::Ipv6Addr;
use std::ops::RangeInclusive;

use ipnet::Ipv6Net;

use crate::findings::Findings;
use crate::ipv6_types::Interface6;
use crate::read::address6;
use crate::read::cluster::refuse_half;
use crate::read::interface::gateways;
use crate::section::Section;

/// Lengths of connected prefixes: at most a /64, at least two addresses (RFC 6164).
const CONNECTED_BITS: RangeInclusive<u8> = 64..=127;

/// Reads the keys; `None` where the file has no address.
pub(crate) fn read(section: &Section<'_>, findings: &mut Findings<'_>) -> Option<Interface6> {
    let address = own_address(section, findings);
    let wrong = ("not an IPv6 address", "write it as \"2001:db8::1\"");
    let gateways = gateways(section, "gateways6", Ipv6Addr::UNSPECIFIED, wrong, findings);
    refuse_half(section, ["address6", "gateways6"], findings);
    Some(Interface6 { address: address?, gateways })
}

fn own_address(section: &Section<'_>, findings: &mut Findings<'_>) -> Option<Ipv6Net> {
    let text = section.text("address6", findings, |text| {
        text.parse::<Ipv6Net>().is_ok_and(|net| CONNECTED_BITS.contains(&net.prefix_len()))
    })?;
    let net: Ipv6Net = text.parse().ok()?;
    let path = section.path_of("address6");
    if let Some(kind) = address6::special(net.addr().into()) {
        let message = format!("{} is {kind}", net.addr());
        findings.error(&path, message, "use a global or unique local address");
    } else if net.prefix_len() < 127 && net.addr() == net.network() {
        let message =
            format!("{} is the subnet-router anycast address of {}", net.addr(), net.trunc());
        findings.error(&path, message, "use another address of it");
    }
    Some(net)
}

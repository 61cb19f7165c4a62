//! `worker.access` and `worker.internet`.

use std::fmt::Display;
use std::net::Ipv4Addr;
use std::str::FromStr;

use ipnet::Ipv4Net;

use crate::findings::Findings;
use crate::read::{address, interface6};
use crate::section::Section;
use crate::types::InterfaceSettings;

const GATEWAYS_MAX: usize = 16;

pub(crate) fn read(section: &Section<'_>, findings: &mut Findings<'_>) -> InterfaceSettings {
    InterfaceSettings {
        device: section.text("device", findings, is_device).unwrap_or_default().to_owned(),
        address: own_address(section, findings),
        gateways: gateways(
            section,
            "gateway",
            Ipv4Addr::UNSPECIFIED,
            ("not an IPv4 address", "write it as \"a.b.c.d\""),
            findings,
        ),
        gateway_macs: gateway_macs(section, findings),
        vlan: section.optional_integer("vlan", findings),
        mtu: section.integer("mtu", findings),
        mac: section.text("mac", findings, |text| mac(text).is_some()).and_then(mac),
        ipv6: interface6::read(section, findings),
    }
}

/// The EAL splits devargs at commas and takes the part before the first one as the device's name.
fn is_device(text: &str) -> bool {
    let is_clean = !text.contains(|letter: char| letter.is_whitespace() || letter.is_control());
    is_clean && !text.is_empty() && !text.starts_with([',', '-'])
}

fn own_address(section: &Section<'_>, findings: &mut Findings<'_>) -> Ipv4Net {
    let text = section.text("address", findings, |text| {
        text.parse::<Ipv4Net>().is_ok_and(|net| (1..=31).contains(&net.prefix_len()))
    });
    let Some(net) = text.and_then(|text| text.parse::<Ipv4Net>().ok()) else {
        return address::RELAY;
    };
    let path = section.path_of("address");
    if let Some(kind) = address::special(Ipv4Net::from(net.addr())) {
        findings.error(&path, format!("{} is {kind}", net.addr()), "use a unicast address");
    } else if net.prefix_len() < 31 && [net.network(), net.broadcast()].contains(&net.addr()) {
        let message =
            format!("{} is the network or broadcast address of {}", net.addr(), net.trunc());
        findings.error(&path, message, "use a host address of it");
    }
    net
}

/// Returns the gateways at `name`, from a string or a list of strings. One that is no address is
/// unspecified in the list, so that the others keep their positions; `wrong` says so, with the fix.
pub(super) fn gateways<A>(
    section: &Section<'_>,
    name: &str,
    unspecified: A,
    wrong: (&str, &str),
    findings: &mut Findings<'_>,
) -> Vec<A>
where
    A: Copy + PartialEq + FromStr + Display,
{
    let Some(entry) = section.entry(name, findings) else { return Vec::new() };
    let elements = match entry.value.as_str() {
        Some(_) => vec![(entry.path.clone(), entry.value)],
        None => entry.elements(findings).unwrap_or_default(),
    };
    if elements.is_empty() || elements.len() > GATEWAYS_MAX {
        entry.refuse(findings);
    }
    let mut gateways = Vec::new();
    for (path, element) in elements {
        let gateway: Option<A> = element.as_str().and_then(|text| text.parse().ok());
        match gateway {
            Some(gateway) if gateways.contains(&gateway) => {
                findings.error(&path, format!("{gateway} is listed twice"), "remove one");
            }
            Some(_) => {}
            None => findings.error(&path, wrong.0, wrong.1),
        }
        gateways.push(gateway.unwrap_or(unspecified));
    }
    gateways
}

/// Returns the MACs of the gateways, in their order, from a string or a list of strings.
fn gateway_macs(section: &Section<'_>, findings: &mut Findings<'_>) -> Vec<[u8; 6]> {
    let Some(entry) = section.entry("gateway_mac", findings) else { return Vec::new() };
    let elements = match entry.value.as_str() {
        Some(_) => vec![(entry.path.clone(), entry.value)],
        None => entry.elements(findings).unwrap_or_default(),
    };
    if elements.is_empty() || elements.len() > GATEWAYS_MAX {
        entry.refuse(findings);
    }
    let mut macs = Vec::new();
    for (path, element) in elements {
        let mac = element.as_str().and_then(mac);
        if mac.is_none() {
            let fix = "write it as \"02:00:00:00:00:01\"";
            findings.error(&path, "not a unicast MAC address", fix);
        }
        macs.push(mac.unwrap_or_default());
    }
    macs
}

/// Parses a MAC address: six bytes in hex with colons; unicast and not all zero.
fn mac(text: &str) -> Option<[u8; 6]> {
    let mut bytes = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut bytes {
        let part = parts.next().filter(|part| {
            part.len() == 2 && part.bytes().all(|digit| digit.is_ascii_hexdigit())
        })?;
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    let is_unicast = bytes[0] & 1 == 0 && bytes != [0; 6];
    (parts.next().is_none() && is_unicast).then_some(bytes)
}

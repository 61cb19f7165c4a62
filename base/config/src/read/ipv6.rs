//! `[ipv6]` and `[[delegation]]`.

use std::net::Ipv4Addr;
use std::ops::RangeInclusive;

use ipnet::Ipv6Net;

use crate::findings::Findings;
use crate::ipv6_types::{DelegatedHome, DelegationMode, DelegationSettings, Ipv6Settings};
use crate::read::address6;
use crate::section::Section;

/// Lengths of the prefixes that are delegated to a home.
const DELEGATED_BITS: RangeInclusive<u8> = 48..=64;

pub(crate) fn read(root: &Section<'_>, findings: &mut Findings<'_>) -> Ipv6Settings {
    let section = root.section("ipv6", "ipv6", findings);
    let delegations = root.sections("delegation", "delegation", findings);
    Ipv6Settings {
        delegation: match section.choice("delegation", findings) {
            "static" => DelegationMode::Static,
            _ => DelegationMode::Claim,
        },
        claim_hold_sec: section.integer("claim_hold_sec", findings),
        home_length6: section.integer("home_length6", findings),
        delegations: delegations.iter().map(|it| delegation(it, findings)).collect(),
    }
}

/// Keys with an error get a placeholder, so that positions are kept.
fn delegation(section: &Section<'_>, findings: &mut Findings<'_>) -> DelegationSettings {
    let nobody = DelegatedHome { address: Ipv4Addr::UNSPECIFIED.into(), gre_key: None };
    let home = section.text("home", findings, |text| text.parse::<DelegatedHome>().is_ok());
    DelegationSettings {
        home: home.and_then(|text| text.parse().ok()).unwrap_or(nobody),
        prefix: prefix(section, findings).unwrap_or(address6::RELAY6),
    }
}

fn prefix(section: &Section<'_>, findings: &mut Findings<'_>) -> Option<Ipv6Net> {
    let entry = section.entry("prefix", findings)?;
    let text = entry.value.as_str().ok_or_else(|| "not a string".to_owned());
    let read = text.and_then(|text| address6::prefix(text, &DELEGATED_BITS));
    let fix = "write a unicast prefix as \"2001:db8:1000:100::/56\"";
    read.map_err(|message| findings.error(&entry.path, message, fix)).ok()
}

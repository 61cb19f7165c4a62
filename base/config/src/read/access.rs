//! `[access]`.

use std::ops::RangeInclusive;

use crate::findings::Findings;
use crate::read::{address, address6};
use crate::section::Section;
use crate::types::{Access, AccessSetting, GreKey};

/// Lengths of the prefixes of homes' outer addresses.
const OUTER6_BITS: RangeInclusive<u8> = 16..=128;

pub(crate) fn read(section: &Section<'_>, findings: &mut Findings<'_>) -> Access {
    let mode = match section.choice("mode", findings) {
        "plain" => AccessSetting::Plain,
        _ => AccessSetting::Gre,
    };
    let gre_key = match section.choice("gre_key", findings) {
        "subscriber" => GreKey::Subscriber,
        _ => GreKey::Ignore,
    };
    if mode == AccessSetting::Plain && gre_key == GreKey::Subscriber {
        let fix = "remove it, or write mode = \"gre\"";
        findings.error(&section.path_of("gre_key"), "there are no GRE keys in plain mode", fix);
    }
    Access {
        mode,
        subscribers: address::prefixes(section, "subscribers", findings),
        subscribers6: address6::prefixes(section, "subscribers6", OUTER6_BITS, findings),
        gre_key,
    }
}

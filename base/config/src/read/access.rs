//! `[access]`.

use crate::findings::Findings;
use crate::read::address;
use crate::section::Section;
use crate::types::{Access, AccessSetting, GreKey};

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
    Access { mode, subscribers: address::prefixes(section, "subscribers", findings), gre_key }
}

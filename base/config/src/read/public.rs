//! `[public]`.

use std::path::PathBuf;

use crate::findings::Findings;
use crate::public_types::{PublicSettings, StaticSettings};
use crate::read::address;
use crate::read::node::is_printable;
use crate::section::Section;
use crate::static_file::FIX;

pub(crate) fn read(section: &Section<'_>, findings: &mut Findings<'_>) -> PublicSettings {
    let is_path = |text: &str| text.starts_with('/') && is_printable(text);
    PublicSettings {
        statics: statics(section, findings),
        static_file: section.text("static_file", findings, is_path).map(PathBuf::from),
        drain: address::prefixes(section, "drain", findings),
        quarantine: address::prefixes(section, "quarantine", findings),
    }
}

/// Elements with an error are left out: nothing that is read from such a file is used.
fn statics(section: &Section<'_>, findings: &mut Findings<'_>) -> Vec<StaticSettings> {
    let Some(entry) = section.entry("static", findings) else { return Vec::new() };
    let mut statics = Vec::new();
    for (path, value) in entry.elements(findings).unwrap_or_default() {
        match value.as_str().ok_or("not a string".to_owned()).and_then(str::parse) {
            Ok(mapping) => statics.push(mapping),
            Err(message) => findings.error(&path, message, FIX),
        }
    }
    statics
}

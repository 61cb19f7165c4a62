//! What a key of the file is: the shape that parser and reference share.

use crate::types::TimeoutProfile;

/// One key. The parser takes range and default from here, and so does the reference in `docs/config.md`.
#[derive(Debug)]
pub(crate) struct Key {
    /// `SectionDoc::id` of the section it stands in.
    pub(crate) section: &'static str,
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// Empty for values without a unit.
    pub(crate) unit: &'static str,
    pub(crate) default: Preset,
    pub(crate) about: &'static str,
}

/// What a value may be.
#[derive(Debug)]
pub(crate) enum Kind {
    Boolean,
    /// Both bounds belong to the range.
    Integer(u64, u64),
    Choice(&'static [&'static str]),
    /// TOML type, and what it must say.
    Form(&'static str, &'static str),
}

/// What counts when the key is absent.
#[derive(Debug)]
pub(crate) enum Preset {
    Required,
    /// A TOML literal.
    Value(&'static str),
    /// No value: what happens then.
    Absent(&'static str),
    /// Seconds in the profiles "rfc" and "carrier".
    Profile(u32, u32),
}

/// A section as the reference introduces it.
#[derive(Debug)]
pub(crate) struct SectionDoc {
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    pub(crate) about: &'static str,
}

/// The key `name` of `section`.
pub(crate) fn find(section: &str, name: &str) -> Option<&'static Key> {
    crate::key_table::KEYS.iter().find(|key| key.section == section && key.name == name)
}

/// The key of `section` that was most likely meant by `name`.
pub(crate) fn nearest(section: &str, name: &str) -> Option<&'static str> {
    let names = crate::key_table::KEYS.iter().filter(|key| key.section == section);
    names
        .map(|key| (strsim::damerau_levenshtein(key.name, name), key.name))
        .filter(|(distance, known)| {
            let longer = known.chars().count().max(name.chars().count());
            *distance * 2 <= longer || known.starts_with(name) || name.starts_with(known)
        })
        .min()
        .map(|(_, known)| known)
}

/// A timer of `[timeouts]` in a profile, in seconds.
pub(crate) fn profile_sec(name: &str, profile: TimeoutProfile) -> u32 {
    match (find("timeouts", name).map(|key| &key.default), profile) {
        (Some(Preset::Profile(rfc, _)), TimeoutProfile::Rfc) => *rfc,
        (Some(Preset::Profile(_, carrier)), TimeoutProfile::Carrier) => *carrier,
        _ => panic!("timeouts.{name} has no profile value in the key table"),
    }
}

//! The description of a key, which parser and reference share.

use crate::file_kind::{FileKind, Files};
use crate::key_table::KEYS;
use crate::section_table::SECTIONS;
use crate::types::TimeoutProfile;

/// One key. Both the parser and the reference in `docs/config.md` take range and default from here.
#[derive(Debug)]
pub(crate) struct ConfigKey {
    /// `SectionDoc::id` of the key's section.
    pub(crate) section: &'static str,
    pub(crate) name: &'static str,
    pub(crate) kind: AllowedValues,
    /// Empty for values without a unit.
    pub(crate) unit: &'static str,
    pub(crate) default: Preset,
    pub(crate) about: &'static str,
    /// Kinds of files that may contain the key, if they are fewer than those of its section.
    only: Option<Files>,
}

impl ConfigKey {
    pub(crate) const fn new(
        section: &'static str,
        name: &'static str,
        kind: AllowedValues,
        unit: &'static str,
        default: Preset,
        about: &'static str,
    ) -> Self {
        Self { section, name, kind, unit, default, about, only: None }
    }

    /// Restricts the key to `files`.
    pub(crate) const fn only(mut self, files: Files) -> Self {
        self.only = Some(files);
        self
    }

    /// Returns the kinds of files that may contain the key.
    pub(crate) fn files(&self) -> Files {
        self.only.unwrap_or_else(|| section(self.section).files)
    }

    /// Returns the kinds of files that may contain the key, if they are fewer than those of its
    /// section.
    pub(crate) fn narrower_files(&self) -> Option<Files> {
        self.only.filter(|files| *files != section(self.section).files)
    }
}

/// The permitted values of a key.
#[derive(Debug)]
pub(crate) enum AllowedValues {
    Boolean,
    /// A range that includes both bounds.
    Integer(u64, u64),
    Choice(&'static [&'static str]),
    /// TOML type, and the rule for its content.
    Form(&'static str, &'static str),
}

/// The value of a key that is absent.
#[derive(Debug)]
pub(crate) enum Preset {
    Required,
    /// A TOML literal.
    Value(&'static str),
    /// No value: the text describes the effect.
    Absent(&'static str),
    /// Seconds in the profiles "rfc" and "carrier".
    Profile(u32, u32),
}

/// A section, as the reference introduces it.
#[derive(Debug)]
pub(crate) struct SectionDoc {
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    pub(crate) about: &'static str,
    /// Kinds of files that may contain the section.
    pub(crate) files: Files,
}

/// Finds the key `name` of `section` in a file of the kind `file`.
pub(crate) fn find(section: &str, name: &str, file: FileKind) -> Option<&'static ConfigKey> {
    named(section, name).find(|key| key.files().has(file))
}

/// Returns the kinds of files in which `section` has a key `name`; `None` if there is no such key
/// at all.
pub(crate) fn files(section: &str, name: &str) -> Option<Files> {
    named(section, name).map(ConfigKey::files).reduce(Files::or)
}

fn named<'n>(section: &'n str, name: &'n str) -> impl Iterator<Item = &'static ConfigKey> + 'n {
    KEYS.iter().filter(move |key| key.section == section && key.name == name)
}

fn section(id: &str) -> &'static SectionDoc {
    SECTIONS
        .iter()
        .find(|section| section.id == id)
        .unwrap_or_else(|| panic!("section {id:?} is not in the key table"))
}

/// Returns the key of `section` that `name` most likely stands for, in a file of the kind `file`.
pub(crate) fn nearest(section: &str, name: &str, file: FileKind) -> Option<&'static str> {
    let names = KEYS.iter().filter(|key| key.section == section && key.files().has(file));
    names
        .map(|key| (strsim::damerau_levenshtein(key.name, name), key.name))
        .filter(|(distance, known)| {
            let longer = known.chars().count().max(name.chars().count());
            *distance * 2 <= longer || known.starts_with(name) || name.starts_with(known)
        })
        .min()
        .map(|(_, known)| known)
}

/// Returns a timer of `[timeouts]` in a profile, in seconds.
pub(crate) fn profile_sec(name: &str, profile: TimeoutProfile) -> u32 {
    match (find("timeouts", name, FileKind::Single).map(|key| &key.default), profile) {
        (Some(Preset::Profile(rfc, _)), TimeoutProfile::Rfc) => *rfc,
        (Some(Preset::Profile(_, carrier)), TimeoutProfile::Carrier) => *carrier,
        _ => panic!("timeouts.{name} has no profile value in the key table"),
    }
}

//! What a key of the file is: the shape that parser and reference share.

use crate::file_kind::{FileKind, Files};
use crate::key_table::{KEYS, SECTIONS};
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
    /// Where it may stand, if not in every file that its section may stand in.
    only: Option<Files>,
}

impl Key {
    pub(crate) const fn new(
        section: &'static str,
        name: &'static str,
        kind: Kind,
        unit: &'static str,
        default: Preset,
        about: &'static str,
    ) -> Self {
        Self { section, name, kind, unit, default, about, only: None }
    }

    /// This key, in `files` only.
    pub(crate) const fn only(mut self, files: Files) -> Self {
        self.only = Some(files);
        self
    }

    /// The files it may stand in.
    pub(crate) fn files(&self) -> Files {
        self.only.unwrap_or_else(|| section(self.section).files)
    }

    /// The files it may stand in, where they are fewer than those of its section.
    pub(crate) fn narrower_files(&self) -> Option<Files> {
        self.only.filter(|files| *files != section(self.section).files)
    }
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
    /// The files it may stand in.
    pub(crate) files: Files,
}

/// The key `name` of `section` in a file of the kind `file`.
pub(crate) fn find(section: &str, name: &str, file: FileKind) -> Option<&'static Key> {
    named(section, name).find(|key| key.files().has(file))
}

/// The files in which `section` has a key `name`; `None` if there is no such key at all.
pub(crate) fn files(section: &str, name: &str) -> Option<Files> {
    named(section, name).map(Key::files).reduce(Files::or)
}

fn named<'n>(section: &'n str, name: &'n str) -> impl Iterator<Item = &'static Key> + 'n {
    KEYS.iter().filter(move |key| key.section == section && key.name == name)
}

fn section(id: &str) -> &'static SectionDoc {
    SECTIONS
        .iter()
        .find(|section| section.id == id)
        .unwrap_or_else(|| panic!("section {id:?} is not in the key table"))
}

/// The key of `section` that was most likely meant by `name` in a file of the kind `file`.
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

/// A timer of `[timeouts]` in a profile, in seconds.
pub(crate) fn profile_sec(name: &str, profile: TimeoutProfile) -> u32 {
    match (find("timeouts", name, FileKind::Single).map(|key| &key.default), profile) {
        (Some(Preset::Profile(rfc, _)), TimeoutProfile::Rfc) => *rfc,
        (Some(Preset::Profile(_, carrier)), TimeoutProfile::Carrier) => *carrier,
        _ => panic!("timeouts.{name} has no profile value in the key table"),
    }
}

//! The entries of sets: what a set's file has, and what the configuration has itself.

use std::io;
use std::path::Path;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::Diagnostic;
use crate::line_errors::{LineErrors, entries};
use crate::policy_types::{PolicySettings, SetSource};
use crate::read::policy::prefix;

/// Most entries of a set.
const ENTRIES_MAX: usize = 1_000_000;
/// Longest part of a line that an error repeats, in characters.
const LINE_SHOWN_MAX: usize = 60;

/// A set with its entries, in order of addresses and each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadedSet {
    pub name: String,
    pub ipv4: Vec<Ipv4Net>,
    pub ipv6: Vec<Ipv6Net>,
}

impl LoadedSet {
    fn new(name: &str, entries: impl IntoIterator<Item = IpNet>) -> Self {
        let mut set = Self { name: name.to_owned(), ..Self::default() };
        for entry in entries {
            match entry {
                IpNet::V4(net) => set.ipv4.push(net),
                IpNet::V6(net) => set.ipv6.push(net),
            }
        }
        set.ipv4.sort_unstable();
        set.ipv4.dedup();
        set.ipv6.sort_unstable();
        set.ipv6.dedup();
        set
    }

    /// Returns the number of entries.
    pub fn entries(&self) -> usize {
        self.ipv4.len() + self.ipv6.len()
    }

    /// Returns the entries in order of addresses.
    pub fn prefixes(&self) -> impl Iterator<Item = IpNet> {
        let ipv6 = self.ipv6.iter().map(|net| IpNet::V6(*net));
        self.ipv4.iter().map(|net| IpNet::V4(*net)).chain(ipv6)
    }
}

/// Parses a set's file: an address or a prefix on each line, IPv4 or IPv6; `#` begins a comment.
/// `file_name` is used in errors only.
///
/// # Errors
/// One for each line that is neither; beyond 20 of them the last error counts the others.
pub fn parse_set(name: &str, text: &str, file_name: &str) -> Result<LoadedSet, Vec<Diagnostic>> {
    let mut nets = Vec::new();
    let mut errors = errors_of(name, file_name);
    for (line, blank, entry) in entries(text) {
        match prefix(entry) {
            Ok(net) => nets.push(net),
            Err(message) => {
                let message = match entry.char_indices().nth(LINE_SHOWN_MAX) {
                    Some((end, _)) => format!("{:?}... is no address", &entry[..end]),
                    None => message,
                };
                let fix = "write an address or a prefix, or # before a comment";
                errors.push(line, blank, message, fix);
            }
        }
    }
    if nets.len() > ENTRIES_MAX {
        let message = format!("{} entries, at most {ENTRIES_MAX} fit", nets.len());
        errors.push(0, 0, message, "use larger prefixes, or several sets");
    }
    errors.finish().map(|()| LoadedSet::new(name, nets))
}

fn errors_of<'f>(set: &str, file_name: &'f str) -> LineErrors<'f> {
    LineErrors::new(file_name, format!("set {set}"))
}

/// Returns all sets of a policy with their entries, in their order. `read` returns the text of a
/// file.
///
/// # Errors
/// All errors in the files, each with file and line, and files that cannot be read.
pub fn load_sets(
    policy: &PolicySettings,
    mut read: impl FnMut(&Path) -> io::Result<String>,
) -> Result<Vec<LoadedSet>, Vec<Diagnostic>> {
    let (mut sets, mut errors) = (Vec::new(), Vec::new());
    for set in &policy.sets {
        let loaded = match &set.source {
            SetSource::Prefixes(prefixes) => {
                Ok(LoadedSet::new(&set.name, prefixes.iter().copied()))
            }
            SetSource::File(path) => {
                let file = path.display().to_string();
                match read(path) {
                    Ok(text) => parse_set(&set.name, &text, &file),
                    Err(error) => Err(errors_of(&set.name, &file)
                        .unread(&error, "write the file, or remove the set")),
                }
            }
        };
        match loaded {
            Ok(set) => sets.push(set),
            Err(wrong) => errors.extend(wrong),
        }
    }
    if errors.is_empty() { Ok(sets) } else { Err(errors) }
}

impl PolicySettings {
    /// Returns the policy with every set's entries in itself, as if no set had a file.
    #[must_use]
    pub fn with_entries(mut self, sets: &[LoadedSet]) -> Self {
        for set in &mut self.sets {
            let loaded = sets.iter().find(|loaded| loaded.name == set.name);
            if let (SetSource::File(_), Some(loaded)) = (&set.source, loaded) {
                set.source = SetSource::Prefixes(loaded.prefixes().collect());
            }
        }
        self
    }
}

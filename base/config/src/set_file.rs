//! The entries of sets: what a set's file has, and what the configuration has itself.

use std::fmt::Write;
use std::io;
use std::path::Path;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::Diagnostic;
use crate::policy_types::{ContentDigest, PolicySettings, SetContent, SetSource};
use crate::read::policy::prefix;

/// Most lines with an error that are named.
const LINES_NAMED_MAX: usize = 20;
/// Most entries of a set.
const ENTRIES_MAX: usize = 1_000_000;
/// Longest part of a line that an error repeats, in characters.
const LINE_SHOWN_MAX: usize = 60;

/// A set with its entries, in order of addresses and each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadedSet {
    pub name: String,
    pub ipv4: Vec<Ipv4Net>,
    /// Kept and replicated, but no rule filters IPv6 yet.
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

    /// Returns the entries as a file of which [`parse_set`] makes an equal set: one a line, without
    /// comments. Files with the same entries have the same text.
    pub fn text(&self) -> String {
        let mut text = String::with_capacity(20 * self.entries());
        for net in self.prefixes() {
            let _ = writeln!(text, "{net}");
        }
        text
    }

    /// Returns the identity of the entries.
    pub fn content(&self) -> SetContent {
        let digest = ring::digest::digest(&ring::digest::SHA256, self.text().as_bytes());
        let sha256 = digest.as_ref().try_into().expect("a SHA-256 has 32 bytes");
        SetContent { sha256: ContentDigest(sha256), entries: self.entries() as u64 }
    }
}

/// Parses a set's file: an address or a prefix on each line, IPv4 or IPv6; `#` begins a comment.
/// `file_name` is used in errors only.
///
/// # Errors
/// One for each line that is neither; beyond 20 of them the last error counts the others.
pub fn parse_set(name: &str, text: &str, file_name: &str) -> Result<LoadedSet, Vec<Diagnostic>> {
    let mut entries = Vec::new();
    let mut errors = Vec::new();
    let mut more = 0_usize;
    let error = |index: usize, column: usize, message: String, fix: &str| Diagnostic {
        file: file_name.to_owned(),
        line: index + 1,
        column,
        key: format!("set {name}"),
        message,
        fix: fix.to_owned(),
    };
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (index, line) in text.lines().enumerate() {
        let entry = line.split('#').next().unwrap_or(line);
        let blank = entry.chars().take_while(|letter| letter.is_whitespace()).count();
        let entry = entry.trim();
        match entry {
            "" => {}
            _ => match prefix(entry) {
                Ok(net) => entries.push(net),
                Err(_) if errors.len() >= LINES_NAMED_MAX => more += 1,
                Err(message) => {
                    let shown = entry.char_indices().nth(LINE_SHOWN_MAX);
                    let message = match shown {
                        Some((end, _)) => format!("{:?}... is no address", &entry[..end]),
                        None => message,
                    };
                    let fix = "write an address or a prefix, or # before a comment";
                    errors.push(error(index, blank + 1, message, fix));
                }
            },
        }
    }
    if entries.len() > ENTRIES_MAX {
        let message = format!("{} entries, at most {ENTRIES_MAX} fit", entries.len());
        errors.push(error(0, 1, message, "use larger prefixes, or several sets"));
    }
    if let (1.., Some(last)) = (more, errors.last()) {
        let (line, message) = (last.line, format!("{more} more lines are wrong"));
        errors.push(error(line, 1, message, "is this the right file?"));
    }
    if errors.is_empty() { Ok(LoadedSet::new(name, entries)) } else { Err(errors) }
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
        let unread = |file: String, message: String, fix: &str| Diagnostic {
            file,
            line: 1,
            column: 1,
            key: format!("set {}", set.name),
            message,
            fix: fix.to_owned(),
        };
        match &set.source {
            SetSource::Prefixes(prefixes) => {
                sets.push(LoadedSet::new(&set.name, prefixes.iter().copied()));
            }
            SetSource::File(path) => {
                let file = path.display().to_string();
                match read(path).map(|text| parse_set(&set.name, &text, &file)) {
                    Ok(Ok(set)) => sets.push(set),
                    Ok(Err(wrong)) => errors.extend(wrong),
                    Err(error) => {
                        let message = format!("cannot be read: {error}");
                        errors.push(unread(file, message, "write the file, or remove the set"));
                    }
                }
            }
            SetSource::Content(content) => {
                let message = format!("its {} entries are in etcd, not here", content.entries);
                errors.push(unread("etcd".to_owned(), message, "read the cluster file instead"));
            }
        }
    }
    if errors.is_empty() { Ok(sets) } else { Err(errors) }
}

impl PolicySettings {
    /// Returns the policy with every set's entries in itself, as if no set had a file.
    #[must_use]
    pub fn with_entries(mut self, sets: &[LoadedSet]) -> Self {
        self.replace_files(sets, |set| SetSource::Prefixes(set.prefixes().collect()));
        self
    }

    /// Returns the policy with the identity of the entries of each set that has a file.
    #[must_use]
    pub fn with_contents(mut self, sets: &[LoadedSet]) -> Self {
        self.replace_files(sets, |set| SetSource::Content(set.content()));
        self
    }

    fn replace_files(&mut self, sets: &[LoadedSet], source: impl Fn(&LoadedSet) -> SetSource) {
        for set in &mut self.sets {
            let loaded = sets.iter().find(|loaded| loaded.name == set.name);
            if let (SetSource::File(_), Some(loaded)) = (&set.source, loaded) {
                set.source = source(loaded);
            }
        }
    }
}

//! Collects errors and warnings while a file is read and checked, with the position of every key.

use std::collections::{BTreeMap, BTreeSet};

use crate::Diagnostic;

/// Limit of findings: a file of junk must not produce a report as long as itself.
const FINDINGS_MAX: usize = 200;

/// The errors and warnings so far, and the position of each key.
///
/// Keys are paths such as `worker[0].access.mtu`. A key has at most one error: later checks skip
/// it, so one mistake is reported once.
#[derive(Debug)]
pub(crate) struct Findings<'t> {
    file: &'t str,
    text: &'t str,
    /// Byte offsets of the keys.
    places: BTreeMap<String, usize>,
    bad: BTreeSet<String>,
    errors: Vec<Diagnostic>,
    warnings: Vec<Diagnostic>,
}

impl<'t> Findings<'t> {
    pub(crate) fn new(text: &'t str, file: &'t str) -> Self {
        Self {
            file,
            text,
            places: BTreeMap::new(),
            bad: BTreeSet::new(),
            errors: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// Records that `key` is at byte `at`.
    pub(crate) fn place(&mut self, key: &str, at: usize) {
        self.places.insert(key.to_owned(), at);
    }

    /// Whether the file gives `key` a value.
    pub(crate) fn is_given(&self, key: &str) -> bool {
        self.places.contains_key(key)
    }

    /// Whether `key`, or the value it is part of, has no error so far: later checks may rely on it.
    pub(crate) fn is_good(&self, key: &str) -> bool {
        !self.bad.contains(key) && parent(key).is_none_or(|parent| self.is_good(parent))
    }

    /// Whether neither `key` nor a part of its value has an error so far.
    pub(crate) fn is_whole(&self, key: &str) -> bool {
        let parts = self.bad.range(key.to_owned()..).take_while(|bad| bad.starts_with(key));
        self.is_good(key)
            && parts.filter(|bad| bad[key.len()..].starts_with(['.', '['])).count() == 0
    }

    /// Returns the path of element `index` of a list; that of the list itself where the file gives
    /// one value instead of a list.
    pub(crate) fn element(&self, key: &str, index: usize) -> String {
        let element = format!("{key}[{index}]");
        if self.places.contains_key(&element) { element } else { key.to_owned() }
    }

    pub(crate) fn error(&mut self, key: &str, message: impl Into<String>, fix: impl Into<String>) {
        let at = self.place_of(key);
        self.error_at(at, key, message, fix);
    }

    /// Adds an error at byte `at` instead of the position of `key`.
    pub(crate) fn error_at(
        &mut self,
        at: usize,
        key: &str,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) {
        let is_new = key.is_empty() || self.bad.insert(key.to_owned());
        if is_new && self.errors.len() < FINDINGS_MAX {
            let found = self.diagnostic(at, key, message.into(), fix.into());
            self.errors.push(found);
        }
    }

    pub(crate) fn warning(
        &mut self,
        key: &str,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) {
        if self.warnings.len() < FINDINGS_MAX {
            let at = self.place_of(key);
            let found = self.diagnostic(at, key, message.into(), fix.into());
            self.warnings.push(found);
        }
    }

    /// Forgets all findings, and keeps the positions of the keys.
    pub(crate) fn forget(&mut self) {
        self.bad.clear();
        self.errors.clear();
        self.warnings.clear();
    }

    pub(crate) fn has_errors(&self) -> bool {
        !self.errors.is_empty()
    }

    /// Returns the errors and the warnings, each in file order.
    pub(crate) fn into_parts(mut self) -> (Vec<Diagnostic>, Vec<Diagnostic>) {
        self.errors.sort_by_key(|found| (found.line, found.column));
        self.warnings.sort_by_key(|found| (found.line, found.column));
        (self.errors, self.warnings)
    }

    /// Returns the byte offset of a key, or of its closest parent that the file contains.
    fn place_of(&self, key: &str) -> usize {
        match self.places.get(key) {
            Some(at) => *at,
            None => parent(key).map_or(0, |parent| self.place_of(parent)),
        }
    }

    fn diagnostic(&self, at: usize, key: &str, message: String, fix: String) -> Diagnostic {
        let before = &self.text.as_bytes()[..at.min(self.text.len())];
        let line_start =
            before.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
        Diagnostic {
            file: self.file.to_owned(),
            line: 1 + before.iter().filter(|byte| **byte == b'\n').count(),
            column: 1 + String::from_utf8_lossy(&before[line_start..]).chars().count(),
            key: key.to_owned(),
            message,
            fix,
        }
    }
}

/// Returns the parent of a key: `a.b[1].c` -> `a.b[1]` -> `a.b` -> `a`.
fn parent(key: &str) -> Option<&str> {
    key.rfind(['.', '[']).map(|cut| &key[..cut])
}

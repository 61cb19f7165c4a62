//! What is wrong at which place of the file, and what to do about it.

use std::fmt;

/// One finding, an error or a warning.
///
/// Displays as `file:line:column: key: message (fix)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    pub file: String,
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    /// The key as a path, e.g. `worker[0].access.mtu`; empty for a syntax error.
    pub key: String,
    pub message: String,
    /// What to write instead; empty when the message says it all.
    pub fix: String,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: ", self.file, self.line, self.column)?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)?;
        if !self.fix.is_empty() {
            write!(f, " ({})", self.fix)?;
        }
        Ok(())
    }
}

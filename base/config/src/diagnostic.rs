//! An error or a warning, its position in the file, and the fix.

use std::fmt;

/// One finding, an error or a warning.
///
/// Displays as `file:line:column: key: message (fix)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    pub file: String,
    /// Line number, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The key as a path, e.g. `worker[0].access.mtu`; empty for a syntax error.
    pub key: String,
    pub message: String,
    /// Text to write instead; empty when the message suffices.
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

//! Files with one entry a line: their entries, and the errors in them.

use crate::Diagnostic;

/// Most lines with an error that are named.
const LINES_NAMED_MAX: usize = 20;

/// Returns the lines that have an entry, each with its number from 0, the characters before the
/// entry and the entry. `#` begins a comment; a byte order mark is no part of the text.
pub(crate) fn entries(text: &str) -> impl Iterator<Item = (usize, usize, &str)> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    text.lines().enumerate().filter_map(|(line, text)| {
        let text = text.split('#').next().unwrap_or(text);
        let blank = text.chars().take_while(|letter| letter.is_whitespace()).count();
        let entry = text.trim();
        (!entry.is_empty()).then_some((line, blank, entry))
    })
}

/// The errors in a file: the first ones each by its line, the number of the others.
pub(crate) struct LineErrors<'f> {
    file: &'f str,
    key: String,
    named: Vec<Diagnostic>,
    more: usize,
}

impl<'f> LineErrors<'f> {
    /// `key` is what the file belongs to.
    pub(crate) fn new(file: &'f str, key: String) -> Self {
        Self { file, key, named: Vec::new(), more: 0 }
    }

    /// Adds an error; `line` and `column` count from 0.
    pub(crate) fn push(&mut self, line: usize, column: usize, message: String, fix: &str) {
        if self.named.len() >= LINES_NAMED_MAX {
            self.more += 1;
            return;
        }
        self.named.push(Diagnostic {
            file: self.file.to_owned(),
            line: line + 1,
            column: column + 1,
            key: self.key.clone(),
            message,
            fix: fix.to_owned(),
        });
    }

    /// Returns the one error of a file that cannot be read.
    pub(crate) fn unread(mut self, error: &std::io::Error, fix: &str) -> Vec<Diagnostic> {
        self.push(0, 0, format!("cannot be read: {error}"), fix);
        self.named
    }

    /// Returns all errors; if lines are not named, their number is the last one.
    pub(crate) fn finish(mut self) -> Result<(), Vec<Diagnostic>> {
        if let (1.., Some(last)) = (self.more, self.named.last().cloned()) {
            let message = format!("{} more lines are wrong", self.more);
            let fix = "is this the right file?".to_owned();
            self.named.push(Diagnostic { column: 1, message, fix, ..last });
        }
        if self.named.is_empty() { Ok(()) } else { Err(self.named) }
    }
}

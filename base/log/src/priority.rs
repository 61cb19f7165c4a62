//! Priorities of lines for systemd's journal.

use std::env;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

/// Severity of a line, with the numbers of syslog(3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    Error,
    Warning,
    Info,
    Debug,
}

impl Priority {
    /// Returns the mark for the beginning of a line, which the journal removes (sd-daemon(3)).
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::Error => "<3>",
            Self::Warning => "<4>",
            Self::Info => "<6>",
            Self::Debug => "<7>",
        }
    }

    /// Puts the prefix before each line of `text`: the journal stores each line as an entry of its
    /// own.
    pub fn mark(self, text: &[u8]) -> Vec<u8> {
        let mut marked = Vec::with_capacity(text.len() + self.prefix().len());
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            marked.extend_from_slice(self.prefix().as_bytes());
            marked.extend_from_slice(line);
        }
        marked
    }
}

/// Whether the journal reads `stream`: `JOURNAL_STREAM` names its device and inode
/// (systemd.exec(5)). The variable alone is no proof, since a process that was started with another
/// stderr inherits it, too.
pub fn is_journal(stream: impl AsFd) -> bool {
    let Some(named) = env::var_os("JOURNAL_STREAM") else { return false };
    let file = stream.as_fd().try_clone_to_owned().map(File::from);
    let metadata = file.and_then(|file| file.metadata());
    metadata.is_ok_and(|it| named.to_str() == Some(&format!("{}:{}", it.dev(), it.ino())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_of_a_text_has_the_priority() {
        assert_eq!(Priority::Warning.mark(b"one\n"), b"<4>one\n");
        assert_eq!(Priority::Error.mark(b"one\n  two\nthree"), b"<3>one\n<3>  two\n<3>three");
        assert_eq!(Priority::Info.mark(b""), b"");
    }
}

//! The line on stderr of a command that fails.

use std::io;

use weir_log::{Priority, is_journal};

/// Writes to stderr why `program` fails, with a priority if the journal reads it.
pub fn print_error(program: &str, error: &str) {
    let line = format!("{program}: {error}");
    if is_journal(io::stderr()) {
        eprintln!("{}", String::from_utf8_lossy(&Priority::Error.mark(line.as_bytes())));
    } else {
        eprintln!("{line}");
    }
}

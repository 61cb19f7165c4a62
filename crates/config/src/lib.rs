//! The configuration file: keys, defaults, ranges, errors with line and column.
//!
//! ```text
//!   text --toml--> document --read/--> Config --check/--> Config + warnings
//!                     |          key_table: ranges, defaults        |
//!                     +------------- findings: line, column --------+--> or every error at once
//! ```
//!
//! [`parse`] is a pure function of the text: it looks at no file, device or core of the machine. Syntax errors are
//! reported alone, since what follows them would be guesses; all others together.

#![forbid(unsafe_code)]

mod check;
mod diagnostic;
mod findings;
mod key;
mod key_table;
mod read;
mod reference;
mod section;
mod types;

use toml::de::DeTable;

pub use diagnostic::Diagnostic;
pub use reference::key_reference;
pub use types::{
    Access, AccessMode, Config, Filtering, Fragments, GreKey, HugePages, Interface, LogFormat,
    LogLevel, MssClamp, Nat, Node, Poll, Pooling, Shard, TimeoutProfile, Timeouts, Worker,
};

/// Parses and checks the configuration `text`; `file_name` only names the place in what it reports.
///
/// Gives the configuration with every default filled in, and warnings in file order.
///
/// # Errors
/// Everything that is wrong, in file order, each with line and column.
pub fn parse(text: &str, file_name: &str) -> Result<(Config, Vec<Diagnostic>), Vec<Diagnostic>> {
    let mut findings = findings::Findings::new(text, file_name);
    let (document, syntax_errors) = DeTable::parse_recoverable(text);
    if !syntax_errors.is_empty() {
        for error in syntax_errors {
            let at = error.span().map_or(0, |span| span.start);
            findings.error_at(at, "", error.message(), "");
        }
        return Err(findings.into_parts().0);
    }
    let mut config = read::config(document.get_ref(), &mut findings);
    check::config(&config, &mut findings);
    for shard in config.shards.iter_mut().filter(|shard| shard.public.is_empty()) {
        shard.public.clone_from(&shard.subscribers);
    }
    match findings.into_parts() {
        (errors, warnings) if errors.is_empty() => Ok((config, warnings)),
        (errors, _) => Err(errors),
    }
}

//! Commands that other programs have now: they say where they went.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::print_error;

/// Exit code of these commands: wrong arguments.
const EXIT_CODE: u8 = 2;

/// Whatever follows the command.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true, disable_version_flag = true)]
pub(crate) struct Args {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    words: Vec<OsString>,
}

/// A command that another program has now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moved {
    name: &'static str,
    program: &'static str,
    /// The arguments that it needs at least.
    needs: &'static str,
}

pub(crate) const RUN: Moved =
    Moved { name: "run", program: "weir-node", needs: " --config /etc/weir/NODE.toml" };
pub(crate) const GUARD: Moved = Moved { name: "guard", program: "weir-node", needs: "" };
pub(crate) const TRAFFIC: Moved = Moved { name: "traffic", program: "weir-lab", needs: "" };
pub(crate) const CPE: Moved = Moved { name: "cpe", program: "weir-lab", needs: "" };

/// Says on stderr what to call instead.
pub(crate) fn run(moved: Moved, args: &Args) -> ExitCode {
    print_error(&moved.sentence(&args.words));
    ExitCode::from(EXIT_CODE)
}

impl Moved {
    fn sentence(self, words: &[OsString]) -> String {
        let Self { name, program, needs } = self;
        let given: String =
            words.iter().map(|word| format!(" {}", quoted(&word.to_string_lossy()))).collect();
        let arguments = if given.is_empty() { needs } else { &given };
        format!("`weir {name}` is now `{program} {name}{arguments}`")
    }
}

/// Quotes a word for a shell if it has characters that a shell may take for its own.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentence_has_the_command_line_that_a_shell_takes() {
        let sentence = |moved: Moved, words: &[&str]| {
            moved.sentence(&words.iter().map(OsString::from).collect::<Vec<_>>())
        };
        assert_eq!(
            sentence(RUN, &["--config", "/etc/weir/edge1.toml"]),
            "`weir run` is now `weir-node run --config /etc/weir/edge1.toml`"
        );
        assert_eq!(
            sentence(RUN, &[]),
            "`weir run` is now `weir-node run --config /etc/weir/NODE.toml`"
        );
        assert_eq!(sentence(GUARD, &[]), "`weir guard` is now `weir-node guard`");
        assert_eq!(
            sentence(CPE, &["a b", "it's", ""]),
            r"`weir cpe` is now `weir-lab cpe 'a b' 'it'\''s' ''`"
        );
    }
}

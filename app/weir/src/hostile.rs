//! Fuzzes the command line: any words are understood or refused with a sentence.

use std::cell::RefCell;
use std::panic::AssertUnwindSafe;

use bolero::{TypeGenerator, check};
use clap::{Command, CommandFactory, FromArgMatches};

use crate::Arguments;

/// Values that are valid for one argument and invalid for most others.
const VALUES: [&str; 34] = [
    "",
    "-",
    "--",
    "0",
    "1",
    "5",
    "-1",
    "0.5",
    "1e6",
    "1e400",
    "NaN",
    "inf",
    "-inf",
    "4294967296",
    "18446744073709551616",
    "imix",
    "64",
    "1519",
    "10.200.0.1",
    "203.0.113.1:4000",
    "1.2.3.4:65536",
    "::1",
    "2001:db8:1000:100::/56",
    "[2001:db8:9::1]:443",
    "2026-03-01T12:00:00Z",
    "2026-02-30T12:00:00Z",
    "-9999-01-01T00:00:00Z",
    "edge1",
    "a/b",
    "../x",
    "http://10.0.0.1:2379",
    ",",
    "=",
    "access",
];

#[derive(Clone, Debug, TypeGenerator)]
enum Word {
    Command(u8),
    Flag(u8),
    /// `--flag=value`.
    Given(u8, Value),
    Value(Value),
}

#[derive(Clone, Debug, TypeGenerator)]
enum Value {
    Known(u8),
    Any(String),
}

impl Value {
    fn text(&self) -> String {
        match self {
            Self::Known(known) => VALUES[usize::from(*known) % VALUES.len()].to_owned(),
            Self::Any(any) => any.chars().take(40).collect(),
        }
    }
}

/// Returns the names of a command's own commands, and its flags.
fn words(command: &Command) -> (Vec<String>, Vec<String>) {
    let commands = command.get_subcommands().map(|it| it.get_name().to_owned()).collect();
    let long = command.get_arguments().filter_map(|it| Some(format!("--{}", it.get_long()?)));
    let short = command.get_arguments().filter_map(|it| Some(format!("-{}", it.get_short()?)));
    (commands, long.chain(short).collect())
}

/// Builds a command line: the first word names a command, and most others belong to it.
fn line<'a>(root: &'a Command, first: u8, given: &[Word]) -> Vec<String> {
    let pick = |from: &[String], at: u8| {
        from.get(usize::from(at) % from.len().max(1)).cloned().unwrap_or_default()
    };
    let (commands, _) = words(root);
    let mut line = vec!["weir".to_owned(), pick(&commands, first)];
    let mut command: &'a Command = root.find_subcommand(&line[1]).expect("a known command");
    for word in given.iter().take(10) {
        let (commands, flags) = words(command);
        match word {
            Word::Command(at) if !commands.is_empty() => {
                line.push(pick(&commands, *at));
                command = command.find_subcommand(line.last().expect("a word")).expect("a command");
            }
            Word::Command(at) | Word::Flag(at) => line.push(pick(&flags, *at)),
            Word::Given(at, value) => line.push(format!("{}={}", pick(&flags, *at), value.text())),
            Word::Value(value) => line.push(value.text()),
        }
    }
    line
}

#[test]
fn arguments() {
    let mut command = Arguments::command();
    command.build();
    let root = command.clone();
    let (root, command) = (AssertUnwindSafe(root), AssertUnwindSafe(RefCell::new(command)));
    check!().with_type::<(u8, Vec<Word>)>().for_each(|(first, given)| {
        let line = line(&root, *first, given);
        let matches = command.borrow_mut().try_get_matches_from_mut(&line);
        match matches.and_then(|mut matches| Arguments::from_arg_matches_mut(&mut matches)) {
            Ok(_) => {}
            Err(error) => assert!(!error.to_string().trim().is_empty(), "{line:?}"),
        }
    });
}

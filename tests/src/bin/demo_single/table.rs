//! The table of results.

use std::fmt::Write;
use std::io::{IsTerminal, stdout};

/// Longest detail shown in the table; the rest follows below it.
const DETAIL_MAX: usize = 74;

/// How a check ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// With what it measured.
    Pass(String),
    /// With the reason.
    Fail(String),
}

/// One line of the table.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) outcome: Outcome,
}

/// The table as text, with colours on a terminal. Long reasons follow it in full.
pub(crate) fn render(rows: &[Row]) -> String {
    let width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
    let rule = format!("+-{}-+------+-{}-+\n", "-".repeat(width), "-".repeat(DETAIL_MAX));
    let mut text = rule.clone();
    let mut reasons = String::new();
    for row in rows {
        let (word, colour, detail) = match &row.outcome {
            Outcome::Pass(detail) => ("pass", "32", detail),
            Outcome::Fail(reason) => {
                let _ = writeln!(reasons, "\n{}: {reason}", row.name);
                ("FAIL", "31", reason)
            }
        };
        let word = paint(word, colour);
        let detail: String = detail.lines().next().unwrap_or("").chars().take(DETAIL_MAX).collect();
        let _ = writeln!(text, "| {:<width$} | {word} | {detail:<DETAIL_MAX$} |", row.name);
    }
    text + &rule + &reasons
}

fn paint(word: &str, colour: &str) -> String {
    if stdout().is_terminal() { format!("\x1b[{colour}m{word}\x1b[0m") } else { word.to_owned() }
}

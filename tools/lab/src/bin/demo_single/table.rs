//! The table of results.

use std::fmt::Write;
use std::io::{IsTerminal, stdout};

/// Printed in place of a reason, which may have many lines and follows below the table.
const BELOW: &str = "see below";

/// How a check ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Passed, with the measured values.
    Pass(String),
    /// Failed, with the reason.
    Fail(String),
}

/// One line of the table.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) outcome: Outcome,
}

/// Returns the table as text, as wide as its content, with colours on a terminal. Reasons follow it
/// in full.
pub(crate) fn render(rows: &[Row]) -> String {
    fn detail(row: &Row) -> &str {
        match &row.outcome {
            Outcome::Pass(detail) => detail,
            Outcome::Fail(_) => BELOW,
        }
    }
    let width = |of: fn(&Row) -> &str| rows.iter().map(|row| of(row).chars().count()).max();
    let names = width(|row| row.name).unwrap_or_default();
    let details = width(detail).unwrap_or_default();
    let rule = format!("+-{}-+------+-{}-+\n", "-".repeat(names), "-".repeat(details));
    let mut text = rule.clone();
    let mut reasons = String::new();
    for row in rows {
        let (word, colour) = match &row.outcome {
            Outcome::Pass(_) => ("pass", "32"),
            Outcome::Fail(reason) => {
                let _ = writeln!(reasons, "\n{}: {reason}", row.name);
                ("FAIL", "31")
            }
        };
        let word = paint(word, colour);
        let _ = writeln!(text, "| {:<names$} | {word} | {:<details$} |", row.name, detail(row));
    }
    text + &rule + &reasons
}

fn paint(word: &str, colour: &str) -> String {
    if stdout().is_terminal() { format!("\x1b[{colour}m{word}\x1b[0m") } else { word.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_detail_is_cut_and_all_lines_are_equally_long() {
        let long = format!("192.168.1.2:40000 is {}", "198.18.0.1:12345, ".repeat(9));
        let rows = [
            Row { name: "same address", outcome: Outcome::Pass(long.clone()) },
            Row { name: "dns", outcome: Outcome::Fail("no answer\nsecond line".into()) },
        ];
        let text = render(&rows);
        let (table, reasons) = text.split_once("\n\n").unwrap();
        assert!(table.contains(&long), "{table}");
        assert_eq!(reasons, "dns: no answer\nsecond line\n");
        if !stdout().is_terminal() {
            let lengths: Vec<usize> = table.lines().map(str::len).collect();
            assert!(lengths.iter().all(|&length| length == lengths[0]), "{table}");
        }
    }
}

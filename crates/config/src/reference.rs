//! The reference of all keys, written from the key table.

use std::fmt::Write;

use crate::key::{Key, Kind, Preset};
use crate::key_table::{KEYS, SECTIONS};

/// Every key with type, range, unit, default and meaning, as Markdown: one table for each section.
pub fn key_reference() -> String {
    let mut text = String::new();
    for section in SECTIONS {
        let _ = write!(text, "## {}\n\n{}\n\n", section.title, section.about);
        text.push_str(
            "| key | type | range | unit | default | meaning |\n|---|---|---|---|---|---|\n",
        );
        for key in KEYS.iter().filter(|key| key.section == section.id) {
            text.push_str(&row(key));
        }
        text.push('\n');
    }
    text
}

fn row(key: &Key) -> String {
    let (form, range) = match key.kind {
        Kind::Boolean => ("boolean", "`true`, `false`".to_owned()),
        Kind::Integer(min, max) => ("integer", format!("{min}..={max}")),
        Kind::Choice(words) => {
            let words: Vec<_> = words.iter().map(|word| format!("`\"{word}\"`")).collect();
            ("string", words.join(", "))
        }
        Kind::Form(form, rule) => (form, rule.to_owned()),
    };
    let default = match key.default {
        Preset::Required => "**required**".to_owned(),
        Preset::Value(literal) => format!("`{literal}`"),
        Preset::Absent(meaning) => meaning.to_owned(),
        Preset::Profile(rfc, carrier) => format!("`{rfc}`; carrier `{carrier}`"),
    };
    format!("| `{}` | {form} | {range} | {} | {default} | {} |\n", key.name, key.unit, key.about)
}

//! The reference of all keys, written from the key table.

use std::fmt::Write;

use crate::file_kind::Files;
use crate::key::{AllowedValues, ConfigKey, Preset};
use crate::key_table::KEYS;
use crate::section_table::SECTIONS;

/// Returns every key with type, range, unit, default and meaning, as Markdown: one table per
/// section.
pub fn key_reference() -> String {
    let mut text = String::new();
    for section in SECTIONS {
        let _ = write!(text, "## {}\n\n{}", section.title, section.about);
        if section.files != Files::ALL {
            let _ = write!(text, " In: {}.", section.files.words());
        }
        text.push_str("\n\n");
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

fn row(key: &ConfigKey) -> String {
    let (form, range) = match key.kind {
        AllowedValues::Boolean => ("boolean", "`true`, `false`".to_owned()),
        AllowedValues::Integer(min, max) => ("integer", format!("{min}..={max}")),
        AllowedValues::Choice(words) => {
            let words: Vec<_> = words.iter().map(|word| format!("`\"{word}\"`")).collect();
            ("string", words.join(", "))
        }
        AllowedValues::Form(form, rule) => (form, rule.to_owned()),
    };
    let default = match key.default {
        Preset::Required => "**required**".to_owned(),
        Preset::Value(literal) => format!("`{literal}`"),
        Preset::Absent(meaning) => meaning.to_owned(),
        Preset::Profile(rfc, carrier) => format!("`{rfc}`; carrier `{carrier}`"),
    };
    let only = match key.narrower_files() {
        Some(files) => format!(" Only in: {}.", files.words()),
        None => String::new(),
    };
    format!(
        "| `{}` | {form} | {range} | {} | {default} | {}{only} |\n",
        key.name, key.unit, key.about
    )
}

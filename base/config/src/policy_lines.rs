//! Lines of sets and rules in a file, for what is found only when they are compiled.

use std::collections::HashMap;

use toml::de::DeTable;

/// The line on which each set and each rule begins.
#[derive(Clone, Debug, Default)]
pub struct PolicyLines {
    sets: HashMap<String, usize>,
    rules: HashMap<String, usize>,
}

impl PolicyLines {
    /// Returns the lines of a valid file; of another text those that it has.
    pub fn of(text: &str) -> Self {
        let (document, _) = DeTable::parse_recoverable(text);
        let newlines: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).collect();
        let lines = |section: &str| {
            let tables = document.get_ref().get(section).and_then(|it| it.get_ref().as_array());
            let named = tables.into_iter().flatten().filter_map(|table| {
                let name = table.get_ref().as_table()?.get("name")?.get_ref().as_str()?;
                let line = 1 + newlines.partition_point(|at| *at < table.span().start);
                Some((name.to_owned(), line))
            });
            named.collect()
        };
        Self { sets: lines("set"), rules: lines("rule") }
    }

    /// Returns the line of a set, from 1.
    pub fn set(&self, name: &str) -> Option<usize> {
        self.sets.get(name).copied()
    }

    /// Returns the line of a rule, from 1.
    pub fn rule(&self, name: &str) -> Option<usize> {
        self.rules.get(name).copied()
    }
}

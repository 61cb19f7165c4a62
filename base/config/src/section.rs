//! One table of the file, read key by key with the ranges and defaults of the key table.
//!
//! A read always returns a value, so that reading continues and every mistake is found in one run.
//! After an error the value is only a stand-in: [`Findings::is_good`] distinguishes them, and the
//! parser returns no configuration.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::file_kind::FileKind;
use crate::findings::Findings;
use crate::key::{self, AllowedValues, ConfigKey, Preset};

/// A table of the document, or the absence of one.
#[derive(Debug)]
pub(crate) struct Section<'d> {
    /// Section of its keys in the key table.
    id: &'static str,
    /// Key path of the table, e.g. `worker[0].access`.
    path: String,
    table: Option<&'d DeTable<'d>>,
    /// Kind of its file.
    file: FileKind,
}

/// A value and its key path.
#[derive(Debug)]
pub(crate) struct KeyedValue<'d> {
    pub(crate) path: String,
    pub(crate) key: &'static ConfigKey,
    pub(crate) value: &'d DeValue<'d>,
}

impl<'d> Section<'d> {
    /// Creates the section of the whole document.
    pub(crate) fn root(
        table: &'d DeTable<'d>,
        file: FileKind,
        findings: &mut Findings<'_>,
    ) -> Self {
        Self::new("", String::new(), Some(table), file, findings)
    }

    /// Creates the section `id` at `path`; reports every key in it that the key table does not have
    /// for this kind of file.
    fn new(
        id: &'static str,
        path: String,
        table: Option<&'d DeTable<'d>>,
        file: FileKind,
        findings: &mut Findings<'_>,
    ) -> Self {
        let section = Self { id, path, table, file };
        let keys = table.into_iter().flat_map(|table| table.keys());
        for key in keys.filter(|_| !file.takes_unknown_keys()) {
            let name: &str = key.get_ref();
            if key::find(id, name, file).is_some() {
                continue;
            }
            let (message, fix) = match (key::files(id, name), key::nearest(id, name, file)) {
                (Some(files), _) => file.misplaced(files),
                (None, Some(known)) => ("unknown key", format!("did you mean {known}?")),
                (None, None) => ("unknown key", "remove it".to_owned()),
            };
            let path = section.path_of(&name.escape_debug().to_string());
            findings.error_at(key.span().start, &path, message, fix);
        }
        section
    }

    /// Returns the kind of its file.
    pub(crate) fn file(&self) -> FileKind {
        self.file
    }

    pub(crate) fn path_of(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// Returns the value of `name`, and records its position. An absent required key is an error.
    pub(crate) fn entry(&self, name: &str, findings: &mut Findings<'_>) -> Option<KeyedValue<'d>> {
        let key = self.key(name);
        let path = self.path_of(name);
        match self.table.and_then(|table| table.get(name)) {
            Some(value) => {
                findings.place(&path, value.span().start);
                Some(KeyedValue { path, key, value: value.get_ref() })
            }
            None => {
                if matches!(key.default, Preset::Required) && self.table.is_some() {
                    let fix = match key.kind {
                        AllowedValues::Form("table", _) if self.path.is_empty() => {
                            format!("write a section [{name}]")
                        }
                        AllowedValues::Form("table", _) => format!("write {name} = {{ ... }}"),
                        _ => format!("must be {}", expectation(key)),
                    };
                    findings.error(&path, "missing", fix);
                }
                None
            }
        }
    }

    pub(crate) fn boolean(&self, name: &str, findings: &mut Findings<'_>) -> bool {
        let default = self.default_of(name) == Some("true");
        let Some(entry) = self.entry(name, findings) else { return default };
        entry.value.as_bool().unwrap_or_else(|| {
            entry.refuse(findings);
            default
        })
    }

    /// Returns an integer within the key's range; the default where the file has none.
    pub(crate) fn integer<T: TryFrom<u64> + Default>(
        &self,
        name: &str,
        findings: &mut Findings<'_>,
    ) -> T {
        let given = self.optional_integer(name, findings);
        given.or_else(|| self.default_integer(name)).unwrap_or_default()
    }

    /// Returns an integer within the key's range; `None` where the file has none.
    pub(crate) fn optional_integer<T: TryFrom<u64>>(
        &self,
        name: &str,
        findings: &mut Findings<'_>,
    ) -> Option<T> {
        let entry = self.entry(name, findings)?;
        let AllowedValues::Integer(min, max) = entry.key.kind else {
            panic!("{} is not an integer in the key table", entry.path)
        };
        let number = integer(entry.value).filter(|number| (min..=max).contains(number));
        if number.is_none() {
            entry.refuse(findings);
        }
        number.and_then(|number| T::try_from(number).ok())
    }

    /// Returns one of the key's words; where the file has none the default, or else the first.
    pub(crate) fn choice(&self, name: &str, findings: &mut Findings<'_>) -> &'static str {
        let AllowedValues::Choice(words) = self.key(name).kind else {
            panic!("{} is not a choice in the key table", self.path_of(name))
        };
        let default = self.default_of(name).map_or(words[0], |literal| literal.trim_matches('"'));
        let Some(entry) = self.entry(name, findings) else { return default };
        let word = words.iter().find(|word| entry.value.as_str() == Some(word));
        word.copied().unwrap_or_else(|| {
            entry.refuse(findings);
            default
        })
    }

    /// Returns a string that `accepts` permits; `None` where the file has none.
    pub(crate) fn text(
        &self,
        name: &str,
        findings: &mut Findings<'_>,
        accepts: impl Fn(&str) -> bool,
    ) -> Option<&'d str> {
        let entry = self.entry(name, findings)?;
        let text = entry.value.as_str().filter(|text| accepts(text));
        if text.is_none() {
            entry.refuse(findings);
        }
        text
    }

    /// Returns the table `name` in this one, as section `id`.
    pub(crate) fn section(
        &self,
        name: &str,
        id: &'static str,
        findings: &mut Findings<'_>,
    ) -> Section<'d> {
        let entry = self.entry(name, findings);
        let table = entry.as_ref().and_then(|entry| entry.value.as_table());
        if let (Some(entry), None) = (&entry, table) {
            entry.refuse(findings);
        }
        Section::new(id, self.path_of(name), table, self.file, findings)
    }

    /// Returns the repeated tables `name` in this one, as sections `id`.
    pub(crate) fn sections(
        &self,
        name: &str,
        id: &'static str,
        findings: &mut Findings<'_>,
    ) -> Vec<Section<'d>> {
        let Some(entry) = self.entry(name, findings) else { return Vec::new() };
        let Some(elements) = entry.elements(findings) else { return Vec::new() };
        if elements.is_empty() {
            entry.refuse(findings);
        }
        let mut sections = Vec::new();
        for (path, element) in elements {
            let table = element.as_table();
            if table.is_none() {
                findings.error(&path, "not a table", format!("write [[{name}]] above its keys"));
            }
            sections.push(Section::new(id, path, table, self.file, findings));
        }
        sections
    }

    fn key(&self, name: &str) -> &'static ConfigKey {
        key::find(self.id, name, self.file)
            .unwrap_or_else(|| panic!("{}.{name} is not in the key table", self.id))
    }

    /// Returns the TOML literal of the default.
    fn default_of(&self, name: &str) -> Option<&'static str> {
        match self.key(name).default {
            Preset::Value(literal) => Some(literal),
            _ => None,
        }
    }

    fn default_integer<T: TryFrom<u64>>(&self, name: &str) -> Option<T> {
        let literal = self.default_of(name)?.replace('_', "");
        T::try_from(literal.parse().ok()?).ok()
    }
}

impl<'d> KeyedValue<'d> {
    /// Reports that the value is not what the key table requires.
    pub(crate) fn refuse(&self, findings: &mut Findings<'_>) {
        let message = match integer(self.value) {
            Some(number) if matches!(self.key.kind, AllowedValues::Integer(..)) => {
                format!("{number} is out of range")
            }
            _ => match (self.value, &self.key.kind) {
                (
                    DeValue::String(text),
                    AllowedValues::Choice(_) | AllowedValues::Form("string", _),
                ) => {
                    format!("{text:?} is not valid")
                }
                (value, _) => format!("{} is not valid here", with_article(value.type_str())),
            },
        };
        findings.error(&self.path, message, format!("must be {}", expectation(self.key)));
    }

    /// Returns the elements of a list with their key paths, and records their positions. Anything
    /// but a list is an error.
    pub(crate) fn elements(
        &self,
        findings: &mut Findings<'_>,
    ) -> Option<Vec<(String, &'d DeValue<'d>)>> {
        let Some(list) = self.value.as_array() else {
            self.refuse(findings);
            return None;
        };
        let place = |(index, element): (usize, &'d Spanned<DeValue<'d>>)| {
            let path = format!("{}[{index}]", self.path);
            findings.place(&path, element.span().start);
            (path, element.get_ref())
        };
        Some(list.iter().enumerate().map(place).collect())
    }
}

/// Parses a TOML integer that is not negative; `None` for everything else.
pub(crate) fn integer(value: &DeValue<'_>) -> Option<u64> {
    let number = value.as_integer()?;
    u64::from_str_radix(number.as_str(), number.radix()).ok()
}

/// Describes the permitted values of `key`, as the end of a sentence.
pub(crate) fn expectation(key: &ConfigKey) -> String {
    let unit = if key.unit.is_empty() { String::new() } else { format!(" {}", key.unit) };
    match key.kind {
        AllowedValues::Boolean => "true or false".to_owned(),
        AllowedValues::Integer(min, max) => format!("an integer {min}..={max}{unit}"),
        AllowedValues::Choice(words) => {
            let words: Vec<_> = words.iter().map(|word| format!("\"{word}\"")).collect();
            format!("one of {}", words.join(", "))
        }
        AllowedValues::Form("table", _) => "a table".to_owned(),
        AllowedValues::Form("tables", _) => format!("at least one [[{}]]", key.name),
        AllowedValues::Form(form, rule) => format!("a {form}: {}", rule.replace('`', "")),
    }
}

fn with_article(name: &str) -> String {
    let article = if name.starts_with(['a', 'i']) { "an" } else { "a" };
    format!("{article} {name}")
}

//! The objects of `nft -j list ruleset`: tables, chains with their rules, sets and maps.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use anyhow::{Context, bail};
use serde_json::{Map, Value};

/// Family and name of a table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TableName {
    pub family: String,
    pub name: String,
}

/// Table and name of a chain, a set or a map.
pub(super) type NameInTable = (TableName, String);

#[derive(Debug)]
pub(super) struct NftRuleset {
    pub chains: BTreeMap<NameInTable, NftChain>,
    /// Elements of sets, and pairs of key and verdict of maps.
    pub sets: BTreeMap<NameInTable, NftSet>,
    /// Tables that have a flag: dormant, or owned by a process.
    pub flagged: BTreeSet<TableName>,
    /// Objects of which weir has no counterpart.
    pub others: Vec<OtherObject>,
}

#[derive(Debug)]
pub(super) struct NftChain {
    pub place: RulePlace,
    /// Type, hook, priority and policy of a base chain.
    pub base: Option<BaseChain>,
    pub rules: Vec<NftRule>,
}

#[derive(Debug)]
pub(super) struct BaseChain {
    pub kind: String,
    pub hook: String,
    pub priority: i64,
    pub drops_by_policy: bool,
}

#[derive(Debug)]
pub(super) struct NftRule {
    pub place: RulePlace,
    pub comment: Option<String>,
    pub statements: Vec<Value>,
}

/// Where a rule or another object is: `table inet filter chain forward handle 7`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RulePlace {
    pub table: TableName,
    pub chain: String,
    pub handle: u64,
}

#[derive(Debug)]
pub(super) struct NftSet {
    pub elements: Vec<Value>,
    /// Whether elements come and go: by a timeout, or by a rule's statement.
    pub is_changing: bool,
}

#[derive(Debug)]
pub(super) struct OtherObject {
    pub kind: String,
    pub table: Option<TableName>,
    pub name: String,
    pub handle: u64,
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "table {} {}", self.family, self.name)
    }
}

impl fmt::Display for RulePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} chain {} handle {}", self.table, self.chain, self.handle)
    }
}

impl NftRuleset {
    /// # Errors
    /// When the text is not the JSON of a ruleset.
    pub(super) fn parse(text: &str) -> anyhow::Result<Self> {
        let value: Value = serde_json::from_str(text)
            .context("this is not JSON; it takes the output of `nft -j list ruleset`")?;
        let Some(objects) = value.get("nftables").and_then(Value::as_array) else {
            bail!(
                "the JSON has no array \"nftables\"; it takes the output of `nft -j list ruleset`"
            );
        };
        let mut ruleset = Self {
            chains: BTreeMap::new(),
            sets: BTreeMap::new(),
            flagged: BTreeSet::new(),
            others: Vec::new(),
        };
        for (number, object) in objects.iter().enumerate() {
            ruleset.add(object).with_context(|| format!("object {number} of \"nftables\""))?;
        }
        ruleset.mark_changing_sets();
        Ok(ruleset)
    }

    fn add(&mut self, object: &Value) -> anyhow::Result<()> {
        let Some((kind, body)) = only_entry(object) else {
            bail!("it is not an object with one key");
        };
        let body = body.as_object().with_context(|| format!("{kind:?} is not an object"))?;
        match kind {
            "metainfo" => {}
            "table" => {
                let name = TableName { family: text(body, "family")?, name: text(body, "name")? };
                if body.contains_key("flags") {
                    self.flagged.insert(name);
                }
            }
            "chain" => self.add_chain(body)?,
            "rule" => self.add_rule(body)?,
            "set" | "map" => {
                let elements = body.get("elem").and_then(Value::as_array).cloned();
                let is_changing = body.contains_key("timeout")
                    || texts(body.get("flags")).any(|it| it == "dynamic" || it == "timeout");
                let set = NftSet { elements: elements.unwrap_or_default(), is_changing };
                self.sets.insert((table(body)?, text(body, "name")?), set);
            }
            _ => {
                let name = text(body, "name").unwrap_or_default();
                let handle = handle(body);
                let kind = kind.to_owned();
                self.others.push(OtherObject { kind, table: table(body).ok(), name, handle });
            }
        }
        Ok(())
    }

    fn add_chain(&mut self, body: &Map<String, Value>) -> anyhow::Result<()> {
        let (table, name) = (table(body)?, text(body, "name")?);
        let base = match body.get("hook") {
            None => None,
            Some(_) => Some(BaseChain {
                kind: text(body, "type")?,
                hook: text(body, "hook")?,
                priority: body.get("prio").and_then(Value::as_i64).unwrap_or(0),
                drops_by_policy: body.get("policy").is_some_and(|policy| policy == "drop"),
            }),
        };
        let place = RulePlace { table: table.clone(), chain: name.clone(), handle: handle(body) };
        let chain = NftChain { place, base, rules: Vec::new() };
        if self.chains.insert((table, name.clone()), chain).is_some() {
            bail!("there are two chains {name:?} in a table");
        }
        Ok(())
    }

    fn add_rule(&mut self, body: &Map<String, Value>) -> anyhow::Result<()> {
        let (table, chain) = (table(body)?, text(body, "chain")?);
        let statements = body.get("expr").and_then(Value::as_array);
        let statements = statements.context("the rule has no array \"expr\"")?.clone();
        let comment = body.get("comment").and_then(Value::as_str).map(str::to_owned);
        let place = RulePlace { table: table.clone(), chain: chain.clone(), handle: handle(body) };
        let rules = self.chains.get_mut(&(table, chain)).map(|chain| &mut chain.rules);
        let rules = rules.with_context(|| format!("{place}: no such chain before the rule"))?;
        rules.push(NftRule { place, comment, statements });
        Ok(())
    }

    /// nft 1.0.6 does not write the flag "dynamic": a statement that adds to a set says it, too.
    fn mark_changing_sets(&mut self) {
        for rule in self.chains.values().flat_map(|chain| &chain.rules) {
            for statement in &rule.statements {
                let Some(("set" | "map", body)) = only_entry(statement) else { continue };
                for name in [body.get("set"), body.get("map")].into_iter().flatten() {
                    let name = name.as_str().unwrap_or_default().trim_start_matches('@');
                    let key = (rule.place.table.clone(), name.to_owned());
                    if let Some(set) = self.sets.get_mut(&key) {
                        set.is_changing = true;
                    }
                }
            }
        }
    }
}

/// Returns the key and the value of an object that has one of each: how nft writes what has a
/// kind.
pub(super) fn only_entry(value: &Value) -> Option<(&str, &Value)> {
    let mut entries = value.as_object()?.iter();
    match (entries.next(), entries.next()) {
        (Some((kind, body)), None) => Some((kind, body)),
        _ => None,
    }
}

/// Returns the texts of one text or of an array.
pub(super) fn texts(value: Option<&Value>) -> impl Iterator<Item = &str> {
    let one = value.and_then(Value::as_str);
    let many = value.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    one.into_iter().chain(many)
}

fn table(body: &Map<String, Value>) -> anyhow::Result<TableName> {
    Ok(TableName { family: text(body, "family")?, name: text(body, "table")? })
}

fn text(body: &Map<String, Value>, key: &str) -> anyhow::Result<String> {
    let value = body.get(key).and_then(Value::as_str);
    value.map(str::to_owned).with_context(|| format!("it has no text {key:?}"))
}

fn handle(body: &Map<String, Value>) -> u64 {
    body.get("handle").and_then(Value::as_u64).unwrap_or(0)
}

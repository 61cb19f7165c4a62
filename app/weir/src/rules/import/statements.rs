//! A rule of nftables as the flows that it fits and what it does with them.

use std::collections::BTreeMap;

use serde_json::Value;
use weir_config::RedirectSetting;

use super::destination;
use super::family::AddressFamily;
use super::flow_set::{FlowSet, ICMP};
use super::interfaces::SideInterfaces;
use super::match_key::{Fit, MatchKey, MatchOperator};
use super::ruleset::{NameInTable, NftRule, NftSet, TableName, only_entry};

/// The most elements of a set with concatenations, or of a map, that become a rule each.
const ARMS_MAX: usize = 1000;

/// What a rule does with the flows that it fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NftVerdict {
    Accept,
    Drop,
    Reject,
    Redirect(RedirectSetting),
    Continue,
    Return,
    Jump(String),
    Goto(String),
}

/// A rule as weir understands it.
#[derive(Debug, Default)]
pub(super) struct Understood {
    /// Flows and verdicts. Those of one verdict may overlap.
    pub arms: Vec<(FlowSet, NftVerdict)>,
    /// What of the rule is not carried over.
    pub missing: Vec<String>,
    /// What of the rule is not needed, with the reason.
    pub notes: Vec<String>,
    /// Why the rule is not needed.
    pub implied: Option<&'static str>,
}

impl Understood {
    /// Why a rule is not needed that fits no flow of a family.
    pub(super) const FITS_NOTHING: &'static str =
        "it fits no packet between homes and the internet";
}

/// What rules refer to.
#[derive(Clone, Copy)]
pub(super) struct References<'a> {
    /// The family whose flows a rule is understood for.
    pub family: AddressFamily,
    pub sets: &'a BTreeMap<NameInTable, NftSet>,
    pub interfaces: &'a SideInterfaces,
}

/// The new flows that fit the matches so far.
struct Fits<'a> {
    references: References<'a>,
    table: &'a TableName,
    flows: Vec<FlowSet>,
    /// Whether a match fits live flows only.
    is_live: bool,
    /// Whether a match fits only packets of no flow that begin none.
    is_invalid: bool,
    /// Whether ports are matched of any protocol, and protocols by themselves.
    has_any_ports: bool,
    protocols: u8,
    missing: Vec<String>,
    notes: Vec<String>,
}

const OF_LIVE_FLOWS: &str = "rules are not asked for packets of live flows";
const OF_INVALID: &str = "ct state invalid: weir judges the states of flows and ICMP errors itself";
const DROPS_INVALID: &str =
    "weir drops segments and ICMP errors that belong to no flow and begin none itself";

impl References<'_> {
    /// # Errors
    /// With the reason, when the rule cannot be carried over.
    pub(super) fn understand(&self, rule: &NftRule) -> Result<Understood, String> {
        let mut fits = Fits::new(*self, &rule.place.table);
        let mut understood = Understood::default();
        for (at, statement) in rule.statements.iter().enumerate() {
            let Some((kind, body)) = only_entry(statement) else {
                return Err(format!("statement {statement}"));
            };
            match kind {
                "match" => fits.take_match(body)?,
                "counter" | "last" => {}
                "log" => fits.missing.push(
                    "log: the rule is carried over without; write log = true in it".to_owned(),
                ),
                "vmap" => {
                    let rest = &rule.statements[at + 1..];
                    if !rest.iter().all(|it| it.get("counter").is_some()) {
                        return Err("statements behind a verdict map".to_owned());
                    }
                    if fits.is_invalid {
                        return Err(OF_INVALID.to_owned());
                    }
                    understood.arms = fits.arms_of_map(body)?;
                    return fits.finish(understood, false);
                }
                _ => {
                    let verdict = match kind {
                        "dnat" => match fits.destination(body)? {
                            Some(to) => NftVerdict::Redirect(to),
                            None => {
                                understood.implied = Some(Understood::FITS_NOTHING);
                                return Ok(understood);
                            }
                        },
                        _ => verdict(kind, body).ok_or_else(|| reason(kind))?,
                    };
                    if fits.is_invalid && verdict != NftVerdict::Drop {
                        return Err(OF_INVALID.to_owned());
                    }
                    let is_accept = verdict == NftVerdict::Accept;
                    let arm = |flows: &FlowSet| (flows.clone(), verdict.clone());
                    understood.arms = fits.flows.iter().map(arm).collect();
                    return fits.finish(understood, is_accept);
                }
            }
        }
        understood.implied = Some("it has no verdict");
        understood.missing = fits.missing;
        Ok(understood)
    }
}

impl<'a> Fits<'a> {
    fn new(references: References<'a>, table: &'a TableName) -> Self {
        Self {
            references,
            table,
            flows: vec![FlowSet::all(references.family)],
            is_live: false,
            is_invalid: false,
            has_any_ports: false,
            protocols: u8::MAX,
            missing: Vec::new(),
            notes: Vec::new(),
        }
    }

    fn take_match(&mut self, body: &Value) -> Result<(), String> {
        let null = &Value::Null;
        let [left, right] = ["left", "right"].map(|key| body.get(key).unwrap_or(null));
        let keys = MatchKey::parse(left)?;
        let text = body.get("op").and_then(Value::as_str).unwrap_or("==");
        let operator = MatchOperator::parse(text)?;
        if right.is_array() && matches!(text, "==" | "!=") {
            return Err("a comparison with several flags at once".to_owned());
        }
        let values = self.values(right)?;
        match *keys {
            [key] => {
                let former = std::mem::take(&mut self.flows);
                let fit = self.fit(key, operator, &values)?;
                self.flows = former.iter().filter_map(|it| self.both(it, fit.as_ref()?)).collect();
            }
            _ if operator != MatchOperator::Equal => {
                return Err("a negated concatenation".to_owned());
            }
            _ => {
                let former = std::mem::take(&mut self.flows);
                if former.len().saturating_mul(values.len()) > ARMS_MAX {
                    return Err(format!("more than {ARMS_MAX} combinations of its elements"));
                }
                for value in &values {
                    let Some(flows) = self.concatenation(&keys, value)? else { continue };
                    let both = former.iter().map(|it| it & &flows);
                    self.flows.extend(both.filter(|flows| !flows.is_empty()));
                }
            }
        }
        Ok(())
    }

    /// Returns the flows that a key's values fit; notes if those are live ones.
    fn fit(
        &mut self,
        key: MatchKey,
        operator: MatchOperator,
        values: &[Value],
    ) -> Result<Option<FlowSet>, String> {
        let References { interfaces, family, .. } = self.references;
        match key.fit(operator, values, interfaces, family)? {
            Fit::Live => {
                self.is_live = true;
                Ok(None)
            }
            Fit::Invalid => {
                self.is_invalid = true;
                Ok(None)
            }
            Fit::New(flows, others) => {
                match key {
                    MatchKey::Protocol { .. } => self.protocols &= flows.protocols,
                    MatchKey::Port { protocols, .. } => {
                        self.has_any_ports |= protocols.count_ones() > 1;
                    }
                    _ => {}
                }
                self.missing.extend(others);
                Ok(Some(flows))
            }
        }
    }

    /// Reads the body of a `dnat`; `None` if it is for packets of the other family.
    fn destination(&self, body: &Value) -> Result<Option<RedirectSetting>, String> {
        let Some(to) = destination::parse(body, self.references.family)? else { return Ok(None) };
        let has_icmp = self.flows.iter().any(|flows| flows.protocols & ICMP != 0);
        match to.port {
            Some(_) if has_icmp => Err("dnat to a port of ICMP, which has none".to_owned()),
            _ => Ok(Some(to)),
        }
    }

    fn concatenation(
        &mut self,
        keys: &[MatchKey],
        value: &Value,
    ) -> Result<Option<FlowSet>, String> {
        let Some(("concat", parts)) = only_entry(value) else {
            return Err(format!("{value} for a concatenation"));
        };
        let parts = parts.as_array().filter(|parts| parts.len() == keys.len());
        let parts = parts.ok_or_else(|| format!("{value} has not as many parts as the match"))?;
        let mut flows = FlowSet::all(self.references.family);
        for (key, part) in keys.iter().zip(parts) {
            let Some(fit) = self.fit(*key, MatchOperator::Equal, std::slice::from_ref(part))?
            else {
                return Ok(None);
            };
            match self.both(&flows, &fit) {
                Some(both) => flows = both,
                None => return Ok(None),
            }
        }
        Ok(Some(flows))
    }

    /// Returns the flows of both; `None` if there are none.
    fn both(&self, a: &FlowSet, b: &FlowSet) -> Option<FlowSet> {
        Some(a & b).filter(|flows| !flows.is_empty())
    }

    /// Returns the values of the right side of a match: one, those of a set, those of a named set.
    fn values(&self, right: &Value) -> Result<Vec<Value>, String> {
        let elements: Vec<Value> = match (right, only_entry(right)) {
            (Value::String(name), _) if name.starts_with('@') => self.elements(name)?.to_vec(),
            (Value::Array(values), _) => values.clone(),
            (_, Some(("set", Value::Array(values)))) => values.clone(),
            (_, Some(("set", value))) => vec![value.clone()],
            _ => vec![right.clone()],
        };
        Ok(elements.into_iter().map(without_details).collect())
    }

    fn elements(&self, name: &str) -> Result<&'a [Value], String> {
        let key = (self.table.clone(), name.trim_start_matches('@').to_owned());
        let set = self.references.sets.get(&key);
        let set = set.ok_or_else(|| format!("set {name}: the ruleset does not have it"))?;
        if set.is_changing {
            return Err(format!("set {name}: its elements come and go while packets flow"));
        }
        Ok(&set.elements)
    }

    fn arms_of_map(&mut self, body: &Value) -> Result<Vec<(FlowSet, NftVerdict)>, String> {
        let keys = MatchKey::parse(body.get("key").unwrap_or(&Value::Null))?;
        let data = body.get("data").unwrap_or(&Value::Null);
        let elements = match (data, only_entry(data)) {
            (Value::String(name), _) => self.elements(name)?,
            (_, Some(("set", Value::Array(elements)))) => elements,
            _ => return Err("a verdict map without elements".to_owned()),
        };
        if elements.len().saturating_mul(self.flows.len()) > ARMS_MAX {
            return Err(format!("a verdict map of more than {ARMS_MAX} elements"));
        }
        let mut arms = Vec::new();
        let (former_live, former_invalid) = (self.is_live, self.is_invalid);
        for element in elements {
            let (value, verdict) = match element.as_array().map(Vec::as_slice) {
                Some([value, verdict]) => (without_details(value.clone()), only_entry(verdict)),
                _ => return Err(format!("element {element} of a verdict map")),
            };
            let verdict = verdict.and_then(|(kind, body)| self::verdict(kind, body));
            let verdict = verdict.ok_or_else(|| format!("element {element} of a verdict map"))?;
            (self.is_live, self.is_invalid) = (false, false);
            let fit = match *keys {
                [key] => self.fit(key, MatchOperator::Equal, &[value]),
                _ => self.concatenation(&keys, &value),
            };
            match fit {
                Ok(Some(fit)) => {
                    let both = self.flows.iter().filter_map(|flows| self.both(flows, &fit));
                    arms.extend(both.map(|flows| (flows, verdict.clone())));
                }
                Ok(None) if self.is_invalid && verdict == NftVerdict::Drop => {
                    self.notes.push(format!("element {element}: not needed: {DROPS_INVALID}"));
                }
                Ok(None) if self.is_invalid => {
                    self.missing.push(format!("element {element}: {OF_INVALID}"));
                }
                Ok(None) if self.is_live && verdict != NftVerdict::Accept => {
                    self.missing.push(format!("element {element}: {OF_LIVE_FLOWS}"));
                }
                Ok(None) => {}
                Err(reason) => self.missing.push(format!("element {element}: {reason}")),
            }
        }
        (self.is_live, self.is_invalid) = (former_live, former_invalid);
        Ok(arms)
    }

    fn finish(self, mut understood: Understood, is_accept: bool) -> Result<Understood, String> {
        if self.has_any_ports && self.protocols & ICMP != 0 {
            return Err("th without meta l4proto { tcp, udp } fits a part of ICMP, too".to_owned());
        }
        understood.missing = self.missing;
        understood.notes = self.notes;
        if self.is_invalid {
            understood.arms.clear();
            understood.implied = Some(DROPS_INVALID);
        } else if self.is_live {
            understood.arms.clear();
            if !is_accept {
                return Err(format!("it fits packets of live flows only, and {OF_LIVE_FLOWS}"));
            }
            understood.implied = Some(OF_LIVE_FLOWS);
        } else if understood.arms.is_empty()
            && understood.missing.is_empty()
            && understood.notes.is_empty()
        {
            understood.implied = Some(Understood::FITS_NOTHING);
        }
        Ok(understood)
    }
}

/// Takes the comment, the timeout and the counter of an element away.
pub(super) fn without_details(element: Value) -> Value {
    match only_entry(&element) {
        Some(("elem", body)) => body.get("val").cloned().unwrap_or(element),
        _ => element,
    }
}

fn verdict(kind: &str, body: &Value) -> Option<NftVerdict> {
    let target = || body.get("target").and_then(Value::as_str).map(str::to_owned);
    Some(match kind {
        "accept" => NftVerdict::Accept,
        "drop" => NftVerdict::Drop,
        "reject" => NftVerdict::Reject,
        "continue" => NftVerdict::Continue,
        "return" => NftVerdict::Return,
        "jump" => NftVerdict::Jump(target()?),
        "goto" => NftVerdict::Goto(target()?),
        _ => return None,
    })
}

/// Says why a rule with a statement that is neither a match nor a verdict is not carried over.
pub(super) fn reason(kind: &str) -> String {
    let why = match kind {
        "snat" => {
            "weir translates addresses itself; for public addresses of some flows only write a \
             [[source_pool]], and source_pool in rules about them"
        }
        "masquerade" => "weir translates addresses itself",
        "redirect" => {
            "weir has no services for homes: write a rule with action = \"redirect\" and the \
             address of the host"
        }
        "limit" | "meter" | "quota" | "ct count" => "rules of weir have no rates and no counts",
        "mangle" => "rules of weir change neither packets nor marks",
        "set" | "map" => "rules of weir do not change sets",
        "xt" => "an extension of iptables; translate the rules with iptables-restore-translate",
        _ => "rules of weir have no such statement",
    };
    format!("{kind}: {why}")
}

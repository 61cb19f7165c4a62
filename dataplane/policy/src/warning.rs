//! What is allowed in a policy, but is hardly meant.

use std::collections::{BTreeSet, HashSet};
use std::fmt;

use weir_config::{LoadedSet, PolicySettings, RuleAddress, RuleSettings};
use weir_rules::RuleFilter;

use crate::compile::CompiledPolicy;
use crate::cover::{CoveredRules, covered_rules};
use crate::error::named;
use crate::expand::is_about_ipv4_alone;
use crate::family::{FamilyAddress, Filters};

/// The part of the policy that a warning is about, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicySubject {
    Set(String),
    Rule(String),
}

/// Displays as `rule court-orders: never reached: ...`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyWarning {
    pub subject: PolicySubject,
    pub message: String,
}

impl fmt::Display for PolicyWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.subject {
            PolicySubject::Set(name) => write!(f, "set {name}: {}", self.message),
            PolicySubject::Rule(name) => write!(f, "rule {name}: {}", self.message),
        }
    }
}

/// Returns the warnings about sets, then those about rules in their order.
pub fn warnings(
    policy: &PolicySettings,
    sets: &[LoadedSet],
    compiled: &CompiledPolicy,
) -> Vec<PolicyWarning> {
    let mut warnings = Vec::new();
    of_sets(policy, sets, &mut warnings);
    let warning = |rule: u32, message: String| {
        let subject = PolicySubject::Rule(compiled.name(rule).to_owned());
        PolicyWarning { subject, message }
    };
    for (rule, filters) in (0..).zip(compiled.filters_by_rule()) {
        if filters == 0 {
            let family =
                if is_about_ipv4_alone(&policy.rules[rule as usize]) { " IPv4" } else { "" };
            let message = format!("fits nothing: the sets that it names have no{family} entry");
            warnings.push(warning(rule, message));
        }
    }
    for (rule, message) in without_effect(policy, sets) {
        warnings.push(warning(rule, message));
    }
    let Filters { ipv4, ipv6 } = &compiled.filters;
    let ipv4 = FamilyCover { name: u32::NAME, rules: rules_of(ipv4), found: covered_rules(ipv4) };
    let ipv6 = FamilyCover { name: u128::NAME, rules: rules_of(ipv6), found: covered_rules(ipv6) };
    for (number, rule) in (0..).zip(&policy.rules) {
        if let Some(message) = never_reached((number, rule), [&ipv4, &ipv6], compiled) {
            warnings.push(warning(number, message));
        }
    }
    let ended = [&ipv4, &ipv6].into_iter().filter_map(|cover| cover.found.ended_before);
    if let Some(rule) = ended.min() {
        let message =
            "from here on weir has not searched for rules that are never reached: there are too \
             many"
                .to_owned();
        warnings.push(warning(rule, message));
    }
    warnings
}

/// The rules of a family that are never reached by its flows.
struct FamilyCover {
    name: &'static str,
    /// Numbers of the rules with filters in this family.
    rules: HashSet<u32>,
    found: CoveredRules,
}

impl FamilyCover {
    /// Returns the earlier rules that fit the flows of this one; `None` if it is reached.
    fn before(&self, rule: u32) -> Option<&[u32]> {
        let rules = &self.found.rules;
        let at = rules.binary_search_by_key(&rule, |covered| covered.rule).ok()?;
        Some(&rules[at].by)
    }
}

fn rules_of<A>(filters: &[RuleFilter<A>]) -> HashSet<u32> {
    filters.iter().map(|filter| filter.rule).collect()
}

/// Returns the message if a rule is not reached, in no family or in one that its addresses name.
fn never_reached(
    (number, rule): (u32, &RuleSettings),
    covers: [&FamilyCover; 2],
    compiled: &CompiledPolicy,
) -> Option<String> {
    let own: Vec<&FamilyCover> =
        covers.into_iter().filter(|cover| cover.rules.contains(&number)).collect();
    let covered: Vec<(&FamilyCover, &[u32])> =
        own.iter().filter_map(|cover| Some((*cover, cover.before(number)?))).collect();
    let by: BTreeSet<u32> = covered.iter().flat_map(|(_, by)| by.iter().copied()).collect();
    let names: Vec<String> = by.iter().map(|by| compiled.name(*by).to_owned()).collect();
    let (names, plural) = (named(&names), if names.len() == 1 { "fits" } else { "fit" });
    // One without addresses may well be for the other family, behind a rule about this one.
    let has_addresses = !rule.subscribers.is_empty() || !rule.remote.is_empty();
    match covered[..] {
        [] => None,
        _ if covered.len() == own.len() => Some(format!(
            "never reached: {names} before it {plural} all its flows; move it up, or remove it"
        )),
        [(cover, _), ..] if has_addresses => {
            let family = cover.name;
            Some(format!(
                "never reached by flows of {family}: {names} before it {plural} all of these; move \
                 it up, or remove its {family} addresses"
            ))
        }
        _ => None,
    }
}

/// Returns the rules about IPv4 alone that name sets with entries of IPv6.
fn without_effect(policy: &PolicySettings, sets: &[LoadedSet]) -> Vec<(u32, String)> {
    let with_ipv6 =
        |name: &String| sets.iter().find(|set| set.name == *name && !set.ipv6.is_empty());
    let mut found = Vec::new();
    for (number, rule) in (0..).zip(&policy.rules).filter(|(_, rule)| is_about_ipv4_alone(rule)) {
        for address in rule.subscribers.iter().chain(&rule.remote) {
            let RuleAddress::Set(name) = address else { continue };
            if let Some(set) = with_ipv6(name) {
                let message = format!(
                    "is about IPv4 alone, as IPv6 is not translated: {} IPv6 entries of set {name} \
                     have no effect here",
                    set.ipv6.len()
                );
                found.push((number, message));
            }
        }
    }
    found
}

fn of_sets(policy: &PolicySettings, sets: &[LoadedSet], warnings: &mut Vec<PolicyWarning>) {
    let addresses =
        policy.rules.iter().flat_map(|rule| rule.subscribers.iter().chain(&rule.remote));
    let used: HashSet<&str> = addresses
        .filter_map(|address| match address {
            RuleAddress::Set(name) => Some(name.as_str()),
            RuleAddress::Net(_) => None,
        })
        .collect();
    for set in sets {
        let mut warn = |message: String| {
            warnings.push(PolicyWarning { subject: PolicySubject::Set(set.name.clone()), message });
        };
        if set.entries() == 0 {
            warn("it has no entries".to_owned());
        }
        if !used.contains(set.name.as_str()) {
            warn("no rule uses it".to_owned());
        }
    }
}

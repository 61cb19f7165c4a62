//! What is allowed in a policy, but is hardly meant.

use std::collections::HashSet;
use std::fmt;

use weir_config::{LoadedSet, PolicySettings, RuleAddress};

use crate::compile::CompiledPolicy;
use crate::cover::{CoveredRule, covered_rules};
use crate::error::named;

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
            let message = "fits nothing: the sets that it names have no IPv4 entry".to_owned();
            warnings.push(warning(rule, message));
        }
    }
    let covered = covered_rules(&compiled.filters);
    for CoveredRule { rule, by } in covered.rules {
        let names: Vec<String> = by.iter().map(|by| compiled.name(*by).to_owned()).collect();
        let plural = if names.len() == 1 { "fits" } else { "fit" };
        let message = format!(
            "never reached: {} before it {plural} all its flows; move it up, or remove it",
            named(&names)
        );
        warnings.push(warning(rule, message));
    }
    if let Some(rule) = covered.ended_before {
        let message =
            "from here on weir has not searched for rules that are never reached: there are too \
             many"
                .to_owned();
        warnings.push(warning(rule, message));
    }
    warnings
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
        if !set.ipv6.is_empty() {
            let count = set.ipv6.len();
            warn(format!("IPv6 is not filtered yet: {count} of its entries have no effect"));
        }
        if !used.contains(set.name.as_str()) {
            warn("no rule uses it".to_owned());
        }
    }
}

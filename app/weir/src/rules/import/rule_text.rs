//! Entries as rules and sets in the syntax of a configuration file.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::family::{AddressFamily, MergedEntry};
use super::flatten::{FlatEntry, FlatOutcome};
use super::flow_set::{FlowSet, HOME, ICMP, INTERNET, TCP, UDP};
use super::ranges::{LAST_PORT, RangeSet};

/// The longest list of prefixes in a rule; longer ones become sets.
const INLINE_MAX: usize = 8;
/// The longest name of a rule or a set.
const NAME_MAX: usize = 32;

/// Addresses of a family.
pub(super) type FamilyAddresses = (AddressFamily, RangeSet);

/// Names that no other rule, or no other set, has.
#[derive(Debug, Default)]
struct UniqueNames(BTreeSet<String>);

/// Writes rules, and remembers the sets that they need.
#[derive(Debug, Default)]
pub(super) struct RuleWriter {
    /// Names of the ruleset's sets of addresses, by what is in them.
    known: BTreeMap<FamilyAddresses, String>,
    sets: String,
    rules: String,
    written: BTreeMap<FamilyAddresses, String>,
    set_names: UniqueNames,
    rule_names: UniqueNames,
    pub rules_written: usize,
}

impl RuleWriter {
    /// Sets of addresses keep their names if a rule needs them as they are.
    pub(super) fn new(known: BTreeMap<FamilyAddresses, String>) -> Self {
        Self { known, ..Self::default() }
    }

    pub(super) fn add(&mut self, merged: &MergedEntry<'_>) {
        let MergedEntry { entry, is_of_both } = merged;
        let flows = &entry.flows;
        if flows.from == HOME | INTERNET && !flows.is_symmetric() {
            self.add_rule(&flows.of_side(HOME), entry, *is_of_both);
            self.add_rule(&flows.of_side(INTERNET), entry, *is_of_both);
        } else {
            self.add_rule(flows, entry, *is_of_both);
        }
    }

    /// Returns the names of the ruleset's sets of addresses that no rule needs as they are.
    pub(super) fn unused_sets(&self) -> impl Iterator<Item = &str> {
        let unused = self.known.iter().filter(|(set, _)| !self.written.contains_key(set));
        unused.map(|(_, name)| name.as_str())
    }

    /// Returns the sets, then the rules.
    pub(super) fn finish(self) -> String {
        format!("{}{}", self.sets, self.rules)
    }

    fn add_rule(&mut self, flows: &FlowSet, entry: &FlatEntry<'_>, is_of_both: bool) {
        let place = entry.place;
        let fallback = format!("{}-{}", place.chain, place.handle);
        let name = match entry.comment {
            Some("policy") => format!("{}-policy", place.chain),
            Some(comment) => comment.to_owned(),
            None => fallback.clone(),
        };
        let name = self.rule_names.give(&name, &fallback);
        let (subscribers, remote) = local_and_remote(flows.from, &flows.addresses);
        let family = flows.family;
        let subscribers = self.addresses(family, subscribers, &format!("{name}-homes"));
        let mut remote = self.addresses(family, remote, &format!("{name}-remotes"));
        let is_redirect = matches!(entry.outcome, FlatOutcome::Redirect(_));
        if flows.has_all_addresses() && !is_of_both && !is_redirect {
            // A rule without addresses is about both families.
            remote = vec![format!("\"{}\"", family.all())];
        }
        let (inside_port, remote_port) = local_and_remote(flows.from, &flows.ports);
        let place = place.to_string().replace(char::is_control, " ");
        let text = &mut self.rules;
        let _ = writeln!(text, "\n# {place}\n[[rule]]\nname = \"{name}\"");
        let from = match flows.from {
            HOME => "home",
            INTERNET => "internet",
            _ => "any",
        };
        let _ = writeln!(text, "from = \"{from}\"");
        let mut list = |key: &str, elements: Vec<String>| {
            if !elements.is_empty() {
                let _ = writeln!(text, "{key} = [{}]", elements.join(", "));
            }
        };
        list("subscribers", subscribers);
        list("protocol", protocols(flows.protocols));
        list("inside_port", ports(inside_port));
        list("remote", remote);
        list("remote_port", ports(remote_port));
        let action = match entry.outcome {
            FlatOutcome::Redirect(_) => "redirect",
            FlatOutcome::Accept | FlatOutcome::Default => "accept",
            FlatOutcome::Drop => "drop",
            FlatOutcome::Reject => "reject",
        };
        let _ = writeln!(text, "action = \"{action}\"");
        if let FlatOutcome::Redirect(to) = entry.outcome {
            let _ = writeln!(text, "to = \"{to}\"");
        }
        self.rules_written += 1;
    }

    /// Returns the elements of an array of addresses: none for all of them.
    fn addresses(&mut self, family: AddressFamily, set: &RangeSet, new_name: &str) -> Vec<String> {
        if set.has_all(family.last_address()) {
            return Vec::new();
        }
        let prefixes = set.prefixes(family);
        let set = &(family, set.clone());
        let known = self.written.get(set).or_else(|| self.known.get(set)).cloned();
        let name = match known {
            None if prefixes.len() <= INLINE_MAX => {
                return prefixes.iter().map(|prefix| format!("\"{prefix}\"")).collect();
            }
            known => known.unwrap_or_else(|| new_name.to_owned()),
        };
        if let Some(name) = self.written.get(set) {
            return vec![format!("\"@{name}\"")];
        }
        let name = self.set_names.give(&name, "set");
        let _ = writeln!(self.sets, "\n[[set]]\nname = \"{name}\"\nprefixes = [");
        for prefix in prefixes {
            let _ = writeln!(self.sets, "    \"{prefix}\",");
        }
        self.sets.push_str("]\n");
        self.written.insert(set.clone(), name.clone());
        vec![format!("\"@{name}\"")]
    }
}

/// Returns the home's and the remote's end of a packet from a side.
fn local_and_remote(from: u8, ends: &super::flow_set::SetsByEnd) -> (&RangeSet, &RangeSet) {
    if from == INTERNET {
        (&ends.destination, &ends.source)
    } else {
        (&ends.source, &ends.destination)
    }
}

fn protocols(set: u8) -> Vec<String> {
    if set == TCP | UDP | ICMP {
        return Vec::new();
    }
    let names = [(TCP, "\"tcp\""), (UDP, "\"udp\""), (ICMP, "\"icmp\"")];
    names.into_iter().filter(|(bit, _)| set & bit != 0).map(|(_, it)| it.to_owned()).collect()
}

fn ports(set: &RangeSet) -> Vec<String> {
    if set.has_all(LAST_PORT) { Vec::new() } else { set.ports() }
}

impl UniqueNames {
    /// Returns a valid name that is like the wanted one, or like the other if nothing of it is
    /// left; a number makes it unique.
    fn give(&mut self, wanted: &str, fallback: &str) -> String {
        let valid = [wanted, fallback, "rule"].into_iter().map(valid_name);
        let name = valid.into_iter().find(|name| !name.is_empty()).unwrap_or_default();
        let numbered = (2_u64..).map(|number| {
            let end = format!("-{number}");
            let start: String = name.chars().take(NAME_MAX - end.len()).collect();
            format!("{}{end}", start.trim_end_matches('-'))
        });
        let mut names = std::iter::once(name.clone()).chain(numbered);
        let free = names.find(|name| !self.0.contains(name)).expect("numbers do not end");
        self.0.insert(free.clone());
        free
    }
}

fn valid_name(text: &str) -> String {
    let mut name = String::new();
    for c in text.chars().map(|c| c.to_ascii_lowercase()) {
        if c.is_ascii_alphanumeric() {
            name.push(c);
        } else if !name.is_empty() && !name.ends_with('-') {
            name.push('-');
        }
    }
    name.truncate(NAME_MAX);
    name.trim_end_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_valid_and_unique() {
        let mut names = UniqueNames::default();
        assert_eq!(names.give("Court orders, 2026", "f-1"), "court-orders-2026");
        assert_eq!(names.give("court_orders 2026", "f-1"), "court-orders-2026-2");
        assert_eq!(names.give("ünï", "Forward-7"), "n");
        assert_eq!(names.give("***", "Forward-7"), "forward-7");
        assert_eq!(names.give("***", "--"), "rule");
        let long = "x".repeat(40);
        assert_eq!(names.give(&long, ""), "x".repeat(32));
        assert_eq!(names.give(&long, ""), format!("{}-2", "x".repeat(30)));
    }
}

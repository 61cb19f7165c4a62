//! The changes of sets, groups, classes, source pools and rules. None of them meets a live flow, as
//! rules are asked when a flow begins, unless a rule has `rematch`; but for those of a class, whose
//! flows get what it says now.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt::Display;

use ipnet::Ipv4Net;
use serde_json::Value;

use crate::desired::difference::{Effect, SettingChange, object, words};
use crate::policy_types::{
    FlowClassSettings, PolicySettings, RuleSettings, SetSource, SourcePoolSettings,
};

/// Most elements that the change of a list names.
const NAMED_MAX: usize = 3;

/// Returns the changes of sets, groups, rules, limits, classes and source pools in `new`, in this
/// order. Empty exactly if both are equal. What a set's file has is compared if the sets have their
/// entries ([`PolicySettings::with_entries`]).
pub fn policy_difference(old: &PolicySettings, new: &PolicySettings) -> Vec<SettingChange> {
    policy_changes(old, new, u64::MAX)
}

/// As [`policy_difference`], for a node that takes a quota of ports above `quota_max` only when it
/// restarts.
pub(crate) fn policy_changes(
    old: &PolicySettings,
    new: &PolicySettings,
    quota_max: u64,
) -> Vec<SettingChange> {
    let mut changes = Vec::new();
    sets(old, new, &mut changes);
    groups(old, new, quota_max, &mut changes);
    rules(&old.rules, &new.rules, &mut changes);
    // Any of them may bring a live flow to such a rule.
    if new.rules.iter().any(|rule| rule.rematch) {
        changes.iter_mut().for_each(|change| change.effect = Effect::Rematch);
    }
    changes.extend(limits(old, new, quota_max));
    classes(&old.classes, &new.classes, &mut changes);
    source_pools(&old.source_pools, &new.source_pools, &mut changes);
    changes
}

fn change(section: &str, name: &str, what: String) -> SettingChange {
    let effect = Effect::NewFlows;
    SettingChange { subject: format!("{section} {name}"), what, effect, is_for_restarts: false }
}

fn sets(old: &PolicySettings, new: &PolicySettings, changes: &mut Vec<SettingChange>) {
    for set in old.sets.iter().filter(|set| new.sets.iter().all(|it| it.name != set.name)) {
        changes.push(change("set", &set.name, "removed".to_owned()));
    }
    for set in &new.sets {
        let before = old.sets.iter().find(|before| before.name == set.name);
        match before.map(|before| &before.source) {
            None => {
                changes.push(change("set", &set.name, format!("added with {}", size(&set.source))));
            }
            Some(before) if *before != set.source => {
                changes.push(change("set", &set.name, set_change(before, &set.source)));
            }
            Some(_) => {}
        }
    }
}

fn size(source: &SetSource) -> String {
    match source {
        SetSource::Prefixes(prefixes) => count(prefixes.len()),
        SetSource::File(path) => format!("the entries of {}", path.display()),
    }
}

fn count(entries: usize) -> String {
    let plural = if entries == 1 { "y" } else { "ies" };
    format!("{entries} entr{plural}")
}

fn set_change(old: &SetSource, new: &SetSource) -> String {
    match (old, new) {
        (SetSource::Prefixes(old), SetSource::Prefixes(new)) => {
            let (before, after): (HashSet<_>, HashSet<_>) =
                (old.iter().collect(), new.iter().collect());
            let added = new.iter().filter(|net| !before.contains(net)).collect::<Vec<_>>();
            let removed = old.iter().filter(|net| !after.contains(net)).collect::<Vec<_>>();
            let mut parts = Vec::new();
            for (nets, word) in [(added, "added"), (removed, "removed")] {
                if !nets.is_empty() {
                    parts.push(format!("{} {word}{}", count(nets.len()), examples(&nets)));
                }
            }
            parts.join(", ")
        }
        _ => format!("{} -> {}", size(old), size(new)),
    }
}

/// Returns the elements in brackets, if they are few.
fn examples<T: Display>(elements: &[T]) -> String {
    if elements.len() > NAMED_MAX {
        return String::new();
    }
    format!(" ({})", elements.iter().map(T::to_string).collect::<Vec<_>>().join(", "))
}

fn groups(
    old: &PolicySettings,
    new: &PolicySettings,
    quota_max: u64,
    changes: &mut Vec<SettingChange>,
) {
    for group in old.groups.iter().filter(|it| new.groups.iter().all(|new| new.name != it.name)) {
        changes.push(change("group", &group.name, "removed".to_owned()));
    }
    for group in &new.groups {
        let Some(before) = old.groups.iter().find(|before| before.name == group.name) else {
            let what = format!("added with {} prefixes", group.subscribers.len());
            let quota = group.limits.ports_per_subscriber.map(u64::from);
            let is_for_restarts = quota > Some(quota_max);
            changes.push(SettingChange { is_for_restarts, ..change("group", &group.name, what) });
            continue;
        };
        if before.subscribers != group.subscribers {
            let what = prefix_change(&before.subscribers, &group.subscribers);
            changes.push(change("group", &group.name, what));
        }
    }
}

/// Returns the changes of the limits of groups that were there before.
fn limits(old: &PolicySettings, new: &PolicySettings, quota_max: u64) -> Vec<SettingChange> {
    let mut changes = Vec::new();
    for group in &new.groups {
        let Some(before) = old.groups.iter().find(|it| it.name == group.name) else { continue };
        let (old, new) = (object(&before.limits), object(&group.limits));
        let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        for name in names.into_iter().filter(|name| old.get(*name) != new.get(*name)) {
            let quota = new.get(name).filter(|_| *name == "ports_per_subscriber");
            let is_for_restarts = quota.and_then(Value::as_u64) > Some(quota_max);
            let [old, new] = [&old, &new]
                .map(|limits| limits.get(name).map_or_else(|| "as all homes".to_owned(), words));
            let what = format!("limits.{name} {old} -> {new}");
            changes.push(SettingChange { is_for_restarts, ..change("group", &group.name, what) });
        }
    }
    changes
}

fn classes(old: &[FlowClassSettings], new: &[FlowClassSettings], changes: &mut Vec<SettingChange>) {
    let mut note = |name: &str, what: String, effect| {
        changes.push(SettingChange { effect, ..change("class", name, what) });
    };
    for class in old.iter().filter(|it| new.iter().all(|new| new.id != it.id)) {
        note(&class.name, "removed".to_owned(), Effect::IdleFlows);
    }
    for class in new {
        let Some(before) = old.iter().find(|it| it.id == class.id) else {
            note(&class.name, format!("added with number {}", class.id), Effect::None);
            continue;
        };
        if before.name != class.name {
            note(
                &class.name,
                format!("name of number {}, was {}", class.id, before.name),
                Effect::None,
            );
        }
        if before.dscp != class.dscp {
            let [old, new] = [before.dscp, class.dscp]
                .map(|dscp| dscp.map_or_else(|| "as it came".to_owned(), |it| it.to_string()));
            note(&class.name, format!("dscp {old} -> {new}"), Effect::None);
        }
        let names: BTreeSet<_> = before.timeouts.keys().chain(class.timeouts.keys()).collect();
        for name in names {
            let (old, new) = (before.timeouts.get(name), class.timeouts.get(name));
            if old == new {
                continue;
            }
            let effect = match (old, new) {
                (Some(old), Some(new)) if old < new => Effect::None,
                _ => Effect::IdleFlows,
            };
            let [old, new] = [old, new]
                .map(|it| it.map_or_else(|| "as all flows".to_owned(), |it| it.to_string()));
            note(&class.name, format!("timeouts.{name} {old} -> {new}"), effect);
        }
    }
}

/// The number of a source pool follows its name, so a pool has no change of its own beside those of
/// its prefixes.
fn source_pools(
    old: &[SourcePoolSettings],
    new: &[SourcePoolSettings],
    changes: &mut Vec<SettingChange>,
) {
    for pool in old.iter().filter(|it| new.iter().all(|new| new.name != it.name)) {
        changes.push(change("source_pool", &pool.name, "removed".to_owned()));
    }
    for pool in new {
        let what = match old.iter().find(|it| it.name == pool.name) {
            None => format!("added with {}", examples_or_count(&pool.public)),
            Some(before) if before.public != pool.public => {
                prefix_change(&before.public, &pool.public)
            }
            Some(_) => continue,
        };
        changes.push(change("source_pool", &pool.name, what));
    }
}

fn examples_or_count(nets: &[Ipv4Net]) -> String {
    match nets.len() {
        0..=NAMED_MAX => nets.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        count => format!("{count} prefixes"),
    }
}

fn prefix_change<T: Display>(old: &[T], new: &[T]) -> String {
    let of = |nets: &[T]| nets.iter().map(ToString::to_string).collect();
    list_change(&of(old), &of(new))
}

fn list_change(old: &BTreeSet<String>, new: &BTreeSet<String>) -> String {
    let mut parts = Vec::new();
    for (only, word) in [(new - old, "added"), (old - new, "removed")] {
        let named: Vec<&str> = only.iter().take(NAMED_MAX).map(String::as_str).collect();
        let more = match only.len().saturating_sub(NAMED_MAX) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        if !named.is_empty() {
            parts.push(format!("{}{more} {word}", named.join(", ")));
        }
    }
    parts.join(", ")
}

fn rules(old: &[RuleSettings], new: &[RuleSettings], changes: &mut Vec<SettingChange>) {
    let before: HashMap<&str, usize> =
        old.iter().enumerate().map(|(place, rule)| (rule.name.as_str(), place)).collect();
    let after: HashSet<&str> = new.iter().map(|rule| rule.name.as_str()).collect();
    for rule in old.iter().filter(|rule| !after.contains(rule.name.as_str())) {
        changes.push(change("rule", &rule.name, "removed".to_owned()));
    }
    let kept: Vec<usize> =
        new.iter().filter_map(|rule| before.get(rule.name.as_str()).copied()).collect();
    let unmoved = longest_rise(&kept);
    for (place, rule) in new.iter().enumerate() {
        let position = || match place.checked_sub(1) {
            Some(previous) => format!("after {}", new[previous].name),
            None => "as the first".to_owned(),
        };
        let Some(&old_place) = before.get(rule.name.as_str()) else {
            changes.push(change("rule", &rule.name, format!("added {}", position())));
            continue;
        };
        if !unmoved.contains(&old_place) {
            changes.push(change("rule", &rule.name, format!("moved, now {}", position())));
        }
        rule_changes(&old[old_place], rule, changes);
    }
}

fn rule_changes(old: &RuleSettings, new: &RuleSettings, changes: &mut Vec<SettingChange>) {
    if old == new {
        return;
    }
    let (before, after) = (object(old), object(new));
    let fresh = after.keys().filter(|name| !before.contains_key(*name));
    for name in before.keys().chain(fresh) {
        let what = match (before.get(name), after.get(name)) {
            (old, new) if old == new => continue,
            (Some(Value::Array(old)), Some(Value::Array(new))) => {
                let of = |list: &[Value]| list.iter().map(text).collect();
                format!("{name}: {}", list_change(&of(old), &of(new)))
            }
            (old, new) => {
                format!("{name} {} -> {}", value(name, old), value(name, new))
            }
        };
        changes.push(change("rule", &new.name, what));
    }
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Returns the value of a key; what an absent one stands for.
fn value(name: &str, value: Option<&Value>) -> String {
    match (name, value) {
        ("from", None) => "\"home\"".to_owned(),
        ("log" | "rematch", None) => "false".to_owned(),
        ("class" | "source_pool" | "to", None) => "none".to_owned(),
        (_, None) => "all".to_owned(),
        (_, Some(Value::Array(list))) if list.len() > NAMED_MAX => {
            format!("a list of {}", list.len())
        }
        (_, Some(value)) => words(value),
    }
}

/// Returns the elements of a longest rising part of a list without repetitions: of rules whose old
/// places the list has, those that need not be moved.
fn longest_rise(list: &[usize]) -> HashSet<usize> {
    // For each length the position of the smallest element that ends a rising part so long.
    let mut ends: Vec<usize> = Vec::new();
    let mut previous: Vec<Option<usize>> = Vec::with_capacity(list.len());
    for (position, &element) in list.iter().enumerate() {
        let length = ends.partition_point(|&end| list[end] < element);
        previous.push(length.checked_sub(1).map(|shorter| ends[shorter]));
        match ends.get_mut(length) {
            Some(end) => *end = position,
            None => ends.push(position),
        }
    }
    let mut rise = HashSet::new();
    let mut at = ends.last().copied();
    while let Some(position) = at {
        rise.insert(list[position]);
        at = previous[position];
    }
    rise
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_element_that_moves_leaves_all_others_in_place() {
        let cases: [(&[usize], &[usize]); 4] = [
            (&[], &[]),
            (&[0, 1, 2], &[0, 1, 2]),
            (&[3, 0, 1, 2], &[0, 1, 2]),
            (&[1, 2, 3, 0], &[1, 2, 3]),
        ];
        for (list, expected) in cases {
            assert_eq!(longest_rise(list), expected.iter().copied().collect(), "{list:?}");
        }
    }
}

//! The changes of static delegations.

use std::collections::HashSet;

use crate::desired::difference::{Effect, SettingChange};
use crate::ipv6_types::{DelegationSettings, Ipv6Settings};

/// Most delegations of which each has a change of its own.
const NAMED_MAX: usize = 10;

/// Returns the changes of `[[delegation]]` in `new`. A home's right to an address is asked for when
/// a flow begins. Empty exactly if both are equal.
pub(crate) fn delegation_difference(old: &Ipv6Settings, new: &Ipv6Settings) -> Vec<SettingChange> {
    let mut changes = Vec::new();
    let mut push = |what: String| {
        let (subject, effect) = ("delegation".to_owned(), Effect::NewFlows);
        changes.push(SettingChange { subject, what, effect, is_for_restarts: false });
    };
    let (old, new) = (&old.delegations, &new.delegations);
    for (some, word) in [(only(old, new), "removed"), (only(new, old), "added")] {
        match some.len() {
            0..=NAMED_MAX => some.iter().for_each(|it| push(format!("{it} {word}"))),
            count => push(format!("{count} prefixes {word}")),
        }
    }
    changes
}

/// Returns those of `these` that `others` does not have.
fn only(these: &[DelegationSettings], others: &[DelegationSettings]) -> Vec<DelegationSettings> {
    let others: HashSet<_> = others.iter().map(|it| (it.prefix, it.home)).collect();
    these.iter().filter(|it| !others.contains(&(it.prefix, it.home))).copied().collect()
}

//! What rules give the flows that they let begin: classes, source pools, destinations.

use std::collections::HashSet;

use weir_config::{PolicySettings, RuleSettings, SOURCE_POOLS_MAX};
use weir_rules::{
    Destination, FlowClass, FlowPolicy, OUTCOMES_MAX, Prefix, RuleAction, SOURCE_POOLS, SourcePool,
};

use crate::error::PolicyError;
use crate::family::FamilyAddress;

// Pool 0 has the addresses that are in no other.
const _: () = assert!(SOURCE_POOLS_MAX + 1 == SOURCE_POOLS as usize);

/// The numbers of classes and source pools, with their names.
#[derive(Clone, Debug)]
pub(crate) struct GivenNames {
    classes: Vec<(FlowClass, String)>,
    /// Numbered from 1, in the order of their names.
    source_pools: Vec<(SourcePool, String)>,
}

impl GivenNames {
    pub(crate) fn of(policy: &PolicySettings) -> Self {
        let class = |id| FlowClass::new(id).expect("the file has no other");
        let classes = policy.classes.iter().map(|it| (class(it.id), it.name.clone()));
        let pools = numbered_pools(policy).map(|(pool, settings)| (pool, settings.name.clone()));
        Self { classes: classes.collect(), source_pools: pools.collect() }
    }

    /// Returns what each rule gives, of those that give something, by number.
    pub(crate) fn policies(&self, policy: &PolicySettings) -> Vec<(u32, FlowPolicy)> {
        let numbered = (0..).zip(&policy.rules);
        let given = numbered.map(|(number, rule)| (number, self.policy(rule)));
        given.filter(|(_, given)| *given != FlowPolicy::NONE).collect()
    }

    fn policy(&self, rule: &RuleSettings) -> FlowPolicy {
        let class = rule.class.as_ref().map(|name| {
            let class = self.classes.iter().find(|(_, known)| known == name);
            class.expect("a rule names a class of the file").0
        });
        let source = rule.source_pool.as_ref().map(|name| {
            let pool = self.source_pools.iter().find(|(_, known)| known == name);
            pool.expect("a rule names a source pool of the file").0
        });
        FlowPolicy {
            class: class.unwrap_or_default(),
            source: source.unwrap_or_default(),
            destination: rule
                .to
                .map(|to| Destination { address: to.address.into(), port: to.port }),
        }
    }

    pub(crate) fn class_name(&self, class: FlowClass) -> Option<&str> {
        let found = self.classes.iter().find(|(known, _)| *known == class);
        found.map(|(_, name)| name.as_str())
    }

    pub(crate) fn source_pool_name(&self, pool: SourcePool) -> Option<&str> {
        let found = self.source_pools.iter().find(|(known, _)| *known == pool);
        found.map(|(_, name)| name.as_str())
    }
}

fn numbered_pools(
    policy: &PolicySettings,
) -> impl Iterator<Item = (SourcePool, &weir_config::SourcePoolSettings)> {
    let number = |number| SourcePool::new(number).expect("the file has no more");
    (1..).map(number).zip(&policy.source_pools)
}

/// Returns the prefixes of all source pools.
pub(crate) fn source_pools(policy: &PolicySettings) -> Vec<(Prefix<u32>, SourcePool)> {
    let pools = numbered_pools(policy);
    pools
        .flat_map(|(pool, settings)| {
            settings.public.iter().map(move |net| (u32::prefix(*net), pool))
        })
        .collect()
}

/// Refuses rules with more outcomes that differ than a rule set keeps.
pub(crate) fn check_outcomes(
    policy: &PolicySettings,
    actions: &[RuleAction],
    policies: &[(u32, FlowPolicy)],
) -> Result<(), PolicyError> {
    // A rule set has the plain outcomes, too: accept, and that of each action.
    let mut outcomes: HashSet<(RuleAction, FlowPolicy)> =
        actions.iter().map(|&action| (action, FlowPolicy::NONE)).collect();
    outcomes.insert((RuleAction::Accept, FlowPolicy::NONE));
    let mut first_beyond = None;
    for &(rule, given) in policies {
        outcomes.insert((actions[rule as usize], given));
        if outcomes.len() > OUTCOMES_MAX {
            first_beyond = first_beyond.or(Some(rule));
        }
    }
    match first_beyond {
        None => Ok(()),
        Some(rule) => Err(PolicyError::TooManyOutcomes {
            rule: policy.rules[rule as usize].name.clone(),
            count: outcomes.len(),
        }),
    }
}

//! Compiles the rules, and explains which of them decides.

use std::net::IpAddr;
use std::sync::Arc;

use weir_config::{ActionSetting, LoadedSet, PolicySettings, RuleSettings};
use weir_rules::{
    DecidingRule, FlowClass, IpAddress, OUTER_HANDLES, Prefix, Question, RuleAction, RuleFilter,
    RuleSet, SourcePool,
};

use crate::error::PolicyError;
use crate::expand;
use crate::family::{FamilyAddress, Filters, GroupPrefixes};
use crate::given::{GivenNames, check_outcomes, source_pools};
use crate::question::{FlowAddresses, FlowQuestion};

/// The rules of a policy in the form in which workers ask them, with what it takes to explain them.
#[derive(Clone, Debug)]
pub struct CompiledPolicy {
    /// What a worker asks. The rules are numbered in the order of the file, from 0.
    pub rules: Arc<RuleSet>,
    /// Names of the rules, by number.
    names: Vec<String>,
    /// In the order of the rules.
    pub(crate) filters: Filters,
    pub(crate) groups: GroupPrefixes,
    group_names: Vec<String>,
    given: GivenNames,
}

/// The rule that decides on a flow, and those that would.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleExplanation {
    pub deciding: Option<DecidingRule>,
    /// Numbers of all rules that fit, in order. The first is the deciding one: each of the others
    /// would decide without those before it.
    pub candidates: Vec<u32>,
}

/// Compiles a policy with the entries of its sets.
///
/// # Errors
/// If the rules are too many for a packet or for memory, or give flows too many different things.
/// The error names them and the fix.
///
/// # Panics
/// If a rule refers to a group, a class or a source pool that the policy lacks, or there are too
/// many of them: a configuration with such a mistake is refused when it is read.
pub fn compile(policy: &PolicySettings, sets: &[LoadedSet]) -> Result<CompiledPolicy, PolicyError> {
    let filters = expand::filters(policy, sets)?;
    let actions: Vec<RuleAction> = policy.rules.iter().map(|rule| action(rule.action)).collect();
    let mut groups = GroupPrefixes { ipv4: group_prefixes(policy), ipv6: group_prefixes(policy) };
    keep_handles_out(&mut groups.ipv4);
    let numbers_of = |is_wanted: fn(&RuleSettings) -> bool| -> Vec<u32> {
        let numbered = (0..).zip(&policy.rules);
        numbered.filter(|(_, rule)| is_wanted(rule)).map(|(number, _)| number).collect()
    };
    let names = GivenNames::of(policy);
    let policies = names.policies(policy);
    check_outcomes(policy, &actions, &policies)?;
    let rules = RuleSet::new(&filters.ipv4, actions, groups.ipv4.clone())
        .and_then(|rules| rules.with_ipv6(&filters.ipv6, groups.ipv6.clone()))
        .map_err(|error| PolicyError::candidates(policy, &error))?
        .with_policies(&policies)
        .with_source_pools(source_pools(policy))
        .with_rematch(numbers_of(|rule| rule.rematch))
        .with_log(numbers_of(|rule| rule.log));
    Ok(CompiledPolicy {
        rules: Arc::new(rules),
        names: policy.rules.iter().map(|rule| rule.name.clone()).collect(),
        filters,
        groups,
        group_names: policy.groups.iter().map(|group| group.name.clone()).collect(),
        given: names,
    })
}

/// Returns the prefixes of all groups in one family.
fn group_prefixes<A: FamilyAddress>(policy: &PolicySettings) -> Vec<(Prefix<A>, u8)> {
    let numbered = policy.groups.iter().zip(1..);
    let prefixes = numbered.flat_map(|(group, number)| {
        let nets: Vec<A::Net> = group.subscribers.iter().copied().filter_map(A::net).collect();
        // Merged, so that no prefix occurs twice.
        A::merged(&nets).into_iter().map(move |net| (A::prefix(net), number))
    });
    prefixes.collect()
}

/// Keeps the addresses that stand for outer IPv6 addresses out of groups whose prefixes have them.
fn keep_handles_out(groups: &mut Vec<(Prefix<u32>, u8)>) {
    let handles = Prefix::new(OUTER_HANDLES, OUTER_HANDLES.leading_ones() as u8);
    groups.retain(|(net, _)| !handles.covers(net));
    if groups.iter().any(|(net, _)| net.covers(&handles)) {
        groups.push((handles, 0));
    }
}

fn action(setting: ActionSetting) -> RuleAction {
    match setting {
        // The destination is a part of what the rule gives.
        ActionSetting::Accept | ActionSetting::Redirect => RuleAction::Accept,
        ActionSetting::Drop => RuleAction::Drop,
        ActionSetting::Reject => RuleAction::Reject,
        ActionSetting::Bypass => RuleAction::Bypass,
    }
}

impl CompiledPolicy {
    /// Returns the name of a rule.
    pub fn name(&self, rule: u32) -> &str {
        &self.names[rule as usize]
    }

    /// Returns the name of a home's group; `None` if it is in none.
    pub fn group_name(&self, group: u8) -> Option<&str> {
        let index = usize::from(group).checked_sub(1)?;
        self.group_names.get(index).map(String::as_str)
    }

    /// Returns the name of a class; `None` for none.
    pub fn class_name(&self, class: FlowClass) -> Option<&str> {
        self.given.class_name(class)
    }

    /// Returns the name of a source pool; `None` for addresses that are in none.
    pub fn source_pool_name(&self, pool: SourcePool) -> Option<&str> {
        self.given.source_pool_name(pool)
    }

    /// Returns the number of filters that each rule has made, of both families.
    pub fn filters_by_rule(&self) -> Vec<usize> {
        let mut counts = vec![0; self.names.len()];
        let Filters { ipv4, ipv6 } = &self.filters;
        let rules = ipv4.iter().map(|it| it.rule).chain(ipv6.iter().map(|it| it.rule));
        rules.for_each(|rule| counts[rule as usize] += 1);
        counts
    }

    /// Whether a rule or a group has a prefix of IPv6.
    pub fn names_ipv6(&self) -> bool {
        let is_named = |it: &RuleFilter<u128>| !it.local.is_all() || !it.remote.is_all();
        !self.groups.ipv6.is_empty() || self.filters.ipv6.iter().any(is_named)
    }

    /// Returns the group of a flow's home; 0 if it is in none.
    pub fn group_of(&self, flow: &FlowQuestion) -> u8 {
        let home = match flow.addresses {
            FlowAddresses::Ipv4 { subscriber, .. } => subscriber,
            FlowAddresses::Ipv6 { inside, tunnel, .. } => tunnel.unwrap_or(inside.into()),
        };
        match home {
            IpAddr::V4(home) => self.rules.group_of(home.into()),
            IpAddr::V6(home) => self.rules.group_of6(home.into()),
        }
    }

    /// Returns the rule that decides on a flow, as a worker finds it.
    pub fn find(&self, flow: &FlowQuestion) -> Option<DecidingRule> {
        match self.question(flow) {
            FamilyQuestion::Ipv4(question) => self.rules.find(&question),
            FamilyQuestion::Ipv6(question) => self.rules.find6(&question),
        }
    }

    /// Returns the deciding rule as a worker finds it, and all candidates by looking at every
    /// filter.
    pub fn explain(&self, flow: &FlowQuestion) -> RuleExplanation {
        let candidates = match self.question(flow) {
            FamilyQuestion::Ipv4(question) => candidates(&self.filters.ipv4, &question),
            FamilyQuestion::Ipv6(question) => candidates(&self.filters.ipv6, &question),
        };
        RuleExplanation { deciding: self.find(flow), candidates }
    }

    /// Returns the question of a worker to which the flow belongs.
    fn question(&self, flow: &FlowQuestion) -> FamilyQuestion {
        let group = self.group_of(flow);
        match flow.addresses {
            FlowAddresses::Ipv4 { subscriber, remote } => {
                let local = match subscriber {
                    IpAddr::V4(subscriber) => subscriber.into(),
                    IpAddr::V6(_) => OUTER_HANDLES,
                };
                FamilyQuestion::Ipv4(flow.between(group, local, remote.into()))
            }
            FlowAddresses::Ipv6 { inside, remote, .. } => {
                FamilyQuestion::Ipv6(flow.between(group, inside.into(), remote.into()))
            }
        }
    }
}

/// A question of either family.
enum FamilyQuestion {
    Ipv4(Question<u32>),
    Ipv6(Question<u128>),
}

/// Returns the rules with a filter that fits, in order.
fn candidates<A: IpAddress>(filters: &[RuleFilter<A>], question: &Question<A>) -> Vec<u32> {
    let fitting = filters.iter().filter(|filter| filter.fits(question));
    let mut candidates: Vec<u32> = fitting.map(|filter| filter.rule).collect();
    candidates.dedup();
    candidates
}

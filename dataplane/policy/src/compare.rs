//! Flows on which two policies differ, found by asking both.
//!
//! A verdict changes only at the borders of filters, so the questions are drawn from there: for
//! each filter addresses and ports that it contains, each of them the corner of some filter of
//! either policy, of a group or of the prefixes of homes. Filters that only one of the policies has
//! come first. The number of questions is bounded: what is found is true, what is not found may
//! exist.

use std::collections::HashSet;

use fastrand::Rng;
use ipnet::{Ipv4Net, Ipv6Net};
use weir_rules::{Destination, FlowClass, FlowPolicy, RuleAction, RuleFilter};

use crate::compile::CompiledPolicy;
use crate::corners::{CornerAddress, Corners, tunnels, tunnels6};
use crate::question::{FlowQuestion, RuleVerdict};

/// Most questions of a comparison.
pub const QUESTIONS_MAX: usize = 400_000;
/// Questions about one filter, at least and at most.
const PER_FILTER: (usize, usize) = (12, 400);

/// The homes whose flows are compared.
#[derive(Clone, Copy, Debug, Default)]
pub struct ComparedHomes<'h> {
    /// Addresses of subscribers: of their tunnels, or their own where there are none.
    pub ipv4: &'h [Ipv4Net],
    /// Addresses of homes' IPv6 flows. Empty: any, and such flows are compared only if a policy has
    /// a prefix of IPv6.
    pub ipv6: &'h [Ipv6Net],
    /// Outer addresses of tunnels over IPv6.
    pub outer6: &'h [Ipv6Net],
    /// Whether homes have tunnels: the outer address decides on the group of an IPv6 flow.
    pub are_in_tunnels: bool,
}

/// What a policy decides about a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyDecision<'p> {
    pub verdict: RuleVerdict,
    pub class: FlowClass,
    /// Name of the source pool. Its number may stand for another pool in another policy.
    pub source_pool: Option<&'p str>,
    pub destination: Option<Destination>,
    /// Number of the deciding rule.
    pub rule: Option<u32>,
}

impl PolicyDecision<'_> {
    /// Whether the flow fares as under another decision, whichever rules decide.
    pub fn is_like(&self, other: &PolicyDecision<'_>) -> bool {
        self.verdict == other.verdict
            && self.class == other.class
            && self.source_pool == other.source_pool
            && self.destination == other.destination
    }
}

/// A flow on which two policies differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecisionChange<'p> {
    pub flow: FlowQuestion,
    pub old: PolicyDecision<'p>,
    pub new: PolicyDecision<'p>,
}

/// What a comparison has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyComparison<'p> {
    /// Number of questions that both policies were asked; some may be about one flow.
    pub asked: usize,
    /// Each flow once.
    pub changes: Vec<DecisionChange<'p>>,
}

/// Asks both policies about flows of these homes: first about those of IPv4.
pub fn compare<'p>(
    old: &'p CompiledPolicy,
    new: &'p CompiledPolicy,
    homes: &ComparedHomes<'_>,
) -> PolicyComparison<'p> {
    let mut comparison = PolicyComparison::default();
    let policies = [old, new];
    let filters = [
        policies.map(|policy| policy.filters.ipv4.len()).iter().sum::<usize>(),
        policies.map(|policy| policy.filters.ipv6.len()).iter().sum(),
    ];
    let is_ipv6_asked = !homes.ipv6.is_empty() || policies.iter().any(|it| it.names_ipv6());
    let [ipv4, ipv6] = if is_ipv6_asked { filters } else { [filters[0], 0] };
    let all = (ipv4 + ipv6).max(1);
    let most = (QUESTIONS_MAX / all).clamp(PER_FILTER.0, PER_FILTER.1);
    // Each family has its share of the questions.
    let share = |filters: usize| QUESTIONS_MAX * filters / all;
    let corners = Corners::<u32>::of(policies, homes, tunnels6(policies, homes));
    compare_family(policies, &corners, (most, share(ipv4)), &mut comparison);
    if is_ipv6_asked {
        let tunnels = if homes.are_in_tunnels { tunnels(policies, homes) } else { Vec::new() };
        let corners = Corners::<u128>::of(policies, homes, tunnels);
        compare_family(policies, &corners, (most, share(ipv6)), &mut comparison);
    }
    comparison
}

/// `most`: questions about one filter, and of all.
fn compare_family<'p, A: CornerAddress>(
    [old, new]: [&'p CompiledPolicy; 2],
    corners: &Corners<A>,
    (most, most_of_all): (usize, usize),
    comparison: &mut PolicyComparison<'p>,
) {
    let filters = changed_first([old, new], A::filters);
    let mut changed = HashSet::new();
    // The same flows in each run.
    let mut draw = Rng::with_seed(1);
    let mut asked = 0;
    for filter in filters {
        if asked + most > most_of_all {
            break;
        }
        for round in 0..most {
            let Some(flow) = corners.flow(filter, round, &mut draw) else { break };
            asked += 1;
            let [old, new] = [old, new].map(|policy| policy.decide(&flow));
            if !old.is_like(&new) && changed.insert(flow) {
                comparison.changes.push(DecisionChange { flow, old, new });
            }
        }
    }
    comparison.asked += asked;
}

impl CompiledPolicy {
    /// Returns what is decided about a flow.
    pub fn decide(&self, flow: &FlowQuestion) -> PolicyDecision<'_> {
        let deciding = self.find(flow);
        let given = deciding.map_or(FlowPolicy::NONE, |it| it.policy);
        PolicyDecision {
            verdict: RuleVerdict::of(flow.from, deciding),
            class: given.class,
            source_pool: self.source_pool_name(given.source),
            destination: given.destination,
            rule: deciding.map(|it| it.rule),
        }
    }
}

/// A filter without its number, and what its rule does. The name of the source pool stands for its
/// number, as in [`PolicyDecision`].
type FilterMeaning<'p, A> =
    (RuleFilter<A>, Option<(RuleAction, FlowClass, Option<&'p str>, Option<Destination>)>);

fn meaning<'p, A: CornerAddress>(
    policy: &'p CompiledPolicy,
    filter: &RuleFilter<A>,
) -> FilterMeaning<'p, A> {
    let deciding = policy.rules.deciding(filter.rule);
    let does = deciding.map(|it| {
        let given = it.policy;
        (it.action, given.class, policy.source_pool_name(given.source), given.destination)
    });
    (RuleFilter { rule: 0, ..*filter }, does)
}

/// Returns the filters of both policies, those first that only one of them has.
fn changed_first<A: CornerAddress>(
    [old, new]: [&CompiledPolicy; 2],
    filters: impl Fn(&CompiledPolicy) -> &[RuleFilter<A>],
) -> Vec<&RuleFilter<A>> {
    let [before, after] = [old, new].map(|policy| -> HashSet<FilterMeaning<'_, A>> {
        filters(policy).iter().map(|filter| meaning(policy, filter)).collect()
    });
    let (mut changed, mut same) = (Vec::new(), Vec::new());
    for (policy, other) in [(new, &before), (old, &after)] {
        for filter in filters(policy) {
            match other.contains(&meaning(policy, filter)) {
                true => same.push(filter),
                false => changed.push(filter),
            }
        }
    }
    changed.append(&mut same);
    changed
}

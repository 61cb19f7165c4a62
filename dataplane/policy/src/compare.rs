//! Flows on which two policies differ, found by asking both.
//!
//! A verdict changes only at the borders of filters, so the questions are drawn from there: for
//! each filter addresses and ports that it contains, each of them the corner of some filter of
//! either policy, of a group or of the prefixes of homes. Filters that only one of the policies has
//! come first. The number of questions is bounded: what is found is true, what is not found may
//! exist.

use std::collections::HashSet;
use std::net::Ipv4Addr;

use fastrand::Rng;
use ipnet::Ipv4Net;
use weir_config::ProtocolSetting;
use weir_rules::{
    Destination, FlowClass, FlowOrigin, FlowPolicy, PortRange, Prefix, RuleAction, RuleFilter,
};

use crate::compile::CompiledPolicy;
use crate::expand::prefix;
use crate::question::{FlowQuestion, RuleVerdict};

/// Most questions of a comparison.
pub const QUESTIONS_MAX: usize = 400_000;
/// Questions about one filter, at least and at most.
const PER_FILTER: (usize, usize) = (12, 400);

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

/// The corners of all filters: values at which the verdict may change. Sorted.
#[derive(Default)]
struct Corners {
    subscribers: Vec<u32>,
    remotes: Vec<u32>,
    inside_ports: Vec<u16>,
    remote_ports: Vec<u16>,
}

/// Asks both policies about flows of homes in `homes`.
pub fn compare<'p>(
    old: &'p CompiledPolicy,
    new: &'p CompiledPolicy,
    homes: &[Ipv4Net],
) -> PolicyComparison<'p> {
    let corners = Corners::of([old, new], homes);
    let filters = changed_first(old, new);
    let most = (QUESTIONS_MAX / filters.len().max(1)).clamp(PER_FILTER.0, PER_FILTER.1);
    let mut comparison = PolicyComparison::default();
    let mut changed = HashSet::new();
    // The same flows in each run.
    let mut draw = Rng::with_seed(1);
    for filter in filters {
        if comparison.asked + most > QUESTIONS_MAX {
            break;
        }
        for round in 0..most {
            let Some(flow) = corners.flow(filter, round, &mut draw) else { break };
            comparison.asked += 1;
            let [old, new] = [old, new].map(|policy| policy.decide(&flow));
            if !old.is_like(&new) && changed.insert(flow) {
                comparison.changes.push(DecisionChange { flow, old, new });
            }
        }
    }
    comparison
}

impl CompiledPolicy {
    /// Returns what is decided about a flow.
    pub fn decide(&self, flow: &FlowQuestion) -> PolicyDecision<'_> {
        let deciding = self.rules.find(&self.question(flow));
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
type FilterMeaning<'p> =
    (RuleFilter<u32>, Option<(RuleAction, FlowClass, Option<&'p str>, Option<Destination>)>);

fn meaning<'p>(policy: &'p CompiledPolicy, filter: &RuleFilter<u32>) -> FilterMeaning<'p> {
    let deciding = policy.rules.deciding(filter.rule);
    let does = deciding.map(|it| {
        let given = it.policy;
        (it.action, given.class, policy.source_pool_name(given.source), given.destination)
    });
    (RuleFilter { rule: 0, ..*filter }, does)
}

fn meanings(policy: &CompiledPolicy) -> HashSet<FilterMeaning<'_>> {
    policy.filters.iter().map(|filter| meaning(policy, filter)).collect()
}

/// Returns the filters of both, those first that only one of them has.
fn changed_first<'p>(old: &'p CompiledPolicy, new: &'p CompiledPolicy) -> Vec<&'p RuleFilter<u32>> {
    let (before, after) = (meanings(old), meanings(new));
    let (mut changed, mut same) = (Vec::new(), Vec::new());
    for (policy, other) in [(new, &before), (old, &after)] {
        for filter in &policy.filters {
            match other.contains(&meaning(policy, filter)) {
                true => same.push(filter),
                false => changed.push(filter),
            }
        }
    }
    changed.append(&mut same);
    changed
}

impl Corners {
    fn of(policies: [&CompiledPolicy; 2], homes: &[Ipv4Net]) -> Self {
        let mut corners = Self::default();
        // A flow may be of any home and with any remote, whatever the rules say.
        corners.remotes.push(Ipv4Addr::new(198, 51, 100, 1).into());
        corners.inside_ports.push(40_000);
        corners.remote_ports.push(443);
        let homes: Vec<Prefix<u32>> = homes.iter().copied().map(prefix).collect();
        homes.iter().for_each(|net| corners.subscribers.extend(around(net)));
        for policy in policies {
            policy.groups.iter().for_each(|(net, _)| corners.subscribers.extend(around(net)));
            for filter in &policy.filters {
                corners.subscribers.extend(around(&filter.local));
                corners.remotes.extend(around(&filter.remote));
                corners.inside_ports.extend(around_ports(filter.local_ports));
                corners.remote_ports.extend(around_ports(filter.remote_ports));
            }
        }
        corners.subscribers.retain(|address| homes.iter().any(|net| net.contains(*address)));
        sort(&mut corners.subscribers);
        sort(&mut corners.remotes);
        sort(&mut corners.inside_ports);
        sort(&mut corners.remote_ports);
        corners
    }

    /// Returns a flow that the filter fits, but for its group. `None` if no home is in it.
    fn flow(&self, filter: &RuleFilter<u32>, round: usize, draw: &mut Rng) -> Option<FlowQuestion> {
        let kinds = [FlowOrigin::Home, FlowOrigin::Internet].into_iter().flat_map(|from| {
            [ProtocolSetting::Tcp, ProtocolSetting::Udp, ProtocolSetting::Icmp]
                .map(|protocol| (from, protocol))
        });
        let subscriber = pick(&self.subscribers, bounds(&filter.local), round, draw)?;
        let remote = pick(&self.remotes, bounds(&filter.remote), round, draw)?;
        // Packets of port 0 begin no flow.
        let ports = |ports: PortRange| (ports.first.max(1), ports.last);
        let inside_port = pick(&self.inside_ports, ports(filter.local_ports), round, draw)?;
        let remote_port = pick(&self.remote_ports, ports(filter.remote_ports), round, draw)?;
        let flows = kinds.map(|(from, protocol)| {
            let has_ports = protocol != ProtocolSetting::Icmp;
            FlowQuestion {
                from,
                protocol,
                subscriber: subscriber.into(),
                remote: remote.into(),
                inside_port: if has_ports { inside_port } else { 0 },
                remote_port: if has_ports { remote_port } else { 0 },
            }
        });
        let flows: Vec<FlowQuestion> = flows.filter(|flow| filter.kinds.has(flow.kind())).collect();
        // Two rounds, with the lowest and the highest corners, for each kind.
        flows.get(round / 2 % flows.len().max(1)).copied()
    }
}

fn sort<T: Ord>(values: &mut Vec<T>) {
    values.sort_unstable();
    values.dedup();
}

fn bounds(net: &Prefix<u32>) -> (u32, u32) {
    let hosts = u32::MAX.checked_shr(u32::from(net.bits())).unwrap_or(0);
    (net.address(), net.address() | hosts)
}

/// Returns the first and the last address, and their neighbours outside.
fn around(net: &Prefix<u32>) -> [u32; 4] {
    let (first, last) = bounds(net);
    [first.saturating_sub(1), first, last, last.saturating_add(1)]
}

fn around_ports(ports: PortRange) -> [u16; 4] {
    let PortRange { first, last } = ports;
    [first.saturating_sub(1), first, last, last.saturating_add(1)]
}

/// Returns one of the sorted values from `first` to `last`: the first, the last, then any.
fn pick<T: Copy + Ord>(
    values: &[T],
    (first, last): (T, T),
    round: usize,
    draw: &mut Rng,
) -> Option<T> {
    let begin = values.partition_point(|value| *value < first);
    let end = values.partition_point(|value| *value <= last);
    let values = &values[begin..end];
    match round {
        0 => values.first().copied(),
        1 => values.last().copied(),
        _ if values.is_empty() => None,
        _ => values.get(draw.usize(..values.len())).copied(),
    }
}

//! The operator's rules as the data path asks them: a classifier for each family, what each rule
//! does, and the groups of homes.
//!
//! ```text
//!   question of IPv4 --> Classifier<u32>  --+
//!                                           +--> rule number --> what the rule does
//!   question of IPv6 --> Classifier<u128> --+
//! ```
//!
//! Both families have one list of rules and one numbering. A rule may have filters of IPv4, of IPv6
//! or of both, so a rule decides in each family among the rules that are about it.

use crate::address::{IpAddress, Prefix};
use crate::classifier::{Bound, Classifier, NO_RULE, QuestionWalks, WorstPacket};
use crate::doors::TooManyFilters;
use crate::filter::{Question, RuleFilter};
use crate::flow_policy::{FlowPolicy, SourcePool};

/// Number of groups: group 0 has the homes that are in no other.
pub const GROUPS: u8 = 16;

/// The first of the reserved addresses (RFC 1112 section 4), which no IPv4 packet has for a source:
/// questions of IPv4 name subscribers with tunnels over IPv6 by them.
pub const OUTER_HANDLES: u32 = 0xf000_0000;

/// Most outcomes of rules that differ from each other.
pub const OUTCOMES_MAX: usize = 256;

/// What happens to a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RuleAction {
    Accept,
    /// Its packets are dropped without an answer.
    Drop,
    /// Its packets are dropped, and their sender is sent a TCP reset or an ICMP error, type 3 code
    /// 13 (RFC 1812 section 5.2.7.1).
    Reject,
    /// Its packets pass as they are, each asked about for itself: no flow begins.
    Bypass,
}

/// The rule that decides on a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecidingRule {
    /// Number of the rule, below [`RuleSet::rules`].
    pub rule: u32,
    pub action: RuleAction,
    /// What the flow gets, if the rule accepts it.
    pub policy: FlowPolicy,
}

/// What a rule does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RuleOutcome {
    action: RuleAction,
    policy: FlowPolicy,
}

impl RuleOutcome {
    /// The rule accepts, and gives nothing.
    const ACCEPT: Self = Self { action: RuleAction::Accept, policy: FlowPolicy::NONE };
}

/// The outcomes of all rules. Few differ, so each is kept once.
#[derive(Clone, Debug)]
struct RuleOutcomes {
    /// By rule number: position in `distinct`.
    by_rule: Box<[u8]>,
    /// The first is [`RuleOutcome::ACCEPT`].
    distinct: Vec<RuleOutcome>,
}

impl RuleOutcomes {
    /// Position of [`RuleOutcome::ACCEPT`].
    const ACCEPT: u8 = 0;

    fn new(actions: &[RuleAction]) -> Self {
        let mut outcomes = Self {
            by_rule: vec![Self::ACCEPT; actions.len()].into(),
            distinct: vec![RuleOutcome::ACCEPT],
        };
        for (rule, &action) in actions.iter().enumerate() {
            outcomes.set(rule, RuleOutcome { action, ..RuleOutcome::ACCEPT });
        }
        outcomes
    }

    /// # Panics
    /// If there are more than [`OUTCOMES_MAX`] that differ.
    fn set(&mut self, rule: usize, outcome: RuleOutcome) {
        let known = self.distinct.iter().position(|it| *it == outcome);
        let at = known.unwrap_or_else(|| {
            self.distinct.push(outcome);
            self.distinct.len() - 1
        });
        assert!(at < OUTCOMES_MAX, "rules have at most {OUTCOMES_MAX} outcomes");
        self.by_rule[rule] = at as u8;
    }

    #[inline(always)]
    fn of(&self, rule: u32) -> RuleOutcome {
        self.distinct[usize::from(self.by_rule[rule as usize])]
    }

    fn bytes(&self) -> usize {
        size_of_val(&*self.by_rule) + size_of_val(&*self.distinct)
    }
}

/// Rules about flows of IPv4 and of IPv6, compiled.
///
/// The local address of an IPv4 flow is that of its subscriber: the outer address of the home's
/// tunnel, or the inside address where there is no tunnel, or one from [`OUTER_HANDLES`] on where
/// the outer address is one of IPv6: the question has the group then. The local address of an IPv6
/// flow is the inside one. Its home's group is that of this address, or, in a tunnel, of the
/// tunnel's outer address ([`group_of`](Self::group_of), [`group_of6`](Self::group_of6)): the
/// question has it.
#[derive(Clone, Debug)]
pub struct RuleSet {
    classifier: Classifier<u32>,
    classifier6: Classifier<u128>,
    /// The groups of IPv6 addresses, and no filters: the address that decides on the group of a
    /// home need not be the local address of its flows.
    groups6: Classifier<u128>,
    /// Whether a rule has a filter of IPv6.
    has_ipv6: bool,
    /// Whether a group has a prefix of either family.
    has_groups: bool,
    outcomes: RuleOutcomes,
    /// Whether one of the rules has the action bypass.
    has_bypass: bool,
    /// Numbers of the rules that are asked about live flows too, in order.
    rematch: Box<[u32]>,
    /// Numbers of the rules whose decisions are logged, in order.
    log: Box<[u32]>,
    /// Public addresses that are not of pool 0, in order; no two prefixes overlap.
    source_pools: Box<[(Prefix<u32>, SourcePool)]>,
}

impl RuleSet {
    /// Compiles rules, with their filters of IPv4: no rule is about IPv6, unless
    /// [`with_ipv6`](Self::with_ipv6) adds filters. `actions` has one for each rule number,
    /// `groups` a group for each prefix of subscribers; of prefixes that lie in each other the
    /// longest decides.
    ///
    /// # Errors
    /// [`TooManyFilters`], if too many filters have the same addresses and ports.
    ///
    /// # Panics
    /// If a filter's rule has no action, or a group is not below [`GROUPS`].
    pub fn new(
        filters: &[RuleFilter<u32>],
        actions: Vec<RuleAction>,
        groups: Vec<(Prefix<u32>, u8)>,
    ) -> Result<Self, TooManyFilters> {
        Ok(Self {
            has_bypass: actions.contains(&RuleAction::Bypass),
            classifier: classifier(filters, actions.len(), &groups)?,
            classifier6: Classifier::new(&[])?,
            groups6: Classifier::new(&[])?,
            has_ipv6: false,
            has_groups: !groups.is_empty(),
            outcomes: RuleOutcomes::new(&actions),
            rematch: Box::default(),
            log: Box::default(),
            source_pools: Box::default(),
        })
    }

    /// Returns the set with these filters of IPv6 in place of those that it has, and with a group
    /// for each prefix of homes' IPv6 addresses: of their tunnels, or their own where there are
    /// none. Of prefixes that lie in each other the longest decides. Questions have the group of
    /// their home.
    ///
    /// # Errors
    /// [`TooManyFilters`], if too many filters have the same addresses and ports.
    ///
    /// # Panics
    /// If the set has no rule of a filter's number, or a group is not below [`GROUPS`].
    pub fn with_ipv6(
        self,
        filters: &[RuleFilter<u128>],
        groups: Vec<(Prefix<u128>, u8)>,
    ) -> Result<Self, TooManyFilters> {
        let classifier6 = classifier(filters, self.rules(), &[])?;
        let groups6 = classifier(&[], 0, &groups)?;
        let has_groups = self.classifier.has_groups() || groups6.has_groups();
        Ok(Self { classifier6, groups6, has_ipv6: !filters.is_empty(), has_groups, ..self })
    }

    /// Returns the set with what these rules give the flows that they accept.
    ///
    /// # Panics
    /// If there is no rule of a number, or there are more than [`OUTCOMES_MAX`] outcomes.
    #[must_use]
    pub fn with_policies(mut self, policies: &[(u32, FlowPolicy)]) -> Self {
        for &(rule, policy) in policies {
            let outcome = RuleOutcome { policy, ..self.outcomes.of(rule) };
            self.outcomes.set(rule as usize, outcome);
        }
        self
    }

    /// Returns the set with public addresses in source pools. No two prefixes overlap.
    #[must_use]
    pub fn with_source_pools(self, mut pools: Vec<(Prefix<u32>, SourcePool)>) -> Self {
        pools.sort_by_key(|(prefix, _)| prefix.address());
        Self { source_pools: pools.into(), ..self }
    }

    /// Whether some public addresses are in source pools.
    #[inline(always)]
    pub fn has_source_pools(&self) -> bool {
        !self.source_pools.is_empty()
    }

    /// Returns the source pool of a public address.
    #[inline]
    pub fn source_pool_of(&self, public: u32) -> SourcePool {
        let behind = self.source_pools.partition_point(|(prefix, _)| prefix.address() <= public);
        let before = self.source_pools[..behind].last();
        let own = before.filter(|(prefix, _)| prefix.contains(public));
        own.map_or(SourcePool::COMMON, |&(_, pool)| pool)
    }

    /// Whether a rule gives flows another destination.
    pub fn has_destinations(&self) -> bool {
        self.outcomes.distinct.iter().any(|outcome| outcome.policy.destination.is_some())
    }

    /// Returns the set with these rules asked about live flows too, by their numbers in order.
    #[must_use]
    pub fn with_rematch(self, rules: Vec<u32>) -> Self {
        assert!(rules.is_sorted(), "the rules with rematch are in order");
        Self { rematch: rules.into(), ..self }
    }

    /// Returns the set with the decisions of these rules logged, by their numbers in order.
    #[must_use]
    pub fn with_log(self, rules: Vec<u32>) -> Self {
        assert!(rules.is_sorted(), "the rules with log are in order");
        Self { log: rules.into(), ..self }
    }

    /// Whether a rule lets packets pass as they are.
    #[inline(always)]
    pub fn has_bypass(&self) -> bool {
        self.has_bypass
    }

    /// Whether the decisions of a rule are logged.
    #[inline(always)]
    pub fn has_log(&self) -> bool {
        !self.log.is_empty()
    }

    /// Whether the decisions of this rule are logged.
    pub fn is_logged(&self, rule: u32) -> bool {
        self.log.binary_search(&rule).is_ok()
    }

    /// Whether a rule is asked about live flows.
    pub fn has_rematch(&self) -> bool {
        !self.rematch.is_empty()
    }

    /// Whether this rule is asked about live flows.
    pub fn is_rematch(&self, rule: u32) -> bool {
        self.rematch.binary_search(&rule).is_ok()
    }

    /// Returns the set without rules and groups.
    pub fn empty() -> Self {
        Self::new(&[], Vec::new(), Vec::new()).expect("no filters are not too many")
    }

    /// Whether there is no rule, so that nothing needs to be asked.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.outcomes.by_rule.is_empty()
    }

    /// Returns the number of rules.
    pub fn rules(&self) -> usize {
        self.outcomes.by_rule.len()
    }

    /// Whether a rule may fit flows of IPv6: else nothing needs to be asked about these.
    #[inline(always)]
    pub fn has_ipv6(&self) -> bool {
        self.has_ipv6
    }

    /// Returns the group of a subscriber with an IPv4 address.
    #[inline(always)]
    pub fn group_of(&self, subscriber: u32) -> u8 {
        self.classifier.group_of(subscriber)
    }

    /// Whether a group has a prefix.
    #[inline(always)]
    pub fn has_groups(&self) -> bool {
        self.has_groups
    }

    /// Whether a group has a prefix of IPv6.
    #[inline(always)]
    pub fn has_groups6(&self) -> bool {
        self.groups6.has_groups()
    }

    /// Returns the group of a home by its IPv6 address; 0 for each without groups of IPv6 prefixes.
    #[inline(always)]
    pub fn group_of6(&self, address: u128) -> u8 {
        self.groups6.group_of(address)
    }

    /// Returns the first rule that fits the flow of IPv4.
    pub fn find(&self, question: &Question<u32>) -> Option<DecidingRule> {
        self.deciding(self.classifier.find(question)?)
    }

    /// Finds the rule number for each of several questions, as
    /// [`Classifier::find_all`](crate::Classifier::find_all) does; [`deciding`](Self::deciding)
    /// tells what it does.
    #[inline(always)]
    pub fn find_all(
        &self,
        questions: impl Iterator<Item = Question<u32>>,
        walks: &mut QuestionWalks<u32>,
        found: &mut [u32],
    ) {
        self.classifier.find_all(questions, walks, found);
    }

    /// Returns the first rule that fits the flow of IPv6.
    pub fn find6(&self, question: &Question<u128>) -> Option<DecidingRule> {
        self.deciding(self.classifier6.find(question)?)
    }

    /// As [`find_all`](Self::find_all), for flows of IPv6.
    #[inline(always)]
    pub fn find_all6(
        &self,
        questions: impl Iterator<Item = Question<u128>>,
        walks: &mut QuestionWalks<u128>,
        found: &mut [u32],
    ) {
        self.classifier6.find_all(questions, walks, found);
    }

    /// Returns the rule of a number that [`find_all`](Self::find_all) has found.
    #[inline(always)]
    pub fn deciding(&self, rule: u32) -> Option<DecidingRule> {
        if rule == NO_RULE {
            return None;
        }
        let RuleOutcome { action, policy } = self.outcomes.of(rule);
        Some(DecidingRule { rule, action, policy })
    }

    /// Whether the rule of a number accepts and gives nothing, or there is none.
    #[inline(always)]
    pub fn accepts_plainly(&self, rule: u32) -> bool {
        rule == NO_RULE || self.outcomes.by_rule[rule as usize] == RuleOutcomes::ACCEPT
    }

    /// Returns what a question about a flow of IPv4 costs at most.
    pub fn bound(&self) -> Bound {
        self.classifier.bound()
    }

    /// Returns what a question about a flow of IPv6 costs at most.
    pub fn bound6(&self) -> Bound {
        self.classifier6.bound()
    }

    /// Returns the packet of IPv4 that costs most, and the numbers of the rules that it is compared
    /// with.
    pub fn worst(&self) -> (WorstPacket<u32>, Vec<u32>) {
        self.classifier.worst()
    }

    /// Returns the packet of IPv6 that costs most, and the numbers of the rules that it is compared
    /// with.
    pub fn worst6(&self) -> (WorstPacket<u128>, Vec<u32>) {
        self.classifier6.worst()
    }

    /// Returns the bytes of memory that the rules of both families take.
    pub fn bytes(&self) -> usize {
        let numbers = size_of_val(&*self.rematch) + size_of_val(&*self.log);
        let pools = size_of_val(&*self.source_pools);
        let classifiers = self.classifier.bytes() + self.classifier6.bytes() + self.groups6.bytes();
        classifiers + pools + self.outcomes.bytes() + numbers
    }
}

/// Compiles the filters and groups of a family.
///
/// # Panics
/// If a filter's rule is not below `rules`, or a group is not below [`GROUPS`].
fn classifier<A: IpAddress>(
    filters: &[RuleFilter<A>],
    rules: usize,
    groups: &[(Prefix<A>, u8)],
) -> Result<Classifier<A>, TooManyFilters> {
    let has_action = |filter: &RuleFilter<A>| (filter.rule as usize) < rules;
    assert!(filters.iter().all(has_action), "each rule has an action");
    assert!(groups.iter().all(|&(_, group)| group < GROUPS), "there are {GROUPS} groups");
    Classifier::with_groups(filters, groups)
}

#[cfg(test)]
#[path = "rule_set_tests.rs"]
mod tests;

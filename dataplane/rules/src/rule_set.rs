//! The operator's rules as the data path asks them: the classifier, what each rule does, and the
//! groups of homes.

use crate::address::Prefix;
use crate::classifier::{Bound, Classifier, NO_RULE, QuestionWalks, WorstPacket};
use crate::doors::TooManyFilters;
use crate::filter::{Question, RuleFilter};
use crate::flow_policy::{FlowPolicy, SourcePool};

/// Number of groups: group 0 has the homes that are in no other.
pub const GROUPS: u8 = 16;

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

/// Rules about flows of IPv4, compiled. A flow's local address is that of its subscriber: the outer
/// address of the home's tunnel, or the inside address where there is no tunnel.
#[derive(Clone, Debug)]
pub struct RuleSet {
    classifier: Classifier<u32>,
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
    /// Compiles rules. `actions` has one for each rule number, `groups` a group for each prefix of
    /// subscribers; of prefixes that lie in each other the longest decides.
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
        let has_action = |filter: &RuleFilter<u32>| (filter.rule as usize) < actions.len();
        assert!(filters.iter().all(has_action), "each rule has an action");
        assert!(groups.iter().all(|&(_, group)| group < GROUPS), "there are {GROUPS} groups");
        Ok(Self {
            has_bypass: actions.contains(&RuleAction::Bypass),
            classifier: Classifier::with_groups(filters, &groups)?,
            outcomes: RuleOutcomes::new(&actions),
            rematch: Box::default(),
            log: Box::default(),
            source_pools: Box::default(),
        })
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

    /// Returns the group of a subscriber.
    #[inline(always)]
    pub fn group_of(&self, subscriber: u32) -> u8 {
        self.classifier.group_of(subscriber)
    }

    /// Returns the first rule that fits the flow.
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

    /// Returns what a question costs at most.
    pub fn bound(&self) -> Bound {
        self.classifier.bound()
    }

    /// Returns the packet that costs most, and the numbers of the rules that it is compared with.
    pub fn worst(&self) -> (WorstPacket<u32>, Vec<u32>) {
        self.classifier.worst()
    }

    /// Returns the bytes of memory that the rules take.
    pub fn bytes(&self) -> usize {
        let numbers = size_of_val(&*self.rematch) + size_of_val(&*self.log);
        let pools = size_of_val(&*self.source_pools);
        self.classifier.bytes() + pools + self.outcomes.bytes() + numbers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow_class::FlowClass;
    use crate::flow_kind::{FlowKind, FlowOrigin};
    use crate::flow_policy::Destination;

    fn question(group: u8, remote: u32) -> Question<u32> {
        let kind = FlowKind::new(FlowOrigin::Home, 17).unwrap();
        Question { kind, group, local: 1, remote, local_port: 1000, remote_port: 53 }
    }

    #[test]
    fn first_rule_that_fits_decides_with_its_action() {
        let of_group = RuleFilter { groups: 1 << 3, ..RuleFilter::all(0) };
        let to_net = RuleFilter { remote: Prefix::new(0x0a00_0000, 8), ..RuleFilter::all(1) };
        let actions = vec![RuleAction::Accept, RuleAction::Reject, RuleAction::Drop];
        let groups = vec![(Prefix::new(0x0a64_0000, 16), 3), (Prefix::new(0x0a64_0100, 24), 2)];
        let set = RuleSet::new(&[of_group, to_net, RuleFilter::all(2)], actions, groups).unwrap();
        let decides = |question| set.find(&question).map(|it| (it.rule, it.action));
        assert_eq!(decides(question(3, 0x0a00_0001)), Some((0, RuleAction::Accept)));
        assert_eq!(decides(question(0, 0x0a00_0001)), Some((1, RuleAction::Reject)));
        assert_eq!(decides(question(0, 0x0b00_0001)), Some((2, RuleAction::Drop)));
        let groups = [0x0a64_0001, 0x0a64_0101, 0x0a65_0001].map(|it| set.group_of(it));
        assert_eq!(groups, [3, 2, 0]);
        assert_eq!((set.rules(), set.is_empty(), set.has_rematch()), (3, false, false));
        assert!(!set.has_bypass());
        let set = set.with_rematch(vec![1]).with_log(vec![0, 2]);
        assert_eq!([0, 1, 2].map(|rule| set.is_rematch(rule)), [false, true, false]);
        assert_eq!([0, 1, 2].map(|rule| set.is_logged(rule)), [true, false, true]);
    }

    #[test]
    fn rules_give_their_flows_what_they_say() {
        let rules = [0, 1, 2].map(|rule| RuleFilter { groups: 1 << rule, ..RuleFilter::all(rule) });
        let actions = vec![RuleAction::Accept; 3];
        let mail = SourcePool::new(2).unwrap();
        let class = FlowClass::new(2).unwrap();
        let given = FlowPolicy {
            class,
            source: mail,
            destination: Some(Destination { address: 7, port: None }),
        };
        let pools = vec![(Prefix::new(0xcb00_7108, 30), mail)];
        let set = RuleSet::new(&rules, actions, Vec::new()).unwrap();
        assert!(!set.has_destinations() && !set.has_source_pools());
        let set = set.with_policies(&[(0, given), (1, FlowPolicy::of_class(class))]);
        let set = set.with_source_pools(pools);
        let policy = |group| set.find(&question(group, 1)).map(|it| it.policy);
        let expected = [given, FlowPolicy::of_class(class), FlowPolicy::NONE].map(Some);
        assert_eq!([0, 1, 2].map(policy), expected);
        assert_eq!(
            [0, 1, 2, NO_RULE].map(|it| set.accepts_plainly(it)),
            [false, false, true, true]
        );
        assert!(set.has_destinations() && set.has_source_pools());
        let of =
            [0xcb00_7107, 0xcb00_7108, 0xcb00_710b, 0xcb00_710c].map(|it| set.source_pool_of(it));
        assert_eq!(of, [SourcePool::COMMON, mail, mail, SourcePool::COMMON]);
        assert_eq!((FlowClass::new(4), SourcePool::new(8)), (None, None));
    }

    #[test]
    fn set_without_rules_decides_on_nothing() {
        let set = RuleSet::empty();
        assert!(set.is_empty() && set.find(&question(0, 1)).is_none());
        assert_eq!((set.rules(), set.group_of(7), set.deciding(NO_RULE)), (0, 0, None));
    }
}

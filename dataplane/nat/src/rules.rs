//! Hot. The rules that a worker asks about new flows, and how often each has decided.
//!
//! ```text
//!   from a home       first packets of a burst: find_rules for all, then check_rule of each
//!                     one packet, or a further remote of a mapping: ask_outbound
//!   from the internet a remote without a session, to a mapping: find_inbound_rule, else filtering
//!                     to a static mapping without a record: ask_static
//! ```
//!
//! A rule with the action bypass begins no flow: [`Refusal::RuleBypass`] says that the packet
//! passes as it is. It is about packets with the subscriber's own address, which the engine asks
//! about one by one, and says nothing about packets to a mapping.
//!
//! Packets of live sessions, ICMP errors and later fragments are not asked about. Live flows are
//! asked about once after a change, where a rule says so (`rematch.rs`). Without rules the price is
//! one test.

use std::sync::Arc;

use weir_flow::RecordId;
use weir_rules::{
    DecidingRule, FlowKind, FlowOrigin, FlowPolicy, NO_RULE, Question, QuestionWalks, RuleAction,
    RuleSet, TOGETHER,
};

use crate::admin::facet::{Admin, AdminMut};
use crate::endpoint::{Endpoint, Home, Protocol, is_outer_handle};
use crate::logs::rule_log::{FlowEnds, LoggedFlow};
use crate::logs::session_log::LoggedSubscriber;
use crate::nat::Nat;
use crate::packet::{Inbound, NewFlow, Outbound, Refusal};
use crate::ports::static_mappings::StaticHolder;

/// Most flows for which [`Nat::find_rules`] finds the rules at once.
pub const ASKED_MAX: usize = TOGETHER;

/// The rules of a worker. The set is shared with other workers, the counts are its own.
#[derive(Debug)]
pub struct ActiveRules {
    pub set: Arc<RuleSet>,
    /// By rule number: flows that began, packets that were let in without state, packets that were
    /// refused, and live flows that were ended.
    pub hits: Box<[u64]>,
    walks: QuestionWalks<u32>,
}

impl ActiveRules {
    /// Returns the rules with counts of 0.
    pub fn new(set: Arc<RuleSet>) -> Self {
        Self { hits: vec![0; set.rules()].into(), set, walks: QuestionWalks::default() }
    }

    /// Returns no rules.
    pub fn none() -> Self {
        Self::new(Arc::new(RuleSet::empty()))
    }

    /// Counts what a rule has decided; nothing for [`NO_RULE`].
    #[inline(always)]
    pub(crate) fn count(&mut self, rule: u32) {
        self.count_all([rule].into_iter());
    }

    #[inline(always)]
    fn count_all(&mut self, rules: impl Iterator<Item = u32>) {
        let hits = &mut *self.hits;
        for rule in rules {
            if let Some(hits) = hits.get_mut(rule as usize) {
                *hits += 1;
            }
        }
    }

    /// Counts a packet that a rule does not accept.
    pub(crate) fn refuse(&mut self, deciding: DecidingRule) -> Refusal {
        self.count(deciding.rule);
        match deciding.action {
            RuleAction::Reject => Refusal::RuleReject,
            RuleAction::Bypass => Refusal::RuleBypass,
            RuleAction::Accept | RuleAction::Drop => Refusal::RuleDrop,
        }
    }
}

impl Admin<'_> {
    /// Returns the rules in force with their counts.
    pub fn active_rules(&self) -> &ActiveRules {
        &self.nat.rules
    }
}

impl AdminMut<'_> {
    /// Replaces the rules and returns the former ones with their counts, for the caller to free:
    /// allocates and frees nothing. Live flows stay as they are, but for those that a rule with
    /// rematch refuses: [`Nat::expire`] ends them, a piece in each call.
    #[must_use]
    pub fn swap_rules(&mut self, rules: Box<ActiveRules>) -> Box<ActiveRules> {
        let policy = &mut self.nat.policy;
        policy.has_several |= rules.set.has_source_pools();
        policy.has_special_addresses |= rules.set.has_source_pools();
        policy.has_redirected |= rules.set.has_destinations();
        let former = std::mem::replace(&mut self.nat.rules, rules);
        self.nat.begin_rematch();
        self.nat.rule_log.clear();
        former
    }
}

impl Nat {
    /// Whether there are rules to ask.
    #[inline(always)]
    pub fn has_rules(&self) -> bool {
        !self.rules.set.is_empty()
    }

    /// Whether a rule lets packets pass as they are.
    #[inline(always)]
    pub fn has_bypass(&self) -> bool {
        self.rules.set.has_bypass()
    }

    /// Whether a rule lets this packet of a home pass as it is; then counts it.
    #[cold]
    pub fn bypasses_outbound(&mut self, packet: &Outbound) -> bool {
        let &Outbound { home, inside, remote, protocol, .. } = packet;
        let asked = (protocol, home.outer, inside, remote);
        self.is_home_outer(home.outer) && self.bypasses(FlowOrigin::Home, asked)
    }

    /// Whether a rule lets this packet from the internet to a home's own address pass as it is;
    /// then counts it. The packet's public endpoint is the inside one.
    #[cold]
    pub fn bypasses_inbound(&mut self, home: &Home, packet: &Inbound) -> bool {
        let &Inbound { public: inside, remote, protocol, .. } = packet;
        self.bypasses(FlowOrigin::Internet, (protocol, home.outer, inside, remote))
    }

    fn bypasses(&mut self, origin: FlowOrigin, asked: Asked) -> bool {
        let deciding = self.rules.set.find(&self.question(origin, asked));
        let bypass = deciding.filter(|it| it.action == RuleAction::Bypass);
        if let Some(bypass) = bypass {
            self.count_accepted(bypass.rule, origin, asked);
        }
        bypass.is_some()
    }

    /// Returns what happens to a segment that opens nothing, and whose connection is not known: a
    /// rule may let it pass as it is.
    #[cold]
    fn refuse_opening(&mut self, packet: &Outbound, refusal: Refusal) -> Refusal {
        match self.has_bypass() && self.bypasses_outbound(packet) {
            true => Refusal::RuleBypass,
            false => refusal,
        }
    }

    /// Checks whether a packet from a home may open a flow.
    ///
    /// # Errors
    /// As [`check_opening`](Self::check_opening), or [`Refusal::RuleBypass`].
    #[inline]
    pub fn check_opening_or_bypass(&mut self, packet: &Outbound) -> Result<(), Refusal> {
        self.check_opening(packet.protocol, packet.tcp_flags)
            .map_err(|refusal| self.refuse_opening(packet, refusal))
    }

    /// Returns the group of a home; 0 if it is in none.
    #[inline]
    pub fn group_of(&self, home: &Home) -> u8 {
        if self.rules.set.has_groups() { self.find_group(home) } else { 0 }
    }

    #[cold]
    #[inline(never)]
    fn find_group(&self, home: &Home) -> u8 {
        match self.prefix_of(home) {
            Some(prefix) => self.rules.set.group_of6(u128::from(prefix) << 64),
            None => self.group_of_outer(home.outer),
        }
    }

    #[inline]
    fn group_of_outer(&self, outer: u32) -> u8 {
        match self.outer_of(outer).ipv6() {
            Some(address) => self.rules.set.group_of6(address),
            None => self.rules.set.group_of(outer),
        }
    }

    /// Finds the number of the rule that decides on each of several first packets from homes, at
    /// most [`ASKED_MAX`], into as many places. It is [`NO_RULE`] where none fits.
    #[inline(never)]
    pub fn find_rules<'a>(&mut self, flows: impl Iterator<Item = &'a NewFlow>, found: &mut [u32]) {
        if self.rules.set.has_groups6() {
            return self.find_rules_with_groups(flows, found);
        }
        let ask = |flow| question_about(FlowOrigin::Home, asked_about(flow));
        let ActiveRules { set, walks, .. } = &mut *self.rules;
        set.find_all(flows.map(ask), walks, found);
    }

    /// As [`find_rules`](Self::find_rules), with the groups of homes over IPv6.
    #[inline(never)]
    fn find_rules_with_groups<'a>(
        &mut self,
        flows: impl Iterator<Item = &'a NewFlow>,
        found: &mut [u32],
    ) {
        let Self { rules, subscribers, .. } = self;
        let ActiveRules { set, walks, .. } = &mut **rules;
        let ask = |flow: &NewFlow| {
            let outer = subscribers.outer_of(flow.key.home().outer);
            let group = outer.ipv6().map_or(0, |address| set.group_of6(address));
            Question { group, ..question_about(FlowOrigin::Home, asked_about(flow)) }
        };
        set.find_all(flows.map(ask), walks, found);
    }

    /// Returns the question about a flow. The set knows the groups of IPv4 addresses.
    #[inline(always)]
    pub(crate) fn question(&self, origin: FlowOrigin, asked: Asked) -> Question<u32> {
        let mut question = question_about(origin, asked);
        if self.rules.set.has_groups6() && is_outer_handle(question.local) {
            question.group = self.group_of_outer(question.local);
        }
        question
    }

    /// Checks whether the rule that [`find_rules`](Self::find_rules) has found lets a flow begin,
    /// and returns what it gives the flow; counts the packet if it does not.
    ///
    /// # Errors
    /// What the rule says, or that the home is no subscriber.
    #[inline(always)]
    pub fn check_rule(&mut self, rule: u32, flow: &NewFlow) -> Result<FlowPolicy, Refusal> {
        if self.rules.set.accepts_plainly(rule) {
            return Ok(FlowPolicy::NONE);
        }
        match AcceptingRule::of(self.rules.set.deciding(rule)) {
            Ok(accepting) => Ok(accepting.policy),
            Err(refusing) => Err(self.refuse_outbound(refusing, asked_about(flow))),
        }
    }

    /// Whether [`check_rule`](Self::check_rule) lets all flows of these rules begin, and gives them
    /// nothing.
    #[inline(always)]
    pub fn accept_plainly(&self, rules: &[u32]) -> bool {
        let set = &*self.rules.set;
        rules.iter().all(|&rule| set.accepts_plainly(rule))
    }

    /// Counts a flow that began, and that [`check_rule`](Self::check_rule) has let begin.
    #[inline(always)]
    pub(crate) fn count_rule(&mut self, rule: u32, flow: &NewFlow) {
        self.count_accepted(rule, FlowOrigin::Home, asked_about(flow));
    }

    /// Counts flows as [`count_rule`](Self::count_rule) does.
    #[inline(always)]
    pub fn count_rules<'a>(&mut self, flows: impl Iterator<Item = (u32, &'a NewFlow)> + Clone) {
        self.rules.count_all(flows.clone().map(|(rule, _)| rule));
        if self.rules.set.has_log() {
            for (rule, flow) in flows {
                self.log_asked(rule, FlowOrigin::Home, asked_about(flow));
            }
        }
    }

    /// Counts what a rule has let begin, or pass without state.
    #[inline(always)]
    pub(crate) fn count_accepted(&mut self, rule: u32, origin: FlowOrigin, asked: Asked) {
        self.rules.count(rule);
        if self.rules.set.has_log() {
            self.log_asked(rule, origin, asked);
        }
    }

    /// Logs a flow that a rule was asked about, if the rule wants that.
    #[cold]
    fn log_asked(&mut self, rule: u32, origin: FlowOrigin, asked: Asked) {
        let (protocol, outer, inside, remote) = asked;
        let subscriber = LoggedSubscriber::Address { address: self.outer_of(outer), gre_key: None };
        let ends = FlowEnds::Ipv4 { inside, remote };
        self.log_flow(LoggedFlow { rule, origin, protocol, subscriber, ends });
    }

    /// Counts what a rule refuses.
    pub(crate) fn count_refused(
        &mut self,
        refusing: DecidingRule,
        origin: FlowOrigin,
        asked: Asked,
    ) -> Refusal {
        if self.rules.set.has_log() {
            self.log_asked(refusing.rule, origin, asked);
        }
        self.rules.refuse(refusing)
    }

    /// Asks about a packet from a home that begins a flow. The rule that accepts it is to be
    /// counted when the flow has begun.
    ///
    /// # Errors
    /// As [`check_rule`](Self::check_rule).
    #[inline]
    pub(crate) fn ask_outbound(&mut self, packet: &Outbound) -> Result<AcceptingRule, Refusal> {
        if self.has_rules() { self.find_outbound_rule(packet) } else { Ok(AcceptingRule::NONE) }
    }

    #[inline(never)]
    fn find_outbound_rule(&mut self, packet: &Outbound) -> Result<AcceptingRule, Refusal> {
        let &Outbound { home, inside, remote, protocol, .. } = packet;
        let asked = (protocol, home.outer, inside, remote);
        let deciding = self.rules.set.find(&self.question(FlowOrigin::Home, asked));
        AcceptingRule::of(deciding).map_err(|refusing| self.refuse_outbound(refusing, asked))
    }

    /// A source that is no subscriber may be forged: it counts for no rule and gets no answer.
    #[inline(never)]
    fn refuse_outbound(&mut self, refusing: DecidingRule, asked: Asked) -> Refusal {
        let (_, subscriber, ..) = asked;
        match self.is_home_outer(subscriber) {
            true => self.count_refused(refusing, FlowOrigin::Home, asked),
            false => Refusal::NotSubscriber,
        }
    }

    /// Returns the rule that decides on a packet of a remote that has no session of this mapping.
    /// Counts nothing.
    #[inline]
    pub(crate) fn find_inbound_rule(&self, id: RecordId, remote: Endpoint) -> Option<DecidingRule> {
        if self.has_rules() { self.find_rule_to(id, remote) } else { None }
    }

    #[inline(never)]
    fn find_rule_to(&self, id: RecordId, remote: Endpoint) -> Option<DecidingRule> {
        self.find_rule_inbound(self.asked_to(id, remote))
    }

    /// Returns what the rules are asked about a remote and a mapping.
    pub(crate) fn asked_to(&self, id: RecordId, remote: Endpoint) -> Asked {
        let mapping = self.mappings.get(id);
        (mapping.protocol, mapping.outer, mapping.inside(), remote)
    }

    fn find_rule_inbound(&self, asked: Asked) -> Option<DecidingRule> {
        let deciding = self.rules.set.find(&self.question(FlowOrigin::Internet, asked))?;
        (deciding.action != RuleAction::Bypass).then_some(deciding)
    }

    /// Asks about a packet of a remote that begins a flow to a static mapping. The rule that
    /// accepts it is to be counted when the flow has begun.
    ///
    /// # Errors
    /// What the rule says.
    pub(crate) fn ask_static(
        &mut self,
        protocol: Protocol,
        holder: &StaticHolder,
        remote: Endpoint,
    ) -> Result<AcceptingRule, Refusal> {
        let asked = (protocol, holder.home.outer, holder.inside, remote);
        AcceptingRule::of(self.find_rule_inbound(asked))
            .map_err(|refusing| self.count_refused(refusing, FlowOrigin::Internet, asked))
    }

    /// Whether a rule lets this remote in, without a session.
    pub(crate) fn is_accepted_by_rule(&self, id: RecordId, remote: Endpoint) -> bool {
        let deciding = self.find_inbound_rule(id, remote);
        deciding.is_some_and(|deciding| deciding.action == RuleAction::Accept)
    }
}

/// What accepts a flow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AcceptingRule {
    /// Its number; [`NO_RULE`]: no rule fits.
    pub(crate) rule: u32,
    /// What it gives the flow.
    pub(crate) policy: FlowPolicy,
}

impl AcceptingRule {
    /// No rule fits.
    pub(crate) const NONE: Self = Self { rule: NO_RULE, policy: FlowPolicy::NONE };

    /// Returns the rule that decides, if it accepts or there is none; as the error, one that
    /// refuses.
    #[inline(always)]
    pub(crate) fn of(deciding: Option<DecidingRule>) -> Result<Self, DecidingRule> {
        match deciding {
            None => Ok(Self::NONE),
            Some(DecidingRule { rule, action: RuleAction::Accept, policy }) => {
                Ok(Self { rule, policy })
            }
            Some(refusing) => Err(refusing),
        }
    }
}

/// What the rules are asked about: the protocol, the subscriber, its inside endpoint, the remote.
pub(crate) type Asked = (Protocol, u32, Endpoint, Endpoint);

#[inline(always)]
fn asked_about(flow: &NewFlow) -> Asked {
    (flow.protocol, flow.key.home().outer, flow.key.inside(), flow.key.remote())
}

/// Returns the question about a flow of this protocol between a subscriber, with its inside
/// endpoint, and a remote endpoint; without the group of a subscriber over IPv6.
#[inline(always)]
fn question_about(
    origin: FlowOrigin,
    (protocol, subscriber, inside, remote): Asked,
) -> Question<u32> {
    // The port of an ICMP endpoint is the query's identifier, which is no port to a rule.
    let ports = if protocol == Protocol::Icmp { 0 } else { u16::MAX };
    Question {
        kind: KINDS[origin as usize][protocol as usize],
        group: 0,
        local: subscriber,
        remote: remote.address,
        local_port: inside.port & ports,
        remote_port: remote.port & ports,
    }
}

/// The kind of a flow, by the side that begins it and its protocol; of other protocols no flow is.
const KINDS: [[FlowKind; 32]; 2] = [kinds_of(FlowOrigin::Home), kinds_of(FlowOrigin::Internet)];

const fn kinds_of(origin: FlowOrigin) -> [FlowKind; 32] {
    let mut kinds = [kind_of(origin, Protocol::Udp); 32];
    let mut at = 0;
    while at < Protocol::ALL.len() {
        let protocol = Protocol::ALL[at];
        kinds[protocol as usize] = kind_of(origin, protocol);
        at += 1;
    }
    kinds
}

const fn kind_of(origin: FlowOrigin, protocol: Protocol) -> FlowKind {
    match FlowKind::new(origin, protocol as u8) {
        Some(kind) => kind,
        None => panic!("rules are about every protocol that has flows"),
    }
}

//! What the rules are asked about IPv6 flows.

use weir_flow::RecordId;
use weir_rules::{DecidingRule, FlowKind, FlowOrigin, NO_RULE, Question, RuleAction};

use crate::endpoint::{Home, Protocol};
use crate::ipv6::established::Packet6;
use crate::ipv6::flow_key::FlowKey6;
use crate::logs::rule_log::{FlowEnds, LoggedFlow};
use crate::nat::Nat;
use crate::packet::Refusal;
use crate::rules::AcceptingRule;
use crate::sessions::session_state::SessionState;

impl Nat {
    /// Whether there are rules to ask about IPv6 flows.
    #[inline]
    pub(crate) fn has_rules6(&self) -> bool {
        self.rules.set.has_ipv6()
    }

    /// Asks the rules about a packet that begins a flow. The rule that accepts it is to be counted
    /// when the flow has begun.
    ///
    /// # Errors
    /// What the rule says, or that the home is no subscriber.
    pub(crate) fn ask6(
        &mut self,
        origin: FlowOrigin,
        home: &Home,
        packet: &Packet6,
    ) -> Result<AcceptingRule, Refusal> {
        if !self.has_rules6() {
            return Ok(AcceptingRule::NONE);
        }
        match AcceptingRule::of(self.find_rule6(origin, home, packet)) {
            Ok(accepting) => Ok(accepting),
            // A source that is no subscriber may be forged: it counts for no rule.
            Err(_) if origin == FlowOrigin::Home && !self.is_subscriber(home) => {
                Err(Refusal::NotSubscriber)
            }
            Err(refusing) => {
                self.log_asked6(refusing.rule, origin, home, packet);
                Err(self.rules.refuse(refusing))
            }
        }
    }

    /// Whether a rule lets this packet of no known flow pass as it is; then counts it.
    pub(crate) fn bypasses6(&mut self, origin: FlowOrigin, home: &Home, packet: &Packet6) -> bool {
        if !(self.has_rules6() && self.has_bypass()) {
            return false;
        }
        let deciding = self.find_rule6(origin, home, packet);
        let bypass = deciding.filter(|it| it.action == RuleAction::Bypass);
        let may_ask = origin == FlowOrigin::Internet || self.is_subscriber(home);
        match bypass.filter(|_| may_ask) {
            Some(bypass) => {
                self.count_accepted6(bypass.rule, origin, home, packet);
                true
            }
            None => false,
        }
    }

    /// Counts what a rule has let begin, or pass without state.
    pub(crate) fn count_accepted6(
        &mut self,
        rule: u32,
        origin: FlowOrigin,
        home: &Home,
        packet: &Packet6,
    ) {
        if rule != NO_RULE {
            self.rules.count(rule);
            self.log_asked6(rule, origin, home, packet);
        }
    }

    fn log_asked6(&mut self, rule: u32, origin: FlowOrigin, home: &Home, packet: &Packet6) {
        if self.rules.set.has_log() {
            let ends = FlowEnds::Ipv6 { inside: packet.key.inside(), remote: packet.key.remote() };
            let (protocol, subscriber) = (packet.protocol, self.logged_home(home));
            self.log_flow(LoggedFlow { rule, origin, protocol, subscriber, ends });
        }
    }

    pub(crate) fn find_rule6(
        &self,
        origin: FlowOrigin,
        home: &Home,
        packet: &Packet6,
    ) -> Option<DecidingRule> {
        self.rules.set.find6(&self.question6(origin, home, packet)?)
    }

    fn question6(
        &self,
        origin: FlowOrigin,
        home: &Home,
        packet: &Packet6,
    ) -> Option<Question<u128>> {
        let (inside, remote) = (packet.key.inside(), packet.key.remote());
        // The port of an ICMPv6 endpoint is no port to a rule.
        let ports = if packet.protocol == Protocol::Icmp { 0 } else { u16::MAX };
        // Where homes are prefixes, a group may have a part of one.
        let group = match self.policy.home_mask {
            0 => self.group_of(home),
            _ => self.rules.set.group_of6(inside.address),
        };
        Some(Question {
            kind: FlowKind::new6(origin, number6(packet.protocol))?,
            group,
            local: inside.address,
            remote: remote.address,
            local_port: inside.port & ports,
            remote_port: remote.port & ports,
        })
    }

    /// Whether a rule with rematch ends this live flow; then counts it.
    pub(crate) fn is_refused_flow6(&mut self, id: RecordId) -> bool {
        let record = self.mappings.get(id);
        let origin = match record.first.state.has(SessionState::OPENED_BY_REMOTE) {
            true => FlowOrigin::Internet,
            false => FlowOrigin::Home,
        };
        let protocol = record.protocol;
        let key = FlowKey6::new(record.inside6(), record.remote6(), protocol, true);
        let packet = Packet6 { key, protocol, tcp_flags: 0 };
        let home = self.subscribers.get(record.subscriber).home();
        let deciding = self.find_rule6(origin, &home, &packet);
        let refusing = deciding
            .filter(|it| it.action != RuleAction::Accept && self.rules.set.is_rematch(it.rule));
        if let Some(refusing) = refusing {
            self.log_asked6(refusing.rule, origin, &home, &packet);
            self.rules.refuse(refusing);
        }
        refusing.is_some()
    }
}

/// Returns the number of a protocol in IPv6 (RFC 4443: ICMPv6 is 58).
const fn number6(protocol: Protocol) -> u8 {
    match protocol {
        Protocol::Icmp => 58,
        Protocol::Tcp | Protocol::Udp => protocol as u8,
    }
}

//! Flows on which a rule with `log` has decided, until somebody reads them.

use std::collections::VecDeque;

use weir_rules::FlowOrigin;

use crate::admin::facet::AdminMut;
use crate::endpoint::{Endpoint, Protocol};
use crate::ipv6::Endpoint6;
use crate::logs::session_log::LoggedSubscriber;
use crate::nat::Nat;

/// Most flows that wait for a reader.
pub const RULE_LOG_MAX: usize = 128;

/// A flow that a rule was asked about: one that begins, is refused, or is ended by a rule with
/// rematch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggedFlow {
    /// Number of the rule in the set that is in force.
    pub rule: u32,
    pub origin: FlowOrigin,
    pub protocol: Protocol,
    pub subscriber: LoggedSubscriber,
    pub ends: FlowEnds,
}

/// The endpoints of a flow; the inside port of an ICMP query is its identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowEnds {
    Ipv4 { inside: Endpoint, remote: Endpoint },
    Ipv6 { inside: Endpoint6, remote: Endpoint6 },
}

/// The flows since the last reading.
#[derive(Debug)]
pub(crate) struct RuleLog {
    flows: VecDeque<LoggedFlow>,
    /// Flows that found no room since then.
    lost: u64,
}

impl RuleLog {
    pub(crate) fn new() -> Self {
        Self { flows: VecDeque::with_capacity(RULE_LOG_MAX), lost: 0 }
    }

    /// Forgets the flows: other rules have their numbers now.
    pub(crate) fn clear(&mut self) {
        self.lost += self.flows.len() as u64;
        self.flows.clear();
    }
}

impl Nat {
    /// Logs a flow, if the rule that decided on it wants that.
    #[cold]
    pub(crate) fn log_flow(&mut self, flow: LoggedFlow) {
        if !self.rules.set.is_logged(flow.rule) {
            return;
        }
        match self.rule_log.flows.len() < RULE_LOG_MAX {
            true => self.rule_log.flows.push_back(flow),
            false => self.rule_log.lost += 1,
        }
    }
}

impl AdminMut<'_> {
    /// Appends the logged flows since the last call to `out`, as many as its capacity has room for,
    /// and returns how many more there were.
    pub fn take_rule_log(&mut self, out: &mut Vec<LoggedFlow>) -> u64 {
        let log = &mut self.nat.rule_log;
        let room = out.capacity() - out.len();
        out.extend(log.flows.drain(..log.flows.len().min(room)));
        std::mem::take(&mut log.lost)
    }
}

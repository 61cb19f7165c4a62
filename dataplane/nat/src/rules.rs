//! The rules that a worker asks about new flows, and how often each has decided.

use std::sync::Arc;

use weir_rules::RuleSet;

use crate::admin::facet::AdminMut;

/// The rules of a worker. The set is shared with other workers, the counts are its own.
#[derive(Debug)]
pub struct ActiveRules {
    pub set: Arc<RuleSet>,
    /// Flows that began, and packets that were refused, by rule number.
    pub hits: Box<[u64]>,
}

impl ActiveRules {
    /// Returns the rules with counts of 0.
    pub fn new(set: Arc<RuleSet>) -> Self {
        Self { hits: vec![0; set.rules()].into(), set }
    }

    /// Returns no rules.
    pub fn none() -> Self {
        Self::new(Arc::new(RuleSet::empty()))
    }
}

impl AdminMut<'_> {
    /// Replaces the rules and returns the former ones with their counts, for the caller to free:
    /// allocates and frees nothing. Live flows stay as they are.
    #[must_use]
    pub fn swap_rules(&mut self, rules: Box<ActiveRules>) -> Box<ActiveRules> {
        std::mem::replace(&mut self.nat.rules, rules)
    }
}

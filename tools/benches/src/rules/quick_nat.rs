//! The look-up of NAT rules that Quick NAT describes: for source and destination a hash table for
//! each prefix length, with chained entries, keyed by the prefix and a port. A packet probes the
//! tables of the lengths that occur, the longest first (section on rule look-up of "Quick NAT: High
//! performance NAT system on commodity platforms", IEEE LANMAN 2017).
//!
//! It knows rules with one prefix and one port, and the longest prefix decides; destinations before
//! sources. The tables are written as weir's would be: at most 0.75 entries for each chain, bursts
//! of questions whose first lines are prefetched.

use weir_rules::{IpAddress, NO_RULE, PortRange, Question, RuleFilter, TOGETHER};

use crate::rules::RuleTable;

/// No entry.
const END: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct ChainedRule {
    network: u32,
    rule: u32,
    next: u32,
    port: u16,
}

/// The rules of one prefix length.
#[derive(Debug)]
struct ChainedTable {
    bits: u8,
    /// The first entry of each chain. A power of two.
    heads: Vec<u32>,
    entries: Vec<ChainedRule>,
}

impl ChainedTable {
    fn new(bits: u8, rules: &[(u32, u16, u32)]) -> Self {
        let chains = (rules.len() * 4).div_ceil(3).next_power_of_two();
        let mut table = Self { bits, heads: vec![END; chains], entries: Vec::new() };
        for &(network, port, rule) in rules {
            let chain = table.chain(network, port);
            let next = table.heads[chain];
            table.heads[chain] = table.entries.len() as u32;
            table.entries.push(ChainedRule { network, rule, next, port });
        }
        table
    }

    #[inline(always)]
    fn chain(&self, network: u32, port: u16) -> usize {
        let key = u64::from(network) << 16 | u64::from(port);
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (hash >> 32) as usize & (self.heads.len() - 1)
    }

    #[inline(always)]
    fn prefetch(&self, address: u32, port: u16) {
        weir_flow::prefetch(&self.heads, self.chain(address.network(self.bits), port));
    }

    #[inline(always)]
    fn find(&self, address: u32, port: u16) -> u32 {
        let network = address.network(self.bits);
        let mut at = self.heads[self.chain(network, port)];
        while at != END {
            let entry = &self.entries[at as usize];
            if entry.network == network && entry.port == port {
                return entry.rule;
            }
            at = entry.next;
        }
        NO_RULE
    }
}

/// Quick NAT's 64 tables, of which those without a rule are left out.
#[derive(Debug)]
pub struct QuickNat {
    destination: Vec<ChainedTable>,
    source: Vec<ChainedTable>,
}

impl QuickNat {
    /// Makes the tables of filters on a remote or on a local prefix with one remote port.
    ///
    /// # Panics
    /// If a filter is of another kind.
    pub fn new(filters: &[RuleFilter<u32>]) -> Self {
        let mut by_length = [const { Vec::new() }; 66];
        for filter in filters {
            let PortRange { first, last } = filter.remote_ports;
            assert!(first == last && filter.local_ports == PortRange::ALL, "{filter:?}");
            let (side, prefix) = match filter.remote.is_all() {
                false => (0, filter.remote),
                true => (33, filter.local),
            };
            by_length[side + usize::from(prefix.bits())].push((
                prefix.address(),
                first,
                filter.rule,
            ));
        }
        let tables = |lengths: &[Vec<(u32, u16, u32)>]| {
            let lengths = lengths.iter().zip(0..33_u8).rev().filter(|(rules, _)| !rules.is_empty());
            lengths.map(|(rules, bits)| ChainedTable::new(bits, rules)).collect()
        };
        Self { destination: tables(&by_length[..33]), source: tables(&by_length[33..]) }
    }
}

impl RuleTable<u32> for QuickNat {
    fn find(&mut self, questions: &[Question<u32>], found: &mut [u32]) {
        assert!(questions.len() <= TOGETHER);
        for question in questions {
            let port = question.remote_port;
            self.destination.iter().for_each(|table| table.prefetch(question.remote, port));
            self.source.iter().for_each(|table| table.prefetch(question.local, port));
        }
        for (question, found) in questions.iter().zip(found) {
            let port = question.remote_port;
            let destination =
                self.destination.iter().map(|table| table.find(question.remote, port));
            let source = self.source.iter().map(|table| table.find(question.local, port));
            let mut both = destination.chain(source);
            *found = both.find(|&rule| rule != NO_RULE).unwrap_or(NO_RULE);
        }
    }

    fn bytes(&self) -> Option<usize> {
        let bytes =
            |table: &ChainedTable| size_of_val(&*table.heads) + size_of_val(&*table.entries);
        Some(self.destination.iter().chain(&self.source).map(bytes).sum())
    }
}

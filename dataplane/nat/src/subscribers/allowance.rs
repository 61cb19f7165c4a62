//! What one home may have: the same for all homes of a group.

use weir_rules::GROUPS;

use crate::endpoint::Home;
use crate::nat::Nat;
use crate::subscribers::subscriber::Subscriber;

/// What a home may have of the ports and tables that all homes of a worker share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HomeAllowance {
    /// Ports, rounded up to whole blocks; per protocol, as each protocol has its own ports inside a
    /// block.
    pub ports: u32,
    /// Mappings plus further sessions (RFC 6888 REQ-5), so that one host with one socket and many
    /// remotes cannot fill the table.
    pub flows: u32,
    /// Further sessions; half as many if remotes open them.
    pub sessions: u32,
    /// Flows that it may begin in a second; `u32::MAX`: no limit.
    pub new_flows_per_sec: u32,
    /// Flows that it may begin at once, after a rest.
    pub new_flows_burst: u16,
}

/// The allowance of the homes of a group, with the quota in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupAllowance {
    pub(crate) home: HomeAllowance,
    /// `ports` in blocks; 0 without translation.
    pub(crate) quota_blocks: u32,
}

/// What a home has when it becomes a subscriber.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HomeStart {
    pub(crate) paired_address: u32,
    pub(crate) group: u8,
    /// Flows that it may begin at once.
    pub(crate) tokens: u16,
}

/// By the number of the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupAllowances([GroupAllowance; GROUPS as usize]);

impl GroupAllowances {
    pub(crate) fn new(of_group: impl Fn(u8) -> GroupAllowance) -> Self {
        Self(std::array::from_fn(|group| of_group(group as u8)))
    }

    #[inline(always)]
    pub(crate) fn of(&self, group: u8) -> &GroupAllowance {
        // Every group is below the number of them, so the remainder only leaves out the test.
        &self.0[usize::from(group % GROUPS)]
    }

    /// Returns the largest quota of blocks.
    pub(crate) fn quota_blocks_max(&self) -> u32 {
        self.0.iter().map(|allowance| allowance.quota_blocks).max().unwrap_or(0)
    }

    /// Limits every quota to what lists were built for: `start`. Returns whether one was larger.
    pub(crate) fn limit_quotas(&mut self, start: &Self) -> bool {
        let (blocks, ports) = (start.quota_blocks_max(), start.ports_max());
        let mut is_any_larger = false;
        for allowance in self.0.iter_mut().filter(|allowance| allowance.quota_blocks > blocks) {
            allowance.quota_blocks = blocks;
            allowance.home.ports = ports;
            is_any_larger = true;
        }
        is_any_larger
    }

    /// Returns the largest quota in ports.
    pub(crate) fn ports_max(&self) -> u32 {
        self.0.iter().map(|allowance| allowance.home.ports).max().unwrap_or(0)
    }
}

impl Nat {
    /// Returns what a home has when it becomes a subscriber.
    pub(crate) fn home_start(&self, home: &Home, paired_address: u32) -> HomeStart {
        let group = self.group_of(home);
        let tokens = self.policy.live.allowances.of(group).home.new_flows_burst;
        HomeStart { paired_address, group, tokens }
    }

    /// Notes the group that a subscriber is in now.
    pub(crate) fn note_group(&mut self, slot: u32) {
        let group = self.group_of(&self.subscribers.get(slot).home());
        self.subscribers.get_mut(slot).group = group;
    }

    /// Returns what a home may have, by the group that was noted last.
    #[inline(always)]
    pub(crate) fn allowance_of(&self, home: &Subscriber) -> &GroupAllowance {
        self.policy.live.allowances.of(home.group)
    }
}

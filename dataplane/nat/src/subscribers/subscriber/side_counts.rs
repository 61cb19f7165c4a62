//! Numbers of each home that no packet needs, beside the homes' lines: for operators to list.

use weir_flow::{OutOfMemory, Region};

use super::Subscribers;
use crate::config::NatConfig;

/// Numbers by the slot of a home.
#[derive(Debug)]
pub(super) struct SideCounts {
    /// Flows that were refused to the home; written when one is.
    refused: Region<u32>,
    /// IPv6 flows of the home. Empty without IPv6.
    flows6: Region<u32>,
}

impl SideCounts {
    pub(super) fn new(config: &NatConfig, slots: usize) -> Result<Self, OutOfMemory> {
        let slots6 = slots6(config, slots);
        Ok(Self { refused: Region::new(slots, 0)?, flows6: Region::new(slots6, 0)? })
    }

    pub(super) fn bytes_for(config: &NatConfig, slots: usize) -> usize {
        Region::<u32>::bytes_for(slots) + Region::<u32>::bytes_for(slots6(config, slots))
    }

    pub(super) fn bytes(&self) -> usize {
        self.refused.bytes() + self.flows6.bytes()
    }

    /// Clears the numbers of a home that goes, and that has no flows any more.
    pub(super) fn clear(&mut self, slot: u32) {
        self.refused[slot as usize] = 0;
    }
}

fn slots6(config: &NatConfig, slots: usize) -> usize {
    if config.delegation.is_some() { slots } else { 0 }
}

impl Subscribers {
    /// Counts a flow that was refused to a home.
    pub(crate) fn count_refused(&mut self, slot: u32) {
        let refused = &mut self.side_counts.refused[slot as usize];
        *refused = refused.saturating_add(1);
    }

    /// Returns the flows that were refused to a home.
    pub(crate) fn refused_total(&self, slot: u32) -> u32 {
        self.side_counts.refused[slot as usize]
    }

    /// Counts an IPv6 flow of a home.
    pub(crate) fn count_flow6(&mut self, slot: u32) {
        self.side_counts.flows6[slot as usize] += 1;
        let home = self.get_mut(slot);
        home.records += 1;
        home.flows += 1;
    }

    /// Counts the end of an IPv6 flow of a home.
    pub(crate) fn count_flow6_ended(&mut self, slot: u32) {
        self.side_counts.flows6[slot as usize] -= 1;
        let home = self.get_mut(slot);
        home.records -= 1;
        home.flows -= 1;
    }

    /// Returns the number of IPv6 flows of a home.
    pub(crate) fn flows6(&self, slot: u32) -> u32 {
        self.side_counts.flows6.get(slot as usize).copied().unwrap_or(0)
    }
}

//! Counts of a shard's homes, the limits of all homes, and the ends of the queue of those that wait
//! for their first answer.

use super::{NONE, Subscribers};
use crate::config::NatConfig;
use crate::live::LiveNatSettings;
use crate::subscribers::admission::{AdmissionPace, spare_slots};

/// The homes of a shard.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShardHomes {
    /// Admitted homes, and how many there may be.
    pub(super) admitted: u32,
    pub(super) max: u32,
    /// Displaced homes: their share of the capacity has gone to others, and they still hold
    /// records.
    pub(super) displaced: u32,
    /// Ends of the queue of admitted homes without an answered flow, in the order of their
    /// admission.
    pub(super) oldest: u32,
    pub(super) newest: u32,
    pub(super) pace: AdmissionPace,
}

impl ShardHomes {
    pub(super) fn new(config: &NatConfig, max: u32) -> Self {
        let pace = AdmissionPace::new(config.new_homes_per_sec, max);
        Self { admitted: 0, max, displaced: 0, oldest: NONE, newest: NONE, pace }
    }

    pub(super) fn held(&self) -> u32 {
        self.admitted + self.displaced
    }

    /// True if the shard has as many homes as its capacity and its spare slots.
    pub(super) fn is_out_of_slots(&self) -> bool {
        self.held() >= self.max + spare_slots(self.max)
    }
}

impl Subscribers {
    /// Sets how many homes are admitted from now on, and checks that the lists have room for their
    /// quotas. Homes that have more keep it.
    ///
    /// # Panics
    /// If a quota exceeds the largest one of the start.
    pub(crate) fn set_limits(&mut self, settings: &LiveNatSettings) {
        let quota = settings.allowances.quota_blocks_max();
        assert!(quota <= self.quota_blocks_max, "the lists have room for the quota");
        self.new_homes_per_sec = settings.new_homes_per_sec;
        for homes in &mut self.shards {
            homes.pace.set_rate(settings.new_homes_per_sec, homes.max);
        }
    }
}

/// Returns `subscribers_max` of the shards of the configuration, then 0 for those that there is
/// room for.
pub(super) fn shard_maxima(config: &NatConfig) -> impl Iterator<Item = u32> {
    let given = config.shards.iter().map(|shard| shard.subscribers_max);
    given.chain(std::iter::repeat(0)).take(config.shards_max())
}

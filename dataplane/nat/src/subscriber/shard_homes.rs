//! How many homes a shard has, by what they hold, and the ends of the queue of those that wait for their first answer.

use super::NONE;
use crate::admission::{Pace, spare_slots};
use crate::config::NatConfig;

/// The homes of a shard.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShardHomes {
    /// Homes with a seat, and how many there may be.
    pub(super) seated: u32,
    pub(super) max: u32,
    /// Homes that have lost their seats and still hold records.
    pub(super) displaced: u32,
    /// The queue of those with a seat and without an answered flow, in the order in which they got it.
    pub(super) oldest: u32,
    pub(super) newest: u32,
    pub(super) pace: Pace,
}

impl ShardHomes {
    pub(super) fn new(config: &NatConfig, max: u32) -> Self {
        let pace = Pace::new(config.new_homes_per_sec, max);
        Self { seated: 0, max, displaced: 0, oldest: NONE, newest: NONE, pace }
    }

    pub(super) fn held(&self) -> u32 {
        self.seated + self.displaced
    }

    /// Are there as many as its seats and its spare slots?
    pub(super) fn is_out_of_slots(&self) -> bool {
        self.held() >= self.max + spare_slots(self.max)
    }
}

/// `subscribers_max` of the shards of the configuration, then 0 for those that there is room for.
pub(super) fn shard_maxima(config: &NatConfig) -> impl Iterator<Item = u32> {
    let given = config.shards.iter().map(|shard| shard.subscribers_max);
    given.chain(std::iter::repeat(0)).take(config.shards_max())
}

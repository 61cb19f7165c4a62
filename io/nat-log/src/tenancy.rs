//! The parts of a timeline: times in which a home held a block or prefix, and times in doubt.

use crate::answer::{Begin, Reason, TenancyEnd};
use crate::history::LifeId;
use crate::holding::HomeHolding;

/// A time in which a home held a block. Milliseconds since 1970, both ends included.
#[derive(Clone, Debug)]
pub(crate) struct Tenancy {
    pub(crate) shard: u32,
    pub(crate) held: HomeHolding,
    /// The incarnations that had the block, in order.
    pub(crate) lives: Vec<LifeId>,
    /// The first time at which the home is known to hold it.
    pub(crate) begin_ms: u64,
    pub(crate) begin: Begin,
    /// `None`: it lasts beyond the end of the logs.
    pub(crate) end_ms: Option<u64>,
    pub(crate) end: TenancyEnd,
    /// If a doubt ended it: it may have lasted until this time, since no other home had the block
    /// before.
    pub(crate) may_last_ms: Option<u64>,
}

/// A time for which the logs do not show whether a home held the block.
#[derive(Clone, Debug)]
pub(crate) struct LogDoubt {
    /// `None`: without a beginning.
    pub(crate) from_ms: Option<u64>,
    /// `None`: without an end.
    pub(crate) until_ms: Option<u64>,
    pub(crate) reason: Reason,
    /// The incarnation and the epoch that it is about.
    pub(crate) owner: Option<(LifeId, u64)>,
    /// True before the first and after the last record of a log, where the address may well have
    /// belonged to another system.
    pub(crate) is_outside: bool,
    /// True if it is so short, and its next owner so sure, that no home can have begun and ended to
    /// hold the block meanwhile if another one held it before and after.
    pub(crate) is_brief: bool,
}

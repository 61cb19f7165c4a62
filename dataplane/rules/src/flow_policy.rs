//! What a rule gives the flows that it accepts.

use crate::flow_class::FlowClass;

/// Number of source pools: pool 0 has the public addresses that are in no other. An inside endpoint
/// may have a mapping in each, and all of these are in the same two buckets of an index.
pub const SOURCE_POOLS: u8 = 8;

/// What a rule gives a flow beside its verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FlowPolicy {
    pub class: FlowClass,
    pub source: SourcePool,
    /// Where its packets go in place of their own destination.
    pub destination: Option<Destination>,
}

impl FlowPolicy {
    /// Nothing.
    pub const NONE: Self =
        Self { class: FlowClass::NONE, source: SourcePool::COMMON, destination: None };

    /// Returns one with a class alone.
    pub const fn of_class(class: FlowClass) -> Self {
        Self { class, ..Self::NONE }
    }
}

/// Pool that the public address of a flow is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SourcePool(u8);

impl SourcePool {
    /// Pool 0: the addresses that are in no other.
    pub const COMMON: Self = Self(0);

    /// Returns the pool with a number; `None` if it is not below [`SOURCE_POOLS`].
    pub const fn new(number: u8) -> Option<Self> {
        if number < SOURCE_POOLS { Some(Self(number)) } else { None }
    }

    /// Returns its number, below [`SOURCE_POOLS`].
    pub const fn number(self) -> u8 {
        self.0
    }
}

/// Destination of packets that a rule redirects (destination NAT).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Destination {
    pub address: u32,
    /// `None`: the port stays.
    pub port: Option<u16>,
}

//! What a home holds, as JSON.

use std::net::Ipv4Addr;

use ipnet::Ipv6Net;
use serde::{Deserialize, Serialize};

use crate::home_name::HomeName;

/// A subscriber that a worker holds state for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscriberStatus {
    pub worker: usize,
    pub shard: u32,
    pub subscriber: HomeName,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub gre_key: Option<u32>,
    /// Paired address; none without translation.
    pub public_address: Option<Ipv4Addr>,
    pub blocks: Vec<Block>,
    /// The IPv6 prefixes that it has claimed; none where homes do not claim them.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub claims: Vec<ClaimedPrefix>,
    /// Leased ports of all protocols, those in quarantine included.
    pub ports_used: u32,
    /// Live mappings and ports in quarantine.
    pub mappings: u32,
    /// Mappings plus further sessions, and IPv6 flows.
    pub flows: u32,
    /// Part of `flows`: IPv6 flows.
    #[serde(default)]
    pub flows6: u32,
    /// Further sessions.
    #[serde(default)]
    pub sessions: u32,
    /// Number of blocks, given also where `blocks` lists none.
    #[serde(default)]
    pub blocks_held: u32,
    /// Flows that the home may still begin in this second.
    #[serde(default)]
    pub new_flows_left: u32,
    /// Packets that would have begun flows, and were refused for want of room since the home holds
    /// state.
    #[serde(default)]
    pub refused_total: u32,
    #[serde(default)]
    pub limits: SubscriberLimits,
    /// Same as in [`Session`](crate::api::Session).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub role: Option<String>,
}

/// Limits of a home on its worker; none if there is no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscriberLimits {
    pub blocks: Option<u32>,
    pub flows: Option<u32>,
    pub sessions: Option<u32>,
    pub new_flows_per_sec: Option<u32>,
}

/// A block of public ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    pub public_address: Ipv4Addr,
    pub port_first: u16,
    /// Inclusive.
    pub port_last: u16,
}

/// An IPv6 prefix that a home has claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimedPrefix {
    pub prefix: Ipv6Net,
    /// Flows of the home from there; 0: the claim rests, and ends with its hold time.
    pub flows: u32,
}

/// Result of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flushed {
    /// Mappings and IPv6 flows that it ended.
    pub mappings: usize,
}

//! The engine's questions about a packet, and the answers.

use crate::endpoint::{Endpoint, Home, Protocol};

/// A packet from a home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outbound {
    pub home: Home,
    pub inside: Endpoint,
    pub remote: Endpoint,
    pub protocol: Protocol,
    /// Byte 13 of the TCP header; 0 for other protocols.
    pub tcp_flags: u8,
}

/// A packet to a public address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inbound {
    pub public: Endpoint,
    pub remote: Endpoint,
    pub protocol: Protocol,
    /// Byte 13 of the TCP header; 0 for other protocols.
    pub tcp_flags: u8,
}

/// Where an inbound packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The home, with the GRE key to put into its tunnel header: the key it used last.
    pub home: Home,
    pub inside: Endpoint,
}

/// Why a packet is not translated. Each becomes a drop reason of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The home's outer address lies outside `subscribers`.
    NotSubscriber,
    /// The shard already serves `subscribers_max` homes.
    SubscribersMax,
    /// The home has used up its ports (`ports_per_subscriber`), or no block is free on the address
    /// it may use.
    PortsExhausted,
    /// `flows_max` is reached, or no record is left.
    TableFull,
    /// The home has used up its share of the flow table (`flows_per_subscriber`).
    FlowsPerSubscriber,
    /// The home has used up its further sessions (`sessions_per_subscriber`), or remotes half of
    /// them.
    SessionsPerSubscriber,
    /// The home has begun more flows than it may (`new_flows_per_sec`, `new_flows_burst`).
    NewFlows,
    /// The shard has admitted as many homes as it may in this second (`new_homes_per_sec`).
    NewHomes,
    /// No mapping holds this public endpoint.
    NoMapping,
    /// The mapping exists, but filtering does not let this remote in.
    Filtered,
    /// A TCP segment without state that does not open a connection.
    TcpNotSyn,
    /// Without translation: another home already uses this inside endpoint.
    AddressConflict,
    /// Without translation: the inside address is not one of the shard's public addresses.
    InsideNotPublic,
    /// Remotes have opened `inbound_sessions_max` sessions on this mapping.
    InboundSessionsMax,
    /// Fewer replicas have the shard than new state in it requires, or too many changes wait for
    /// them.
    TooFewReplicas,
}

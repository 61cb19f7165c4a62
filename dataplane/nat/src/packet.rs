//! The engine's questions about a packet, and the answers.

use weir_rules::FlowClass;

use crate::endpoint::{Endpoint, Home, Protocol};
use crate::fast_path::OutboundKey;

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

/// The first packet of an inside endpoint, with its endpoints in the layout of the mapping's
/// record.
#[derive(Clone, Copy, Debug)]
pub struct NewFlow {
    /// Home without its GRE key, inside endpoint and remote.
    pub key: OutboundKey,
    pub gre_key: Option<u32>,
    pub protocol: Protocol,
    /// As [`Outbound::tcp_flags`].
    pub tcp_flags: u8,
}

impl NewFlow {
    /// What stands where there is no packet.
    pub const EMPTY: Self =
        Self { key: OutboundKey::EMPTY, gre_key: None, protocol: Protocol::Udp, tcp_flags: 0 };

    #[inline(always)]
    pub fn home(&self) -> Home {
        Home { gre_key: self.gre_key, ..self.key.home() }
    }

    #[inline(always)]
    pub fn outbound(&self) -> Outbound {
        let &Self { key, protocol, tcp_flags, .. } = self;
        let (home, inside, remote) = (self.home(), key.inside(), key.remote());
        Outbound { home, inside, remote, protocol, tcp_flags }
    }
}

impl From<&Outbound> for NewFlow {
    #[inline(always)]
    fn from(packet: &Outbound) -> Self {
        let &Outbound { home, inside, remote, protocol, tcp_flags } = packet;
        let key = OutboundKey::new(&home, protocol as u8, inside, remote, true);
        Self { key, gre_key: home.gre_key, protocol, tcp_flags }
    }
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

/// Translation of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Translated<T> {
    /// What the public or the inside endpoint is.
    pub to: T,
    /// Class of the packet's flow.
    pub class: FlowClass,
    /// What the remote endpoint is on the other side, if a rule has given the flow another
    /// destination (`destination.rs`).
    pub remote: Option<Endpoint>,
}

impl<T> Translated<T> {
    /// Returns the translation of a packet to whose flow no rule has given anything.
    #[inline(always)]
    pub const fn plain(to: T) -> Self {
        Self { to, class: FlowClass::NONE, remote: None }
    }
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
    /// A rule drops the flow.
    RuleDrop,
    /// A rule rejects the flow: its sender gets an answer.
    RuleReject,
    /// A rule lets the packet pass as it is: there is no flow.
    RuleBypass,
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

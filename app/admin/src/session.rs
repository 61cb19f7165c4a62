//! A session, as JSON.

use std::net::{SocketAddr, SocketAddrV4};

use serde::{Deserialize, Serialize};

use crate::home_name::HomeName;

/// A mapping and one remote endpoint, or an IPv6 flow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    pub worker: usize,
    pub shard: u32,
    /// The version of the Internet protocol: 4 or 6.
    #[serde(default = "ipv4")]
    pub family: u8,
    /// The home: outer source of its tunnel, or its address or prefix with plain access.
    pub subscriber: HomeName,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub gre_key: Option<u32>,
    pub protocol: String,
    pub inside: SocketAddr,
    /// None for an IPv6 flow, whose addresses are not translated.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub public: Option<SocketAddrV4>,
    pub remote: SocketAddr,
    /// The destination that the home asks, if a rule redirected the flow to `remote`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub asked: Option<SocketAddrV4>,
    /// TCP state, or the state of a datagram session.
    pub state: String,
    /// Age of the mapping, or of the IPv6 flow.
    pub age_sec: u32,
    pub idle_sec: u32,
    /// Idle time at which the session ends.
    pub timeout_sec: u32,
    /// Number of the flow's class; none if it has none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub class: Option<u8>,
    /// The worker's role for the shard: primary, acting, or a role that has a copy; none on a
    /// standalone node.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub role: Option<String>,
}

/// Returns the family of a session of a node that knows no other.
fn ipv4() -> u8 {
    4
}

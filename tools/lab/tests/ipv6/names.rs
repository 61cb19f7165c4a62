//! The names under which weir counts what these tests provoke, in one place.

/// A source address that another home of the shard holds.
pub(crate) const CLAIM_CONFLICT: &str = "claim-conflict";
/// A bad version or length of the IPv6 header.
pub(crate) const MALFORMED: &str = "ip6-malformed";
/// Extension headers that a firewall does not walk over.
pub(crate) const EXTENSION: &str = "ip6-extension";
/// A hop limit that ended here.
pub(crate) const HOP_LIMIT: &str = "ttl-exceeded";
/// An address that no packet may have.
pub(crate) const MARTIAN: &str = "martian";
/// A source outside the prefixes of the shard's homes.
pub(crate) const NOT_SUBSCRIBER: [&str; 2] = ["not-subscriber", "not-delegated"];
/// Too big for the next link.
pub(crate) const TOO_BIG: &str = "dont-fragment";
/// What the internet sends to a home that has not asked for it: no flow, another remote, a ping.
pub(crate) const UNSOLICITED: [&str; 3] = ["no-mapping", "filtered", "icmp-unsolicited"];

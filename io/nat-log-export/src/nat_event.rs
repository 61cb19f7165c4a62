//! An event of the NAT, as a node sends it to its collectors.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV4};

/// One event. Two events that are equal in every field are one event that was sent twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NatEvent {
    /// Milliseconds since 1970, by the clock of the node.
    pub time_ms: u64,
    /// Number of the node, or of its worker: the observation domain of IPFIX.
    pub node: u32,
    /// The operator's shard id.
    pub shard: u32,
    /// Lane of the block, 0 to 7.
    pub lane: u8,
    /// Epoch of the shard's map entry since which the writer has owned the lane; 0 on a single
    /// node.
    pub epoch: u64,
    /// Position among the records of this lane under this ownership, from 1; 0 for events that are
    /// not counted there.
    pub index: u64,
    pub kind: NatEventKind,
}

/// A subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExportedHome {
    /// Outer source address in gre mode, of either family; inside address in plain mode.
    pub address: IpAddr,
    /// The key, where it is part of the home's identity.
    pub gre_key: Option<u32>,
}

/// Ports of one public address that one home holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportedBlock {
    pub home: ExportedHome,
    pub public: Ipv4Addr,
    pub port_first: u16,
    /// The last port, inclusive.
    pub port_last: u16,
}

/// A /64 of IPv6 addresses that one home has claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportedPrefix {
    pub home: ExportedHome,
    /// The first 64 bits of the addresses.
    pub prefix64: u64,
}

impl ExportedPrefix {
    /// Length of every prefix, bits.
    pub const LENGTH: u8 = 64;

    /// Returns the first address of the prefix.
    pub fn first(&self) -> Ipv6Addr {
        Ipv6Addr::from_bits(u128::from(self.prefix64) << 64)
    }
}

/// A mapping, or with `remote` one of its sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportedSession {
    pub home: ExportedHome,
    pub inside: SocketAddrV4,
    pub public: SocketAddrV4,
    /// The remote, only where destinations are logged (RFC 6888, REQ-12).
    pub remote: Option<SocketAddrV4>,
    /// Number of the protocol in the IP header.
    pub protocol: u8,
}

/// The limit of a home that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quota {
    PortsPerHome,
    SessionsPerHome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NatEventKind {
    BlockAllocated(ExportedBlock),
    BlockReleased(ExportedBlock),
    /// Statement of a listing that the home holds the block at `time_ms`.
    BlockHeld {
        block: ExportedBlock,
        /// Milliseconds since 1970 from which the home is known to have held it.
        since_ms: Option<u64>,
    },
    /// A home has claimed an IPv6 prefix. Two homes may hold one prefix at a time.
    PrefixClaimed(ExportedPrefix),
    PrefixReleased(ExportedPrefix),
    /// Statement of a listing that the home holds the prefix at `time_ms`.
    PrefixHeld(ExportedPrefix),
    SessionBegun(ExportedSession),
    SessionEnded(ExportedSession),
    QuotaExceeded {
        home: ExportedHome,
        quota: Quota,
        limit: u32,
    },
    /// The home's public address has no free block.
    PortsExhausted {
        home: ExportedHome,
        public: Ipv4Addr,
        protocol: u8,
    },
    /// No public address has room for the home.
    AddressesExhausted {
        home: ExportedHome,
    },
    /// Written by the exporter itself: events are missing at this position.
    RecordsLost {
        /// Number of events lost since the last such event.
        count: u64,
        /// Number of events lost since the process began.
        total: u64,
    },
}

impl NatEventKind {
    /// Returns the home of the event; `None` if it concerns no home.
    pub fn home(&self) -> Option<ExportedHome> {
        match self {
            Self::BlockAllocated(block)
            | Self::BlockReleased(block)
            | Self::BlockHeld { block, .. } => Some(block.home),
            Self::PrefixClaimed(_) | Self::PrefixReleased(_) | Self::PrefixHeld(_) => {
                self.prefix().map(|prefix| prefix.home)
            }
            Self::SessionBegun(session) | Self::SessionEnded(session) => Some(session.home),
            Self::QuotaExceeded { home, .. }
            | Self::PortsExhausted { home, .. }
            | Self::AddressesExhausted { home } => Some(*home),
            Self::RecordsLost { .. } => None,
        }
    }

    /// Whether the event's home is an IPv6 address.
    pub(crate) fn is_over_ipv6(&self) -> bool {
        self.home().is_some_and(|home| home.address.is_ipv6())
    }

    /// Whether a collector gets the event: one may have asked for none of IPv6 prefixes.
    pub(crate) fn is_for(&self, has_prefixes: bool) -> bool {
        has_prefixes || self.prefix().is_none()
    }

    /// Returns the IPv6 prefix of the event; `None` if it is about something else.
    pub fn prefix(&self) -> Option<ExportedPrefix> {
        match self {
            Self::PrefixClaimed(prefix)
            | Self::PrefixReleased(prefix)
            | Self::PrefixHeld(prefix) => Some(*prefix),
            _ => None,
        }
    }
}

/// An event of any kind, for tests of properties.
#[cfg(test)]
pub(crate) fn any_event(choices: &[u8; 64]) -> NatEvent {
    let number = |at: usize| u64::from_be_bytes(choices[at..at + 8].try_into().unwrap());
    let address = |at: usize| Ipv4Addr::from(number(at) as u32);
    let port = |at: usize| number(at) as u16;
    let endpoint = |at: usize| SocketAddrV4::new(address(at), port(at + 4));
    let gre_key = (choices[0] & 1 != 0).then(|| number(8) as u32);
    let outer = match choices[0] & 16 {
        0 => address(10).into(),
        _ => Ipv6Addr::from_bits(u128::from(number(10)) << 64 | u128::from(number(32))).into(),
    };
    let home = ExportedHome { address: outer, gre_key };
    let block =
        ExportedBlock { home, public: address(16), port_first: port(20), port_last: port(22) };
    let session = ExportedSession {
        home,
        inside: endpoint(24),
        public: endpoint(30),
        remote: (choices[0] & 2 != 0).then(|| endpoint(36)),
        protocol: choices[1],
    };
    let quota = if choices[0] & 4 != 0 { Quota::PortsPerHome } else { Quota::SessionsPerHome };
    let prefix = ExportedPrefix { home, prefix64: number(16) };
    let kind = match choices[2] % 12 {
        0 => NatEventKind::BlockAllocated(block),
        1 => NatEventKind::BlockReleased(block),
        2 => {
            let since_ms = (choices[0] & 8 != 0).then(|| number(40));
            NatEventKind::BlockHeld { block, since_ms }
        }
        3 => NatEventKind::SessionBegun(session),
        4 => NatEventKind::SessionEnded(session),
        5 => NatEventKind::QuotaExceeded { home, quota, limit: number(44) as u32 },
        6 => NatEventKind::PortsExhausted { home, public: address(48), protocol: choices[1] },
        7 => NatEventKind::AddressesExhausted { home },
        8 => NatEventKind::PrefixClaimed(prefix),
        9 => NatEventKind::PrefixReleased(prefix),
        10 => NatEventKind::PrefixHeld(prefix),
        _ => NatEventKind::RecordsLost { count: number(44), total: number(52) },
    };
    NatEvent {
        time_ms: number(0),
        node: u32::from(choices[3] % 3),
        shard: number(5) as u32,
        lane: choices[4],
        epoch: number(54),
        index: number(56),
        kind,
    }
}

//! Hot. The record of an IPv6 flow: the layout of a mapping's record with other contents.
//!
//! ```text
//!    0 version            16 inside port   24 inside, octets 12..16   36 remote, octets 0..16
//!    4 inside, 0..12      18 shard         28 state                   52 subscriber
//!                         20 protocol      30 remote port             56 created
//!                         21 kind          32 last_seen               60 flags
//!                         22 owner, lower half                        62 owner, upper half
//! ```
//!
//! Octets of addresses lie as in a packet. The owner is the slot of the claim of the inside prefix
//! (`delegation.rs`), or [`NO_CLAIM`]. All that walks, journal and timers read lies where an IPv4
//! mapping has it, `first` included, but for the address in it.

use weir_flow::RecordId;

use crate::endpoint::{Protocol, ShardIndex, Tick};
use crate::ipv6::flow_key::{Endpoint6, address_of, words_of};
use crate::sessions::mapping::{Mapping, MappingKind, Remote};
use crate::sessions::session_state::SessionState;

/// No claim: the home has its prefix by configuration.
pub(crate) const NO_CLAIM: u32 = u32::MAX;

/// What the record of a flow is filled with, but for its version.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow6 {
    pub(crate) inside: Endpoint6,
    pub(crate) remote: Endpoint6,
    pub(crate) protocol: Protocol,
    pub(crate) shard: ShardIndex,
    pub(crate) state: SessionState,
    pub(crate) last_seen: Tick,
    pub(crate) created: Tick,
    pub(crate) flags: u16,
    pub(crate) subscriber: u32,
    /// Slot of the claim of the inside prefix, or [`NO_CLAIM`].
    pub(crate) claim: u32,
}

impl Mapping {
    /// Makes the record that of an IPv6 flow.
    #[inline]
    pub(crate) fn fill_flow6(&mut self, flow: &Flow6) {
        let [inside, remote] = [words_of(flow.inside.address), words_of(flow.remote.address)];
        self.public_address = inside[0] as u32;
        self.outer = (inside[0] >> 32) as u32;
        self.inside_address = inside[1] as u32;
        self.inside_port = flow.inside.port;
        self.shard = flow.shard;
        self.protocol = flow.protocol;
        self.kind = MappingKind::LiveIpv6;
        self.public_port = flow.claim as u16;
        self.first = Remote {
            address: (inside[1] >> 32) as u32,
            state: flow.state,
            port: flow.remote.port,
            last_seen: flow.last_seen,
        };
        self.gre_key = remote[0] as u32;
        self.sessions_head = RecordId((remote[0] >> 32) as u32);
        self.sessions = remote[1] as u32;
        self.address = (remote[1] >> 32) as u32;
        self.subscriber = flow.subscriber;
        self.created = flow.created;
        self.flags = flow.flags;
        self.sessions_inbound = (flow.claim >> 16) as u16;
    }

    /// Returns the inside endpoint of an IPv6 flow.
    #[inline]
    pub(crate) fn inside6(&self) -> Endpoint6 {
        let upper = u64::from(self.public_address) | u64::from(self.outer) << 32;
        let lower = u64::from(self.inside_address) | u64::from(self.first.address) << 32;
        Endpoint6::new(address_of([upper, lower]), self.inside_port)
    }

    /// Returns the remote endpoint of an IPv6 flow.
    #[inline]
    pub(crate) fn remote6(&self) -> Endpoint6 {
        let upper = u64::from(self.gre_key) | u64::from(self.sessions_head.0) << 32;
        let lower = u64::from(self.sessions) | u64::from(self.address) << 32;
        Endpoint6::new(address_of([upper, lower]), self.first.port)
    }

    /// Returns the slot of the claim of an IPv6 flow's inside prefix, or [`NO_CLAIM`].
    #[inline]
    pub(crate) fn claim6(&self) -> u32 {
        u32::from(self.public_port) | u32::from(self.sessions_inbound) << 16
    }
}

#[cfg(test)]
mod tests {
    use weir_flow::Record;
    use weir_rules::FlowClass;

    use super::*;
    use crate::ipv6::flow_key::FlowKey6;
    use crate::sessions::session_state::SentBy;

    fn flow() -> Flow6 {
        Flow6 {
            inside: Endpoint6::new(0x2001_0db8_1000_0102_0304_0506_0708_090a, 5000),
            remote: Endpoint6::new(0x2001_0db8_9000_8000_0000_0000_1000_0001, 53),
            protocol: Protocol::Udp,
            shard: ShardIndex(7),
            state: SessionState::opened(Protocol::Udp, SentBy::Inside, 0, FlowClass::NONE),
            last_seen: Tick(50),
            created: Tick(40),
            flags: 0,
            subscriber: 9,
            claim: 0x0003_0002,
        }
    }

    fn record(flow: &Flow6) -> Mapping {
        let mut record = Mapping::EMPTY;
        record.set_version(0xffff_ffff);
        record.fill_flow6(flow);
        record
    }

    #[test]
    fn record_returns_what_it_was_filled_with() {
        let flow = flow();
        let record = record(&flow);
        assert_eq!((record.inside6(), record.remote6()), (flow.inside, flow.remote));
        assert_eq!((record.claim6(), record.subscriber), (flow.claim, flow.subscriber));
        assert!(record.kind.is_ipv6() && record.kind.is_in_use() && record.is_live());
        assert!(!record.is_static() && !record.is_redirected());
    }

    /// The key of an ordinary packet differs from that of a record that is not settled, is
    /// uncommitted or is of another flow. The key of any other packet differs only by the flow.
    #[test]
    fn key_differs_from_the_records_of_all_other_flows() {
        let flow = flow();
        let mut own = record(&flow);
        let key = |flow: &Flow6, is_ordinary| {
            FlowKey6::new(flow.inside, flow.remote, flow.protocol, is_ordinary)
        };
        let ordinary = key(&flow, true);
        assert_eq!(ordinary.differs(&own), 0);
        assert_ne!(ordinary.differs_from_settled(&own), 0, "one side has spoken");
        own.first.state = own.first.state.after(Protocol::Udp, SentBy::Remote, 0);
        assert_eq!((ordinary.differs(&own), ordinary.differs_from_settled(&own)), (0, 0));
        let other = key(&flow, false);
        assert_eq!(other.differs(&own), 0);
        assert_ne!(other.differs_from_settled(&own), 0, "the packet is not ordinary");
        own.kind = MappingKind::UncommittedIpv6;
        assert_eq!(ordinary.differs(&own), 0);
        assert_ne!(ordinary.differs_from_settled(&own), 0, "uncommitted");
        for kind in [MappingKind::Free, MappingKind::Live, MappingKind::Quarantined] {
            own.kind = kind;
            assert_ne!(ordinary.differs(&own), 0, "{kind:?}");
        }
        own.kind = MappingKind::LiveIpv6;
        for bit in 0..128 {
            for change in [
                |flow: &mut Flow6, bit: u32| flow.inside.address ^= 1_u128 << bit,
                |flow: &mut Flow6, bit: u32| flow.remote.address ^= 1_u128 << bit,
                |flow: &mut Flow6, bit: u32| flow.inside.port ^= 1_u16 << (bit % 16),
                |flow: &mut Flow6, bit: u32| flow.remote.port ^= 1_u16 << (bit % 16),
                |flow: &mut Flow6, _: u32| flow.protocol = Protocol::Icmp,
            ] {
                let mut changed = flow;
                change(&mut changed, bit);
                let key = key(&changed, true);
                assert_ne!(key.differs(&own), 0);
                assert_ne!(key.differs_from_settled(&own), 0);
            }
        }
    }
}

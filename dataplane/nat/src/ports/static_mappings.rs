//! Static mappings: public endpoints, and whole public addresses, that an operator gives to inside
//! hosts for good.
//!
//! They are settings and no state: a record is made of one when a packet comes, from either side,
//! and ends like any other. So they need no copies, and a restart or a failover loses none.
//!
//! - No block with a static endpoint is given to a home; one that a home holds when it is reserved
//!   stays the home's until its flows have ended, and the endpoint waits for that.
//! - The record has no port bit and no block, and may lie in any lane that the worker owns: the
//!   settings decide who has the endpoint, not the lane.
//! - A record whose static mapping is gone, or is another host's, is ended by the walk.
//! - A mapping names its home by the outer address, so that all workers share one list: of an IPv6
//!   one each worker has a handle of its own, and only while the home holds state.

use std::ops::RangeInclusive;
use std::sync::Arc;

use weir_flow::RecordId;

use crate::admin::facet::AdminMut;
use crate::endpoint::{Endpoint, Home, OuterAddress, Protocol, ShardIndex, Tick, is_outer_handle};
use crate::nat::Nat;
use crate::packet::Refusal;
use crate::sessions::mapping::Mapping;

/// What of a public address a static mapping takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StaticScope {
    /// All ports of all protocols, each to the same port of the inside address. Both ports of the
    /// mapping are 0.
    Address,
    Port(Protocol),
}

/// A static mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaticMapping {
    /// Outer address of the home; without tunnels its inside address.
    pub outer: OuterAddress,
    /// Present if it tells homes apart.
    pub gre_key: Option<u32>,
    pub inside: Endpoint,
    pub public: Endpoint,
    pub scope: StaticScope,
}

impl StaticMapping {
    fn public_key(&self) -> (u32, StaticScope, u16) {
        (self.public.address, self.scope, self.public.port)
    }

    fn inside_key(&self) -> (OuterAddress, Option<u32>, u32, StaticScope, u16) {
        (self.outer, self.gre_key, self.inside.address, self.scope, self.inside.port)
    }

    /// Returns the public ports that it takes of a protocol.
    pub(crate) fn ports(&self, protocol: Protocol) -> RangeInclusive<u16> {
        match self.scope {
            StaticScope::Address => 0..=u16::MAX,
            StaticScope::Port(own) if own == protocol => self.public.port..=self.public.port,
            StaticScope::Port(_) => RangeInclusive::new(1, 0),
        }
    }

    /// Returns the inside endpoint of a public one.
    fn inside_of(&self, public: Endpoint) -> Endpoint {
        match self.scope {
            StaticScope::Address => Endpoint::new(self.inside.address, public.port),
            StaticScope::Port(_) => self.inside,
        }
    }

    /// Returns the public endpoint of an inside one.
    fn public_of(&self, inside: Endpoint) -> Endpoint {
        match self.scope {
            StaticScope::Address => Endpoint::new(self.public.address, inside.port),
            StaticScope::Port(_) => self.public,
        }
    }
}

/// Two static mappings that exclude each other, by their positions in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaticConflict {
    pub first: usize,
    pub second: usize,
    pub what: StaticConflictKind,
}

/// What two static mappings both want.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StaticConflictKind {
    /// A public endpoint.
    Public,
    /// An inside endpoint: it can have one public endpoint only (RFC 4787 REQ-1).
    Inside,
}

const HOME_BITS: usize = 1 << 16;

/// All static mappings, found from either side.
#[derive(Clone, Debug)]
pub struct StaticMappings {
    /// By public endpoint.
    by_public: Box<[StaticMapping]>,
    /// By home and inside endpoint.
    by_inside: Box<[StaticMapping]>,
    /// A set bit for each home with a static mapping and an IPv4 address, and perhaps for others: a
    /// clear one, the usual case, saves the search.
    homes: Box<[u64]>,
    /// Whether a home with a tunnel over IPv6 has a static mapping.
    has_ipv6: bool,
}

/// Returns the bit of a home.
#[inline(always)]
fn home_bit(outer: u32) -> usize {
    (outer ^ outer >> 16) as usize % HOME_BITS
}

impl StaticMappings {
    /// Returns no mappings.
    pub fn none() -> Self {
        let (by_public, by_inside, homes) = (Box::default(), Box::default(), Box::default());
        Self { by_public, by_inside, homes, has_ipv6: false }
    }

    /// Sorts mappings.
    ///
    /// # Errors
    /// Two that exclude each other.
    pub fn new(mappings: &[StaticMapping]) -> Result<Self, StaticConflict> {
        let mut order: Vec<usize> = (0..mappings.len()).collect();
        order.sort_by_key(|&at| mappings[at].public_key());
        // The whole address comes before its ports.
        for run in order.chunk_by(|&a, &b| mappings[a].public.address == mappings[b].public.address)
        {
            for pair in run.windows(2) {
                let [one, next] = [pair[0], pair[1]].map(|at| mappings[at]);
                if one.scope == StaticScope::Address || one.public_key() == next.public_key() {
                    return Err(StaticConflict::new(pair[0], pair[1], StaticConflictKind::Public));
                }
            }
        }
        let by_public = order.iter().map(|&at| mappings[at]).collect();
        order.sort_by_key(|&at| mappings[at].inside_key());
        for pair in order.windows(2) {
            if mappings[pair[0]].inside_key() == mappings[pair[1]].inside_key() {
                return Err(StaticConflict::new(pair[0], pair[1], StaticConflictKind::Inside));
            }
        }
        let by_inside = order.iter().map(|&at| mappings[at]).collect();
        let mut homes = vec![0; if mappings.is_empty() { 0 } else { HOME_BITS / 64 }];
        let mut has_ipv6 = false;
        for mapping in mappings {
            match mapping.outer {
                OuterAddress::Ipv4(outer) => {
                    homes[home_bit(outer) / 64] |= 1 << (home_bit(outer) % 64);
                }
                OuterAddress::Ipv6(_) => has_ipv6 = true,
            }
        }
        Ok(Self { by_public, by_inside, homes: homes.into(), has_ipv6 })
    }

    pub fn len(&self) -> usize {
        self.by_public.len()
    }

    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.by_public.is_empty()
    }

    /// False if the home surely has no static mapping.
    #[inline(always)]
    pub(crate) fn may_have(&self, outer: u32) -> bool {
        let bit = home_bit(outer);
        self.homes.get(bit / 64).is_some_and(|word| word >> (bit % 64) & 1 != 0)
            || (self.has_ipv6 && is_outer_handle(outer))
    }

    /// Returns the mapping that has a public endpoint.
    pub(crate) fn of_public(&self, public: Endpoint, protocol: Protocol) -> Option<&StaticMapping> {
        let find = |scope, port| {
            let key = (public.address, scope, port);
            let at = self.by_public.binary_search_by_key(&key, StaticMapping::public_key).ok()?;
            self.by_public.get(at)
        };
        find(StaticScope::Port(protocol), public.port).or_else(|| find(StaticScope::Address, 0))
    }

    /// Returns the mapping of an inside endpoint. The key is there if it tells homes apart.
    fn of_inside(
        &self,
        (outer, gre_key): (OuterAddress, Option<u32>),
        inside: Endpoint,
        protocol: Protocol,
    ) -> Option<&StaticMapping> {
        let find = |scope, port| {
            let key = (outer, gre_key, inside.address, scope, port);
            let at = self.by_inside.binary_search_by_key(&key, StaticMapping::inside_key).ok()?;
            self.by_inside.get(at)
        };
        find(StaticScope::Port(protocol), inside.port).or_else(|| find(StaticScope::Address, 0))
    }

    /// Returns the mappings of a public address.
    pub(crate) fn of_address(&self, address: u32) -> &[StaticMapping] {
        let start = self.by_public.partition_point(|it| it.public.address < address);
        let end = self.by_public.partition_point(|it| it.public.address <= address);
        &self.by_public[start..end]
    }

    /// Returns the mappings of the homes with an outer address.
    pub(crate) fn of_home(&self, outer: OuterAddress) -> &[StaticMapping] {
        let start = self.by_inside.partition_point(|it| it.outer < outer);
        let end = self.by_inside.partition_point(|it| it.outer <= outer);
        &self.by_inside[start..end]
    }
}

impl StaticConflict {
    fn new(one: usize, other: usize, what: StaticConflictKind) -> Self {
        Self { first: one.min(other), second: one.max(other), what }
    }
}

/// The holder of a public endpoint, by the settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StaticHolder {
    pub(crate) home: Home,
    pub(crate) inside: Endpoint,
}

impl Nat {
    /// Returns the static mapping of a public endpoint, with the shard.
    fn static_of_public(
        &self,
        public: Endpoint,
        protocol: Protocol,
    ) -> Option<(ShardIndex, &StaticMapping)> {
        Some((self.public.shard_of(public.address)?, self.statics.of_public(public, protocol)?))
    }

    /// Returns who has a public endpoint of a shard by a static mapping, if nothing else holds it.
    /// The home may hold no state, so that its outer IPv6 address gets a handle.
    pub(crate) fn static_holder(
        &mut self,
        public: Endpoint,
        protocol: Protocol,
    ) -> Result<StaticHolder, Refusal> {
        let found = self.static_of_public(public, protocol);
        let found = found.filter(|_| !self.is_held(public, protocol));
        let (shard, &mapping) = found.ok_or(Refusal::NoMapping)?;
        let outer = self.intern_address(mapping.outer).ok_or(Refusal::TableFull)?;
        let home = Home { shard, outer, gre_key: mapping.gre_key };
        Ok(StaticHolder { home, inside: mapping.inside_of(public) })
    }

    /// Returns the public endpoint that an inside endpoint has by a static mapping, if nothing else
    /// holds it.
    #[cold]
    pub(crate) fn static_of_inside(
        &self,
        home: &Home,
        inside: Endpoint,
        protocol: Protocol,
    ) -> Option<Endpoint> {
        let Home { outer, gre_key, .. } = self.identity(home);
        let home_name = (self.outer_of(outer), gre_key);
        let public = self.statics.of_inside(home_name, inside, protocol)?.public_of(inside);
        let is_of_shard = self.public.shard_of(public.address) == Some(home.shard);
        (is_of_shard && !self.is_held(public, protocol)).then_some(public)
    }

    /// True if a record has the public endpoint, in use or in quarantine, or may get it: its block
    /// is a home's.
    pub(crate) fn is_held(&self, public: Endpoint, protocol: Protocol) -> bool {
        let hash = self.inbound_hash(public, protocol);
        let is_it = |id| self.mappings.get(RecordId(id)).is_public(public, protocol);
        let Some(position) = self.ports.position_of(public.address) else { return true };
        let block = self.ports.block_of(position, public.port);
        self.ports.owner(block).is_some() || self.inbound_index.find(hash, is_it).is_some()
    }

    /// True if this record of a static mapping is still what the settings say.
    pub(crate) fn is_static_still(&self, mapping: &Mapping) -> bool {
        let public = mapping.public();
        let Home { shard, outer, gre_key } = self.identity(&mapping.home());
        self.static_of_public(public, mapping.protocol).is_some_and(|(of, it)| {
            it.inside_of(public) == mapping.inside()
                && (of, it.outer, it.gre_key) == (shard, self.outer_of(outer), gre_key)
        })
    }

    /// Reserves the blocks of a shard's static mappings, and no others. Returns whether that
    /// changed what is free.
    pub(crate) fn reserve_blocks(&mut self, shard: ShardIndex) -> bool {
        let Self { ports, statics, .. } = self;
        let mut has_changed = false;
        for at in 0..ports.positions(shard).len() {
            let position = ports.positions(shard)[at];
            let mappings = statics.of_address(ports.public_address(position));
            let wanted = mappings.iter().map(|mapping| match mapping.scope {
                StaticScope::Address => mapping.ports(Protocol::Tcp),
                StaticScope::Port(protocol) => mapping.ports(protocol),
            });
            has_changed |= ports.reserve(position, wanted);
        }
        has_changed
    }

    /// Ends a record whose static mapping is no more.
    pub(crate) fn end_if_not_static(&mut self, id: RecordId, now: Tick) {
        let mapping = *self.mappings.get(id);
        if mapping.kind.is_in_use() && !self.is_static_still(&mapping) {
            self.end_withdrawn(id, now);
        }
    }
}

impl AdminMut<'_> {
    /// Replaces all static mappings and returns the former ones, for the caller to free: allocates
    /// and frees nothing. [`Nat::expire`] reserves the blocks, of a shard in each call, and ends
    /// the records of mappings that are no more. Without translation there are no static mappings.
    #[must_use]
    pub fn swap_statics(&mut self, statics: Arc<StaticMappings>) -> Arc<StaticMappings> {
        self.nat.service_unnoted = self.nat.shards.len() as u16;
        self.nat.policy.has_static = self.nat.policy.enabled && !statics.is_empty();
        std::mem::replace(&mut self.nat.statics, statics)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(outer: u32, inside: u16, public: u16) -> StaticMapping {
        StaticMapping {
            outer: outer.into(),
            gre_key: None,
            inside: Endpoint::new(7, inside),
            public: Endpoint::new(9, public),
            scope: StaticScope::Port(Protocol::Tcp),
        }
    }

    fn address(outer: u32, public: u32) -> StaticMapping {
        StaticMapping {
            inside: Endpoint::new(7, 0),
            public: Endpoint::new(public, 0),
            scope: StaticScope::Address,
            ..port(outer, 0, 0)
        }
    }

    #[test]
    fn mapping_is_found_from_either_side() {
        let of_ipv6 = [[0, 4], [4, 0]].map(OuterAddress::Ipv6);
        let over_ipv6 = StaticMapping { outer: of_ipv6[0], ..port(0, 80, 8082) };
        let all = [port(1, 80, 8080), port(2, 80, 8081), address(3, 10), over_ipv6];
        let statics = StaticMappings::new(&all).unwrap();
        let public = |address, port, protocol| {
            statics.of_public(Endpoint::new(address, port), protocol).map(|it| it.outer)
        };
        assert_eq!(public(9, 8080, Protocol::Tcp), Some(1.into()));
        assert_eq!(public(9, 8081, Protocol::Tcp), Some(2.into()));
        assert_eq!(public(9, 8082, Protocol::Tcp), Some(of_ipv6[0]));
        assert_eq!(public(9, 8080, Protocol::Udp), None);
        assert_eq!(public(9, 80, Protocol::Tcp), None);
        assert_eq!(public(10, 80, Protocol::Icmp), Some(3.into()));
        let inside = |outer: OuterAddress, port| {
            let inside = Endpoint::new(7, port);
            let found = statics.of_inside((outer, None), inside, Protocol::Tcp);
            found.map(|it| it.public_of(inside))
        };
        assert_eq!(inside(1.into(), 80), Some(Endpoint::new(9, 8080)));
        assert_eq!(inside(1.into(), 81), None);
        assert_eq!(inside(3.into(), 5000), Some(Endpoint::new(10, 5000)));
        assert_eq!(inside(4.into(), 80), None);
        assert_eq!(inside(of_ipv6[0], 80), Some(Endpoint::new(9, 8082)));
        assert_eq!(inside(of_ipv6[1], 80), None);
        assert!((1..=3).all(|outer| statics.may_have(outer)) && !statics.may_have(4));
        let handle = weir_rules::OUTER_HANDLES + 1;
        assert!(statics.may_have(handle), "the address of the handle is not known here");
        assert!(!StaticMappings::new(&all[..3]).unwrap().may_have(handle));
        assert!(!StaticMappings::none().may_have(1));
        let of_home = |outer| statics.of_home(outer).len();
        assert_eq!(
            (statics.of_address(9).len(), of_home(2.into()), of_home(of_ipv6[0])),
            (3, 1, 1)
        );
    }

    #[test]
    fn mappings_that_exclude_each_other_are_named() {
        let conflict = |all: &[StaticMapping]| StaticMappings::new(all).unwrap_err();
        let of_public =
            |first, second| StaticConflict { first, second, what: StaticConflictKind::Public };
        assert_eq!(conflict(&[port(1, 80, 1), port(2, 9, 2), port(3, 7, 1)]), of_public(0, 2));
        assert_eq!(conflict(&[port(1, 80, 1), port(2, 9, 2), address(3, 9)]), of_public(0, 2));
        assert_eq!(conflict(&[address(1, 9), address(3, 9)]), of_public(0, 1));
        let both = conflict(&[port(1, 80, 1), port(1, 80, 2)]);
        assert_eq!((both.first, both.second, both.what), (0, 1, StaticConflictKind::Inside));
        let udp = StaticMapping { scope: StaticScope::Port(Protocol::Udp), ..port(1, 80, 1) };
        assert_eq!(StaticMappings::new(&[port(1, 80, 1), udp]).unwrap().len(), 2);
    }
}

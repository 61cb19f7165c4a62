//! Which home an inside IPv6 address belongs to, so that no home sends with another's addresses
//! (BCP 38) and a flow that the internet begins finds its home.
//!
//! ```text
//!   no tunnel           the first bits of the address are the home, nothing is looked up
//!   claim               the home that is first to begin a flow from a /64 of its shard has it
//!   static              the operator has listed whose prefix it is
//! ```
//!
//! A claim lasts while the home has flows from the prefix, copies included, and then for the hold
//! time. It is asked for when a flow begins; an established packet needs no look-up here, as its
//! record names its home.

use std::fmt;
use std::net::Ipv6Addr;
use std::sync::Arc;

use ipnet::Ipv6Net;
use weir_flow::SlabId;

use crate::admin::facet::AdminMut;
use crate::endpoint::{Home, OuterAddress, ShardIndex, Tick};
use crate::ipv6::flow_record::NO_CLAIM;
use crate::nat::Nat;
use crate::packet::Refusal;
use crate::replication::lane::lane_of;
use crate::subscribers::address_owner::HeldAddress;

/// Least length of a delegated prefix, bits (RFC 6177: a site gets no more than a /48).
pub(crate) const PREFIX_MIN: u8 = 48;
/// Greatest length of a delegated prefix, bits: a subnet (RFC 4291 section 2.5.4).
pub(crate) const PREFIX_MAX: u8 = 64;

/// How homes get the right to their inside IPv6 addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delegation {
    /// Homes have no tunnel: a home is a prefix of this length, 48 to 64 bits.
    Prefix { home_length: u8 },
    /// The first home of a shard that begins a flow from a /64 of the shard has it while it has
    /// flows from there, and for this time after the last.
    Claim { hold_sec: u32 },
    /// A home has the prefixes that are listed for it ([`Delegations`]).
    Static,
}

/// A prefix of one home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelegatedPrefix {
    /// 48 to 64 bits.
    pub prefix: Ipv6Net,
    /// Outer address of the home.
    pub outer: OuterAddress,
    /// Its GRE key, where keys tell homes apart.
    pub gre_key: Option<u32>,
}

/// A home that prefixes are delegated to.
type DelegatedTo = (OuterAddress, Option<u32>);

/// Two delegated prefixes that have addresses in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{first} and {second} are delegated, and have addresses in common")]
pub struct DelegationConflict {
    pub first: Ipv6Net,
    pub second: Ipv6Net,
}

/// The delegated prefixes of all homes, found by address. Workers share one list.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Delegations {
    /// First and last /64 of each, in order, and its home.
    all: Box<[(u64, u64, DelegatedTo)]>,
}

impl Delegations {
    /// # Errors
    /// [`DelegationConflict`]
    ///
    /// # Panics
    /// If a prefix is shorter than 48 bits or longer than 64.
    pub fn new(prefixes: &[DelegatedPrefix]) -> Result<Self, DelegationConflict> {
        let entry = |it: &DelegatedPrefix| {
            let length = it.prefix.prefix_len();
            assert!((PREFIX_MIN..=PREFIX_MAX).contains(&length), "a site has /48 to /64");
            let first = (it.prefix.network().to_bits() >> 64) as u64;
            let last = (it.prefix.broadcast().to_bits() >> 64) as u64;
            (first, last, (it.outer, it.gre_key))
        };
        let mut all: Box<[_]> = prefixes.iter().map(entry).collect();
        all.sort_unstable();
        match all.windows(2).find(|pair| pair[1].0 <= pair[0].1) {
            None => Ok(Self { all }),
            Some(pair) => Err(DelegationConflict { first: net(pair[0]), second: net(pair[1]) }),
        }
    }

    /// Returns the home that has the /64 with these first bits.
    fn holder(&self, prefix64: u64) -> Option<DelegatedTo> {
        self.holder_of_all(prefix64, prefix64)
    }

    /// Returns the home that has all /64 from one to another by one delegated prefix.
    pub(crate) fn holder_of_all(&self, from: u64, to: u64) -> Option<DelegatedTo> {
        let behind = self.all.partition_point(|&(first, ..)| first <= from);
        let &(_, last, home) = self.all[..behind].last()?;
        (to <= last).then_some(home)
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

impl fmt::Debug for Delegations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} delegated prefixes", self.len())
    }
}

/// Returns the prefix of an entry.
fn net((first, last, _): (u64, u64, DelegatedTo)) -> Ipv6Net {
    let length = PREFIX_MAX - (last - first + 1).trailing_zeros() as u8;
    let address = Ipv6Addr::from_bits(u128::from(first) << 64);
    Ipv6Net::new(address, length).expect("a length of at most 64 bits")
}

impl Home {
    /// Returns the home that is a prefix, of which these are the first 64 bits
    /// ([`Delegation::Prefix`]).
    #[inline]
    pub const fn of_prefix(shard: ShardIndex, prefix: u64) -> Self {
        Self { shard, outer: (prefix >> 32) as u32, gre_key: Some(prefix as u32) }
    }

    /// Returns the first 64 bits of the prefix that the home is, where homes are prefixes; None for
    /// a home that is an IPv4 address.
    #[inline]
    pub const fn prefix(&self) -> Option<u64> {
        match self.gre_key {
            Some(lower) => Some((self.outer as u64) << 32 | lower as u64),
            None => None,
        }
    }
}

impl AdminMut<'_> {
    /// Puts other delegated prefixes in force, for flows that begin from now on, and leaves the
    /// former ones in their place: allocates and frees nothing.
    pub fn swap_delegations(&mut self, delegations: &mut Arc<Delegations>) {
        std::mem::swap(&mut self.nat.delegations, delegations);
    }

    /// Returns the home of a shard that has an inside address, as the first packet to it finds the
    /// home. One that holds no state, with a tunnel over IPv6, has a handle until the next burst.
    pub fn home_with_inside6(&mut self, shard: ShardIndex, inside: u128) -> Option<Home> {
        self.nat.home_with_inside6(shard, inside)
    }
}

impl Nat {
    /// Returns the shard whose homes have this IPv6 address.
    #[inline]
    pub fn shard_of_inside6(&self, address: u128) -> Option<ShardIndex> {
        self.prefixes.shard_of(address)
    }

    /// Returns the home of an inside address without a tunnel ([`Delegation::Prefix`]).
    #[inline]
    pub fn home_of_inside6(&self, shard: ShardIndex, address: u128) -> Home {
        Home::of_prefix(shard, (address >> 64) as u64 & self.policy.home_mask)
    }

    /// Returns the prefix that the home is, where homes are prefixes.
    #[inline]
    pub fn prefix_of(&self, home: &Home) -> Option<u64> {
        if self.policy.home_mask != 0 { home.prefix() } else { None }
    }

    /// Claims the /64 of an inside address for a home. Returns the slot of the claim, or
    /// [`NO_CLAIM`] if the home has the prefix without one.
    ///
    /// # Errors
    /// [`Refusal::InsideNotPublic`], [`Refusal::AddressConflict`], [`Refusal::TableFull`]
    pub(crate) fn claim_prefix(&mut self, home: &Home, inside: u128) -> Result<u32, Refusal> {
        if self.prefixes.shard_of(inside) != Some(home.shard) {
            return Err(Refusal::InsideNotPublic);
        }
        let prefix64 = (inside >> 64) as u64;
        match self.policy.live.delegation {
            Some(Delegation::Prefix { .. }) => Ok(NO_CLAIM),
            Some(Delegation::Static) => match self.delegations.holder(prefix64) {
                Some(holder) if self.is_delegated_to(home, holder) => Ok(NO_CLAIM),
                Some(_) => Err(Refusal::AddressConflict),
                None => Err(Refusal::InsideNotPublic),
            },
            Some(Delegation::Claim { .. }) => {
                let owner = self.owner(home);
                let held = HeldAddress::Prefix(prefix64);
                self.claims.claim(held, owner, self.now, &mut self.events)
            }
            None => Err(Refusal::InsideNotPublic),
        }
    }

    fn is_delegated_to(&self, home: &Home, (outer, gre_key): DelegatedTo) -> bool {
        self.outer_address(home) == outer && (!self.policy.by_key || home.gre_key == gre_key)
    }

    /// As [`claim_prefix`](Self::claim_prefix), for a copy: the worker that made the flow has
    /// decided. None if there is no room.
    pub(crate) fn hold_copied_prefix(
        &mut self,
        home: &Home,
        inside: u128,
        lane: u8,
        created: Tick,
    ) -> Option<u32> {
        if !matches!(self.policy.live.delegation, Some(Delegation::Claim { .. })) {
            return Some(NO_CLAIM);
        }
        let owner = self.owner(home);
        let held = HeldAddress::Prefix((inside >> 64) as u64);
        self.claims.hold(held, owner, lane, created, &mut self.events)
    }

    /// Notes that a flow for which a prefix was claimed stands in this lane.
    pub(crate) fn note_claim_use(&mut self, claim: u32, slab: SlabId, now: Tick) {
        if claim != NO_CLAIM {
            self.claims.note_use(claim, lane_of(slab).1, now, &mut self.events);
        }
    }

    /// Notes that this worker, the owner of a lane, carries a flow of another owner's lane.
    pub(crate) fn note_carried_claim(&mut self, claim: u32, lane: u8) {
        if claim != NO_CLAIM {
            self.claims.log_use(claim, lane, &mut self.events);
        }
    }

    /// Takes back a claim for one flow.
    pub(crate) fn release_claim(&mut self, claim: u32) {
        if claim != NO_CLAIM {
            self.claims.release(claim, self.now, &mut self.events);
        }
    }

    /// Returns the outer address and the key of the home of a shard that has an inside address, if
    /// one has it. Not for homes that are prefixes.
    fn holder_of_inside6(&self, shard: ShardIndex, inside: u128) -> Option<DelegatedTo> {
        let prefix64 = (inside >> 64) as u64;
        match self.policy.live.delegation? {
            Delegation::Prefix { .. } => None,
            Delegation::Static => self.delegations.holder(prefix64),
            Delegation::Claim { .. } => {
                self.claims.holder(HeldAddress::Prefix(prefix64), self.shards.id(shard))
            }
        }
    }

    /// Returns the home of a shard that has an inside address, if one has it. It may hold no state,
    /// so that its outer IPv6 address gets a handle.
    pub(crate) fn home_with_inside6(&mut self, shard: ShardIndex, inside: u128) -> Option<Home> {
        if let Delegation::Prefix { .. } = self.policy.live.delegation? {
            return Some(self.home_of_inside6(shard, inside));
        }
        let (outer, gre_key) = self.holder_of_inside6(shard, inside)?;
        Some(Home { shard, outer: self.intern_address(outer)?, gre_key })
    }

    /// As [`home_with_inside6`](Self::home_with_inside6). None also for a home with a tunnel over
    /// IPv6 that holds no state.
    pub(crate) fn known_home_with_inside6(&self, shard: ShardIndex, inside: u128) -> Option<Home> {
        if let Delegation::Prefix { .. } = self.policy.live.delegation? {
            return Some(self.home_of_inside6(shard, inside));
        }
        let (outer, gre_key) = self.holder_of_inside6(shard, inside)?;
        Some(Home { shard, outer: self.known_outer(outer)?, gre_key })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delegated(prefix: &str, outer: u32) -> DelegatedPrefix {
        DelegatedPrefix { prefix: prefix.parse().unwrap(), outer: outer.into(), gre_key: None }
    }

    #[test]
    fn holder_of_a_prefix_is_the_home_that_it_is_listed_for() {
        let list = [
            delegated("2001:db8:0:100::/56", 1),
            delegated("2001:db8::/64", 2),
            delegated("2001:db8:1::/48", 3),
        ];
        let all = Delegations::new(&list).unwrap();
        let holder =
            |text: &str| all.holder((text.parse::<Ipv6Addr>().unwrap().to_bits() >> 64) as u64);
        let expected = [Some(2), None, Some(1), Some(1), None, Some(3), None]
            .map(|outer| outer.map(|outer: u32| (OuterAddress::from(outer), None)));
        let asked = [
            "2001:db8::7",
            "2001:db8:0:1::",
            "2001:db8:0:100::",
            "2001:db8:0:1ff::1",
            "2001:db8:0:200::",
            "2001:db8:1:ffff::",
            "2001:db8:2::",
        ];
        assert_eq!(asked.map(holder), expected);
    }

    #[test]
    fn prefixes_with_addresses_in_common_are_refused_with_both() {
        let list = [delegated("2001:db8:0:100::/56", 1), delegated("2001:db8:0:1f0::/60", 2)];
        let conflict = Delegations::new(&list).unwrap_err();
        assert_eq!(
            conflict.to_string(),
            "2001:db8:0:100::/56 and 2001:db8:0:1f0::/60 are delegated, and have addresses in common"
        );
    }

    #[test]
    fn home_of_a_prefix_returns_it() {
        let home = Home::of_prefix(ShardIndex(3), 0x2001_0db8_1000_0100);
        assert_eq!(home.prefix(), Some(0x2001_0db8_1000_0100));
        assert_eq!(Home { gre_key: None, ..home }.prefix(), None);
    }
}

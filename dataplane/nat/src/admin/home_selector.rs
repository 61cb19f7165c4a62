//! Homes as operators name them, and as they are shown.

use std::net::Ipv6Addr;

use ipnet::Ipv6Net;

use crate::admin::facet::Admin;
use crate::endpoint::{Home, OuterAddress};
use crate::ipv6::Delegation;

/// What an operator names a home by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HomeSelector {
    /// The outer source address of its tunnel; without a tunnel its inside address. There may be
    /// several such homes: one in each shard and, if keys tell homes apart, one with each key.
    Ipv4(u32),
    /// Inside IPv6 addresses, one or many: names the home that has all of them. A single address in
    /// the homes' outer prefixes names homes as an IPv4 address does.
    Ipv6(Ipv6Net),
}

impl From<u32> for HomeSelector {
    /// Names a home by an IPv4 address.
    fn from(outer: u32) -> Self {
        Self::Ipv4(outer)
    }
}

impl From<Ipv6Net> for HomeSelector {
    fn from(net: Ipv6Net) -> Self {
        Self::Ipv6(net)
    }
}

/// A home as it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HomeView {
    /// A home with an IPv4 address: the outer source of its tunnel, or its inside address.
    Ipv4 { outer: u32, gre_key: Option<u32> },
    /// A home with a tunnel over IPv6, by its outer source.
    TunnelIpv6 { outer: Ipv6Addr, gre_key: Option<u32> },
    /// A home without a tunnel, which is a prefix ([`Delegation::Prefix`]).
    Ipv6(Ipv6Net),
}

impl HomeView {
    /// Returns the outer or inside IPv4 address; None for a home that has none.
    pub fn ipv4(self) -> Option<u32> {
        match self {
            Self::Ipv4 { outer, .. } => Some(outer),
            Self::TunnelIpv6 { .. } | Self::Ipv6(_) => None,
        }
    }

    /// Whether a selector names the home by the address with which it is shown.
    pub fn is_named(self, name: HomeSelector) -> bool {
        match (self, name) {
            (Self::Ipv4 { outer, .. }, HomeSelector::Ipv4(address)) => outer == address,
            (Self::TunnelIpv6 { outer, .. }, HomeSelector::Ipv6(net)) => {
                net == Ipv6Net::from(outer)
            }
            (Self::Ipv6(prefix), HomeSelector::Ipv6(net)) => prefix == net,
            _ => false,
        }
    }

    /// Returns the GRE key that the home used last.
    pub fn gre_key(self) -> Option<u32> {
        match self {
            Self::Ipv4 { gre_key, .. } | Self::TunnelIpv6 { gre_key, .. } => gre_key,
            Self::Ipv6(_) => None,
        }
    }
}

impl Admin<'_> {
    /// Returns the home that has all addresses of `net` by the delegation in force, whether or not
    /// it holds state. None if no home has them, or several have.
    pub fn home_with(self, net: Ipv6Net) -> Option<Home> {
        let nat = self.nat;
        let (first, last) = (net.network().to_bits(), net.broadcast().to_bits());
        let [first64, last64] = [first, last].map(|address| (address >> 64) as u64);
        let is_of_one = match nat.policy.live.delegation? {
            Delegation::Prefix { .. } => (first64 ^ last64) & nat.policy.home_mask == 0,
            Delegation::Claim { .. } => first64 == last64,
            Delegation::Static => nat.delegations.holder_of_all(first64, last64).is_some(),
        };
        let shard = nat.prefixes.shard_of(first).filter(|_| is_of_one)?;
        nat.known_home_with_inside6(shard, first)
    }

    /// Whether these are one home: GRE keys count where they tell homes apart.
    pub fn is_same_home(self, one: &Home, other: &Home) -> bool {
        self.nat.identity(one) == self.nat.identity(other)
    }

    /// Returns a home as it is shown.
    pub fn view_of(self, home: &Home) -> HomeView {
        let length = self.nat.policy.home_mask.leading_ones() as u8;
        let net = |prefix64: u64| Ipv6Net::new((u128::from(prefix64) << 64).into(), length).ok();
        match self.nat.prefix_of(home).and_then(net) {
            Some(net) => HomeView::Ipv6(net),
            None => self.tunnel_view(home.outer, home.gre_key),
        }
    }

    /// Returns a home with a tunnel, or with an IPv4 address of its own, as it is shown.
    pub(crate) fn tunnel_view(self, outer: u32, gre_key: Option<u32>) -> HomeView {
        match self.nat.outer_of(outer).ipv6() {
            None => HomeView::Ipv4 { outer, gre_key },
            Some(outer) => HomeView::TunnelIpv6 { outer: outer.into(), gre_key },
        }
    }

    /// Returns what a record has for the outer address of a tunnel, if the selector names one: of
    /// IPv6 a whole address in the homes' prefixes. One that no home with state has is None.
    pub(crate) fn named_outer(self, name: HomeSelector) -> Option<Option<u32>> {
        match name {
            HomeSelector::Ipv4(outer) => Some(Some(outer)),
            HomeSelector::Ipv6(net) => {
                let OuterAddress::Ipv6(address) = OuterAddress::of_ipv6(net.addr().to_bits())
                else {
                    return None;
                };
                let is_outer = net.prefix_len() == net.max_prefix_len()
                    && self.nat.subscribers.outers.is_home(address);
                is_outer.then(|| self.nat.find_outer(address))
            }
        }
    }

    /// Returns the number of positions at which a home with this name may be.
    pub(crate) fn positions_of(self, name: HomeSelector) -> u32 {
        match self.named_outer(name) {
            Some(_) => self.nat.subscribers.home_positions(),
            None => 1,
        }
    }

    /// Returns the slot of the home with this name at a position, if there is one.
    pub(crate) fn slot_with_name(self, name: HomeSelector, position: u32) -> Option<u32> {
        let subscribers = &self.nat.subscribers;
        match (self.named_outer(name), name) {
            (Some(outer), _) => {
                let slot = subscribers.home_at(position, outer?)?;
                // The first half of a prefix is no IPv4 address.
                let is_prefix = self.nat.prefix_of(&subscribers.get(slot).home()).is_some();
                (!is_prefix).then_some(slot)
            }
            (None, HomeSelector::Ipv6(net)) => subscribers.find(&self.home_with(net)?),
            (None, HomeSelector::Ipv4(_)) => None,
        }
    }
}

//! The division of a pool into shards.
//!
//! ```text
//!   first_id = 1   endpoints = 10.100.0.0/24
//!   public = 203.0.113.0/26, 198.51.100.0/27   per_shard = 28
//!   public6 = 2001:db8:1000::/44               per_shard6 = 48
//!
//!   shard 1  10.100.0.1  203.0.113.0/28       shard 5  10.100.0.5  198.51.100.0/28
//!   shard 2  10.100.0.2  203.0.113.16/28      shard 6  10.100.0.6  198.51.100.16/28
//!   shard 3  ...                              (10.100.0.7 and on: for growth)
//!
//!   shard 1  2001:db8:1000::/48               shard 6  2001:db8:1005::/48
//!   shard 2  2001:db8:1001::/48  ...          (2001:db8:1006::/48 and on: for growth)
//! ```
//!
//! Invariant: shard n consists of the n-th piece of each list. So a list may grow at its end, by a
//! further prefix or by a shorter length of the last one that keeps its first address: no existing
//! shard changes.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};

use crate::cluster_types::{ClusterShard, PoolSettings};

impl PoolSettings {
    /// Number of shards in the pool, if its lists fit together.
    pub(crate) fn shard_count(&self) -> u64 {
        if self.public.is_empty() {
            pieces(&self.subscribers, self.subscribers_per_shard)
        } else {
            pieces(&self.public, self.per_shard)
        }
    }

    /// Returns the shards of the pool. Its lists must fit together. Numbers that overflow begin
    /// again at 0; the checks refuse them.
    pub(crate) fn shards(&self) -> impl Iterator<Item = ClusterShard> + '_ {
        let mut endpoints = addresses(&self.endpoints);
        let mut endpoints6 = addresses6(&self.endpoints6);
        let mut steer = addresses(&self.steer);
        let mut public = cut(&self.public, self.per_shard);
        let mut steer6 = addresses6(&self.steer6);
        let mut public6 = cut6(&self.public6, self.per_shard6);
        let mut subscribers = cut(&self.subscribers, self.subscribers_per_shard);
        (0..self.shard_count()).map(move |number| {
            let homes: Vec<Ipv4Net> = subscribers.next().into_iter().collect();
            ClusterShard {
                id: self.first_id.wrapping_add(number as u32),
                endpoint: endpoints.next(),
                endpoint6: endpoints6.next(),
                steer: steer.next(),
                public: public.next().map_or_else(|| homes.clone(), |net| vec![net]),
                subscribers: homes,
                steer6: steer6.next(),
                public6: public6.next().into_iter().collect(),
                subscribers_max: self.subscribers_max,
                commit: self.commit,
            }
        })
    }
}

/// Number of prefixes of `length` bits that `nets` can be cut into.
pub(crate) fn pieces(nets: &[Ipv4Net], length: u8) -> u64 {
    let longer = |net: &Ipv4Net| length.checked_sub(net.prefix_len());
    nets.iter().filter_map(longer).map(|bits| 1 << bits).sum()
}

/// Number of prefixes of `length` bits that `nets` can be cut into.
pub(crate) fn pieces6(nets: &[Ipv6Net], length: u8) -> u64 {
    let longer = nets.iter().filter_map(|net| length.checked_sub(net.prefix_len()));
    longer.map(|bits| saturated(1_u128 << bits.min(64))).fold(0, u64::saturating_add)
}

/// Number of addresses that can be assigned from `nets`, which are IPv6.
pub(crate) fn address_count6(nets: &[Ipv6Net]) -> u64 {
    let bits = nets.iter().map(|net| 128 - net.prefix_len());
    bits.map(|bits| saturated((1_u128 << bits.min(64)) - 1)).fold(0, u64::saturating_add)
}

fn saturated(count: u128) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// Number of addresses that can be assigned from `nets`.
pub(crate) fn address_count(nets: &[Ipv4Net]) -> u64 {
    nets.iter().map(|net| (1 << (32 - net.prefix_len())) - 1).sum()
}

fn cut(nets: &[Ipv4Net], length: u8) -> impl Iterator<Item = Ipv4Net> + '_ {
    nets.iter().flat_map(move |net| net.subnets(length).into_iter().flatten())
}

/// Returns all but the first address of each prefix, since many devices refuse a destination that
/// looks like a network. The last addresses are included: a prefix that gets shorter must not
/// change earlier assignments.
fn addresses(nets: &[Ipv4Net]) -> impl Iterator<Item = Ipv4Addr> + '_ {
    nets.iter().flat_map(|net| {
        (u32::from(net.network())..=u32::from(net.broadcast())).skip(1).map(Ipv4Addr::from)
    })
}

fn cut6(nets: &[Ipv6Net], length: u8) -> impl Iterator<Item = Ipv6Net> + '_ {
    nets.iter().flat_map(move |net| net.subnets(length).into_iter().flatten())
}

/// As [`addresses`]: the first one is the subnet-router anycast address (RFC 4291 section 2.6.1).
fn addresses6(nets: &[Ipv6Net]) -> impl Iterator<Item = Ipv6Addr> + '_ {
    nets.iter().flat_map(|net| {
        (u128::from(net.network())..=u128::from(net.broadcast())).skip(1).map(Ipv6Addr::from)
    })
}

//! Hot. The fast path: a packet of a settled session, found by whole words of the mapping's record.
//!
//! ```text
//!               byte 4            8                 16                      24
//!   record      public address | outer, inside  |  inside port, shard,  |  remote address, state,
//!                              | address        |  protocol, kind,      |  remote port
//!                              |                |  public port          |
//!   OutboundKey                  home           |  inside (48 bits)     |  remote
//!   InboundKey  public address                  |  public (32 bits)     |  remote
//! ```
//!
//! A session is settled when an ordinary packet changes nothing but the time it was seen last
//! (`SessionState::SETTLED`). An ordinary packet is UDP, or TCP with ACK and without SYN, FIN and
//! RST. Every other packet, and every other session, takes `outbound.rs` or `inbound.rs`, which
//! find the same mapping and do the same to it.

use weir_flow::RecordId;

use crate::endpoint::{Endpoint, Home, Protocol, ShardIndex, Tick};
use crate::look_up::PacketKey;
use crate::nat::{Nat, Policy};
use crate::packet::Delivery;
use crate::sessions::checksum_deltas::ChecksumDeltas;
use crate::sessions::mapping::{Mapping, MappingKind};
use crate::sessions::session_state::SessionState;

/// The bits of a remote's word that are compared: address, SETTLED, port; and one that no record
/// has beside SETTLED.
const REMOTE: u64 = ENDPOINT | SETTLED | NOT_ORDINARY;
const SETTLED: u64 = (SessionState::SETTLED as u64) << 32;
/// Keeps the key of a packet that is not ordinary from being found.
const NOT_ORDINARY: u64 = (SessionState::REDIRECTED as u64) << 32;
const ENDPOINT: u64 = 0xffff << 48 | 0xffff_ffff;
/// The upper bits of the word at byte 16, the public port, name no inside endpoint.
const PORT_BITS: u32 = u16::BITS;
/// The octet of a mapping that serves ordinary packets: part of every hashed key.
pub(crate) const LIVE: u64 = (MappingKind::Live as u64) << 40;

/// What an ordinary packet from a home has in common with its session's record, word by word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutboundKey {
    home: u64,
    inside: u64,
    pub(crate) remote: u64,
}

/// As [`OutboundKey`], for a packet to a public address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InboundKey {
    public: u64,
    pub(crate) remote: u64,
}

/// Translation of a packet of a settled session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled<T> {
    /// What the public or the inside endpoint is.
    pub to: T,
    pub deltas: ChecksumDeltas,
}

impl OutboundKey {
    /// The key of no packet.
    pub const EMPTY: Self = Self { home: 0, inside: 0, remote: 0 };

    /// Makes the key of a packet, without the GRE key of its home. Only the key of an ordinary
    /// packet is found by [`Nat::outbound_settled`].
    #[inline(always)]
    pub fn new(
        home: &Home,
        protocol: u8,
        inside: Endpoint,
        remote: Endpoint,
        is_ordinary: bool,
    ) -> Self {
        Self {
            home: u64::from(home.outer) | u64::from(inside.address) << 32,
            inside: u64::from(inside.port)
                | u64::from(home.shard.0) << 16
                | u64::from(protocol) << 32
                | LIVE,
            remote: remote_word(remote, is_ordinary),
        }
    }

    /// Returns the words that name the inside endpoint.
    #[inline(always)]
    pub(crate) fn hashed(&self) -> [u64; 2] {
        [self.home, self.inside]
    }

    #[inline(always)]
    pub fn home(&self) -> Home {
        Home { shard: self.shard(), outer: self.home as u32, gre_key: None }
    }

    #[inline(always)]
    pub fn shard(&self) -> ShardIndex {
        ShardIndex((self.inside >> 16) as u16)
    }

    pub fn inside(&self) -> Endpoint {
        Endpoint::new((self.home >> 32) as u32, self.inside as u16)
    }

    /// Returns the word of the inbound key of a packet to the public endpoint of the flow.
    #[inline(always)]
    pub(crate) fn inbound_word(&self, public: Endpoint) -> u64 {
        /// Protocol and `LIVE`.
        const SHARED: u64 = 0xffff << 32;
        u64::from(public.address) | self.inside & SHARED | u64::from(public.port) << 48
    }

    #[inline(always)]
    pub fn is_tcp(&self) -> bool {
        (self.inside >> 32) as u8 == Protocol::Tcp as u8
    }

    #[inline(always)]
    pub fn remote(&self) -> Endpoint {
        Endpoint::new(self.remote as u32, (self.remote >> 48) as u16)
    }
}

impl InboundKey {
    /// Makes the key of a packet. Only the key of an ordinary packet is found by
    /// [`Nat::inbound_settled`].
    #[inline(always)]
    pub fn new(protocol: u8, public: Endpoint, remote: Endpoint, is_ordinary: bool) -> Self {
        Self {
            public: u64::from(public.address)
                | u64::from(protocol) << 32
                | LIVE
                | u64::from(public.port) << 48,
            remote: remote_word(remote, is_ordinary),
        }
    }

    /// Returns the word that names the public endpoint.
    #[inline(always)]
    pub(crate) fn hashed(&self) -> u64 {
        self.public
    }

    pub fn public(&self) -> Endpoint {
        Endpoint::new(self.public as u32, (self.public >> 48) as u16)
    }

    pub fn remote(&self) -> Endpoint {
        Endpoint::new(self.remote as u32, (self.remote >> 48) as u16)
    }
}

#[inline(always)]
fn remote_word(remote: Endpoint, is_ordinary: bool) -> u64 {
    let expected = if is_ordinary { SETTLED } else { SETTLED | NOT_ORDINARY };
    u64::from(remote.address) | expected | u64::from(remote.port) << 48
}

/// Returns the first two words of the outbound key of a home's inside endpoint.
#[inline(always)]
pub(crate) fn outbound_words(home: &Home, inside: Endpoint, protocol: Protocol) -> [u64; 2] {
    OutboundKey::new(home, protocol as u8, inside, Endpoint::default(), true).hashed()
}

/// Returns the word of the inbound key of a public endpoint.
#[inline(always)]
pub(crate) fn inbound_word(public: Endpoint, protocol: Protocol) -> u64 {
    InboundKey::new(protocol as u8, public, Endpoint::default(), true).hashed()
}

impl Nat {
    /// Step 4 of a burst: `candidate`, the record of step 2 or 3, is the mapping of this ordinary
    /// packet, and its first session is the packet's and is settled. Notes the packet and returns
    /// the public endpoint. Otherwise returns None and changes nothing; `RecordId::NONE` is no
    /// record, and a packet to a public address of this worker turns around on another path.
    #[inline(always)]
    pub fn outbound_settled(
        &mut self,
        candidate: RecordId,
        key: &OutboundKey,
        now: Tick,
    ) -> Option<Settled<Endpoint>> {
        self.outbound_settled_as::<{ Mapping::SUMMED }>(candidate, key, now)
    }

    /// As [`outbound_settled`](Self::outbound_settled), of a home with a tunnel over IPv6.
    #[inline(always)]
    pub fn outbound_settled_over_ipv6(
        &mut self,
        candidate: RecordId,
        key: &OutboundKey,
        now: Tick,
    ) -> Option<Settled<Endpoint>> {
        self.outbound_settled_as::<{ Mapping::SUMMED | Mapping::OVER_IPV6 }>(candidate, key, now)
    }

    #[inline(always)]
    fn outbound_settled_as<const FLAGS: u16>(
        &mut self,
        candidate: RecordId,
        key: &OutboundKey,
        now: Tick,
    ) -> Option<Settled<Endpoint>> {
        let mapping = self.mappings.try_get_mut(candidate)?;
        let [_, home, inside, remote, ..] = *mapping.words();
        let differs = (home ^ key.home)
            | (inside ^ key.inside) << PORT_BITS
            | (remote ^ key.remote) & REMOTE
            | mapping.lacks_deltas(FLAGS);
        let is_found = differs == 0 && !self.public.contains(key.remote as u32);
        if !is_found || !mapping.note_settled(&self.policy, now, true) {
            return None;
        }
        Some(Settled { to: mapping.public(), deltas: ChecksumDeltas::from_word(mapping.gre_key) })
    }

    /// Whether the first session of `candidate` has the remote of this packet. If not, or without
    /// a record (`RecordId::NONE`), the packet takes the slow path.
    #[inline(always)]
    pub fn is_first<K: PacketKey>(&self, candidate: RecordId, key: &K) -> bool {
        self.has_remote(candidate, key, ENDPOINT)
    }

    /// Whether that session is settled, too, and this packet is an ordinary one.
    #[inline(always)]
    pub fn is_first_settled<K: PacketKey>(&self, candidate: RecordId, key: &K) -> bool {
        self.has_remote(candidate, key, REMOTE)
    }

    /// Whether the remote's word of a record has these bits as the packet's key has them.
    #[inline(always)]
    fn has_remote<K: PacketKey>(&self, candidate: RecordId, key: &K, bits: u64) -> bool {
        let found = self.mappings.try_get(candidate).map(|mapping| mapping.words()[3]);
        found.is_some_and(|found| (found ^ key.remote_word()) & bits == 0)
    }

    /// As [`outbound_settled`](Self::outbound_settled), for a packet to a public address. The home
    /// sends no GRE key.
    #[inline(always)]
    pub fn inbound_settled(
        &mut self,
        candidate: RecordId,
        key: &InboundKey,
        now: Tick,
    ) -> Option<Settled<Delivery>> {
        self.inbound_settled_as::<{ Mapping::SUMMED }>(candidate, key, now)
    }

    /// As [`inbound_settled`](Self::inbound_settled), to a home with a tunnel over IPv6.
    #[inline(always)]
    pub fn inbound_settled_over_ipv6(
        &mut self,
        candidate: RecordId,
        key: &InboundKey,
        now: Tick,
    ) -> Option<Settled<Delivery>> {
        self.inbound_settled_as::<{ Mapping::SUMMED | Mapping::OVER_IPV6 }>(candidate, key, now)
    }

    #[inline(always)]
    fn inbound_settled_as<const FLAGS: u16>(
        &mut self,
        candidate: RecordId,
        key: &InboundKey,
        now: Tick,
    ) -> Option<Settled<Delivery>> {
        let mapping = self.mappings.try_get_mut(candidate)?;
        let [_, _, public, remote, ..] = *mapping.words();
        let differs = u64::from(mapping.public_address ^ key.public as u32)
            | (public ^ key.public) >> 32
            | (remote ^ key.remote) & REMOTE
            | mapping.lacks_deltas(FLAGS);
        let refreshes = self.policy.live.udp_inbound_refresh;
        if differs != 0 || !mapping.note_settled(&self.policy, now, refreshes) {
            return None;
        }
        let home = Home { shard: mapping.shard, outer: mapping.outer, gre_key: None };
        Some(Settled {
            to: Delivery { home, inside: mapping.inside() },
            deltas: ChecksumDeltas::from_word(mapping.gre_key).inverse(),
        })
    }
}

impl Mapping {
    /// Returns 0 if the home sends no key and the record holds the checksum deltas. `expected`:
    /// `SUMMED`, with `OVER_IPV6` for a home with a tunnel over IPv6.
    #[inline(always)]
    fn lacks_deltas(&self, expected: u16) -> u64 {
        const FLAGS: u16 = Mapping::KEYED | Mapping::SUMMED | Mapping::OVER_IPV6;
        u64::from(self.flags & FLAGS ^ expected)
    }

    /// Notes a packet of the first session, which is settled. Returns false, and changes nothing,
    /// if the session has run out. Without `refreshes` the packet keeps only TCP alive.
    #[inline(always)]
    pub(crate) fn note_settled(&mut self, policy: &Policy, now: Tick, refreshes: bool) -> bool {
        if self.first.last_seen == now {
            return true;
        }
        let timeout = policy.live.timeouts.of_settled(self.protocol);
        if now.since(self.first.last_seen) >= timeout {
            return false;
        }
        if refreshes || self.protocol == Protocol::Tcp {
            self.first.last_seen = now;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    #[test]
    fn words_of_a_record_lie_where_they_are_drawn() {
        assert_eq!((offset_of!(Mapping, public_address), offset_of!(Mapping, outer)), (4, 8));
        assert_eq!(
            (offset_of!(Mapping, inside_address), offset_of!(Mapping, inside_port)),
            (12, 16)
        );
        assert_eq!((offset_of!(Mapping, shard), offset_of!(Mapping, protocol)), (18, 20));
        assert_eq!((offset_of!(Mapping, kind), offset_of!(Mapping, public_port)), (21, 22));
        assert_eq!((offset_of!(Mapping, first), offset_of!(Mapping, gre_key)), (24, 36));
        assert_eq!((offset_of!(Mapping, flags), size_of::<Mapping>()), (60, 64));
    }

    #[test]
    fn a_key_returns_what_it_was_made_of() {
        let (inside, remote) = (Endpoint::new(0xc0a8_0001, 5000), Endpoint::new(0xcb00_7101, 443));
        let home = Home { shard: ShardIndex(7), outer: 0x0a00_0001, gre_key: None };
        let key = OutboundKey::new(&home, 17, inside, remote, true);
        assert_eq!((key.home(), key.inside(), key.remote()), (home, inside, remote));
        assert_eq!(key.inbound_word(remote), inbound_word(remote, Protocol::Udp));
        assert!(!key.is_tcp() && OutboundKey::new(&home, 6, inside, remote, true).is_tcp());
        let key = InboundKey::new(6, inside, remote, false);
        assert_eq!((key.public(), key.remote()), (inside, remote));
    }
}

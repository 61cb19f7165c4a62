//! Hot. The mapping record: one cache line that serves an established packet in either direction.
//!
//! ```text
//!    0 version         16 inside_port  first session:      36 gre_key/sums   52 subscriber
//!    4 public_address  18 shard        24 remote address   40 sessions_head  56 created
//!    8 outer           20 protocol     28 state            44 sessions       60 flags
//!   12 inside_address  21 kind         30 remote port      48 address        62 sessions_inbound
//!                      22 public_port  32 last_seen
//! ```
//!
//! The fast path compares whole words of it with those of a packet (`fast_path.rs`): bytes 8 to 31
//! name a session from inside, bytes 4 to 7 and 20 to 31 from the internet.
//!
//! What every walk needs lies at places of its own (version, shard, protocol, kind, state,
//! last_seen, subscriber, created, flags); the other bytes, 4 to 15, 22 to 27, 36 to 51 and 62 to
//! 63, belong to what the record stands for. Bits 2 to 4 of `kind` name it: 0 is an IPv4 mapping,
//! 1 an IPv6 flow, whose layout is drawn in `ipv6/flow_record.rs`.
//!
//! Each public port that is not free has exactly one record: `Live` or `Uncommitted` while it is in
//! use, then `Quarantined` in the same slot until the port may be given again. A record in
//! quarantine is in the inbound index alone, as the holder of its port, and counts as no flow; its
//! `last_seen` is when it ended. While a record is free, `sessions_head` carries the link of the
//! slab's free list.

use weir_flow::{Record, RecordId};
use weir_rules::FlowClass;
use zerocopy::{Immutable, IntoBytes};

use crate::endpoint::{Endpoint, Home, Protocol, ShardIndex, Tick};
use crate::sessions::checksum_deltas::ChecksumDeltas;
use crate::sessions::class_timeouts::ClassTimeouts;
use crate::sessions::session_state::{SentBy, SessionState};

/// State of a mapping record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Immutable, IntoBytes)]
#[repr(u8)]
pub(crate) enum MappingKind {
    Free = 0,
    Live = 1,
    Quarantined = 2,
    /// As `Live`, but not all of it is on as many replicas as wanted (`replication/commit.rs`). The
    /// fast path does not take it.
    Uncommitted = 3,
    /// As `Live`, of an IPv6 flow.
    LiveIpv6 = 5,
    /// As `Uncommitted`, of an IPv6 flow.
    UncommittedIpv6 = 7,
}

impl MappingKind {
    /// Whether the record is an IPv6 flow, in use.
    #[inline(always)]
    pub(crate) const fn is_ipv6(self) -> bool {
        self as u8 & 4 != 0
    }

    /// Whether the record is in use and not committed.
    #[inline]
    pub(crate) const fn is_uncommitted(self) -> bool {
        matches!(self, Self::Uncommitted | Self::UncommittedIpv6)
    }

    /// Returns the kind of the same record in use, committed or not.
    #[inline]
    pub(crate) const fn committed(self, is_committed: bool) -> Self {
        match (self.is_ipv6(), is_committed) {
            (false, true) => Self::Live,
            (false, false) => Self::Uncommitted,
            (true, true) => Self::LiveIpv6,
            (true, false) => Self::UncommittedIpv6,
        }
    }

    /// Live, committed or not.
    #[inline]
    pub(crate) const fn is_in_use(self) -> bool {
        self as u8 & Self::Live as u8 != 0
    }
}

/// One remote of a mapping: 12 bytes.
#[derive(Clone, Copy, Debug, Immutable, IntoBytes)]
#[repr(C)]
pub(crate) struct Remote {
    pub(crate) address: u32,
    pub(crate) state: SessionState,
    pub(crate) port: u16,
    pub(crate) last_seen: Tick,
}

impl Remote {
    pub(crate) const EMPTY: Self =
        Self { address: 0, last_seen: Tick(0), port: 0, state: SessionState::NONE };

    pub(crate) fn opened(
        remote: Endpoint,
        protocol: Protocol,
        sender: SentBy,
        tcp_flags: u8,
        class: FlowClass,
        now: Tick,
    ) -> Self {
        Self {
            address: remote.address,
            last_seen: now,
            port: remote.port,
            state: SessionState::opened(protocol, sender, tcp_flags, class),
        }
    }

    #[inline]
    pub(crate) fn is(&self, remote: Endpoint) -> bool {
        self.address == remote.address && self.port == remote.port
    }

    pub(crate) fn endpoint(&self) -> Endpoint {
        Endpoint::new(self.address, self.port)
    }

    pub(crate) fn timeout_sec(&self, protocol: Protocol, timeouts: &ClassTimeouts) -> u32 {
        timeouts.of(self.state, protocol)
    }

    /// True if it has been silent for too long. Within one tick of its last packet it cannot have:
    /// no timer is 0.
    #[inline]
    pub(crate) fn is_expired(
        &self,
        protocol: Protocol,
        timeouts: &ClassTimeouts,
        now: Tick,
    ) -> bool {
        now != self.last_seen && now.since(self.last_seen) >= self.timeout_sec(protocol, timeouts)
    }

    /// Notes a packet; writes only what changed, so that an established flow dirties its line once
    /// per tick. Returns whether the state changed.
    #[inline]
    pub(crate) fn note(&mut self, state: SessionState, refresh: bool, now: Tick) -> bool {
        let has_changed = self.state != state;
        if self.state.word() != state.word() {
            self.state = state;
        }
        if refresh && self.last_seen != now {
            self.last_seen = now;
        }
        has_changed
    }
}

/// A mapping; its layout is drawn in the module's documentation.
#[derive(Clone, Copy, Debug, Immutable, IntoBytes)]
#[repr(C, align(64))]
pub(crate) struct Mapping {
    version: u32,
    pub(crate) public_address: u32,
    pub(crate) outer: u32,
    pub(crate) inside_address: u32,
    pub(crate) inside_port: u16,
    pub(crate) shard: ShardIndex,
    pub(crate) protocol: Protocol,
    pub(crate) kind: MappingKind,
    pub(crate) public_port: u16,
    /// The first session. A live mapping always has it.
    pub(crate) first: Remote,
    /// With `KEYED` the key, with `SUMMED` the checksum deltas.
    pub(crate) gre_key: u32,
    /// Newest further session, or `RecordId::NONE`. With another destination it is the address that
    /// the home asks, see `destination.rs`.
    pub(crate) sessions_head: RecordId,
    /// Further sessions.
    pub(crate) sessions: u32,
    /// Position of the public address in the pool; without translation the slot of its owner
    /// (`address_owner.rs`).
    pub(crate) address: u32,
    /// Slot of the subscriber.
    pub(crate) subscriber: u32,
    pub(crate) created: Tick,
    pub(crate) flags: u16,
    /// Sessions, the first one included, that a remote has opened. With another destination it is
    /// the port that the home asks.
    pub(crate) sessions_inbound: u16,
}

const _: () = assert!(size_of::<Mapping>() == 64);

impl Mapping {
    /// The home has sent a GRE key.
    pub(crate) const KEYED: u16 = 1 << 0;
    /// A session has ended otherwise than by two FINs, so the port needs its quarantine.
    pub(crate) const UNCLEAN: u16 = 1 << 1;
    /// A mark in the journal waits for the mapping.
    pub(crate) const MARKED: u16 = 1 << 2;
    /// Its inside endpoint had a duplicate mapping when it was last looked at.
    pub(crate) const DOUBLE: u16 = 1 << 3;
    /// A flow of its home was answered.
    pub(crate) const ANSWERED: u16 = 1 << 4;
    /// `gre_key` holds the checksum deltas, which the fast path needs.
    pub(crate) const SUMMED: u16 = 1 << 5;
    /// It is of a static mapping, so it has no port bit and no block (`ports/static_mappings.rs`).
    pub(crate) const STATIC: u16 = 1 << 6;
    /// The home's tunnel is over IPv6, so `outer` is a handle.
    pub(crate) const OVER_IPV6: u16 = 1 << 7;
    /// Shift of the upper byte. In a copy it holds the window of the last owner update, see
    /// `replication/owner_update.rs`; in an uncommitted mapping, which this worker owns, the batch,
    /// see `replication/commit.rs`.
    pub(crate) const WINDOW_SHIFT: u32 = 8;

    /// Returns the record as it lies in memory.
    #[inline(always)]
    pub(crate) fn words(&self) -> &[u64; 8] {
        zerocopy::transmute_ref!(self)
    }

    pub(crate) fn inside(&self) -> Endpoint {
        Endpoint::new(self.inside_address, self.inside_port)
    }

    pub(crate) fn public(&self) -> Endpoint {
        Endpoint::new(self.public_address, self.public_port)
    }

    pub(crate) fn gre_key(&self) -> Option<u32> {
        (self.flags & Self::KEYED != 0).then_some(self.gre_key)
    }

    pub(crate) fn home(&self) -> Home {
        Home { shard: self.shard, outer: self.outer, gre_key: self.gre_key() }
    }

    #[inline]
    pub(crate) fn is_static(&self) -> bool {
        self.flags & Self::STATIC != 0
    }

    /// Returns the lower byte of the batch's number, if the mapping is uncommitted.
    #[inline]
    pub(crate) fn batch(&self) -> u8 {
        (self.flags >> Self::WINDOW_SHIFT) as u8
    }

    #[inline]
    pub(crate) fn set_batch(&mut self, number: u8) {
        let others = self.flags & ((1 << Self::WINDOW_SHIFT) - 1);
        self.flags = others | u16::from(number) << Self::WINDOW_SHIFT;
    }

    /// Remembers the key to echo; writes only when it changed, and returns whether it did.
    #[inline]
    pub(crate) fn note_gre_key(&mut self, key: Option<u32>) -> bool {
        let has_changed = self.gre_key() != key;
        if has_changed {
            self.gre_key = key.unwrap_or(0);
            let others = self.flags & !(Self::KEYED | Self::SUMMED);
            self.flags = others | if key.is_some() { Self::KEYED } else { 0 };
        }
        has_changed
    }

    /// Keeps the checksum deltas of a mapping whose first session is settled, unless the home sends
    /// a key. Endpoints of a mapping never change.
    #[inline]
    pub(crate) fn keep_checksum_deltas(&mut self) {
        let is_settled = self.first.state.word() & SessionState::SETTLED != 0;
        if is_settled && self.flags & (Self::KEYED | Self::SUMMED) == 0 {
            self.gre_key = ChecksumDeltas::new(self.inside(), self.public()).word();
            self.flags |= Self::SUMMED;
        }
    }

    #[inline]
    pub(crate) fn is_inside(
        &self,
        home: &Home,
        inside: Endpoint,
        protocol: Protocol,
        by_key: bool,
    ) -> bool {
        self.inside_address == inside.address
            && self.inside_port == inside.port
            && self.outer == home.outer
            && self.shard == home.shard
            && self.protocol == protocol
            && (!by_key || self.gre_key() == home.gre_key)
    }

    #[inline]
    pub(crate) fn is_public(&self, public: Endpoint, protocol: Protocol) -> bool {
        self.public_address == public.address
            && self.public_port == public.port
            && self.protocol == protocol
    }

    /// Records the end of a session, first or further.
    pub(crate) fn note_end(&mut self, state: SessionState) {
        if !(self.protocol == Protocol::Tcp && state.is_closed_cleanly()) {
            self.flags |= Self::UNCLEAN;
        }
        if state.has(SessionState::OPENED_BY_REMOTE) {
            self.sessions_inbound -= 1;
        }
    }
}

impl Record for Mapping {
    const EMPTY: Self = Self {
        version: 0,
        outer: 0,
        inside_address: 0,
        public_address: 0,
        inside_port: 0,
        public_port: 0,
        shard: ShardIndex(0),
        protocol: Protocol::Udp,
        kind: MappingKind::Free,
        first: Remote::EMPTY,
        gre_key: 0,
        subscriber: 0,
        sessions_head: RecordId::NONE,
        sessions: 0,
        sessions_inbound: 0,
        flags: 0,
        created: Tick(0),
        address: 0,
    };

    fn is_live(&self) -> bool {
        self.kind != MappingKind::Free
    }

    fn version(&self) -> u32 {
        self.version
    }

    fn set_version(&mut self, version: u32) {
        self.version = version;
    }

    fn next_free(&self) -> u32 {
        self.sessions_head.0
    }

    fn set_next_free(&mut self, next: u32) {
        self.sessions_head = RecordId(next);
    }
}

//! The keys and records of all subjects, laid out like those of the NAT.

use weir_flow::{Hash, HashKey, Record};

/// The words of an outbound key, 16 bytes: home (shard, protocol, outer address), then inside
/// endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(C)]
pub struct FlowKey(pub [u64; 2]);

/// Multiplier that spreads the port numbers; any odd number does.
const PORT_STEP: u32 = 0x9E37_79B1;

/// First flow number that is never inserted: keys from here on are misses.
pub const STRANGERS: u32 = 3 << 30;

impl FlowKey {
    /// Returns the key of flow `number`, distinct for each: 64 flows per home, 16 per inside
    /// address.
    #[inline]
    pub fn of(number: u32) -> FlowKey {
        let (home, inside) = (number / 64, 0xC0A8_0102 + number / 16 % 4);
        let port = (home.wrapping_mul(PORT_STEP) >> 16 & 0xFFF0) | (number % 16);
        let (shard, protocol) = (home / 1024 % 1024, if number.is_multiple_of(4) { 17 } else { 6 });
        let outer = 0x6440_0000 + home;
        FlowKey([
            u64::from(shard) << 40 | protocol << 32 | u64::from(outer),
            u64::from(inside) << 16 | u64::from(port),
        ])
    }

    /// Hashes the key as `Nat::outbound_hash` does.
    #[inline(always)]
    pub fn hash(self, key: &HashKey) -> Hash {
        key.hash([self.0[0], self.0[1], 0])
    }
}

/// A record of one cache line, 64 bytes.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct FlowRecord {
    pub key: FlowKey,
    pub version: u32,
    pub next_free: u32,
    /// Flow number; a sweep ends the flows of one residue class of it.
    pub number: u32,
    pub is_live: u32,
    pub rest: [u64; 4],
}

const _: () = assert!(size_of::<FlowRecord>() == 64);

impl FlowRecord {
    pub fn of(key: FlowKey, number: u32) -> FlowRecord {
        FlowRecord { key, number, is_live: 1, ..FlowRecord::EMPTY }
    }

    /// Whether a sweep for residue class `class` of [`CLASSES`] ends this flow.
    #[inline(always)]
    pub fn is_due(&self, class: u32) -> bool {
        self.number % CLASSES == class
    }
}

/// Number of residue classes: a sweep ends one flow in this many.
pub const CLASSES: u32 = 64;

impl Record for FlowRecord {
    const EMPTY: FlowRecord = FlowRecord {
        key: FlowKey([0; 2]),
        version: 0,
        next_free: 0,
        number: 0,
        is_live: 0,
        rest: [0; 4],
    };

    #[inline(always)]
    fn is_live(&self) -> bool {
        self.is_live != 0
    }

    #[inline(always)]
    fn version(&self) -> u32 {
        self.version
    }

    #[inline(always)]
    fn set_version(&mut self, version: u32) {
        self.version = version;
    }

    #[inline(always)]
    fn next_free(&self) -> u32 {
        self.next_free
    }

    #[inline(always)]
    fn set_next_free(&mut self, next: u32) {
        self.next_free = next;
    }
}

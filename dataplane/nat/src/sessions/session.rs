//! The record of a further remote of a mapping: 32 bytes, found by (mapping, its version, remote).
//!
//! ```text
//!    0 version   4 mapping   8 next   12 previous
//!   16 remote: address, 20 state, 22 port, 24 last_seen   28 references
//! ```
//!
//! The further sessions of a mapping form a list, newest first, so that they go with it. With
//! address-dependent filtering there is also one `Address` record per remote address of further
//! sessions, counting them in `references`: it answers "is there a session with this address,
//! whatever the port" in one look-up and goes with the last of them. Address records are in no list
//! and count as no flow. In a session `references` holds notes for replication, with its highest
//! bit set. While a record is free, `next` carries the link of the slab's free list.

use weir_flow::{Record, RecordId};

use crate::endpoint::Endpoint;
use crate::sessions::mapping::Remote;

/// A further session; its layout is drawn in the module's documentation.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct FurtherSession {
    version: u32,
    /// The mapping; `RecordId::NONE` while the record is free.
    pub(crate) mapping: RecordId,
    pub(crate) next: RecordId,
    pub(crate) previous: RecordId,
    pub(crate) remote: Remote,
    /// In an address record the number of further sessions with that address; in a session 0 or
    /// `NOTES` with the bits below it.
    pub(crate) references: u32,
}

/// Set in `references` of a session that holds notes: [`MARKED`], and in [`UPDATE_WINDOW`] the
/// window of its last owner update.
pub(crate) const NOTES: u32 = 1 << 31;
/// A mark in the journal waits for the session.
pub(crate) const MARKED: u32 = 1 << 8;
const UPDATE_WINDOW: u32 = 0xff;

const _: () = assert!(size_of::<FurtherSession>() == 32);

/// A key of the session index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionKey {
    Remote(Endpoint),
    /// Any port of this address.
    Address(u32),
}

impl SessionKey {
    /// Returns the key as one word of the hash: 49 bits.
    pub(crate) fn word(self) -> u64 {
        match self {
            Self::Remote(remote) => u64::from(remote.address) << 16 | u64::from(remote.port),
            Self::Address(address) => 1 << 48 | u64::from(address) << 16,
        }
    }
}

impl FurtherSession {
    pub(crate) fn is_address(&self) -> bool {
        (1..NOTES).contains(&self.references)
    }

    /// Returns the window of the last owner update, see `replication/owner_update.rs`.
    pub(crate) fn update_window(&self) -> u8 {
        (self.references & UPDATE_WINDOW) as u8
    }

    pub(crate) fn set_update_window(&mut self, window: u8) {
        self.references = NOTES | (self.references & !UPDATE_WINDOW) | u32::from(window);
    }

    #[inline]
    pub(crate) fn is(&self, mapping: RecordId, key: SessionKey) -> bool {
        self.mapping == mapping
            && match key {
                SessionKey::Remote(remote) => !self.is_address() && self.remote.is(remote),
                SessionKey::Address(address) => self.is_address() && self.remote.address == address,
            }
    }

    pub(crate) fn key(&self) -> SessionKey {
        if self.is_address() {
            SessionKey::Address(self.remote.address)
        } else {
            SessionKey::Remote(self.remote.endpoint())
        }
    }
}

impl Record for FurtherSession {
    const EMPTY: Self = Self {
        version: 0,
        mapping: RecordId::NONE,
        next: RecordId::NONE,
        previous: RecordId::NONE,
        remote: Remote::EMPTY,
        references: 0,
    };

    fn is_live(&self) -> bool {
        self.mapping != RecordId::NONE
    }

    fn version(&self) -> u32 {
        self.version
    }

    fn set_version(&mut self, version: u32) {
        self.version = version;
    }

    fn next_free(&self) -> u32 {
        self.next.0
    }

    fn set_next_free(&mut self, next: u32) {
        self.next = RecordId(next);
    }
}

//! Differences between the datagrams of protocol versions, in one place; and a later version to
//! upgrade to, for tests.
//!
//! Version 2 seals redirected packets as datagrams of their own; a peer that speaks version 1 alone
//! gets them in IPIP.
//!
//! Version 3 has bodies of records that the caller rewrites for a peer of an earlier one.
//!
//! Version 4 does not exist yet: only an endpoint whose
//! [`StreamOptions::versions`](crate::StreamOptions::versions) reach to [`VERSION_LATER`] speaks
//! it, like a later build that is still compatible with this one. In version 4 a mark precedes each
//! body of a session, where earlier versions have a stream's header or a control field, so that
//! neither can read the other. A HELLO, which negotiates the version, is the same in all.

use crate::datagram::VERSION_MAX;

/// The version that only tests of upgrades speak.
pub const VERSION_LATER: u8 = VERSION_MAX + 1;

/// Earlier versions read it as a stream's header of 0 bytes, which they refuse, and an unknown
/// control field of 255 bytes.
const MARK: &[u8] = b"\0\xFFlater!";

/// Bytes of the longest mark.
pub(crate) const MARK_LEN_MAX: usize = MARK.len();

/// Returns the mark in front of each body of a session of this version.
#[inline(always)]
pub(crate) const fn mark(version: u8) -> &'static [u8] {
    if version == VERSION_LATER { MARK } else { b"" }
}

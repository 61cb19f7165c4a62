//! What the version of a session changes in its datagrams, in one place. A version to upgrade to, for tests.
//!
//! Version 2 seals redirected packets as datagrams of their own; a peer that speaks version 1 alone gets them in IPIP.
//!
//! Version 3 is there only if the crate is built with the feature `later-protocol`: then it speaks 1 to 3, as
//! a later build would that still speaks with this one. In version 3 a mark stands in front of each body of a session,
//! where earlier versions have a stream's header or a field of control, so that neither can read the other. A HELLO, which
//! finds the version, is the same in both.

/// The version that the feature adds.
pub(crate) const LATER: u8 = 3;

/// Bytes of the longest mark of this build.
pub(crate) const MARK_LEN_MAX: usize = mark(LATER).len();

/// What stands in front of each body of a session of this version.
#[inline(always)]
pub(crate) const fn mark(version: u8) -> &'static [u8] {
    // To earlier versions a stream's header of 0 bytes, which it refuses, and an unknown field of control, 255 bytes long.
    if cfg!(feature = "later-protocol") && version == LATER { b"\0\xFFlater!" } else { b"" }
}

//! What the version of a session changes in its datagrams, in one place. A version to upgrade to, for tests.
//!
//! Version 1 is all there is, unless the crate is built with the feature `later-protocol`: then it speaks 1 and 2, as
//! a later build would that still speaks with this one. In version 2 a mark stands in front of each body of a session,
//! where version 1 has a stream's header or a field of control, so that neither can read the other. A HELLO, which
//! finds the version, is the same in both.

/// The version that the feature adds.
pub(crate) const LATER: u8 = 2;

/// Bytes of the longest mark of this build.
pub(crate) const MARK_LEN_MAX: usize = mark(LATER).len();

/// What stands in front of each body of a session of this version.
#[inline(always)]
pub(crate) const fn mark(version: u8) -> &'static [u8] {
    // To version 1 a stream's header of 0 bytes, which it refuses, and an unknown field of control, 255 bytes long.
    if cfg!(feature = "later-protocol") && version == LATER { b"\0\xFFlater!" } else { b"" }
}

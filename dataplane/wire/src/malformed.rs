//! The reasons for which a parser refuses bytes.

use core::fmt;

/// Fault of a header. Each variant is one test of one field, so that a drop can be counted by its
/// cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Malformed {
    /// Fewer bytes than the fixed header, or than the length that the header states.
    Truncated,
    /// A version or address family that this parser does not support.
    Version,
    /// A header length field (IHL, TCP data offset, TCP option length) below its minimum.
    HeaderLength,
    /// A length field of the whole packet that is shorter than its header or longer than the bytes
    /// present.
    TotalLength,
    /// A checksum that does not match.
    Checksum,
    /// A reserved bit that obliges the receiver to discard (RFC 2784 section 2.3).
    Reserved,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Malformed::Truncated => "truncated",
            Malformed::Version => "wrong version",
            Malformed::HeaderLength => "impossible header length",
            Malformed::TotalLength => "impossible total length",
            Malformed::Checksum => "wrong checksum",
            Malformed::Reserved => "reserved bits set",
        })
    }
}

impl core::error::Error for Malformed {}

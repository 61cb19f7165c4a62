//! The frame of a datagram: at most 1,400 bytes of UDP payload, except for redirected packets,
//! which may be longer.
//!
//! ```text
//!  0 magic u16   2 version u8   3 kind u8 (bit 7: encrypted)   4 session u32   8 sender u64
//! 16 number u64
//! 24 body, up to 1,360 bytes
//! -16 authentication tag
//! ```
//!
//! The number counts the sender's datagrams of a session, repetitions included: it is the nonce, so
//! each is new.

use weir_ids::PeerId;

use crate::bytes::{ByteReader, ByteWriter};
use crate::refusal::DatagramRefusal;

/// Bytes of UDP payload of the longest datagram of any version, except redirected packets.
pub const DATAGRAM_MAX: usize = HEADER_LEN + BODY_MAX + TAG_LEN;

/// Bytes of the header, which is authenticated and never encrypted.
pub(crate) const HEADER_LEN: usize = 24;

/// Bytes of the authentication tag behind the body.
pub(crate) const TAG_LEN: usize = 16;

/// Bytes of the longest body.
pub(crate) const BODY_MAX: usize = 1_360;

/// "wR"
const MAGIC: u16 = 0x7752;

const ENCRYPTED: u8 = 0x80;

/// The oldest protocol version that this build speaks. A HELLO, which negotiates the version of a
/// session, has this one and is the same in all.
pub const VERSION_MIN: u8 = 1;
/// The newest protocol version.
pub const VERSION_MAX: u8 = 3;

/// The first version whose sessions seal redirected packets; earlier ones send them in IPIP, in the
/// clear.
pub(crate) const SEALS_REDIRECTS: u8 = 2;

/// The first version whose records have bodies as this build writes them; for a peer of an earlier
/// one, [`StreamOptions::earlier_body`](crate::StreamOptions::earlier_body) rewrites them.
pub(crate) const HAS_PRESENT_BODIES: u8 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum DatagramKind {
    Hello = 1,
    Records = 2,
    Control = 3,
    /// A packet of a home or of the internet that the sender could not serve.
    Redirect = 4,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DatagramHeader {
    pub(crate) version: u8,
    pub(crate) kind: DatagramKind,
    pub(crate) is_encrypted: bool,
    /// Names the session key; 0 in a HELLO.
    pub(crate) session: u32,
    pub(crate) sender: PeerId,
    pub(crate) number: u64,
}

impl DatagramHeader {
    /// # Errors
    /// [`DatagramRefusal::Truncated`] if there are too few bytes for header and tag,
    /// [`DatagramRefusal::Malformed`] if the datagram is of another protocol, of an unknown kind,
    /// or too long.
    #[inline]
    pub(crate) fn parse(bytes: &[u8]) -> Result<DatagramHeader, DatagramRefusal> {
        if bytes.len() < HEADER_LEN + TAG_LEN {
            return Err(DatagramRefusal::Truncated);
        }
        let is_fit = |header: &DatagramHeader| {
            header.kind == DatagramKind::Redirect || bytes.len() <= DATAGRAM_MAX
        };
        Self::read(ByteReader(bytes)).filter(is_fit).ok_or(DatagramRefusal::Malformed)
    }

    #[inline]
    fn read(mut reader: ByteReader<'_>) -> Option<DatagramHeader> {
        if reader.u16()? != MAGIC {
            return None;
        }
        let [version, kind] = reader.array()?;
        Some(DatagramHeader {
            version,
            kind: match kind & !ENCRYPTED {
                1 => DatagramKind::Hello,
                2 => DatagramKind::Records,
                3 => DatagramKind::Control,
                4 => DatagramKind::Redirect,
                _ => return None,
            },
            is_encrypted: kind & ENCRYPTED != 0,
            session: reader.u32()?,
            sender: PeerId(reader.u64()?),
            number: reader.u64()?,
        })
    }

    #[inline]
    pub(crate) fn emit(&self, buffer: &mut [u8]) {
        let encrypted = if self.is_encrypted { ENCRYPTED } else { 0 };
        ByteWriter::new(buffer)
            .u16(MAGIC)
            .u8(self.version)
            .u8(self.kind as u8 | encrypted)
            .u32(self.session)
            .u64(self.sender.0)
            .u64(self.number);
    }
}

/// Header in front of a datagram's records: the stream and the position that they belong to.
///
/// ```text
///  0 length of this header u8   1 lane u8   2 items u16   4 epoch u32   8 sequence u64
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamHeader {
    pub(crate) lane: u8,
    pub(crate) epoch: u32,
    pub(crate) sequence: u64,
}

pub(crate) const STREAM_HEADER_LEN: usize = 16;

impl StreamHeader {
    /// Returns the header and the items behind it; further fields of a longer header are skipped.
    #[inline]
    pub(crate) fn parse(body: &[u8]) -> Option<(StreamHeader, &[u8])> {
        let mut reader = ByteReader(body);
        let [length, lane] = reader.array()?;
        reader.u16()?;
        let header = StreamHeader { lane, epoch: reader.u32()?, sequence: reader.u64()? };
        let rest = body.get(usize::from(length)..)?;
        (usize::from(length) >= STREAM_HEADER_LEN).then_some((header, rest))
    }

    #[inline]
    pub(crate) fn emit(&self, items: u16, buffer: &mut [u8]) {
        ByteWriter::new(buffer)
            .u8(STREAM_HEADER_LEN as u8)
            .u8(self.lane)
            .u16(items)
            .u32(self.epoch)
            .u64(self.sequence);
    }
}

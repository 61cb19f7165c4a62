//! HELLO: the datagram that sets up a session. Authenticated under a cluster key, never encrypted.
//!
//! ```text
//!  0 length of the fixed part u8 = 60   1 version min u8   2 version max u8
//!  3 flags u8 (bit 0: has the session)
//!  4 receiver u64   12 boot u128   28 challenge 16 B   44 echo 16 B
//! 60 parts of the fingerprint: type u8, length u8, digest u64
//! ```
//!
//! Parts of unknown type, fields behind those known here and parts that the sender does not name
//! are not compared.

use weir_ids::{BootId, PeerId};

use crate::bytes::{ByteReader, ByteWriter};
use crate::fingerprint::{Fingerprint, FingerprintPart};

/// A number drawn for one handshake: a peer that repeats it has received it, so its HELLO is
/// current.
pub(crate) type Challenge = [u8; 16];

const FIXED_LEN: usize = 60;

pub(crate) const HELLO_LEN: usize = FIXED_LEN + FingerprintPart::ALL.len() * 10;

const HAS_SESSION: u8 = 1;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) version_min: u8,
    pub(crate) version_max: u8,
    /// The sender has the session of these two challenges.
    pub(crate) has_session: bool,
    pub(crate) receiver: PeerId,
    pub(crate) boot: BootId,
    pub(crate) challenge: Challenge,
    /// The receiver's challenge; zero if the sender does not know it.
    pub(crate) echo: Challenge,
    pub(crate) fingerprint: Fingerprint,
}

impl Hello {
    /// Returns the boot id alone, which names the key that the rest must be authentic under.
    pub(crate) fn boot_of(body: &[u8]) -> Option<BootId> {
        let mut reader = ByteReader(body.get(12..)?);
        reader.u128().map(BootId)
    }

    /// Parses a HELLO; `own` supplies the parts that are missing.
    pub(crate) fn parse(body: &[u8], own: &Fingerprint) -> Option<Hello> {
        let mut reader = ByteReader(body);
        let [length, version_min, version_max, flags] = reader.array()?;
        let mut hello = Hello {
            version_min,
            version_max,
            has_session: flags & HAS_SESSION != 0,
            receiver: PeerId(reader.u64()?),
            boot: BootId(reader.u128()?),
            challenge: reader.array()?,
            echo: reader.array()?,
            fingerprint: *own,
        };
        let mut parts = ByteReader(body.get(usize::from(length)..)?);
        while let Some((kind, mut value)) = parts.field() {
            let part = FingerprintPart::ALL.into_iter().find(|part| *part as u8 == kind);
            if let (Some(part), Some(digest)) = (part, value.u64()) {
                hello.fingerprint = hello.fingerprint.with(part, digest);
            }
        }
        (usize::from(length) >= FIXED_LEN && version_min <= version_max).then_some(hello)
    }

    /// Returns its length.
    pub(crate) fn emit(&self, buffer: &mut [u8]) -> usize {
        let mut writer = ByteWriter::new(buffer);
        writer
            .u8(FIXED_LEN as u8)
            .u8(self.version_min)
            .u8(self.version_max)
            .u8(if self.has_session { HAS_SESSION } else { 0 })
            .u64(self.receiver.0)
            .u128(self.boot.0)
            .put(&self.challenge)
            .put(&self.echo);
        for part in FingerprintPart::ALL {
            writer.u8(part as u8).u8(8).u64(self.fingerprint.of(part));
        }
        writer.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        Hello {
            version_min: 1,
            version_max: 2,
            has_session: true,
            receiver: PeerId(3),
            boot: BootId(u128::MAX - 5),
            challenge: [1; 16],
            echo: [2; 16],
            fingerprint: Fingerprint::default()
                .with(FingerprintPart::Prefixes, 11)
                .with(FingerprintPart::Shards, 14),
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let mut buffer = [0; HELLO_LEN];
        assert_eq!(hello().emit(&mut buffer), HELLO_LEN);
        assert_eq!(Hello::parse(&buffer, &Fingerprint::default()), Some(hello()));
        assert_eq!(Hello::boot_of(&buffer), Some(hello().boot));
        for length in 0..FIXED_LEN {
            assert_eq!(Hello::parse(&buffer[..length], &Fingerprint::default()), None);
        }
    }

    /// A longer fixed part, an unknown part and a part that is left out.
    #[test]
    fn a_later_version_is_understood() {
        let mut buffer = [0; HELLO_LEN];
        hello().emit(&mut buffer);
        let mut later = buffer[..FIXED_LEN].to_vec();
        later[0] += 4;
        later.extend([9; 4]);
        later.extend([77, 3, 1, 1, 1]);
        later.extend(&buffer[FIXED_LEN..FIXED_LEN + 10]);
        let own = Fingerprint::default().with(FingerprintPart::Shards, 14);
        assert_eq!(Hello::parse(&later, &own), Some(hello()));
    }
}

//! Configuration that two workers must agree on before one may keep the other's records, part by
//! part.

/// A part of the configuration that replication depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FingerprintPart {
    /// Public prefixes of all shards.
    Prefixes = 1,
    /// Ports of a block.
    BlockSize = 2,
    /// Distribution of lanes.
    Lanes = 3,
    /// Shards, their numbers and endpoints.
    Shards = 4,
}

const PARTS: usize = 4;

impl FingerprintPart {
    /// All parts.
    pub const ALL: [FingerprintPart; PARTS] = [
        FingerprintPart::Prefixes,
        FingerprintPart::BlockSize,
        FingerprintPart::Lanes,
        FingerprintPart::Shards,
    ];

    /// Returns its name, as an operator knows it.
    pub fn name(self) -> &'static str {
        match self {
            FingerprintPart::Prefixes => "prefixes",
            FingerprintPart::BlockSize => "block size",
            FingerprintPart::Lanes => "lanes",
            FingerprintPart::Shards => "shards",
        }
    }
}

/// A digest of each part. The caller defines how a part is digested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fingerprint([u64; PARTS]);

impl Fingerprint {
    /// Returns this fingerprint with the digest of a part.
    #[must_use]
    pub fn with(mut self, part: FingerprintPart, digest: u64) -> Self {
        self.0[part as usize - 1] = digest;
        self
    }

    /// Returns the digest of a part; 0 if it was not given.
    pub fn of(&self, part: FingerprintPart) -> u64 {
        self.0[part as usize - 1]
    }
}

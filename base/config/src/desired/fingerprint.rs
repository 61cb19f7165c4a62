//! The settings that two workers must agree on before one may keep the other's records, as one
//! digest per part.

use std::fmt::{self, Write};

use crate::check::LANES;
use crate::desired::Desired;
use crate::types::{AccessSetting, GreKey};

/// A digest of each part, equal on every version and machine: the input is text, the digest FNV-1a,
/// 64 bits. It detects slips, not forgeries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DesiredFingerprint {
    /// The public prefixes of every shard, of both families.
    pub prefixes: u64,
    /// Ports per block, and whether there are blocks at all.
    pub block_size: u64,
    /// Assignment of blocks to lanes.
    pub lanes: u64,
    /// The shards' numbers, the homes of each, and what tells homes apart.
    pub shards: u64,
}

impl DesiredFingerprint {
    /// Returns the parts with their names.
    pub fn parts(&self) -> [(&'static str, u64); 4] {
        [
            ("prefixes", self.prefixes),
            ("block size", self.block_size),
            ("lanes", self.lanes),
            ("shards", self.shards),
        ]
    }
}

impl Desired {
    /// Returns the fingerprint of all settings that replication depends on.
    pub fn fingerprint(&self) -> DesiredFingerprint {
        let (mut prefixes, mut shards) = (Digest::new(), Digest::new());
        let key = match (self.access.mode, self.access.gre_key) {
            (AccessSetting::Plain, _) => "plain",
            (AccessSetting::Gre, GreKey::Ignore) => "gre",
            (AccessSetting::Gre, GreKey::Subscriber) => "gre with key",
        };
        shards.add(key);
        // Files without IPv6 keep the digests of versions that do not know it.
        if self.has_ipv6() && self.access.mode == AccessSetting::Plain {
            shards.add(format_args!("homes of /{}", self.ipv6.home_length6));
        }
        for shard in &self.shards {
            prefixes.add(shard.id);
            shard.public.iter().for_each(|net| prefixes.add(net));
            shard.public6.iter().for_each(|net| prefixes.add(net));
            shards.add(shard.id);
            shards.add(shard.endpoint.map_or_else(String::new, |endpoint| endpoint.to_string()));
            shard.endpoint6.iter().for_each(|endpoint| shards.add(endpoint));
            shard.subscribers.iter().for_each(|net| shards.add(net));
        }
        let block = if self.nat.enabled { self.nat.port_block } else { 0 };
        DesiredFingerprint {
            prefixes: prefixes.0,
            block_size: Digest::of(block),
            lanes: Digest::of(format_args!("block index mod {LANES}")),
            shards: shards.0,
        }
    }
}

/// FNV-1a (draft-eastlake-fnv), 64 bits.
struct Digest(u64);

impl Digest {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;

    fn new() -> Self {
        Self(Self::OFFSET)
    }

    fn of(value: impl fmt::Display) -> u64 {
        let mut digest = Self::new();
        digest.add(value);
        digest.0
    }

    /// Adds a value and a terminator.
    fn add(&mut self, value: impl fmt::Display) {
        let _ = writeln!(self, "{value}");
    }
}

impl Write for Digest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(Self::PRIME);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Test vectors of draft-eastlake-fnv.
    #[test]
    fn the_digest_is_fnv_1a() {
        let digest = |text: &str| {
            let mut digest = Digest::new();
            let _ = digest.write_str(text);
            digest.0
        };
        assert_eq!(digest(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(digest("a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(digest("foobar"), 0x8594_4171_f739_67e8);
    }
}

//! The public addresses of the cluster's shards: 16 each for few shards, one each for many, or a
//! configured number. Pure.

use std::net::Ipv4Addr;

/// The first public address (RFC 2544).
const FIRST: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);
/// The prefix that contains all of them.
pub(super) const PUBLIC: &str = "198.18.0.0/15";
/// Largest number of shards that have 16 addresses each. Beyond it, so many addresses would waste
/// memory.
const LARGE_SHARDS_MAX: u16 = 64;

/// The addresses of shards, which are numbered from 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct PublicSpace {
    /// Number of shards.
    pub(super) shards: u16,
    /// Configured length of a shard's prefix.
    pub(super) per_shard: Option<u8>,
}

impl PublicSpace {
    /// Returns the length of a shard's prefix, in bits.
    pub(super) fn per_shard(self) -> u8 {
        self.per_shard.unwrap_or(if self.shards <= LARGE_SHARDS_MAX { 28 } else { 32 })
    }

    /// Returns the prefix of shard `number`.
    pub(super) fn of(self, number: u16) -> String {
        let first = u32::from(number - 1) << (32 - self.per_shard());
        format!("{}/{}", address(first), self.per_shard())
    }

    /// Returns the fewest prefixes that cover all shards, in order: one for each set bit of their
    /// number.
    pub(super) fn prefixes(self) -> Vec<String> {
        let mut first = 0;
        let bits = (0..u16::BITS).rev().filter(|bit| self.shards >> bit & 1 == 1);
        let prefix = |bit| {
            let text = format!("{}/{}", address(first), u32::from(self.per_shard()) - bit);
            first += 1_u32 << (bit + 32 - u32::from(self.per_shard()));
            text
        };
        bits.map(prefix).collect()
    }
}

fn address(position: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(FIRST.to_bits() + position)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_of_any_number_of_shards_lie_side_by_side() {
        let space = |shards| PublicSpace { shards, per_shard: None };
        assert_eq!(space(8).prefixes(), ["198.18.0.0/25"]);
        assert_eq!(space(8).of(3), "198.18.0.32/28");
        assert_eq!(space(3).prefixes(), ["198.18.0.0/27", "198.18.0.32/28"]);
        let few = PublicSpace { per_shard: Some(30), ..space(8) };
        assert_eq!(
            (few.prefixes()[0].as_str(), few.of(3).as_str()),
            ("198.18.0.0/27", "198.18.0.8/30")
        );
        let many = space(300);
        assert_eq!(many.prefixes()[..2], ["198.18.0.0/24", "198.18.1.0/27"]);
        assert_eq!(many.of(300), "198.18.1.43/32");
    }
}

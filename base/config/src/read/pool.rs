//! `[[pool]]`.

use std::ops::RangeInclusive;

use crate::cluster_types::PoolSettings;
use crate::findings::Findings;
use crate::read::cluster::optional_commit;
use crate::read::{address, address6};
use crate::section::Section;

/// Default prefix length of a shard's homes in plain mode: 256 addresses.
const SUBSCRIBERS_PER_SHARD: u8 = 24;

/// Lengths of the prefixes that endpoints and steering addresses are taken from.
const STEER6_BITS: RangeInclusive<u8> = 16..=127;

pub(crate) fn read(section: &Section<'_>, findings: &mut Findings<'_>) -> PoolSettings {
    PoolSettings {
        first_id: section.integer("first_id", findings),
        endpoints: address::prefixes(section, "endpoints", findings),
        endpoints6: address6::prefixes(section, "endpoints6", STEER6_BITS, findings),
        steer: address::prefixes(section, "steer", findings),
        subscribers: address::prefixes(section, "subscribers", findings),
        subscribers_per_shard: section
            .optional_integer("subscribers_per_shard", findings)
            .unwrap_or(SUBSCRIBERS_PER_SHARD),
        public: address::prefixes(section, "public", findings),
        per_shard: section.integer("per_shard", findings),
        steer6: address6::prefixes(section, "steer6", STEER6_BITS, findings),
        public6: address6::prefixes(section, "public6", address6::PUBLIC6_BITS, findings),
        per_shard6: section.integer("per_shard6", findings),
        subscribers_max: section.integer("subscribers_max", findings),
        commit: optional_commit(section, findings),
    }
}

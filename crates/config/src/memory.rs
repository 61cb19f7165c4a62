//! How much memory the tables of a configuration take.

use crate::types::Config;

/// A 64-byte mapping record and a quarter more for those in quarantine, a 32-byte session record, and the shares
/// of three index lines of eight entries at nine tenths full.
const FLOW_BYTES: u64 = 80 + 32 + 27;
/// A slab of records per shard and lane may be part filled: 1,024 records of 64 bytes, and of 32.
const SHARD_BYTES: u64 = 8 * 1024 * (64 + 32);

impl Config {
    /// Bytes of the tables of all workers at most, an estimate. Packet buffers come on top.
    pub fn table_bytes_estimate(&self) -> u64 {
        let flows = self.workers.len() as u64 * u64::from(self.nat.flows_max);
        flows * FLOW_BYTES + self.shards.len() as u64 * SHARD_BYTES
    }
}

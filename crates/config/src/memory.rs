//! How much memory a configuration takes.

use crate::types::{Config, Worker};

/// A 64-byte mapping record and a quarter more for those in quarantine, a 32-byte session record, and the shares of two index lines
/// of eight entries at nine tenths full.
const FLOW_BYTES: u64 = 80 + 32 + 18;
/// DPDK's mbuf header, 128 bytes of headroom, object header and cache share.
const BUFFER_OVERHEAD_BYTES: u64 = 512;
/// Frames on their way through a worker: bursts of both sides, the pool's cache.
const BUFFERS_IN_FLIGHT: u64 = 1024;
/// EAL, threads, shards, logs.
const PROCESS_BYTES: u64 = 64 << 20;

impl Config {
    /// Bytes that the whole process takes at most, an estimate: flow tables, packet buffers, the rest.
    pub fn memory_bytes_estimate(&self) -> u64 {
        let workers = self.workers.len() as u64;
        let tables = workers * u64::from(self.nat.flows_max) * FLOW_BYTES;
        PROCESS_BYTES + tables + self.buffer_bytes_estimate()
    }

    /// Bytes of packet buffers of all workers, an estimate; what `node.memory_mb` is computed from.
    pub fn buffer_bytes_estimate(&self) -> u64 {
        let held = u64::from(self.fragments.held_max);
        self.workers.iter().map(|worker| worker.buffer_bytes(held)).sum()
    }
}

impl Worker {
    /// Two rings on each of two ports can be full of buffers at once.
    fn buffer_bytes(&self, held: u64) -> u64 {
        let descriptors = u64::from(self.rx_descriptors) + u64::from(self.tx_descriptors);
        let mtu = u64::from(self.access.mtu.max(self.internet.mtu));
        (2 * descriptors + held + BUFFERS_IN_FLIGHT) * (mtu + BUFFER_OVERHEAD_BYTES)
    }
}

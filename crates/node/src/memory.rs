//! How many packet buffers a worker needs, how much memory all of it takes, and whether the machine has it.

use std::fs;

use weir_config::{Config, Worker};
use weir_dpdk::{MbufPool, free_huge_pages_mb};
use weir_engine::OUTPUT_MAX;

/// Buffers an AF_XDP socket keeps in its rings, whatever the descriptors.
const XDP_BUFFERS_PER_PORT: u32 = 4096 + 64;
/// In caches of the pool and in bursts under way.
const SPARE_BUFFERS: u32 = 2048;
/// Rings, port structures and DPDK's own needs, without the pools.
const BASE_MB: usize = 64;
const PER_WORKER_MB: usize = 16;

/// One worker's pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PoolSize {
    pub buffers: u32,
    /// Bytes of each buffer, headroom included.
    pub data_room: u16,
}

/// Enough that full rings on both ports, a full output and all held fragments leave buffers for the next burst.
pub(crate) fn pool_size(worker: &Worker, fragments_held_max: u32) -> PoolSize {
    let rings = 2 * (u32::from(worker.rx_descriptors) + u32::from(worker.tx_descriptors));
    let mtu = worker.access.mtu.max(worker.internet.mtu);
    PoolSize {
        buffers: rings
            + 2 * XDP_BUFFERS_PER_PORT
            + 2 * OUTPUT_MAX as u32
            + fragments_held_max
            + SPARE_BUFFERS,
        data_room: MbufPool::data_room_for(mtu),
    }
}

/// Packet memory of the whole process, in MiB.
pub(crate) fn total_mb(config: &Config) -> usize {
    let pools: usize = config
        .workers
        .iter()
        .map(|worker| pool_size(worker, config.fragments.held_max))
        .map(|size| MbufPool::bytes(size.buffers, size.data_room))
        .sum();
    pools.div_ceil(1 << 20) + BASE_MB + PER_WORKER_MB * config.workers.len()
}

/// Refuses what does not fit before anything is touched: the kernel would not refuse the tables, it would end
/// the process while they are being filled.
///
/// # Errors
/// One sentence with what is needed, what there is, and what to change.
pub(crate) fn check(config: &Config) -> Result<(), String> {
    let tables_mb = (config.table_bytes_estimate() >> 20) as usize;
    let buffers_mb = config.node.memory_mb.map_or_else(|| total_mb(config), |mb| mb as usize);
    let available_mb = available_mb() + free_huge_pages_mb();
    if tables_mb + buffers_mb <= available_mb {
        return Ok(());
    }
    Err(format!(
        "needs about {} MiB ({tables_mb} for {} flows a worker, {buffers_mb} for packet buffers), the machine has \
         {available_mb} MiB free: lower nat.flows_max or add memory",
        tables_mb + buffers_mb,
        config.nat.flows_max,
    ))
}

/// Memory that can be had without swapping, in MiB; without `/proc` as much as anybody likes.
fn available_mb() -> usize {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    parse_available_mb(&text).unwrap_or(usize::MAX / 2)
}

fn parse_available_mb(text: &str) -> Option<usize> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: usize = line.split_whitespace().next()?.parse().ok()?;
    Some(kib / 1024)
}

/// Bytes of the largest frame of any port: MTU, Ethernet header, one VLAN tag.
pub(crate) fn frame_max(config: &Config) -> usize {
    let interfaces = config.workers.iter().flat_map(|worker| [&worker.access, &worker.internet]);
    interfaces.map(|interface| usize::from(interface.mtu) + 18).max().unwrap_or(1518)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_memory_is_read_from_meminfo() {
        let text = "MemTotal:       24607560 kB\nMemAvailable:   23000000 kB\nHugePages_Total: 0\n";
        assert_eq!(parse_available_mb(text), Some(22_460));
        assert_eq!(parse_available_mb("MemTotal: 1 kB"), None);
    }
}

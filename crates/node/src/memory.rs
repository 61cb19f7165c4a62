//! How many packet buffers a worker needs and how much memory all of them take.

use weir_config::{Config, Worker};
use weir_dpdk::MbufPool;
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

/// Bytes of the largest frame of any port: MTU, Ethernet header, one VLAN tag.
pub(crate) fn frame_max(config: &Config) -> usize {
    let interfaces = config.workers.iter().flat_map(|worker| [&worker.access, &worker.internet]);
    interfaces.map(|interface| usize::from(interface.mtu) + 18).max().unwrap_or(1518)
}

//! Computes the packet buffers that a worker needs and the memory of the process, and checks
//! whether the machine has that much.

use std::fs;

use weir_config::{Config, WorkerSettings};
use weir_dpdk::{FreeHugePages, MbufPool, free_huge_pages};
use weir_engine::OUTPUT_MAX;
use weir_nat::PageSize;
use weir_node_core::{ClusterRoom, TableMemory};

/// Buffers an AF_XDP socket keeps in its rings, whatever the descriptors.
const XDP_BUFFERS_PER_PORT: u32 = 4096 + 64;
/// Buffers in caches of the pool and in bursts under way.
const SPARE_BUFFERS: u32 = 2048;
/// Rings, port structures and DPDK's own needs, without the pools.
const BASE_MB: usize = 64;
const PER_WORKER_MB: usize = 16;

/// Ordinary memory left to the rest of this process and of the machine.
const RESERVE_MB: usize = 256;

/// One worker's pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PoolSize {
    pub buffers: u32,
    /// Bytes of each buffer, headroom included.
    pub data_room: u16,
}

/// Returns a pool large enough that full rings on both ports, a full output and `held_max` held
/// packets (fragments, and packets that wait for copies) leave buffers for the next burst.
pub(crate) fn pool_size(worker: &WorkerSettings, held_max: u32) -> PoolSize {
    let rings = 2 * (u32::from(worker.rx_descriptors) + u32::from(worker.tx_descriptors));
    let mtu = worker.access.mtu.max(worker.internet.mtu);
    PoolSize {
        buffers: rings
            + 2 * XDP_BUFFERS_PER_PORT
            + 2 * OUTPUT_MAX as u32
            + held_max
            + SPARE_BUFFERS,
        data_room: MbufPool::data_room_for(mtu),
    }
}

/// Returns the most packets that a worker holds.
pub(crate) fn held_max(config: &Config, room: Option<&ClusterRoom>) -> u32 {
    let commit = room.and_then(|room| room.commit).map_or(0, |limits| limits.held_max);
    // Fragments of tunnel packets are held beside inner ones, half as many.
    config.fragments.held_max + config.fragments.held_max / 2 + commit as u32
}

/// Returns the packet memory of the whole process, in MiB. `rooms`: room of the workers of a
/// cluster.
pub(crate) fn total_mb(config: &Config, rooms: &[ClusterRoom]) -> usize {
    let pools: usize = config
        .workers
        .iter()
        .enumerate()
        .map(|(index, worker)| pool_size(worker, held_max(config, rooms.get(index))))
        .map(|size| MbufPool::bytes(size.buffers, size.data_room))
        .sum();
    pools.div_ceil(1 << 20) + BASE_MB + PER_WORKER_MB * config.workers.len()
}

/// What the process needs.
struct Needs {
    buffers_mb: usize,
    /// Bytes of each region of the tables, in the order in which they are mapped.
    regions: Vec<usize>,
}

impl Needs {
    /// Returns the MiB of all, without what pages of 1 GiB leave unused.
    fn total_mb(&self) -> usize {
        self.buffers_mb + self.regions.iter().map(|bytes| bytes.div_ceil(1 << 20)).sum::<usize>()
    }
}

/// Memory that may be taken.
#[derive(Clone, Copy, Debug)]
struct Free {
    huge: FreeHugePages,
    ordinary_mb: usize,
}

impl Free {
    /// True if all of `needs` fits. Takes each piece from where it will be taken: all of it from
    /// huge pages if they are enough, else from ordinary memory.
    fn holds(mut self, needs: &Needs) -> bool {
        self.take_buffers(needs.buffers_mb)
            && needs.regions.iter().all(|&bytes| self.take_region(bytes))
    }

    /// DPDK mixes page sizes, and takes the smaller ones first.
    fn take_buffers(&mut self, mb: usize) -> bool {
        if mb > self.huge.total_mb() {
            return self.take_ordinary(mb);
        }
        let from_smaller = mb.min(self.huge.smaller_mb);
        self.huge.smaller_mb -= from_smaller;
        self.huge.gib_pages -= (mb - from_smaller).div_ceil(1024);
        true
    }

    /// Tries the page sizes of [`PageSize::huge_for`], as the tables do when they are built.
    fn take_region(&mut self, bytes: usize) -> bool {
        for page in PageSize::huge_for(bytes) {
            let (free, wanted) = match page {
                PageSize::Gib1 => (&mut self.huge.gib_pages, bytes.div_ceil(1 << 30)),
                _ => (&mut self.huge.smaller_mb, bytes.div_ceil(1 << 20)),
            };
            if wanted <= *free {
                *free -= wanted;
                return true;
            }
        }
        self.take_ordinary(bytes.div_ceil(1 << 20))
    }

    fn take_ordinary(&mut self, mb: usize) -> bool {
        let fits = mb <= self.ordinary_mb;
        self.ordinary_mb = self.ordinary_mb.saturating_sub(mb);
        fits
    }
}

/// Refuses a configuration that does not fit, before any memory is touched: the kernel would not
/// refuse the tables, but end the process while they are being filled.
///
/// # Errors
/// One sentence with what is needed, what there is, and what to change.
///
/// `rooms`: room of each worker, in a cluster.
pub(crate) fn check(config: &Config, rooms: &[ClusterRoom]) -> Result<(), String> {
    let ordinary_mb = available_mb().saturating_sub(RESERVE_MB);
    check_against(config, rooms, Free { huge: free_huge_pages(), ordinary_mb })
}

fn check_against(config: &Config, rooms: &[ClusterRoom], free: Free) -> Result<(), String> {
    let needs = needs(config, rooms);
    if free.holds(&needs) {
        return Ok(());
    }
    let (needed_mb, buffers_mb) = (needs.total_mb(), needs.buffers_mb);
    let tables_of = |worker| TableMemory::with_room(config, worker, rooms.get(worker));
    let workers = (0..config.workers.len()).map(tables_of);
    let tables: Vec<String> = workers.map(|tables| tables.to_string()).collect();
    let advice = match flows_that_fit(config, rooms, free) {
        _ if !free.holds(&Needs { regions: Vec::new(), ..needs }) => {
            "lower node.memory_mb or add memory".to_owned()
        }
        None => "add memory".to_owned(),
        Some(flows) => format!("lower nat.flows_max to {flows} or add memory"),
    };
    Err(format!(
        "needs {needed_mb} MiB: {buffers_mb} MiB for packet buffers, the rest for tables (each worker: {}); the \
         machine has {} MiB free, {} MiB of them in huge pages, not counting {RESERVE_MB} MiB for everything else: {advice}",
        tables.join("; "),
        free.huge.total_mb() + free.ordinary_mb,
        free.huge.total_mb(),
    ))
}

fn needs(config: &Config, rooms: &[ClusterRoom]) -> Needs {
    let tables = |worker| TableMemory::with_room(config, worker, rooms.get(worker)).tables;
    Needs {
        buffers_mb: config.node.memory_mb.map_or_else(|| total_mb(config, rooms), |mb| mb as usize),
        regions: (0..config.workers.len()).flat_map(|worker| tables(worker).regions()).collect(),
    }
}

/// Returns the pages of 2 MiB that the packet buffers and all tables of the node fit on.
pub(crate) fn huge_pages_for(config: &Config, rooms: &[ClusterRoom]) -> usize {
    let Needs { buffers_mb, regions } = needs(config, rooms);
    let on_huge = regions.into_iter().filter(|&bytes| !PageSize::huge_for(bytes).is_empty());
    buffers_mb.div_ceil(2) + on_huge.map(|bytes| bytes.div_ceil(2 << 20)).sum::<usize>()
}

/// Returns the largest `nat.flows_max`, in thousands, with which `config` fits; `None` if not even
/// the least does.
fn flows_that_fit(config: &Config, rooms: &[ClusterRoom], free: Free) -> Option<u32> {
    let fits = |thousands: u32| {
        let mut config = config.clone();
        config.nat.flows_max = thousands * 1000;
        free.holds(&needs(&config, rooms))
    };
    let (mut fitting, mut refused) = (0, config.nat.flows_max.div_ceil(1000));
    while refused - fitting > 1 {
        let middle = fitting.midpoint(refused);
        if fits(middle) { fitting = middle } else { refused = middle }
    }
    (fitting > 1).then_some(fitting * 1000)
}

/// Returns the memory available without swapping, in MiB; without `/proc` a value that refuses
/// nothing.
fn available_mb() -> usize {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    parse_available_mb(&text).unwrap_or(usize::MAX / 2)
}

fn parse_available_mb(text: &str) -> Option<usize> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: usize = line.split_whitespace().next()?.parse().ok()?;
    Some(kib / 1024)
}

/// Returns the bytes of the largest frame of any port: MTU, Ethernet header, one VLAN tag.
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

    const CONFIG: &str = r#"
[[worker]]
core = 1
access = { device = "net_null0", address = "10.1.0.1/24", gateway = "10.1.0.2" }
internet = { device = "net_null1", address = "10.2.0.1/24", gateway = "10.2.0.2" }
[access]
subscribers = ["10.200.0.0/16"]
[nat]
flows_max = 60_000_000
[[shard]]
id = 1
endpoint = "10.100.0.1"
public = ["203.0.113.0/28"]
"#;

    fn config() -> Config {
        weir_config::parse(CONFIG, "t.toml").unwrap().0
    }

    fn free(gib_pages: usize, smaller_mb: usize, ordinary_mb: usize) -> Free {
        Free { huge: FreeHugePages { gib_pages, smaller_mb }, ordinary_mb }
    }

    #[test]
    fn the_refusal_says_what_would_fit_and_that_fits() {
        let free = free(0, 0, 2000);
        let text = check_against(&config(), &[], free).unwrap_err();
        assert!(text.contains("the machine has 2000 MiB free"), "{text}");
        assert!(text.contains("60,000,000 flows"), "{text}");
        let (_, rest) = text.split_once("lower nat.flows_max to ").unwrap();
        let flows: u32 = rest.split(' ').next().unwrap().parse().unwrap();
        assert!((15_000_000..22_000_000).contains(&flows), "{text}");
        let mut smaller = config();
        smaller.nat.flows_max = flows;
        check_against(&smaller, &[], free).unwrap();
        smaller.nat.flows_max += 100_000;
        check_against(&smaller, &[], free).unwrap_err();
    }

    #[test]
    fn a_refusal_that_no_table_size_can_change_says_so() {
        let text = check_against(&config(), &[], free(0, 0, 10)).unwrap_err();
        assert!(text.ends_with("lower node.memory_mb or add memory"), "{text}");
        let buffers = total_mb(&config(), &[]);
        let text = check_against(&config(), &[], free(0, 0, buffers)).unwrap_err();
        assert!(text.ends_with("everything else: add memory"), "{text}");
    }

    #[test]
    fn the_huge_pages_to_reserve_hold_everything_and_are_not_many_more() {
        let pages = huge_pages_for(&config(), &[]);
        check_against(&config(), &[], free(0, 2 * pages, 100)).unwrap();
        check_against(&config(), &[], free(0, 2 * pages - 40, 100)).unwrap_err();
    }

    /// A table lies on huge pages as a whole or not at all: remaining huge pages help no other
    /// table.
    #[test]
    fn huge_pages_and_ordinary_memory_do_not_add_up() {
        check_against(&config(), &[], free(0, 6000, 100)).unwrap();
        check_against(&config(), &[], free(0, 0, 6000)).unwrap();
        check_against(&config(), &[], free(0, 3000, 3000)).unwrap_err();
    }

    /// 60 million records are 3.6 GiB; the indexes, 0.5 GiB each, lie on smaller pages.
    #[test]
    fn pages_of_1_gib_hold_the_records_alone_and_are_taken_whole() {
        check_against(&config(), &[], free(4, 2000, 300)).unwrap();
        check_against(&config(), &[], free(3, 2000, 300)).unwrap_err();
        check_against(&config(), &[], free(8, 0, 300)).unwrap_err();
        let buffers = Needs { buffers_mb: 1500, regions: Vec::new() };
        assert!(free(1, 500, 0).holds(&buffers));
        assert!(!free(1, 400, 0).holds(&buffers));
        let with_region = Needs { buffers_mb: 1500, regions: vec![1 << 30] };
        assert!(free(2, 500, 0).holds(&with_region));
        assert!(!free(2, 475, 0).holds(&with_region));
    }
}

//! Common parts of the device tests: an EAL in ordinary memory, numbered frames, and waiting for a
//! condition.
//!
//! DPDK starts once per process, so each scenario is a test binary of its own.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::time::{Duration, Instant};

use weir_dpdk::{Eal, EalConfig, HugePages, Mbuf, MbufPool, Port, PortConfig, RxQueue};
use weir_wire::frame::{Frame, Pool};

/// Local experimental EtherType (IEEE 802 section 9.2.3), which distinguishes these frames from
/// those that the kernel sends on its own.
pub(crate) const EXPERIMENTAL: [u8; 2] = [0x88, 0xb5];
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn eal() -> Eal {
    let config = EalConfig { memory_mb: 256, hugepages: HugePages::Never, ..EalConfig::default() };
    Eal::init(config).expect("the EAL starts")
}

/// Makes a pool with enough buffers for two AF_XDP ports.
pub(crate) fn pool() -> MbufPool {
    MbufPool::new("packets", 16_384, MbufPool::data_room_for(1500), -1).expect("the pool fits")
}

pub(crate) fn port_config(pool: &MbufPool) -> PortConfig {
    PortConfig {
        rx_descriptors: 1024,
        tx_descriptors: 1024,
        mtu: 1500,
        mac: None,
        pool: pool.clone(),
        socket: -1,
    }
}

pub(crate) fn attach(eal: &Eal, devargs: &str, pool: &MbufPool) -> Port {
    Port::attach(eal, devargs, port_config(pool)).unwrap_or_else(|error| panic!("{error}"))
}

/// Returns the bytes of frame `number`: 60 to 1,514 of them, all different from frame to frame.
pub(crate) fn bytes(number: usize) -> Vec<u8> {
    let len = 60 + number * 97 % 1455;
    let mut bytes: Vec<u8> = (0..len).map(|position| (position * 7 + number * 13) as u8).collect();
    bytes[..6].copy_from_slice(&[0x02, 0, 0, 0, 0, 1]);
    bytes[6..12].copy_from_slice(&[0x02, 0, 0, 0, 0, 2]);
    bytes[12..14].copy_from_slice(&EXPERIMENTAL);
    bytes[14..18].copy_from_slice(&(number as u32).to_be_bytes());
    bytes
}

pub(crate) fn frame(pool: &mut MbufPool, content: &[u8]) -> Mbuf {
    let mut frame = pool.alloc().expect("the pool has buffers");
    assert!(frame.extend(content.len()));
    frame.data_mut().copy_from_slice(content);
    frame
}

pub(crate) fn is_ours(frame: &Mbuf) -> bool {
    frame.data().get(12..14) == Some(&EXPERIMENTAL)
}

/// Polls until `count` frames of the test have arrived, and returns their contents in order.
pub(crate) fn receive(queue: &mut RxQueue, count: usize) -> Vec<Vec<u8>> {
    let mut burst = Vec::new();
    let mut contents = Vec::new();
    wait_until("the frames arrive", || {
        queue.burst(&mut burst, 32);
        contents
            .extend(burst.iter().filter(|frame| is_ours(frame)).map(|frame| frame.data().to_vec()));
        Mbuf::free_all(&mut burst);
        contents.len() >= count
    });
    contents
}

pub(crate) fn wait_until(what: &str, mut is_done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_done() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        std::thread::yield_now();
    }
}

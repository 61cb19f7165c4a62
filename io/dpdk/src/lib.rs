//! EAL, ports, mbufs, bursts: the safe layer over DPDK.
//!
//! ```text
//!   Eal::init --> MbufPool::new --> Port::attach --> (RxQueue, TxQueue)     one pair per worker
//!                      |                                 |        ^         thread
//!                      +--------- Mbuf ------------------+--------+      owned: dropped = freed,
//!                                                                        sent = moved
//! ```
//!
//! Rules that the types enforce: one EAL per process; a device is touched only after the EAL
//! started; a queue is polled by one thread at a time; an [`Mbuf`] has one owner; a port closes
//! when its handle and both its queues are gone.
//!
//! Not supported: no offload is requested and no offload flag is read or set; no multi-queue ports
//! (a worker has its own ports); no secondary processes.
//!
//! `unsafe` is used for the calls into the C shim and for packet memory that DPDK owns, one
//! operation per block.
#![allow(unsafe_code)]

mod capability;
mod clock;
mod core_pinning;
mod device;
mod driver_log;
mod eal;
mod eal_arguments;
mod error;
mod huge_pages;
mod iova_mode;
mod kernel_link;
mod mbuf;
mod memif_socket;
mod netlink;
mod numa;
mod output_capture;
mod pool;
mod port;
mod port_attach;
mod prefetch;
#[cfg(target_arch = "x86_64")]
mod processor;
mod queue;
mod virtual_link;
mod worker_thread;
mod xdp_claim;
mod xdp_program;

pub use clock::{tsc, tsc_hz};
pub use core_pinning::{pin_current_thread, pin_current_thread_to, socket_of_core};
pub use eal::{Eal, EalConfig, HugePages};
pub use error::DpdkError;
pub use huge_pages::{FreeHugePages, free_huge_pages, free_huge_pages_mb};
pub use mbuf::Mbuf;
pub use pool::MbufPool;
pub use port::{Port, PortConfig, PortStats};
#[cfg(target_arch = "x86_64")]
pub use processor::ProcessorFeatures;
pub use queue::{RxQueue, TxQueue};
pub use worker_thread::{RegisteredThread, register_worker_thread};

//! A started port: its properties, its counters, and its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use weir_dpdk_sys as sys;
use weir_wire::ethernet::Mac;

use crate::eal::Eal;
use crate::error::DpdkError;
use crate::kernel_link;
use crate::pool::MbufPool;
use crate::port_attach;
use crate::queue::{RxQueue, TxQueue};
use crate::xdp_claim::XdpClaim;

/// Configuration of a port.
#[derive(Debug, Clone)]
pub struct PortConfig {
    /// Receive ring size; adjusted to what the device allows.
    pub rx_descriptors: u16,
    /// Transmit ring size; adjusted likewise.
    pub tx_descriptors: u16,
    /// Largest IP packet in bytes.
    pub mtu: u16,
    /// The MAC address to use instead of the device's own.
    pub mac: Option<Mac>,
    /// Pool of the received frames. AF_XDP needs more than 4,096 buffers per port.
    pub pool: MbufPool,
    /// NUMA node of the rings and of the core that polls the port, -1 for any.
    pub socket: i32,
}

/// Counters of a port since its start, as the device keeps them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PortStats {
    pub rx_packets: u64,
    pub tx_packets: u64,
    pub rx_bytes: u64,
    pub tx_bytes: u64,
    /// Packets that arrived and were lost because the receive ring was not emptied in time.
    pub rx_missed: u64,
    pub rx_errors: u64,
    pub tx_errors: u64,
    /// Packets lost because the pool had no buffer left.
    pub rx_no_mbuf: u64,
}

/// A port that is configured and started. It closes when this handle and both queues are dropped.
#[derive(Debug)]
pub struct Port {
    pub(crate) open: Arc<OpenPort>,
    pub(crate) device: String,
    pub(crate) driver: String,
    pub(crate) mac: Mac,
    pub(crate) kernel_interface: Option<String>,
    pub(crate) warnings: Vec<String>,
    pub(crate) numa_warning: Option<String>,
    pub(crate) hint: Option<String>,
    pub(crate) queues_taken: AtomicBool,
}

impl Port {
    /// Probes a device (`net_af_xdp0,iface=acc0`, `0000:01:00.0`), gives it one receive and one
    /// transmit queue, and starts it.
    ///
    /// Remains of a killed process on the device (an XDP program, a memif socket file) are removed
    /// first. On failure everything is undone and the error says in one sentence what to do.
    pub fn attach(_eal: &Eal, devargs: &str, config: PortConfig) -> Result<Port, DpdkError> {
        port_attach::attach(devargs, config)
    }

    /// Returns the port's two queues, to be moved to the thread that polls them.
    ///
    /// # Panics
    /// Panics on a second call: a queue has one owner.
    pub fn queues(&self) -> (RxQueue, TxQueue) {
        let is_second_call = self.queues_taken.swap(true, Ordering::AcqRel);
        assert!(!is_second_call, "the queues of port {} were already taken", self.device);
        (RxQueue::new(Arc::clone(&self.open)), TxQueue::new(Arc::clone(&self.open)))
    }

    /// Returns the MAC address of the port's frames: the configured one, or the device's own.
    pub fn mac(&self) -> Mac {
        self.mac
    }

    /// Returns the device string with which the port was attached.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// Returns the name of its DPDK driver, such as `net_af_xdp`.
    pub fn driver(&self) -> &str {
        &self.driver
    }

    /// Returns what works less well than requested, one sentence each.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Returns a warning, one sentence, if the device lies on another NUMA node than
    /// [`PortConfig::socket`].
    pub fn numa_warning(&self) -> Option<&str> {
        self.numa_warning.as_deref()
    }

    /// Returns advice for the other end of a virtual link on which packets get lost without it.
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Returns the counters of the device; zeros if it keeps none.
    pub fn stats(&self) -> PortStats {
        let mut stats = sys::weir_port_stats::default();
        // JUSTIFICATION: only the driver has the counters.
        // SAFETY: `stats` lives during the call; the port is open while `self.open` lives.
        let code = unsafe { sys::weir_port_stats(self.open.id(), &raw mut stats) };
        if code != 0 {
            return PortStats::default();
        }
        PortStats {
            rx_packets: stats.rx_packets,
            tx_packets: stats.tx_packets,
            rx_bytes: stats.rx_bytes,
            tx_bytes: stats.tx_bytes,
            rx_missed: stats.rx_missed,
            rx_errors: stats.rx_errors,
            tx_errors: stats.tx_errors,
            rx_no_mbuf: stats.rx_no_mbuf,
        }
    }

    /// Whether the link is up: for memif, whether the peer is connected; for AF_XDP, what the
    /// kernel reports about the interface.
    pub fn link_up(&self) -> bool {
        let kernel_link = self.kernel_interface.as_deref().and_then(kernel_link::is_up);
        if kernel_link == Some(false) {
            return false;
        }
        // JUSTIFICATION: only the driver knows the link state.
        // SAFETY: the port is open while `self.open` lives.
        unsafe { sys::weir_port_link_up(self.open.id()) != 0 }
    }
}

/// An attached device; dropping it stops, closes and detaches it.
#[derive(Debug)]
pub(crate) struct OpenPort {
    id: u16,
    /// The pool whose buffers are in the receive ring.
    _pool: MbufPool,
    /// The queue claim of an AF_XDP port; released after the port is closed.
    _claim: Option<XdpClaim>,
}

impl OpenPort {
    pub(crate) fn new(id: u16, pool: MbufPool, claim: Option<XdpClaim>) -> OpenPort {
        OpenPort { id, _pool: pool, _claim: claim }
    }

    pub(crate) fn id(&self) -> u16 {
        self.id
    }
}

impl Drop for OpenPort {
    fn drop(&mut self) {
        // A device that does not close cleanly is closed when the process ends.
        // JUSTIFICATION: the counterpart of the probe.
        // SAFETY: this is the last owner, so no queue of the port is in use.
        unsafe { sys::weir_port_remove(self.id) };
    }
}

//! The ports of one worker: attached, started, and shown to the control side.

use weir_config::{InterfaceSettings, WorkerSettings};
use weir_dpdk::{Eal, MbufPool, Port, PortConfig, socket_of_core};
use weir_engine::Side;
use weir_wire::ethernet::Mac;

use crate::dpdk_ports::PortQueues;
use crate::failure::Failure;
use crate::node::{PortHandle, PortSample};

/// One started port.
#[derive(Debug)]
pub(crate) struct StartedPort {
    pub mac: Mac,
    pub queues: PortQueues,
    pub handle: PortHandle,
}

/// Attaches one side of a worker and starts it.
///
/// # Errors
/// When the device is missing or does not start.
pub(crate) fn attach(
    eal: &Eal,
    worker: usize,
    config: &WorkerSettings,
    side: Side,
    pool: &MbufPool,
) -> Result<StartedPort, Failure> {
    let interface = match side {
        Side::Access => &config.access,
        Side::Internet => &config.internet,
    };
    let port_config = PortConfig {
        rx_descriptors: config.rx_descriptors,
        tx_descriptors: config.tx_descriptors,
        mtu: interface.mtu,
        mac: interface.mac.map(Mac),
        pool: pool.clone(),
        socket: socket_of_core(config.core),
    };
    let port = Port::attach(eal, &interface.device, port_config).map_err(|error| {
        Failure::Device { worker, side: side.name(), reason: error.to_string() }
    })?;
    for warning in port.warnings().iter().map(String::as_str).chain(port.hint()) {
        tracing::warn!(event = "port-warning", worker, side = side.name(), "{warning}");
    }
    if let Some(warning) = port.numa_warning() {
        tracing::warn!(event = "port-on-other-numa-node", worker, side = side.name(), "{warning}");
    }
    let (rx, tx) = port.queues();
    Ok(StartedPort {
        mac: port.mac(),
        queues: PortQueues { rx, tx },
        handle: handle(interface, port),
    })
}

fn handle(interface: &InterfaceSettings, port: Port) -> PortHandle {
    let mac = port.mac().to_string();
    PortHandle {
        device: interface.device.clone(),
        mac,
        address: interface.address.to_string(),
        gateways: interface.gateways.iter().map(ToString::to_string).collect(),
        gateways6: interface
            .ipv6
            .iter()
            .flat_map(|ipv6| ipv6.gateways.iter().map(ToString::to_string))
            .collect(),
        hint: port.hint().unwrap_or_default().to_owned(),
        sample: Box::new(move || {
            let stats = port.stats();
            let rx_missed_total = stats.rx_missed + stats.rx_no_mbuf;
            PortSample { is_link_up: port.link_up(), rx_missed_total }
        }),
    }
}

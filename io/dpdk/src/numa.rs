//! The NUMA node of a device, compared with that of the core that polls it: each packet of a device
//! on another node crosses the link between the processors.

use std::fs;
use std::path::Path;

use crate::device::DeviceKind;

/// Returns the NUMA node of a device; `None` if it has none or it is unknown.
///
/// `reported`: what DPDK says. That counts for PCI devices alone: drivers of virtual devices report
/// the node of the thread that attaches them. `interface`: the kernel interface under the device,
/// which `interfaces` (`/sys/class/net`) has a folder for.
pub(crate) fn node_of_device(
    kind: DeviceKind,
    reported: i32,
    interfaces: &Path,
    interface: Option<&str>,
) -> Option<u32> {
    let node = match (kind, interface) {
        (DeviceKind::Pci, _) => reported,
        (_, Some(interface)) => {
            let file = interfaces.join(interface).join("device/numa_node");
            fs::read_to_string(file).ok()?.trim().parse().ok()?
        }
        (_, None) => return None,
    };
    u32::try_from(node).ok()
}

/// Returns a warning if the device lies on another NUMA node than `socket`, the node of the core
/// that polls it (-1: unknown).
pub(crate) fn warning(device: &str, node: Option<u32>, socket: i32) -> Option<String> {
    let core_node = u32::try_from(socket).ok()?;
    let node = node.filter(|&node| node != core_node)?;
    Some(format!(
        "device {device} is on NUMA node {node}, the worker's core on node {core_node}: each packet crosses between \
         them; choose a core of node {node} (lscpu) or a device of node {core_node}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_on_another_node_than_its_core_is_warned_of() {
        let text = warning("0000:81:00.0", Some(1), 0).expect("the nodes differ");
        for part in ["0000:81:00.0 is on NUMA node 1", "core on node 0", "a core of node 1"] {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(warning("0000:81:00.0", Some(1), 1), None);
        assert_eq!(warning("0000:81:00.0", Some(1), -1), None);
        assert_eq!(warning("net_memif0", None, 1), None);
    }

    #[test]
    fn the_node_of_a_pci_device_is_reported_by_dpdk_and_that_of_others_by_the_kernel() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for (interface, node) in [("eth0", "1\n"), ("eth1", "-1\n")] {
            let device = folder.path().join(interface).join("device");
            fs::create_dir_all(&device).expect("creates");
            fs::write(device.join("numa_node"), node).expect("writes");
        }
        let of = |kind, interface| node_of_device(kind, 2, folder.path(), interface);
        assert_eq!(of(DeviceKind::Pci, None), Some(2));
        assert_eq!(of(DeviceKind::AfXdp, Some("eth0")), Some(1));
        assert_eq!(of(DeviceKind::AfXdp, Some("eth1")), None);
        assert_eq!(of(DeviceKind::AfXdp, Some("veth0")), None);
        assert_eq!(of(DeviceKind::Memif, None), None);
        assert_eq!(node_of_device(DeviceKind::Pci, -1, folder.path(), None), None);
    }
}

//! The addresses that devices see: virtual ones, or physical ones where a device can use nothing
//! else.
//!
//! DPDK picks physical addresses on every machine without an IOMMU, although only a NIC that does
//! DMA without one needs them. Virtual addresses keep each pool contiguous, which AF_XDP relies on,
//! so they are used wherever possible.

use std::fs;
use std::path::Path;

/// Returns the argument to add; `None` where DPDK should decide.
pub(crate) fn argument() -> Option<&'static str> {
    (!needs_physical_addresses(Path::new("/sys"))).then_some("--iova-mode=va")
}

/// True if a PCI device is bound to user space and the machine has no IOMMU.
fn needs_physical_addresses(sys: &Path) -> bool {
    let has_iommu = fs::read_dir(sys.join("kernel/iommu_groups"))
        .is_ok_and(|mut groups| groups.next().is_some());
    let Ok(devices) = fs::read_dir(sys.join("bus/pci/devices")) else {
        return false;
    };
    devices.flatten().any(|device| match fs::read_link(device.path().join("driver")) {
        Ok(driver) => match driver.file_name().and_then(|name| name.to_str()) {
            Some("igb_uio" | "uio_pci_generic") => true,
            Some("vfio-pci") => !has_iommu,
            _ => false,
        },
        Err(_) => false,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn machine(driver: &str, has_iommu: bool) -> tempfile::TempDir {
        let sys = tempfile::tempdir().expect("a temporary folder");
        let device = sys.path().join("bus/pci/devices/0000:01:00.0");
        fs::create_dir_all(&device).expect("creates");
        symlink(format!("/sys/bus/pci/drivers/{driver}"), device.join("driver")).expect("links");
        if has_iommu {
            fs::create_dir_all(sys.path().join("kernel/iommu_groups/0")).expect("creates");
        }
        sys
    }

    #[test]
    fn only_a_user_space_nic_without_iommu_needs_physical_addresses() {
        for (driver, has_iommu, expected) in [
            ("virtio-pci", false, false),
            ("vfio-pci", true, false),
            ("vfio-pci", false, true),
            ("uio_pci_generic", true, true),
        ] {
            let sys = machine(driver, has_iommu);
            assert_eq!(
                needs_physical_addresses(sys.path()),
                expected,
                "{driver}, iommu {has_iommu}"
            );
        }
    }
}

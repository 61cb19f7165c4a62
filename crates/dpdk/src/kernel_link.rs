//! The link of a kernel interface under an AF_XDP port, whose driver says "up" whatever happens to the interface.

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;

use crate::device::{Device, Kind};

/// The kernel interface that a device uses; `None` for devices that use none.
pub(crate) fn interface_of(device: &Device) -> Option<String> {
    match device.kind {
        Kind::AfXdp => device.option("iface").map(str::to_owned),
        Kind::Pci | Kind::Memif | Kind::Virtual => None,
    }
}

/// Whether the interface is there, switched on and has a link. `None` when the kernel does not say.
pub(crate) fn is_up(interface: &str) -> Option<bool> {
    let wanted = InterfaceFlags::IFF_UP | InterfaceFlags::IFF_RUNNING;
    let mut entries = getifaddrs().ok()?.filter(|entry| entry.interface_name == interface);
    Some(entries.next().is_some_and(|entry| entry.flags.contains(wanted)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_af_xdp_lies_on_a_kernel_interface() {
        let interface = |devargs| interface_of(&Device::parse(devargs).unwrap());
        assert_eq!(interface("net_af_xdp7,start_queue=1,iface=net0").as_deref(), Some("net0"));
        assert_eq!(interface("net_tap0,iface=tap0"), None);
        assert_eq!(interface("0000:01:00.0"), None);
    }

    #[test]
    fn an_interface_that_is_gone_has_no_link() {
        assert_eq!(is_up("weir-no-such-0"), Some(false));
    }
}

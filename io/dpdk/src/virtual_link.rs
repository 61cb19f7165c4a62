//! Kernel interfaces under AF_XDP without a physical link: a pair of veth, a virtio card. A kernel
//! that sends on the other end leaves the checksums of TCP and UDP to a network card, and there is
//! none, so the receiver behind weir drops the packets.

use std::fs;
use std::path::Path;

/// The folder in which the kernel lists the interfaces of the network namespace.
pub(crate) const INTERFACES: &str = "/sys/class/net";

/// Returns advice for the other end of the interface, if it is such a link. `interfaces`:
/// [`INTERFACES`].
pub(crate) fn hint(interfaces: &Path, interface: &str, mtu: u16) -> Option<String> {
    let (what, far_end) = if is_virtio(&interfaces.join(interface)) {
        ("a virtio card", "the interface of the host behind it".to_owned())
    } else {
        let peer = veth_peer(interfaces, interface)?;
        ("one end of a veth", peer.unwrap_or_else(|| "the other end".to_owned()))
    };
    Some(format!(
        "{interface} is {what}: if ping works and TCP hangs, a kernel on the other end leaves checksums unfinished; on \
         {far_end}: `ethtool -K INTERFACE tx off tso off gso off gro off`, and an MTU of {mtu} at most"
    ))
}

fn is_virtio(interface: &Path) -> bool {
    let driver = fs::read_link(interface.join("device/driver"));
    driver.is_ok_and(|driver| driver.file_name().is_some_and(|name| name == "virtio_net"))
}

/// Returns `None` if it is no veth, and `Some(None)` if its other end is in another network
/// namespace.
fn veth_peer(interfaces: &Path, interface: &str) -> Option<Option<String>> {
    let folder = interfaces.join(interface);
    let number = |folder: &Path, name: &str| -> Option<u32> {
        fs::read_to_string(folder.join(name)).ok()?.trim().parse().ok()
    };
    let (own, other) = (number(&folder, "ifindex")?, number(&folder, "iflink")?);
    let uevent = fs::read_to_string(folder.join("uevent")).unwrap_or_default();
    // Interfaces of other kinds that are on top of another one (VLANs, macvlan) state their kind.
    let is_veth = own != other && !uevent.contains("DEVTYPE=") && !folder.join("device").exists();
    is_veth.then(|| {
        let all = fs::read_dir(interfaces).into_iter().flatten().flatten();
        let is_peer = |folder: &Path| {
            number(folder, "ifindex") == Some(other) && number(folder, "iflink") == Some(own)
        };
        let peer = all.map(|entry| entry.path()).find(|folder| is_peer(folder))?;
        Some(peer.file_name()?.to_str()?.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn interface(interfaces: &Path, name: &str, ifindex: u32, iflink: u32, kind: &str) {
        let folder = interfaces.join(name);
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("ifindex"), format!("{ifindex}\n")).unwrap();
        fs::write(folder.join("iflink"), format!("{iflink}\n")).unwrap();
        let kind = if kind.is_empty() { String::new() } else { format!("DEVTYPE={kind}\n") };
        fs::write(folder.join("uevent"), format!("{kind}INTERFACE={name}\nIFINDEX={ifindex}\n"))
            .unwrap();
    }

    #[test]
    fn veth_and_virtio_need_checksums_of_their_peers_and_wires_do_not() {
        let folder = tempfile::tempdir().unwrap();
        let all = folder.path();
        interface(all, "acc0", 7, 8, "");
        interface(all, "peer0", 8, 7, "");
        interface(all, "net0", 9, 3, "");
        // Its other end has an index that another interface has here.
        interface(all, "other", 3, 3, "");
        interface(all, "eth1", 4, 4, "");
        interface(all, "eth1.100", 10, 4, "vlan");
        interface(all, "ens3", 5, 5, "");
        for (name, driver) in [("eth1", "ixgbe"), ("ens3", "virtio_net")] {
            let device = all.join(name).join("device");
            fs::create_dir(&device).unwrap();
            symlink(format!("../../bus/drivers/{driver}"), device.join("driver")).unwrap();
        }
        let hint = |name: &str| hint(all, name, 1500);
        let veth = hint("acc0").unwrap();
        assert!(
            veth.contains("acc0 is one end of a veth") && veth.contains("on peer0: "),
            "{veth}"
        );
        assert!(veth.contains("ethtool -K") && veth.contains("tx off tso off gso off gro off"));
        assert!(veth.contains("MTU of 1500"), "{veth}");
        assert!(hint("net0").unwrap().contains("on the other end: "));
        assert!(hint("ens3").unwrap().contains("ens3 is a virtio card"));
        for wire in ["eth1", "eth1.100", "other", "absent"] {
            assert_eq!(hint(wire), None, "{wire}");
        }
    }
}

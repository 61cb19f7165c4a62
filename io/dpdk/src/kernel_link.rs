//! Link state of a kernel interface under an AF_XDP port, whose driver reports "up" whatever
//! happens to the interface.

use std::ffi::OsStr;
use std::fs;
use std::os::fd::AsRawFd;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use crate::device::{Device, DeviceKind};

/// Returns the kernel interface that a device uses; `None` for devices that use none.
pub(crate) fn interface_of(device: &Device) -> Option<String> {
    match device.kind {
        DeviceKind::AfXdp => device.option("iface").map(str::to_owned),
        DeviceKind::Pci | DeviceKind::Memif | DeviceKind::Virtual => None,
    }
}

/// Returns a warning if an interface has several receive queues, because the port reads only the
/// first. `interfaces`: /sys/class/net.
pub(crate) fn unread_queues(interfaces: &Path, interface: &str) -> Option<String> {
    let queues = fs::read_dir(interfaces.join(interface).join("queues")).ok()?.flatten();
    let is_receiving = |name: &OsStr| name.as_encoded_bytes().starts_with(b"rx-");
    let count = queues.filter(|queue| is_receiving(&queue.file_name())).count();
    (count > 1).then(|| {
        format!(
            "{interface} has {count} receive queues and the port reads one: packets that come in the others are lost, and \
             nothing counts them; `ethtool -L {interface} combined 1`, or a veth made with `numrxqueues 1 numtxqueues 1`"
        )
    })
}

mod request {
    nix::ioctl_read_bad!(flags, libc::SIOCGIFFLAGS, libc::ifreq);
}

/// Whether the interface exists, is switched on and has a link. `None` if the kernel does not
/// report it.
///
/// Cheap enough for a hundred calls a second: it queries this interface alone (netdevice(7)), not a
/// list of all.
pub(crate) fn is_up(interface: &str) -> Option<bool> {
    let domain = AddressFamily::Inet;
    let socket = socket(domain, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None).ok()?;
    let mut about = libc::ifreq {
        ifr_name: [0; libc::IFNAMSIZ],
        ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_flags: 0 },
    };
    if interface.len() >= libc::IFNAMSIZ {
        return Some(false);
    }
    for (to, from) in about.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    // JUSTIFICATION: no library queries one interface without listing all.
    // SAFETY: the kernel reads the name, which ends in 0, and writes within `about`.
    match unsafe { request::flags(socket.as_raw_fd(), &raw mut about) } {
        Ok(_) => {}
        Err(Errno::ENODEV) => return Some(false),
        Err(_) => return None,
    }
    // SAFETY: the kernel has written this field of the union, and any bits are a number.
    let flags = libc::c_int::from(unsafe { about.ifr_ifru.ifru_flags });
    let wanted = libc::IFF_UP | libc::IFF_RUNNING;
    Some(flags & wanted == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_receive_queue_is_named_and_further_transmit_queues_do_no_harm() {
        let folder = tempfile::tempdir().unwrap();
        for (interface, queues) in
            [("one", &["rx-0", "tx-0", "tx-1"][..]), ("two", &["rx-0", "rx-1", "tx-0"])]
        {
            for queue in queues {
                fs::create_dir_all(folder.path().join(interface).join("queues").join(queue))
                    .unwrap();
            }
        }
        let warning_of = |interface| unread_queues(folder.path(), interface);
        assert_eq!((warning_of("one"), warning_of("absent")), (None, None));
        let warning = warning_of("two").unwrap();
        assert!(warning.starts_with("two has 2 receive queues"), "{warning}");
        assert!(warning.contains("ethtool -L two combined 1"), "{warning}");
    }

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
        assert_eq!(is_up("a name that no interface can have"), Some(false));
    }
}

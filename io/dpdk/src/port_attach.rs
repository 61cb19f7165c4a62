//! Makes a started port of a device string, step by step; a step that fails undoes those before it.
//!
//! Probe and start follow each other immediately: a memif peer that connects in between would never
//! recover.

use std::ffi::{CStr, CString};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use weir_dpdk_sys as sys;
use weir_wire::ethernet::Mac;

use crate::capability::lacks_sys_admin;
use crate::device::{Device, DeviceKind};
use crate::driver_log;
use crate::error::{DpdkError, errno_text};
use crate::kernel_link;
use crate::memif_socket;
use crate::numa;
use crate::port::{OpenPort, Port, PortConfig};
use crate::virtual_link;
use crate::xdp_claim::XdpClaim;
use crate::xdp_program;

/// Bytes that DPDK leaves in each buffer for headers that are prepended later.
const HEADROOM_BYTES: u16 = 128;
const LINK_BYTES: u16 = 22;

pub(crate) fn attach(devargs: &str, config: PortConfig) -> Result<Port, DpdkError> {
    let device = Device::parse(devargs)?;
    let mut warnings = Vec::new();
    let claim = prepare(&device, &mut warnings)?;
    check_data_room(&device, &config)?;
    let open = probe(&device, &config, claim)?;
    let info = info(&device, open.id())?;
    configure(&device, open.id(), &config, &info)?;
    set_mtu(&device, open.id(), config.mtu, &info)?;
    set_up_queues(&device, open.id(), &config)?;
    let mac = set_mac(&device, open.id(), &config, &info, &mut warnings)?;
    start(&device, open.id())?;
    let kernel_interface = kernel_link::interface_of(&device);
    let interfaces = Path::new(virtual_link::INTERFACES);
    let used = kernel_interface.as_deref();
    // Several ports may share an interface: then each specifies its queue.
    let unread = used.filter(|_| device.option("start_queue").is_none());
    warnings.extend(unread.and_then(|it| kernel_link::unread_queues(interfaces, it)));
    let hint = used.and_then(|interface| virtual_link::hint(interfaces, interface, config.mtu));
    let node = numa::node_of_device(device.kind, info.socket, interfaces, used);
    Ok(Port {
        open: Arc::new(open),
        device: device.devargs.clone(),
        driver: driver_name(&info),
        mac,
        kernel_interface,
        warnings,
        numa_warning: numa::warning(&device.name, node, config.socket),
        hint,
        queues_taken: AtomicBool::new(false),
    })
}

/// Checks everything about the device that needs no DPDK, and removes what a killed process left on
/// it.
fn prepare(device: &Device, warnings: &mut Vec<String>) -> Result<Option<XdpClaim>, DpdkError> {
    match device.kind {
        DeviceKind::AfXdp => xdp_program::prepare(device, warnings).map(Some),
        DeviceKind::Memif => memif_socket::prepare(device).map(|()| None),
        DeviceKind::Pci if !Path::new("/sys/bus/pci/devices").join(&device.name).exists() => {
            Err(device.error(
                "no PCI device has this address",
                None,
                "list the addresses with `dpdk-devbind.py --status-dev net`",
            ))
        }
        DeviceKind::Pci | DeviceKind::Virtual => Ok(None),
    }
}

fn check_data_room(device: &Device, config: &PortConfig) -> Result<(), DpdkError> {
    let xdp_headroom = if device.kind == DeviceKind::AfXdp { 256 } else { 0 };
    let needed =
        u32::from(HEADROOM_BYTES) + xdp_headroom + u32::from(LINK_BYTES) + u32::from(config.mtu);
    let room = config.pool.data_room();
    if u32::from(room) >= needed {
        return Ok(());
    }
    Err(device.error(
        format!("frames of MTU {} do not fit in packet buffers of {room} bytes", config.mtu),
        None,
        format!("use buffers of at least {needed} bytes or a smaller MTU"),
    ))
}

fn probe(
    device: &Device,
    config: &PortConfig,
    claim: Option<XdpClaim>,
) -> Result<OpenPort, DpdkError> {
    let name = CString::new(device.name.as_str()).expect("Device::parse refuses NUL");
    let devargs = CString::new(device.devargs.as_str()).expect("Device::parse refuses NUL");
    // JUSTIFICATION: DPDK keeps the list of ports.
    // SAFETY: the string lives during the call.
    if unsafe { sys::weir_port_exists(name.as_ptr()) } != 0 {
        return Err(device.error(
            "is attached already",
            None,
            "give each port a device name of its own",
        ));
    }
    let log = driver_log::start();
    let mut id = 0;
    // JUSTIFICATION: only DPDK can probe a device.
    // SAFETY: both strings and the port id's variable live during the call; an Eal exists, so DPDK
    // has started.
    let code = unsafe { sys::weir_port_probe(devargs.as_ptr(), name.as_ptr(), &raw mut id) };
    if code == 0 {
        return Ok(OpenPort::new(id, config.pool.clone(), claim));
    }
    let cause = log.cause().unwrap_or_else(|| errno_text(code));
    Err(device.error("cannot be opened", Some(cause), probe_fix(device)))
}

fn probe_fix(device: &Device) -> String {
    match device.kind {
        DeviceKind::Pci => {
            let driver =
                std::fs::read_link(format!("/sys/bus/pci/devices/{}/driver", device.name)).ok();
            match driver.as_deref().and_then(Path::file_name) {
                Some(driver) if driver == "vfio-pci" => {
                    "check that no other process uses it and that the IOMMU is on".into()
                }
                Some(driver) => format!(
                    "its kernel driver is {}: bind it to user space with `dpdk-devbind.py -b vfio-pci {}`, unless DPDK drives it through the kernel (mlx5)",
                    driver.to_string_lossy(),
                    device.name
                ),
                None => format!(
                    "bind it to user space with `dpdk-devbind.py -b vfio-pci {}`",
                    device.name
                ),
            }
        }
        DeviceKind::AfXdp => xdp_fix("check the options").into(),
        DeviceKind::Memif | DeviceKind::Virtual => "check the driver's name and its options".into(),
    }
}

fn info(device: &Device, id: u16) -> Result<sys::weir_port_info, DpdkError> {
    let mut info = sys::weir_port_info::default();
    // JUSTIFICATION: only the driver knows its limits.
    // SAFETY: `info` lives during the call; the port is open.
    match unsafe { sys::weir_port_info(id, &raw mut info) } {
        0 => Ok(info),
        code => Err(device.error(
            "does not describe itself",
            Some(errno_text(code)),
            "use another device",
        )),
    }
}

fn driver_name(info: &sys::weir_port_info) -> String {
    // The shim leaves a NUL at the end of the array.
    let bytes = info.driver.map(|character| character as u8);
    CStr::from_bytes_until_nul(&bytes)
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}

fn configure(
    device: &Device,
    id: u16,
    config: &PortConfig,
    info: &sys::weir_port_info,
) -> Result<(), DpdkError> {
    let log = driver_log::start();
    // JUSTIFICATION: only DPDK can configure a port.
    // SAFETY: the port is open and not started.
    match unsafe { sys::weir_port_configure(id, config.mtu.min(info.mtu_max)) } {
        0 => Ok(()),
        code => {
            let cause = log.cause().unwrap_or_else(|| errno_text(code));
            Err(device.error(
                "does not take one receive and one transmit queue",
                Some(cause),
                "check the device's options",
            ))
        }
    }
}

fn set_up_queues(device: &Device, id: u16, config: &PortConfig) -> Result<(), DpdkError> {
    let log = driver_log::start();
    let failed = |problem: &str, code: i32, fix: &str| {
        Err(device.error(problem, Some(log.cause().unwrap_or_else(|| errno_text(code))), fix))
    };
    let (mut rx, mut tx) = (config.rx_descriptors, config.tx_descriptors);
    // JUSTIFICATION: devices differ in the ring sizes they allow.
    // SAFETY: both numbers live during the call; the port is configured.
    let code = unsafe { sys::weir_port_descriptors(id, &raw mut rx, &raw mut tx) };
    if code != 0 {
        return failed(
            "does not take these ring sizes",
            code,
            "choose other rx_descriptors and tx_descriptors",
        );
    }
    // JUSTIFICATION: only DPDK can set a queue up.
    // SAFETY: the port is configured and the pool is never freed.
    let code = unsafe { sys::weir_port_rx_queue(id, rx, config.socket, config.pool.as_ptr()) };
    if code != 0 {
        return failed("receive queue cannot be set up", code, queue_fix(device));
    }
    // JUSTIFICATION: as above.
    // SAFETY: as above.
    let code = unsafe { sys::weir_port_tx_queue(id, tx, config.socket) };
    if code != 0 {
        return failed("transmit queue cannot be set up", code, queue_fix(device));
    }
    Ok(())
}

fn queue_fix(device: &Device) -> &'static str {
    match device.kind {
        DeviceKind::AfXdp => xdp_fix(
            "check that nothing else uses this queue, and that the pool has more than 4,096 buffers per port",
        ),
        _ => "give the pool more buffers or the ring fewer descriptors",
    }
}

/// Returns the fix for a failed AF_XDP device. libxdp looks programs up by number, which the kernel
/// permits to CAP_SYS_ADMIN alone.
fn xdp_fix(otherwise: &'static str) -> &'static str {
    if lacks_sys_admin() {
        "weir lacks CAP_SYS_ADMIN, which AF_XDP needs beside CAP_NET_ADMIN and CAP_NET_RAW: give it that \
         (packaging/systemd/weir-af_xdp.conf) or run it as root"
    } else {
        otherwise
    }
}

/// Sets the MTU if the driver has one. A virtual device without one carries any frame that fits its
/// buffers.
fn set_mtu(
    device: &Device,
    id: u16,
    mtu: u16,
    info: &sys::weir_port_info,
) -> Result<(), DpdkError> {
    let log = driver_log::start();
    // JUSTIFICATION: only the driver can set the MTU.
    // SAFETY: the port is open and configured.
    let code = unsafe { sys::weir_port_set_mtu(id, mtu) };
    if code == 0 || code == -libc::ENOTSUP {
        return Ok(());
    }
    let cause = log.cause().unwrap_or_else(|| errno_text(code));
    let fix = match -code {
        libc::EPERM | libc::EACCES => "run weir as root or with CAP_NET_ADMIN".to_owned(),
        _ => format!("choose an MTU of {} to {}", info.mtu_min, info.mtu_max),
    };
    Err(device.error(format!("does not take an MTU of {mtu}"), Some(cause), fix))
}

/// Sets the MAC address of the port and returns the address in use. A device that cannot change its
/// own still works as long as it accepts every frame.
fn set_mac(
    device: &Device,
    id: u16,
    config: &PortConfig,
    info: &sys::weir_port_info,
    warnings: &mut Vec<String>,
) -> Result<Mac, DpdkError> {
    let own = Mac(info.mac);
    let Some(mac) = config.mac.filter(|mac| *mac != own) else {
        return Ok(own);
    };
    // JUSTIFICATION: only the driver can set the address.
    // SAFETY: the address is 6 bytes long and lives during the call; the port is open.
    let code = unsafe { sys::weir_port_set_mac(id, mac.0.as_ptr()) };
    if code == 0 {
        return Ok(mac);
    }
    if code != -libc::ENOTSUP {
        let fix = "use an address the device accepts (for a VF the host sets it: `ip link set PF vf N mac ...`)";
        return Err(device.error(
            format!("does not take the MAC address {mac}"),
            Some(errno_text(code)),
            fix,
        ));
    }
    // JUSTIFICATION: the device has to deliver frames to an address that is not its own.
    // SAFETY: the port is open.
    let promiscuous = unsafe { sys::weir_port_set_promiscuous(id) };
    if promiscuous != 0 && device.kind == DeviceKind::Pci {
        let fix = format!("leave its own address {own} in place");
        return Err(device.error(format!("cannot change its MAC address to {mac}"), None, fix));
    }
    warnings.push(format!("device {} keeps its own MAC address {own}; {mac} is used in frames, and every frame is received", device.name));
    Ok(mac)
}

fn start(device: &Device, id: u16) -> Result<(), DpdkError> {
    let log = driver_log::start();
    // JUSTIFICATION: only DPDK can start a port.
    // SAFETY: the port is configured with both its queues.
    match unsafe { sys::weir_port_start(id) } {
        0 => Ok(()),
        code => {
            let cause = log.cause().unwrap_or_else(|| errno_text(code));
            Err(device.error(
                "does not start",
                Some(cause),
                "check the device's options and that nothing else uses it",
            ))
        }
    }
}

//! Each port belongs to one side of one worker.

use crate::check::{interfaces, refuse_repeats};
use crate::findings::Findings;
use crate::types::WorkerSettings;

pub(crate) fn check(workers: &[WorkerSettings], findings: &mut Findings<'_>) {
    let named = |identity: fn(&str) -> Option<String>| -> Vec<_> {
        let devices =
            interfaces(workers).map(|(path, side)| (format!("{path}.device"), &side.device));
        devices.filter_map(|(key, device)| Some((key, identity(device)?))).collect()
    };
    for (path, side) in interfaces(workers) {
        form(&format!("{path}.device"), &side.device, findings);
    }
    refuse_repeats(named(name), "device", findings);
    refuse_repeats(named(kernel_queue), "queue", findings);
    let macs = interfaces(workers).filter_map(|(path, side)| {
        let bytes = side.mac?.map(|byte| format!("{byte:02x}"));
        Some((format!("{path}.mac"), bytes.join(":")))
    });
    refuse_repeats(macs.collect::<Vec<_>>(), "MAC address", findings);
}

/// Reports the most common slips: the name of a kernel interface, and AF_XDP without one.
fn form(key: &str, device: &str, findings: &mut Findings<'_>) {
    if !findings.is_good(key) {
        return;
    }
    let name = device.split(',').next().unwrap_or(device);
    let is_virtual = ["net_", "eth_", "virtio_user"].iter().any(|prefix| name.starts_with(prefix));
    if !is_virtual && !name.contains(':') {
        let message = format!("\"{name}\" is neither a PCI address nor a DPDK virtual device");
        let fix = format!("for a kernel interface write \"net_af_xdp0,iface={name}\"");
        findings.error(key, message, fix);
    } else if name.starts_with("net_af_xdp") && kernel_queue(device).is_none() {
        findings.error(key, format!("{name} names no interface"), "add iface=NAME");
    }
}

/// Returns the EAL's name of a device: the text before the first comma. PCI addresses may omit
/// domain 0000.
fn name(device: &str) -> Option<String> {
    let name = device.split(',').next().unwrap_or(device).to_ascii_lowercase();
    let is_short_pci = name.len() == 7 && name.as_bytes()[2] == b':' && name.as_bytes()[5] == b'.';
    Some(if is_short_pci { format!("0000:{name}") } else { name })
}

/// Returns the kernel interface and queue that an AF_XDP device takes exclusively.
fn kernel_queue(device: &str) -> Option<String> {
    let argument = |key: &str| {
        let arguments = device.split(',').skip(1);
        arguments
            .filter_map(|argument| argument.split_once('='))
            .find(|(name, _)| *name == key)
            .map(|(_, value)| value)
    };
    if !device.starts_with("net_af_xdp") {
        return None;
    }
    Some(format!("{} of {}", argument("start_queue").unwrap_or("0"), argument("iface")?))
}

//! Parser of device strings: `net_af_xdp0,iface=acc0`, `0000:01:00.0`, `pci:01:00.0,option=1`.

use crate::error::DpdkError;

/// A device string of the operator, parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Device {
    /// The device string that DPDK gets.
    pub(crate) devargs: String,
    /// DPDK's name of the device: the virtual device's name or the full PCI address.
    pub(crate) name: String,
    pub(crate) kind: DeviceKind,
    options: Vec<(String, String)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeviceKind {
    Pci,
    AfXdp,
    Memif,
    /// Any other virtual device.
    Virtual,
}

impl Device {
    pub(crate) fn parse(devargs: &str) -> Result<Device, DpdkError> {
        let mut parts = devargs.split(',').map(str::trim);
        let first = parts.next().unwrap_or_default();
        let (kind, name) = classify(first).ok_or_else(|| {
            malformed(devargs, "is neither a PCI address nor a DPDK virtual device")
        })?;
        let mut options = Vec::new();
        for part in parts {
            match part.split_once('=') {
                Some((key, value)) if !key.is_empty() => {
                    options.push((key.to_owned(), value.to_owned()))
                }
                _ => {
                    return Err(malformed(
                        devargs,
                        &format!("has the option \"{part}\", which is not of the form key=value"),
                    ));
                }
            }
        }
        let mut full = name.clone();
        for (key, value) in &options {
            full.push_str(&format!(",{key}={value}"));
        }
        if full.contains('\0') {
            return Err(malformed(devargs, "contains a NUL byte"));
        }
        Ok(Device { devargs: full, name, kind, options })
    }

    /// Returns the value of an option, if it was given.
    pub(crate) fn option(&self, key: &str) -> Option<&str> {
        self.options.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// Makes an error about this device.
    pub(crate) fn error(
        &self,
        problem: impl Into<String>,
        cause: Option<String>,
        fix: impl Into<String>,
    ) -> DpdkError {
        DpdkError::Device {
            device: self.devargs.clone(),
            problem: problem.into(),
            cause,
            fix: fix.into(),
        }
    }
}

fn classify(first: &str) -> Option<(DeviceKind, String)> {
    if let Some(address) = pci_address(first.strip_prefix("pci:").unwrap_or(first)) {
        return Some((DeviceKind::Pci, address));
    }
    let name = first.strip_prefix("vdev:").unwrap_or(first);
    let kind = match name {
        _ if name.starts_with("net_af_xdp") => DeviceKind::AfXdp,
        _ if name.starts_with("net_memif") => DeviceKind::Memif,
        _ if name.starts_with("net_")
            || name.starts_with("virtio_user")
            || name.starts_with("eth_") =>
        {
            DeviceKind::Virtual
        }
        _ => return None,
    };
    Some((kind, name.to_owned()))
}

/// Returns `01:00.0` and `0000:01:00.0` in DPDK's full form.
fn pci_address(text: &str) -> Option<String> {
    let (bus_part, function) = text.split_once('.')?;
    let fields: Vec<&str> = bus_part.split(':').collect();
    let (domain, bus, device) = match fields[..] {
        [bus, device] => ("0", bus, device),
        [domain, bus, device] => (domain, bus, device),
        _ => return None,
    };
    let number =
        |text: &str, max: u32| u32::from_str_radix(text, 16).ok().filter(|number| *number <= max);
    let (domain, bus, device) =
        (number(domain, u32::MAX)?, number(bus, 0xff)?, number(device, 0x1f)?);
    Some(format!("{domain:04x}:{bus:02x}:{device:02x}.{:x}", number(function, 7)?))
}

fn malformed(devargs: &str, problem: &str) -> DpdkError {
    DpdkError::Device {
        device: devargs.to_owned(),
        problem: problem.to_owned(),
        cause: None,
        fix: "write for example 0000:01:00.0, net_af_xdp0,iface=eth1 or net_memif0,role=client,socket=/run/memif.sock".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Any text is parsed as a device or refused by name; the string that DPDK gets means the same
    /// device.
    #[test]
    fn text() {
        const WORDS: [&str; 20] = [
            "net_af_xdp0",
            "net_memif1",
            "net_",
            "virtio_user0",
            "eth_pcap0",
            "vdev:",
            "pci:",
            "0000:",
            "01:00.0",
            "ffffffff:ff:1f.7",
            "+1:0.0",
            ",",
            "=",
            "iface=acc0",
            "socket=/x",
            " ",
            "\0",
            ".",
            ":",
            "é",
        ];
        bolero::check!().with_type::<(Vec<u8>, Vec<u8>)>().for_each(|(words, any)| {
            let words = words.iter().take(12).map(|at| WORDS[usize::from(*at) % WORDS.len()]);
            for text in [words.collect::<String>(), String::from_utf8_lossy(any).into_owned()] {
                match Device::parse(&text) {
                    Ok(device) => {
                        assert_eq!(Device::parse(&device.devargs).expect("its own form"), device);
                        assert!(device.devargs.starts_with(&device.name));
                        assert!(!device.devargs.contains('\0'));
                    }
                    Err(error) => assert!(error.to_string().contains(&text), "{error}"),
                }
            }
        });
    }

    #[test]
    fn options_of_a_virtual_device_are_parsed() {
        let device =
            Device::parse("net_af_xdp0, iface=acc0,start_queue=2").expect("is well formed");
        assert_eq!((device.kind, device.name.as_str()), (DeviceKind::AfXdp, "net_af_xdp0"));
        assert_eq!(device.option("iface"), Some("acc0"));
        assert_eq!(device.option("queue_count"), None);
        assert_eq!(device.devargs, "net_af_xdp0,iface=acc0,start_queue=2");
    }

    #[test]
    fn short_pci_addresses_are_completed() {
        for text in ["01:00.0", "0000:01:00.0", "pci:01:0.0", "pci:0000:01:00.0"] {
            let device = Device::parse(text).expect("is well formed");
            assert_eq!(
                (device.kind, device.devargs.as_str()),
                (DeviceKind::Pci, "0000:01:00.0"),
                "{text}"
            );
        }
    }

    #[test]
    fn malformed_device_string_is_refused_with_its_fault() {
        for (text, expected) in [
            ("", "neither"),
            ("eth0", "neither"),
            ("01:00.9", "neither"),
            ("net_null0,copy", "\"copy\""),
        ] {
            let error = Device::parse(text).expect_err("is malformed").to_string();
            assert!(error.contains(expected) && error.contains("write for example"), "{error}");
        }
    }
}

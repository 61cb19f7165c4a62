//! Capture filters in tcpdump's language, compiled by libpcap.

use pcap::{BpfProgram, Capture, Linktype};

/// The header that a captured packet starts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layer {
    Ethernet,
    /// An IPv4 header, without anything in front.
    Ip,
}

/// A compiled filter.
pub(super) struct Filter(BpfProgram);

impl std::fmt::Debug for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Filter")
    }
}

/// The filter is not valid.
#[derive(Debug, thiserror::Error)]
#[error("filter '{filter}': {reason}")]
pub(crate) struct FilterError {
    filter: String,
    reason: String,
}

impl Filter {
    /// Compiles a filter for packets that start with `layer`.
    ///
    /// # Errors
    /// When the filter is not valid, with libpcap's message.
    pub(super) fn compile(filter: &str, layer: Layer) -> Result<Self, FilterError> {
        let linktype = match layer {
            Layer::Ethernet => Linktype::ETHERNET,
            Layer::Ip => Linktype(libpcap_raw()),
        };
        Capture::dead(linktype)
            .and_then(|handle| handle.compile(filter, true))
            .map(Self)
            .map_err(|error| FilterError { filter: filter.into(), reason: reason(&error) })
    }

    pub(super) fn matches(&self, packet: &[u8]) -> bool {
        self.0.filter(packet)
    }
}

/// libpcap compiles for its own number of "raw IP" (`DLT_RAW`, 12 on Linux), not for the number in
/// pcap files (`LINKTYPE_RAW`, 101).
const fn libpcap_raw() -> i32 {
    12
}

fn reason(error: &pcap::Error) -> String {
    match error {
        pcap::Error::PcapError(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ethernet, IPv4, UDP 10.0.0.1:1000 -> 10.0.0.2:53.
    fn dns_frame() -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame.extend([0x08, 0x00]);
        frame.extend([0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend([3, 232, 0, 53, 0, 8, 0, 0]);
        frame
    }

    #[test]
    fn filters_see_ethernet_and_bare_ip() {
        let frame = dns_frame();
        for filter in ["udp port 53", "host 10.0.0.2 and not tcp", ""] {
            assert!(Filter::compile(filter, Layer::Ethernet).unwrap().matches(&frame), "{filter}");
            assert!(Filter::compile(filter, Layer::Ip).unwrap().matches(&frame[14..]), "{filter}");
        }
        assert!(!Filter::compile("tcp", Layer::Ethernet).unwrap().matches(&frame));
        assert!(!Filter::compile("port 54", Layer::Ip).unwrap().matches(&frame[14..]));
    }

    #[test]
    fn a_wrong_filter_is_named() {
        let error = Filter::compile("prot 53", Layer::Ethernet).unwrap_err();
        assert!(error.to_string().starts_with("filter 'prot 53': "), "{error}");
    }
}

//! ICMP errors that the worker itself sends (RFC 792, RFC 1812 section 4.3.2).

use weir_wire::frame::{Frame, Pool};
use weir_wire::icmp::{self, Icmp};
use weir_wire::ipv4::{self, Ipv4};

use crate::rate_limit::RateLimit;

/// Errors sent per second and worker at most (RFC 1812 section 4.3.2.8); as many may come at once.
const ERRORS_PER_SEC: u64 = 1000;
/// RFC 1812 section 4.3.2.3: as much of the original as fits 576 bytes.
const PACKET_MAX: usize = 576;
const HEADERS: usize = 28;

/// What to tell the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Complaint {
    /// Type 11 code 0.
    TimeExceeded,
    /// Type 3 code 4 with the MTU of the next link (RFC 1191).
    FragmentationNeeded { mtu: u16 },
    /// Type 3 code 13: no resources for a new session (RFC 5508 REQ-8).
    Prohibited,
}

impl Complaint {
    fn header(self) -> Icmp {
        let (kind, code) = match self {
            Self::TimeExceeded => (icmp::TIME_EXCEEDED, icmp::CODE_TTL_EXCEEDED),
            Self::FragmentationNeeded { .. } => {
                (icmp::DESTINATION_UNREACHABLE, icmp::CODE_FRAGMENTATION_NEEDED)
            }
            Self::Prohibited => {
                (icmp::DESTINATION_UNREACHABLE, icmp::CODE_ADMINISTRATIVELY_PROHIBITED)
            }
        };
        let mut header = Icmp::new(kind, code, [0; 4]);
        if let Self::FragmentationNeeded { mtu } = self {
            header.set_next_hop_mtu(mtu);
        }
        header
    }
}

/// Makes the errors, no more than there may be.
#[derive(Debug)]
pub(crate) struct ErrorLimiter(RateLimit);

impl ErrorLimiter {
    pub(crate) fn new() -> Self {
        Self(RateLimit::new(ERRORS_PER_SEC))
    }

    /// Builds the packet (from its IP header on) that complains about `original` to its source; `None` when
    /// no error may be sent about it, the limit is reached, or there is no buffer. `mtu` is that of the way back:
    /// a tunnel may carry less than the 576 bytes of RFC 1812.
    pub(crate) fn complain<P: Pool>(
        &mut self,
        complaint: Complaint,
        from: u32,
        original: &[u8],
        mtu: usize,
        now_ms: u64,
        pool: &mut P,
    ) -> Option<P::Frame> {
        let (ip, header_len, _) = ipv4::parse(original).ok()?;
        if !may_complain(ip, &original[header_len..]) || !self.0.admit(now_ms) {
            return None;
        }
        let to = ip.source.get();
        let quote = &original[..original.len().min(mtu.min(PACKET_MAX).saturating_sub(HEADERS))];
        let mut frame = pool.alloc()?;
        if !frame.extend(HEADERS + quote.len()) {
            return None;
        }
        let payload_len = (HEADERS + quote.len() - Ipv4::LEN) as u16;
        let mut header = Ipv4::new(from, to, ipv4::PROTOCOL_ICMP, payload_len);
        // RFC 1812 section 4.3.2.5: the precedence of network control.
        header.tos = 0xc0;
        header.set_fragment(true, false, 0);
        header.set_checksum();
        let bytes = frame.data_mut();
        header.emit(bytes);
        complaint.header().emit(&mut bytes[Ipv4::LEN..]);
        bytes[HEADERS..].copy_from_slice(quote);
        icmp::set_checksum(&mut bytes[Ipv4::LEN..]);
        Some(frame)
    }
}

/// RFC 1812 section 4.3.2.7: never about an ICMP error, nor about a fragment other than the first.
fn may_complain(ip: &Ipv4, transport: &[u8]) -> bool {
    let is_icmp_error = ip.protocol == ipv4::PROTOCOL_ICMP
        && transport.first().is_none_or(|&kind| icmp::is_error(kind));
    ip.fragment_offset() == 0 && !is_icmp_error
}

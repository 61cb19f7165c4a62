//! ICMP errors that the worker itself sends (RFC 792, RFC 1812 section 4.3.2).

use weir_nat::GROUPS;
use weir_wire::frame::{Frame, Pool};
use weir_wire::icmp::{self, Icmp};
use weir_wire::ipv4::{self, Ipv4};

use crate::config::ResourceLimits;
use crate::party::{Demand, LimitedParty, Party, PartyTable};
use crate::rate_limit::SharedRate;
use crate::{EngineCounters, Side};

/// Number of homes, and of remotes, whose errors are counted at once.
const PARTIES: usize = 4096;
/// RFC 1812 section 4.3.2.3: an error quotes as much of the original as fits in 576 bytes.
const PACKET_MAX: usize = 576;
const HEADERS: usize = 28;

/// Kind of an error that the worker sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IcmpErrorCause {
    /// Type 11 code 0.
    TimeExceeded,
    /// Type 3 code 4 with the MTU of the next link (RFC 1191).
    FragmentationNeeded { mtu: u16 },
    /// Type 3 code 13: no resources for a new session (RFC 5508 REQ-8), or a rule rejects it.
    Prohibited,
}

impl IcmpErrorCause {
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

    /// Whether the error is for path MTU discovery, which has a rate of its own: probes must not
    /// delay it.
    fn is_about_size(self) -> bool {
        matches!(self, Self::FragmentationNeeded { .. })
    }
}

/// The parties that are charged for an answer to a packet: an ICMP error or a TCP reset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnswerParties {
    /// The side of the sender.
    pub(crate) to: Side,
    /// The sender of the packet that the answer is about.
    pub(crate) sender: LimitedParty,
    /// The home to which the packet was addressed, if it is known: senders on the internet may be
    /// forged.
    pub(crate) addressed: Option<LimitedParty>,
}

/// An error to be sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DueIcmpError {
    pub(crate) cause: IcmpErrorCause,
    pub(crate) parties: AnswerParties,
    /// The worker's address that is the source of the error.
    pub(crate) from: u32,
    /// MTU of the way back, bytes: a tunnel may carry less than the 576 bytes of RFC 1812.
    pub(crate) mtu: usize,
}

/// Makes the errors within the limits.
///
/// ```text
///                          worker_icmp_errors_per_sec
///              half: fragmentation needed    half: all others
///   half of each for any party  /  a quarter each kept for errors to homes and to the internet,
///                                  about packets of parties that cause few
/// ```
#[derive(Debug)]
pub(crate) struct ErrorLimiter {
    /// Whether errors are sent at all, by the side to which they go.
    is_on: [bool; 2],
    homes: PartyTable,
    remotes: PartyTable,
    /// The worker's limit for "fragmentation needed", and for all others.
    worker: [SharedRate; 2],
}

/// Returns the worker's rates for "fragmentation needed" and for all other errors.
fn worker_rates(limits: &ResourceLimits) -> [u64; 2] {
    let per_sec = u64::from(limits.worker_icmp_errors_per_sec);
    [per_sec / 2, per_sec - per_sec / 2]
}

impl ErrorLimiter {
    pub(crate) fn new(limits: &ResourceLimits, seed: [u64; 2]) -> Self {
        let per_sec = limits.icmp_errors_per_sec;
        let table = || PartyTable::new(PARTIES, per_sec, per_sec, seed);
        let worker = worker_rates(limits).map(SharedRate::new);
        let mut limiter = Self { is_on: [true; 2], homes: table(), remotes: table(), worker };
        limiter.set_limits(limits);
        limiter
    }

    /// Sets the limits from now on.
    pub(crate) fn set_limits(&mut self, limits: &ResourceLimits) {
        let rates = limits.icmp_errors_of_groups().map(|per_sec| [per_sec; 2]);
        self.is_on = [limits.icmp_errors_to_homes, limits.icmp_errors_to_internet];
        self.homes.set_rates(&rates);
        self.remotes.set_rates(&[[limits.icmp_errors_per_sec; 2]; GROUPS as usize]);
        for (rate, per_sec) in self.worker.iter_mut().zip(worker_rates(limits)) {
            rate.set_rate(per_sec);
        }
    }

    /// Builds an error about `original` to its source (from the IP header on); `None` if no error
    /// may be sent about it, a limit is reached, or there is no buffer.
    pub(crate) fn send_icmp_error<P: Pool>(
        &mut self,
        notice: &DueIcmpError,
        original: &[u8],
        now_ms: u64,
        counters: &EngineCounters,
        pool: &mut P,
    ) -> Option<P::Frame> {
        let (ip, header_len, _) = ipv4::parse(original).ok()?;
        let to = notice.parties.to;
        if !self.is_on[to as usize] || !may_send_icmp_error(ip, &original[header_len..]) {
            return None;
        }
        if !self.admit(&notice.parties, notice.cause.is_about_size(), now_ms) {
            counters.count_icmp_error_limited(to);
            return None;
        }
        let error = build(notice, ip.source.get(), original, pool)?;
        counters.count_icmp_error(to);
        Some(error)
    }

    /// True if a TCP reset is within the limits, which it shares with the errors that are not about
    /// the size of packets.
    pub(crate) fn admit_reset(&mut self, parties: &AnswerParties, now_ms: u64) -> bool {
        self.admit(parties, false, now_ms)
    }

    /// Whether errors are sent to this side at all.
    pub(crate) fn is_on(&self, to: Side) -> bool {
        self.is_on[to as usize]
    }

    /// Whether an error is within the limits; counts it.
    pub(crate) fn admit(
        &mut self,
        parties: &AnswerParties,
        is_about_size: bool,
        now_ms: u64,
    ) -> bool {
        let mut ask = |asking: &LimitedParty, role: u8| {
            let table = match asking.party {
                Party::Home(_) => &mut self.homes,
                Party::Remote(_) | Party::Remote6(_) => &mut self.remotes,
            };
            table.ask(asking, role << 1 | u8::from(is_about_size), now_ms)
        };
        let mut demand = ask(&parties.sender, 0);
        // A forged sender always looks modest; the home to which it sends is a real one.
        if let (Some(addressed), true) = (parties.addressed, demand != Demand::Excessive) {
            demand = ask(&addressed, 1);
        }
        self.worker[usize::from(!is_about_size)].admit(parties.to as usize, demand, now_ms)
    }
}

fn build<P: Pool>(
    notice: &DueIcmpError,
    to: u32,
    original: &[u8],
    pool: &mut P,
) -> Option<P::Frame> {
    let room = notice.mtu.min(PACKET_MAX).saturating_sub(HEADERS);
    let quote = &original[..original.len().min(room)];
    let mut frame = pool.alloc()?;
    if !frame.extend(HEADERS + quote.len()) {
        return None;
    }
    let payload_len = (HEADERS + quote.len() - Ipv4::LEN) as u16;
    let mut header = Ipv4::new(notice.from, to, ipv4::PROTOCOL_ICMP, payload_len);
    // RFC 1812 section 4.3.2.5: the precedence is that of network control.
    header.tos = 0xc0;
    header.set_fragment(true, false, 0);
    header.set_checksum();
    let bytes = frame.data_mut();
    header.emit(bytes);
    notice.cause.header().emit(&mut bytes[Ipv4::LEN..]);
    bytes[HEADERS..].copy_from_slice(quote);
    icmp::set_checksum(&mut bytes[Ipv4::LEN..]);
    Some(frame)
}

/// True if an error may be sent about a packet. RFC 1812 section 4.3.2.7: never about an ICMP
/// error, nor about a fragment other than the first.
fn may_send_icmp_error(ip: &Ipv4, transport: &[u8]) -> bool {
    let is_icmp_error = ip.protocol == ipv4::PROTOCOL_ICMP
        && transport.first().is_none_or(|&kind| icmp::is_error(kind));
    ip.fragment_offset() == 0 && !is_icmp_error
}

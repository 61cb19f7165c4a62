//! The packets of the generated traffic, as bytes. Hot path: one write and one read per packet.
//!
//! ```text
//!   internet side   Ethernet 14 |             IP | UDP 8 or TCP 20 | mark 16 | padding
//!   access side     Ethernet 14 | IP | GRE 4 | IP | UDP 8 or TCP 20 | mark 16 | padding
//! ```
//!
//! IP: IPv4, 20 bytes, or IPv6, 40 bytes (`packet/family.rs`). A packet of the internet side has 64
//! to 1518 bytes with the FCS, 84 at least if it is IPv6; one of the access side has 24 more in a
//! tunnel over IPv4, 44 more in one over IPv6 (`packet/tunnel.rs`). In plain mode both are the
//! same.
//!
//! The mark holds the flow, the lap of the flood, the direction, and the time of sending. A device
//! under test cannot know it and must not change it, so it identifies a packet even if all
//! addresses are wrong.
//!
//! Addresses and ports are held as they lie in the packet, read as little-endian words ("wire
//! words"): they are compared and copied, never computed with, and the Internet checksum does not
//! depend on the byte order (RFC 1071 section 2(B)).

mod family;
mod tunnel;
mod variant;

use std::marker::PhantomData;

use weir_wire::checksum;
use weir_wire::ethernet::Mac;
use weir_wire::ipv4::{PROTOCOL_TCP, PROTOCOL_UDP};

pub use self::family::{Family, Ipv4, Ipv6};
pub use self::tunnel::{GRE, GRE6, PLAIN};
pub use self::variant::{first_fragment_len, identify};

const ETHERNET_LEN: usize = 14;
const IPV4_LEN: usize = Ipv4::HEADER_LEN;
const UDP_LEN: usize = 8;
const TCP_LEN: usize = 20;
/// Mark and two bytes of padding: makes the UDP packet of RFC 2544's 64 bytes.
const MARK_LEN: usize = 18;
/// The frame check sequence, which a buffer does not hold.
pub const FCS_LEN: usize = 4;

const TCP_SYN: u8 = 0x02;
const TCP_PSH: u8 = 0x08;
const TCP_ACK: u8 = 0x10;

/// Direction of a packet, as stored in its mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Upstream,
    Downstream,
}

impl Direction {
    const fn magic(self) -> u32 {
        match self {
            Direction::Upstream => u32::from_le_bytes(*b"wrUP"),
            Direction::Downstream => u32::from_le_bytes(*b"wrDN"),
        }
    }
}

/// The kind of packet: IPv4 or IPv6, the length of the tunnel header ([`PLAIN`], [`GRE`] or
/// [`GRE6`]), TCP or UDP. All offsets follow from it at compile time.
#[derive(Clone, Copy, Debug)]
pub struct Kind<F: Family, const TUNNEL: usize, const TCP: bool>(PhantomData<F>);

impl<F: Family, const TUNNEL: usize, const TCP: bool> Kind<F, TUNNEL, TCP> {
    /// Offset of the inner IP header.
    const IP: usize = {
        assert!(matches!(TUNNEL, PLAIN | GRE | GRE6), "no tunnel header has this length");
        ETHERNET_LEN + TUNNEL
    };
    const L4: usize = Self::IP + F::HEADER_LEN;
    const L4_LEN: usize = if TCP { TCP_LEN } else { UDP_LEN };
    const L4_CHECKSUM: usize = Self::L4 + if TCP { 16 } else { 6 };
    const PROTOCOL: u8 = if TCP { PROTOCOL_TCP } else { PROTOCOL_UDP };
    const MARK: usize = Self::L4 + Self::L4_LEN;
    /// Length of everything that differs from packet to packet, and of the shortest packet of the
    /// kind.
    pub const HEAD: usize = Self::MARK + MARK_LEN;
}

/// The addresses of a packet as wire words: source in the low half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses<F: Family> {
    /// Addresses of the tunnel, over IPv6 those that its own stand for; meaningless without one.
    pub outer: u64,
    pub inner: F::Pair,
    pub ports: u32,
}

/// Identifies a packet of a flow. Laps count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    pub flow: u32,
    pub lap: u32,
    /// Time of sending, in a unit of the caller.
    pub stamp: u32,
}

/// Sequence number, acknowledgement and flags of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    sequence: u32,
    acknowledgement: u32,
    flags: u8,
}

impl Segment {
    /// Returns the segment of a lap: lap 1 opens the connection, each later one carries
    /// `payload_len` bytes more. `peer_lap` is the last lap received from the other side, 0 for
    /// none. A SYN carries its mark as data (RFC 9293 section 3.4 allows it), so that all packets
    /// are alike.
    #[inline]
    pub fn new(direction: Direction, flow: u32, lap: u32, peer_lap: u32, payload_len: u32) -> Self {
        // Knuth's multiplicative hash: sequence numbers all over the space, wrapping in some flows.
        let ours = flow.wrapping_mul(2_654_435_761);
        let (isn, peer_isn, syn) = match direction {
            Direction::Upstream => (ours, !ours, TCP_SYN),
            Direction::Downstream => (!ours, ours, TCP_SYN | TCP_ACK),
        };
        // Bytes sent before this lap, counting the SYN itself.
        let before = (lap - 1).wrapping_mul(payload_len).wrapping_add(u32::from(lap > 1));
        let received = peer_lap.wrapping_mul(payload_len).wrapping_add(1);
        let opens = lap == 1;
        let acks = !opens || direction == Direction::Downstream;
        Segment {
            sequence: isn.wrapping_add(before),
            acknowledgement: if acks { peer_isn.wrapping_add(received) } else { 0 },
            flags: if opens { syn } else { TCP_ACK | TCP_PSH },
        }
    }
}

/// A packet without a flow, and the sums of the words that do not differ from flow to flow.
#[derive(Clone, Debug)]
pub struct Template {
    bytes: Vec<u8>,
    outer_sum: u64,
    ip_sum: u64,
    l4_sum: u64,
    payload_len: u32,
}

impl Template {
    /// Makes a packet of `len` bytes without FCS (at least [`Kind::HEAD`]) from `source` to
    /// `destination` on the link.
    pub fn new<F: Family, const TUNNEL: usize, const TCP: bool>(
        source: Mac,
        destination: Mac,
        direction: Direction,
        len: usize,
    ) -> Self {
        let len = len.max(Kind::<F, TUNNEL, TCP>::HEAD);
        let (ip, l4) = (Kind::<F, TUNNEL, TCP>::IP, Kind::<F, TUNNEL, TCP>::L4);
        let l4_len = (len - l4) as u16;
        let mut bytes = vec![0; len];
        bytes[..6].copy_from_slice(&destination.0);
        bytes[6..12].copy_from_slice(&source.0);
        bytes[12..14].copy_from_slice(&tunnel::ethertype::<F, TUNNEL>().to_be_bytes());
        let outer_sum = tunnel::write_header::<F, TUNNEL>(&mut bytes);
        F::write_header(&mut bytes[ip..], Kind::<F, TUNNEL, TCP>::PROTOCOL, len - ip);
        if TCP {
            // Five words of header, a window of 64 KiB - 1.
            bytes[l4 + 12] = 5 << 4;
            bytes[l4 + 14..l4 + 16].copy_from_slice(&[0xff; 2]);
        } else {
            bytes[l4 + 4..l4 + 6].copy_from_slice(&l4_len.to_be_bytes());
        }
        let mark = Kind::<F, TUNNEL, TCP>::MARK;
        bytes[mark..mark + 4].copy_from_slice(&direction.magic().to_le_bytes());
        let pseudo = pseudo_sum(Kind::<F, TUNNEL, TCP>::PROTOCOL, l4_len);
        Template {
            outer_sum,
            ip_sum: F::header_sum(&bytes[ip..l4]),
            l4_sum: words(&bytes[l4..]) + pseudo,
            payload_len: (len - mark) as u32,
            bytes,
        }
    }

    /// Returns the bytes of the packet, without FCS.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns false: the shortest packet has 60 bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the bytes of TCP or UDP payload.
    pub fn payload_len(&self) -> u32 {
        self.payload_len
    }

    /// Writes a packet into `bytes`, which must be [`Template::len`] long (other lengths are left
    /// unchanged). `segment` is used for TCP only.
    #[inline(always)]
    pub fn write<F: Family, const TUNNEL: usize, const TCP: bool>(
        &self,
        bytes: &mut [u8],
        addresses: Addresses<F>,
        mark: Mark,
        segment: Segment,
    ) {
        let size = Kind::<F, TUNNEL, TCP>::HEAD;
        if bytes.len() != self.bytes.len() {
            return;
        }
        let Some((head, rest)) = bytes.split_at_mut_checked(size) else { return };
        let Some((template, padding)) = self.bytes.split_at_checked(size) else { return };
        head.copy_from_slice(template);
        if !rest.is_empty() {
            rest.copy_from_slice(padding);
        }
        tunnel::put_addresses::<TUNNEL>(head, self.outer_sum, addresses.outer);
        F::put_addresses(head, Kind::<F, TUNNEL, TCP>::IP, self.ip_sum, addresses.inner);
        let l4 = Kind::<F, TUNNEL, TCP>::L4;
        put(head, l4, addresses.ports.to_le_bytes());
        let mut sum = self.l4_sum
            + F::sum(addresses.inner)
            + u64::from(addresses.ports)
            + u64::from(mark.flow)
            + u64::from(mark.lap)
            + u64::from(mark.stamp);
        if TCP {
            let (sequence, ack) =
                (segment.sequence.to_be_bytes(), segment.acknowledgement.to_be_bytes());
            put(head, l4 + 4, sequence);
            put(head, l4 + 8, ack);
            head[l4 + 13] = segment.flags;
            sum += u64::from(u32::from_le_bytes(sequence))
                + u64::from(u32::from_le_bytes(ack))
                + (u64::from(segment.flags) << 8);
        }
        let checksum = !fold(sum);
        // RFC 768: a UDP checksum of zero is sent as all ones.
        let checksum = if !TCP && checksum == 0 { 0xffff } else { checksum };
        put(head, Kind::<F, TUNNEL, TCP>::L4_CHECKSUM, checksum.to_le_bytes());
        let at = Kind::<F, TUNNEL, TCP>::MARK;
        put(head, at + 4, mark.flow.to_le_bytes());
        put(head, at + 8, mark.lap.to_le_bytes());
        put(head, at + 12, mark.stamp.to_le_bytes());
    }
}

/// The content of a received packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen<F: Family> {
    pub addresses: Addresses<F>,
    pub mark: Mark,
    pub checksums_right: bool,
}

/// Reads a packet; `None` if it is not one of the generator's in that direction and of that kind.
/// Every checksum is computed from all the bytes that it covers; a UDP checksum of zero (none) is
/// wrong, since the generator sends one.
#[inline(always)]
pub fn read<F: Family, const TUNNEL: usize, const TCP: bool>(
    frame: &[u8],
    direction: Direction,
) -> Option<Seen<F>> {
    let (head, rest) = frame.split_at_checked(Kind::<F, TUNNEL, TCP>::HEAD)?;
    let (ip, l4, at) =
        (Kind::<F, TUNNEL, TCP>::IP, Kind::<F, TUNNEL, TCP>::L4, Kind::<F, TUNNEL, TCP>::MARK);
    let is_ours = word16(head, 12) == tunnel::ethertype::<F, TUNNEL>().swap_bytes()
        && word32(head, at) == direction.magic()
        && F::is_whole(head, ip, Kind::<F, TUNNEL, TCP>::PROTOCOL, frame.len() - ip);
    if !is_ours {
        return None;
    }
    let (outer, mut is_right) = tunnel::read::<F, TUNNEL>(head, frame.len())?;
    let inner = F::addresses(head, ip);
    let l4_len = (frame.len() - l4) as u16;
    let mut sum = pseudo_sum(Kind::<F, TUNNEL, TCP>::PROTOCOL, l4_len)
        + F::sum(inner)
        + words(&head[l4..Kind::<F, TUNNEL, TCP>::HEAD]);
    if !rest.is_empty() {
        // The preceding part has an even length.
        sum += u64::from((checksum::partial(rest) as u16).swap_bytes());
    }
    is_right = is_right & F::is_header_right(head, ip) & (fold(sum) == 0xffff);
    if !TCP {
        is_right =
            is_right & (word16(head, l4 + 6) != 0) & (word16(head, l4 + 4) == l4_len.swap_bytes());
    }
    Some(Seen {
        addresses: Addresses { outer, inner, ports: word32(head, l4) },
        mark: Mark {
            flow: word32(head, at + 4),
            lap: word32(head, at + 8),
            stamp: word32(head, at + 12),
        },
        checksums_right: is_right,
    })
}

/// Returns the EtherType of a frame; 0 if it is too short to have one.
#[inline(always)]
pub fn ethertype(frame: &[u8]) -> u16 {
    frame.get(12..14).map_or(0, |bytes| word16(bytes, 0).swap_bytes())
}

/// Returns the flow that a packet claims to belong to, unchecked: enough to prefetch its record.
#[inline(always)]
pub fn claimed_flow<F: Family, const TUNNEL: usize, const TCP: bool>(frame: &[u8]) -> Option<u32> {
    let head = frame.get(..Kind::<F, TUNNEL, TCP>::HEAD)?;
    Some(word32(head, Kind::<F, TUNNEL, TCP>::MARK + 4))
}

/// Returns protocol and length of the pseudo header (RFC 768, RFC 9293 section 3.1), as wire words.
#[inline(always)]
fn pseudo_sum(protocol: u8, len: u16) -> u64 {
    u64::from(u16::from(protocol).swap_bytes()) + u64::from(len.swap_bytes())
}

/// Returns the sum of `bytes` as wire words; their number must be even.
#[inline(always)]
fn words(bytes: &[u8]) -> u64 {
    let chunks = bytes.chunks_exact(4);
    let tail = match chunks.remainder() {
        [a, b, ..] => u64::from(u16::from_le_bytes([*a, *b])),
        _ => 0,
    };
    chunks.fold(tail, |sum, word| sum + u64::from(word32(word, 0)))
}

/// Folds to 16 bits with end-around carry; sums here are below 2^48.
#[inline(always)]
fn fold(sum: u64) -> u16 {
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

#[inline(always)]
fn put<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&value);
}

#[inline(always)]
fn get<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut value = [0; N];
    value.copy_from_slice(&bytes[at..at + N]);
    value
}

#[inline(always)]
fn word16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(get(bytes, at))
}

#[inline(always)]
fn word32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(get(bytes, at))
}

#[inline(always)]
fn word64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(get(bytes, at))
}

#[cfg(test)]
mod tests;

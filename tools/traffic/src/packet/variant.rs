//! Packets that belong to no flow of the generator: those that an attacker sends beside the flows.
//! They carry a different mark, so that none of them counts as a packet of a flow. All are IPv4.

use super::{IPV4_LEN, Ipv4, Kind, Template, fold, get, pseudo_sum, put, words};

/// The mark of a packet that belongs to no flow.
const MAGIC: u32 = u32::from_le_bytes(*b"wrAT");
/// Bytes after the mark of a first fragment: with them its IP payload is a multiple of eight (RFC
/// 791 section 3.2).
const FRAGMENT_PADDING: usize = 6;
/// Bytes of the datagram that the first fragment leaves for further ones.
const FRAGMENT_REST: u16 = 1024;

impl Template {
    /// Returns the same packet with the mark of no flow.
    pub fn of_no_flow<const TUNNEL: usize, const TCP: bool>(mut self) -> Self {
        put(&mut self.bytes, Kind::<Ipv4, TUNNEL, TCP>::MARK, MAGIC.to_le_bytes());
        self.summed::<TUNNEL, TCP>()
    }

    /// Returns the same packet with another time to live; that of the tunnel stays.
    pub fn with_ttl<const TUNNEL: usize, const TCP: bool>(mut self, ttl: u8) -> Self {
        self.bytes[Kind::<Ipv4, TUNNEL, TCP>::IP + 8] = ttl;
        self.summed::<TUNNEL, TCP>()
    }

    /// Returns the same UDP packet as the first fragment of a datagram; it must have
    /// [`first_fragment_len`] bytes.
    pub fn as_first_fragment<const TUNNEL: usize>(mut self) -> Self {
        let (ip, l4) = (Kind::<Ipv4, TUNNEL, false>::IP, Kind::<Ipv4, TUNNEL, false>::L4);
        // More fragments, and no "don't fragment".
        self.bytes[ip + 6] = 0x20;
        let datagram = (self.bytes.len() - l4) as u16 + FRAGMENT_REST;
        put(&mut self.bytes, l4 + 4, datagram.to_be_bytes());
        self.summed::<TUNNEL, false>()
    }

    fn summed<const TUNNEL: usize, const TCP: bool>(mut self) -> Self {
        let (ip, l4) = (Kind::<Ipv4, TUNNEL, TCP>::IP, Kind::<Ipv4, TUNNEL, TCP>::L4);
        let l4_len = (self.bytes.len() - l4) as u16;
        self.ip_sum = words(&self.bytes[ip..ip + IPV4_LEN]);
        self.l4_sum =
            words(&self.bytes[l4..]) + pseudo_sum(Kind::<Ipv4, TUNNEL, TCP>::PROTOCOL, l4_len);
        self
    }
}

/// Returns the bytes of a first fragment, without FCS.
pub const fn first_fragment_len<const TUNNEL: usize>() -> usize {
    Kind::<Ipv4, TUNNEL, false>::HEAD + FRAGMENT_PADDING
}

/// Sets the identification (RFC 791 section 3.1) of a UDP packet just written.
#[inline]
pub fn identify<const TUNNEL: usize>(bytes: &mut [u8], identification: u16) {
    let ip = Kind::<Ipv4, TUNNEL, false>::IP;
    let sum = u64::from(!u16::from_le_bytes(get(bytes, ip + 10)));
    let identification = identification.to_be_bytes();
    put(bytes, ip + 4, identification);
    put(bytes, ip + 10, (!fold(sum + u64::from(u16::from_le_bytes(identification)))).to_le_bytes());
}

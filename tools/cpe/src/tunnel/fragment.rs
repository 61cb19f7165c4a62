//! Fragments of an outer IPv6 packet (RFC 8200 section 4.5).
//!
//! They are needed only where a path carries less than the 1280 bytes that IPv6 promises plus the
//! headers of the tunnel: the inner packet cannot become shorter there, so the outer one is
//! fragmented, and the other end of the tunnel reassembles it (RFC 7676 section 3.2).

use weir_wire::ipv6::{FRAGMENT_HEADER_LEN, Ipv6, PROTOCOL_FRAGMENT};

/// Position of the payload length in an IPv6 header.
const PAYLOAD_LENGTH: usize = 4;
/// Position of the next header field in an IPv6 header.
const NEXT_HEADER: usize = 6;

/// Returns the fragments of `packet`, an IPv6 header without extension headers and its payload, in
/// order; none is longer than `mtu` bytes, which is at least 1280.
pub(crate) fn fragments(
    packet: &[u8],
    mtu: u16,
    identification: u32,
) -> impl Iterator<Item = Vec<u8>> {
    let (header, payload) = packet.split_at(Ipv6::LEN);
    // All but the last are a multiple of 8 bytes long.
    let room = (usize::from(mtu) - Ipv6::LEN - FRAGMENT_HEADER_LEN) & !7;
    payload.chunks(room).enumerate().map(move |(number, part)| {
        let offset = number * room;
        let is_last = offset + part.len() == payload.len();
        let mut fragment = Vec::with_capacity(Ipv6::LEN + FRAGMENT_HEADER_LEN + part.len());
        fragment.extend_from_slice(header);
        let length = (FRAGMENT_HEADER_LEN + part.len()) as u16;
        fragment[PAYLOAD_LENGTH..PAYLOAD_LENGTH + 2].copy_from_slice(&length.to_be_bytes());
        fragment[NEXT_HEADER] = PROTOCOL_FRAGMENT;
        fragment.extend_from_slice(&[header[NEXT_HEADER], 0]);
        // The offset counts 8 bytes and stands in the upper 13 bits: in bytes it is in place.
        fragment.extend_from_slice(&(offset as u16 | u16::from(!is_last)).to_be_bytes());
        fragment.extend_from_slice(&identification.to_be_bytes());
        fragment.extend_from_slice(part);
        fragment
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(payload_len: usize) -> Vec<u8> {
        let mut packet = vec![0; Ipv6::LEN];
        packet[0] = 0x60;
        packet[4..6].copy_from_slice(&(payload_len as u16).to_be_bytes());
        packet[6] = 47;
        packet[7] = 64;
        packet.extend((0..payload_len).map(|at| (at * 7) as u8));
        packet
    }

    #[test]
    fn fragments_fit_the_mtu_and_their_payloads_are_the_packets() {
        for (payload_len, mtu) in [(1284, 1280), (1232, 1280), (1233, 1280), (4000, 1283)] {
            let whole = packet(payload_len);
            let mut payload = Vec::new();
            let parts: Vec<Vec<u8>> = fragments(&whole, mtu, 0xdead_beef).collect();
            for (number, part) in parts.iter().enumerate() {
                assert!(part.len() <= usize::from(mtu), "{} bytes", part.len());
                assert_eq!(part[..4], whole[..4]);
                assert_eq!(usize::from(u16::from_be_bytes([part[4], part[5]])), part.len() - 40);
                assert_eq!((part[6], &part[7..40]), (44, &whole[7..40]));
                assert_eq!((part[40], part[41]), (47, 0));
                let offset = u16::from_be_bytes([part[42], part[43]]);
                assert_eq!(usize::from(offset & !7), payload.len());
                assert_eq!(offset & 7, u16::from(number + 1 < parts.len()));
                assert_eq!(part[44..48], [0xde, 0xad, 0xbe, 0xef]);
                payload.extend_from_slice(&part[48..]);
            }
            assert_eq!(payload, whole[40..]);
        }
    }
}

//! Fragmentation of a packet (RFC 791 section 3.2).

use crate::checksum;
use crate::ipv4::{self, Ipv4};

/// Returns the fragments of an IPv4 packet, in order, none longer than `mtu` bytes; if the packet
/// fits, the packet itself. Ignores DF. A packet with options, or one that is a fragment itself,
/// keeps its options and its offset within the whole packet in each fragment.
///
/// # Panics
/// Panics if `packet` is not an IPv4 packet, or if `mtu` has no room for 8 bytes of payload.
pub fn fragments(packet: impl AsRef<[u8]>, mtu: usize) -> Vec<Vec<u8>> {
    let packet = packet.as_ref();
    let (whole, header_len, total_length) = ipv4::parse(packet).expect("an IPv4 packet");
    if total_length <= mtu {
        return vec![packet[..total_length].to_vec()];
    }
    let step = (mtu.saturating_sub(header_len)) / 8 * 8;
    assert!(step > 0, "an MTU of {mtu} bytes leaves no room");
    let (header, payload) = packet[..total_length].split_at(header_len);
    let parts = payload.chunks(step).enumerate();
    let last = payload.len().div_ceil(step) - 1;
    parts
        .map(|(index, part)| {
            let more = index < last || whole.more_fragments();
            fragment(header, whole.fragment_offset() + index * step, more, part)
        })
        .collect()
}

fn fragment(header: &[u8], offset: usize, more: bool, part: &[u8]) -> Vec<u8> {
    let mut packet = [header, part].concat();
    let total = packet.len() as u16;
    let (view, header_len, _) =
        ipv4::parse_quoted_mut(&mut packet).expect("the header of a parsed packet");
    view.total_length.set(total);
    view.set_fragment(false, more, offset);
    view.checksum.set(0);
    let sum = checksum::sum(&packet[..header_len]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    debug_assert!(packet.len() >= Ipv4::LEN);
    packet
}

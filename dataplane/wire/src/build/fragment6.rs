//! Fragmentation of an IPv6 packet (RFC 8200 section 4.5).

use crate::ipv6::{
    self, FRAGMENT_HEADER_LEN, Ipv6, PROTOCOL_FRAGMENT, PROTOCOL_HOP_BY_HOP, PROTOCOL_ROUTING,
};

/// Returns the fragments of an IPv6 packet, in order, none longer than `mtu` bytes; if the packet
/// fits, the packet itself. Hop-by-hop options and a routing header behind them stay in front of
/// the fragment header of each.
///
/// # Panics
/// Panics if `packet` is not an IPv6 packet, is a fragment, or if `mtu` has no room for 8 bytes of
/// payload.
pub fn fragments6(packet: impl AsRef<[u8]>, mtu: usize, identification: u32) -> Vec<Vec<u8>> {
    let packet = packet.as_ref();
    let (header, total_length) = ipv6::parse(packet).expect("an IPv6 packet");
    let upper = ipv6::walk(packet, total_length).expect("extension headers");
    assert!(upper.fragment.is_none(), "a fragment is not fragmented");
    if total_length <= mtu {
        return vec![packet[..total_length].to_vec()];
    }
    let (mut at, mut next_at, mut next) = (Ipv6::LEN, 6, header.next_header);
    while matches!(next, PROTOCOL_HOP_BY_HOP | PROTOCOL_ROUTING) {
        (next, next_at) = (packet[at], at);
        at += (usize::from(packet[at + 1]) + 1) * 8;
    }
    let mut front = packet[..at].to_vec();
    front[next_at] = PROTOCOL_FRAGMENT;
    let step = mtu.saturating_sub(at + FRAGMENT_HEADER_LEN) / 8 * 8;
    assert!(step > 0, "an MTU of {mtu} bytes leaves no room");
    let payload = &packet[at..total_length];
    let parts = payload.chunks(step).enumerate();
    parts
        .map(|(index, part)| {
            let offset = index * step;
            let more = offset + part.len() < payload.len();
            fragment(&front, next, (offset as u16 | u16::from(more), identification), part)
        })
        .collect()
}

/// Builds one fragment; `fields` = the offset with the flag, and the identification.
fn fragment(front: &[u8], next_header: u8, fields: (u16, u32), part: &[u8]) -> Vec<u8> {
    let [high, low] = fields.0.to_be_bytes();
    let header = [&[next_header, 0, high, low], &fields.1.to_be_bytes()[..]].concat();
    let mut packet = [front, &header, part].concat();
    let payload_len = (packet.len() - Ipv6::LEN) as u16;
    let (view, _) = ipv6::parse_quoted_mut(&mut packet).expect("the header of a parsed packet");
    view.payload_length.set(payload_len);
    packet
}

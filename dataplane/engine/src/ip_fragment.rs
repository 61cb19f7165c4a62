//! Fragmentation of an IPv4 packet to an MTU (RFC 791 section 3.2).

use weir_wire::frame::{Frame, Pool};
use weir_wire::ipv4::Ipv4;
use zerocopy::FromBytes;

use crate::DropReason;

const MORE_FRAGMENTS: u16 = 0x2000;
const OFFSET: u16 = 0x1fff;
/// Bit of the option type octet: copy this option into every fragment.
const COPIED: u8 = 0x80;

/// Emits `packet` as fragments of at most `mtu` bytes, in order. `packet` is a whole IPv4 packet
/// that may be fragmented, possibly itself a fragment. `emit` gets frames that start at the IP
/// header.
pub(crate) fn fragment<P: Pool>(
    packet: &[u8],
    header_len: usize,
    mtu: usize,
    pool: &mut P,
    mut emit: impl FnMut(&mut P, P::Frame),
) -> Result<(), DropReason> {
    let (header, payload) = packet.split_at_checked(header_len).ok_or(DropReason::IpMalformed)?;
    let (ip, options) = Ipv4::read_from_prefix(header).map_err(|_| DropReason::IpMalformed)?;
    let room = mtu.saturating_sub(header_len) & !7;
    if room == 0 {
        return Err(DropReason::DontFragment);
    }
    let (mut copied, copied_len) = copied_options(options);
    let last_has_more = ip.flags_fragment.get() & MORE_FRAGMENTS;
    let mut at = 0;
    while at < payload.len() {
        let part = &payload[at..payload.len().min(at + room)];
        let options = if at == 0 { options } else { &mut copied[..copied_len] };
        let mut fragment = ip;
        fragment.version_ihl = 0x40 | ((20 + options.len()) / 4) as u8;
        fragment.total_length = ((20 + options.len() + part.len()) as u16).into();
        let offset = (ip.flags_fragment.get() & OFFSET) + (at / 8) as u16;
        let is_last = at + part.len() == payload.len();
        let more = if is_last { last_has_more } else { MORE_FRAGMENTS };
        fragment.flags_fragment = (offset | more).into();
        let frame = copy(&fragment, options, part, pool).ok_or(DropReason::NoBuffer)?;
        emit(pool, frame);
        at += part.len();
    }
    Ok(())
}

fn copy<P: Pool>(ip: &Ipv4, options: &[u8], part: &[u8], pool: &mut P) -> Option<P::Frame> {
    use zerocopy::IntoBytes;
    let mut frame = pool.alloc()?;
    let header_len = 20 + options.len();
    if !frame.extend(header_len + part.len()) {
        return None;
    }
    let bytes = frame.data_mut();
    bytes[..20].copy_from_slice(ip.as_bytes());
    bytes[20..header_len].copy_from_slice(options);
    bytes[header_len..].copy_from_slice(part);
    bytes[10..12].fill(0);
    let checksum = weir_wire::checksum::sum(&bytes[..header_len]);
    bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
    Some(frame)
}

/// Returns the options that every fragment carries, padded to whole words, and their length in
/// bytes.
fn copied_options(options: &[u8]) -> ([u8; 40], usize) {
    let mut copied = [0; 40];
    let mut len = 0;
    let mut rest = options;
    while let [kind, tail @ ..] = rest {
        let size = match (kind, tail) {
            (0, _) => break,
            (1, _) => 1,
            (_, [size, ..]) if usize::from(*size) >= 2 => usize::from(*size).min(rest.len()),
            _ => break,
        };
        if kind & COPIED != 0 {
            copied[len..len + size].copy_from_slice(&rest[..size]);
            len += size;
        }
        rest = &rest[size..];
    }
    (copied, len.next_multiple_of(4))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_wire::frame::VecPool;
    use weir_wire::ipv4;

    fn packet(options: &[u8], payload_len: usize, flags_fragment: u16) -> Vec<u8> {
        let header_len = 20 + options.len();
        let mut packet = vec![0; header_len];
        packet[0] = 0x40 | (header_len / 4) as u8;
        packet[2..4].copy_from_slice(&((header_len + payload_len) as u16).to_be_bytes());
        packet[4..6].copy_from_slice(&77_u16.to_be_bytes());
        packet[6..8].copy_from_slice(&flags_fragment.to_be_bytes());
        packet[8..10].copy_from_slice(&[64, 17]);
        packet[20..header_len].copy_from_slice(options);
        packet.extend((0..payload_len).map(|i| i as u8));
        packet
    }

    fn fragments(packet: &[u8], mtu: usize) -> Vec<Vec<u8>> {
        let header_len = usize::from(packet[0] & 15) * 4;
        let mut out = Vec::new();
        fragment(packet, header_len, mtu, &mut VecPool::default(), |_, frame| {
            out.push(frame.data().to_vec())
        })
        .unwrap();
        out
    }

    /// Reassembles fragments by offset.
    fn reassemble(fragments: &[Vec<u8>]) -> Vec<u8> {
        let mut payload = Vec::new();
        for (index, bytes) in fragments.iter().enumerate() {
            let (ip, header_len, total) = ipv4::parse(bytes).unwrap();
            assert!(ipv4::header_checksum_ok(bytes));
            assert_eq!(total, bytes.len());
            assert_eq!(ip.fragment_offset(), payload.len());
            assert_eq!(ip.more_fragments(), index + 1 < fragments.len());
            payload.extend_from_slice(&bytes[header_len..]);
        }
        payload
    }

    #[test]
    fn every_payload_size_is_reassembled_from_fragments_within_the_mtu() {
        for payload_len in [1, 8, 1479, 1480, 1481, 3000, 9000] {
            let packet = packet(&[], payload_len, 0);
            let fragments = fragments(&packet, 1400);
            assert!(fragments.iter().all(|fragment| fragment.len() <= 1400));
            assert_eq!(reassemble(&fragments), packet[20..]);
        }
    }

    #[test]
    fn fragment_is_fragmented_again_at_its_own_offset() {
        let packet = packet(&[], 1480, MORE_FRAGMENTS | 185);
        let fragments = fragments(&packet, 1000);
        let heads: Vec<_> = fragments
            .iter()
            .map(|bytes| {
                let (ip, _, _) = ipv4::parse(bytes).unwrap();
                (ip.fragment_offset(), ip.more_fragments())
            })
            .collect();
        assert_eq!(heads, [(1480, true), (1480 + 976, true)]);
    }

    #[test]
    fn only_copied_options_are_repeated() {
        // Record route (7, not copied) of 4 bytes, then router alert (148, copied) of 4 bytes.
        let options = [7, 4, 4, 0, 148, 4, 0, 0];
        let fragments = fragments(&packet(&options, 2000, 0), 1000);
        assert_eq!(&fragments[0][20..28], options);
        assert_eq!(fragments[1][0], 0x46);
        assert_eq!(&fragments[1][20..24], [148, 4, 0, 0]);
    }
}

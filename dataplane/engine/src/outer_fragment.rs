//! Reassembly of tunnel packets that arrive in fragments (RFC 791 section 3.2, RFC 8200 section
//! 4.5): the fragments are held until the packet is whole, which is then received as any other.
//!
//! They are held as inner fragments without their first are (`fragment_cache.rs`): bounded in
//! number, in time, and for each home, by its outer address. Fragments that overlap end their
//! packet (RFC 5722).

use weir_flow::HashKey;
use weir_nat::Home;
use weir_wire::checksum;
use weir_wire::frame::{Frame, Pool};
use weir_wire::ipv4::{self, Ipv4};
use weir_wire::ipv6::{self, FRAGMENT_HEADER_LEN, FragmentHeader, Ipv6};
use zerocopy::FromBytes;

use crate::access_input::Up;
use crate::engine::{Context, Engine};
use crate::fragment_cache::{DatagramEnds, DatagramKey, EarlyFragments, FragmentCache};
use crate::slow_path::Way;
use crate::tunnel6::outer_address;
use crate::{AccessMode, BURST_MAX, DropReason, FragmentLimits, Side, ecn};

/// Most fragments of a packet that is put together: more than any link needs for 64 KiB.
const PIECES_MAX: usize = 16;

/// What a fragment says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    /// Bytes of payload in front of this one's.
    offset: usize,
    len: usize,
    is_last: bool,
    /// Length of all in front of the payload, bytes.
    header_len: usize,
    /// Type of service octet, or traffic class.
    tos: u8,
    /// Place in the order of arrival.
    number: usize,
}

impl Piece {
    /// Reads a fragment. None if no packet has such a fragment: only the last one may have a
    /// length that is not a multiple of 8, and no packet is longer than 65,535 bytes.
    fn read(packet: &[u8], number: usize) -> Option<Self> {
        let piece = match ipv6::is_version_6(packet) {
            true => Self::read6(packet, number)?,
            false => Self::read4(packet, number)?,
        };
        let Self { offset, len, is_last, header_len, .. } = piece;
        let is_sound = len > 0 && (is_last || len.is_multiple_of(8));
        let fits = header_len + offset + len <= usize::from(u16::MAX);
        (is_sound && fits).then_some(piece)
    }

    fn read4(packet: &[u8], number: usize) -> Option<Self> {
        let (ip, header_len, total_length) = ipv4::parse(packet).ok()?;
        let (offset, len) = (ip.fragment_offset(), total_length - header_len);
        let is_last = !ip.more_fragments();
        Some(Self { offset, len, is_last, header_len, tos: ip.tos, number })
    }

    fn read6(packet: &[u8], number: usize) -> Option<Self> {
        let (ip, total_length) = ipv6::parse(packet).ok()?;
        let fragment = fragment_header(packet)?;
        let header_len = fragment.at + FRAGMENT_HEADER_LEN;
        Some(Self {
            offset: fragment.offset.into(),
            len: total_length.checked_sub(header_len)?,
            is_last: !fragment.more_fragments,
            header_len,
            tos: ip.traffic_class(),
            number,
        })
    }
}

/// The fragments of a packet that have come, by their offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pieces {
    Incomplete,
    /// Some overlap, or do not belong together.
    Contradictory,
    /// The packet is whole: `order` are the places of its first `count` fragments.
    Whole {
        order: [usize; PIECES_MAX],
        count: usize,
        tos: u8,
    },
}

impl Pieces {
    fn of<'a>(packets: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut pieces: [Option<Piece>; PIECES_MAX] = [None; PIECES_MAX];
        let mut count = 0;
        for packet in packets {
            let (Some(slot), Some(piece)) = (pieces.get_mut(count), Piece::read(packet, count))
            else {
                return Self::Contradictory;
            };
            *slot = Some(piece);
            count += 1;
        }
        pieces[..count].sort_unstable_by_key(|piece| piece.map(|piece| piece.offset));
        let (mut order, mut end, mut is_whole) = ([0; PIECES_MAX], 0, false);
        let mut has_gap = false;
        for (place, piece) in order.iter_mut().zip(pieces[..count].iter().flatten()) {
            if piece.offset < end || is_whole {
                return Self::Contradictory;
            }
            has_gap |= piece.offset > end;
            (*place, end, is_whole) = (piece.number, piece.offset + piece.len, piece.is_last);
        }
        if has_gap || !is_whole {
            return Self::Incomplete;
        }
        match ecn::of_fragments(pieces[..count].iter().flatten().map(|piece| piece.tos)) {
            Some(tos) => Self::Whole { order, count, tos },
            None => Self::Contradictory,
        }
    }
}

/// The fragments of tunnel packets, and the packets that a burst has made whole.
#[derive(Debug)]
pub(crate) struct OuterFragments<F> {
    pub(crate) cache: FragmentCache<F>,
    whole: Vec<F>,
    hash_key: HashKey,
}

impl<F> OuterFragments<F> {
    /// `limits` are those of inner fragments. Without tunnels there is no room.
    pub(crate) fn new(limits: FragmentLimits, mode: AccessMode, seed: [u64; 2]) -> Self {
        let limits = FragmentLimits {
            datagrams_max: 0,
            held_max: if mode == AccessMode::Gre { limits.held_max } else { 0 },
            held_per_datagram_max: limits.held_per_datagram_max.min(PIECES_MAX),
            ..limits
        };
        Self {
            cache: FragmentCache::new(limits, seed),
            whole: Vec::with_capacity(BURST_MAX),
            hash_key: HashKey::new([seed[0] ^ 0x6f75_7466, seed[1]]),
        }
    }

    /// Returns the key of a tunnel packet over IPv6 with this fragment. A keyed hash of the source
    /// stands in place of its upper half, so that the home has a share of the room, and not its
    /// link, whose homes may be many.
    fn key6(&self, ip: &Ipv6, fragment: &FragmentHeader) -> DatagramKey {
        let source = ip.source.get();
        let hash = self.hash_key.hash2([(source >> 64) as u64, source as u64]);
        let ends = DatagramEnds::Ipv6 {
            source: u128::from(hash.0) << 64 | u128::from(source as u64),
            destination: ip.destination.get(),
            identification: fragment.identification,
        };
        DatagramKey { home: None, ends }
    }
}

impl<F: Frame> Engine<F> {
    /// Holds a fragment of a tunnel packet of `home`.
    #[cold]
    #[inline(never)]
    pub(crate) fn hold_outer_fragment<P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        home: &Home,
        cx: &mut Context<'_, P>,
    ) {
        if !self.nat.is_subscriber(home) {
            return self.discard(DropReason::NotSubscriber);
        }
        if !self.may_take_slow_path(home, Way::Up) {
            return self.discard(DropReason::SlowPathLimit);
        }
        let key = match Ipv4::ref_from_prefix(frame.data()) {
            Ok((ip, _)) if Piece::read(frame.data(), 0).is_some() => DatagramKey {
                home: Some(Home { gre_key: None, ..*home }),
                ends: DatagramEnds::Ipv4 {
                    source: ip.source.get(),
                    destination: ip.destination.get(),
                    identification: ip.identification.get(),
                    protocol: ip.protocol,
                },
            },
            _ => return self.discard(DropReason::OuterFragment),
        };
        let group = self.nat.group_of(home);
        self.hold_piece(frame, key, group, cx);
    }

    /// Holds a fragment of a tunnel packet over IPv6, to which the frame is cut. Its home may hold
    /// no state here, and gets none.
    #[cold]
    #[inline(never)]
    pub(crate) fn hold_outer_fragment6<P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        cx: &mut Context<'_, P>,
    ) {
        let fragment =
            fragment_header(frame.data()).filter(|_| Piece::read(frame.data(), 0).is_some());
        let (Ok((ip, _)), Some(fragment)) = (Ipv6::ref_from_prefix(frame.data()), fragment) else {
            return self.discard(DropReason::OuterFragment);
        };
        if !self.nat.is_home_over_ipv6(outer_address(ip)) {
            return self.discard(DropReason::NotSubscriber);
        }
        let key = self.outer_fragments.key6(ip, &fragment);
        if !self.may_remote_take_slow_path(key.sender(0).party) {
            return self.discard(DropReason::SlowPathLimit);
        }
        self.hold_piece(frame, key, 0, cx);
    }

    /// Holds a fragment. The packet is received with the next burst of
    /// [`receive_whole`](Self::receive_whole), once it is whole.
    fn hold_piece<P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        key: DatagramKey,
        group: u8,
        cx: &mut Context<'_, P>,
    ) {
        let is_ipv6 = ipv6::is_version_6(frame.data());
        let OuterFragments { cache: fragments, whole: joined, .. } = &mut self.outer_fragments;
        // A fragment for which there is no room falls itself.
        let fallen = fragments.hold(key, group, frame, cx.now.ms).unwrap_or(1);
        self.counters.count_drops(DropReason::OuterFragment, fallen);
        match Pieces::of(fragments.waiting(&key).map(Frame::data)) {
            Pieces::Incomplete => {}
            Pieces::Contradictory => {
                let mut held = fragments.take_waiting(&key);
                let count = std::iter::from_fn(|| fragments.release(&mut held)).count();
                self.counters.count_drops(DropReason::OuterFragment, count as u64);
            }
            Pieces::Whole { order, count, tos } => {
                let mut held = fragments.take_waiting(&key);
                let link = &self.links[Side::Access as usize];
                let whole = join(fragments, &mut held, &order[..count], tos)
                    .and_then(|mut whole| {
                        let header = match is_ipv6 {
                            true => link.header6_to(link.mac),
                            false => link.header_to(link.mac),
                        };
                        header.push(&mut whole).then_some(whole)
                    })
                    .filter(|_| joined.len() < joined.capacity());
                match whole {
                    Some(whole) => joined.push(whole),
                    None => self.counters.count_drops(DropReason::OuterFragment, count as u64),
                }
            }
        }
    }

    /// Receives the tunnel packets that are whole now.
    #[inline(always)]
    pub(crate) fn receive_whole<P: Pool<Frame = F>>(&mut self, cx: &mut Context<'_, P>) {
        if !self.outer_fragments.whole.is_empty() {
            let mut frames = std::mem::take(&mut self.outer_fragments.whole);
            self.receive_burst::<Up, P>(&mut frames, cx);
            self.outer_fragments.whole = frames;
        }
    }
}

/// Makes one packet of its fragments. None if the frame of the first has no room for all of them.
fn join<F: Frame>(
    fragments: &mut FragmentCache<F>,
    held: &mut EarlyFragments,
    order: &[usize],
    tos: u8,
) -> Option<F> {
    let mut frames: [Option<F>; PIECES_MAX] = [const { None }; PIECES_MAX];
    for frame in &mut frames {
        *frame = fragments.release(held);
    }
    let [first, others @ ..] = order else { return None };
    let mut whole = frames[*first].take()?;
    let is_ipv6 = ipv6::is_version_6(whole.data());
    let fragment = if is_ipv6 { fragment_header(whole.data()) } else { None };
    for number in others {
        let frame = frames[*number].take()?;
        let payload = frame.data().get(Piece::read(frame.data(), 0)?.header_len..)?;
        let len = whole.data().len();
        if !whole.extend(payload.len()) {
            return None;
        }
        whole.data_mut().get_mut(len..)?.copy_from_slice(payload);
    }
    match is_ipv6 {
        true => remove_fragment_header(&mut whole, &fragment?, tos)?,
        false => clear_fragment_fields(whole.data_mut(), tos)?,
    }
    Some(whole)
}

/// Makes the header of a first fragment, which all others follow, that of the whole packet.
fn clear_fragment_fields(bytes: &mut [u8], tos: u8) -> Option<()> {
    let len = u16::try_from(bytes.len()).ok()?;
    let (ip, _) = Ipv4::mut_from_prefix(bytes).ok()?;
    ip.total_length.set(len);
    ip.tos = tos;
    ip.set_fragment(ip.dont_fragment(), false, 0);
    let header_len = usize::from(ip.version_ihl & 15) * 4;
    let header = bytes.get_mut(..header_len)?;
    header[10..12].fill(0);
    let sum = checksum::sum(header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    Some(())
}

/// As [`clear_fragment_fields`], in IPv6: the first fragment loses its fragment header.
fn remove_fragment_header<F: Frame>(
    whole: &mut F,
    &FragmentHeader { at, .. }: &FragmentHeader,
    class: u8,
) -> Option<()> {
    let bytes = whole.data_mut();
    // The header in front of the fragment header names what followed it.
    let (mut next_at, mut end) = (6, Ipv6::LEN);
    while end < at {
        (next_at, end) = (end, end + (usize::from(*bytes.get(end + 1)?) + 1) * 8);
    }
    *bytes.get_mut(next_at)? = *bytes.get(at)?;
    bytes.get_mut(..at + FRAGMENT_HEADER_LEN)?.copy_within(..at, FRAGMENT_HEADER_LEN);
    whole.pull(FRAGMENT_HEADER_LEN);
    let bytes = whole.data_mut();
    let len = u16::try_from(bytes.len() - Ipv6::LEN).ok()?;
    let (ip, _) = Ipv6::mut_from_prefix(bytes).ok()?;
    ip.payload_length.set(len);
    ip.set_traffic_class(class);
    Some(())
}

/// Returns the fragment header of an IPv6 packet that has one.
fn fragment_header(packet: &[u8]) -> Option<FragmentHeader> {
    ipv6::walk(packet, packet.len()).ok()?.fragment
}

#[cfg(test)]
mod tests {
    use weir_wire::build;

    use super::*;

    fn packet(offset: usize, len: usize, more: bool, tos: u8) -> Vec<u8> {
        let head = build::ipv4("10.0.0.1", "10.0.0.2").tos(tos).fragment(offset, more);
        head.payload(ipv4::PROTOCOL_GRE, vec![0; len])
    }

    fn pieces(packets: &[(usize, usize, bool, u8)]) -> Pieces {
        let packets: Vec<_> = packets
            .iter()
            .map(|&(offset, len, more, tos)| packet(offset, len, more, tos))
            .collect();
        Pieces::of(packets.iter().map(Vec::as_slice))
    }

    #[test]
    fn packet_is_whole_once_all_its_fragments_have_come_in_any_order() {
        let all = [(0, 16, true, 0), (16, 8, true, 0), (24, 3, false, 0)];
        for [a, b, c] in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let Pieces::Whole { order, count, tos } = pieces(&[all[a], all[b], all[c]]) else {
                panic!("the packet is whole");
            };
            let offsets = order[..count].iter().map(|&number| all[[a, b, c][number]].0);
            assert_eq!((offsets.collect::<Vec<_>>(), tos), (vec![0, 16, 24], 0));
            assert_eq!(pieces(&[all[a], all[b]]), Pieces::Incomplete);
        }
    }

    #[test]
    fn fragments_that_overlap_or_go_beyond_the_last_one_end_their_packet() {
        for [one, other] in [
            [(0, 16, true, 0), (8, 16, false, 0)],
            [(0, 16, true, 0), (0, 16, true, 0)],
            [(16, 8, false, 0), (24, 8, true, 0)],
            [(16, 8, false, 0), (24, 8, false, 0)],
        ] {
            assert_eq!(pieces(&[one, other]), Pieces::Contradictory);
            assert_eq!(pieces(&[other, one]), Pieces::Contradictory);
        }
    }

    #[test]
    fn fragment_that_no_packet_has_is_refused() {
        for (offset, len, more) in [(0, 9, true), (0, 0, true), (65_528, 9, false)] {
            assert_eq!(Piece::read(&packet(offset, len, more, 0), 0), None);
        }
    }

    /// RFC 3168 section 5.3.
    #[test]
    fn congestion_mark_of_a_fragment_is_one_of_the_packet() {
        let tos_of = |one, other| match pieces(&[(0, 8, true, one), (8, 8, false, other)]) {
            Pieces::Whole { tos, .. } => Some(tos),
            _ => None,
        };
        assert_eq!(tos_of(0b10, 0b11), Some(0b11));
        assert_eq!(tos_of(0b11, 0b01), Some(0b11));
        assert_eq!(tos_of(0b10, 0b10), Some(0b10));
        assert_eq!(tos_of(0b00, 0b11), None);
    }
}

//! Reassembly of tunnel packets that the access network fragmented (RFC 791 section 3.2): the
//! fragments are held until the packet is whole, which is then received as any other.
//!
//! They are held as inner fragments without their first are (`fragment_cache.rs`): bounded in
//! number, in time, and for each home, by its outer address. Fragments that overlap end their
//! packet, as RFC 5722 has it for IPv6.

use weir_nat::Home;
use weir_wire::checksum;
use weir_wire::frame::{Frame, Pool};
use weir_wire::ipv4::{self, Ipv4};
use zerocopy::FromBytes;

use crate::access_input::Up;
use crate::engine::{Context, Engine};
use crate::fragment_cache::{DatagramEnds, DatagramKey, EarlyFragments, FragmentCache};
use crate::slow_path::Way;
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
    header_len: usize,
    tos: u8,
    /// Place in the order of arrival.
    number: usize,
}

impl Piece {
    /// Reads a fragment. None if no packet has such a fragment: only the last one may have a
    /// length that is not a multiple of 8, and no packet is longer than 65,535 bytes.
    fn read(packet: &[u8], number: usize) -> Option<Self> {
        let (ip, header_len, total_length) = ipv4::parse(packet).ok()?;
        let (offset, len) = (ip.fragment_offset(), total_length - header_len);
        let is_last = !ip.more_fragments();
        let is_sound = len > 0 && (is_last || len.is_multiple_of(8));
        let fits = header_len + offset + len <= usize::from(u16::MAX);
        let piece = Self { offset, len, is_last, header_len, tos: ip.tos, number };
        (is_sound && fits).then_some(piece)
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
        Self { cache: FragmentCache::new(limits, seed), whole: Vec::with_capacity(BURST_MAX) }
    }
}

impl<F: Frame> Engine<F> {
    /// Holds a fragment of a tunnel packet of `home`. The packet is received with the next burst
    /// of [`receive_whole`](Self::receive_whole), once it is whole.
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
        let OuterFragments { cache: fragments, whole: joined } = &mut self.outer_fragments;
        let group = self.nat.group_of(home);
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
                        link.header_to(link.mac).push(&mut whole).then_some(whole)
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
    for number in others {
        let frame = frames[*number].take()?;
        let (_, header_len, _) = ipv4::parse(frame.data()).ok()?;
        let payload = frame.data().get(header_len..)?;
        let len = whole.data().len();
        if !whole.extend(payload.len()) {
            return None;
        }
        whole.data_mut().get_mut(len..)?.copy_from_slice(payload);
    }
    let bytes = whole.data_mut();
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
    Some(whole)
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

//! Hot. Bursts of a worker with IPv6: the fast path of the family that its EtherType names reads
//! each frame, which goes to the burst of its family. Frames with tunnel packets over IPv6 go to
//! two more bursts (`crate::over_ipv6`).

use weir_wire::ethernet::ETHERTYPE_IPV6;
use weir_wire::frame::{Frame, Pool};

use crate::Side;
use crate::burst::Burst;
use crate::engine::{Context, Engine, PREFETCH_AHEAD};
use crate::fast_path::{FastPacket, GRE, Headers, PLAIN};
use crate::ipv6::{Burst6, carries_ipv6};
use crate::packet_direction::PacketDirection;

/// What a burst has.
struct BurstRead<F> {
    /// Bytes of all frames.
    bytes: u64,
    /// The frames that are not of IPv6. None if all frames have fast-path packets of IPv4: these
    /// stay where they are.
    others: Vec<F>,
    /// Frames that the fast path has not read, a bit for each: those that are not of IPv6, and
    /// those in the burst of IPv6.
    slow4: u64,
    slow6: u64,
}

/// Family of a packet inside its tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PacketFamily {
    Ipv4,
    Ipv6,
}

impl<F: Frame> Engine<F> {
    /// Processes a burst; returns the bytes of its frames.
    #[inline(never)]
    pub(crate) fn both_families<
        D: PacketDirection,
        const LINK: usize,
        const TUNNEL: usize,
        P: Pool<Frame = F>,
    >(
        &mut self,
        frames: &mut Vec<F>,
        (burst, burst6): (&mut Burst<D>, &mut Burst6<F>),
        cx: &mut Context<'_, P>,
    ) -> u64 {
        // No packet of an earlier burst is in work.
        self.nat.release_outers();
        let BurstRead { bytes, mut others, slow4, slow6 } =
            self.read_both::<D, LINK, TUNNEL>(frames, burst, burst6);
        self.begin6::<D>(burst6, slow6);
        let ipv4 = if others.is_empty() { frames } else { &mut others };
        if !ipv4.is_empty() {
            self.begin_look_ups::<D>(&mut burst.fast[..ipv4.len()]);
            self.translate_all::<D, LINK, TUNNEL, P>(ipv4, burst, slow4, cx);
        }
        burst6.others = others;
        self.forward_all6::<D, LINK, TUNNEL, P>(burst6, slow6, cx);
        if burst6.over_ipv6.iter().any(|frames| !frames.is_empty()) {
            self.burst_over_ipv6::<D, LINK, P>(burst, burst6, cx);
        }
        bytes
    }

    /// Reads the fast-path packets of a burst, and takes the frames out of it, unless all of them
    /// are such packets of IPv4.
    #[inline(never)]
    fn read_both<D: PacketDirection, const LINK: usize, const TUNNEL: usize>(
        &self,
        frames: &mut Vec<F>,
        burst: &mut Burst<D>,
        burst6: &mut Burst6<F>,
    ) -> BurstRead<F> {
        let (fast4, fast6) = (&mut *burst.fast, &mut *burst6.fast);
        let (mut ipv4, ipv6) = (std::mem::take(&mut burst6.others), &mut burst6.frames);
        let (mut slow4, mut slow6) = (0, 0);
        let (mut bytes, leading) = self.read_leading::<D, LINK, TUNNEL>(frames, fast4);
        if leading == frames.len() {
            return BurstRead { bytes, others: ipv4, slow4, slow6 };
        }
        let has_over_ipv6 = D::SIDE == Side::Access && TUNNEL == GRE && self.nat.has_outer_ipv6();
        let mut frames = frames.drain(..);
        ipv4.extend(frames.by_ref().take(leading));
        while let Some(frame) = frames.next() {
            if let Some(ahead) = frames.as_slice().get(PREFETCH_AHEAD - 1) {
                ahead.prefetch(D::ROOM);
            }
            let data = frame.data();
            bytes += data.len() as u64;
            match likely_family::<D, LINK, TUNNEL>(data) {
                Some(PacketFamily::Ipv4)
                    if D::read_fast::<LINK, TUNNEL, F>(self, &frame, &mut fast4[ipv4.len()]) =>
                {
                    ipv4.push(frame);
                    continue;
                }
                Some(PacketFamily::Ipv6)
                    if D::read_fast6::<LINK, TUNNEL, F>(self, &frame, &mut fast6[ipv6.len()]) =>
                {
                    ipv6.push(frame);
                    continue;
                }
                _ => {}
            }
            if has_over_ipv6 && let Some(inside) = self.family_over_ipv6::<LINK>(data) {
                burst6.over_ipv6[inside as usize].push(frame);
                continue;
            }
            match is_of_ipv6::<LINK, TUNNEL>(data) {
                true => {
                    slow6 |= 1 << ipv6.len();
                    ipv6.push(frame);
                }
                false => {
                    slow4 |= 1 << ipv4.len();
                    ipv4.push(frame);
                }
            }
        }
        BurstRead { bytes, others: ipv4, slow4, slow6 }
    }

    /// Reads the frames in front of a burst that have fast-path packets of IPv4. Where IPv6 is
    /// rare, most bursts have no others, and no frame is moved. Returns their bytes and their
    /// number.
    #[inline(never)]
    fn read_leading<D: PacketDirection, const LINK: usize, const TUNNEL: usize>(
        &self,
        frames: &[F],
        slots: &mut [FastPacket<D::Key>],
    ) -> (u64, usize) {
        let mut bytes = 0;
        frames.iter().take(PREFETCH_AHEAD).for_each(|frame| frame.prefetch(D::ROOM));
        for ((at, packet), frame) in slots.iter_mut().enumerate().zip(frames) {
            if let Some(ahead) = frames.get(at + PREFETCH_AHEAD) {
                ahead.prefetch(D::ROOM);
            }
            let is_ipv4 =
                likely_family::<D, LINK, TUNNEL>(frame.data()) == Some(PacketFamily::Ipv4);
            if !is_ipv4 || !D::read_fast::<LINK, TUNNEL, F>(self, frame, packet) {
                return (bytes, at);
            }
            bytes += frame.data().len() as u64;
        }
        (bytes, frames.len())
    }
}

/// Returns the family of a frame's packet if that is one of the fast path, which checks it; `None`
/// for one in a tunnel over IPv6.
#[inline(always)]
fn likely_family<D: PacketDirection, const LINK: usize, const TUNNEL: usize>(
    frame: &[u8],
) -> Option<PacketFamily> {
    let tunnel_len = if D::SIDE == Side::Access { TUNNEL } else { PLAIN };
    // One test here spares one at each read.
    if frame.len() < LINK + tunnel_len + size_of::<Headers>() {
        return None;
    }
    let has_ipv6_at = |at: usize| frame[at..at + 2] == ETHERTYPE_IPV6.to_be_bytes();
    if tunnel_len != PLAIN && has_ipv6_at(LINK - 2) {
        return None;
    }
    Some(if has_ipv6_at(LINK + tunnel_len - 2) { PacketFamily::Ipv6 } else { PacketFamily::Ipv4 })
}

/// As `carries_ipv6`, for the few frames that no fast path reads.
#[cold]
#[inline(never)]
fn is_of_ipv6<const LINK: usize, const TUNNEL: usize>(frame: &[u8]) -> bool {
    carries_ipv6::<LINK, TUNNEL>(frame)
}

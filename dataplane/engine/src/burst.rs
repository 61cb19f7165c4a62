//! Hot. The steps of a burst, the same from homes and from the internet. A direction says what a
//! step is to it.

use std::vec::Drain;

use weir_nat::{FlowKey6, Hash, LookUp, PacketKey, Tick};
use weir_wire::frame::{Frame, Pool};

use crate::engine::{BURST_MAX, Context, Engine, PREFETCH_AHEAD};
use crate::fast_path::{FastPacket, GRE, PLAIN};
use crate::ipv6::{Packet6State, carries_ipv6};
use crate::link_header::{TAGGED, UNTAGGED};
use crate::{AccessMode, DropReason, Output, Side};

/// A side's packets: [`Up`](crate::access_input::Up) or [`Down`](crate::internet_input::Down).
pub(crate) trait PacketDirection: Sized {
    type Key: PacketKey;
    /// State of a frame of the slow path.
    type Slow: Copy;

    /// The side from which the packets come.
    const SIDE: Side;
    /// An unused `Slow`.
    const EMPTY: Self::Slow;
    /// Largest number of bytes by which the front of a packet grows on its way.
    const ROOM: usize;

    fn burst_mut<F: Frame>(engine: &mut Engine<F>) -> &mut Burst<Self>;

    /// Fills in `packet` and returns true for a fast-path packet.
    fn read_fast<const LINK: usize, const TUNNEL: usize, F: Frame>(
        engine: &Engine<F>,
        frame: &F,
        packet: &mut FastPacket<Self::Key>,
    ) -> bool;

    /// Whether a packet has what `read_fast` does not look for, since no record has it: a martian
    /// address, port 0, an address of this worker.
    fn is_unusual<F: Frame>(engine: &Engine<F>, packet: &FastPacket<Self::Key>) -> bool;

    /// Edits and sends packets until one is not of a settled session. Returns how many it sent.
    fn send_settled<const LINK: usize, const TUNNEL: usize, F: Frame>(
        engine: &mut Engine<F>,
        run: SettledRun<'_, '_, F, Self::Key>,
    ) -> usize;

    /// Whether a packet without a settled session may take the slow path, which is dear.
    fn may_take_slow_path<F: Frame>(engine: &mut Engine<F>, key: &Self::Key) -> bool;

    /// Fills in what the slow path reads of a packet that began at `offset` of its frame.
    fn fill(packet: &FastPacket<Self::Key>, bytes: &[u8], offset: usize, slow: &mut Self::Slow);

    /// Decides on the step of any frame, cuts the frame to what the step concerns, and prefetches
    /// its index line. Returns the hash.
    fn read_slow<F: Frame>(engine: &Engine<F>, frame: &mut F, slow: &mut Self::Slow) -> Hash;

    /// Reads an IPv6 packet, see [`Engine::read_access6`]. The other two states are for an IPv4
    /// packet inside.
    fn read_ipv6<F: Frame>(
        engine: &Engine<F>,
        frame: &mut F,
        packet: (&mut Packet6State, &mut FastPacket<Self::Key>, &mut Self::Slow),
    );

    /// Carries out the step of an IPv6 packet.
    fn serve_ipv6<F: Frame, P: Pool<Frame = F>>(
        engine: &mut Engine<F>,
        frame: F,
        packet: (&Packet6State, &FastPacket<Self::Key>, &mut Self::Slow),
        cx: &mut Context<'_, P>,
    );

    fn set_look_up(slow: &mut Self::Slow, look_up: &LookUp);

    /// Carries out the step of a frame of the slow path.
    fn serve<F: Frame, P: Pool<Frame = F>>(
        engine: &mut Engine<F>,
        frame: F,
        slow: &Self::Slow,
        cx: &mut Context<'_, P>,
    );

    /// Sends a packet of a settled session to a home with a tunnel over IPv6. Returns the frame of
    /// any other packet.
    fn send_over_ipv6<F: Frame, P: Pool<Frame = F>>(
        engine: &mut Engine<F>,
        frame: F,
        packet: &FastPacket<Self::Key>,
        offset: usize,
        cx: &mut Context<'_, P>,
    ) -> Option<F>;

    /// Translates a packet that may change its session.
    fn translate<F: Frame, P: Pool<Frame = F>>(
        engine: &mut Engine<F>,
        frame: F,
        slow: &Self::Slow,
        cx: &mut Context<'_, P>,
    );

    /// Keeps the frame of a packet that opens a flow until [`finish`](Self::finish). Returns the
    /// frame if the packet may be of a flow that is there.
    fn wait<F: Frame>(
        engine: &mut Engine<F>,
        frame: F,
        packet: &FastPacket<Self::Key>,
        offset: usize,
    ) -> Option<F>;

    /// Translates a packet of no known session.
    fn translate_other<F: Frame, P: Pool<Frame = F>>(
        engine: &mut Engine<F>,
        frame: F,
        slow: &Self::Slow,
        cx: &mut Context<'_, P>,
    );

    fn finish<F: Frame, P: Pool<Frame = F>>(engine: &mut Engine<F>, cx: &mut Context<'_, P>);
}

/// State of the frames of a burst, one slot for each.
#[derive(Debug)]
pub(crate) struct Burst<D: PacketDirection> {
    fast: Box<[FastPacket<D::Key>]>,
    slow: Box<[D::Slow]>,
}

impl<D: PacketDirection> Burst<D> {
    pub(crate) fn new() -> Self {
        Self {
            fast: vec![FastPacket::empty(); BURST_MAX].into_boxed_slice(),
            slow: vec![D::EMPTY; BURST_MAX].into_boxed_slice(),
        }
    }
}

/// Packets of the fast path that follow each other, with their frames.
pub(crate) struct SettledRun<'a, 'f, F, K> {
    pub(crate) packets: &'a [FastPacket<K>],
    pub(crate) frames: &'a mut Drain<'f, F>,
    pub(crate) out: &'a mut Output<F>,
    pub(crate) now: Tick,
}

impl<F: Frame> Engine<F> {
    /// Processes a burst; returns the bytes of its frames.
    pub(crate) fn receive_burst<D: PacketDirection, P: Pool<Frame = F>>(
        &mut self,
        frames: &mut Vec<F>,
        cx: &mut Context<'_, P>,
    ) -> u64 {
        match (self.mode, self.link(D::SIDE).is_tagged()) {
            (AccessMode::Gre, false) => self.burst::<D, UNTAGGED, GRE, P>(frames, cx),
            (AccessMode::Gre, true) => self.burst::<D, TAGGED, GRE, P>(frames, cx),
            (AccessMode::Plain, false) => self.burst::<D, UNTAGGED, PLAIN, P>(frames, cx),
            (AccessMode::Plain, true) => self.burst::<D, TAGGED, PLAIN, P>(frames, cx),
        }
    }

    #[inline(never)]
    fn burst<D: PacketDirection, const LINK: usize, const TUNNEL: usize, P: Pool<Frame = F>>(
        &mut self,
        frames: &mut Vec<F>,
        cx: &mut Context<'_, P>,
    ) -> u64 {
        let count = frames.len();
        let none = Burst { fast: Box::default(), slow: Box::default() };
        let mut burst = std::mem::replace(D::burst_mut(self), none);
        let (fast, slow) = (&mut burst.fast[..count], &mut burst.slow[..count]);
        let (bytes, slow_frames) = self.read::<D, LINK, TUNNEL>(frames, fast);
        self.begin_look_ups::<D>(fast);
        let mut ipv6 = std::mem::take(&mut self.ipv6_packets);
        let ipv6_frames = match slow_frames {
            0 => 0,
            _ if ipv6.is_empty() => 0,
            _ => self.read_ipv6::<D, LINK, TUNNEL>(frames, slow_frames, &mut ipv6, (fast, slow)),
        };
        for at in ones(slow_frames & !ipv6_frames) {
            fast[at].look_up.hash = D::read_slow(self, &mut frames[at], &mut slow[at]);
        }
        self.nat.look_up::<D::Key, _>(fast);
        let mut frames = frames.drain(..);
        match ipv6_frames {
            0 => self.serve_all::<D, LINK, TUNNEL, false, P>(
                &mut frames,
                fast,
                slow,
                (slow_frames, 0),
                &[],
                cx,
            ),
            _ => {
                let ipv6 = &mut ipv6[..ipv6_frames.count_ones() as usize];
                self.nat.look_up::<FlowKey6, _>(ipv6);
                self.serve_all::<D, LINK, TUNNEL, true, P>(
                    &mut frames,
                    fast,
                    slow,
                    (slow_frames, ipv6_frames),
                    ipv6,
                    cx,
                );
            }
        }
        drop(frames);
        D::finish(self, cx);
        *D::burst_mut(self) = burst;
        self.ipv6_packets = ipv6;
        bytes
    }

    /// Carries out the steps of all frames, in their order. Bit by bit: those of the slow path, and
    /// among them those with IPv6 packets, whose states follow each other in `ipv6`. Without
    /// `IPV6` there are none: a loop of its own keeps its registers.
    #[inline(always)]
    fn serve_all<
        D: PacketDirection,
        const LINK: usize,
        const TUNNEL: usize,
        const IPV6: bool,
        P: Pool<Frame = F>,
    >(
        &mut self,
        frames: &mut Drain<'_, F>,
        fast: &[FastPacket<D::Key>],
        slow: &mut [D::Slow],
        (slow_frames, ipv6_frames): (u64, u64),
        ipv6: &[Packet6State],
        cx: &mut Context<'_, P>,
    ) {
        let (count, now) = (fast.len(), cx.now.tick());
        let mut ipv6 = ipv6.iter();
        let mut at = 0;
        while at < count {
            let is_slow = slow_frames >> at;
            let end = count.min(at + is_slow.trailing_zeros() as usize);
            let FastPacket { key, look_up, .. } = &fast[at];
            if at < end && self.nat.is_first_settled(look_up.candidate, key) {
                let run = SettledRun { packets: &fast[at..end], frames, out: cx.out, now };
                at += D::send_settled::<LINK, TUNNEL, F>(self, run);
            }
            let Some(frame) = frames.next() else { break };
            if at < end {
                let offset = if D::SIDE == Side::Access { LINK + TUNNEL } else { LINK };
                self.unsettled::<D, P>(frame, &fast[at], offset, &mut slow[at], cx);
            } else if IPV6 && ipv6_frames >> at & 1 != 0 {
                if let Some(packet) = ipv6.next() {
                    D::serve_ipv6(self, frame, (packet, &fast[at], &mut slow[at]), cx);
                }
            } else {
                D::set_look_up(&mut slow[at], &fast[at].look_up);
                D::serve(self, frame, &slow[at], cx);
            }
            at += 1;
        }
    }

    /// Reads the fast-path packets of a burst. Returns the bytes of all frames, and the frames that
    /// are left to the slow path, one bit each.
    #[inline(never)]
    fn read<D: PacketDirection, const LINK: usize, const TUNNEL: usize>(
        &self,
        frames: &[F],
        burst: &mut [FastPacket<D::Key>],
    ) -> (u64, u64) {
        let (mut bytes, mut slow) = (0, 0);
        frames.iter().take(PREFETCH_AHEAD).for_each(|frame| frame.prefetch(D::ROOM));
        for ((at, packet), frame) in burst.iter_mut().enumerate().zip(frames) {
            if let Some(ahead) = frames.get(at + PREFETCH_AHEAD) {
                ahead.prefetch(D::ROOM);
            }
            bytes += frame.data().len() as u64;
            if !D::read_fast::<LINK, TUNNEL, F>(self, frame, packet) {
                slow |= 1 << at;
            }
        }
        (bytes, slow)
    }

    /// Reads the IPv6 packets among the frames that the fast path has left, in their order, and
    /// prefetches their index lines. Returns these frames, one bit each.
    #[inline(never)]
    fn read_ipv6<D: PacketDirection, const LINK: usize, const TUNNEL: usize>(
        &mut self,
        frames: &mut [F],
        slow_frames: u64,
        packets: &mut [Packet6State],
        (fast, slow): (&mut [FastPacket<D::Key>], &mut [D::Slow]),
    ) -> u64 {
        // No packet of an earlier burst is in work.
        self.nat.release_outers();
        let (mut found, mut packets) = (0, packets.iter_mut());
        for at in ones(slow_frames) {
            let frame = &mut frames[at];
            if !carries_ipv6::<LINK, TUNNEL>(frame.data()) {
                continue;
            }
            let Some(packet) = packets.next() else { break };
            D::read_ipv6(self, frame, (packet, &mut fast[at], &mut slow[at]));
            found |= 1 << at;
        }
        found
    }

    /// Step 1 of the look-ups.
    #[inline(never)]
    fn begin_look_ups<D: PacketDirection>(&self, burst: &mut [FastPacket<D::Key>]) {
        for packet in burst {
            packet.look_up.hash = packet.key.hash(&self.nat);
            self.nat.begin_look_up::<D::Key>(packet.look_up.hash);
        }
    }

    /// Translates a fast-path packet, which begins at `offset` of its frame, whose session is not
    /// known to be settled.
    #[inline(always)]
    fn unsettled<D: PacketDirection, P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        packet: &FastPacket<D::Key>,
        offset: usize,
        slow: &mut D::Slow,
        cx: &mut Context<'_, P>,
    ) {
        match self.nat.is_first(packet.look_up.candidate, &packet.key) {
            false => self.other::<D, P>(frame, packet, offset, slow, cx),
            true => self.first::<D, P>(frame, packet, offset, slow, cx),
        }
    }

    /// The packet has no mapping yet, or it is of another session of it.
    #[inline(never)]
    fn other<D: PacketDirection, P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        packet: &FastPacket<D::Key>,
        offset: usize,
        slow: &mut D::Slow,
        cx: &mut Context<'_, P>,
    ) {
        if !D::may_take_slow_path(self, &packet.key) {
            return self.discard(DropReason::SlowPathLimit);
        }
        if D::is_unusual(self, packet) {
            return self.read_again::<D, P>(frame, packet, slow, cx);
        }
        let Some(mut frame) = D::wait(self, frame, packet, offset) else { return };
        Self::cut::<D>(&mut frame, packet, offset, slow);
        D::translate_other(self, frame, slow, cx);
    }

    /// The packet may change the session.
    #[inline(never)]
    fn first<D: PacketDirection, P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        packet: &FastPacket<D::Key>,
        offset: usize,
        slow: &mut D::Slow,
        cx: &mut Context<'_, P>,
    ) {
        if D::is_unusual(self, packet) {
            return self.read_again::<D, P>(frame, packet, slow, cx);
        }
        let Some(mut frame) = D::send_over_ipv6(self, frame, packet, offset, cx) else { return };
        Self::cut::<D>(&mut frame, packet, offset, slow);
        D::translate(self, frame, slow, cx);
    }

    /// Cuts a frame to its packet and fills in what the slow path reads of it.
    #[inline(always)]
    fn cut<D: PacketDirection>(
        frame: &mut F,
        packet: &FastPacket<D::Key>,
        offset: usize,
        slow: &mut D::Slow,
    ) {
        frame.keep(offset, usize::from(packet.len));
        D::fill(packet, frame.data(), offset, slow);
    }

    #[cold]
    #[inline(never)]
    fn read_again<D: PacketDirection, P: Pool<Frame = F>>(
        &mut self,
        mut frame: F,
        packet: &FastPacket<D::Key>,
        slow: &mut D::Slow,
        cx: &mut Context<'_, P>,
    ) {
        D::read_slow(self, &mut frame, slow);
        D::set_look_up(slow, &packet.look_up);
        D::serve(self, frame, slow, cx);
    }
}

/// Returns the numbers of the bits that are set, from the lowest on.
fn ones(mut bits: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lowest = (bits != 0).then(|| bits.trailing_zeros() as usize);
        bits &= bits.wrapping_sub(1);
        lowest
    })
}

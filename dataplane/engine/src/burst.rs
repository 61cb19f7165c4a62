//! Hot. The steps of a burst, the same from homes and from the internet. A direction says what a
//! step is to it.

use std::vec::Drain;

use weir_nat::{Hash, LookUp, PacketKey, Tick};
use weir_wire::frame::{Frame, Pool};

use crate::engine::{BURST_MAX, Context, Engine, PREFETCH_AHEAD};
use crate::fast_path::{FastPacket, GRE, PLAIN};
use crate::ipv6::{Burst6, FastKey6, FastPacket6, Packet6State};
use crate::link_header::{TAGGED, UNTAGGED};
use crate::tunnel6::Inner4State;
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

    /// As `read_fast`, for a packet of IPv6.
    fn read_fast6<const LINK: usize, const TUNNEL: usize, F: Frame>(
        engine: &Engine<F>,
        frame: &F,
        packet: &mut FastPacket6,
    ) -> bool;

    /// As `send_settled`, for packets of IPv6.
    fn send_settled6<const LINK: usize, const TUNNEL: usize, F: Frame>(
        engine: &mut Engine<F>,
        run: SettledRun<'_, '_, F, FastKey6>,
    ) -> usize;

    /// As `read_slow`, for a frame with an IPv6 packet. An IPv4 packet in a tunnel over IPv6 has a
    /// state of its own.
    fn read_slow6<F: Frame>(
        engine: &Engine<F>,
        frame: &mut F,
        packet: (&mut Packet6State, &mut Inner4State),
    );

    /// Carries out the step of an IPv6 packet that the fast path has not read.
    fn serve6<F: Frame, P: Pool<Frame = F>>(
        engine: &mut Engine<F>,
        frame: F,
        packet: (&Packet6State, &mut Inner4State),
        cx: &mut Context<'_, P>,
    );

    /// Forwards an IPv6 packet whose flow is not settled.
    fn serve_unsettled6<F: Frame, P: Pool<Frame = F>>(
        engine: &mut Engine<F>,
        frame: F,
        packet: &Packet6State,
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
        let none = Burst { fast: Box::default(), slow: Box::default() };
        let mut burst = std::mem::replace(D::burst_mut(self), none);
        let (bytes, slow_frames) = self.read::<D, LINK, TUNNEL>(frames, &mut burst.fast);
        if slow_frames != 0 && self.burst6.is_on() {
            self.both_families::<D, LINK, TUNNEL, P>(frames, &mut burst, slow_frames, cx);
        } else {
            self.begin_look_ups::<D>(&mut burst.fast[..frames.len()]);
            self.translate_all::<D, LINK, TUNNEL, P>(frames, &mut burst, slow_frames, cx);
        }
        *D::burst_mut(self) = burst;
        bytes
    }

    /// Processes a burst, whose fast-path packets of IPv4 are read, that may have packets of IPv6.
    #[inline(never)]
    fn both_families<
        D: PacketDirection,
        const LINK: usize,
        const TUNNEL: usize,
        P: Pool<Frame = F>,
    >(
        &mut self,
        frames: &mut Vec<F>,
        burst: &mut Burst<D>,
        slow_frames: u64,
        cx: &mut Context<'_, P>,
    ) {
        // No packet of an earlier burst is in work.
        self.nat.release_outers();
        let mut burst6 = std::mem::replace(&mut self.burst6, Burst6::new(0));
        let frames6 = self.read6::<D, LINK, TUNNEL>(frames, slow_frames, &mut burst6);
        let mut others = burst6.part(frames, frames6.all);
        self.begin6::<D>(&mut burst6, frames6.slow);
        if !others.is_empty() {
            let slow_frames = without(slow_frames, frames6.all);
            self.begin_look_ups_without::<D>(&mut burst.fast, others.len(), frames6.all);
            self.translate_all::<D, LINK, TUNNEL, P>(&mut others, burst, slow_frames, cx);
        }
        self.forward_all6::<D, LINK, TUNNEL, P>(&mut burst6, frames6.slow, cx);
        // Packets of IPv4 came in tunnels over IPv6, too.
        D::finish(self, cx);
        burst6.take_back(others);
        self.burst6 = burst6;
    }

    /// Steps 2 to 4 of the packets of IPv4, and those of the slow path before. `slow_frames`: the
    /// frames of the slow path, a bit for each.
    #[inline(always)]
    fn translate_all<
        D: PacketDirection,
        const LINK: usize,
        const TUNNEL: usize,
        P: Pool<Frame = F>,
    >(
        &mut self,
        frames: &mut Vec<F>,
        burst: &mut Burst<D>,
        slow_frames: u64,
        cx: &mut Context<'_, P>,
    ) {
        let count = frames.len();
        let (fast, slow) = (&mut burst.fast[..count], &mut burst.slow[..count]);
        for at in ones(slow_frames) {
            fast[at].look_up.hash = D::read_slow(self, &mut frames[at], &mut slow[at]);
        }
        self.nat.look_up::<D::Key, _>(fast);
        self.serve_all::<D, LINK, TUNNEL, P>(frames, fast, slow, slow_frames, cx);
        D::finish(self, cx);
    }

    /// Carries out the steps of all frames, in their order. `slow_frames`: those of the slow path,
    /// a bit for each.
    #[inline(always)]
    fn serve_all<D: PacketDirection, const LINK: usize, const TUNNEL: usize, P: Pool<Frame = F>>(
        &mut self,
        frames: &mut Vec<F>,
        fast: &[FastPacket<D::Key>],
        slow: &mut [D::Slow],
        slow_frames: u64,
        cx: &mut Context<'_, P>,
    ) {
        let (count, now) = (fast.len(), cx.now.tick());
        let mut frames = frames.drain(..);
        let mut at = 0;
        while at < count {
            let is_slow = slow_frames >> at;
            let end = count.min(at + is_slow.trailing_zeros() as usize);
            let FastPacket { key, look_up, .. } = &fast[at];
            if at < end && self.nat.is_first_settled(look_up.candidate, key) {
                let frames = &mut frames;
                let run = SettledRun { packets: &fast[at..end], frames, out: cx.out, now };
                at += D::send_settled::<LINK, TUNNEL, F>(self, run);
            }
            let Some(frame) = frames.next() else { break };
            match at < end {
                true => {
                    let offset = if D::SIDE == Side::Access { LINK + TUNNEL } else { LINK };
                    self.unsettled::<D, P>(frame, &fast[at], offset, &mut slow[at], cx);
                }
                false => {
                    D::set_look_up(&mut slow[at], &fast[at].look_up);
                    D::serve(self, frame, &slow[at], cx);
                }
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

    /// Step 1 of the look-ups.
    #[inline(never)]
    fn begin_look_ups<D: PacketDirection>(&self, burst: &mut [FastPacket<D::Key>]) {
        for packet in burst {
            packet.look_up.hash = packet.key.hash(&self.nat);
            self.nat.begin_look_up::<D::Key>(packet.look_up.hash);
        }
    }

    /// As [`begin_look_ups`](Self::begin_look_ups), and moves the `count` packets of a burst that
    /// are not of `taken` together.
    #[inline(never)]
    fn begin_look_ups_without<D: PacketDirection>(
        &self,
        burst: &mut [FastPacket<D::Key>],
        count: usize,
        taken: u64,
    ) {
        for (to, at) in ones(!taken).take(count).enumerate() {
            let mut packet = burst[at];
            packet.look_up.hash = packet.key.hash(&self.nat);
            self.nat.begin_look_up::<D::Key>(packet.look_up.hash);
            burst[to] = packet;
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

/// Returns the bits of `frames` as they are once those of `taken` are taken out, which it has.
fn without(frames: u64, taken: u64) -> u64 {
    ones(frames & !taken).fold(0, |left, at| {
        let before = taken & ((1 << at) - 1);
        left | 1 << (at - before.count_ones() as usize)
    })
}

/// Returns the numbers of the bits that are set, from the lowest on.
pub(crate) fn ones(mut bits: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lowest = (bits != 0).then(|| bits.trailing_zeros() as usize);
        bits &= bits.wrapping_sub(1);
        lowest
    })
}

//! Hot. The steps of a burst, the same from homes and from the internet; what a step is to a side
//! says its [`PacketDirection`].

use weir_nat::PacketKey;
use weir_wire::frame::{Frame, Pool};

use crate::engine::{BURST_MAX, Context, Engine, PREFETCH_AHEAD};
use crate::fast_path::{FastPacket, GRE, PLAIN};
use crate::link_header::{TAGGED, UNTAGGED};
use crate::packet_direction::{PacketDirection, SettledRun};
use crate::{AccessMode, DropReason, Side};

/// State of the frames of a burst, one slot for each.
#[derive(Debug)]
pub(crate) struct Burst<D: PacketDirection> {
    pub(crate) fast: Box<[FastPacket<D::Key>]>,
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
        let bytes = match self.burst6.take() {
            Some(mut burst6) => {
                let bursts = (&mut burst, &mut *burst6);
                let bytes = self.both_families::<D, LINK, TUNNEL, P>(frames, bursts, cx);
                self.burst6 = Some(burst6);
                bytes
            }
            None => {
                let (bytes, slow_frames) = self.read::<D, LINK, TUNNEL>(frames, &mut burst.fast);
                self.begin_look_ups::<D>(&mut burst.fast[..frames.len()]);
                self.translate_all::<D, LINK, TUNNEL, P>(frames, &mut burst, slow_frames, cx);
                bytes
            }
        };
        *D::burst_mut(self) = burst;
        bytes
    }

    /// Steps 2 to 4 of the packets of IPv4, and those of the slow path before. `slow_frames`: the
    /// frames of the slow path, a bit for each.
    #[inline(always)]
    pub(crate) fn translate_all<
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
    pub(crate) fn read<D: PacketDirection, const LINK: usize, const TUNNEL: usize>(
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
    pub(crate) fn begin_look_ups<D: PacketDirection>(&self, burst: &mut [FastPacket<D::Key>]) {
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
            return self.other_unusual::<D, P>(frame, packet, offset, slow, cx);
        }
        self.other_usual::<D, P>(frame, packet, offset, slow, cx);
    }

    #[inline(always)]
    fn other_usual<D: PacketDirection, P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        packet: &FastPacket<D::Key>,
        offset: usize,
        slow: &mut D::Slow,
        cx: &mut Context<'_, P>,
    ) {
        let Some(mut frame) = D::wait(self, frame, packet, offset) else { return };
        Self::cut::<D>(&mut frame, packet, offset, slow);
        D::translate_other(self, frame, slow, cx);
    }

    /// The packet may change the session.
    #[inline(never)]
    fn first<D: PacketDirection, P: Pool<Frame = F>>(
        &mut self,
        mut frame: F,
        packet: &FastPacket<D::Key>,
        offset: usize,
        slow: &mut D::Slow,
        cx: &mut Context<'_, P>,
    ) {
        if D::is_unusual(self, packet) {
            return self.read_again::<D, P>(frame, packet, slow, cx);
        }
        Self::cut::<D>(&mut frame, packet, offset, slow);
        D::translate(self, frame, slow, cx);
    }

    #[inline(never)]
    fn other_unusual<D: PacketDirection, P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        packet: &FastPacket<D::Key>,
        offset: usize,
        slow: &mut D::Slow,
        cx: &mut Context<'_, P>,
    ) {
        match D::is_usual_over_ipv6(self, &frame, packet) {
            true => self.other_usual::<D, P>(frame, packet, offset, slow, cx),
            false => self.read_again::<D, P>(frame, packet, slow, cx),
        }
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
pub(crate) fn ones(mut bits: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lowest = (bits != 0).then(|| bits.trailing_zeros() as usize);
        bits &= bits.wrapping_sub(1);
        lowest
    })
}

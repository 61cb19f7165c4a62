//! Hot. The IPv6 packets of a burst: they are taken out of it, and go through the same steps as
//! those of IPv4 in a burst of their own.

use weir_nat::PacketKey;
use weir_wire::frame::{Frame, Pool};

use crate::burst::ones;
use crate::engine::{Context, Engine};
use crate::ipv6::fast_path::{FastKey6, FastPacket6};
use crate::ipv6::input::carries_ipv6;
use crate::ipv6::new_flows::NewFlows6;
use crate::ipv6::packet::Packet6State;
use crate::over_ipv6::OverIpv6;
use crate::packet_direction::{PacketDirection, SettledRun};
use crate::tunnel6::GRE6;
use crate::{AccessMode, Side};

/// The frames with IPv6 packets of a burst, and the state of each while it is processed.
#[derive(Debug)]
pub(crate) struct Burst6<F> {
    pub(crate) frames: Vec<F>,
    /// Room for the other frames.
    others: Vec<F>,
    /// A slot for each frame of a full burst, as in `slow`.
    pub(crate) fast: Box<[FastPacket6]>,
    slow: Box<[Packet6State]>,
    new_flows: NewFlows6<F>,
    /// Frames with tunnel packets over IPv6, with IPv4 inside and with IPv6.
    pub(crate) over_ipv6: [Vec<F>; 2],
}

/// Which frames of a burst carry IPv6 packets, a bit for each.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Frames6 {
    pub(crate) all: u64,
    /// Those that the fast path has not read; a bit for each frame of `all`.
    pub(crate) slow: u64,
}

impl<F> Burst6<F> {
    /// Makes slots for so many frames.
    pub(crate) fn new(slots: usize) -> Self {
        Self {
            frames: Vec::with_capacity(slots),
            others: Vec::with_capacity(slots),
            fast: vec![FastPacket6::empty(); slots].into(),
            slow: vec![Packet6State::EMPTY; slots].into(),
            new_flows: NewFlows6::new(slots),
            over_ipv6: [Vec::with_capacity(slots), Vec::with_capacity(slots)],
        }
    }

    /// Whether there are slots.
    pub(crate) fn is_on(&self) -> bool {
        !self.fast.is_empty()
    }

    /// Takes these frames out of a burst, a bit for each, those in tunnels over IPv6 by themselves.
    /// Returns all others, in their order, in a vector to be [taken back](Self::take_back).
    pub(crate) fn part(
        &mut self,
        frames: &mut Vec<F>,
        mut taken: u64,
        over_ipv6: &OverIpv6,
    ) -> Vec<F> {
        let mut others = std::mem::take(&mut self.others);
        if over_ipv6.all() != 0 {
            self.part_over_ipv6(frames, taken, over_ipv6, &mut others);
        } else if taken.count_ones() as usize == frames.len() {
            self.frames.append(frames);
        }
        for frame in frames.drain(..) {
            match taken & 1 {
                0 => others.push(frame),
                _ => self.frames.push(frame),
            }
            taken >>= 1;
        }
        others
    }

    /// As [`part`](Self::part), to the end of `others`.
    #[inline(never)]
    fn part_over_ipv6(
        &mut self,
        frames: &mut Vec<F>,
        mut taken: u64,
        &OverIpv6 { ipv4: mut over4, ipv6: mut over6 }: &OverIpv6,
        others: &mut Vec<F>,
    ) {
        let all = |taken: u64| taken.count_ones() as usize == frames.len();
        if all(over4) {
            self.over_ipv6[0].append(frames);
        } else if all(over6) {
            self.over_ipv6[1].append(frames);
        }
        for frame in frames.drain(..) {
            match (taken & 1, over4 & 1, over6 & 1) {
                (0, ..) => others.push(frame),
                (_, 1, _) => self.over_ipv6[0].push(frame),
                (_, _, 1) => self.over_ipv6[1].push(frame),
                _ => self.frames.push(frame),
            }
            (taken, over4, over6) = (taken >> 1, over4 >> 1, over6 >> 1);
        }
    }

    /// Takes the memory of the vector that [`part`](Self::part) has returned.
    pub(crate) fn take_back(&mut self, others: Vec<F>) {
        self.others = others;
    }
}

impl<F: Frame> Engine<F> {
    /// Finds the IPv6 packets among the frames that the IPv4 fast path has left, a bit for each,
    /// and reads those of the fast path.
    #[inline(never)]
    pub(crate) fn read6<D: PacketDirection, const LINK: usize, const TUNNEL: usize>(
        &self,
        frames: &[F],
        left: u64,
        slots: &mut [FastPacket6],
    ) -> Frames6 {
        let (mut found, mut count) = (Frames6::default(), 0);
        for at in ones(left) {
            let (frame, packet) = (&frames[at], &mut slots[count]);
            let is_fast = D::read_fast6::<LINK, TUNNEL, F>(self, frame, packet);
            if is_fast || TUNNEL == GRE6 || carries_ipv6::<LINK, TUNNEL>(frame.data()) {
                found.all |= 1 << at;
                found.slow |= u64::from(!is_fast) << count;
                count += 1;
            }
        }
        found
    }

    /// Step 1 of the look-ups of IPv6 packets. `slow`: those that the fast path has not read, a bit
    /// for each.
    #[inline(never)]
    pub(crate) fn begin6<D: PacketDirection>(&self, burst: &mut Burst6<F>, slow: u64) {
        let Burst6 { frames, fast, slow: states, .. } = burst;
        for packet in &mut fast[..frames.len()] {
            packet.look_up.hash = packet.key.hash(&self.nat);
            self.nat.begin_look_up::<FastKey6>(packet.look_up.hash);
        }
        for at in ones(slow) {
            D::read_slow6(self, &mut frames[at], &mut states[at]);
            fast[at].look_up = states[at].look_up;
        }
    }

    /// Steps 2 to 4 of the IPv6 packets of a burst, in their order.
    #[inline(never)]
    pub(crate) fn forward_all6<
        D: PacketDirection,
        const LINK: usize,
        const TUNNEL: usize,
        P: Pool<Frame = F>,
    >(
        &mut self,
        burst: &mut Burst6<F>,
        slow: u64,
        cx: &mut Context<'_, P>,
    ) {
        let Burst6 { frames, fast, slow: states, new_flows, .. } = burst;
        let (count, now) = (frames.len(), cx.now.tick());
        // A packet behind one of the slow path may be of a flow that this has opened.
        let first_slow = slow.trailing_zeros() as usize;
        self.nat.look_up::<FastKey6, _>(&mut fast[..count]);
        let mut frames = frames.drain(..);
        let mut at = 0;
        while at < count {
            let end = count.min(at + (slow >> at).trailing_zeros() as usize);
            let FastPacket6 { key, look_up, .. } = &fast[at];
            if at < end && self.nat.is_first_settled(look_up.candidate, key) {
                let frames = &mut frames;
                let run = SettledRun { packets: &fast[at..end], frames, out: cx.out, now };
                at += D::send_settled6::<LINK, TUNNEL, F>(self, run);
            }
            let Some(frame) = frames.next() else { break };
            match at < end {
                true => {
                    let offset = if D::SIDE == Side::Access { LINK + TUNNEL } else { LINK };
                    let state = (at, &mut states[at]);
                    let new_flows = (at < first_slow).then_some(&mut *new_flows);
                    self.unsettled6::<D, P>(frame, &fast[at], offset, state, new_flows, cx);
                }
                false => {
                    // It may be of a flow that waits to be opened.
                    if !new_flows.is_empty() {
                        self.open_flows6(states, new_flows, cx);
                    }
                    states[at].look_up = fast[at].look_up;
                    D::serve6(self, frame, &states[at], cx);
                }
            }
            at += 1;
        }
        if !new_flows.is_empty() {
            self.open_flows6(states, new_flows, cx);
        }
    }

    /// Processes a fast-path packet, which begins at `offset` of its frame, whose flow is not known
    /// to be settled. It may wait in `new_flows`.
    #[inline(never)]
    fn unsettled6<D: PacketDirection, P: Pool<Frame = F>>(
        &mut self,
        mut frame: F,
        packet: &FastPacket6,
        offset: usize,
        (at, state): (usize, &mut Packet6State),
        new_flows: Option<&mut NewFlows6<F>>,
        cx: &mut Context<'_, P>,
    ) {
        let native =
            (D::SIDE == Side::Internet || self.mode == AccessMode::Plain).then_some(D::SIDE);
        if self.is_unusual6(frame.data().get(offset..).unwrap_or_default(), native) {
            D::read_slow6(self, &mut frame, state);
            state.look_up = packet.look_up;
            return D::serve6(self, frame, state, cx);
        }
        frame.keep(offset, usize::from(packet.len));
        packet.fill(frame.data(), state);
        let frame = match new_flows {
            Some(new_flows) => D::wait6(self, frame, (at, state), new_flows),
            None => Some(frame),
        };
        let Some(frame) = frame else { return };
        D::serve_unsettled6(self, frame, state, cx);
    }
}

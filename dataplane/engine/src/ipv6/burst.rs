//! Hot. The IPv6 packets of a burst go through the same steps as those of IPv4, in a burst of their
//! own (`crate::both_families`).

use weir_nat::PacketKey;
use weir_wire::frame::{Frame, Pool};

use crate::burst::ones;
use crate::engine::{BURST_MAX, Context, Engine};
use crate::ipv6::fast_path::{FastKey6, FastPacket6};
use crate::ipv6::new_flows::NewFlows6;
use crate::ipv6::packet::Packet6State;
use crate::packet_direction::{PacketDirection, SettledRun};
use crate::{AccessMode, Side};

/// The frames with IPv6 packets of a burst, and the state of each while it is processed.
#[derive(Debug)]
pub(crate) struct Burst6<F> {
    pub(crate) frames: Vec<F>,
    /// Room for the frames of a burst that are not of IPv6.
    pub(crate) others: Vec<F>,
    /// A slot for each frame of a full burst, as in `slow`.
    pub(crate) fast: Box<[FastPacket6]>,
    slow: Box<[Packet6State]>,
    new_flows: NewFlows6<F>,
    /// Frames with tunnel packets over IPv6, with IPv4 inside and with IPv6.
    pub(crate) over_ipv6: [Vec<F>; 2],
}

impl<F> Burst6<F> {
    pub(crate) fn new() -> Self {
        let frames = || Vec::with_capacity(BURST_MAX);
        Self {
            frames: frames(),
            others: frames(),
            fast: vec![FastPacket6::empty(); BURST_MAX].into(),
            slow: vec![Packet6State::EMPTY; BURST_MAX].into(),
            new_flows: NewFlows6::new(),
            over_ipv6: [frames(), frames()],
        }
    }
}

impl<F: Frame> Engine<F> {
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

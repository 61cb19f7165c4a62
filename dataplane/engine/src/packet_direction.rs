//! What a step of a burst is to packets from homes, and to packets from the internet.

use std::vec::Drain;

use weir_nat::{Hash, LookUp, PacketKey, Tick};
use weir_wire::frame::{Frame, Pool};

use crate::burst::Burst;
use crate::engine::{Context, Engine};
use crate::fast_path::FastPacket;
use crate::ipv6::{FastKey6, FastPacket6, NewFlows6, Packet6State};
use crate::{Output, Side};

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

    /// Whether a packet is unusual only by its home's address, which is a handle, since it came in
    /// a tunnel over IPv6.
    fn is_usual_over_ipv6<F: Frame>(
        engine: &Engine<F>,
        frame: &F,
        packet: &FastPacket<Self::Key>,
    ) -> bool;

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

    /// As `read_slow`, for a frame with an IPv6 packet.
    fn read_slow6<F: Frame>(engine: &Engine<F>, frame: &mut F, packet: &mut Packet6State);

    /// Carries out the step of an IPv6 packet that the fast path has not read.
    fn serve6<F: Frame, P: Pool<Frame = F>>(
        engine: &mut Engine<F>,
        frame: F,
        packet: &Packet6State,
        cx: &mut Context<'_, P>,
    );

    /// As `wait`, for a packet of IPv6, whose state is in this slot of its burst.
    fn wait6<F: Frame>(
        engine: &mut Engine<F>,
        frame: F,
        packet: (usize, &Packet6State),
        waiting: &mut NewFlows6<F>,
    ) -> Option<F>;

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

/// Packets of the fast path that follow each other, with their frames.
pub(crate) struct SettledRun<'a, 'f, F, K> {
    pub(crate) packets: &'a [FastPacket<K>],
    pub(crate) frames: &'a mut Drain<'f, F>,
    pub(crate) out: &'a mut Output<F>,
    pub(crate) now: Tick,
}

impl<'f, F, K> SettledRun<'_, 'f, F, K> {
    /// Returns the run without its first packets, which are sent.
    #[inline(always)]
    pub(crate) fn behind(&mut self, sent: usize) -> SettledRun<'_, 'f, F, K> {
        let Self { packets, frames, out, now } = self;
        SettledRun { packets: &packets[sent..], frames, out, now: *now }
    }
}

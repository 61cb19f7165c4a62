//! Hot. The IPv6 packets of a burst that begin flows of homes: they wait for the rest of their
//! burst, as those of IPv4 do (`crate::new_flows`), so that the cache misses of a step overlap.
//!
//! Packets of a flow stay in their order: the second one waits behind the first, a packet that the
//! fast path has not read comes after all that wait, and none waits behind such a packet, which may
//! have opened its flow.

use weir_nat::{Hash, Home, LikelySubscriber, RecordId};
use weir_wire::frame::{Frame, Pool};

use crate::engine::{Context, Engine};
use crate::ipv6::packet::Packet6State;
use crate::new_flows::{SEEN_WORDS, seen_bit};
use crate::slow_path::Way;
use crate::{BURST_MAX, DropReason};

/// The waiting packets, in their order.
#[derive(Debug)]
pub(crate) struct NewFlows6<F> {
    frames: Vec<F>,
    packets: Vec<WaitingPacket6>,
    /// Bits of the hashes of `packets`.
    seen: Box<[u64]>,
}

#[derive(Clone, Copy, Debug)]
struct WaitingPacket6 {
    /// Slot of the packet in its burst.
    at: u8,
    /// Whether a packet of its flow may wait before it.
    may_be_behind: bool,
    home: Home,
    hash_of_home: Hash,
    /// The subscriber that the home probably is.
    likely: LikelySubscriber,
}

impl<F> NewFlows6<F> {
    /// Makes room for the packets of a burst.
    pub(crate) fn new() -> Self {
        Self {
            frames: Vec::with_capacity(BURST_MAX),
            packets: Vec::with_capacity(BURST_MAX),
            seen: vec![0; SEEN_WORDS].into(),
        }
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }
}

impl<F: Frame> Engine<F> {
    /// Keeps the frame of a packet of a home, in this slot of its burst, that begins a flow until
    /// [`open_flows6`](Self::open_flows6). Returns the frame if the packet may be of a flow that is
    /// there, or may have to wait for replicas.
    #[inline(always)]
    pub(crate) fn wait6(
        &mut self,
        frame: F,
        (at, packet): (usize, &Packet6State),
        waiting: &mut NewFlows6<F>,
    ) -> Option<F> {
        if packet.look_up.candidate != RecordId::NONE || self.held.is_on() {
            return Some(frame);
        }
        let home = match self.home6(frame.data(), packet) {
            Ok(home) if !self.duties.creates(home.shard) => return Some(frame),
            Ok(home) if self.may_take_slow_path(&home, Way::Up) => home,
            Ok(_) => {
                self.discard(DropReason::SlowPathLimit);
                return None;
            }
            Err(reason) => {
                self.discard(reason);
                return None;
            }
        };
        let (word, bit) = seen_bit(packet.look_up.hash);
        waiting.packets.push(WaitingPacket6 {
            at: at as u8,
            may_be_behind: waiting.seen[word] & bit != 0,
            home,
            hash_of_home: self.nat.prefetch_home(&home),
            likely: LikelySubscriber::NONE,
        });
        waiting.seen[word] |= bit;
        waiting.frames.push(frame);
        None
    }

    /// Begins the flows for which packets wait, whose states are in their slots, and sends the
    /// packets.
    #[inline(never)]
    pub(crate) fn open_flows6<P: Pool<Frame = F>>(
        &mut self,
        states: &[Packet6State],
        waiting: &mut NewFlows6<F>,
        cx: &mut Context<'_, P>,
    ) {
        let now = cx.now.tick();
        let NewFlows6 { frames, packets, seen } = waiting;
        for one in &mut *packets {
            one.likely = self.nat.prefetch_subscriber(one.hash_of_home);
        }
        seen.fill(0);
        for (frame, one) in frames.drain(..).zip(packets.drain(..)) {
            let WaitingPacket6 { at, may_be_behind, home, likely, .. } = one;
            let packet = &states[usize::from(at)];
            let done = match may_be_behind {
                true => self.admitted6_up(frame, packet, &home, cx),
                false => {
                    let (hash, flow) = (packet.look_up.hash, packet.flow_packet());
                    let class = self.nat.open_outbound6(hash, (&home, likely), &flow, now);
                    match class {
                        Ok(_) => self.duties.note_traffic(home.shard),
                        Err(_) => self.note_home_traffic(&home),
                    }
                    self.opened6_up(frame, packet, &home, class, cx)
                }
            };
            if let Err(reason) = done {
                self.discard(reason);
            }
        }
    }
}

const _: () = assert!(BURST_MAX <= u8::MAX as usize);

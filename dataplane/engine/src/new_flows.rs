//! Hot. The packets of a burst without a mapping: they wait until the rest of their burst is
//! processed, and then their mappings are made together, each step for all of them, so that the
//! cache misses of a step overlap.
//!
//! Packets of a flow stay in their order: the second one waits behind the first. No packet waits
//! longer than its burst.

use weir_nat::{Endpoint, Hash, LikelySubscriber, Nat, Opening, Refusal, Tick};
use weir_wire::frame::{Frame, Pool};

use crate::engine::{Context, Engine};
use crate::upstream::Upstream;
use crate::{BURST_MAX, DropReason};

/// State of a waiting packet.
#[derive(Debug)]
struct WaitingPacket {
    packet: Upstream,
    home: Hash,
    /// The subscriber to whom the packet probably belongs.
    subscriber: Option<LikelySubscriber>,
    /// Whether another packet of its flow waits before it.
    is_behind: bool,
    /// The prepared mapping or its refusal; stays `None` if the packet waits behind another.
    opening: Option<Result<Opening, Refusal>>,
}

/// The waiting packets, in their order. Their frames are in a separate vector, so that the state of
/// a packet stays where it was written.
#[derive(Debug)]
pub(crate) struct NewFlows<F> {
    frames: Vec<F>,
    packets: Vec<WaitingPacket>,
    /// Bits of the hashes of `packets`: a clear bit, the usual case, shows without a search that no
    /// other packet of a flow waits.
    seen: [u64; SEEN_WORDS],
}

/// 16 bits for each packet of a full burst.
const SEEN_WORDS: usize = BURST_MAX * 16 / 64;

/// Returns the word and the bit of a hash in `seen`.
#[inline]
fn seen_bit(hash: Hash) -> (usize, u64) {
    (hash.0 as usize / 64 % SEEN_WORDS, 1 << (hash.0 % 64))
}

impl<F: Frame> NewFlows<F> {
    pub(crate) fn new() -> Self {
        Self {
            frames: Vec::with_capacity(BURST_MAX),
            packets: Vec::with_capacity(BURST_MAX),
            seen: [0; SEEN_WORDS],
        }
    }

    /// True if a packet with this hash waits.
    #[inline]
    fn has(&self, hash: Hash) -> bool {
        let (word, bit) = seen_bit(hash);
        self.seen[word] & bit != 0 && self.packets.iter().any(|one| one.packet.hash == hash)
    }

    #[inline]
    fn push(&mut self, frame: F, packet: &Upstream, home: Hash, is_behind: bool) {
        let (word, bit) = seen_bit(packet.hash);
        self.seen[word] |= bit;
        self.frames.push(frame);
        let (packet, subscriber, opening) = (*packet, None, None);
        self.packets.push(WaitingPacket { packet, home, subscriber, is_behind, opening });
    }

    /// Refuses the flows of shards with too few replicas, since their changes could not be
    /// committed; packets behind them are refused too.
    #[cold]
    fn refuse_short(&mut self, nat: &Nat) {
        for waiting in &mut self.packets {
            if let Err(refusal) = nat.check_replicas(waiting.packet.home.shard) {
                (waiting.is_behind, waiting.opening) = (true, Some(Err(refusal)));
            }
        }
    }

    /// Does every step but the last.
    #[inline]
    fn prepare(&mut self, nat: &mut Nat, now: Tick) {
        for waiting in &mut self.packets {
            waiting.subscriber = nat.prefetch_subscriber(waiting.home);
        }
        for WaitingPacket { packet, subscriber, .. } in &mut self.packets {
            if let Some(subscriber) = subscriber {
                nat.prefetch_block(subscriber, packet.key.protocol);
            }
        }
        for waiting in &mut self.packets {
            if !waiting.is_behind {
                let packet = waiting.packet.outbound();
                waiting.opening = Some(nat.prepare_mapping(&packet, waiting.subscriber, now));
            }
        }
        if nat.is_crowded() {
            for WaitingPacket { packet, opening, .. } in &self.packets {
                if let Some(Ok(opening)) = opening {
                    nat.prefetch_opening(packet.hash, opening);
                }
            }
        }
    }
}

impl<F: Frame> Engine<F> {
    /// Keeps a packet without a mapping until [`open_mappings`](Self::open_mappings). Refuses only
    /// packets that cannot open a flow; no ICMP error is sent about these.
    #[inline]
    pub(crate) fn wait(&mut self, frame: F, packet: &Upstream) -> Result<(), DropReason> {
        // A segment may wait behind the SYN of its own flow.
        let is_behind = self.new_flows.has(packet.hash);
        if !is_behind {
            let checked = self.nat.check_opening(packet.key.protocol, packet.key.tcp_flags);
            if let Err(refusal) = checked {
                self.note_upstream(packet);
                return Err(refusal.into());
            }
        }
        let home = self.nat.prefetch_home(&packet.home);
        self.new_flows.push(frame, packet, home, is_behind);
        Ok(())
    }

    /// Makes the mappings for which the packets of a burst wait, and sends the packets.
    #[inline]
    pub(crate) fn open_mappings<P: Pool<Frame = F>>(&mut self, cx: &mut Context<'_, P>) {
        if !self.new_flows.frames.is_empty() {
            self.open_waiting(cx);
        }
    }

    #[inline(never)]
    fn open_waiting<P: Pool<Frame = F>>(&mut self, cx: &mut Context<'_, P>) {
        if self.held.is_on() {
            self.new_flows.refuse_short(&self.nat);
        }
        self.new_flows.prepare(&mut self.nat, cx.now.tick());
        let NewFlows { frames, packets, .. } = &mut self.new_flows;
        let (mut frames, mut packets) = (std::mem::take(frames), std::mem::take(packets));
        let mut each = frames.drain(..).zip(&packets);
        if self.held.is_on() {
            self.open_and_commit(&mut each, cx);
        }
        for (frame, waiting) in each {
            let opened = self.open(waiting, cx.now.tick());
            self.send_opened(frame, waiting, opened, cx);
        }
        packets.clear();
        self.new_flows = NewFlows { frames, packets, seen: [0; SEEN_WORDS] };
    }

    /// Does the same as the loop in `open_waiting` where packets may wait for replicas. It is a
    /// separate function, so that the other case stays one straight piece of code.
    #[inline(never)]
    fn open_and_commit<P: Pool<Frame = F>>(
        &mut self,
        each: &mut dyn Iterator<Item = (F, &WaitingPacket)>,
        cx: &mut Context<'_, P>,
    ) {
        for (frame, waiting) in each {
            let packet = &waiting.packet;
            self.commit_first(cx, |engine, cx| {
                let (hash, outbound, now) = (packet.hash, packet.outbound(), cx.now.tick());
                let opened = match &waiting.opening {
                    Some(Ok(opening)) => engine.nat.open_prepared(hash, &outbound, opening, now),
                    Some(Err(refusal)) => Err(*refusal),
                    None => engine.nat.outbound(hash, &outbound, now),
                };
                engine.send_opened(frame, waiting, opened, cx);
            });
        }
    }

    #[inline(always)]
    fn send_opened<P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        waiting: &WaitingPacket,
        opened: Result<Endpoint, Refusal>,
        cx: &mut Context<'_, P>,
    ) {
        let packet = &waiting.packet;
        let done = match opened {
            Ok(public) if packet.fits_fast_path => {
                self.duties.note_traffic(packet.home.shard);
                self.send_fast_path_up(frame, packet, public, cx);
                Ok(())
            }
            Ok(public) => self.translated_up(frame, packet, public, cx),
            Err(refusal) => {
                self.note_upstream(packet);
                Err(self.refuse(refusal, packet, frame.data(), cx))
            }
        };
        if let Err(reason) = done {
            self.discard(reason);
        }
    }

    #[inline(always)]
    fn open(&mut self, waiting: &WaitingPacket, now: Tick) -> Result<Endpoint, Refusal> {
        let packet = &waiting.packet;
        match &waiting.opening {
            Some(Ok(opening)) => {
                self.nat.open_mapping(packet.hash, &packet.outbound(), opening, now)
            }
            Some(Err(refusal)) => Err(*refusal),
            None => self.nat.outbound(packet.hash, &packet.outbound(), now),
        }
    }
}

//! Hot. The packets of a burst without a mapping: they wait until the rest of their burst is
//! processed, and then their mappings are made together, each step for all of them, so that the
//! cache misses of a step overlap.
//!
//! Packets of a flow stay in their order: the second one waits behind the first. No packet waits
//! longer than its burst.

use weir_nat::{
    Endpoint, Hash, LikelySubscriber, LookUp, Nat, NewFlow, Opening, Protocol, Refusal, Tick,
};
use weir_wire::frame::{Frame, Pool};
use weir_wire::ipv4::Ipv4;
use weir_wire::tcp;

use crate::engine::{Context, Engine};
use crate::fast_path::{FastUpstream, protocol_and_flags};
use crate::link_header::{TAGGED, UNTAGGED};
use crate::rewrite::{self, PacketEnd};
use crate::upstream::Upstream;
use crate::{BURST_MAX, DropReason, Side};

/// How far the flow of a waiting packet is.
#[derive(Clone, Copy, Debug)]
enum Progress {
    /// Another packet of the flow waits before this one.
    Behind,
    Waiting,
    /// `opening` is valid.
    Prepared,
    Opened(Endpoint),
    Refused(Refusal),
}

/// A waiting packet: its flow, its place in its frame, and what is known of its home.
#[derive(Clone, Copy, Debug)]
struct WaitingPacket {
    flow: NewFlow,
    hash: Hash,
    home: Hash,
    /// Where the packet begins in its frame, and its length.
    offset: u8,
    /// Position in [`NewFlows::others`]; `NOT_OTHER` for a fast-path packet.
    other: u8,
    len: u16,
    /// The subscriber to whom the packet probably belongs.
    subscriber: LikelySubscriber,
    progress: Progress,
    opening: Opening,
}

const NOT_OTHER: u8 = u8::MAX;
const _: () = assert!(BURST_MAX < NOT_OTHER as usize);

impl WaitingPacket {
    /// Returns a fast-path packet of no length at the front of its frame.
    #[inline(always)]
    fn new(flow: NewFlow, hash: Hash, home: Hash, progress: Progress) -> Self {
        Self {
            flow,
            hash,
            home,
            offset: 0,
            other: NOT_OTHER,
            len: 0,
            subscriber: LikelySubscriber::NONE,
            progress,
            opening: Opening::NONE,
        }
    }

    /// Fills in what the slow path reads of a fast-path packet, which is all of its frame now.
    fn fill(&self, bytes: &[u8], packet: &mut Upstream) {
        let &Self { flow: NewFlow { key, .. }, hash, len, .. } = self;
        FastUpstream { key, look_up: LookUp { hash, ..LookUp::EMPTY }, len }.fill(bytes, 0, packet);
    }

    /// Opens the flow, or finds the mapping that the packet before it has opened.
    #[inline(always)]
    fn open(&self, nat: &mut Nat, now: Tick) -> Result<Endpoint, Refusal> {
        match &self.progress {
            Progress::Prepared => nat.open_mapping(self.hash, &self.flow, &self.opening, now),
            Progress::Behind | Progress::Waiting => self.open_alone(nat, now),
            Progress::Opened(public) => Ok(*public),
            Progress::Refused(refusal) => Err(*refusal),
        }
    }

    #[inline(never)]
    fn open_alone(&self, nat: &mut Nat, now: Tick) -> Result<Endpoint, Refusal> {
        nat.outbound(self.hash, &self.flow.outbound(), now)
    }
}

/// The waiting packets, in their order. Their frames are in a separate vector, so that the state of
/// a packet stays where it was written.
#[derive(Debug)]
pub(crate) struct NewFlows<F> {
    frames: Vec<F>,
    packets: Vec<WaitingPacket>,
    /// The packets that are no fast-path packets; their frames are cut to them.
    others: Vec<Upstream>,
    /// Bits of the hashes of `packets`: a clear bit, the usual case, shows without a search that no
    /// other packet of a flow waits.
    seen: [u64; SEEN_WORDS],
}

/// 64 bits for each packet of a full burst.
const SEEN_WORDS: usize = BURST_MAX;

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
            others: Vec::with_capacity(BURST_MAX),
            seen: [0; SEEN_WORDS],
        }
    }

    /// True if a packet with this hash waits.
    #[inline]
    fn has(&self, hash: Hash) -> bool {
        let (word, bit) = seen_bit(hash);
        self.seen[word] & bit != 0 && self.packets.iter().any(|one| one.hash == hash)
    }

    #[inline]
    fn push(&mut self, frame: F, packet: WaitingPacket) {
        let (word, bit) = seen_bit(packet.hash);
        self.seen[word] |= bit;
        self.frames.push(frame);
        self.packets.push(packet);
    }

    /// Refuses the flows of shards with too few replicas, since their changes could not be
    /// committed; packets behind them are refused too.
    #[cold]
    fn refuse_short(&mut self, nat: &Nat) {
        for waiting in &mut self.packets {
            if let Err(refusal) = nat.check_replicas(waiting.flow.key.shard()) {
                waiting.progress = Progress::Refused(refusal);
            }
        }
    }

    /// Does every step but the last.
    #[inline(never)]
    fn prepare(&mut self, nat: &mut Nat, now: Tick) {
        for waiting in &mut self.packets {
            waiting.subscriber = nat.prefetch_subscriber(waiting.home);
        }
        for WaitingPacket { flow, subscriber, .. } in &mut self.packets {
            nat.prefetch_block(subscriber, flow.protocol);
        }
        for waiting in &mut self.packets {
            if let Progress::Waiting = waiting.progress {
                match nat.prepare_mapping(&waiting.flow, waiting.subscriber, now) {
                    Ok(opening) => {
                        waiting.opening = opening;
                        waiting.progress = Progress::Prepared;
                    }
                    Err(refusal) => waiting.progress = Progress::Refused(refusal),
                }
            }
        }
        if nat.is_crowded() {
            for WaitingPacket { hash, progress, opening, .. } in &self.packets {
                if let Progress::Prepared = progress {
                    nat.prefetch_opening(*hash, opening);
                }
            }
        }
    }

    /// Makes the mappings.
    #[inline(never)]
    fn open(&mut self, nat: &mut Nat, now: Tick) {
        for waiting in &mut self.packets {
            waiting.progress = match waiting.open(nat, now) {
                Ok(public) => Progress::Opened(public),
                Err(refusal) => Progress::Refused(refusal),
            };
        }
    }
}

impl<F: Frame> Engine<F> {
    /// Keeps a packet without a mapping until [`open_mappings`](Self::open_mappings). Refuses only
    /// packets that cannot open a flow; no ICMP error is sent about these.
    pub(crate) fn wait(&mut self, frame: F, packet: &Upstream) -> Result<(), DropReason> {
        let Upstream { home, key, .. } = packet;
        let progress = self.begin_wait(packet.hash, key.protocol, key.tcp_flags);
        let progress = progress.inspect_err(|_| self.note_upstream(packet))?;
        let other = self.new_flows.others.len() as u8;
        self.new_flows.others.push(*packet);
        let (flow, home) = (NewFlow::from(&packet.outbound()), self.nat.prefetch_home(home));
        let waiting = WaitingPacket::new(flow, packet.hash, home, progress);
        self.new_flows.push(frame, WaitingPacket { other, len: packet.len as u16, ..waiting });
        Ok(())
    }

    /// As [`wait`](Self::wait), for a fast-path packet, which begins at `offset` of its frame.
    #[inline(always)]
    pub(crate) fn wait_fast(
        &mut self,
        frame: F,
        packet: &FastUpstream,
        offset: usize,
    ) -> Result<(), DropReason> {
        let FastUpstream { key, look_up: LookUp { hash, .. }, len } = *packet;
        let (protocol, tcp_flags) =
            protocol_and_flags(frame.data().get(offset..).unwrap_or_default());
        let home = key.home();
        let progress = self.begin_wait(hash, protocol, tcp_flags);
        let progress = progress.inspect_err(|_| self.note_home_traffic(&home))?;
        let flow = NewFlow { key, gre_key: None, protocol, tcp_flags };
        let home = self.nat.prefetch_home(&home);
        let waiting = WaitingPacket::new(flow, hash, home, progress);
        self.new_flows.push(frame, WaitingPacket { offset: offset as u8, len, ..waiting });
        Ok(())
    }

    #[inline(always)]
    fn begin_wait(
        &self,
        hash: Hash,
        protocol: Protocol,
        tcp_flags: u8,
    ) -> Result<Progress, DropReason> {
        // A segment may wait behind the SYN of its own flow.
        if self.new_flows.has(hash) {
            return Ok(Progress::Behind);
        }
        self.nat.check_opening(protocol, tcp_flags)?;
        Ok(Progress::Waiting)
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
        let now = cx.now.tick();
        if self.held.is_on() {
            self.new_flows.refuse_short(&self.nat);
        }
        self.new_flows.prepare(&mut self.nat, now);
        if !self.held.is_on() {
            self.new_flows.open(&mut self.nat, now);
        }
        let new_flows = &mut self.new_flows;
        let mut frames = std::mem::take(&mut new_flows.frames);
        let mut packets = std::mem::take(&mut new_flows.packets);
        let mut others = std::mem::take(&mut new_flows.others);
        let each = frames.drain(..).zip(&packets);
        if self.held.is_on() {
            for (frame, waiting) in each {
                self.open_and_commit(frame, waiting, &others, cx);
            }
        } else {
            for (frame, waiting) in each {
                match waiting.progress {
                    Progress::Opened(public) if waiting.other == NOT_OTHER => {
                        self.send_new(frame, waiting, public, cx);
                    }
                    _ => self.send_other(frame, waiting, &others, cx),
                }
            }
        }
        packets.clear();
        others.clear();
        self.new_flows = NewFlows { frames, packets, others, seen: [0; SEEN_WORDS] };
    }

    /// Opens the flow of a packet that may have to wait for replicas, and sends the packet.
    #[inline(never)]
    fn open_and_commit<P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        waiting: &WaitingPacket,
        others: &[Upstream],
        cx: &mut Context<'_, P>,
    ) {
        self.commit_first(cx, |engine, cx| {
            let opened = waiting.open(&mut engine.nat, cx.now.tick());
            engine.finish_opening(frame, waiting, opened, others, cx);
        });
    }

    /// Sends a packet that is no fast-path packet, or drops one that was refused.
    #[inline(never)]
    fn send_other<P: Pool<Frame = F>>(
        &mut self,
        frame: F,
        waiting: &WaitingPacket,
        others: &[Upstream],
        cx: &mut Context<'_, P>,
    ) {
        let opened = waiting.open(&mut self.nat, cx.now.tick());
        self.finish_opening(frame, waiting, opened, others, cx);
    }

    fn finish_opening<P: Pool<Frame = F>>(
        &mut self,
        mut frame: F,
        waiting: &WaitingPacket,
        opened: Result<Endpoint, Refusal>,
        others: &[Upstream],
        cx: &mut Context<'_, P>,
    ) {
        let mut filled = Upstream::EMPTY;
        let packet = match others.get(usize::from(waiting.other)) {
            Some(packet) => packet,
            None => {
                if let Ok(public) = opened {
                    return self.send_new(frame, waiting, public, cx);
                }
                frame.keep(usize::from(waiting.offset), usize::from(waiting.len));
                waiting.fill(frame.data(), &mut filled);
                &filled
            }
        };
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

    /// Sends the first packet of a flow, a fast-path packet, from its public endpoint.
    #[inline(always)]
    fn send_new<P: Pool<Frame = F>>(
        &mut self,
        mut frame: F,
        waiting: &WaitingPacket,
        public: Endpoint,
        cx: &mut Context<'_, P>,
    ) {
        let &WaitingPacket { flow, hash, offset, len, .. } = waiting;
        let NewFlow { key, protocol, .. } = flow;
        let (mut offset, len) = (usize::from(offset), usize::from(len));
        self.duties.note_traffic(key.shard());
        let is_hairpin = self.nat.is_public(key.remote().address);
        if is_hairpin || flow.tcp_flags & tcp::SYN != 0 {
            frame.keep(offset, len);
            offset = 0;
            self.edit_syn(&mut frame, Ipv4::LEN, flow.tcp_flags, Side::Access);
        }
        if is_hairpin {
            let end = PacketEnd::Source;
            rewrite::forward_fast_path(frame.data_mut(), protocol, end, public);
            return self.hairpin(frame, cx);
        }
        let gateways = &self.link(Side::Internet).gateways;
        let Some(header) = gateways.choose((hash.0 >> 32) as u32) else {
            return self.discard(DropReason::GatewayUnresolved);
        };
        let bytes = match self.link(Side::Internet).is_tagged() {
            false => header.replace::<UNTAGGED, F>(&mut frame, offset, 0, len),
            true => header.replace::<TAGGED, F>(&mut frame, offset, 0, len),
        };
        let Some(bytes) = bytes else {
            return self.discard(DropReason::NoBuffer);
        };
        rewrite::forward_fast_path(bytes, protocol, PacketEnd::Source, public);
        self.emit(Side::Internet, frame, cx);
    }
}

//! Hot. The packets of a burst without a mapping: they wait until the rest of their burst is
//! processed, and then their mappings are made together, each step for all of them, so that the
//! cache misses of a step overlap.
//!
//! The rules are asked before anything is taken for a flow: one that they refuse makes no home and
//! takes no token, port or record. It is charged to its home's limit of the slow path, as any first
//! packet.
//!
//! Packets of a flow stay in their order: the second one waits behind the first. No packet waits
//! longer than its burst.

use std::vec::Drain;

use weir_nat::{
    Endpoint, FlowPolicy, Hash, LookUp, Nat, NewFlow, Protocol, Refusal, Tick, Translated,
};
use weir_wire::frame::{Frame, Pool};
use weir_wire::ipv4::Ipv4;
use weir_wire::tcp;

use crate::duty::DutyTable;
use crate::engine::{Context, Engine};
use crate::fast_path::{FastUpstream, tcp_flags};
use crate::link_header::{TAGGED, UNTAGGED};
use crate::rewrite::{self, PacketEnd};
use crate::upstream::Upstream;
use crate::waiting_packet::{NOT_OTHER, Progress, WaitingPacket};
use crate::{BURST_MAX, DropReason, Output, Side};

/// The waiting packets, in their order.
#[derive(Debug)]
pub(crate) struct NewFlows<F> {
    frames: Vec<F>,
    /// A slot for each frame of a full burst; those of `frames` are valid.
    packets: Box<[WaitingPacket]>,
    /// The packets that are no fast-path packets; their frames are cut to them.
    others: Vec<Upstream>,
    /// The rule that was found for each packet, while there are rules.
    rules: [u32; BURST_MAX],
    /// Bits of the hashes of `packets`: a clear bit, the usual case, shows without a search that no
    /// other packet of a flow waits.
    seen: [u64; SEEN_WORDS],
}

/// 64 bits for each packet of a full burst.
pub(crate) const SEEN_WORDS: usize = BURST_MAX;

/// Returns the word and the bit of a hash in `seen`.
#[inline]
pub(crate) fn seen_bit(hash: Hash) -> (usize, u64) {
    (hash.0 as usize / 64 % SEEN_WORDS, 1 << (hash.0 % 64))
}

impl<F: Frame> NewFlows<F> {
    pub(crate) fn new() -> Self {
        Self {
            frames: Vec::with_capacity(BURST_MAX),
            packets: vec![WaitingPacket::EMPTY; BURST_MAX].into_boxed_slice(),
            others: Vec::with_capacity(BURST_MAX),
            rules: [0; BURST_MAX],
            seen: [0; SEEN_WORDS],
        }
    }

    fn waiting(&self) -> &[WaitingPacket] {
        &self.packets[..self.frames.len()]
    }

    /// True if a packet with this hash waits.
    #[inline(always)]
    fn has(&self, hash: Hash) -> bool {
        let (word, bit) = seen_bit(hash);
        self.seen[word] & bit != 0 && self.waiting().iter().any(|one| one.hash == hash)
    }

    /// Returns the slot of the packet whose frame is added next. `None` if there is no room.
    #[inline(always)]
    fn next(&mut self) -> Option<&mut WaitingPacket> {
        self.packets.get_mut(self.frames.len())
    }

    /// Adds a frame whose packet is in its slot.
    #[inline(always)]
    fn push(&mut self, frame: F, hash: Hash) {
        let (word, bit) = seen_bit(hash);
        self.seen[word] |= bit;
        self.frames.push(frame);
    }

    /// Refuses the flows of shards with too few replicas, since their changes could not be
    /// committed; packets behind them are refused too.
    #[cold]
    fn refuse_short(&mut self, nat: &Nat) {
        for WaitingPacket { flow, progress, .. } in &mut self.packets[..self.frames.len()] {
            if let Progress::Waiting | Progress::Behind = progress
                && let Err(refusal) = nat.check_replicas(flow.key.shard())
            {
                *progress = Progress::Refused(refusal);
            }
        }
    }

    /// Asks the rules about the packets that wait. A packet behind another one is asked about too:
    /// it is refused with the first packet of its flow, and may be of another flow.
    #[inline(never)]
    fn ask(&mut self, nat: &mut Nat) {
        let packets = &mut self.packets[..self.frames.len()];
        let rules = &mut self.rules[..packets.len()];
        nat.find_rules(packets.iter().map(|waiting| &waiting.flow), rules);
        if nat.has_bypass() {
            refuse_segments(packets, nat);
        }
        if nat.accept_plainly(rules) {
            return;
        }
        for (waiting, rule) in packets.iter_mut().zip(rules) {
            if let Progress::Waiting | Progress::Behind = waiting.progress {
                match nat.check_rule(*rule, &waiting.flow) {
                    Ok(FlowPolicy::NONE) => {}
                    Ok(policy) => waiting.set_policy(policy),
                    Err(refusal) => waiting.progress = Progress::Refused(refusal),
                }
            }
        }
    }

    /// Counts the rules of the flows that are prepared.
    #[inline(never)]
    fn count_rules(&self, nat: &mut Nat) {
        let waiting = self.waiting().iter().zip(&self.rules);
        let prepared = waiting.filter(|(one, _)| matches!(one.progress, Progress::Prepared));
        nat.count_rules(prepared.map(|(one, rule)| (*rule, &one.flow)));
    }

    /// Does every step but the last. `must_commit`: the flows must come to replicas.
    #[inline(never)]
    fn prepare(&mut self, nat: &mut Nat, now: Tick, must_commit: bool) {
        let packets = &mut self.packets[..self.frames.len()];
        for waiting in &mut *packets {
            waiting.subscriber = nat.prefetch_subscriber(waiting.home);
        }
        // While the subscribers' lines are on their way.
        let is_asked = nat.has_rules();
        if is_asked {
            self.ask(nat);
        }
        if must_commit {
            self.refuse_short(nat);
        }
        let packets = &mut self.packets[..self.frames.len()];
        for WaitingPacket { flow, subscriber, .. } in &mut *packets {
            nat.prefetch_block(subscriber, flow.protocol);
        }
        let has_room = nat.has_room(packets.len());
        for waiting in &mut *packets {
            if let Progress::Waiting = waiting.progress {
                let WaitingPacket { flow, subscriber, opening, .. } = waiting;
                let is_likely = has_room && nat.prepare_likely(flow, *subscriber, now, opening);
                waiting.progress = match is_likely {
                    true => Progress::Prepared,
                    false => prepare_alone(waiting, nat, now),
                }
            }
        }
        if is_asked {
            self.count_rules(nat);
        }
        if nat.is_crowded() {
            for WaitingPacket { hash, progress, opening, .. } in self.waiting() {
                if let Progress::Prepared = progress {
                    nat.prefetch_opening(*hash, opening);
                }
            }
        }
    }

    /// Makes the mappings that are prepared for fast-path packets to whose flows no rule gives
    /// anything, and notes these as traffic of their shards.
    #[inline(never)]
    fn open(&mut self, nat: &mut Nat, duties: &mut DutyTable, now: Tick) {
        for waiting in &mut self.packets[..self.frames.len()] {
            let WaitingPacket { hash, flow, opening, other, progress, .. } = waiting;
            if matches!(progress, Progress::Prepared) && *other == NOT_OTHER {
                match nat.open_mapping(*hash, flow, opening, &FlowPolicy::NONE, now) {
                    Ok(_) => {
                        duties.note_traffic(flow.key.shard());
                        *progress = Progress::Opened;
                    }
                    Err(refusal) => *progress = Progress::Refused(refusal),
                }
            }
        }
    }
}

/// Prepares the flow of a packet that is not what was found likely.
#[inline(never)]
fn prepare_alone(waiting: &mut WaitingPacket, nat: &mut Nat, now: Tick) -> Progress {
    let policy = *waiting.policy();
    match nat.prepare_mapping(&waiting.flow, &policy, now, &mut waiting.opening) {
        Ok(()) => Progress::Prepared,
        Err(refusal) => Progress::Refused(refusal),
    }
}

/// Refuses segments that open nothing, which wait because a rule may let them pass as they are.
#[cold]
fn refuse_segments(packets: &mut [WaitingPacket], nat: &mut Nat) {
    for WaitingPacket { flow, progress, .. } in packets {
        if let Progress::Waiting = progress
            && let Err(refusal) = nat.check_opening_or_bypass(&flow.outbound())
        {
            *progress = Progress::Refused(refusal);
        }
    }
}

impl<F: Frame> Engine<F> {
    /// Keeps a packet without a mapping until [`open_mappings`](Self::open_mappings). Refuses only
    /// packets that cannot open a flow; no ICMP error is sent about these.
    pub(crate) fn wait(&mut self, frame: F, packet: &Upstream) -> Result<(), DropReason> {
        let Upstream { home, key, .. } = packet;
        let is_behind = self.new_flows.has(packet.hash);
        // A segment may wait behind the SYN of its own flow, and for a rule that lets it pass.
        if !is_behind
            && !self.nat.has_bypass()
            && let Err(refusal) = self.nat.check_opening(key.protocol, key.tcp_flags)
        {
            self.note_upstream(packet);
            return Err(refusal.into());
        }
        let Self { nat, new_flows, .. } = self;
        let other = new_flows.others.len() as u8;
        let Some(waiting) = new_flows.next() else { return Err(DropReason::NoBuffer) };
        *waiting = WaitingPacket {
            flow: NewFlow::from(&packet.outbound()),
            hash: packet.hash,
            home: nat.prefetch_home(home),
            len: packet.len as u16,
            other,
            progress: if is_behind { Progress::Behind } else { Progress::Waiting },
            ..WaitingPacket::EMPTY
        };
        new_flows.others.push(*packet);
        new_flows.push(frame, packet.hash);
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
        let Self { nat, new_flows, .. } = self;
        let is_behind = new_flows.has(hash);
        let Some(waiting) = new_flows.next() else { return Err(DropReason::NoBuffer) };
        waiting.flow.key = key;
        waiting.flow.gre_key = None;
        (waiting.hash, waiting.other) = (hash, NOT_OTHER);
        (waiting.offset, waiting.len) = (offset as u8, len);
        waiting.progress = if is_behind { Progress::Behind } else { Progress::Waiting };
        (waiting.flow.protocol, waiting.flow.tcp_flags) = (Protocol::Udp, 0);
        if key.is_tcp() {
            let tcp_flags = tcp_flags(frame.data().get(offset..).unwrap_or_default());
            (waiting.flow.protocol, waiting.flow.tcp_flags) = (Protocol::Tcp, tcp_flags);
            // A segment may wait behind the SYN of its own flow, and for a rule that lets it pass.
            if !is_behind
                && let Err(refusal) = nat.check_opening(Protocol::Tcp, tcp_flags)
                && !nat.has_bypass()
            {
                self.note_home_traffic(&key.home());
                return Err(refusal.into());
            }
        }
        waiting.home = nat.prefetch_home(&key.home());
        new_flows.push(frame, hash);
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
        let now = cx.now.tick();
        self.new_flows.prepare(&mut self.nat, now, self.held.is_on());
        if !self.held.is_on() {
            self.new_flows.open(&mut self.nat, &mut self.duties, now);
        }
        let new_flows = &mut self.new_flows;
        new_flows.seen = [0; SEEN_WORDS];
        let mut frames = std::mem::take(&mut new_flows.frames);
        let packets = std::mem::take(&mut new_flows.packets);
        let mut others = std::mem::take(&mut new_flows.others);
        let mut waiting = &packets[..frames.len()];
        let mut each = frames.drain(..);
        loop {
            self.drop_refused(&mut waiting, &mut each);
            let sent = match self.link(Side::Internet).is_tagged() {
                false => self.send_opened::<UNTAGGED>(waiting, &mut each, cx.out),
                true => self.send_opened::<TAGGED>(waiting, &mut each, cx.out),
            };
            let (Some(frame), [one, rest @ ..]) = (each.next(), &waiting[sent..]) else { break };
            match self.held.is_on() {
                true => self.open_and_commit(frame, one, &others, cx),
                false => self.open_alone(frame, one, &others, cx),
            }
            waiting = rest;
        }
        drop(each);
        others.clear();
        let new_flows = &mut self.new_flows;
        (new_flows.frames, new_flows.packets, new_flows.others) = (frames, packets, others);
    }

    /// Drops fast-path packets that a rule drops, until one is another packet. They get no answer,
    /// so nothing more is read of them.
    #[inline(always)]
    fn drop_refused(&mut self, waiting: &mut &[WaitingPacket], frames: &mut Drain<'_, F>) {
        while let [one, rest @ ..] = *waiting
            && matches!(one.progress, Progress::Refused(Refusal::RuleDrop))
            && one.other == NOT_OTHER
        {
            drop(frames.next());
            // No rule refuses a source that is no subscriber.
            self.duties.note_traffic(one.flow.key.shard());
            self.discard(DropReason::RuleDrop);
            *waiting = rest;
        }
    }

    /// Sends first packets of flows, fast-path packets whose mappings were made, from their public
    /// endpoints to the internet, until one is another packet or turns around. Returns how many it
    /// sent.
    #[inline(never)]
    fn send_opened<const LINK: usize>(
        &self,
        packets: &[WaitingPacket],
        frames: &mut Drain<'_, F>,
        out: &mut Output<F>,
    ) -> usize {
        let gateways = self.link(Side::Internet).gateways.live();
        // The slow path counts a packet without a gateway.
        let [first, others @ ..] = gateways else { return 0 };
        for (at, waiting) in packets.iter().enumerate() {
            let WaitingPacket { flow, hash, opening, offset, len, progress, .. } = waiting;
            let is_opened = matches!(progress, Progress::Opened);
            if !is_opened || self.nat.is_public(flow.key.remote().address) {
                return at;
            }
            let Some(mut frame) = frames.next() else { return at };
            let (mut offset, len) = (usize::from(*offset), usize::from(*len));
            if flow.tcp_flags & tcp::SYN != 0 {
                frame.keep(offset, len);
                offset = 0;
                let from = (Side::Access, flow.key.home().outer);
                self.edit_syn(&mut frame, Ipv4::LEN, flow.tcp_flags, from);
            }
            let header = match others.is_empty() {
                true => first,
                false => &gateways[(hash.0 >> 32) as u32 as usize % gateways.len()],
            };
            let Some(bytes) = header.replace::<LINK, F>(&mut frame, offset, 0, len) else {
                self.discard(DropReason::NoBuffer);
                continue;
            };
            let end = PacketEnd::Source;
            rewrite::forward_fast_path(bytes, flow.protocol, end, opening.public());
            if !out.push(Side::Internet, frame) {
                self.discard(DropReason::NoBuffer);
            }
        }
        packets.len()
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

    /// Opens the flow of any packet, unless it is open, and sends the packet.
    #[inline(never)]
    fn open_alone<P: Pool<Frame = F>>(
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
        opened: Result<Translated<Endpoint>, Refusal>,
        others: &[Upstream],
        cx: &mut Context<'_, P>,
    ) {
        let mut filled = Upstream::EMPTY;
        let packet = match others.get(usize::from(waiting.other)) {
            Some(packet) => packet,
            None => {
                frame.keep(usize::from(waiting.offset), usize::from(waiting.len));
                waiting.fill(frame.data(), &mut filled);
                &filled
            }
        };
        let done = match opened {
            Ok(translated) if packet.fits_fast_path => {
                self.duties.note_traffic(packet.home.shard);
                self.send_fast_path_up(frame, packet, translated, cx);
                Ok(())
            }
            Ok(translated) => self.translated_up(frame, packet, translated, cx),
            Err(Refusal::RuleBypass) => {
                self.note_upstream(packet);
                self.bypass_up(frame, packet, cx)
            }
            Err(refusal) => {
                self.note_upstream(packet);
                Err(self.refuse(refusal, packet, frame.data(), cx))
            }
        };
        if let Err(reason) = done {
            self.discard(reason);
        }
    }
}

//! Hot: sends what is due: new datagrams, lost ones again, acknowledgements, heartbeats, HELLOs.
//!
//! Peers with something due are marked, so that a poll with nothing to do looks at a few words; all
//! timers are checked once a millisecond.

use weir_ids::{LANES, Lane};

use crate::buffers::Buffers;
use crate::bytes::ByteWriter;
use crate::control::{CONTROL_LEN_MAX, Field, StreamPosition, emit_comebacks};
use crate::datagram::DatagramKind;
use crate::endpoint::{OwnLane, StreamEndpoint, StreamPeer};
use crate::identity::{Origin, PeerIndex};
use crate::incoming::window;
use crate::link::{PeerLink, SendContext, Setting};
use crate::traits::{Sink, Source, Transmit};
use crate::witness::PeerNodes;

/// Time between two checks of the timers.
const TIMERS_US: u64 = 1_000;

/// What this worker reports of itself to all peers.
#[derive(Clone, Copy)]
struct Report<'a> {
    /// Datagrams that there is room for.
    window: u16,
    witness: &'a PeerNodes,
    /// Bytes of copies per second that are accepted of each peer.
    accepts_per_sec: u32,
}

/// A window smaller than this is sent again as soon as it has grown.
const LITTLE_ROOM: u16 = 16;

impl StreamEndpoint {
    /// Does what is due: once in each turn of the owner's loop, or at least every millisecond.
    pub fn poll<W, T>(&mut self, now_us: u64, world: &mut W, transmit: &mut T)
    where
        W: Source + Sink,
        T: Transmit,
    {
        self.pace.begin_turn(now_us);
        if now_us >= self.timers_us {
            self.timers_us = now_us + TIMERS_US;
            self.give_up_silent(now_us);
            self.look_at_timers(now_us, world);
            self.advance_scrub(now_us, world);
        }
        self.advance_copies(now_us, world);
        self.send_due(now_us, window(world.room()), transmit);
    }

    /// Gives up the streams of peers that are silent for long: what they have missed is cheaper to
    /// copy than to keep.
    fn give_up_silent(&mut self, now_us: u64) {
        for index in 0..self.peers.len() {
            for lane in Lane::ALL {
                let is_given_up = self.peers[index].as_ref().is_some_and(|peer| {
                    peer.link.silent_us(now_us) >= self.setting.options.give_up_us
                        && peer.lanes[lane.number() as usize].stream.is_open()
                });
                if is_given_up {
                    self.fall_out_of_sync(PeerIndex(index as u16), lane);
                }
            }
        }
    }

    fn look_at_timers<S: Sink>(&mut self, now_us: u64, sink: &mut S) {
        (self.is_copying, self.senders) = (false, 0);
        self.witness.look(&self.peers);
        for (position, peer) in self.peers.iter_mut().enumerate() {
            let Some(peer) = peer else { continue };
            let index = PeerIndex(position as u16);
            let worker = peer.link.worker;
            for lane in Lane::ALL {
                let epoch = peer.streams[lane.index()].epoch;
                let origin = Origin { peer: index, worker, lane, epoch };
                peer.deliver_held(origin, &mut self.buffers, sink);
            }
            peer.link.plan_hello(&self.setting.options, now_us);
            self.is_copying |= peer.lanes.iter().any(OwnLane::is_copying);
            self.senders += usize::from(peer.streams.iter().any(|stream| stream.is_copied));
            if peer.is_anything_due(now_us, window(sink.room())) {
                self.due[position / 64] |= 1 << (position % 64);
            }
        }
    }

    /// Serves the marked peers, beginning with the one whose turn it is.
    fn send_due<T: Transmit>(&mut self, now_us: u64, window: u16, transmit: &mut T) {
        if self.due.iter().all(|&word| word == 0) {
            return;
        }
        let StreamEndpoint {
            setting, peers, buffers, scratch, due, send_turn, witness, pace, ..
        } = self;
        let accepts_per_sec = pace.accepted_per_sec(self.senders);
        let report = Report { window, witness, accepts_per_sec };
        let mut exit = SendContext { scratch, transmit, now_us, budget: setting.options.burst };
        let turn = *send_turn;
        for index in (turn..peers.len()).chain(0..turn) {
            let (word, bit) = (&mut due[index / 64], 1 << (index % 64));
            if *word & bit == 0 {
                continue;
            }
            if exit.budget == 0 {
                *send_turn = index;
                return;
            }
            let is_done = peers[index]
                .as_mut()
                .is_none_or(|peer| peer.send_due(setting, report, buffers, &mut exit));
            if is_done {
                *word &= !bit;
            }
        }
    }
}

impl OwnLane {
    pub(crate) fn is_copying(&self) -> bool {
        self.stream.is_open() && (self.copying.is_some() || !self.waiting.is_empty())
    }
}

impl StreamPeer {
    fn is_anything_due(&mut self, now_us: u64, window: u16) -> bool {
        if self.announced_little_room && window >= LITTLE_ROOM {
            self.heartbeat_due_us = 0;
        }
        let is_session_due = now_us >= self.heartbeat_due_us
            || self
                .lanes
                .iter()
                .any(|own| now_us >= own.stream.timer_us || own.stream.has_new(now_us));
        self.link.hello_due_us <= now_us || (self.link.session.is_some() && is_session_due)
    }

    /// Sends what is due. Returns true if that was all of it.
    fn send_due<T: Transmit>(
        &mut self,
        setting: &Setting,
        report: Report<'_>,
        buffers: &mut Buffers,
        exit: &mut SendContext<'_, T>,
    ) -> bool {
        if self.link.hello_due_us <= exit.now_us {
            self.link.send_hello(setting, exit);
        }
        if self.link.session.is_none() {
            // Everything else has to wait for a session.
            return self.link.hello_due_us == u64::MAX;
        }
        self.send_control(setting, report, exit);
        self.hasten_due(exit.now_us);
        let Self { link, lanes, .. } = self;
        let mut is_done = link.hello_due_us == u64::MAX;
        for own in lanes {
            is_done &= own.send(link, setting, buffers, exit);
        }
        is_done && self.acknowledgement_due_us == u64::MAX
    }

    /// Hastens all lanes together, so that the peer acknowledges them together.
    #[inline]
    fn hasten_due(&mut self, now_us: u64) {
        if now_us >= self.hasten_due_us {
            self.lanes.iter_mut().for_each(|own| own.stream.hasten(now_us));
            (self.hasten_due_us, self.hastened_us) = (u64::MAX, now_us);
        }
    }

    /// Sends a heartbeat with the positions of all streams, or, between two of them,
    /// acknowledgements of received datagrams only.
    fn send_control<T: Transmit>(
        &mut self,
        setting: &Setting,
        report: Report<'_>,
        exit: &mut SendContext<'_, T>,
    ) {
        let Report { window, witness, accepts_per_sec } = report;
        let is_heartbeat = exit.now_us >= self.heartbeat_due_us;
        let is_anything_new = self.streams.iter().any(|stream| stream.needs_acknowledgement);
        if is_anything_new && self.acknowledgement_due_us == u64::MAX {
            self.acknowledgement_due_us = exit.now_us + setting.options.acknowledge_us;
        }
        let is_due = is_heartbeat || exit.now_us >= self.acknowledgement_due_us;
        if exit.budget == 0 || !is_due {
            return;
        }
        self.acknowledgement_due_us = u64::MAX;
        let mut body = [0; CONTROL_LEN_MAX];
        let mut writer = ByteWriter::new(&mut body);
        for lane in 0..LANES {
            let (own, stream) = (&self.lanes[lane].stream, &mut self.streams[lane]);
            if is_heartbeat {
                let (epoch, last) = (own.epoch(), own.last_sent());
                Field::Position(StreamPosition { lane: lane as u8, epoch, last }).emit(&mut writer);
            }
            if stream.epoch != 0 && (is_heartbeat || stream.needs_acknowledgement) {
                Field::Acknowledgement(stream.acknowledgement(window)).emit(&mut writer);
                stream.needs_acknowledgement = false;
            }
        }
        if is_heartbeat {
            self.sighting = witness.emit(self.node, self.sighting, exit.now_us, &mut writer);
            Field::Accepts(accepts_per_sec).emit(&mut writer);
            self.comeback = emit_comebacks(&setting.comebacks, self.comeback, &mut writer);
        }
        let length = writer.len();
        self.announced_little_room = window < LITTLE_ROOM;
        if is_heartbeat {
            self.heartbeat_due_us = exit.now_us + setting.options.heartbeat_us;
        }
        self.link.send(DatagramKind::Control, setting, &body[..length], exit);
    }
}

impl OwnLane {
    /// Sends lost datagrams, then new ones. Returns true if the window has room for no more.
    #[inline]
    fn send<T: Transmit>(
        &mut self,
        link: &mut PeerLink,
        setting: &Setting,
        buffers: &mut Buffers,
        exit: &mut SendContext<'_, T>,
    ) -> bool {
        if exit.now_us >= self.stream.timer_us {
            let mut from = 0;
            while exit.budget > 0 {
                let stream = &mut self.stream;
                let lost = stream.take_lost(buffers, from, exit.now_us, &link.round_trip);
                let Some((sequence, body)) = lost else { break };
                link.send(DatagramKind::Records, setting, body, exit);
                link.counters.retransmissions += 1;
                from = sequence + 1;
            }
            self.stream.looked(exit.now_us, &link.round_trip);
        }
        let timeout_us = link.round_trip.timeout_us(0);
        while exit.budget > 0 {
            let new = self.stream.take_new(buffers, exit.now_us, timeout_us);
            let Some(body) = new else { break };
            link.send(DatagramKind::Records, setting, body, exit);
        }
        !(self.stream.has_new(exit.now_us) || self.stream.lingers())
    }
}

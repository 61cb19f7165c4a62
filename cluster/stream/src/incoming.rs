//! Hot: takes a datagram that came in: finds its sender, authenticates it, and delivers its
//! content.

use std::net::SocketAddr;
use std::ops::Range;

use weir_ids::{Lane, PeerId, ShardId};

use crate::buffers::Buffers;
use crate::control::{Acknowledgement, Field, StreamPosition, fields};
use crate::counters::PeerCounters;
use crate::datagram::{
    DatagramHeader, DatagramKind, HAS_PRESENT_BODIES, STREAM_HEADER_LEN, StreamHeader, TAG_LEN,
};
use crate::endpoint::{StreamEndpoint, StreamPeer};
use crate::identity::{Origin, PeerIndex};
use crate::link::RedirectForm;
use crate::receive_stream::{Arrival, ReceiveStream};
use crate::record::{Item, Items, RECORD_HEADER_LEN, RecordKind, StreamRecord};
use crate::refusal::DatagramRefusal;
use crate::send_stream::WINDOW;
use crate::traits::Sink;

/// Items of a datagram at most: a [`Sink`] gets a datagram only if it has room for so many.
pub const ITEMS_MAX: usize = (crate::datagram::BODY_MAX - STREAM_HEADER_LEN) / RECORD_HEADER_LEN;

/// Records that a sink gets in one call.
const BURST: usize = 32;

/// Receiver of a datagram's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// The streams: the sink has got it.
    Stream,
    /// The data path: these bytes of the datagram, now in the clear, are a packet that the peer
    /// redirected here.
    Redirect(Range<usize>),
}

impl StreamEndpoint {
    /// Takes a datagram (UDP payload), which is decrypted in place. Its content is given to the
    /// sink before this returns, except for a redirected packet, which is the caller's; answers go
    /// out with the next poll.
    ///
    /// # Errors
    /// Why it was not used; counted already.
    pub fn receive<S: Sink>(
        &mut self,
        from: SocketAddr,
        datagram: &mut [u8],
        now_us: u64,
        sink: &mut S,
    ) -> Result<Received, DatagramRefusal> {
        let header =
            DatagramHeader::parse(datagram).inspect_err(|&refusal| self.refused.count(refusal))?;
        let Some(index) = self.find(from, header.sender) else {
            self.refused.count(DatagramRefusal::NotAPeer);
            return Err(DatagramRefusal::NotAPeer);
        };
        let result = self.receive_from(index, &header, datagram, now_us, sink);
        if let (&Err(refusal), Some(peer)) = (&result, &mut self.peers[index.index()]) {
            peer.link.counters.refused.count(refusal);
        }
        result
    }

    fn find(&self, from: SocketAddr, sender: PeerId) -> Option<PeerIndex> {
        let position = self.by_worker.binary_search_by_key(&sender, |&(worker, _)| worker).ok()?;
        let (_, index) = self.by_worker[position];
        let peer = self.peers[index.index()].as_ref()?;
        (peer.link.address == from).then_some(index)
    }

    fn receive_from<S: Sink>(
        &mut self,
        index: PeerIndex,
        header: &DatagramHeader,
        datagram: &mut [u8],
        now_us: u64,
        sink: &mut S,
    ) -> Result<Received, DatagramRefusal> {
        let Some(peer) = self.peers[index.index()].as_mut() else {
            return Err(DatagramRefusal::NotAPeer);
        };
        self.due[index.index() / 64] |= 1 << (index.index() % 64);
        let options = &self.setting.options;
        match header.kind {
            DatagramKind::Hello => {
                if peer.link.on_hello(header, datagram, &self.setting, now_us)? {
                    self.session_begins(index, sink);
                }
                Ok(Received::Stream)
            }
            DatagramKind::Records => {
                let body = peer.link.open(header, datagram, options, now_us)?;
                let (worker, lane) = (peer.link.worker, Lane::ALL[0]);
                let origin = Origin { peer: index, worker, lane, epoch: 0 };
                peer.receive_records(body, origin, &mut self.buffers, sink)?;
                Ok(Received::Stream)
            }
            DatagramKind::Control => {
                let body = peer.link.open(header, datagram, options, now_us)?;
                self.receive_control(index, body, now_us, sink)?;
                Ok(Received::Stream)
            }
            DatagramKind::Redirect => {
                let end = datagram.len() - TAG_LEN;
                let length = peer.link.open(header, datagram, options, now_us)?.len();
                match peer.link.redirects() {
                    RedirectForm::Sealed { .. } => Ok(Received::Redirect(end - length..end)),
                    RedirectForm::Refused | RedirectForm::Plain => Err(DatagramRefusal::Malformed),
                }
            }
        }
    }

    /// Begins a session. If the peer has a new incarnation, or has added us again, the streams in
    /// both directions are void.
    fn session_begins<S: Sink>(&mut self, index: PeerIndex, sink: &mut S) {
        let Some(peer) = self.peers[index.index()].as_mut() else { return };
        let boot = peer.link.session.as_ref().map(|session| session.peer_boot);
        let version = peer.link.session.as_ref().map(|session| session.version);
        let is_earlier = version.is_some_and(|version| version < HAS_PRESENT_BODIES);
        peer.lanes.iter_mut().for_each(|lane| lane.stream.set_peer_earlier(is_earlier));
        peer.heartbeat_due_us = 0;
        peer.is_witness = false;
        peer.accepts = self.pace.of_peer();
        let incarnation = peer.link.peer_incarnation;
        if (peer.boot, peer.incarnation) == (boot, incarnation) {
            return;
        }
        peer.link.counters.restarts += u64::from(peer.boot.is_some_and(|it| Some(it) != boot));
        (peer.boot, peer.incarnation) = (boot, incarnation);
        let worker = peer.link.worker;
        for (lane, stream) in Lane::ALL.into_iter().zip(&mut peer.streams) {
            if stream.epoch != 0 {
                stream.reset(0, &mut self.buffers);
                sink.stream_reset(Origin { peer: index, worker, lane, epoch: 0 });
            }
        }
        for lane in Lane::ALL {
            self.fall_out_of_sync(index, lane);
        }
    }

    fn receive_control<S: Sink>(
        &mut self,
        index: PeerIndex,
        body: &[u8],
        now_us: u64,
        sink: &mut S,
    ) -> Result<(), DatagramRefusal> {
        self.acknowledgements += 1;
        let mut result = Ok(());
        for field in fields(body) {
            let outcome = match field {
                Field::Position(position) => self.take_position(index, &position, sink),
                Field::Acknowledgement(ack) => self.take_acknowledgement(index, &ack, now_us),
                Field::Sightings(sightings) => {
                    self.take_sightings(index, sightings, now_us);
                    Ok(())
                }
                Field::Comebacks(comebacks) => {
                    comebacks.iter().for_each(|it| sink.came_back(index, it));
                    Ok(())
                }
                Field::Accepts(bytes_per_sec) => {
                    if let Some(peer) = &mut self.peers[index.index()] {
                        self.pace.announced(&mut peer.accepts, bytes_per_sec);
                    }
                    Ok(())
                }
            };
            result = result.and(outcome);
        }
        result
    }

    fn take_position<S: Sink>(
        &mut self,
        index: PeerIndex,
        position: &StreamPosition,
        sink: &mut S,
    ) -> Result<(), DatagramRefusal> {
        let lane = Lane::new(position.lane).ok_or(DatagramRefusal::Malformed)?;
        let Some(peer) = self.peers[index.index()].as_mut() else {
            return Err(DatagramRefusal::NotAPeer);
        };
        let (worker, epoch) = (peer.link.worker, position.epoch);
        let origin = Origin { peer: index, worker, lane, epoch };
        let stream = &mut peer.streams[lane.index()];
        stream.enter(position.epoch, origin, &mut self.buffers, sink)?;
        stream.note_sent(position.last);
        Ok(())
    }

    fn take_acknowledgement(
        &mut self,
        index: PeerIndex,
        ack: &Acknowledgement,
        now_us: u64,
    ) -> Result<(), DatagramRefusal> {
        let lane = Lane::new(ack.lane).ok_or(DatagramRefusal::Malformed)?;
        let Some(peer) = self.peers[index.index()].as_mut() else {
            return Err(DatagramRefusal::NotAPeer);
        };
        let own = &mut peer.lanes[lane.index()];
        match ack.epoch.cmp(&own.stream.epoch()) {
            std::cmp::Ordering::Less => return Err(DatagramRefusal::StaleEpoch),
            std::cmp::Ordering::Greater => return Err(DatagramRefusal::Malformed),
            std::cmp::Ordering::Equal => {}
        }
        let sample = own
            .stream
            .acknowledge(ack, &mut self.buffers, now_us)
            .ok_or(DatagramRefusal::Malformed)?;
        if let Some(sample_us) = sample {
            peer.link.round_trip.measured(sample_us);
        }
        self.scrub.verdict(index, lane, ack.check, ack.differs, now_us, &self.setting.options);
        Ok(())
    }
}

impl ReceiveStream {
    /// Begins a newer epoch if this is one.
    fn enter<S: Sink>(
        &mut self,
        epoch: u32,
        origin: Origin,
        buffers: &mut Buffers,
        sink: &mut S,
    ) -> Result<(), DatagramRefusal> {
        if epoch < self.epoch || epoch == 0 {
            return Err(DatagramRefusal::StaleEpoch);
        }
        if epoch > self.epoch {
            self.reset(epoch, buffers);
            sink.stream_reset(origin);
        }
        Ok(())
    }
}

impl StreamPeer {
    fn receive_records<S: Sink>(
        &mut self,
        body: &[u8],
        mut origin: Origin,
        buffers: &mut Buffers,
        sink: &mut S,
    ) -> Result<(), DatagramRefusal> {
        let (header, items) = StreamHeader::parse(body).ok_or(DatagramRefusal::Malformed)?;
        origin.lane = Lane::new(header.lane).ok_or(DatagramRefusal::Malformed)?;
        origin.epoch = header.epoch;
        let stream = &mut self.streams[origin.lane.index()];
        stream.enter(header.epoch, origin, buffers, sink)?;
        let counters = &mut self.link.counters;
        match stream.arrive(header.sequence, items, buffers) {
            Arrival::Next if sink.room() < ITEMS_MAX => Err(DatagramRefusal::NoRoom),
            Arrival::Next => {
                deliver(items, origin, stream, counters, sink);
                if let Some((buffer, _)) = stream.pop_held() {
                    buffers.give(buffer);
                }
                stream.delivered();
                self.deliver_held(origin, buffers, sink);
                Ok(())
            }
            Arrival::Held => {
                counters.gaps += 1;
                Ok(())
            }
            Arrival::Again => {
                counters.duplicates += 1;
                Ok(())
            }
            Arrival::NoRoom => Err(DatagramRefusal::NoRoom),
        }
    }

    /// Delivers held datagrams whose turn has come, as far as the sink has room.
    pub(crate) fn deliver_held<S: Sink>(
        &mut self,
        origin: Origin,
        buffers: &mut Buffers,
        sink: &mut S,
    ) {
        let stream = &mut self.streams[origin.lane.index()];
        let counters = &mut self.link.counters;
        while stream.has_held() && sink.room() >= ITEMS_MAX {
            let Some((buffer, length)) = stream.pop_held() else { return };
            let items = &buffers.get(&buffer)[..usize::from(length)];
            deliver(items, origin, stream, counters, sink);
            buffers.give(buffer);
            stream.delivered();
        }
    }
}

/// Gives the items of a datagram to the sink: records in bursts, marks between them.
#[inline]
fn deliver<S: Sink>(
    items: &[u8],
    origin: Origin,
    stream: &mut ReceiveStream,
    counters: &mut PeerCounters,
    sink: &mut S,
) {
    const NONE: StreamRecord<'_> = StreamRecord {
        kind: RecordKind::OwnerUpdate,
        shard: ShardId(0),
        slot: 0,
        version: 0,
        body: &[],
    };
    let mut burst = [NONE; BURST];
    let mut count = 0;
    let mut items = Items::new(items);
    for item in items.by_ref() {
        if let Item::Record(record) = item {
            burst[count] = record;
            count += 1;
            counters.records_applied += 1;
            if count < BURST {
                continue;
            }
        }
        if count > 0 {
            sink.apply(origin, &burst[..count]);
            count = 0;
        }
        match item {
            Item::Record(_) => {}
            Item::CopyStart { shard, slots, lineage } => {
                stream.is_copied = true;
                sink.copy_started(origin, shard, slots, lineage);
            }
            Item::CopyEnd { shard } => {
                stream.is_copied = false;
                sink.copy_finished(origin, shard);
            }
            Item::CopyStop { shard } => {
                stream.is_copied = false;
                sink.copy_stopped(origin, shard);
            }
            Item::Sum { shard, slots, number, sum } => {
                stream.check = (number, sink.sum(origin, shard, slots) != sum);
            }
        }
    }
    if count > 0 {
        sink.apply(origin, &burst[..count]);
    }
    counters.items_skipped += items.skipped;
}

/// Returns how many datagrams may be sent to a sink with this much room.
pub(crate) fn window(room: usize) -> u16 {
    (room / ITEMS_MAX).min(WINDOW as usize) as u16
}

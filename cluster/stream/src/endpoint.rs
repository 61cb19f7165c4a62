//! One worker's end of all its streams.
//!
//! The owner of the endpoint (a worker loop, or a simulator) hands in datagrams as they come,
//! appends records as they happen, and polls once a turn. Time is microseconds of any clock that
//! does not go back. Only [`StreamEndpoint::new`] and [`StreamEndpoint::add_peer`] allocate.

use std::net::SocketAddr;

use thiserror::Error;
use weir_ids::{BootId, LANES, Lane, PeerId, ShardId};

use crate::buffers::Buffers;
use crate::cluster_keys::ClusterKeys;
use crate::control::Comeback;
use crate::copy::{Chain, Copies, Copy, CopyId, CopyPhase};
use crate::datagram::DATAGRAM_MAX;
use crate::fingerprint::Fingerprint;
use crate::identity::{PeerIndex, Sequence};
use crate::link::{PeerLink, RedirectForm, Setting};
use crate::options::{OptionError, StreamOptions};
use crate::pace::{Allowance, Pace, TurnLoad};
use crate::receive_stream::ReceiveStream;
use crate::record::{Item, StreamRecord};
use crate::refusal::Refusals;
use crate::scrub::Scrub;
use crate::send_stream::SendStream;
use crate::session::Identity;
use crate::witness::PeerNodes;

/// Largest number of replicas of a shard.
pub const REPLICAS_MAX: usize = 4;

/// One worker's end of all its streams.
#[derive(Debug)]
pub struct StreamEndpoint {
    pub(crate) setting: Setting,
    pub(crate) peers: Box<[Option<StreamPeer>]>,
    /// Sorted by worker.
    pub(crate) by_worker: Vec<(PeerId, PeerIndex)>,
    /// First epoch of the next peer's streams at each index: tickets of a former peer there have
    /// another epoch.
    next_epochs: Box<[u32]>,
    pub(crate) buffers: Buffers,
    pub(crate) copies: Copies,
    pub(crate) pace: Pace,
    pub(crate) scrub: Scrub,
    pub(crate) scratch: Box<[u8; DATAGRAM_MAX]>,
    /// Peers with something due, a bit each.
    pub(crate) due: Box<[u64]>,
    /// When the timers of all peers are checked again.
    pub(crate) timers_us: u64,
    /// The stream whose copies, and the peer whose datagrams, go first.
    pub(crate) copy_turn: usize,
    pub(crate) send_turn: usize,
    /// True if some copy may have something to do.
    pub(crate) is_copying: bool,
    /// Peers that copied to this worker when the timers were checked last.
    pub(crate) senders: usize,
    pub(crate) refused: Refusals,
    pub(crate) witness: PeerNodes,
    /// Datagrams that may have acknowledged something.
    pub(crate) acknowledgements: u64,
    incarnations: u64,
}

/// State of one peer.
#[derive(Debug)]
pub(crate) struct StreamPeer {
    pub(crate) link: PeerLink,
    /// The peer's last known incarnation; its streams belong to it.
    pub(crate) boot: Option<BootId>,
    /// How often the peer had added this worker: if it removed and added this worker again, its
    /// streams restarted, too.
    pub(crate) incarnation: u64,
    pub(crate) lanes: [OwnLane; LANES],
    pub(crate) streams: [ReceiveStream; LANES],
    /// When the next heartbeat is due.
    pub(crate) heartbeat_due_us: u64,
    /// When received datagrams are acknowledged; u64::MAX: nothing was received.
    pub(crate) acknowledgement_due_us: u64,
    /// When datagrams that are being filled go out because packets wait for them; u64::MAX: no
    /// packet waits. And when they last did.
    pub(crate) hasten_due_us: u64,
    pub(crate) hastened_us: u64,
    /// Windows were small when they were last sent.
    pub(crate) announced_little_room: bool,
    /// The peer's node, by a number that all nodes know it by. None: not set.
    pub(crate) node: Option<u64>,
    /// The sighting that its next heartbeat begins with.
    pub(crate) sighting: usize,
    /// The comeback that its next heartbeat begins with.
    pub(crate) comeback: usize,
    /// Its heartbeats in this session say which nodes it hears.
    pub(crate) is_witness: bool,
    /// What it accepts of copies.
    pub(crate) accepts: Allowance,
}

/// A stream that this worker sends, and the copies that go with it.
#[derive(Debug)]
pub(crate) struct OwnLane {
    pub(crate) stream: SendStream,
    /// The copy that is walked over.
    pub(crate) copying: Option<CopyId>,
    /// Copies that wait for their turn.
    pub(crate) waiting: Chain,
    /// Copies that had their turn in this epoch of the stream, and those for another incarnation of
    /// the peer.
    pub(crate) begun: Chain,
}

/// Position of a record: its datagram in each stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    pub(crate) lane: Lane,
    count: u8,
    entries: [TicketEntry; REPLICAS_MAX],
}

impl Ticket {
    /// Returns a ticket of no record yet.
    pub const fn new(lane: Lane) -> Self {
        let none = TicketEntry { peer: PeerIndex(0), epoch: 0, sequence: Sequence(0) };
        Self { lane, count: 0, entries: [none; REPLICAS_MAX] }
    }

    pub(crate) fn entries(&self) -> &[TicketEntry] {
        &self.entries[..usize::from(self.count)]
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TicketEntry {
    pub(crate) peer: PeerIndex,
    pub(crate) epoch: u32,
    pub(crate) sequence: Sequence,
}

/// Why a peer cannot be added.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum PeerError {
    /// `peers_max` is reached.
    #[error("there is no room for another peer: raise peers_max")]
    Full,
    /// The worker is a peer already, or is this one.
    #[error("worker {0} is a peer already, or this worker itself")]
    Known(PeerId),
}

impl StreamEndpoint {
    /// Returns an endpoint without peers.
    ///
    /// # Errors
    /// [`OptionError`].
    pub fn new(
        options: StreamOptions,
        identity: Identity,
        fingerprint: Fingerprint,
        keys: ClusterKeys,
    ) -> Result<Self, OptionError> {
        options.check()?;
        let peers_max = usize::from(options.peers_max);
        Ok(Self {
            peers: (0..peers_max).map(|_| None).collect(),
            by_worker: Vec::with_capacity(peers_max),
            next_epochs: vec![1; peers_max].into_boxed_slice(),
            buffers: Buffers::new(options.buffers),
            copies: Copies::new(options.copies_max),
            pace: Pace::new(options.copy_bytes_per_sec),
            scrub: Scrub::default(),
            scratch: Box::new([0; DATAGRAM_MAX]),
            due: vec![0; peers_max.div_ceil(64)].into_boxed_slice(),
            timers_us: 0,
            copy_turn: 0,
            send_turn: 0,
            is_copying: false,
            senders: 0,
            refused: Refusals::default(),
            witness: PeerNodes::new(peers_max),
            acknowledgements: 0,
            incarnations: 0,
            setting: Setting { options, identity, fingerprint, keys, comebacks: Vec::new() },
        })
    }

    /// Adds a worker to exchange datagrams with; allocates its state.
    ///
    /// # Errors
    /// [`PeerError`].
    pub fn add_peer(
        &mut self,
        worker: PeerId,
        address: SocketAddr,
        now_us: u64,
    ) -> Result<PeerIndex, PeerError> {
        let Err(position) = self.by_worker.binary_search_by_key(&worker, |&(worker, _)| worker)
        else {
            return Err(PeerError::Known(worker));
        };
        if worker == self.setting.identity.worker {
            return Err(PeerError::Known(worker));
        }
        let free = self.peers.iter().position(Option::is_none).ok_or(PeerError::Full)?;
        let peer = PeerIndex(free as u16);
        let (options, epoch) = (&self.setting.options, self.next_epochs[free]);
        let own_lane = |lane| OwnLane {
            stream: SendStream::new(lane, epoch, options),
            copying: None,
            waiting: Chain::EMPTY,
            begun: Chain::EMPTY,
        };
        self.incarnations += 1;
        self.peers[free] = Some(StreamPeer {
            link: PeerLink::new(&self.setting, worker, address, self.incarnations, now_us),
            boot: None,
            incarnation: 0,
            lanes: Lane::ALL.map(own_lane),
            streams: Lane::ALL.map(ReceiveStream::new),
            heartbeat_due_us: 0,
            acknowledgement_due_us: u64::MAX,
            hasten_due_us: u64::MAX,
            hastened_us: 0,
            announced_little_room: false,
            node: None,
            sighting: 0,
            comeback: 0,
            is_witness: false,
            accepts: self.pace.of_peer(),
        });
        self.by_worker.insert(position, (worker, peer));
        self.mark(peer);
        Ok(peer)
    }

    /// Sets the address of a peer.
    pub fn set_address(&mut self, peer: PeerIndex, address: SocketAddr) {
        if let Some(Some(peer)) = self.peers.get_mut(peer.index()) {
            peer.link.address = address;
        }
    }

    /// Returns how packets that this worker cannot serve reach a peer now.
    pub fn redirects(&self, peer: PeerIndex) -> RedirectForm {
        let peer = self.peers.get(peer.index()).and_then(Option::as_ref);
        peer.map_or(RedirectForm::Refused, |peer| peer.link.redirects())
    }

    /// Seals a packet for a peer, which lies in `buffer` between `front` bytes and the bytes of the
    /// tag. Returns false if there is no session that seals, or the room in front does not fit:
    /// then it must not be sent.
    #[inline]
    pub fn seal_redirect(&mut self, peer: PeerIndex, front: usize, buffer: &mut [u8]) -> bool {
        let Some(Some(peer)) = self.peers.get_mut(peer.index()) else { return false };
        peer.link.seal_redirect(&self.setting, front, buffer)
    }

    /// Sets the fingerprint that later sessions compare. Those that are set up go on.
    pub fn set_fingerprint(&mut self, fingerprint: Fingerprint) {
        self.setting.fingerprint = fingerprint;
    }

    /// Sets what all later heartbeats report of shards that this worker came back to.
    pub fn set_comebacks(&mut self, comebacks: Vec<Comeback>) {
        self.setting.comebacks = comebacks;
    }

    /// Forgets a peer, its streams and its copies. The sink is not notified: the caller knows.
    pub fn remove_peer(&mut self, peer: PeerIndex) {
        let Some(mut gone) = self.peers.get_mut(peer.index()).and_then(Option::take) else {
            return;
        };
        for own in &mut gone.lanes {
            own.stream.reset(&mut self.buffers);
            let next_epoch = &mut self.next_epochs[peer.index()];
            *next_epoch = own.stream.epoch().max(*next_epoch);
            self.copies.remove_all(&mut own.waiting);
            self.copies.remove_all(&mut own.begun);
        }
        gone.streams.iter_mut().for_each(|stream| stream.reset(0, &mut self.buffers));
        self.by_worker.retain(|&(_, index)| index != peer);
        self.keep_nodes();
    }

    /// Takes new cluster keys. Sessions made with a removed key end at once, the others are
    /// replaced without a pause; streams go on.
    pub fn set_keys(&mut self, keys: ClusterKeys, now_us: u64) {
        self.setting.keys = keys;
        for peer in self.peers.iter_mut().flatten() {
            peer.link.keys_changed(&self.setting.keys, now_us);
        }
        self.timers_us = 0;
    }

    /// Notes the packets of the turn that the next poll belongs to: copies leave most of a busy
    /// worker's time to packets. Without a note the turn had none.
    #[inline]
    pub fn note_turn(&mut self, load: TurnLoad) {
        self.pace.note(load);
    }

    /// Appends a record to the lane's streams to these peers. It goes out with the next poll. A
    /// stream that is not open, or whose log is full, is left out: its copy will bring the record.
    ///
    /// # Panics
    /// If there are more than [`REPLICAS_MAX`] peers, or the body is too long.
    #[inline]
    pub fn append(
        &mut self,
        peers: &[PeerIndex],
        lane: Lane,
        record: &StreamRecord<'_>,
        now_us: u64,
    ) -> Ticket {
        let mut ticket = Ticket::new(lane);
        self.append_next(peers, record, now_us, &mut ticket);
        ticket
    }

    /// Appends a further record of the ticket's lane, as [`append`](Self::append) does, and sets
    /// the ticket to its position. Returns whether that differs from the position before.
    ///
    /// # Panics
    /// As [`append`](Self::append).
    #[inline]
    pub fn append_next(
        &mut self,
        peers: &[PeerIndex],
        record: &StreamRecord<'_>,
        now_us: u64,
        ticket: &mut Ticket,
    ) -> bool {
        assert!(peers.len() <= REPLICAS_MAX, "a shard has at most four replicas");
        let (mut count, mut is_elsewhere) = (0, false);
        for &peer in peers {
            let appended = self.append_item(peer, ticket.lane, &Item::Record(*record), now_us);
            let Some((epoch, sequence)) = appended else { continue };
            let entry = TicketEntry { peer, epoch, sequence: Sequence(sequence) };
            is_elsewhere |= std::mem::replace(&mut ticket.entries[count], entry) != entry;
            count += 1;
        }
        is_elsewhere |= usize::from(std::mem::replace(&mut ticket.count, count as u8)) != count;
        is_elsewhere
    }

    /// Appends a record without a ticket, for callers that need not know whether it was
    /// acknowledged.
    ///
    /// # Panics
    /// If the body is too long.
    #[inline]
    pub fn append_untracked(
        &mut self,
        peers: &[PeerIndex],
        lane: Lane,
        record: &StreamRecord<'_>,
        now_us: u64,
    ) {
        for &peer in peers {
            self.append_item(peer, lane, &Item::Record(*record), now_us);
        }
    }

    /// Flushes pending records to `peer` at the next poll, all lanes together, at most once per
    /// `pace_us`.
    #[inline]
    pub fn hasten(&mut self, peer: PeerIndex, now_us: u64, pace_us: u64) {
        if let Some(Some(peer)) = self.peers.get_mut(peer.index()) {
            let due_us = now_us.max(peer.hastened_us + pace_us);
            peer.hasten_due_us = peer.hasten_due_us.min(due_us);
        }
    }

    /// Appends an item; returns epoch and sequence.
    #[inline]
    fn append_item(
        &mut self,
        index: PeerIndex,
        lane: Lane,
        item: &Item<'_>,
        now_us: u64,
    ) -> Option<(u32, u64)> {
        let peer = self.peers.get_mut(index.index())?.as_mut()?;
        let stream = &mut peer.lanes[lane.index()].stream;
        if !stream.is_open() {
            return None;
        }
        let epoch = stream.epoch();
        if let Ok(sequence) = stream.append(&mut self.buffers, now_us, item) {
            peer.link.counters.records_sent += 1;
            self.mark(index);
            return Some((epoch, sequence));
        }
        self.make_room(index, lane);
        None
    }

    /// Makes room when a log is full or the pool is empty: if the pool is empty, the stream with
    /// the longest log falls out of sync. The stream that wanted to append does in any case, since
    /// it has lost an item.
    #[cold]
    pub(crate) fn make_room(&mut self, index: PeerIndex, lane: Lane) {
        if self.buffers.available() == 0 {
            let lanes = |(index, peer): (usize, &Option<StreamPeer>)| {
                let peer = peer.as_ref()?;
                let longest = Lane::ALL
                    .into_iter()
                    .max_by_key(|lane| peer.lanes[lane.index()].stream.logged())?;
                Some((peer.lanes[longest.index()].stream.logged(), index, longest))
            };
            let longest = self.peers.iter().enumerate().filter_map(lanes).max();
            if let Some((_, index, longest)) = longest {
                self.fall_out_of_sync(PeerIndex(index as u16), longest);
            }
        }
        self.fall_out_of_sync(index, lane);
    }

    /// Restarts a stream; its copies restart too.
    pub(crate) fn fall_out_of_sync(&mut self, index: PeerIndex, lane: Lane) {
        let Some(peer) = self.peers[index.index()].as_mut() else { return };
        let own = &mut peer.lanes[lane.index()];
        if own.stream.is_open() {
            peer.link.counters.resyncs += 1;
        }
        own.stream.reset(&mut self.buffers);
        own.copying = None;
        self.copies.restart_all(&mut own.waiting, &mut own.begun);
        peer.heartbeat_due_us = 0;
        self.is_copying = true;
        self.mark(index);
    }

    #[inline]
    pub(crate) fn mark(&mut self, peer: PeerIndex) {
        self.due[peer.index() / 64] |= 1 << (peer.index() % 64);
    }

    /// Starts to copy a slab (shard, lane) of this worker to a peer, for its incarnation `boot`,
    /// and to keep it in sync. None if `copies_max` is reached or there is no such peer.
    pub fn start_copy(
        &mut self,
        peer: PeerIndex,
        boot: BootId,
        shard: ShardId,
        lane: Lane,
    ) -> Option<CopyId> {
        let known = self.peers.get_mut(peer.index())?.as_mut()?;
        let waiting = &mut known.lanes[lane.index()].waiting;
        let id = self.copies.insert(Copy::new(peer, boot, lane, shard), waiting)?;
        self.is_copying = true;
        Some(id)
    }

    /// Restarts a copy, if it has begun: changes were lost before they were appended, or the peer
    /// has lost it.
    pub fn restart_copy(&mut self, id: CopyId) {
        let Some(copy) = self.copies.get(id) else { return };
        let Some(peer) = self.peers[copy.peer.index()].as_mut() else { return };
        let own = &mut peer.lanes[copy.lane.index()];
        let is_copying = own.copying == Some(id);
        if copy.waits(&own.stream) || copy.phase == CopyPhase::Waiting && !is_copying {
            return;
        }
        own.copying = own.copying.filter(|_| !is_copying);
        self.copies.restart(id, &mut own.waiting, &mut own.begun);
        self.is_copying = true;
    }

    /// Ends the copy of a slab and notifies the peer, which keeps what it has.
    pub fn stop_copy(&mut self, id: CopyId, now_us: u64) {
        let Some(copy) = self.copies.get(id).cloned() else { return };
        let Some(peer) = self.peers[copy.peer.index()].as_mut() else { return };
        let own = &mut peer.lanes[copy.lane.index()];
        let is_copying = own.copying == Some(id);
        own.copying = own.copying.filter(|_| !is_copying);
        if copy.waits(&own.stream) {
            return self.copies.remove(id, &mut own.waiting);
        }
        self.copies.remove(id, &mut own.begun);
        if copy.phase == CopyPhase::Waiting && !is_copying {
            return;
        }
        let item = Item::CopyStop { shard: copy.shard };
        self.append_item(copy.peer, copy.lane, &item, now_us);
    }
}

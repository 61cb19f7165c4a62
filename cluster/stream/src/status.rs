//! The state of an endpoint: which peer has what, how far it is behind, what has happened.

use std::net::SocketAddr;

use weir_ids::{BootId, Lane, PeerId};

use crate::copy::{CopyId, CopyStatus};
use crate::counters::{Lag, PeerCounters};
use crate::endpoint::{OwnLane, StreamEndpoint, StreamPeer, Ticket, TicketEntry};
use crate::fingerprint::FingerprintPart;
use crate::identity::{PeerIndex, Sequence};
use crate::refusal::Refusals;

/// State of a peer.
#[derive(Clone, Copy, Debug)]
pub struct PeerLinkStatus {
    /// The peer.
    pub worker: PeerId,
    /// Its address.
    pub address: SocketAddr,
    /// Its last known incarnation; None before the first session.
    pub boot: Option<BootId>,
    /// Protocol version of the session. None: there is no session.
    pub version: Option<u8>,
    /// Milliseconds since something authentic came from it.
    pub silent_ms: u64,
    /// Smoothed round trip in microseconds; 0: not measured yet.
    pub round_trip_us: u64,
    /// Lag of the peer over all lanes.
    pub lag: Lag,
    /// The part of the configuration that it was last refused for.
    pub difference: Option<FingerprintPart>,
    /// Counters since the start.
    pub counters: PeerCounters,
}

impl StreamEndpoint {
    /// Returns the progress of a copy. None after it was stopped or its peer was removed.
    pub fn copy_status(&self, id: CopyId) -> Option<CopyStatus> {
        let copy = self.copies.get(id)?;
        let own = &self.peers.get(copy.peer.index())?.as_ref()?.lanes[copy.lane.index()];
        Some(copy.status(&own.stream))
    }

    /// Returns the index of a worker that is a peer.
    pub fn peer(&self, worker: PeerId) -> Option<PeerIndex> {
        let position = self.by_worker.binary_search_by_key(&worker, |&(worker, _)| worker).ok()?;
        Some(self.by_worker[position].1)
    }

    /// Returns the last known incarnation of a peer. None: there was no session yet, or there is no
    /// such peer.
    pub fn boot(&self, peer: PeerIndex) -> Option<BootId> {
        self.peers.get(peer.index())?.as_ref()?.boot
    }

    /// Returns the milliseconds since something authentic came from the peer, or since it was
    /// added. None if there is no such peer.
    pub fn silent_ms(&self, peer: PeerIndex, now_us: u64) -> Option<u64> {
        let peer = self.peers.get(peer.index())?.as_ref()?;
        Some(peer.link.silent_us(now_us) / 1000)
    }

    /// Returns how many replicas have applied the record.
    pub fn replicated_on(&self, ticket: &Ticket) -> usize {
        let has_it = |entry: &&TicketEntry| {
            let (epoch, sequence) = self.acknowledged(entry.peer, ticket.lane);
            epoch == entry.epoch && sequence >= entry.sequence
        };
        ticket.entries().iter().filter(has_it).count()
    }

    /// True if the record is in the present stream to the peer and not acknowledged. A record that
    /// is in no stream, or in an earlier epoch, is brought by the copy.
    pub fn is_on_its_way(&self, ticket: &Ticket, peer: PeerIndex) -> bool {
        let entry = ticket.entries().iter().find(|entry| entry.peer == peer);
        entry.is_some_and(|entry| {
            let (epoch, sequence) = self.acknowledged(peer, ticket.lane);
            epoch == entry.epoch && sequence < entry.sequence
        })
    }

    /// True if no replica will acknowledge the record any more: it went to no stream, or all of
    /// them have restarted.
    pub fn is_void(&self, ticket: &Ticket) -> bool {
        ticket
            .entries()
            .iter()
            .all(|entry| self.acknowledged(entry.peer, ticket.lane).0 != entry.epoch)
    }

    /// Returns a count that rises whenever something may have been acknowledged.
    #[inline]
    pub fn acknowledgements(&self) -> u64 {
        self.acknowledgements
    }

    /// Returns the epoch of a stream, and the sequence up to which its peer has applied it.
    pub fn acknowledged(&self, peer: PeerIndex, lane: Lane) -> (u32, Sequence) {
        match self.peers.get(peer.index()) {
            Some(Some(peer)) => {
                let stream = &peer.lanes[lane.index()].stream;
                (stream.epoch(), Sequence(stream.acknowledged()))
            }
            _ => (0, Sequence(0)),
        }
    }

    /// True if appended records go to the peer: it has acknowledged the stream's epoch.
    pub fn is_open(&self, peer: PeerIndex, lane: Lane) -> bool {
        let peer = self.peers.get(peer.index()).and_then(Option::as_ref);
        peer.is_some_and(|peer| peer.lanes[lane.index()].stream.is_open())
    }

    /// Returns what the peer has not acknowledged of a lane.
    pub fn lag(&self, peer: PeerIndex, lane: Lane, now_us: u64) -> Lag {
        match self.peers.get(peer.index()) {
            Some(Some(peer)) => peer.lanes[lane.index()].lag(now_us),
            _ => Lag::default(),
        }
    }

    /// Returns how many datagrams of a peer's stream were sent and not applied here, as far as is
    /// known.
    pub fn behind(&self, peer: PeerIndex, lane: Lane) -> u64 {
        let peer = self.peers.get(peer.index()).and_then(Option::as_ref);
        peer.map_or(0, |peer| peer.streams[lane.index()].behind())
    }

    /// Returns the state of a peer. None if there is no such peer.
    pub fn peer_status(&self, peer: PeerIndex, now_us: u64) -> Option<PeerLinkStatus> {
        let StreamPeer { link, boot, lanes, .. } = self.peers.get(peer.index())?.as_ref()?;
        let mut lag = Lag::default();
        for own in lanes {
            let of_lane = own.lag(now_us);
            lag.records += of_lane.records;
            lag.bytes += of_lane.bytes;
            lag.age_ms = lag.age_ms.max(of_lane.age_ms);
        }
        Some(PeerLinkStatus {
            worker: link.worker,
            address: link.address,
            boot: *boot,
            version: link.session.as_ref().map(|session| session.version),
            silent_ms: link.silent_us(now_us) / 1000,
            round_trip_us: link.round_trip.smoothed_us(),
            lag,
            difference: link.difference,
            counters: link.counters,
        })
    }

    /// Returns the datagrams refused that could not be attributed to a peer, by reason.
    pub fn refused(&self) -> Refusals {
        self.refused
    }

    /// Returns the datagram buffers in use, and the number of all buffers.
    pub fn buffers_used(&self) -> (usize, usize) {
        (self.buffers.total() - self.buffers.available(), self.buffers.total())
    }
}

impl OwnLane {
    fn lag(&self, now_us: u64) -> Lag {
        let (records, bytes, oldest_us) = self.stream.lag();
        let age_us = oldest_us.map_or(0, |oldest_us| now_us.saturating_sub(oldest_us));
        Lag { records, bytes, age_ms: age_us / 1000 }
    }
}

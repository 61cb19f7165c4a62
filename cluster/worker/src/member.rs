//! Hot: a worker's part of a turn in a cluster: commands in, events out, datagrams with other
//! workers, heartbeats.
//!
//! A turn without anything to do costs one look at a flag, two words and the streams' own timers.

use std::net::SocketAddr;
use std::time::Duration;

use weir_engine::{Engine, Output, Post};
use weir_map::ShardId;
use weir_replication::{Replication, Stall, WorkerEvent};
use weir_stream::{PeerIndex, Received, Transmit};
use weir_wire::frame::{Frame, Pool};

use crate::link::{Link, PEERS_MAX};
use crate::worker::{Turn, engine_now};

/// Length of a slot: traffic is reported by slots.
const SLOT: Duration = Duration::from_millis(10);
/// Time between two reports on the state of the copies.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// Commands carried out in a turn; only one of them if it takes long.
const ORDERS_PER_TURN: usize = 16;
/// Events reported in a turn.
const NEWS_PER_TURN: usize = 64;

/// A worker's cluster state besides its engine.
#[derive(Debug)]
pub struct Member<L> {
    pub replication: Replication,
    pub link: L,
    stall: Stall,
    /// Shards by their index in the engine.
    shards: Vec<ShardId>,
    slot_began: Duration,
    reported: Duration,
}

/// The transmit path during one poll.
struct Posting<'a, P: Pool> {
    post: Post<'a>,
    pool: &'a mut P,
    out: &'a mut Output<P::Frame>,
}

impl<P: Pool> Transmit for Posting<'_, P> {
    #[inline]
    fn send(&mut self, to: SocketAddr, datagram: &[u8]) -> bool {
        match to {
            SocketAddr::V4(to) => self.post.send(to, datagram, self.pool, self.out),
            SocketAddr::V6(_) => false,
        }
    }
}

impl<L: Link> Member<L> {
    pub fn new(replication: Replication, link: L) -> Self {
        Self {
            replication,
            link,
            stall: Stall::default(),
            shards: Vec::new(),
            slot_began: Duration::ZERO,
            reported: Duration::ZERO,
        }
    }

    /// Returns for how many microseconds the worker stalled before this turn, if it did, whatever
    /// the guard has noticed.
    #[inline]
    pub(crate) fn stall_us(&mut self, now: Duration) -> Option<u64> {
        self.stall.ended(now.as_micros() as u64)
    }

    /// Takes datagrams of other workers: after each burst from the access side, of which the engine
    /// keeps the datagrams.
    #[inline]
    pub(crate) fn take_datagrams<P: Pool>(
        &mut self,
        now: Duration,
        engine: &mut Engine<P::Frame>,
        pool: &mut P,
        out: &mut Output<P::Frame>,
    ) {
        let now_us = now.as_micros() as u64;
        while let Some((from, mut frame)) = engine.take_datagram() {
            // Refused datagrams are counted by reason.
            let nat = engine.nat_mut().replica_mut();
            let received = self.replication.receive(from, frame.data_mut(), now_us, nat);
            if let Ok(Received::Redirect(packet)) = received {
                frame.keep(packet.start, packet.len());
                engine.receive_redirected(frame, engine_now(now), pool, out);
            }
        }
    }

    /// Runs the cluster's part of the turn: after bursts were received, before frames are sent.
    #[inline]
    pub(crate) fn turn<P: Pool>(
        &mut self,
        now: Duration,
        engine: &mut Engine<P::Frame>,
        pool: &mut P,
        out: &mut Output<P::Frame>,
        turn: &mut Turn,
    ) {
        self.link.beat();
        let now_us = now.as_micros() as u64;
        turn.is_busy = self.link.is_ordered() && self.obey(now_us, engine);
        self.take_datagrams(now, engine, pool, out);
        let (nat, post) = engine.replica_and_post();
        let transmit = &mut Posting { post, pool, out };
        self.replication.poll(now_us, nat, transmit);
        self.replication.redirect(engine, out);
        let committed = self.replication.committed(now_us, engine.nat().replica());
        engine.release_committed(committed, engine_now(now), out);
        turn.is_holding = engine.held() > 0;
        turn.is_busy |= self.tell();
        if now.saturating_sub(self.slot_began) >= SLOT {
            self.slot_began = now;
            self.end_slot(now_us, engine);
            if now.saturating_sub(self.reported) >= REPORT_INTERVAL {
                self.reported = now;
                self.link.report(&self.replication, now_us);
            }
        }
    }

    /// Carries out commands. Always returns true: commands were there, or the work that they wait
    /// for goes on.
    #[cold]
    fn obey<F: Frame>(&mut self, now_us: u64, engine: &mut Engine<F>) -> bool {
        if !self.replication.takes_orders() {
            return true;
        }
        for _ in 0..ORDERS_PER_TURN {
            let Some(command) = self.link.next_command() else { break };
            let takes_long = command.takes_long();
            self.replication.obey(command, &mut engine.setup(), now_us);
            if takes_long {
                break;
            }
        }
        true
    }

    /// Reports events. Returns whether there were any.
    #[inline]
    fn tell(&mut self) -> bool {
        let mut told = 0;
        // An event without room stays where a later one of the same shard or peer can replace it.
        while told < NEWS_PER_TURN && self.link.has_room() {
            let Some(news) = self.replication.next_news() else { break };
            self.tell_one(news);
            told += 1;
        }
        told > 0
    }

    #[cold]
    fn tell_one(&mut self, news: WorkerEvent) {
        let place = match &news {
            WorkerEvent::ShardAdded(shard) => self.replication.place(*shard),
            _ => None,
        };
        if let (WorkerEvent::ShardAdded(shard), Some(place)) = (&news, place) {
            let place = usize::from(place.0);
            self.shards.resize(self.shards.len().max(place + 1), ShardId(0));
            self.shards[place] = *shard;
        }
        self.link.news(news, place);
    }

    fn end_slot<F: Frame>(&mut self, now_us: u64, engine: &mut Engine<F>) {
        let (link, shards) = (&mut self.link, &self.shards);
        engine.take_traffic(|place| {
            if let Some(&shard) = shards.get(usize::from(place.0)) {
                link.busy(shard);
            }
        });
        for place in (0..PEERS_MAX as u16).map(PeerIndex) {
            self.link.signs(place, self.replication.signs(place, now_us));
        }
        self.link.end_slot();
    }
}

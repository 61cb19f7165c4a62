//! The worker thread's side of a member: orders in, news out, datagrams with other workers, signs of life.
//!
//! Hot: one look at a flag, two words and the streams' own timers in a turn without anything to do. What it tells at the
//! end of each slot of 10 ms goes through rings and gauges that never make it wait.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use rtrb::{Consumer, Producer, RingBuffer};
use weir_dpdk::{Mbuf, MbufPool};
use weir_engine::{Engine, Output, Post};
use weir_member::{News, Order, Replication, Standstill};
use weir_replica::{PeerIndex, PeerSigns, Received, Transmit};
use weir_steer::Heartbeat;
use weir_wire::frame::Frame;

use super::inbox::WorkerSender;
use crate::board::Gauge;
use crate::worker::engine_now;

/// Workers of other nodes that a worker speaks with at most.
pub(crate) const PEERS_MAX: usize = 64;
/// Length of a slot: packets are told by slots.
const SLOT: Duration = Duration::from_millis(10);
/// Between two reports of how the copies stand.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// Orders obeyed in a turn; of those that take long one.
const ORDERS_PER_TURN: usize = 16;
/// News told in a turn.
const NEWS_PER_TURN: usize = 64;

/// What a worker shows of its peers, written by it alone.
#[derive(Debug)]
pub(crate) struct Signs {
    /// Of each peer, by its place, as the worker has seen it last.
    peers: [PeerGauges; PEERS_MAX],
    /// Slots that have ended.
    pub slots: Gauge,
}

/// [`PeerSigns`] of one peer. u64::MAX: none. They are stored one by one: a reader may find one of them older than another
/// by a slot.
#[derive(Debug)]
struct PeerGauges {
    silent_ms: Gauge,
    seen_ms: Gauge,
    is_witness: Gauge,
}

impl PeerGauges {
    /// Of the place of no peer.
    fn none() -> Self {
        let it = Self {
            silent_ms: Gauge::default(),
            seen_ms: Gauge::default(),
            is_witness: Gauge::default(),
        };
        it.set(None);
        it
    }

    fn set(&self, signs: Option<PeerSigns>) {
        self.silent_ms.set(signs.map_or(u64::MAX, |it| it.silent_ms));
        self.seen_ms.set(signs.and_then(|it| it.seen_ms).unwrap_or(u64::MAX));
        self.is_witness.set(signs.map_or(0, |it| it.is_witness.into()));
    }

    fn get(&self) -> Option<PeerSigns> {
        let some = |gauge: &Gauge| Some(gauge.get()).filter(|&value| value < u64::MAX);
        Some(PeerSigns {
            silent_ms: some(&self.silent_ms)?,
            seen_ms: some(&self.seen_ms),
            is_witness: self.is_witness.get() != 0,
        })
    }
}

impl Signs {
    fn none() -> Self {
        let peers = std::array::from_fn(|_| PeerGauges::none());
        Self { peers, slots: Gauge::default() }
    }

    /// Signs of life of the peers, each with its place.
    pub(super) fn peers(&self) -> impl Iterator<Item = (PeerIndex, PeerSigns)> {
        let places = (0..).map(PeerIndex).zip(&self.peers);
        places.filter_map(|(place, gauges)| Some((place, gauges.get()?)))
    }
}

/// In the worker's thread.
#[derive(Debug)]
pub(crate) struct WorkerPart {
    pub(super) worker: usize,
    pub(super) replication: Replication,
    heartbeat: Heartbeat,
    standstill: Standstill,
    orders: Receiver<Order>,
    is_ordered: Arc<AtomicBool>,
    inbox: WorkerSender,
    signs: Arc<Signs>,
    /// Numbers of the shards that had packets in a slot.
    busy: Producer<u32>,
    /// Numbers of the shards by their place in the engine.
    shards: Vec<u32>,
    slot_began: Duration,
    reported: Duration,
}

/// Outside of it.
#[derive(Debug)]
pub(super) struct WorkerLink {
    orders: Sender<Order>,
    is_ordered: Arc<AtomicBool>,
    pub(super) signs: Arc<Signs>,
    pub(super) busy: Consumer<u32>,
}

/// Both sides of a worker's part. `shards_max`: shards that it has room for.
pub(super) fn worker_part(
    worker: usize,
    replication: Replication,
    heartbeat: Heartbeat,
    inbox: WorkerSender,
    shards_max: usize,
) -> (WorkerPart, WorkerLink) {
    // Orders are differences, so none may be left out; there are as many as the map changes.
    let (orders_in, orders) = channel();
    let is_ordered = Arc::new(AtomicBool::new(false));
    let signs = Arc::new(Signs::none());
    // A few slots' worth: the other side takes them out once a slot.
    let (busy, busy_out) = RingBuffer::new(4 * shards_max + 64);
    let part = WorkerPart {
        worker,
        replication,
        heartbeat,
        standstill: Standstill::default(),
        orders,
        is_ordered: Arc::clone(&is_ordered),
        inbox,
        signs: Arc::clone(&signs),
        busy,
        shards: Vec::new(),
        slot_began: Duration::ZERO,
        reported: Duration::ZERO,
    };
    (part, WorkerLink { orders: orders_in, is_ordered, signs, busy: busy_out })
}

impl WorkerLink {
    /// Orders it; a worker that has ended obeys nothing.
    pub(super) fn order(&self, order: Order) {
        let _ = self.orders.send(order);
        self.is_ordered.store(true, Ordering::Release);
    }

    /// One whose orders a test takes.
    #[cfg(test)]
    pub(super) fn for_test() -> (Self, Receiver<Order>) {
        let (orders, taken) = channel();
        let signs = Arc::new(Signs::none());
        let busy = RingBuffer::new(1).1;
        (Self { orders, is_ordered: Arc::default(), signs, busy }, taken)
    }
}

/// The way out during one poll.
struct Posting<'a> {
    post: Post<'a>,
    pool: &'a mut MbufPool,
    out: &'a mut Output<Mbuf>,
}

impl Transmit for Posting<'_> {
    #[inline]
    fn send(&mut self, to: SocketAddr, datagram: &[u8]) -> bool {
        match to {
            SocketAddr::V4(to) => self.post.send(to, datagram, self.pool, self.out),
            SocketAddr::V6(_) => false,
        }
    }
}

impl WorkerPart {
    /// To be called by the worker's thread before its first turn.
    pub(crate) fn begin(&self) {
        if let Err(error) = self.heartbeat.begin() {
            tracing::warn!(
                event = "end-not-told",
                worker = self.worker,
                %error,
                "if this thread ends, the guard will notice by its silence only"
            );
        }
    }

    /// Whether the guard has taken this worker for dead. To be asked before a burst is received.
    #[inline]
    pub(crate) fn is_fenced(&self) -> bool {
        self.heartbeat.is_fenced()
    }

    /// For how many microseconds it stood still, if it did, whatever the guard has seen of that. To be asked before a burst
    /// is received.
    #[inline]
    pub(crate) fn standstill_us(&mut self, now: Duration) -> Option<u64> {
        self.standstill.ended(now.as_micros() as u64)
    }

    /// Goes on although the guard took it for dead: its routes may be set again. Its roles and tables are as they were,
    /// since nobody else got its lanes. `waited`: packets that had waited in its rings.
    #[cold]
    pub(crate) fn rejoin(&mut self, waited: usize) {
        let fence = self.heartbeat.acknowledge();
        self.inbox.rejoined(fence, waited);
    }

    /// Takes what other workers have sent: after each burst from the access side, of which the engine keeps the datagrams.
    #[inline]
    pub(crate) fn take_datagrams(
        &mut self,
        now: Duration,
        engine: &mut Engine<Mbuf>,
        pool: &mut MbufPool,
        out: &mut Output<Mbuf>,
    ) {
        let now_us = now.as_micros() as u64;
        while let Some((from, mut frame)) = engine.take_datagram() {
            // What is refused is counted by its reason.
            let nat = engine.nat_mut();
            let received = self.replication.receive(from, frame.data_mut(), now_us, nat);
            if let Ok(Received::Redirect(packet)) = received {
                frame.keep(packet.start, packet.len());
                engine.receive_redirected(frame, engine_now(now), pool, out);
            }
        }
    }

    /// Its part of a turn: after the bursts were received, before frames are sent. Whether there was something to do besides
    /// the datagrams among them.
    #[inline]
    pub(crate) fn turn(
        &mut self,
        now: Duration,
        engine: &mut Engine<Mbuf>,
        pool: &mut MbufPool,
        out: &mut Output<Mbuf>,
    ) -> bool {
        self.heartbeat.beat();
        let now_us = now.as_micros() as u64;
        let mut is_busy = self.is_ordered.load(Ordering::Relaxed) && self.obey(now, engine);
        self.take_datagrams(now, engine, pool, out);
        let (nat, post) = engine.nat_and_post();
        let transmit = &mut Posting { post, pool, out };
        self.replication.poll(now_us, nat, transmit);
        self.replication.redirect(engine, out);
        let committed = self.replication.committed(now_us, engine.nat());
        engine.release_committed(committed, engine_now(now), out);
        is_busy |= engine.held() > 0;
        is_busy |= self.tell();
        if now.saturating_sub(self.slot_began) >= SLOT {
            self.slot_began = now;
            self.end_slot(now_us, engine);
            if now.saturating_sub(self.reported) >= REPORT_INTERVAL {
                self.reported = now;
                // One that finds the place taken is left out: the next comes in a second.
                let _ = self.inbox.report(Box::new(self.replication.status(now_us)));
            }
        }
        is_busy
    }

    #[cold]
    fn obey(&mut self, now: Duration, engine: &mut Engine<Mbuf>) -> bool {
        if !self.replication.takes_orders() {
            return true;
        }
        // Lowered before looking, so that an order sent meanwhile raises it again.
        self.is_ordered.swap(false, Ordering::AcqRel);
        for _ in 0..ORDERS_PER_TURN {
            let Ok(order) = self.orders.try_recv() else { return true };
            let takes_long = order.takes_long();
            self.replication.obey(order, engine, now.as_micros() as u64);
            if takes_long {
                break;
            }
        }
        self.is_ordered.store(true, Ordering::Release);
        true
    }

    /// Whether there was news.
    #[inline]
    fn tell(&mut self) -> bool {
        let mut told = 0;
        // What finds no room stays where news of the same shard or peer replace it.
        while told < NEWS_PER_TURN && self.inbox.has_room() {
            let Some(news) = self.replication.next_news() else { break };
            self.tell_one(news);
            told += 1;
        }
        told > 0
    }

    #[cold]
    fn tell_one(&mut self, news: News) {
        let place = match &news {
            News::ShardAdded(shard) => self.replication.place(*shard),
            _ => None,
        };
        if let (News::ShardAdded(shard), Some(place)) = (&news, place) {
            let place = usize::from(place.0);
            self.shards.resize(self.shards.len().max(place + 1), 0);
            self.shards[place] = shard.0;
        }
        self.inbox.news(news, place);
    }

    fn end_slot(&mut self, now_us: u64, engine: &mut Engine<Mbuf>) {
        let (busy, shards) = (&mut self.busy, &self.shards);
        engine.take_traffic(|place| {
            if let Some(&shard) = shards.get(usize::from(place.0)) {
                // A full ring: nobody has looked for several slots, and who looks next is told of the newest.
                let _ = busy.push(shard);
            }
        });
        for (place, gauges) in (0..).map(PeerIndex).zip(&self.signs.peers) {
            gauges.set(self.replication.signs(place, now_us));
        }
        self.signs.slots.set(self.signs.slots.get() + 1);
    }
}

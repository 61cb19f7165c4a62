//! A worker: the production engine and its part in the cluster, in the order of turns of the real loop
//! (`crates/node/src/worker.rs`, `cluster/worker_part.rs`), with rings instead of ports.

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;

use weir_engine::{BURST_MAX, Engine, Now, Output, Post, Side};
use weir_member::{LATE_MAX_US, News, Order, Replication, Standstill};
use weir_replica::{PeerIndex, PeerSigns, Received, Transmit};
use weir_shard::ShardId;
use weir_steer::Fence;
use weir_wire::frame::{Frame, VecFrame, VecPool};

/// Frames that a ring holds; what comes on top is lost, as in a NIC.
const RING_MAX: usize = 512;
/// Peers that are looked at for silence.
pub(crate) const PEERS_MAX: u16 = 16;
const SLOT_US: u64 = 10_000;
const ORDERS_PER_TURN: usize = 16;
const NEWS_PER_TURN: usize = 65;

#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) engine: Engine<VecFrame>,
    pub(crate) replication: Replication,
    rings: [VecDeque<VecFrame>; 2],
    out: Output<VecFrame>,
    burst: Vec<VecFrame>,
    /// And when they come.
    orders: VecDeque<(u64, Order)>,
    /// Numbers of the shards by their place in the engine.
    shards: Vec<u32>,
    slot_began_us: u64,
    /// Its next turn, in virtual time.
    pub(crate) turn_due_us: u64,
    /// It stands still until then.
    pub(crate) stalled_until_us: u64,
    pub(crate) beat: u64,
    standstill: Standstill,
    /// As it has acknowledged it.
    fence: Fence,
    /// Shards that had packets, until the roles look.
    pub(crate) busy: BTreeSet<ShardId>,
    /// Slots that have ended.
    pub(crate) slots: u64,
    /// Signs of life of each peer at the end of the last slot.
    pub(crate) signs: [Option<PeerSigns>; PEERS_MAX as usize],
    pub(crate) ring_losses: u64,
}

/// What a turn led to.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    pub(crate) news: Vec<News>,
    /// The worker goes on although it was fenced.
    pub(crate) rejoined: Option<Fence>,
    pub(crate) packets: usize,
    /// Something is left to be done at once.
    pub(crate) is_busy: bool,
    /// Packets wait for copies.
    pub(crate) is_holding: bool,
}

/// The way out during one poll.
struct Posting<'a> {
    post: Post<'a>,
    pool: &'a mut VecPool,
    out: &'a mut Output<VecFrame>,
}

impl Transmit for Posting<'_> {
    fn send(&mut self, to: SocketAddr, datagram: &[u8]) -> bool {
        match to {
            SocketAddr::V4(to) => self.post.send(to, datagram, self.pool, self.out),
            SocketAddr::V6(_) => false,
        }
    }
}

impl Worker {
    pub(crate) fn new(engine: Engine<VecFrame>, replication: Replication) -> Self {
        Self {
            engine,
            replication,
            rings: Default::default(),
            out: Output::new(),
            burst: Vec::with_capacity(BURST_MAX),
            orders: VecDeque::new(),
            shards: Vec::new(),
            slot_began_us: 0,
            turn_due_us: 0,
            stalled_until_us: 0,
            beat: 0,
            standstill: Standstill::default(),
            fence: Fence::default(),
            busy: BTreeSet::new(),
            slots: 0,
            signs: [None; PEERS_MAX as usize],
            ring_losses: 0,
        }
    }

    /// Begins, with its ports up.
    pub(crate) fn start(&mut self, clock_us: u64, pool: &mut VecPool) {
        self.engine.watch_gateways();
        self.engine.start(Now { ms: clock_us / 1_000 }, pool, &mut self.out);
    }

    /// A frame has come to a port.
    pub(crate) fn arrive(&mut self, side: Side, frame: VecFrame) {
        let ring = &mut self.rings[side as usize];
        if ring.len() < RING_MAX {
            ring.push_back(frame);
        } else {
            self.ring_losses += 1;
        }
    }

    pub(crate) fn order(&mut self, due_us: u64, order: Order) {
        self.orders.push_back((due_us, order));
    }

    /// Frames that wait to be sent, with their sides.
    pub(crate) fn take_frames(&mut self, mut sink: impl FnMut(Side, VecFrame)) {
        self.out.access.drain(..).for_each(|frame| sink(Side::Access, frame));
        self.out.internet.drain(..).for_each(|frame| sink(Side::Internet, frame));
    }

    /// One turn of the loop. `fence`: the guard's word.
    pub(crate) fn turn(
        &mut self,
        now_us: u64,
        clock_us: u64,
        fence: Fence,
        pool: &mut VecPool,
    ) -> Turn {
        let mut turn = Turn::default();
        let now = Now { ms: clock_us / 1_000 };
        let standstill_us = self.standstill.ended(clock_us);
        if standstill_us.is_some() || fence != self.fence {
            // What waits in its rings is late, and others may serve its shards by now. So is what waited for copies.
            self.engine.discard_held(now);
            match standstill_us.unwrap_or_default() <= LATE_MAX_US {
                true => turn.packets += self.forward_late(clock_us, pool),
                false => self.rings.iter_mut().for_each(VecDeque::clear),
            }
        }
        if fence != self.fence {
            self.fence = fence;
            turn.rejoined = Some(fence);
        }
        for side in [Side::Internet, Side::Access] {
            let ring = &mut self.rings[side as usize];
            let frames = ring.len().min(BURST_MAX);
            if frames > 0 {
                self.burst.extend(ring.drain(..frames));
                self.engine.receive(side, now, &mut self.burst, pool, &mut self.out);
                turn.packets += frames;
            }
            turn.is_busy |= !ring.is_empty();
        }
        self.take_part(now_us, clock_us, pool, &mut turn);
        self.engine.tick(now, pool, &mut self.out);
        while self.engine.next_event().is_some() {}
        turn
    }

    fn forward_late(&mut self, clock_us: u64, pool: &mut VecPool) -> usize {
        let mut waited = 0;
        let now = Now { ms: clock_us / 1_000 };
        self.engine.begin_late();
        for side in [Side::Internet, Side::Access] {
            while !self.rings[side as usize].is_empty() {
                let ring = &mut self.rings[side as usize];
                let frames = ring.len().min(BURST_MAX);
                self.burst.extend(ring.drain(..frames));
                self.engine.receive(side, now, &mut self.burst, pool, &mut self.out);
                self.take_datagrams(clock_us, pool);
                waited += frames;
            }
        }
        self.engine.end_late();
        waited
    }

    /// The end in order: nothing waits for copies any more.
    pub(crate) fn let_go(&mut self, clock_us: u64) {
        let is_more = self.engine.release_all(Now { ms: clock_us / 1_000 }, &mut self.out);
        assert!(!is_more, "an output takes more than is held");
    }

    /// As the real worker does it: orders, datagrams, replication, news, the end of a slot.
    fn take_part(&mut self, now_us: u64, clock_us: u64, pool: &mut VecPool, turn: &mut Turn) {
        self.beat += 1;
        self.obey(now_us, clock_us);
        self.take_datagrams(clock_us, pool);
        let (nat, post) = self.engine.nat_and_post();
        let transmit = &mut Posting { post, pool, out: &mut self.out };
        self.replication.poll(clock_us, nat, transmit);
        self.replication.redirect(&mut self.engine, &mut self.out);
        let committed = self.replication.committed(clock_us, self.engine.nat());
        self.engine.release_committed(committed, Now { ms: clock_us / 1_000 }, &mut self.out);
        turn.is_holding = self.engine.held() > 0;
        for _ in 0..NEWS_PER_TURN {
            let Some(news) = self.replication.next_news() else { break };
            self.note_place(&news);
            turn.news.push(news);
        }
        turn.is_busy |= self.orders.front().is_some_and(|(due_us, _)| *due_us <= now_us);
        if clock_us.saturating_sub(self.slot_began_us) >= SLOT_US {
            self.slot_began_us = clock_us;
            self.end_slot(clock_us);
        }
    }

    fn take_datagrams(&mut self, clock_us: u64, pool: &mut VecPool) {
        while let Some((from, mut frame)) = self.engine.take_datagram() {
            // What is refused is counted by its reason.
            let nat = self.engine.nat_mut();
            let received = self.replication.receive(from, frame.data_mut(), clock_us, nat);
            if let Ok(Received::Redirect(packet)) = received {
                frame.keep(packet.start, packet.len());
                let now = Now { ms: clock_us / 1_000 };
                self.engine.receive_redirected(frame, now, pool, &mut self.out);
            }
        }
    }

    fn obey(&mut self, now_us: u64, clock_us: u64) {
        if !self.replication.takes_orders() {
            return;
        }
        for _ in 0..ORDERS_PER_TURN {
            let is_due = self.orders.front().is_some_and(|(due_us, _)| *due_us <= now_us);
            let Some((_, order)) = is_due.then(|| self.orders.pop_front()).flatten() else { break };
            let takes_long = order.takes_long();
            self.replication.obey(order, &mut self.engine, clock_us);
            if takes_long {
                break;
            }
        }
    }

    fn note_place(&mut self, news: &News) {
        if let News::ShardAdded(shard) = news
            && let Some(place) = self.replication.place(*shard)
        {
            let place = usize::from(place.0);
            self.shards.resize(self.shards.len().max(place + 1), 0);
            self.shards[place] = shard.0;
        }
    }

    fn end_slot(&mut self, clock_us: u64) {
        let Self { engine, busy, shards, .. } = self;
        engine.take_traffic(|place| {
            if let Some(&shard) = shards.get(usize::from(place.0)) {
                busy.insert(ShardId(shard));
            }
        });
        for (place, signs) in (0..).map(PeerIndex).zip(&mut self.signs) {
            *signs = self.replication.signs(place, clock_us);
        }
        self.slots += 1;
    }
}

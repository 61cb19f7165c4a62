//! Hot: a worker's part of a turn in a cluster: commands in, events out, datagrams with other
//! workers, heartbeats.
//!
//! A turn without anything to do costs one look at a flag, two words and the streams' own timers.

use std::net::SocketAddr;
use std::time::Duration;

use weir_engine::{DatagramSender, Engine, Output};
use weir_map::ShardId;
use weir_replication::{Replication, Stall, WorkerEvent};
use weir_stream::{PeerIndex, Received, Transmit, TurnLoad};
use weir_wire::frame::{Frame, Pool};

use crate::link::{PEERS_MAX, RolesLink};
use crate::worker::{Turn, engine_now};

/// Length of a slot: traffic is reported by slots.
const SLOT: Duration = Duration::from_millis(10);
/// Time between two reports on the state of the copies.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// Commands carried out in a turn; only one of them if it takes long.
const ORDERS_PER_TURN: usize = 16;
/// Events reported in a turn.
const EVENTS_PER_TURN: usize = 64;

/// A worker's cluster state besides its engine.
#[derive(Debug)]
pub struct ClusterMember<L> {
    pub replication: Replication,
    pub link: L,
    stall: Stall,
    /// Shards by their index in the engine.
    shards: Vec<ShardId>,
    slot_began: Duration,
    reported: Duration,
}

/// The transmit path during one poll.
struct SenderTransmit<'a, P: Pool> {
    sender: DatagramSender<'a>,
    pool: &'a mut P,
    out: &'a mut Output<P::Frame>,
}

impl<P: Pool> Transmit for SenderTransmit<'_, P> {
    #[inline]
    fn send(&mut self, to: SocketAddr, datagram: &[u8]) -> bool {
        match to {
            SocketAddr::V4(to) => self.sender.send(to, datagram, self.pool, self.out),
            SocketAddr::V6(_) => false,
        }
    }
}

impl<L: RolesLink> ClusterMember<L> {
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
        let (nat, sender) = engine.replica_and_sender();
        let transmit = &mut SenderTransmit { sender, pool, out };
        self.replication
            .note_turn(TurnLoad { packets: turn.packets as u32, is_full: turn.is_full });
        self.replication.poll(now_us, nat, transmit);
        self.replication.redirect(engine, out);
        let committed = self.replication.committed(now_us, engine.nat().replica());
        engine.release_committed(committed, engine_now(now), out);
        turn.is_holding = engine.held() > 0;
        turn.is_busy |= self.report_events();
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
    fn report_events(&mut self) -> bool {
        let mut reported = 0;
        // An event without room stays where a later one of the same shard or peer can replace it.
        while reported < EVENTS_PER_TURN && self.link.has_room() {
            let Some(event) = self.replication.next_event() else { break };
            self.report_event(event);
            reported += 1;
        }
        reported > 0
    }

    #[cold]
    fn report_event(&mut self, event: WorkerEvent) {
        let shard_index = match &event {
            WorkerEvent::ShardAdded(shard) => self.replication.index_of(*shard),
            _ => None,
        };
        if let (WorkerEvent::ShardAdded(shard), Some(shard_index)) = (&event, shard_index) {
            let shard_index = usize::from(shard_index.0);
            self.shards.resize(self.shards.len().max(shard_index + 1), ShardId(0));
            self.shards[shard_index] = *shard;
        }
        self.link.send_event(event, shard_index);
    }

    fn end_slot<F: Frame>(&mut self, now_us: u64, engine: &mut Engine<F>) {
        let (link, shards) = (&mut self.link, &self.shards);
        engine.take_traffic(|index| {
            if let Some(&shard) = shards.get(usize::from(index.0)) {
                link.busy(shard);
            }
        });
        for peer in (0..PEERS_MAX as u16).map(PeerIndex) {
            self.link.signs(peer, self.replication.signs(peer, now_us));
        }
        self.link.end_slot();
    }
}

//! Carries out a worker's duties for a shard: lanes, copies, sources, grants, misses.
//!
//! Duties are levels: what is done already stays as it is. A duty that names an unknown peer waits
//! until the peer is added.

use weir_engine::EngineSetup;
use weir_map::{Epoch, LANES};
use weir_nat::ShardIndex;
use weir_stream::{BootId, Kind, Lane, Lineage, PeerIndex, Provenance, REPLICAS_MAX};
use weir_wire::frame::Frame;

use super::Replication;
use super::outgoing::Outgoing;
use super::shard_copies::{Announcement, Grant, ShardCopies};
use super::tell::{message, pair};
use super::world::tick;
use crate::command::{CopyOrder, GrantOrder, Misses, ShardDuties};

/// Spreads the lineages of one incarnation.
const LINEAGE_STEP: u64 = 0x9e37_79b9_7f4a_7c15;
/// A lineage with this bit was begun by no owner of the lane. Any other begins with the epoch of
/// its ownership: `0 | epoch: 39 | drawn: 24`, so that a worker that continues it can name that
/// ownership in the block log.
const NO_OWNER: u64 = 1 << 63;
const EPOCH_SHIFT: u32 = 24;

/// Returns the epoch of the ownership that a lineage belongs to, if it belongs to one.
fn owner_epoch(lineage: u64) -> Option<Epoch> {
    (lineage != 0 && lineage & NO_OWNER == 0).then_some(Epoch(lineage >> EPOCH_SHIFT))
}

impl Replication {
    /// Takes all duties for a shard, and reports its state again.
    pub(super) fn take_duties<F: Frame>(
        &mut self,
        duties: ShardDuties,
        engine: &mut EngineSetup<'_, F>,
        now_us: u64,
    ) {
        let Some(shard) = self.state.index(duties.shard) else { return };
        let is_written = |grant: &GrantOrder| duties.lanes.contains(grant.lane);
        assert!(
            !duties.grants.iter().any(is_written),
            "shard {}: a lane that is given away is not written: one writer a lane",
            duties.shard
        );
        let Some(part) = self.state.part_mut(shard) else { return };
        let begins_empty = duties.begins_empty && !part.duties.begins_empty;
        part.duties = duties;
        if begins_empty {
            self.begin_empty(shard);
        }
        self.settle(shard, engine, now_us);
        self.state.review(shard, engine.replica());
        let Some(part) = self.state.part_mut(shard) else { return };
        let (is_done, announced) = (part.is_done, part.announced);
        if is_done {
            self.state.tell_done(shard, true);
        }
        if let Some(term) = announced {
            self.state.tell_announced(shard, term);
        }
    }

    /// Carries out the shard's duties, as far as the peers are known.
    pub(super) fn settle<F: Frame>(
        &mut self,
        shard: ShardIndex,
        engine: &mut EngineSetup<'_, F>,
        now_us: u64,
    ) {
        let Some(part) = self.state.part_mut(shard) else { return };
        part.is_settled = true;
        self.settle_lanes(shard, engine, now_us);
        self.settle_copies(shard, now_us);
        self.settle_sources(shard, engine, now_us);
        self.settle_messages(shard, engine);
        self.settle_service(shard, engine);
    }

    /// Declares that the others' lanes, which are empty here, are complete. A later writer
    /// continues that lineage, or has one that does not, for which this one is given up.
    fn begin_empty(&mut self, shard: ShardIndex) {
        let now = self.draw() | NO_OWNER;
        let Some(part) = self.state.part_mut(shard) else { return };
        for lane in part.lanes.iter_mut().filter(|lane| lane.lineage.now == 0) {
            lane.lineage = Lineage { now, before: 0, provenance: Provenance::Writer };
            lane.is_whole = true;
            lane.outgoing.iter_mut().for_each(|out| out.restart(&mut self.endpoint));
        }
    }

    /// Draws the lineage of an owner since this epoch. An incarnation that resumes a lane has owned
    /// it since the epoch of its former incarnation: the drawn bits keep their lineages apart.
    fn next_lineage(&mut self, since: Epoch) -> u64 {
        let drawn = self.draw() >> (u64::BITS - EPOCH_SHIFT);
        (since.0 << EPOCH_SHIFT & !NO_OWNER | drawn).max(1)
    }

    fn draw(&mut self) -> u64 {
        self.lineages += 1;
        let life = self.boot.0 as u64 ^ (self.boot.0 >> 64) as u64;
        life.wrapping_add(LINEAGE_STEP.wrapping_mul(self.lineages))
    }

    /// Takes lanes: a lane continues the lineage that is here, if all of it is here. Peers with a
    /// copy from here are notified of the new lineage: it continues that of their copy, or their
    /// copy starts again.
    fn settle_lanes<F: Frame>(
        &mut self,
        shard: ShardIndex,
        engine: &mut EngineSetup<'_, F>,
        now_us: u64,
    ) {
        let Some(part) = self.state.part_mut(shard) else { return };
        let (lanes, lanes_since) = (part.duties.lanes, part.duties.lanes_since);
        let owned = engine.replica().owned_lanes(shard);
        engine.replica_mut().set_owned_lanes(shard, lanes.0, tick(now_us));
        for number in lanes.iter().filter(|&lane| owned >> lane & 1 == 0) {
            let since = lanes_since[number];
            let now = self.next_lineage(since);
            let Some(part) = self.state.part_mut(shard) else { return };
            let lane = &mut part.lanes[number];
            let before = if lane.is_whole { lane.lineage.now } else { 0 };
            lane.lineage = Lineage { now, before, provenance: Provenance::Writer };
            (lane.is_whole, lane.is_own, lane.is_forgetting) = (true, true, false);
            if before == 0 {
                lane.outgoing.iter_mut().for_each(|out| out.restart(&mut self.endpoint));
            } else {
                let body = pair(now, before);
                let lineage = message(Kind::Lineage, part.number, &body);
                self.endpoint.tell(&lane.readers, Lane::ALL[number], &lineage, now_us);
            }
            // Lineages of an earlier build are arbitrary numbers, most of them greater than every
            // epoch.
            let owner_before = owner_epoch(before).filter(|&owner_before| owner_before <= since);
            engine.replica_mut().tell_taken(shard, number as u8, since, owner_before);
        }
    }

    /// Starts the copies that are ordered and stops those that are not.
    pub(super) fn settle_copies(&mut self, shard: ShardIndex, now_us: u64) {
        let Some(part) = self.state.part_mut(shard) else { return };
        let number = part.number;
        let mut has_all = true;
        for (place, lane) in Lane::ALL.into_iter().enumerate() {
            let mut wanted: Vec<(PeerIndex, BootId)> = Vec::with_capacity(REPLICAS_MAX);
            for (peer, boot) in readers_of(&part.duties, place) {
                let peer = self.endpoint.peer(peer);
                has_all &= peer.is_some() && wanted.len() < REPLICAS_MAX;
                wanted.extend(peer.map(|peer| (peer, boot)));
            }
            wanted.truncate(REPLICAS_MAX);
            let own = &mut part.lanes[place];
            own.outgoing.retain(|out| {
                let stays = wanted.contains(&(out.peer, out.boot));
                if !stays {
                    self.endpoint.stop_copy(out.copy, now_us);
                }
                stays
            });
            for (peer, boot) in wanted {
                let is_there = |out: &Outgoing| (out.peer, out.boot) == (peer, boot);
                if own.outgoing.iter().any(is_there) {
                    continue;
                }
                match self.endpoint.start_copy(peer, boot, number, lane) {
                    Some(copy) => {
                        own.outgoing.push(Outgoing::new(peer, boot, copy));
                    }
                    None => has_all = false,
                }
            }
            for out in &mut own.outgoing {
                let is_his = |order: &&CopyOrder| {
                    self.endpoint.peer(order.peer) == Some(out.peer) && order.boot == out.boot
                };
                let Some(order) = part.duties.copies.iter().find(is_his) else { continue };
                out.is_awaited = order.is_awaited;
                if order.is_guest {
                    out.was_guest = true;
                } else if order.is_awaited && std::mem::take(&mut out.was_guest) {
                    // The peer may have forgotten all, and have a copy from another worker: its
                    // confirmations are void.
                    out.restart(&mut self.endpoint);
                }
            }
            own.readers.clear();
            own.readers.extend(own.outgoing.iter().map(|out| out.peer));
        }
        part.is_settled &= has_all;
    }

    /// Sets the peer whose copy of each lane is awaited, and the lanes that the NAT journals.
    fn settle_sources<F: Frame>(
        &mut self,
        shard: ShardIndex,
        engine: &mut EngineSetup<'_, F>,
        now_us: u64,
    ) {
        let Some(part) = self.state.part_mut(shard) else { return };
        let mut replicated = 0;
        let ours = part.duties.lanes;
        for number in 0..LANES {
            let is_ours = part.duties.lanes.contains(number);
            let named = part.duties.sources[number].filter(|_| !is_ours);
            let source = named.and_then(|peer| self.endpoint.peer(peer));
            part.is_settled &= named.is_none() || source.is_some();
            let lane = &mut part.lanes[number];
            // A lane without a source was written here, or relayed as its writer left it.
            let was_followed = lane.is_followed() || (lane.source.is_none() && lane.is_whole);
            lane.set_source(source, was_followed, now_us);
            let is_given = part.duties.grants.iter().any(|grant| grant.lane == number);
            if is_given && !lane.is_given && !lane.is_own {
                // Readers have the records that were here when the lane was copied; more may have
                // come since.
                lane.outgoing.iter_mut().for_each(|out| out.restart(&mut self.endpoint));
            }
            lane.set_given(is_given, now_us);
            if !lane.readers.is_empty() || source.is_some() {
                replicated |= 1 << number;
            }
        }
        engine.replica_mut().set_replicated_lanes(shard, replicated);
        for lane in (0..LANES).filter(|&lane| !ours.contains(lane)) {
            self.state.forget_if_foreign(shard, lane);
        }
    }

    fn settle_messages<F: Frame>(&mut self, shard: ShardIndex, engine: &mut EngineSetup<'_, F>) {
        let Some(part) = self.state.part_mut(shard) else { return };
        let journal_end = engine.replica().journal_end();
        let ShardCopies { duties, grants, announcements, .. } = &mut *part;
        grants.retain(|grant| duties.grants.contains(&grant.order));
        for &order in &duties.grants {
            if !grants.iter().any(|grant| grant.order == order) {
                grants.push(Grant { order, journal_end, sent: None });
            }
        }
        let (term, to) = match &duties.announced {
            Some((term, to)) => (*term, &to[..]),
            None => Default::default(),
        };
        announcements.retain(|old| old.term == term && to.contains(&(old.peer, old.boot)));
        for &(peer, boot) in to {
            if !announcements.iter().any(|old| (old.peer, old.boot) == (peer, boot)) {
                let (ticket, is_delivered) = (None, false);
                announcements.push(Announcement { term, peer, boot, ticket, is_delivered });
            }
        }
        if part.has_messages() && !std::mem::replace(&mut part.is_busy, true) {
            self.busy.push_back(shard);
        }
    }

    fn settle_service<F: Frame>(&mut self, shard: ShardIndex, engine: &mut EngineSetup<'_, F>) {
        let Some(part) = self.state.part_mut(shard) else { return };
        let ordered = part.duties.misses;
        let misses = ordered.map(|&peer| Some(*self.peers.address(peer)?.ip()));
        part.is_settled &= !matches!((ordered, misses), (Misses::Redirect(_), Misses::Refuse));
        let is_serving = part.duties.serves_hits;
        engine.set_misses(shard, misses);
        engine.set_serving(shard, is_serving);
    }
}

/// Peers that get a lane's changes: those with copies, and the peer that the lane is given to.
fn readers_of(
    duties: &ShardDuties,
    lane: usize,
) -> impl Iterator<Item = (crate::PeerId, BootId)> + '_ {
    let copies = duties.copies.iter().filter(move |order| order.lanes.contains(lane));
    let copies = copies.map(|order| (order.peer, order.boot));
    let is_copied = move |grant: &&GrantOrder| {
        let mut orders = duties.copies.iter();
        orders.any(|order| order.lanes.contains(lane) && (order.peer, order.boot) == grant.to)
    };
    let grants = duties.grants.iter().filter(move |grant| grant.lane == lane);
    let grants = grants.filter(move |grant| !is_copied(grant));
    copies.chain(grants.map(|grant| grant.to))
}

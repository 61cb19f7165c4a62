//! The shards of a worker, and the events of them that have not been reported yet.
//!
//! Events of a shard wait at the shard, each kind once, so none is lost however late it is fetched:
//! a queue names the shards that have some. Answers to commands wait in their order.

use std::collections::VecDeque;

use weir_map::{Epoch, ShardId, Term};
use weir_nat::{Replica, ShardIndex};
use weir_stream::{BootId, Comeback, Origin, PeerIndex};

use super::numbers::Numbers;
use super::outgoing::Confirmation;
use super::shard_copies::ShardCopies;
use crate::{PeerId, WorkerEvent};

/// Peers' requests for copies that one turn takes; peers repeat the others.
const WANTS_MAX: usize = 256;

/// Comebacks that one turn takes; peers repeat all of them.
const COMEBACKS_MAX: usize = 256;

/// Restarted streams of this many peers fit without allocation.
const LOST_MAX: usize = 64;

/// Counters of replication since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicationCounters {
    /// Records of shards that this worker does not have.
    pub records_unknown_total: u64,
    /// Records of lanes that their sender has begun no copy of, or a copy that does not continue
    /// what is here.
    pub records_unwanted_total: u64,
    /// Records whose kind or body has no meaning here.
    pub records_invalid_total: u64,
    /// Grants that came before the copy was complete.
    pub grants_early_total: u64,
    /// Copies restarted because a peer asked for them again.
    pub copies_restarted_total: u64,
    /// Copies that this worker has asked for.
    pub copies_wanted_total: u64,
    /// Lanes whose copies restarted because the journal had lost changes of them.
    pub lanes_lost_total: u64,
    /// Lanes emptied because the source's lineage did not continue the one here.
    pub lanes_forgotten_total: u64,
    /// Changes, those of a lane in a datagram counted as one, that fewer replicas than wanted had
    /// when packets left.
    pub changes_degraded_total: u64,
    /// Changes that packets did not wait for, since more waited than the limit allows.
    pub changes_untracked_total: u64,
    /// Peers refused: `peers_max` was reached, the id is this worker's own, or the engine had no
    /// room.
    pub refused_total: u64,
    /// Shards that polls have looked at one by one, besides those that records and commands
    /// concern.
    pub shards_looked_at_total: u64,
}

#[derive(Debug)]
pub(super) struct State {
    numbers: Numbers,
    /// By the NAT's index of the shard.
    parts: Vec<Option<Box<ShardCopies>>>,
    shards_max: usize,
    shards: usize,
    queue: VecDeque<ShardIndex>,
    pub(super) answers: VecDeque<WorkerEvent>,
    /// Copies that peers ask for.
    pub(super) wanted: Vec<(PeerIndex, ShardIndex, usize)>,
    /// Reports of this turn on shards that peers came back to.
    pub(super) comebacks: Vec<(PeerIndex, Comeback)>,
    /// Lanes whose records are being removed.
    pub(super) forgetting: Vec<(ShardIndex, usize)>,
    /// Shards whose writers are to get a confirmation that their copies are followed; moved to the
    /// busy queue in the next poll.
    pub(super) confirming: Vec<ShardIndex>,
    /// Restarted streams, by peer, a bit for each lane; and the index of the next shard to notify.
    lost: Vec<(PeerIndex, u8)>,
    lost_next: usize,
    pub(super) counters: ReplicationCounters,
}

impl State {
    pub(super) fn new(shards_max: usize) -> Self {
        Self {
            numbers: Numbers::new(shards_max),
            parts: Vec::new(),
            shards_max,
            shards: 0,
            queue: VecDeque::with_capacity(shards_max),
            answers: VecDeque::with_capacity(64),
            wanted: Vec::with_capacity(WANTS_MAX),
            comebacks: Vec::with_capacity(COMEBACKS_MAX),
            forgetting: Vec::with_capacity(shards_max),
            confirming: Vec::with_capacity(shards_max),
            lost: Vec::with_capacity(LOST_MAX),
            lost_next: 0,
            counters: ReplicationCounters::default(),
        }
    }

    #[inline]
    pub(super) fn index(&self, number: ShardId) -> Option<ShardIndex> {
        self.numbers.get(number.0)
    }

    #[inline]
    pub(super) fn part(&self, shard: ShardIndex) -> Option<&ShardCopies> {
        self.parts.get(usize::from(shard.0))?.as_deref()
    }

    /// Returns a shard's copies to change them: the sweep looks at the shard again.
    #[inline]
    pub(super) fn part_mut(&mut self, shard: ShardIndex) -> Option<&mut ShardCopies> {
        let part = self.parts.get_mut(usize::from(shard.0))?.as_deref_mut()?;
        part.is_at_rest = false;
        Some(part)
    }

    pub(super) fn parts(&self) -> impl Iterator<Item = (ShardIndex, &ShardCopies)> {
        let indexes = (0..).map(ShardIndex);
        indexes.zip(&self.parts).filter_map(|(index, part)| Some((index, part.as_deref()?)))
    }

    /// Number of shard indexes used so far, freed ones included.
    pub(super) fn places(&self) -> usize {
        self.parts.len()
    }

    pub(super) fn has_room(&self) -> bool {
        self.shards < self.shards_max
    }

    pub(super) fn add(&mut self, shard: ShardIndex, number: ShardId, awaits_replicas: bool) {
        let place = usize::from(shard.0);
        if self.parts.len() <= place {
            self.parts.resize_with(place + 1, || None);
        }
        self.parts[place] =
            Some(Box::new(ShardCopies { awaits_replicas, ..ShardCopies::new(number) }));
        self.numbers.insert(number.0, shard);
        self.shards += 1;
    }

    /// Returns a shard's copies to note where changes went and which peers follow. The sweep, which
    /// looks at shards that were changed, does not depend on that.
    #[inline]
    pub(super) fn part_to_tell(&mut self, shard: ShardIndex) -> Option<&mut ShardCopies> {
        self.parts.get_mut(usize::from(shard.0))?.as_deref_mut()
    }

    /// Notes whether fewer replicas than wanted have the shard; nothing else depends on that.
    pub(super) fn set_short(&mut self, shard: ShardIndex, is_short: bool) {
        if let Some(Some(part)) = self.parts.get_mut(usize::from(shard.0)) {
            part.is_short = is_short;
        }
    }

    pub(super) fn remove(&mut self, shard: ShardIndex) {
        let gone = self.parts.get_mut(usize::from(shard.0)).and_then(Option::take);
        if let Some(part) = gone {
            self.numbers.remove(part.number.0);
            self.forgetting.retain(|&(other, _)| other != shard);
            self.confirming.retain(|&other| other != shard);
            self.shards -= 1;
        }
    }

    /// Notes that a stream restarted: what it brought of any shard may be out of date.
    /// [`lose_some`](Self::lose_some) notifies the shards piece by piece; nothing is accepted from
    /// any stream until all are notified.
    pub(super) fn begin_loss(&mut self, peer: PeerIndex, lane: usize) {
        self.lost_next = 0;
        match self.lost.iter_mut().find(|(other, _)| *other == peer) {
            Some((_, lanes)) => *lanes |= 1 << lane,
            None => self.lost.push((peer, 1 << lane)),
        }
    }

    pub(super) fn is_losing(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Notifies up to `max` shards of the restarted streams.
    pub(super) fn lose_some(&mut self, max: usize, nat: Replica<'_>) {
        let lost = std::mem::take(&mut self.lost);
        let end = self.lost_next.saturating_add(max).min(self.parts.len());
        for place in self.lost_next..end {
            let shard = ShardIndex(place as u16);
            let Some(part) = self.part_mut(shard) else { continue };
            for (number, lane) in part.lanes.iter_mut().enumerate() {
                let peers = lost.iter().filter(|(_, lanes)| lanes >> number & 1 != 0);
                peers.for_each(|&(peer, _)| lane.lose(peer));
            }
            self.review(shard, nat);
        }
        self.counters.shards_looked_at_total += (end - self.lost_next) as u64;
        (self.lost, self.lost_next) = (lost, end);
        if end == self.parts.len() {
            self.lost.clear();
        }
    }

    fn queue(&mut self, shard: ShardIndex) -> Option<&mut ShardCopies> {
        let part = self.parts.get_mut(usize::from(shard.0))?.as_deref_mut()?;
        if !std::mem::replace(&mut part.untold.is_queued, true) {
            self.queue.push_back(shard);
        }
        Some(part)
    }

    /// Checks whether the copies of a shard are complete, and reports it if that has changed.
    pub(super) fn review(&mut self, shard: ShardIndex, nat: Replica<'_>) {
        let Some(part) = self.part_mut(shard) else { return };
        let is_done = part.is_done_now(shard, nat);
        if std::mem::replace(&mut part.is_done, is_done) != is_done {
            self.tell_done(shard, is_done);
        }
    }

    pub(super) fn tell_done(&mut self, shard: ShardIndex, is_done: bool) {
        if let Some(part) = self.queue(shard) {
            part.untold.is_done = Some(is_done);
        }
    }

    pub(super) fn tell_granted(&mut self, shard: ShardIndex, lane: usize, since: Epoch) {
        if let Some(part) = self.queue(shard) {
            part.untold.granted[lane] = Some(since);
        }
    }

    pub(super) fn tell_announced(&mut self, shard: ShardIndex, term: Term) {
        if let Some(part) = self.queue(shard) {
            part.announced = part.announced.max(Some(term));
            part.untold.announced = part.announced;
        }
    }

    /// Reports a session with this incarnation of a peer. It replaces one that was not fetched yet:
    /// at most one waits per peer.
    pub(super) fn tell_met(&mut self, peer: PeerId, place: PeerIndex, boot: BootId) {
        self.answers
            .retain(|news| !matches!(news, WorkerEvent::PeerMet { peer: met, .. } if *met == peer));
        self.answers.push_back(WorkerEvent::PeerMet { peer, place, boot });
    }

    pub(super) fn next_news(&mut self) -> Option<WorkerEvent> {
        if let Some(news) = self.answers.pop_front() {
            return Some(news);
        }
        loop {
            let shard = *self.queue.front()?;
            let news = self.part_mut(shard).and_then(next_of);
            if news.is_some() {
                return news;
            }
            self.queue.pop_front();
            if let Some(part) = self.part_mut(shard) {
                part.untold.is_queued = false;
            }
        }
    }

    /// Handles the end of a copy: if it is followed and packets wait for replicas, its writer is to
    /// get a confirmation.
    pub(super) fn confirm(&mut self, origin: Origin, shard: ShardIndex) {
        let Some(part) = self.part_to_tell(shard).filter(|part| part.awaits_replicas) else {
            return;
        };
        let Origin { peer, lane, epoch, .. } = origin;
        let own = &part.lanes[usize::from(lane.number())];
        let Some(lineage) = own.lineage_of(peer).filter(|_| own.has_all_of(peer)) else { return };
        let copy = (epoch.into(), lineage.now);
        part.confirmations.retain(|other| (other.peer, other.lane) != (peer, lane));
        part.confirmations.push(Confirmation { peer, lane, copy, ticket: None });
        if !std::mem::replace(&mut part.is_busy, true) {
            self.confirming.push(shard);
        }
    }

    /// Notes that a peer follows the copy that went to it in this epoch of our stream, and of this
    /// lineage.
    pub(super) fn note_followed(
        &mut self,
        origin: Origin,
        shard: ShardIndex,
        followed: (u64, u64),
    ) {
        let Some(part) = self.part_to_tell(shard) else { return };
        let own = &mut part.lanes[usize::from(origin.lane.number())];
        let copy = own.outgoing.iter_mut().find(|out| out.peer == origin.peer);
        if let Some(copy) = copy {
            copy.followed_in = Some(followed);
        }
    }

    pub(super) fn note_comeback(&mut self, peer: PeerIndex, comeback: Comeback) {
        if self.comebacks.len() < COMEBACKS_MAX {
            self.comebacks.push((peer, comeback));
        }
    }

    /// Notes that a peer asks for a copy.
    pub(super) fn note_want(&mut self, peer: PeerIndex, shard: ShardIndex, lane: usize) {
        if self.wanted.len() < WANTS_MAX {
            self.wanted.push((peer, shard, lane));
        }
    }
}

/// Returns the next event of a shard: a change of its copies, which may be a loss, goes first.
fn next_of(part: &mut ShardCopies) -> Option<WorkerEvent> {
    let (shard, untold) = (part.number, &mut part.untold);
    if let Some(is_done) = untold.is_done.take() {
        return Some(if is_done {
            WorkerEvent::CopyDone(shard)
        } else {
            WorkerEvent::StreamLost(shard)
        });
    }
    if let Some(term) = untold.announced.take() {
        return Some(WorkerEvent::Announced { shard, term });
    }
    let mut granted = untold.granted.iter_mut().enumerate();
    granted
        .find_map(|(lane, since)| Some(WorkerEvent::Granted { shard, lane, since: since.take()? }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unfetched_sessions_of_a_peer_leave_only_the_newest() {
        let mut state = State::new(1);
        let peers = [7, 8].map(PeerId);
        state.answers.push_back(WorkerEvent::ShardAdded(ShardId(1)));
        for boot in 0..10_000 {
            for (place, peer) in (0..).map(PeerIndex).zip(peers) {
                state.tell_met(peer, place, BootId(boot));
            }
        }
        let news: Vec<WorkerEvent> = std::iter::from_fn(|| state.next_news()).collect();
        let met = |peer, place| WorkerEvent::PeerMet {
            peer,
            place: PeerIndex(place),
            boot: BootId(9999),
        };
        assert_eq!(news, [WorkerEvent::ShardAdded(ShardId(1)), met(peers[0], 0), met(peers[1], 1)]);
    }
}

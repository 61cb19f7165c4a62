//! The state of replication, for metrics and operators.

use weir_map::ShardId;
use weir_nat::{Replica, ReplicaMut, ShardIndex};
use weir_stream::{CopyState, PeerStatus, Refusals};

use super::Replication;
use super::state::ReplicationCounters;

/// Shards whose copies are counted each millisecond.
const SHARDS_PER_COUNT: usize = 8;

/// Counts of lane copies by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyCounts {
    /// Not begun: they wait for their turn, or for the peer.
    pub waiting: usize,
    /// Under way.
    pub copying: usize,
    /// Complete, and followed by changes.
    pub synced: usize,
    /// Slots walked over by the copies under way, and all slots of these.
    pub slots_done: u64,
    pub slots_total: u64,
}

/// The state of replication.
#[derive(Clone, Debug)]
pub struct ReplicationStatus {
    pub peers: Vec<PeerStatus>,
    /// Copies from here at peers.
    pub outgoing: CopyCounts,
    /// Lanes whose copy here is complete and followed, and all that have a source.
    pub lanes_followed: usize,
    pub lanes_awaited: usize,
    /// Lanes that did not fit into our tables.
    pub lanes_full: usize,
    pub counters: ReplicationCounters,
    /// Shards that await replicas and have fewer than are wanted.
    pub shards_short: Vec<ShardId>,
    /// Datagrams refused that could not be attributed to a peer.
    pub refused: Refusals,
    /// Datagram buffers in use, and all there are.
    pub buffers_used: usize,
    pub buffers_total: usize,
}

/// Counts of the last complete round over all shards, and of the round that is under way.
#[derive(Debug, Default)]
pub(super) struct Counted {
    next: usize,
    round: Sums,
    last: Sums,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    outgoing: CopyCounts,
    lanes_followed: usize,
    lanes_awaited: usize,
    lanes_full: usize,
}

impl Replication {
    /// Returns the state of replication. Counts over all shards are those of the last complete
    /// round; a round over 4,000 shards takes half a second of polls. Allocates: not for every
    /// turn.
    pub fn status(&self, now_us: u64) -> ReplicationStatus {
        let (buffers_used, buffers_total) = self.endpoint.buffers_used();
        let peers = self.peers.0.iter();
        let Sums { outgoing, lanes_followed, lanes_awaited, lanes_full } = self.counted.last;
        ReplicationStatus {
            peers: peers.filter_map(|peer| self.endpoint.peer_status(peer.place, now_us)).collect(),
            outgoing,
            lanes_followed,
            lanes_awaited,
            lanes_full,
            counters: self.state.counters,
            shards_short: self.shards_short(),
            refused: self.endpoint.refused(),
            buffers_used,
            buffers_total,
        }
    }

    fn shards_short(&self) -> Vec<ShardId> {
        // Each shard costs a cache miss: thousands are worth it only with output commit.
        if !self.commits.is_on() {
            return Vec::new();
        }
        let parts = self.state.parts().map(|(_, part)| part);
        let short = parts.filter(|part| self.commits.awaits(part) && part.is_short);
        // A worker that writes no lane of a shard makes no change in it that could wait.
        short.filter(|part| !part.duties.lanes.is_empty()).map(|part| part.number).collect()
    }

    /// Looks at the copies of the next few shards: counts them, and sets whether ports are to rest
    /// for them.
    pub(super) fn look_at_copies(&mut self, now_us: u64, nat: &mut ReplicaMut<'_>) {
        let places = self.state.places();
        let Counted { next, mut round, last } = std::mem::take(&mut self.counted);
        let end = (next + SHARDS_PER_COUNT).min(places);
        for shard in (next..end).map(|place| ShardIndex(place as u16)) {
            self.count_shard(shard, nat.read(), &mut round);
            self.rest_ports(shard, now_us, nat);
        }
        self.state.counters.shards_looked_at_total += end.saturating_sub(next) as u64;
        self.counted = match end == places {
            true => Counted { next: 0, round: Sums::default(), last: round },
            false => Counted { next: end, round, last },
        };
    }

    fn count_shard(&self, shard: ShardIndex, nat: Replica<'_>, sums: &mut Sums) {
        let Some(part) = self.state.part(shard) else { return };
        for (number, lane) in part.lanes.iter().enumerate() {
            lane.outgoing.iter().for_each(|out| self.count(out.copy, &mut sums.outgoing));
            if part.has_source(number) {
                sums.lanes_awaited += 1;
                sums.lanes_followed += usize::from(lane.is_followed());
                sums.lanes_full += usize::from(nat.is_copy_full(shard, number as u8));
            }
        }
    }

    fn count(&self, copy: weir_stream::CopyId, counts: &mut CopyCounts) {
        let Some(status) = self.endpoint.copy_status(copy) else { return };
        match status.state {
            CopyState::Empty => counts.waiting += 1,
            CopyState::Syncing => counts.copying += 1,
            CopyState::Synced => counts.synced += 1,
        }
        if status.state == CopyState::Syncing {
            counts.slots_done += u64::from(status.slots_done);
            counts.slots_total += u64::from(status.slots_total);
        }
    }
}

//! How replication stands, for metrics and operators.

use weir_nat::Nat;
use weir_replica::{CopyState, PeerStatus, Refusals};

use super::Replication;
use super::state::ReplicationCounters;

/// Copies of lanes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyCounts {
    /// Not begun: they wait for their turn, or for the peer.
    pub waiting: usize,
    /// Under way.
    pub copying: usize,
    /// Complete, and followed by changes.
    pub synced: usize,
    /// Slots that those under way have walked over, and all that they have.
    pub slots_done: u64,
    pub slots_total: u64,
}

/// Replication as it stands.
#[derive(Clone, Debug)]
pub struct ReplicationStatus {
    pub peers: Vec<PeerStatus>,
    /// Copies from here at peers.
    pub outgoing: CopyCounts,
    /// Lanes whose copy here is complete and followed, and all that have a source.
    pub lanes_followed: usize,
    pub lanes_awaited: usize,
    /// Lanes that our tables had no room for.
    pub lanes_full: usize,
    pub counters: ReplicationCounters,
    /// Datagrams refused that no peer could be blamed for.
    pub refused: Refusals,
    /// Datagram buffers in use, and all there are.
    pub buffers_used: usize,
    pub buffers_total: usize,
}

impl Replication {
    /// Replication as it stands. Takes memory and looks at every shard: not for every turn.
    pub fn status(&self, now_us: u64, nat: &Nat) -> ReplicationStatus {
        let (buffers_used, buffers_total) = self.endpoint.buffers_used();
        let peers = self.peers.0.iter();
        let mut status = ReplicationStatus {
            peers: peers.filter_map(|peer| self.endpoint.peer_status(peer.place, now_us)).collect(),
            outgoing: CopyCounts::default(),
            lanes_followed: 0,
            lanes_awaited: 0,
            lanes_full: 0,
            counters: self.state.counters,
            refused: self.endpoint.refused(),
            buffers_used,
            buffers_total,
        };
        for (shard, part) in self.state.parts() {
            for (number, lane) in part.lanes.iter().enumerate() {
                lane.outgoing.iter().for_each(|out| self.count(out.copy, &mut status.outgoing));
                if part.has_source(number) {
                    status.lanes_awaited += 1;
                    status.lanes_followed += usize::from(lane.is_followed());
                    status.lanes_full += usize::from(nat.is_copy_full(shard, number as u8));
                }
            }
        }
        status
    }

    fn count(&self, copy: weir_replica::CopyId, counts: &mut CopyCounts) {
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

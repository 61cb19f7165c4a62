//! Ports of our lanes that rest, since a peer with a copy of them may not hear that their mappings
//! have ended.

use weir_nat::{ReplicaMut, ShardIndex};
use weir_stream::CopyState;

use super::Replication;
use super::commit::is_heard;
use super::outgoing::Outgoing;
use super::world::tick;

impl Replication {
    /// Sets in the NAT whether copies of a shard's lanes are behind. Late by a round over all
    /// shards: ports rest for longer.
    pub(super) fn rest_ports(&self, shard: ShardIndex, now_us: u64, nat: &mut ReplicaMut<'_>) {
        let Some(part) = self.state.part(shard) else { return };
        let is_behind = |out: &Outgoing| {
            let status = self.endpoint.copy_status(out.copy);
            let is_synced = status.is_some_and(|status| status.state == CopyState::Synced);
            !is_synced || !is_heard(&self.endpoint, out.peer, now_us)
        };
        let are_behind = self.is_map_stale
            || part.duties.lanes.iter().any(|lane| part.lanes[lane].outgoing.iter().any(is_behind));
        nat.set_copies_behind(shard, are_behind, tick(now_us));
    }
}

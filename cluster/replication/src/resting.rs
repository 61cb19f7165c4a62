//! Ports of our lanes that rest, since a peer with a copy of them may not hear that their mappings
//! have ended.

use weir_nat::{ReplicaMut, ShardIndex};
use weir_stream::{CopyState, Lane};

use super::Replication;
use super::commit::{SILENCE_MS, has_heartbeat};
use super::outgoing::OutgoingCopy;
use super::world::tick;

impl Replication {
    /// Sets in the NAT whether copies of a shard's lanes are behind. Late by a round over all
    /// shards: ports rest for longer.
    pub(super) fn rest_ports(&self, shard: ShardIndex, now_us: u64, nat: &mut ReplicaMut<'_>) {
        let Some(copies) = self.state.copies(shard) else { return };
        let is_behind = |number: usize, out: &OutgoingCopy| {
            let status = self.endpoint.copy_status(out.copy);
            let is_synced = status.is_some_and(|status| status.state == CopyState::Synced);
            // A peer that is heard may not hear: it acts for this worker then, with an old copy.
            let lane = Lane::ALL[number];
            let is_answering = self.endpoint.lag(out.peer, lane, now_us).age_ms < SILENCE_MS;
            !is_synced || !is_answering || !has_heartbeat(&self.endpoint, out.peer, now_us)
        };
        let are_behind = self.is_map_stale
            || copies
                .duties
                .lanes
                .iter()
                .any(|lane| copies.lanes[lane].outgoing.iter().any(|out| is_behind(lane, out)));
        nat.set_copies_behind(shard, are_behind, tick(now_us));
    }
}

//! Why the cluster is not as it should be.

use super::*;

impl World {
    /// Why the cluster is not whole and at rest; nothing if it is.
    pub(crate) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for node in &self.nodes {
            let Some(process) = &node.process else { continue };
            if !process.roles.has_settled() {
                faults.push(format!("{} has not settled", node.name));
            }
        }
        for id in (1..=self.shards).map(ShardId) {
            match self.store.entries.get(&id) {
                None => faults.push(format!("shard {id} has no entry")),
                Some(entry) => faults.extend(self.faults_of(id, entry)),
            }
        }
        faults
    }

    fn faults_of(&self, id: ShardId, entry: &ShardEntry) -> Vec<String> {
        let mut faults = Vec::new();
        let mut fault = |what: String| faults.push(format!("shard {id}: {what}"));
        let open = self.nodes.iter().filter(|node| node.process.is_some() && !node.is_drained);
        let wanted = open.count().min(1 + usize::from(self.options.replicas));
        if entry.members().len() != wanted || entry.is_moving() {
            fault(format!("{wanted} members wanted: {entry:?}"));
        }
        let best = self.best_route(id).map(|it| (it.boot_id, it.metric));
        let primary = (entry.primary().incarnation.boot_id, Metric::primary(entry.term()));
        if best != Some(primary) {
            fault(format!("{best:?} is announced best, not {primary:?}"));
        }
        for member in entry.members() {
            let Some(shard) = self.worker(&member.incarnation).and_then(|it| it.shards.get(&id))
            else {
                fault(format!("{} does not have it", member.incarnation));
                continue;
            };
            if member.state != MemberState::Synced {
                fault(format!("{} is {:?}", member.incarnation, member.state));
            }
            for lane in 0..LANES {
                let is_owner = entry.lanes()[lane].owner == member.seat;
                if shard.writes(lane) != is_owner {
                    fault(format!("lane {lane} of {}", member.incarnation));
                }
                // Writings of the last slots may still be under way.
                if shard.data[lane] + 20 < self.top.get(&(id, lane)).map_or(0, |top| top.1) {
                    fault(format!("{} has an old lane {lane}", member.incarnation));
                }
            }
        }
        faults
    }

    /// Nothing is at fault, and nothing has been written for two seconds.
    pub(crate) fn is_whole(&self) -> bool {
        let is_quiet = self.store.log.last().is_some_and(|last| self.now_ms > last.0 + 2_000);
        is_quiet && self.faults().is_empty()
    }

    pub(crate) fn show(&self) -> String {
        let mut text = self.faults();
        for node in &self.nodes {
            let Some(process) = &node.process else { continue };
            for status in process.roles.statuses() {
                let (name, id, worker) = (&node.name, status.shard, status.worker);
                let duties = process.workers[worker].shards.get(&id).map(|it| &it.duties);
                let epoch = status.entry.map(|entry| entry.epoch());
                text.push(format!("{name}/{worker} {id} {:?} {epoch:?} {duties:?}", status.role));
            }
        }
        text.join("\n")
    }
}

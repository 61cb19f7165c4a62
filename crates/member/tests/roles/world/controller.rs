//! The allocator, told what a controller knows.

use super::*;

impl World {
    pub(super) fn decide(&mut self) {
        let reports: Vec<Report> = (0..self.nodes.len())
            .filter(|&node| self.is_reached(node) && self.has_store(node))
            .filter_map(|node| self.roles(node).map(|roles| roles.report(|_, _| 1)))
            .collect();
        let heard: BTreeSet<&NodeId> = reports
            .iter()
            .flat_map(|it| it.hears.iter().filter(|it| *it.1).map(|it| it.0))
            .collect();
        let nodes: Vec<NodeView> = (0..self.nodes.len())
            .filter_map(|node| self.view(node, heard.contains(&self.nodes[node].name)))
            .collect();
        let acting = |id: ShardId| {
            let mut acting = reports.iter().flat_map(|report| &report.acting);
            let (_, incarnation, term) = acting.find(|(shard, ..)| *shard == id)?;
            Some(Acting { incarnation: incarnation.clone(), term: *term })
        };
        let shards: Vec<ShardView> = (1..=self.shards)
            .map(ShardId)
            .map(|id| {
                let entry = self.store.entries.get(&id).cloned();
                ShardView { id, entry, load: 1, acting: acting(id) }
            })
            .collect();
        for step in allocate(&nodes, &shards, &self.options).steps {
            match step.change {
                Planned::Create(who) => {
                    self.store.create(self.now_ms, step.shard, ShardEntry::create(who));
                }
                Planned::Apply { at, transition } => {
                    self.seen.removals += u64::from(matches!(transition, Transition::Remove(_)));
                    let is_done = self.store.change(self.now_ms, step.shard, at, &transition);
                    assert!(is_done, "{transition:?} at {:?}", self.store.entries[&step.shard]);
                }
            }
        }
    }

    /// A node as the controller sees it: one that has never registered is not there.
    fn view(&self, node: usize, is_heard: bool) -> Option<NodeView> {
        let of_node = |change: &Change| match change {
            Change::Node(name, Some(workers)) if *name == self.nodes[node].name => {
                Some(workers.clone())
            }
            _ => None,
        };
        let workers = self.store.log.iter().rev().find_map(|(_, change)| of_node(change))?;
        let liveness = match self.store.nodes.contains_key(&self.nodes[node].name) {
            true => Liveness::Alive,
            false if is_heard => Liveness::Suspect,
            false => Liveness::Dead,
        };
        let is_cut_off = self.nodes[node].is_cut_off && !is_heard;
        let workers = workers.into_iter().map(|worker| WorkerView {
            index: worker.index,
            boot_id: worker.boot_id,
            resumes: self.nodes[node].resumes.get(usize::from(worker.index)).copied().flatten(),
            weight: 1,
            load_max: None,
            shards_max: None,
            is_cut_off,
        });
        Some(NodeView {
            name: self.nodes[node].name.clone(),
            rack: None,
            liveness,
            is_drained: self.nodes[node].is_drained,
            is_on_trial: false,
            has_copies: self.nodes[node].has_copies,
            workers: workers.collect(),
        })
    }
}

//! Between the nodes: registrations, messages, and the switch; and that no lane has two writers.

use super::*;

impl World {
    pub(super) fn renew_leases(&mut self) {
        for node in 0..self.nodes.len() {
            let name = self.nodes[node].name.clone();
            let process = self.nodes[node].process.as_ref().filter(|_| self.has_store(node));
            if let Some(process) = process.filter(|process| !process.is_outside) {
                let workers =
                    process.workers.iter().enumerate().map(|(index, worker)| NodeWorker {
                        index: index as u16,
                        boot_id: worker.me.boot_id,
                        replication: address(node, index),
                    });
                let workers: Vec<NodeWorker> = workers.collect();
                // Half of the nodes wait until the registration of their former life has ended.
                let is_own = self.store.nodes.get(&name).is_none_or(|known| *known == workers);
                if is_own || node % 2 == 0 {
                    let is_resuming = process.roles.is_resuming();
                    let resumes = process.formers.iter().map(|it| it.filter(|_| is_resuming));
                    let resumes: Vec<Option<BootId>> = resumes.collect();
                    self.nodes[node].resumes = resumes;
                    self.nodes[node].lives = workers.iter().map(|it| it.boot_id).collect();
                    self.store.register(self.now_ms, &name, workers);
                    let process = self.nodes[node].process.as_mut().expect("it runs");
                    process.roles.on(self.now_ms, Input::Registered);
                    self.nodes[node].lease_until_ms = self.now_ms + LEASE_MS;
                }
            }
            if self.now_ms >= self.nodes[node].lease_until_ms {
                self.store.unregister(self.now_ms, &name);
            }
        }
    }

    pub(super) fn obey(&mut self) {
        let now_ms = self.now_ms;
        for node in self.nodes.iter_mut().filter(|node| !node.is_paused) {
            for worker in node.process.iter_mut().flat_map(|process| &mut process.workers) {
                worker.obey_due(now_ms);
            }
        }
    }

    /// No lane has two workers that were ordered to write it, and who was granted one has all of it.
    pub(super) fn check_writers(&mut self) {
        let mut writers: BTreeMap<(ShardId, usize), Incarnation> = BTreeMap::new();
        for node in &mut self.nodes {
            let is_paused = node.is_paused;
            for worker in node.process.iter_mut().flat_map(|process| &mut process.workers) {
                for (&id, shard) in &mut worker.shards {
                    for lane in (0..LANES).filter(|&lane| shard.writes(lane)).collect::<Vec<_>>() {
                        if let Some(other) = writers.insert((id, lane), worker.me.clone()) {
                            panic!(
                                "lane {lane} of shard {id} is written by {other} and {}",
                                worker.me
                            );
                        }
                        let me = worker.me.boot_id;
                        let (writer, top) = self.top.entry((id, lane)).or_insert((me, 0));
                        if let Some(giver) = shard.giver[lane].take()
                            && giver == *writer
                        {
                            self.seen.grants += 1;
                            assert!(shard.data[lane] >= *top, "granted without all of it");
                        }
                        if !is_paused {
                            shard.data[lane] += u64::from(self.dice.one_in(2));
                        }
                        (*writer, *top) = (me, shard.data[lane]);
                    }
                }
            }
        }
    }

    pub(super) fn exchange(&mut self) {
        let now_ms = self.now_ms;
        let mut messages = Vec::new();
        for node in (0..self.nodes.len()).filter(|&node| self.is_reached(node)) {
            for worker in &self.nodes[node].process.as_ref().expect("it is reached").workers {
                let from = (worker.peer, worker.me.boot_id);
                let sent = worker.send(now_ms).into_iter();
                messages.extend(sent.map(|(to, boot_id, message)| (from, to, boot_id, message)));
            }
        }
        for (from, to, boot_id, message) in messages {
            if self.loss > 0 && self.dice.one_in(self.loss) {
                continue;
            }
            let Some((node, index)) = self.at(to).filter(|at| self.is_reached(at.0)) else {
                continue;
            };
            let process = self.nodes[node].process.as_mut().expect("it is reached");
            let worker = &mut process.workers[index];
            if boot_id.is_none_or(|boot_id| boot_id == worker.me.boot_id) {
                worker.receive(now_ms, from, message);
            }
        }
        for process in self.nodes.iter_mut().filter_map(|node| node.process.as_mut()) {
            process.workers.iter_mut().for_each(|worker| worker.review(now_ms));
        }
    }

    fn at(&self, peer: PeerId) -> Option<(usize, usize)> {
        self.nodes.iter().enumerate().find_map(|(node, it)| {
            let worker =
                (0..it.workers).find(|&worker| PeerId::at(address(node, worker)) == peer)?;
            Some((node, worker))
        })
    }

    /// Each shard's packets go where its best route leads.
    pub(super) fn switch_packets(&mut self) {
        for node in 0..self.nodes.len() {
            if self.is_reached(node) {
                self.nodes[node].silent_since_ms = None;
            } else {
                let now_ms = self.now_ms;
                self.nodes[node].silent_since_ms.get_or_insert(now_ms);
            }
        }
        for id in (1..=self.shards).map(ShardId) {
            if !self.store.entries.contains_key(&id) {
                continue;
            }
            let at = self.best_route(id).map(|route| route.at).filter(|at| self.is_reached(at.0));
            let is_served = at.is_some_and(|(node, index)| {
                let process = self.nodes[node].process.as_mut().expect("it is reached");
                process.roles.on(self.now_ms, Input::Traffic { worker: index, shards: vec![id] });
                let duties = process.workers[index].shards.get(&id);
                let duties = duties.and_then(|shard| shard.duties.as_ref());
                duties.is_some_and(|duties| duties.serves_hits)
            });
            *self.lost_slots.entry(id).or_default() += u64::from(!is_served);
        }
    }

    /// The best route of workers that the switch sees: a dead one's is gone for good, a silent one's comes back.
    pub(super) fn best_route(&self, shard: ShardId) -> Option<&SwitchRoute> {
        let is_seen = |route: &&SwitchRoute| {
            let node = &self.nodes[route.at.0];
            let worker = node.process.as_ref().map(|process| &process.workers[route.at.1]);
            let is_same = worker.is_none_or(|worker| worker.me.boot_id == route.boot_id);
            is_same && node.silent_since_ms.is_none_or(|since| self.now_ms < since + DETECTION_MS)
        };
        self.switch.get(&shard)?.iter().filter(is_seen).min_by_key(|route| route.metric)
    }
}

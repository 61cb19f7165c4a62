//! What joins a node's roles with the store, its workers and the switch.

use super::*;

impl World {
    /// The node's mirror of the store: late, and with gaps that only a full list closes.
    pub(super) fn watch(&mut self, node: usize) {
        let has_store = self.has_store(node);
        let now_ms = self.now_ms;
        let Node { process, has_copies, .. } = &mut self.nodes[node];
        let process = process.as_mut().expect("it runs");
        if !has_store {
            if !std::mem::replace(&mut process.is_stale, true) {
                process.roles.on(now_ms, Input::Stale);
            }
            process.list_due_ms = now_ms;
            return;
        }
        if std::mem::take(&mut process.is_outside) {
            *has_copies = process.roles.has_guests_with_copies();
            process.roles.on(now_ms, Input::Joining);
        }
        let mut inputs = Vec::new();
        if now_ms >= process.list_due_ms {
            process.list_due_ms = now_ms + LIST_MS;
            process.seen = self.store.log.len();
            process.is_stale = false;
            inputs = self.list();
        } else {
            let lag_ms = self.dice.below(60);
            while let Some((at_ms, change)) = self.store.log.get(process.seen)
                && at_ms + lag_ms <= now_ms
            {
                process.seen += 1;
                // A key that changes often may come again, or not in every version.
                match self.dice.below(30) {
                    0 => {}
                    1 => inputs.extend([change.clone(), change.clone()]),
                    _ => inputs.push(change.clone()),
                }
            }
        }
        let process = self.nodes[node].process.as_mut().expect("it runs");
        for change in inputs {
            process.roles.on(
                now_ms,
                match change {
                    Change::Entry(shard, entry) => Input::Entry { shard, entry },
                    Change::Node(node, workers) => Input::Node { node, workers },
                },
            );
        }
        process.roles.on(now_ms, Input::Fresh);
    }

    /// All that the store has, and which nodes it has not.
    fn list(&self) -> Vec<Change> {
        let entries = self.store.entries.iter();
        let entries = entries.map(|(id, entry)| Change::Entry(*id, Box::new(entry.clone())));
        let nodes = self
            .nodes
            .iter()
            .map(|node| Change::Node(node.name.clone(), self.store.nodes.get(&node.name).cloned()));
        entries.chain(nodes).collect()
    }

    /// News of the workers, and the end of the slot.
    pub(super) fn tell(&mut self, node: usize) {
        let now_ms = self.now_ms;
        let process = self.nodes[node].process.as_mut().expect("it runs");
        let is_ready = now_ms >= process.started_ms + 50;
        let sides = SidesUp { is_ready, is_access_up: is_ready, is_internet_up: is_ready };
        for (index, worker) in process.workers.iter_mut().enumerate() {
            process.roles.on(now_ms, Input::Sides { worker: index, sides });
            let lag_ms = self.dice.below(20);
            while let Some((at_ms, _)) = worker.news.front()
                && at_ms + lag_ms <= now_ms
            {
                let (_, news) = worker.news.pop_front().expect("there is one");
                process.roles.on(now_ms, Input::News { worker: index, news });
            }
            for (place, silent_ms) in worker.silences(now_ms) {
                let signs = PeerSigns { silent_ms, seen_ms: None, is_witness: false };
                process.roles.on(now_ms, Input::Heard { worker: index, place, signs });
            }
        }
        process.roles.on(now_ms, Input::Tick);
    }

    /// Orders, changes and routes, each after a while.
    pub(super) fn carry_out(&mut self, node: usize) {
        let now_ms = self.now_ms;
        let has_store = self.has_store(node);
        let Self { nodes, store, dice, switch, seen, .. } = self;
        let Node { process, known_epochs, .. } = &mut nodes[node];
        let process = process.as_mut().expect("it runs");
        for (index, worker) in process.workers.iter_mut().enumerate() {
            let mut due_ms = now_ms + dice.below(3) * 10;
            due_ms = worker.orders.back().map_or(due_ms, |(last_ms, _)| due_ms.max(*last_ms));
            while let Some(order) = process.roles.next_order(index) {
                note(seen, &order, &worker.me, store);
                worker.orders.push_back((due_ms, order));
            }
            let number = process.roles.routes_number(index);
            if process.routes_asked[index] < number {
                process.routes_asked[index] = number;
                let routes = process.roles.wanted_routes(index).into_iter();
                let routes = routes.map(|route| (route.shard.id, route.metric)).collect();
                let last_ms = process.routes.back().map_or(0, |last| last.due_ms);
                let due_ms = last_ms.max(now_ms + dice.below(40));
                process.routes.push_back(RouteList { due_ms, worker: index, number, routes });
            }
        }
        while process.routes.front().is_some_and(|list| list.due_ms <= now_ms) {
            let list = process.routes.pop_front().expect("there is one");
            let RouteList { worker, number, routes, .. } = list;
            let at = (node, worker);
            switch.values_mut().for_each(|known| known.retain(|route| route.at != at));
            let boot_id = process.workers[worker].me.boot_id;
            for (shard, metric) in routes {
                switch.entry(shard).or_default().push(SwitchRoute { at, boot_id, metric });
            }
            process.roles.on(now_ms, Input::RoutesOut { worker, number });
        }
        for change in process.roles.take_changes(8) {
            // Not written; or written, but the answer got lost.
            let is_written = has_store
                && !dice.one_in(20)
                && store.change(now_ms, change.shard, change.at, &change.transition);
            let is_resumed = matches!(change.transition, Transition::Resume { .. });
            seen.resumed += u64::from(is_written && is_resumed);
            seen.lost_races += u64::from(has_store && !is_written);
            let is_done = is_written && !dice.one_in(20);
            process.answers.push_back((now_ms + dice.below(30), change.shard, is_done));
        }
        while process.answers.front().is_some_and(|(due_ms, ..)| *due_ms <= now_ms) {
            let (_, shard, is_done) = process.answers.pop_front().expect("there is one");
            process.roles.on(now_ms, Input::Written { shard, is_done });
        }
        for (shard, epoch) in process.roles.take_epochs() {
            match epoch {
                Some(epoch) => known_epochs.insert(shard, epoch),
                None => known_epochs.remove(&shard),
            };
        }
    }
}

/// What orders show of rare things.
fn note(seen: &mut Seen, order: &weir_member::Order, me: &Incarnation, store: &Store) {
    let weir_member::Order::Duties(duties) = order else { return };
    let Some(entry) = store.entries.get(&duties.shard) else { return };
    let Some((_, member)) = entry.member(me) else { return };
    let is_foreign = |lane: usize| !entry.lanes()[lane].concerns(member.seat);
    let passes_on = duties.copies.iter().any(|copy| copy.lanes.iter().any(is_foreign));
    seen.lanes_passed_on += u64::from(passes_on);
}

//! What goes wrong with an etcd and on the way to it.

use weir_etcd::Revision;
use weir_etcd::message::{Event, WatchNews};

use super::message::{ClientId, Refusal};
use super::{Backup, Cut, Etcd, Flight, LEADERLESS_US, Mode, RESENT_US};

impl Etcd {
    /// `kill -9` of all members: connections break, and what had arrived may have been done.
    pub fn kill(&mut self, now_us: u64) {
        if self.mode == Mode::Down {
            return;
        }
        self.mode = Mode::Down;
        self.waiting.clear();
        self.break_connections(now_us);
    }

    /// It begins again with what it had.
    pub fn start(&mut self, now_us: u64) {
        if self.mode == Mode::Down {
            self.lead(now_us);
        }
    }

    /// All members stand still. What arrives waits.
    pub fn pause(&mut self) {
        if self.mode == Mode::Up {
            self.mode = Mode::Paused;
        }
    }

    /// It goes on, with another leader or the same: what waited is done now, whoever still waits for it.
    pub fn resume(&mut self, now_us: u64) {
        if self.mode == Mode::Paused {
            if self.dice.one_in(2) {
                self.lead(now_us);
            }
            self.mode = Mode::Up;
            self.leases_due_us = self.leases_due_us.max(now_us);
            self.serve_waiting(now_us, false);
        }
    }

    /// The members lose their leader: nothing is answered, and watches end after a while.
    pub fn lose_leader(&mut self, now_us: u64) {
        if self.mode == Mode::Up {
            self.mode = Mode::Leaderless;
            self.fly(now_us + LEADERLESS_US, Flight::EndWatches);
        }
    }

    /// They elect one: of what waited some is done, and some is refused.
    pub fn elect(&mut self, now_us: u64) {
        if self.mode == Mode::Leaderless {
            self.lead(now_us);
            self.serve_waiting(now_us, true);
        }
    }

    /// Whether it answers.
    pub fn is_up(&self) -> bool {
        self.mode == Mode::Up
    }

    /// Nothing of this client arrives any more, or no answer gets there, or neither.
    pub fn cut(&mut self, client: ClientId, to_server: bool, to_client: bool) {
        self.cuts.insert(client, Cut { to_server, to_client });
    }

    /// The way is open again. Of what was sent meanwhile some arrives late, in its order, and the rest never:
    /// whoever gave its connection up has a new one.
    pub fn mend(&mut self, now_us: u64, client: ClientId) {
        self.cuts.remove(&client);
        let (of_client, others) =
            std::mem::take(&mut self.held).into_iter().partition(|it| it.0 == client);
        self.held = others;
        let mut due_us = now_us;
        let of_client: Vec<(ClientId, Flight)> = of_client;
        for (_, flight) in of_client {
            due_us += self.dice.between(RESENT_US) / 8;
            let is_watched = matches!(&flight, Flight::ToClient(_, Event::Watched { .. }));
            if let Flight::ToClient(_, Event::Watched { watch, .. }) = &flight {
                due_us = self.watches.arrival(*watch, due_us);
            }
            // A stream has no gaps.
            if is_watched || !self.dice.one_in(2) {
                self.fly(due_us, flight);
            }
        }
    }

    /// The client's process ends, and its connections with it. What it has sent may still be done.
    pub fn close(&mut self, client: ClientId) {
        let is_to_it = |flight: &Flight| matches!(flight, Flight::ToClient(to, _) if *to == client);
        self.flights.retain(|_, flight| !is_to_it(flight));
        self.held.retain(|(_, flight)| !is_to_it(flight));
        self.unanswered.retain(|(of, _)| *of != client);
        self.watches.close_all(client);
    }

    /// The watches that this client has now stall without a word, until it opens others.
    pub fn stall_watches(&mut self, client: ClientId) {
        self.watches.stall(client);
    }

    /// How long a message takes one way, and how far watches are behind.
    pub fn slow(&mut self, delay_us: (u64, u64), watch_lag_us: (u64, u64)) {
        (self.options.delay_us, self.options.watch_lag_us) = (delay_us, watch_lag_us);
    }

    /// The lease of a key ends before its time, and takes its keys along: `etcdctl lease revoke`.
    pub fn revoke_lease_of(&mut self, now_us: u64, path: &str) {
        let lease = self.store.get(path).and_then(|held| held.lease);
        if self.mode == Mode::Up && lease.is_some_and(|lease| self.store.revoke(lease).is_ok()) {
            self.told_watches(now_us);
        }
    }

    /// Forgets what was superseded before the revision of now, less `kept`.
    pub fn compact(&mut self, kept: i64) {
        // What is compacted already needs nothing.
        let _ = self.store.compact(Revision(self.store.revision().0 - kept));
    }

    /// The database has reached its quota, or no longer.
    pub fn set_space(&mut self, has_space: bool) {
        self.has_space = has_space;
    }

    pub fn back_up(&self) -> Backup {
        Backup(self.store.clone())
    }

    /// All members begin with a backup: what was written since is gone and its revisions count again. `is_renamed`:
    /// the new etcd has an identity of its own, as `etcdctl snapshot restore` gives it by default.
    pub fn restore(&mut self, now_us: u64, backup: &Backup, is_renamed: bool) {
        self.kill(now_us);
        self.store = backup.0.clone();
        self.cluster_id += u64::from(is_renamed);
        self.raft_term = 1;
        self.lead(now_us);
    }

    fn lead(&mut self, now_us: u64) {
        self.mode = Mode::Up;
        self.raft_term += 1;
        self.store.extend_leases(now_us);
        self.leases_due_us = self.leases_due_us.max(now_us);
        self.told_watches(now_us);
    }

    fn serve_waiting(&mut self, now_us: u64, some_are_refused: bool) {
        for (client, id, request) in std::mem::take(&mut self.waiting) {
            if some_are_refused && self.dice.one_in(3) {
                self.answer(now_us, client, id, Err(Refusal::NoLeader));
            } else {
                self.serve(now_us, client, id, request);
            }
        }
    }

    fn break_connections(&mut self, now_us: u64) {
        // Answers that were on their way are lost with the connection.
        self.flights.retain(|_, flight| matches!(flight, Flight::ToServer(..)));
        self.held.retain(|(_, flight)| matches!(flight, Flight::ToServer(..)));
        for (client, id) in std::mem::take(&mut self.unanswered) {
            self.answer(now_us, client, id, Err(Refusal::Broken));
        }
        for (watch, client) in self.watches.end_all() {
            self.watched(now_us, client, watch, WatchNews::Ended(Refusal::Broken.into()));
        }
    }
}

//! The faults of an etcd and of the network to it.

use weir_etcd::Revision;
use weir_etcd::message::{TransportEvent, WatchEvent};

use super::message::{ClientId, Refusal};
use super::{Backup, Cut, Etcd, Flight, LEADERLESS_US, Mode, RESENT_US};

impl Etcd {
    /// Kills all members (`kill -9`): connections break, and requests that had arrived may have
    /// been done.
    pub fn kill(&mut self, now_us: u64) {
        if self.mode == Mode::Down {
            return;
        }
        self.mode = Mode::Down;
        self.waiting.clear();
        self.break_connections(now_us);
    }

    /// Starts the members again, with their data.
    pub fn start(&mut self, now_us: u64) {
        if self.mode == Mode::Down {
            self.lead(now_us);
        }
    }

    /// Stalls all members. Requests that arrive wait.
    pub fn pause(&mut self) {
        if self.mode == Mode::Up {
            self.mode = Mode::Paused;
        }
    }

    /// Continues a stalled etcd, with another leader or the same one: the waiting requests are
    /// done, even if their clients no longer wait.
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

    /// Takes the leader away: no request is answered, and watches end after a while.
    pub fn lose_leader(&mut self, now_us: u64) {
        if self.mode == Mode::Up {
            self.mode = Mode::Leaderless;
            self.fly(now_us + LEADERLESS_US, Flight::EndWatches);
        }
    }

    /// Elects a leader: some of the waiting requests are done, the others are refused.
    pub fn elect(&mut self, now_us: u64) {
        if self.mode == Mode::Leaderless {
            self.lead(now_us);
            self.serve_waiting(now_us, true);
        }
    }

    /// True if etcd answers.
    pub fn is_up(&self) -> bool {
        self.mode == Mode::Up
    }

    /// Cuts the network between a client and etcd, for requests, for answers, or for both.
    pub fn cut(&mut self, client: ClientId, to_server: bool, to_client: bool) {
        self.cuts.insert(client, Cut { to_server, to_client });
    }

    /// Mends a cut. Some of the messages sent meanwhile arrive late, in their order, and the others
    /// never: a client that gave its connection up has a new one.
    pub fn mend(&mut self, now_us: u64, client: ClientId) {
        self.cuts.remove(&client);
        let (of_client, others) =
            std::mem::take(&mut self.held).into_iter().partition(|it| it.0 == client);
        self.held = others;
        let mut due_us = now_us;
        let of_client: Vec<(ClientId, Flight)> = of_client;
        for (_, flight) in of_client {
            due_us += self.dice.between(RESENT_US) / 8;
            let is_watched = matches!(&flight, Flight::ToClient(_, TransportEvent::Watched { .. }));
            if let Flight::ToClient(_, TransportEvent::Watched { watch, .. }) = &flight {
                due_us = self.watches.arrival(*watch, due_us);
            }
            // A stream has no gaps.
            if is_watched || !self.dice.one_in(2) {
                self.fly(due_us, flight);
            }
        }
    }

    /// Ends the client's process and its connections. Requests that it has sent may still be done.
    pub fn close(&mut self, client: ClientId) {
        let is_to_it = |flight: &Flight| matches!(flight, Flight::ToClient(to, _) if *to == client);
        self.flights.retain(|_, flight| !is_to_it(flight));
        self.held.retain(|(_, flight)| !is_to_it(flight));
        self.unanswered.retain(|(of, _)| *of != client);
        self.watches.close_all(client);
    }

    /// Stalls the present watches of this client without a notice, until it opens others.
    pub fn stall_watches(&mut self, client: ClientId) {
        self.watches.stall(client);
    }

    /// Sets the delay of a message in one direction, and the lag of watches.
    pub fn slow(&mut self, delay_us: (u64, u64), watch_lag_us: (u64, u64)) {
        (self.options.delay_us, self.options.watch_lag_us) = (delay_us, watch_lag_us);
    }

    /// Ends the lease of a key early, with all its keys: `etcdctl lease revoke`.
    pub fn revoke_lease_of(&mut self, now_us: u64, path: &str) {
        let lease = self.store.get(path).and_then(|held| held.lease);
        if self.mode == Mode::Up && lease.is_some_and(|lease| self.store.revoke(lease).is_ok()) {
            self.notify_watches(now_us);
        }
    }

    /// Forgets the values that were superseded before the present revision less `kept`.
    pub fn compact(&mut self, kept: i64) {
        // An error only means that the revision is compacted already.
        let _ = self.store.compact(Revision(self.store.revision().0 - kept));
    }

    /// Sets whether the database is below its quota.
    pub fn set_space(&mut self, has_space: bool) {
        self.has_space = has_space;
    }

    pub fn back_up(&self) -> Backup {
        Backup(self.store.clone())
    }

    /// Starts all members from a backup: later writes are gone, and their revisions are used again.
    /// `is_renamed`: the new etcd has another cluster id, as `etcdctl snapshot restore` gives it by
    /// default.
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
        self.notify_watches(now_us);
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
        // Answers that are on their way are lost with the connection.
        self.flights.retain(|_, flight| matches!(flight, Flight::ToServer(..)));
        self.held.retain(|(_, flight)| matches!(flight, Flight::ToServer(..)));
        for (client, id) in std::mem::take(&mut self.unanswered) {
            self.answer(now_us, client, id, Err(Refusal::Broken));
        }
        for (watch, client) in self.watches.end_all() {
            self.watched(now_us, client, watch, WatchEvent::Ended(Refusal::Broken.into()));
        }
    }
}

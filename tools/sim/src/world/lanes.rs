//! A lane that one live worker grants to another loses nothing: the new writer has the mapping of
//! every established flow of the lane that the former writer has. In a calm each lane is written by
//! its owner.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use weir_map::{BootId, LANES, ShardId};
use weir_nat::Endpoint6;

use super::World;
use super::checks::Table;
use crate::site::{self, WorkerPosition};
use crate::traffic::{Flow, Stage};

/// By shard and lane: the worker that was last seen to write it, and its incarnation.
#[derive(Debug, Default)]
pub(super) struct LastWriters(BTreeMap<(u32, usize), (WorkerPosition, BootId)>);

impl World {
    fn boot(&self, position: WorkerPosition) -> Option<BootId> {
        self.nodes[position.node].process.as_ref().map(|process| process.boots[position.worker])
    }

    /// Checks lanes that have changed hands. `writers`: the present writers, by shard and lane.
    pub(super) fn check_grants(&mut self, writers: &BTreeMap<(u32, usize), WorkerPosition>) {
        let mut granted = Vec::new();
        for (&(shard, lane), &position) in writers {
            let Some(boot) = self.boot(position) else { continue };
            let before = self.last_writers.0.insert((shard, lane), (position, boot));
            // The tables of a writer that has ended are gone: there is nothing to compare.
            let giver = before.filter(|&(giver, life)| self.boot(giver) == Some(life));
            granted.extend(giver.filter(|giver| giver.0 != position).map(|(giver, _)| {
                let to = position;
                (shard, lane, giver, to)
            }));
        }
        for (shard, lane, giver, to) in granted {
            self.tally.counts.grants += 1;
            if let Some(lacking) = self.lacking_after_grant(shard, lane, giver, to) {
                let [giver, to] = [giver, to].map(|at| format!("n{}/{}", at.node, at.worker));
                self.fail(format!(
                    "{to} has got lane {lane} of shard {shard} from {giver} without {lacking}"
                ));
            }
        }
    }

    /// Returns an established flow on a port of the lane whose mapping the giver has and the new
    /// writer lacks.
    fn lacking_after_grant(
        &self,
        shard: u32,
        lane: usize,
        giver: WorkerPosition,
        to: WorkerPosition,
    ) -> Option<String> {
        let [given, got] = [giver, to].map(|position| self.table(position));
        let flows = self.traffic.flows.iter().filter(|flow| flow.stage == Stage::Established);
        let mut flows = flows.filter(|flow| self.traffic.sockets[flow.socket].shard == shard);
        flows.find_map(|flow| {
            let socket = &self.traffic.sockets[flow.socket];
            let public = socket.public?;
            if !self.lanes_at(giver, flow, public).contains(&lane) {
                return None;
            }
            let has = |table: &Table| {
                table.get(&socket.key()).is_some_and(|publics| publics.contains(&public))
            };
            let is_lacking = has(&given) && !has(&got);
            is_lacking.then(|| format!("{socket}, which has {public}"))
        })
    }

    /// Returns a lane that its owner does not write although nothing moves.
    pub(super) fn unwritten_lane(&self) -> Option<String> {
        let entries = self.control.entries().iter();
        let lanes = entries.flat_map(|(&id, entry)| (0..LANES).map(move |lane| (id, entry, lane)));
        let mut owners = lanes.filter_map(|(shard, entry, lane)| {
            let owner = entry.at_slot(entry.lanes()[lane].owner)?;
            Some((shard, lane, self.position_of(&owner.incarnation)?))
        });
        let unwritten = owners.find(|&(shard, lane, position)| !self.writes(position, shard, lane));
        unwritten.map(|(shard, lane, WorkerPosition { node, worker })| {
            format!("n{node}/{worker} does not write lane {lane} of shard {shard}, which it owns")
        })
    }

    /// Returns the lanes of a flow with this public endpoint: of IPv4 by its port, of IPv6 by the
    /// records of the flow at a worker, of which there may be several.
    pub(super) fn lanes_at(
        &self,
        position: WorkerPosition,
        flow: &Flow,
        public: SocketAddr,
    ) -> Vec<usize> {
        match public.is_ipv4() {
            true => vec![site::lane(public.port())],
            false => self.records6(position, flow).into_iter().map(|(lane, _)| lane).collect(),
        }
    }

    /// Returns the lane and the state of each record of an IPv6 flow at a worker.
    pub(super) fn records6(
        &self,
        position: WorkerPosition,
        flow: &Flow,
    ) -> Vec<(usize, &'static str)> {
        let socket = &self.traffic.sockets[flow.socket];
        let [inside, remote] = [socket.inside, flow.remote].map(|end| match end.ip() {
            IpAddr::V6(address) => Endpoint6::new(address.to_bits(), end.port()),
            IpAddr::V4(_) => panic!("{socket} is no IPv6 socket"),
        });
        let nat = self.worker(position).engine().nat().admin();
        nat.records_of_flow6(inside, remote, socket.protocol)
    }

    fn writes(&self, position: WorkerPosition, shard: ShardId, lane: usize) -> bool {
        let worker = self.worker(position);
        let index = worker.replication().index_of(shard);
        index.is_some_and(|index| {
            worker.engine().nat().replica().owned_lanes(index) >> lane & 1 == 1
        })
    }
}

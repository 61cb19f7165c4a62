//! A lane that one live worker grants to another loses nothing: the new writer has the mapping of
//! every established flow of the lane that the former writer has. In a calm each lane is written by
//! its owner.

use std::collections::BTreeMap;

use weir_map::{BootId, LANES, ShardId};

use super::World;
use super::checks::{Table, dotted};
use crate::site::{self, Place};
use crate::traffic::Stage;

/// By shard and lane: the worker that was last seen to write it, and its incarnation.
#[derive(Debug, Default)]
pub(super) struct LastWriters(BTreeMap<(u32, usize), (Place, BootId)>);

impl World {
    fn boot(&self, place: Place) -> Option<BootId> {
        self.nodes[place.node].process.as_ref().map(|process| process.boots[place.worker])
    }

    /// Checks lanes that have changed hands. `writers`: the present writers, by shard and lane.
    pub(super) fn check_grants(&mut self, writers: &BTreeMap<(u32, usize), Place>) {
        let mut granted = Vec::new();
        for (&(shard, lane), &place) in writers {
            let Some(boot) = self.boot(place) else { continue };
            let before = self.last_writers.0.insert((shard, lane), (place, boot));
            // The tables of a writer that has ended are gone: there is nothing to compare.
            let giver = before.filter(|&(giver, life)| self.boot(giver) == Some(life));
            granted.extend(giver.filter(|giver| giver.0 != place).map(|(giver, _)| {
                let to = place;
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
        giver: Place,
        to: Place,
    ) -> Option<String> {
        let [given, got] = [giver, to].map(|place| self.table(place));
        let flows = self.traffic.flows.iter().filter(|flow| flow.stage == Stage::Established);
        let sockets = flows.map(|flow| &self.traffic.sockets[flow.socket]);
        let mut sockets = sockets.filter(|socket| socket.shard == shard);
        sockets.find_map(|socket| {
            let public = socket.public.filter(|public| site::lane(public.port) == lane)?;
            let has = |table: &Table| {
                table.get(&socket.key()).is_some_and(|publics| publics.contains(&public))
            };
            let is_lacking = has(&given) && !has(&got);
            is_lacking.then(|| format!("{socket}, which has {}", dotted(public)))
        })
    }

    /// Returns a lane that its owner does not write although nothing moves.
    pub(super) fn unwritten_lane(&self) -> Option<String> {
        let entries = self.control.entries().iter();
        let lanes = entries.flat_map(|(&id, entry)| (0..LANES).map(move |lane| (id, entry, lane)));
        let mut owners = lanes.filter_map(|(shard, entry, lane)| {
            let owner = entry.at_seat(entry.lanes()[lane].owner)?;
            Some((shard, lane, self.place_of(&owner.incarnation)?))
        });
        let unwritten = owners.find(|&(shard, lane, place)| !self.writes(place, shard, lane));
        unwritten.map(|(shard, lane, Place { node, worker })| {
            format!("n{node}/{worker} does not write lane {lane} of shard {shard}, which it owns")
        })
    }

    fn writes(&self, place: Place, shard: ShardId, lane: usize) -> bool {
        let worker = self.worker(place);
        let index = worker.replication().place(shard);
        index.is_some_and(|index| {
            worker.engine().nat().replica().owned_lanes(index) >> lane & 1 == 1
        })
    }
}

//! The map of one shard, with the owners of its lanes, and the duties that follow from it.

use weir_map::{Epoch, LANES, LaneSet, ShardId};
use weir_replication::command::{CopyOrder, GrantOrder, Misses, ShardDuties};
use weir_replication::{WorkerCommand, WorkerEvent};

use crate::cluster::{Cluster, no_duties};
use crate::member::{SHARD, peer_id};

/// A lane's owner and, while it moves, its giver and the epoch of the move.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LanePlan {
    pub(crate) owner: usize,
    pub(crate) from: Option<(usize, u64)>,
    /// Epoch since which the owner has it, while it rests.
    pub(crate) taken: u64,
}

impl LanePlan {
    /// Returns the epoch since which its owner writes it, or will write it once the lane has been
    /// granted.
    fn since(&self) -> u64 {
        self.from.map_or(self.taken, |(_, since)| since)
    }
}

/// The map of the shard: members, the primary first.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) members: Vec<usize>,
    pub(crate) lanes: [LanePlan; LANES],
    pub(crate) epoch: u64,
    /// A member that is alive and counts as gone to all others.
    pub(crate) silent: Option<usize>,
}

impl Plan {
    /// Returns a map in which the first member has all lanes but one for each of the others: lane 0
    /// for the second, and so on.
    pub(crate) fn new(members: &[usize]) -> Self {
        let owner = |lane: usize| *members.get(lane + 1).unwrap_or(&members[0]);
        let lanes =
            std::array::from_fn(|lane| LanePlan { owner: owner(lane), from: None, taken: 1 });
        Self { members: members.to_vec(), lanes, epoch: 1, silent: None }
    }

    pub(crate) fn move_lane(&mut self, lane: usize, to: usize) {
        self.epoch += 1;
        let lane = &mut self.lanes[lane];
        (lane.from, lane.owner) = (Some((lane.owner, self.epoch)), to);
    }

    /// Ends a move.
    pub(crate) fn rest(&mut self, lane: usize) {
        self.epoch += 1;
        let lane = &mut self.lanes[lane];
        (lane.taken, lane.from) = (lane.since(), None);
    }

    /// Gives the lanes of a fenced worker to another one, which takes the copies of the other
    /// survivor before it writes.
    pub(crate) fn fence(&mut self, cluster: &mut Cluster, gone: usize, heir: usize) {
        self.epoch += 1;
        self.members.retain(|&member| member != gone);
        assert!(self.members.len() <= 2, "of three workers two survive");
        let mut lanes = LaneSet::EMPTY;
        for (number, lane) in self.lanes.iter_mut().enumerate() {
            let giver = lane.from.map(|(from, _)| from);
            if lane.owner != gone && giver != Some(gone) {
                continue;
            }
            lanes = lanes.with(number);
            let owner = if lane.owner == gone { giver.unwrap_or(heir) } else { lane.owner };
            let other = self.members.iter().find(|&&member| member != owner);
            let from = other.map(|&other| (other, self.epoch));
            *lane = LanePlan { owner, from, taken: self.epoch };
        }
        cluster.forget_lost(lanes);
    }

    fn writes(&self, cluster: &mut Cluster, worker: usize, lane: usize) -> bool {
        let LanePlan { owner, from, .. } = self.lanes[lane];
        let mut has_grant = |since: u64| {
            cluster.worker(worker).events.iter().any(|event| {
                *event == WorkerEvent::Granted { shard: ShardId(SHARD), lane, since: Epoch(since) }
            })
        };
        owner == worker && from.is_none_or(|(_, since)| has_grant(since))
    }

    /// Returns the last writer of a lane, as far as the map shows.
    fn writer(&self, lane: usize) -> usize {
        let LanePlan { owner, from, .. } = self.lanes[lane];
        from.map_or(owner, |(from, _)| from)
    }

    /// Returns a member's duties by this map.
    pub(crate) fn duties(&self, cluster: &mut Cluster, worker: usize) -> ShardDuties {
        let lanes =
            LaneSet((0..LANES).fold(0, |lanes, lane| {
                lanes | u8::from(self.writes(cluster, worker, lane)) << lane
            }));
        let others = self.members.iter().copied().filter(|&other| other != worker);
        let is_gone = |cluster: &Cluster, other: usize| {
            !cluster.is_alive(other) || self.silent == Some(other) && other != worker
        };
        let relay =
            *self.members.iter().find(|&&it| !is_gone(cluster, it)).expect("some member is alive");
        let frozen = |lane: &usize| is_gone(cluster, self.writer(*lane));
        let passed = (0..LANES).filter(frozen).filter(|_| relay == worker);
        let copied = passed.fold(lanes, LaneSet::with);
        let own = |other: usize| {
            LaneSet(
                (0..LANES).fold(0, |set, lane| set | u8::from(self.writer(lane) == other) << lane),
            )
        };
        let mut sources = [None; LANES];
        for (lane, source) in sources.iter_mut().enumerate() {
            let LanePlan { owner, from, .. } = self.lanes[lane];
            let writer = if owner == worker { from.map_or(owner, |(from, _)| from) } else { owner };
            let giver = if is_gone(cluster, writer) { relay } else { writer };
            *source = (giver != worker && !lanes.contains(lane)).then(|| peer_id(giver));
        }
        let copies = others.map(|other| CopyOrder {
            peer: peer_id(other),
            boot: cluster.boot(other),
            // No other member sends it its own lanes.
            lanes: LaneSet(copied.0 & !(own(other).0 & !lanes.0)),
            is_awaited: true,
            is_guest: false,
        });
        let gives = |lane: usize| {
            let LanePlan { owner, from: Some((from, since)), .. } = self.lanes[lane] else {
                return None;
            };
            (from == worker).then(|| GrantOrder {
                lane,
                since: Epoch(since),
                to: (peer_id(owner), cluster.boot(owner)),
            })
        };
        ShardDuties {
            serves_hits: true,
            lanes,
            lanes_since: std::array::from_fn(|lane| match lanes.contains(lane) {
                true => Epoch(self.lanes[lane].since()),
                false => Epoch(0),
            }),
            misses: Misses::Create,
            copies: copies.collect(),
            sources,
            grants: (0..LANES).filter_map(gives).collect(),
            ..no_duties(SHARD)
        }
    }

    /// Gives every live member its duties.
    pub(crate) fn order(&self, cluster: &mut Cluster) {
        for &member in &self.members {
            self.order_one(cluster, member);
        }
    }

    pub(crate) fn order_one(&self, cluster: &mut Cluster, member: usize) {
        if cluster.is_alive(member) {
            let duties = self.duties(cluster, member);
            cluster.order(member, WorkerCommand::Duties(Box::new(duties)));
        }
    }

    /// Ends the moves whose taker writes.
    pub(crate) fn settle_moves(&mut self, cluster: &mut Cluster) {
        for lane in 0..LANES {
            let owner = self.lanes[lane].owner;
            let is_moving = self.lanes[lane].from.is_some();
            if is_moving && cluster.is_alive(owner) && self.writes(cluster, owner, lane) {
                self.rest(lane);
                self.order(cluster);
            }
        }
    }
}

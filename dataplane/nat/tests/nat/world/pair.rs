//! Two workers of one shard: the first owns its lanes, the second the reserve, and each copies the
//! other's.

use weir_nat::*;

use super::{SHARD, World, config};

pub(crate) const PRIMARY: u8 = 0x7f;
pub(crate) const RESERVE: u8 = 0x80;

pub(crate) fn pair_config() -> NatConfig {
    NatConfig { port_block: 64, ports_per_subscriber: 64, replicas: 1, ..config() }
}

/// Builds a worker that owns these lanes of the first shard and replicates all.
pub(crate) fn worker(config: NatConfig, lanes: u8) -> World {
    let mut world = World::new(config);
    world.nat.replica_mut().set_owned_lanes(SHARD, lanes, world.now);
    world.nat.replica_mut().set_replicated_lanes(SHARD, 0xff);
    world
}

pub(crate) fn pair(config: &NatConfig) -> (World, World) {
    (worker(config.clone(), PRIMARY), worker(config.clone(), RESERVE))
}

/// Delivers the pending changes of one worker to the other; returns their kinds.
pub(crate) fn replicate(from: &mut World, to: &mut World) -> Vec<ChangeKind> {
    let (mut body, mut kinds) = ([0; BODY_MAX], Vec::new());
    while let Some((change, len)) = from.nat.replica_mut().next_change(&mut body) {
        let applied = to.nat.replica_mut().apply(&change, &body[..len], to.now);
        assert!(matches!(applied, Applied::Done | Applied::Old), "{change:?}: {applied:?}");
        kinds.push(change.kind);
    }
    kinds
}

/// Copies the primary's lanes, as `from` has them.
pub(crate) fn copy(from: &World, to: &mut World, is_relayed: bool) {
    for lane in 0..7 {
        from.nat.replica().copy_lane(SHARD, lane, 0..u32::MAX, u32::MAX, |change, body| {
            let (at, sent) = ((change.shard, change.lane), [(change.in_lane(), body)]);
            to.nat.replica_mut().apply_burst(at, sent.into_iter(), is_relayed, to.now);
            true
        });
    }
}

/// Returns the states of all sessions, in the order of the table.
pub(crate) fn states(world: &World) -> Vec<&'static str> {
    world.list(&SessionFilter::default()).iter().map(|session| session.state).collect()
}

pub(crate) fn lane_of(public: Endpoint) -> u16 {
    public.port / 64 % 8
}

impl World {
    pub(crate) fn assert_empty_but_lanes(&self) {
        let gauges = self.nat.admin().gauges();
        assert_eq!((gauges.flows, gauges.quarantined, gauges.subscribers), (0, 0, 0));
        assert_eq!(self.nat.admin().shard_gauges(SHARD).ports_used, 0);
    }
}

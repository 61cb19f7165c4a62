//! Rules for a worker, made in a test.

use std::sync::Arc;

use weir_engine::DropReason;
use weir_nat::ActiveRules;
use weir_rules::{
    FlowClass, FlowKind, FlowKinds, FlowOrigin, FlowPolicy, PortRange, Prefix, RuleAction,
    RuleFilter, RuleSet, SourcePool,
};

use super::*;

pub type Filter = RuleFilter<u32>;

/// Ordered rules, and the groups of subscribers.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    filters: Vec<Filter>,
    actions: Vec<RuleAction>,
    groups: Vec<(Prefix<u32>, u8)>,
    policies: Vec<(u32, FlowPolicy)>,
    pools: Vec<(Prefix<u32>, SourcePool)>,
}

impl Rules {
    /// Adds a rule about what `narrow` leaves of all flows of this origin.
    pub fn rule(
        mut self,
        origin: FlowOrigin,
        action: RuleAction,
        narrow: impl FnOnce(&mut Filter),
    ) -> Self {
        let of_origin = [1, 6, 17].map(|protocol| kind(origin, protocol));
        let kinds = of_origin.into_iter().collect();
        let mut filter = Filter { kinds, ..Filter::all(self.actions.len() as u32) };
        narrow(&mut filter);
        self.filters.push(filter);
        self.actions.push(action);
        self
    }

    pub fn home(self, action: RuleAction, narrow: impl FnOnce(&mut Filter)) -> Self {
        self.rule(FlowOrigin::Home, action, narrow)
    }

    pub fn internet(self, action: RuleAction, narrow: impl FnOnce(&mut Filter)) -> Self {
        self.rule(FlowOrigin::Internet, action, narrow)
    }

    /// Gives the flows of the last rule this class.
    pub fn class(self, class: FlowClass) -> Self {
        self.policy(FlowPolicy::of_class(class))
    }

    /// Gives the flows of the last rule this.
    pub fn policy(mut self, policy: FlowPolicy) -> Self {
        self.policies.push((self.actions.len() as u32 - 1, policy));
        self
    }

    /// Puts public addresses into a source pool.
    pub fn pool(mut self, prefix: Prefix<u32>, pool: SourcePool) -> Self {
        self.pools.push((prefix, pool));
        self
    }

    pub fn group(mut self, prefix: Prefix<u32>, group: u8) -> Self {
        self.groups.push((prefix, group));
        self
    }

    /// Puts the rules into force, in place of others.
    pub fn load(self, world: &mut World) {
        let set = RuleSet::new(&self.filters, self.actions, self.groups).expect("few rules");
        let set = set.with_policies(&self.policies).with_source_pools(self.pools);
        let rules = Box::new(ActiveRules::new(Arc::new(set)));
        drop(world.engine.nat_mut().admin_mut().swap_rules(rules));
    }

    /// Makes a worker with these rules.
    pub fn world(self, config: EngineConfig) -> World {
        let mut world = World::new(config);
        self.load(&mut world);
        world
    }
}

/// Puts one rule into force, about all IPv6 flows of this origin.
pub fn load6(world: &mut World, origin: FlowOrigin, action: RuleAction) {
    let of_origin = [6, 17, 58].into_iter();
    let kinds = of_origin.filter_map(|number| FlowKind::new6(origin, number)).collect();
    let filter = RuleFilter { kinds, ..RuleFilter::all(0) };
    let set = RuleSet::new(&[], vec![action], Vec::new()).expect("few rules");
    let set = set.with_ipv6(&[filter], Vec::new()).expect("few rules");
    let rules = Box::new(ActiveRules::new(Arc::new(set)));
    drop(world.engine.nat_mut().admin_mut().swap_rules(rules));
}

pub fn kind(origin: FlowOrigin, protocol: u8) -> FlowKind {
    FlowKind::new(origin, protocol).unwrap()
}

pub fn kinds(origin: FlowOrigin, protocol: u8) -> FlowKinds {
    [kind(origin, protocol)].into_iter().collect()
}

pub fn host(address: &str) -> Prefix<u32> {
    Prefix::new(address.to_bits(), 32)
}

pub const fn port(port: u16) -> PortRange {
    PortRange { first: port, last: port }
}

/// Returns how often each rule has decided.
pub fn hits(world: &World) -> Vec<u64> {
    world.engine.nat().admin().active_rules().hits.to_vec()
}

/// Asserts that all packets that were dropped, `count`, were dropped for this reason.
pub fn assert_only(world: &World, reason: DropReason, count: u64) {
    assert_eq!((world.dropped(reason), world.drops()), (count, count), "{reason:?}");
}

/// Asserts that nothing was begun: there is no flow, no home and no port in use.
pub fn assert_nothing_begun(world: &World) {
    let admin = world.engine.nat().admin();
    let (gauges, shard) = (admin.gauges(), admin.shard_gauges(weir_nat::ShardIndex(0)));
    assert_eq!((gauges.flows, gauges.flow_creates_total, gauges.subscribers), (0, 0, 0));
    assert_eq!((shard.ports_used, shard.blocks_free), (0, shard.blocks_total));
    assert_eq!(world.pool.alive(), 0);
}

//! Settings that name homes with tunnels over IPv6: groups and static mappings.

use std::sync::Arc;

use weir_engine::*;
use weir_nat::{
    ActiveRules, Endpoint, HomePrefixes, LiveNatSettings, OuterAddress, Protocol, StaticMapping,
    StaticMappings, StaticScope, home_addresses,
};
use weir_rules::{FlowKind, FlowKinds, FlowOrigin, Prefix, RuleAction, RuleFilter, RuleSet};
use weir_wire::build;
use weir_wire::tcp::{ACK, SYN};

use crate::world::ipv6::{address6, over_ipv6, tunnelled};
use crate::world::link6::ready6;
use crate::world::{Bits, World, ends};

const HOME: &str = "2001:db8:e::1";
const OTHER_HOME: &str = "2001:db8:e::2";
const INSIDE: &str = "192.168.1.10";
const SERVER: &str = "192.0.2.1";
const HOST6: &str = "2001:db8:1000:1::7";
const OTHER_HOST6: &str = "2001:db8:1000:2::7";
const SERVER6: &str = "2001:db8:9::1";
const GROUP: u8 = 3;

fn udp(port: u16) -> Vec<u8> {
    build::ipv4(INSIDE, SERVER).udp(port, 53, b"question")
}

/// Returns rules with the first home in a group: one for each action, about the group's flows of
/// both families from that side.
fn rules_of_group(rules: &[(FlowOrigin, RuleAction)]) -> RuleSet {
    let kinds = |of: fn(FlowOrigin, u8) -> Option<FlowKind>, origin| -> FlowKinds {
        [6, 17].into_iter().filter_map(|protocol| of(origin, protocol)).collect()
    };
    let (mut filters, mut filters6) = (Vec::new(), Vec::new());
    for (rule, &(origin, _)) in (0..).zip(rules) {
        let groups = 1 << GROUP;
        filters.push(RuleFilter {
            kinds: kinds(FlowKind::new, origin),
            groups,
            ..RuleFilter::all(rule)
        });
        filters6.push(RuleFilter {
            kinds: kinds(FlowKind::new6, origin),
            groups,
            ..RuleFilter::all(rule)
        });
    }
    let actions = rules.iter().map(|&(_, action)| action).collect();
    let groups = vec![(Prefix::new(address6(HOME), 128), GROUP)];
    let set = RuleSet::new(&filters, actions, Vec::new()).unwrap();
    set.with_ipv6(&filters6, groups).unwrap()
}

impl World {
    fn load(&mut self, set: RuleSet) {
        let rules = Box::new(ActiveRules::new(Arc::new(set)));
        drop(self.engine.nat_mut().admin_mut().swap_rules(rules));
    }

    /// Passes in a packet of each family, and returns how many leave.
    fn both_up(&mut self, home: &str, host6: &str, port: u16) -> usize {
        let packets = [udp(port), build::ipv6(host6, SERVER6).udp(port, 53, b"question")];
        let out = packets.map(|packet| self.up_over6(home, packet));
        out.iter().map(|out| out.internet.len() + out.internet6().len()).sum()
    }
}

#[test]
fn rules_of_a_group_are_about_its_homes_over_ipv6_in_both_families() {
    let mut world = ready6(over_ipv6());
    world.load(rules_of_group(&[(FlowOrigin::Home, RuleAction::Drop)]));
    assert_eq!(world.both_up(HOME, HOST6, 5000), 0);
    assert_eq!(world.both_up(OTHER_HOME, OTHER_HOST6, 5000), 2);
    assert_eq!((world.dropped(DropReason::RuleDrop), world.drops()), (2, 2));
    // The same in a burst, whose questions are asked together.
    let homes = [HOME, OTHER_HOME];
    let burst: Vec<_> =
        (0..20).map(|n| tunnelled(homes[n % 2], None, udp(6000 + n as u16))).collect();
    assert_eq!(world.packets(Side::Access, &burst).internet.len(), 10);
    assert_eq!((world.dropped(DropReason::RuleDrop), world.drops()), (12, 12));
    // A further remote of a mapping is asked about for itself.
    let further =
        |home| tunnelled(home, None, build::ipv4(INSIDE, "192.0.2.2").udp(5000, 53, b"x"));
    world.load(RuleSet::empty());
    assert_eq!(world.both_up(HOME, HOST6, 5000), 2);
    world.load(rules_of_group(&[(FlowOrigin::Home, RuleAction::Drop)]));
    assert!(world.packet6(Side::Access, &further(HOME)).internet.is_empty());
    assert_eq!(world.packet6(Side::Access, &further(OTHER_HOME)).internet.len(), 1);
}

#[test]
fn rule_from_the_internet_is_about_homes_over_ipv6_of_its_group() {
    let mut world = ready6(over_ipv6());
    let public = [HOME, OTHER_HOME].map(|home| {
        let (public, port, ..) = ends(&world.up_over6(home, udp(5000)).into_internet());
        (public, port)
    });
    world.load(rules_of_group(&[(FlowOrigin::Internet, RuleAction::Accept)]));
    let knock = public.map(|(public, port)| build::ipv4("192.0.2.77", public).udp(9, port, b"x"));
    let delivered = world.down(&knock[0]).into_home_over6();
    assert_eq!(delivered.outer.destination.get(), address6(HOME));
    assert!(world.down(&knock[1]).is_nothing());
    assert_eq!(world.dropped(DropReason::Filtered), 1);
}

#[test]
fn live_flows_of_a_group_of_homes_over_ipv6_end_where_a_rule_with_rematch_refuses_them() {
    let mut world = ready6(over_ipv6());
    assert_eq!(world.both_up(HOME, HOST6, 5000) + world.both_up(OTHER_HOME, OTHER_HOST6, 5000), 4);
    world.load(rules_of_group(&[(FlowOrigin::Home, RuleAction::Drop)]).with_rematch(vec![0]));
    world.pass_ms(2000);
    let gauges = world.engine.nat().admin().gauges();
    assert_eq!((gauges.flows, gauges.flow_rematched_total), (2, 2));
    assert_eq!(world.both_up(HOME, HOST6, 5000), 0);
    assert_eq!(world.both_up(OTHER_HOME, OTHER_HOST6, 5000), 2);
}

#[test]
fn homes_over_ipv6_of_a_group_have_rates_and_shares_of_their_own() {
    let mut config = over_ipv6();
    let mut world = ready6(over_ipv6());
    config.limits.groups[usize::from(GROUP)] = GroupLimits {
        icmp_errors_per_sec: Some(50),
        slow_path_packets_per_sec: Some(10_000),
        fragments_percent: Some(1),
    };
    drop(world.engine.setup().swap_live(Box::new(LiveSettings {
        number: 1,
        engine: LiveEngineSettings::of(&config),
        nat: LiveNatSettings::of(&config.nat).unwrap(),
        homes: home_addresses(&config.nat.subscribers),
        homes6: HomePrefixes::new(&config.nat.subscribers6),
        rules: Box::new(ActiveRules::new(Arc::new(rules_of_group(&[])))),
        statics: Arc::new(StaticMappings::none()),
        delegations: Arc::default(),
        out_of_service: Box::default(),
    })));
    for (home, errors, held, queries) in [(OTHER_HOME, 20, 64, 20_000), (HOME, 50, 16, 1000)] {
        // It has a flow, and so a handle.
        world.up_over6(home, udp(1));
        let expired = || build::ipv4(INSIDE, SERVER).ttl(1).udp(1, 2, b"x");
        let sent =
            (0..100).filter(|_| !world.up_over6(home, expired()).ipv6_to(Side::Access).is_empty());
        assert_eq!(sent.count(), errors, "{home}: ICMP errors");
        let before = world.drops();
        for id in 0..100 {
            let whole = build::ipv4(INSIDE, SERVER).identification(id).udp(1, 2, vec![0; 2000]);
            drop(world.up_over6(home, &build::fragments(&whole, 1400)[1]));
        }
        assert_eq!(100 - (world.drops() - before), held, "{home}: fragments that wait");
        world.pass_ms(10_000);
        let ping = |n: u16| build::ipv4(INSIDE, SERVER).icmp_echo_request(n % 100, 1, b"x");
        let passed = (0..25_000).filter(|&n| !world.up_over6(home, ping(n)).internet.is_empty());
        let passed = passed.count();
        assert!((queries - 40..queries + 200).contains(&passed), "{home}: slow path: {passed}");
    }
}

const PUBLIC: &str = "203.0.113.2";

/// Returns a worker on which the first home serves port 443 under port 8443.
fn forwarding() -> World {
    let mut world = ready6(over_ipv6());
    let forward = StaticMapping {
        outer: OuterAddress::of_ipv6(address6(HOME)),
        gre_key: None,
        inside: Endpoint::new(INSIDE.to_bits(), 443),
        public: Endpoint::new(PUBLIC.to_bits(), 8443),
        scope: StaticScope::Port(Protocol::Tcp),
    };
    let statics = Arc::new(StaticMappings::new(&[forward]).unwrap());
    let _former = world.engine.nat_mut().admin_mut().swap_statics(statics);
    world
}

#[test]
fn connection_reaches_the_forward_of_a_home_over_ipv6_that_has_sent_nothing() {
    let mut world = forwarding();
    let to_home = |segment: build::TcpBuilder| build::ipv4(SERVER, PUBLIC).tcp(segment);
    let strange = to_home(build::tcp(5000, 8443).payload(b"data"));
    assert!(world.down(strange).is_nothing());
    assert_eq!(world.dropped(DropReason::TcpNotSyn), 1);
    let delivered = world.down(to_home(build::tcp(5000, 8443).syn())).into_home_over6();
    assert_eq!(delivered.outer.destination.get(), address6(HOME));
    assert_eq!(ends(&delivered.inner), (SERVER.to_bits(), 5000, INSIDE.to_bits(), 443));
    for segment in [build::tcp(443, 5000).flags(SYN | ACK), build::tcp(443, 5000).payload(b"x")] {
        let sent = world.up_over6(HOME, build::ipv4(INSIDE, SERVER).tcp(segment)).into_internet();
        assert_eq!(ends(&sent), (PUBLIC.to_bits(), 8443, SERVER.to_bits(), 5000));
        let data = to_home(build::tcp(5000, 8443).payload(b"data"));
        assert_eq!(ends(&world.down(data).into_home_over6().inner).3, 443);
    }
    let other = build::ipv4(INSIDE, SERVER).tcp(build::tcp(443, 5000).syn());
    let sent = world.up_over6(OTHER_HOME, other).into_internet();
    assert_ne!(ends(&sent).1, 8443, "another home with the same inside address");
}

#[test]
fn homes_behind_both_kinds_of_tunnels_reach_a_forward_of_one_over_ipv6() {
    let mut world = forwarding();
    let syn = build::ipv4("192.168.1.77", PUBLIC).tcp(build::tcp(5000, 8443).syn());
    for out in [world.up("10.200.0.1", &syn), world.up_over6(OTHER_HOME, &syn)] {
        let delivered = out.into_home_over6();
        assert_eq!(delivered.outer.destination.get(), address6(HOME));
        assert_eq!(ends(&delivered.inner).3, 443);
    }
}

#[test]
fn forward_that_is_taken_away_from_a_home_over_ipv6_ends_its_flow() {
    let mut world = forwarding();
    let syn = build::ipv4(SERVER, PUBLIC).tcp(build::tcp(5000, 8443).syn());
    world.down(&syn).into_home_over6();
    let none = Arc::new(StaticMappings::none());
    let _former = world.engine.nat_mut().admin_mut().swap_statics(none);
    world.pass_ms(3000);
    assert_eq!(world.engine.nat().admin().gauges().flows, 0);
    assert!(world.down(&syn).is_nothing());
}

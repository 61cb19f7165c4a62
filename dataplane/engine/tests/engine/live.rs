//! A new generation of settings is in force from the next packet on.

use std::sync::Arc;

use weir_engine::{
    DropReason, EngineConfig, GroupLimits, LiveEngineSettings, LiveSettings, MssClamp,
    ResourceLimits, Side,
};
use weir_nat::{ActiveRules, LiveNatSettings, StaticMappings, home_addresses};
use weir_wire::build;

use crate::world::*;

/// Returns the generation that `change` makes of the configuration of a world.
fn generation(number: u64, change: impl FnOnce(&mut EngineConfig)) -> Box<LiveSettings> {
    let mut config = config();
    change(&mut config);
    Box::new(LiveSettings {
        number,
        engine: LiveEngineSettings::of(&config),
        nat: LiveNatSettings::of(&config.nat).unwrap(),
        homes: home_addresses(&config.nat.subscribers),
        homes6: weir_nat::HomePrefixes::new(&config.nat.subscribers6),
        rules: Box::new(ActiveRules::none()),
        statics: Arc::new(StaticMappings::none()),
        delegations: Arc::default(),
        out_of_service: Box::default(),
    })
}

fn swap(world: &mut World, number: u64, change: impl FnOnce(&mut EngineConfig)) -> u64 {
    world.engine.setup().swap_live(generation(number, change)).number
}

/// Returns the MSS that a SYN has when it has passed.
fn passed_mss(world: &mut World) -> u16 {
    let syn = build::ipv4(PC, SERVER).tcp(build::tcp(1000, 80).syn().mss(1460));
    let out = world.up(HOME_A, syn).into_internet();
    u16::from_be_bytes([out[42], out[43]])
}

#[test]
fn swap_returns_the_former_generation_in_the_same_box() {
    let mut world = World::default();
    assert_eq!(world.engine.admin().generation(), 0);
    assert_eq!(swap(&mut world, 7, |_| {}), 0);
    assert_eq!(world.engine.admin().generation(), 7);
    let first = world.engine.setup().swap_live(generation(8, |config| {
        config.nat.timeouts.udp = 1;
        config.limits.redirects_per_sec = 2;
    }));
    assert_eq!(first.number, 7);
    let second = world.engine.setup().swap_live(first);
    assert_eq!((second.number, second.engine.limits.redirects_per_sec), (8, 2));
    assert_ne!(second.nat, LiveNatSettings::of(&config().nat).unwrap());
}

#[test]
fn mss_clamp_and_source_routes_change_for_the_next_packet() {
    let mut world = World::default();
    assert_eq!(passed_mss(&mut world), 1436);
    swap(&mut world, 1, |config| config.mss_clamp = MssClamp::Max(1200));
    assert_eq!(passed_mss(&mut world), 1200);
    swap(&mut world, 2, |config| config.mss_clamp = MssClamp::Off);
    assert_eq!(passed_mss(&mut world), 1460);
    let routed = || build::ipv4(PC, SERVER).options(&[131, 7, 4, 1, 2, 3, 4]).udp(1, 2, b"x");
    assert!(world.up(HOME_A, routed()).internet.is_empty());
    assert_eq!(world.dropped(DropReason::SourceRoute), 1);
    swap(&mut world, 3, |config| config.forward_source_routes = true);
    assert_eq!(world.up(HOME_A, routed()).internet.len(), 1);
}

#[test]
fn rates_change_for_homes_that_are_known() {
    let mut world = World::default();
    let errors = |world: &mut World| {
        let expired = || build::ipv4(PC, SERVER).ttl(1).udp(1, 2, b"x");
        (0..100).filter(|_| !world.up(HOME_A, expired()).access.is_empty()).count()
    };
    assert_eq!(errors(&mut world), 20);
    let limits =
        |icmp_errors_per_sec| ResourceLimits { icmp_errors_per_sec, ..ResourceLimits::default() };
    swap(&mut world, 1, |config| config.limits = limits(5));
    world.now.ms += 10_000;
    assert_eq!(errors(&mut world), 5);
    swap(&mut world, 2, |config| config.limits = limits(50));
    world.now.ms += 1000;
    assert_eq!(errors(&mut world), 50);
    swap(&mut world, 3, |config| config.limits.icmp_errors_to_homes = false);
    world.now.ms += 10_000;
    assert_eq!(errors(&mut world), 0);
}

#[test]
fn fragments_that_are_held_follow_the_new_time_out_and_share() {
    let mut world = World::default();
    let datagram = |id: u16| {
        let whole = build::ipv4(PC, SERVER).identification(id).udp(1, 2, vec![0; 2000]);
        build::fragments(&whole, 1400)
    };
    world.up(HOME_A, &datagram(1)[1]);
    swap(&mut world, 1, |config| config.fragments.timeout_ms = 2000);
    world.pass_ms(1900);
    assert_eq!(world.dropped(DropReason::FragmentTimeout), 0);
    world.pass_ms(200);
    assert_eq!(world.dropped(DropReason::FragmentTimeout), 1);
    // A quarter of 256 held fragments, then the least share, which is that of one datagram.
    let held = |world: &mut World, from: u16| {
        let before = world.drops();
        (from..from + 100).for_each(|id| drop(world.up(HOME_A, &datagram(id)[1])));
        100 - (world.drops() - before)
    };
    assert_eq!(held(&mut world, 100), 64);
    world.pass_ms(3000);
    swap(&mut world, 2, |config| config.fragments.percent = 1);
    assert_eq!(held(&mut world, 300), 16);
    world.pass_ms(6000);
    swap(&mut world, 3, |config| config.fragments.percent = 50);
    assert_eq!(held(&mut world, 500), 100);
}

#[test]
fn homes_of_a_group_have_rates_and_shares_of_their_own() {
    let mut world = World::default();
    let mut live = generation(1, |config| {
        config.limits.groups[3] = GroupLimits {
            icmp_errors_per_sec: Some(50),
            fragments_percent: Some(1),
            slow_path_packets_per_sec: Some(10_000),
        };
    });
    let groups = vec![(weir_rules::Prefix::new(HOME_B.to_bits(), 32), 3)];
    let set = weir_rules::RuleSet::new(&[], Vec::new(), groups).unwrap();
    live.rules = Box::new(ActiveRules::new(Arc::new(set)));
    drop(world.engine.setup().swap_live(live));
    for (home, errors, held, queries) in [(HOME_A, 20, 64, 20_000), (HOME_B, 50, 16, 1000)] {
        let expired = || build::ipv4(PC, SERVER).ttl(1).udp(1, 2, b"x");
        let sent = (0..100).filter(|_| !world.up(home, expired()).access.is_empty()).count();
        assert_eq!(sent, errors, "{home}: ICMP errors");
        let before = world.drops();
        for id in 0..100 {
            let whole = build::ipv4(PC, SERVER).identification(id).udp(1, 2, vec![0; 2000]);
            drop(world.up(home, &build::fragments(&whole, 1400)[1]));
        }
        assert_eq!(100 - (world.drops() - before), held, "{home}: fragments that wait");
        world.pass_ms(10_000);
        let ping = |n: u16| build::ipv4(PC, SERVER).icmp_echo_request(n % 100, 1, b"x");
        let passed = (0..25_000).filter(|&n| !world.up(home, ping(n)).internet.is_empty()).count();
        assert!((queries - 40..queries + 200).contains(&passed), "{home}: slow path: {passed}");
    }
}

#[test]
fn established_flow_passes_through_a_change_of_every_setting() {
    let mut world = World::default();
    let packet = || build::ipv4(PC, SERVER).udp(5000, 53, b"x");
    let first = ends(&world.up(HOME_A, packet()).into_internet());
    swap(&mut world, 1, |config| {
        config.nat.flows_max = 10;
        config.nat.ports_per_subscriber = 256;
        config.nat.filtering = weir_nat::Filtering::EndpointIndependent;
        config.nat.pooling = weir_nat::Pooling::Soft;
        config.nat.quarantine_sec = 5;
    });
    assert_eq!(ends(&world.up(HOME_A, packet()).into_internet()), first);
    let answer = build::ipv4("198.51.100.9", dotted(first.0).as_str()).udp(9, first.1, b"y");
    assert_eq!(world.packet(Side::Internet, &answer).access.len(), 1, "any remote may send now");
}

#[test]
fn homes_outside_the_new_prefixes_keep_their_flows_and_begin_no_more() {
    let mut world = World::default();
    let packet = |port| build::ipv4(PC, SERVER).udp(port, 53, b"x");
    assert_eq!(world.up(HOME_A, packet(1)).internet.len(), 1);
    swap(&mut world, 1, |config| config.nat.subscribers = vec!["10.200.0.2/32".parse().unwrap()]);
    assert_eq!(world.up(HOME_A, packet(1)).internet.len(), 1);
    assert!(world.up("10.200.0.3", packet(1)).internet.is_empty());
    assert_eq!(world.up(HOME_B, packet(1)).internet.len(), 1);
    assert_eq!(world.dropped(DropReason::NotSubscriber), 1);
}

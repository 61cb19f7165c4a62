//! Classes of flows: their timers, and that a flow keeps its class.

use std::sync::Arc;

use weir_nat::*;
use weir_rules::{FlowKind, FlowOrigin, Prefix, RuleFilter, RuleSet};

use crate::world::pair::{pair, pair_config, replicate};
use crate::world::*;

fn class(number: u8) -> FlowClass {
    FlowClass::new(number).unwrap()
}

/// Class 1 has short timers, class 2 long ones.
fn with_classes(config: NatConfig) -> NatConfig {
    let short = Timeouts { udp: 20, tcp_established: 30, ..Timeouts::default() };
    let long = Timeouts { udp: 900, ..Timeouts::default() };
    let settings = |timeouts| ClassSettings { timeouts, dscp: None };
    let classes = [(class(1), settings(short)), (class(2), settings(long))].into();
    NatConfig { classes, ..config }
}

/// Gives flows between homes and server `n` class `n`, whichever side begins them.
fn load(world: &mut World) {
    let mut filters = Vec::new();
    for remote in 1..=3 {
        let kinds = [FlowOrigin::Home, FlowOrigin::Internet]
            .into_iter()
            .flat_map(|from| [1, 6, 17].map(|protocol| FlowKind::new(from, protocol).unwrap()))
            .collect();
        let remote_host = Prefix::new(server(remote).address, 32);
        filters.push(RuleFilter { kinds, remote: remote_host, ..RuleFilter::all(remote - 1) });
    }
    let set = RuleSet::new(&filters, vec![RuleAction::Accept; 3], Vec::new()).unwrap();
    let set =
        set.with_policies(&[1, 2, 3].map(|it| (it - 1, FlowPolicy::of_class(class(it as u8)))));
    let rules = Box::new(ActiveRules::new(Arc::new(set)));
    drop(world.nat.admin_mut().swap_rules(rules));
}

fn world() -> World {
    let mut world = World::new(with_classes(config()));
    load(&mut world);
    world
}

/// Returns the remotes of all sessions, with their classes and timers.
fn sessions(world: &World) -> Vec<(Endpoint, u8, u32)> {
    let all = world.list(&SessionFilter::default()).into_iter();
    let mut all: Vec<_> =
        all.map(|it| (it.ipv4().unwrap().remote, it.class.number(), it.timeout_sec)).collect();
    all.sort_by_key(|(remote, ..)| (remote.address, remote.port));
    all
}

#[test]
fn flow_ends_after_the_timer_of_its_class() {
    let mut world = world();
    for remote in 0..=3 {
        world.udp_out(home(1), inside(remote as u16), server(remote)).unwrap();
    }
    let timers: Vec<_> = sessions(&world).iter().map(|&(_, class, sec)| (class, sec)).collect();
    assert_eq!(timers, [(0, 300), (1, 20), (2, 900), (3, 300)], "class 3 has no settings");
    for (wait, left) in [(19, 4), (1, 3), (279, 3), (1, 1), (599, 1), (1, 0)] {
        world.wait_and_collect(wait);
        assert_eq!(world.flows(), left, "after {wait} s more");
    }
}

#[test]
fn established_connection_of_a_class_lives_on_its_packets_alone() {
    let mut world = world();
    let public = world.connect(inside(0), server(1));
    assert_eq!(sessions(&world), [(server(1), 1, 30)]);
    for _ in 0..5 {
        world.wait_and_collect(29);
        world.tcp_back(public, server(1), ACK).unwrap();
        world.wait_and_collect(29);
        world.tcp_out(home(1), inside(0), server(1), ACK).unwrap();
    }
    world.wait(30);
    assert_eq!(world.tcp_back(public, server(1), ACK), Err(Refusal::NoMapping));
}

#[test]
fn each_session_of_a_mapping_has_its_class_also_in_the_place_of_the_first() {
    let mut world = world();
    for remote in [1, 2, 0] {
        world.udp_out(home(1), inside(0), server(remote)).unwrap();
    }
    let expected = [(server(0), 0, 300), (server(1), 1, 20), (server(2), 2, 900)];
    assert_eq!(sessions(&world), expected);
    world.wait_and_collect(20);
    assert_eq!(sessions(&world), [expected[0], expected[2]]);
    world.wait_and_collect(280);
    assert_eq!(sessions(&world), [expected[2]]);
}

#[test]
fn connection_that_is_opened_again_keeps_its_class_when_rules_are_gone() {
    let mut world = world();
    let public = world.connect(inside(0), server(1));
    drop(world.nat.admin_mut().swap_rules(Box::new(ActiveRules::none())));
    world.tcp_out(home(1), inside(0), server(1), FIN_ACK).unwrap();
    world.tcp_back(public, server(1), FIN_ACK).unwrap();
    world.tcp_out(home(1), inside(0), server(1), SYN).unwrap();
    world.tcp_back(public, server(1), SYN_ACK).unwrap();
    world.tcp_out(home(1), inside(0), server(1), ACK).unwrap();
    assert_eq!(sessions(&world), [(server(1), 1, 30)]);
}

#[test]
fn session_that_a_remote_opens_has_the_class_of_the_rule_that_lets_it_in() {
    let mut world = world();
    let public = world.connect(inside(0), server(0));
    world.tcp_back(public, server(1), SYN).unwrap();
    world.tcp_out(home(1), inside(0), server(1), SYN_ACK).unwrap();
    world.tcp_back(public, server(1), ACK).unwrap();
    assert_eq!(sessions(&world)[1], (server(1), 1, 30));
}

#[test]
fn copies_have_the_class_and_keep_it_after_a_take_over() {
    let config = with_classes(pair_config());
    let (mut primary, mut replica) = pair(&config);
    load(&mut primary);
    for remote in [1, 0, 2] {
        primary.udp_out(home(1), inside(0), server(remote)).unwrap();
    }
    primary.connect(inside(1), server(1));
    replicate(&mut primary, &mut replica);
    let expected = sessions(&primary);
    assert_eq!(sessions(&replica), expected);
    let now = replica.now;
    replica.nat.replica_mut().set_owned_lanes(SHARD, 0xff, now);
    assert_eq!(sessions(&replica), expected, "no rule was asked there");
    replica.wait_and_collect(31);
    let left: Vec<_> = sessions(&replica).iter().map(|&(_, class, _)| class).collect();
    assert_eq!(left, [0, 2]);
}

#[test]
fn what_a_class_stands_for_follows_the_settings_at_once() {
    let mut world = world();
    world.udp_out(home(1), inside(0), server(1)).unwrap();
    let mut settings = LiveNatSettings::of(&config()).unwrap();
    world.nat.admin_mut().swap_live(&mut settings);
    assert_eq!(sessions(&world), [(server(1), 1, 300)], "the class is gone, its number stays");
    world.nat.admin_mut().swap_live(&mut settings);
    assert_eq!(sessions(&world), [(server(1), 1, 20)]);
}

#[test]
fn class_with_a_timer_of_0_is_refused() {
    let mut config = with_classes(config());
    config.classes.get_mut(&class(2)).unwrap().timeouts.icmp = 0;
    assert!(LiveNatSettings::of(&config).unwrap_err().to_string().contains("icmp"));
}

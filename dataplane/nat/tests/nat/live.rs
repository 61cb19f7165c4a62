//! Settings that change while flows are live.

use weir_nat::*;

use crate::world::*;

/// Changes the settings of a world that began with `start`; returns what is left for a restart.
fn change(world: &mut World, start: &NatConfig, new: &NatConfig) -> Vec<NeedsRestart> {
    let mut settings = LiveNatSettings::of(new).unwrap();
    let left = settings.fit(&LiveNatSettings::of(start).unwrap());
    world.nat.admin_mut().swap_live(&mut settings);
    left
}

#[test]
fn changed_filtering_decides_about_the_next_packet_of_a_known_mapping() {
    let start = config();
    let mut world = World::new(start.clone());
    let public = world.udp_out(home(1), inside(0), server(0)).unwrap();
    assert_eq!(world.udp_back(public, server(1)), Err(Refusal::Filtered));
    let open = NatConfig { filtering: Filtering::EndpointIndependent, ..start.clone() };
    assert_eq!(change(&mut world, &start, &open), []);
    assert!(world.udp_back(public, server(1)).is_ok());
    assert_eq!(change(&mut world, &start, &start), []);
    assert_eq!(world.udp_back(public, server(2)), Err(Refusal::Filtered));
}

#[test]
fn address_dependent_filtering_comes_back_only_where_addresses_were_counted() {
    let dependent = NatConfig { filtering: Filtering::AddressDependent, ..config() };
    let mut world = World::new(dependent.clone());
    let public = world.udp_out(home(1), inside(0), server(0)).unwrap();
    assert_eq!(change(&mut world, &dependent, &config()), []);
    // A further session while the filtering is another one.
    world.udp_out(home(1), inside(0), server(1)).unwrap();
    let other_port = Endpoint::new(server(1).address, 7);
    assert_eq!(world.udp_back(public, other_port), Err(Refusal::Filtered));
    assert_eq!(change(&mut world, &dependent, &dependent), []);
    assert!(world.udp_back(public, other_port).is_ok());
    world.wait_and_collect(1000);
    world.wait_and_collect(1000);
    world.assert_empty();

    let mut world = World::new(config());
    let left = change(&mut world, &config(), &dependent);
    assert_eq!(left, [NeedsRestart::AddressDependent]);
    let public = world.udp_out(home(1), inside(0), server(0)).unwrap();
    let other_port = Endpoint::new(server(0).address, 7);
    assert_eq!(world.udp_back(public, other_port), Err(Refusal::Filtered), "as at the start");
}

#[test]
fn lower_timer_ends_idle_flows_and_a_higher_one_keeps_them() {
    let start = config();
    let mut world = World::new(start.clone());
    world.udp_out(home(1), inside(0), server(0)).unwrap();
    world.wait_and_collect(100);
    assert_eq!(world.flows(), 1);
    let short = Timeouts { udp: 60, ..Timeouts::default() };
    change(&mut world, &start, &NatConfig { timeouts: short, ..start.clone() });
    world.wait_and_collect(0);
    assert_eq!(world.flows(), 0);
    let long = Timeouts { udp: 600, ..Timeouts::default() };
    change(&mut world, &start, &NatConfig { timeouts: long, ..start.clone() });
    world.udp_out(home(1), inside(0), server(0)).unwrap();
    world.wait_and_collect(500);
    assert_eq!(world.flows(), 1);
}

#[test]
fn limits_of_a_home_that_is_known_follow_the_change() {
    let start = config();
    let mut world = World::new(start.clone());
    for n in 0..4 {
        world.udp_out(home(1), inside(n), server(0)).unwrap();
    }
    let few = NatConfig { flows_per_subscriber: 4, ..start.clone() };
    change(&mut world, &start, &few);
    assert_eq!(world.udp_out(home(1), inside(4), server(0)), Err(Refusal::FlowsPerSubscriber));
    assert_eq!(world.flows(), 4, "flows beyond the limit stay");
    let no_sessions = NatConfig { sessions_per_subscriber: 0, ..start.clone() };
    change(&mut world, &start, &no_sessions);
    assert_eq!(world.udp_out(home(1), inside(0), server(1)), Err(Refusal::SessionsPerSubscriber));
    let slow = NatConfig { new_flows_per_sec: 2, new_flows_burst: 3, ..start.clone() };
    change(&mut world, &start, &slow);
    let begun = |world: &mut World| {
        (10..20).filter(|&n| world.udp_out(home(1), inside(n), server(0)).is_ok()).count()
    };
    // A home keeps the tokens of the second.
    world.wait(1);
    assert_eq!(begun(&mut world), 3, "the burst");
    world.wait(1);
    let other = |n: u16| inside(100 + n);
    let next = (0..10).filter(|&n| world.udp_out(home(1), other(n), server(0)).is_ok()).count();
    assert_eq!(next, 2, "the rate");
    change(&mut world, &start, &start);
    for n in 200..250 {
        world.udp_out(home(1), inside(n), server(0)).unwrap();
    }
}

#[test]
fn quota_is_lowered_at_once_and_raised_up_to_that_of_the_start() {
    let start = NatConfig { ports_per_subscriber: 512, ..config() };
    let mut world = World::new(start.clone());
    let begin = |world: &mut World, from: u16| {
        (from..from + 1000)
            .filter(|&n| world.udp_out(home(1), inside(n), server(0)).is_ok())
            .count()
    };
    assert_eq!(begin(&mut world, 0), 512);
    let low = NatConfig { ports_per_subscriber: 256, ..start.clone() };
    assert_eq!(change(&mut world, &start, &low), []);
    assert_eq!(world.flows(), 512, "ports beyond the quota stay");
    let mut second = World::new(start.clone());
    change(&mut second, &start, &low);
    assert_eq!(begin(&mut second, 0), 256);
    change(&mut second, &start, &start);
    assert_eq!(begin(&mut second, 1000), 256, "the other half of the first quota");
    let high = NatConfig { ports_per_subscriber: 1024, ..start.clone() };
    let left = change(&mut second, &start, &high);
    assert_eq!(left, [NeedsRestart::PortsPerSubscriber { built_for: 512 }]);
    assert_eq!(left[0].key(), "ports_per_subscriber");
    assert_eq!(begin(&mut second, 2000), 0);
}

#[test]
fn flows_of_a_worker_are_limited_up_to_what_the_tables_were_built_for() {
    let start = NatConfig { flows_max: 100, ..config() };
    let mut world = World::new(start.clone());
    let begin = |world: &mut World, from: u16| {
        (from..from + 200).filter(|&n| world.udp_out(home(1), inside(n), server(0)).is_ok()).count()
    };
    let low = NatConfig { flows_max: 10, ..start.clone() };
    assert_eq!(change(&mut world, &start, &low), []);
    assert_eq!(begin(&mut world, 0), 10);
    assert_eq!(world.nat.admin().gauges().flows_max, 10);
    let high = NatConfig { flows_max: 1000, ..start.clone() };
    let left = change(&mut world, &start, &high);
    assert_eq!(left, [NeedsRestart::FlowsMax { built_for: 100 }]);
    assert_eq!(begin(&mut world, 1000), 90);
}

#[test]
fn pace_of_new_homes_changes_for_shards_that_are_known() {
    let start = NatConfig { new_homes_per_sec: Some(u32::MAX), ..config() };
    let mut world = World::new(start.clone());
    let come = |world: &mut World, from: u32| {
        (from..from + 200).filter(|&n| world.udp_out(home(n), inside(0), server(0)).is_ok()).count()
    };
    change(&mut world, &start, &NatConfig { new_homes_per_sec: Some(1), ..start.clone() });
    assert_eq!(come(&mut world, 0), 128, "half of `subscribers_max` at once");
    world.wait(3);
    assert_eq!(come(&mut world, 1000), 3);
}

#[test]
fn settings_that_cannot_work_are_refused_with_their_key() {
    let wrong = NatConfig { new_flows_per_sec: 0, ..config() };
    let text = LiveNatSettings::of(&wrong).unwrap_err().to_string();
    assert!(text.contains("`new_flows_per_sec` is 0"), "{text}");
}

/// Puts the homes of 10.200.0.0/31, homes 0 and 1, into group 3.
fn group_two_homes(world: &mut World) {
    let groups = vec![(weir_rules::Prefix::new(address("10.200.0.0"), 31), 3)];
    let set = weir_rules::RuleSet::new(&[], Vec::new(), groups).unwrap();
    let rules = Box::new(ActiveRules::new(std::sync::Arc::new(set)));
    drop(world.nat.admin_mut().swap_rules(rules));
}

/// Returns a configuration in which a home of group 3 may have this.
fn with_group(change: impl FnOnce(&mut HomeAllowance)) -> NatConfig {
    let all = config();
    let mut allowance = HomeAllowance {
        ports: all.ports_per_subscriber,
        flows: all.flows_per_subscriber,
        sessions: all.sessions_per_subscriber,
        new_flows_per_sec: all.new_flows_per_sec,
        new_flows_burst: all.new_flows_burst,
    };
    change(&mut allowance);
    NatConfig { group_allowances: [(3, allowance)].into(), ..all }
}

#[test]
fn home_of_a_group_has_the_limits_of_its_group() {
    let begin = |world: &mut World, of: u32| {
        (0..3000).filter(|&n| world.udp_out(home(of), inside(n), server(0)).is_ok()).count()
    };
    let spray = |world: &mut World, of: u32| {
        (1..3000).filter(|&n| world.udp_out(home(of), inside(0), server(n)).is_ok()).count()
    };
    type Limit = fn(&mut HomeAllowance);
    let cases: [(Limit, usize, usize, Refusal); 4] = [
        (|it| it.ports = 256, 256, 2999, Refusal::PortsExhausted),
        (|it| it.flows = 100, 100, 0, Refusal::FlowsPerSubscriber),
        (|it| it.sessions = 50, 2048, 50, Refusal::PortsExhausted),
        (|it| (it.new_flows_per_sec, it.new_flows_burst) = (1, 70), 70, 0, Refusal::NewFlows),
    ];
    for (limit, mappings, sessions, refusal) in cases {
        let mut world = World::new(with_group(limit));
        group_two_homes(&mut world);
        assert_eq!((begin(&mut world, 1), spray(&mut world, 1)), (mappings, sessions));
        assert_eq!(world.udp_out(home(1), inside(5000), server(0)), Err(refusal));
        assert_eq!((begin(&mut world, 2), spray(&mut world, 2)), (2048, 2999), "another home");
    }
}

#[test]
fn home_that_changes_its_group_has_the_new_limits_from_the_next_second_on() {
    let start = with_group(|it| (it.flows, it.new_flows_burst) = (10, 5));
    let mut world = World::new(start.clone());
    let begin = |world: &mut World, from: u16| {
        (from..from + 100).filter(|&n| world.udp_out(home(1), inside(n), server(0)).is_ok()).count()
    };
    assert_eq!(begin(&mut world, 0), 100);
    group_two_homes(&mut world);
    world.wait(1);
    assert_eq!(begin(&mut world, 100), 0, "it has more flows than its group may");
    drop(
        world.nat.admin_mut().swap_rules(Box::new(ActiveRules::new(std::sync::Arc::new(
            weir_rules::RuleSet::empty(),
        )))),
    );
    world.wait(1);
    assert_eq!(begin(&mut world, 200), 100);
}

#[test]
fn quota_of_a_group_is_raised_up_to_the_largest_of_the_start() {
    let start = NatConfig { flows_max: 40_000, ..with_group(|it| it.ports = 4096) };
    let mut world = World::new(start.clone());
    group_two_homes(&mut world);
    let begin = |world: &mut World, of: u32| {
        (0..9000).filter(|&n| world.udp_out(home(of), inside(n), server(0)).is_ok()).count()
    };
    assert_eq!([begin(&mut world, 1), begin(&mut world, 2)], [4096, 2048]);
    let all = NatConfig { ports_per_subscriber: 4096, ..start.clone() };
    assert_eq!(change(&mut world, &start, &all), []);
    assert_eq!(begin(&mut world, 3), 4096);
    let left = change(&mut world, &start, &with_group(|it| it.ports = 8192));
    assert_eq!(left, [NeedsRestart::PortsPerSubscriber { built_for: 4096 }]);
}

#[test]
fn refusals_are_counted_for_each_home_while_it_holds_state() {
    let start = with_group(|it| it.flows = 2);
    let mut world = World::new(start);
    group_two_homes(&mut world);
    for n in 0..5 {
        if let Err(refusal) = world.udp_out(home(1), inside(n), server(0)) {
            world.nat.note_refused(refusal, &home(1), Protocol::Udp);
        }
        world.udp_out(home(2), inside(n), server(0)).unwrap();
    }
    let refused = |world: &World, of: u32| -> Vec<u32> {
        let views = world.nat.admin().subscriber(home(of).outer);
        views.iter().map(|view| view.refused_total).collect()
    };
    assert_eq!((refused(&world, 1), refused(&world, 2)), (vec![3], vec![0]));
    world.wait_and_collect(1000);
    world.wait_and_collect(1000);
    world.udp_out(home(1), inside(0), server(0)).unwrap();
    assert_eq!(refused(&world, 1), [0]);
}

//! Settings that change while flows are live.

mod world;

use weir_nat::*;
use world::*;

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

//! Timers, quarantine, and everything coming back.

use weir_nat::*;

use crate::world::*;

#[test]
fn u5_a_udp_mapping_lives_five_minutes_to_the_second() {
    let mut world = World::new(config());
    let public = world.udp_out(home(1), inside(0), server(0)).unwrap();
    world.wait(299);
    world.nat.expire(world.now, usize::MAX, usize::MAX);
    assert!(world.udp_back(public, server(0)).is_ok());
    world.wait(1);
    assert_eq!(world.udp_back(public, server(0)), Err(Refusal::NoMapping));
}

#[test]
fn u6_outbound_refreshes_inbound_only_if_configured() {
    for udp_inbound_refresh in [false, true] {
        let mut world = World::new(NatConfig { udp_inbound_refresh, ..config() });
        let public = world.udp_out(home(1), inside(0), server(0)).unwrap();
        world.wait(200);
        world.udp_out(home(1), inside(0), server(0)).unwrap();
        world.wait(200);
        assert!(world.udp_back(public, server(0)).is_ok(), "outbound has refreshed");
        world.wait_and_collect(200);
        assert_eq!(world.udp_back(public, server(0)).is_ok(), udp_inbound_refresh);
    }
}

#[test]
fn u11_the_fate_of_a_packet_does_not_depend_on_the_walk() {
    for is_walking in [false, true] {
        let mut world = World::new(config());
        let public = world.udp_out(home(1), inside(0), server(0)).unwrap();
        world.udp_out(home(1), inside(0), server(1)).unwrap();
        world.wait(200);
        world.udp_out(home(1), inside(0), server(0)).unwrap();
        world.wait(100);
        if is_walking {
            world.nat.expire(world.now, usize::MAX, usize::MAX);
        }
        assert!(world.udp_back(public, server(0)).is_ok());
        assert_eq!(world.udp_back(public, server(1)), Err(Refusal::Filtered));
    }
}

#[test]
fn udp_stream_timer_starts_when_both_sides_have_spoken() {
    let mut world = World::new(NatConfig { timeouts: Timeouts::carrier(), ..config() });
    let public = world.udp_out(home(1), inside(0), server(0)).unwrap();
    world.udp_out(home(1), inside(1), server(0)).unwrap();
    world.udp_back(public, server(0)).unwrap();
    world.wait_and_collect(30);
    assert_eq!(world.flows(), 1);
    world.wait_and_collect(30);
    assert_eq!(world.flows(), 0);
}

#[test]
fn t5_established_connections_live_2_h_4_min_and_half_open_ones_4_min() {
    let mut world = World::new(config());
    let public = world.connect(inside(0), server(0));
    world.tcp_out(home(1), inside(1), server(0), SYN).unwrap();
    world.wait_and_collect(239);
    assert_eq!(world.flows(), 2);
    world.wait_and_collect(1);
    assert_eq!(world.flows(), 1);
    world.wait_and_collect(7199);
    assert!(world.tcp_back(public, server(0), ACK).is_ok(), "and either direction refreshes");
    world.wait_and_collect(7439);
    assert_eq!(world.tcp_out(home(1), inside(0), server(0), ACK), Ok(public));
    world.wait(7440);
    assert_eq!(world.tcp_out(home(1), inside(0), server(0), ACK), Err(Refusal::TcpNotSyn));
}

#[test]
fn b2_a_rst_leaves_the_session_for_four_minutes() {
    let mut world = World::new(config());
    let public = world.tcp_out(home(1), inside(0), server(0), SYN).unwrap();
    assert!(world.tcp_back(public, server(0), RST).is_ok(), "the connection is refused");
    world.wait_and_collect(239);
    assert!(world.tcp_back(public, server(0), RST).is_ok(), "still translated");
    world.wait_and_collect(240);
    assert_eq!(world.tcp_back(public, server(0), RST), Err(Refusal::NoMapping));
}

#[test]
fn b2_a_rst_of_a_long_idle_connection_still_leaves_it_four_minutes() {
    let mut world = World::new(config());
    let public = world.connect(inside(0), server(0));
    world.wait_and_collect(5000);
    world.tcp_out(home(1), inside(0), server(0), RST).unwrap();
    world.wait_and_collect(239);
    assert!(world.tcp_back(public, server(0), ACK).is_ok());
}

/// Only the remote should know the sequence numbers, and weir does not look at them: a RST of the
/// remote alone may be forged. An idle connection lives on until its next keepalive.
#[test]
fn b2_a_rst_of_the_remote_alone_leaves_an_idle_connection_half_an_hour() {
    let mut world = World::new(config());
    let public = world.connect(inside(0), server(0));
    for _ in 0..3 {
        assert!(world.tcp_back(public, server(0), RST).is_ok());
        assert!(world.tcp_back(public, server(0), SYN).is_ok(), "nor does a forged SYN count");
        world.wait_and_collect(1799);
        assert_eq!(world.tcp_out(home(1), inside(0), server(0), ACK), Ok(public));
        assert!(world.tcp_back(public, server(0), ACK).is_ok());
    }
    // The keepalive has undone the reset: the full time of an established connection.
    world.wait_and_collect(7439);
    assert!(world.tcp_back(public, server(0), RST).is_ok());
    world.wait_and_collect(1800);
    assert_eq!(world.flows(), 0, "a connection that neither side continues ends");
}

/// The home's own RST is believed, whenever it comes: its four minutes begin with it.
#[test]
fn b2_a_rst_of_the_home_after_one_of_the_remote_begins_the_four_minutes() {
    let mut world = World::new(config());
    let public = world.connect(inside(0), server(0));
    world.tcp_back(public, server(0), RST).unwrap();
    world.wait_and_collect(1000);
    world.tcp_out(home(1), inside(0), server(0), RST).unwrap();
    world.wait_and_collect(239);
    assert!(world.tcp_back(public, server(0), RST).is_ok(), "still translated");
    world.wait_and_collect(240);
    assert_eq!(world.flows(), 0);
}

#[test]
fn a_host_that_refuses_a_remote_does_not_keep_its_session_alive() {
    let filtering = Filtering::EndpointIndependent;
    let mut world = World::new(NatConfig { filtering, ..config() });
    let public = world.connect(inside(0), server(0));
    world.tcp_back(public, server(1), SYN).unwrap();
    for _ in 0..3 {
        world.tcp_out(home(1), inside(0), server(1), RST).unwrap();
        world.wait_and_collect(79);
        world.tcp_back(public, server(1), SYN).unwrap();
    }
    world.wait_and_collect(3);
    assert_eq!(world.flows(), 1, "240 s after its first SYN the stranger is gone");
}

#[test]
fn t2_half_close_carries_data_for_hours() {
    let mut world = World::new(config());
    let public = world.connect(inside(0), server(0));
    world.tcp_out(home(1), inside(0), server(0), FIN_ACK).unwrap();
    for _ in 0..5 {
        world.wait_and_collect(3600);
        assert!(world.tcp_back(public, server(0), ACK).is_ok());
    }
}

#[test]
fn i2_a_query_lives_a_minute() {
    let mut world = World::new(config());
    let public = world.out(home(1), inside(0), at("192.0.2.1:0"), Protocol::Icmp, 0).unwrap();
    world.wait(59);
    assert!(world.back(public, at("192.0.2.1:0"), Protocol::Icmp, 0).is_ok());
    world.wait(1);
    assert!(world.back(public, at("192.0.2.1:0"), Protocol::Icmp, 0).is_err());
}

#[test]
fn c8_a_port_rests_two_minutes_and_is_then_free_again() {
    let mut world = World::new(config());
    let public = world.udp_out(home(1), inside(0), server(0)).unwrap();
    world.wait_and_collect(300);
    assert_eq!((world.flows(), world.nat.admin().gauges().quarantined), (0, 1));
    assert_eq!(world.udp_back(public, server(0)), Err(Refusal::NoMapping));
    assert_eq!(world.nat.admin().shard_gauges(SHARD).ports_used, 1);
    world.wait_and_collect(119);
    assert_eq!(world.nat.admin().gauges().quarantined, 1);
    world.wait_and_collect(1);
    world.assert_empty();
    let kinds: Vec<_> = world.events().iter().map(|event| event.kind).collect();
    let [BlockEventKind::Allocated(given), BlockEventKind::Released(back)] = kinds[..] else {
        panic!("{kinds:?}")
    };
    assert_eq!(given, back);
}

#[test]
fn c8_a_port_in_quarantine_is_not_given() {
    // A quota of 64 ports, all taken, all ended: the quarantine holds them, then they are free
    // again.
    let mut world = World::new(NatConfig { port_block: 64, ports_per_subscriber: 64, ..config() });
    for n in 0..64 {
        world.udp_out(home(1), inside(n), server(0)).unwrap();
    }
    world.wait_and_collect(300);
    assert_eq!(world.udp_out(home(1), inside(99), server(0)), Err(Refusal::PortsExhausted));
    world.wait_and_collect(120);
    assert!(world.udp_out(home(1), inside(99), server(0)).is_ok());
}

fn close_cleanly(world: &mut World, public: Endpoint, inside: Endpoint, remote: Endpoint) {
    world.tcp_out(home(1), inside, remote, FIN_ACK).unwrap();
    world.tcp_back(public, remote, FIN_ACK).unwrap();
    world.tcp_out(home(1), inside, remote, ACK).unwrap();
}

#[test]
fn c8_tcp_closed_by_both_sides_needs_no_quarantine() {
    let mut world = World::new(config());
    let public = world.connect(inside(0), server(0));
    close_cleanly(&mut world, public, inside(0), server(0));
    world.wait_and_collect(239);
    assert_eq!(world.flows(), 1, "TIME_WAIT passes first");
    world.wait_and_collect(1);
    world.assert_empty();
}

#[test]
fn c8_ports_rest_while_a_copy_is_behind() {
    let mut world = World::new(config());
    let public = world.connect(inside(0), server(0));
    close_cleanly(&mut world, public, inside(0), server(0));
    world.udp_out(home(1), inside(1), server(0)).unwrap();
    world.wait_and_collect(200);
    world.nat.replica_mut().set_copies_behind(SHARD, true, world.now);
    world.wait_and_collect(100);
    assert_eq!((world.flows(), world.nat.admin().gauges().quarantined), (0, 2));
    world.wait_and_collect(300);
    world.nat.replica_mut().set_copies_behind(SHARD, true, world.now);
    assert_eq!(world.nat.admin().gauges().quarantined, 2);
    world.nat.replica_mut().set_copies_behind(SHARD, false, world.now);
    world.wait_and_collect(0);
    world.assert_empty();
}

#[test]
fn c8_ports_do_not_rest_permanently_for_a_copy() {
    let mut world = World::new(config());
    world.udp_out(home(1), inside(0), server(0)).unwrap();
    world.nat.replica_mut().set_copies_behind(SHARD, true, world.now);
    world.wait_and_collect(300);
    world.wait_and_collect(299);
    assert_eq!(world.nat.admin().gauges().quarantined, 1);
    world.nat.replica_mut().set_copies_behind(SHARD, true, world.now);
    world.wait_and_collect(1);
    world.assert_empty();
}

#[test]
fn c8_ports_that_rest_for_a_copy_do_not_fill_the_table() {
    let mut world = World::new(NatConfig { flows_max: 1024, ..config() });
    world.nat.replica_mut().set_copies_behind(SHARD, true, world.now);
    for n in 0..768 {
        world.udp_out(home(1), inside(n), server(0)).unwrap();
    }
    world.wait_and_collect(300);
    world.wait_and_collect(120);
    assert_eq!(world.nat.admin().gauges().quarantined, 0);
}

#[test]
fn c8_one_unclean_session_of_a_mapping_is_enough_for_quarantine() {
    let mut world = World::new(config());
    let public = world.connect(inside(0), server(0));
    assert_eq!(world.connect(inside(0), server(1)), public);
    world.tcp_out(home(1), inside(0), server(1), RST).unwrap();
    close_cleanly(&mut world, public, inside(0), server(0));
    world.wait_and_collect(240);
    assert_eq!(world.nat.admin().gauges().quarantined, 1);
    world.wait_and_collect(120);
    world.assert_empty();
}

#[test]
fn c8_a_session_that_took_the_first_place_may_still_close_cleanly() {
    let mut world = World::new(config());
    let public = world.connect(inside(0), server(0));
    close_cleanly(&mut world, public, inside(0), server(0));
    assert_eq!(world.connect(inside(0), server(1)), public);
    world.wait_and_collect(240);
    assert_eq!(world.flows(), 1);
    close_cleanly(&mut world, public, inside(0), server(1));
    world.wait_and_collect(240);
    world.assert_empty();
}

#[test]
fn t2_a_port_in_time_wait_can_be_connected_again() {
    let mut world = World::new(config());
    let public = world.connect(inside(0), server(0));
    close_cleanly(&mut world, public, inside(0), server(0));
    assert_eq!(world.connect(inside(0), server(0)), public);
    world.wait_and_collect(7000);
    assert_eq!(world.tcp_out(home(1), inside(0), server(0), ACK), Ok(public));
}

#[test]
fn a_further_session_takes_the_place_of_the_first() {
    let mut world = World::new(config());
    let public = world.udp_out(home(1), inside(0), server(0)).unwrap();
    for n in 1..10 {
        world.wait(50);
        world.udp_out(home(1), inside(0), server(n)).unwrap();
        world.nat.expire(world.now, usize::MAX, usize::MAX);
    }
    // 450 s: sessions 4 to 9 are younger than 300 s.
    assert_eq!(world.flows(), 6);
    for n in 0..10 {
        let verdict = world.udp_back(public, server(n));
        assert_eq!(verdict.err(), (n < 4).then_some(Refusal::Filtered), "server {n}");
    }
    world.wait_and_collect(300);
    world.wait_and_collect(0);
    assert_eq!((world.flows(), world.nat.admin().gauges().quarantined), (0, 1));
}

#[test]
fn a_mapping_that_ran_out_serves_its_inside_endpoint_again() {
    let mut world = World::new(config());
    let public = world.udp_out(home(1), inside(0), server(0)).unwrap();
    world.wait(1000);
    assert_eq!(world.udp_out(home(1), inside(0), server(1)), Ok(public));
    assert_eq!(world.flows(), 1);
    assert_eq!(world.udp_back(public, server(0)), Err(Refusal::Filtered));
    assert!(world.udp_back(public, server(1)).is_ok());
}

#[test]
fn the_walk_is_bounded_and_gets_everywhere() {
    let mut world = World::new(NatConfig { quarantine_sec: 0, ..config() });
    for n in 0..1000 {
        world.udp_out(home(1), inside(n), server(0)).unwrap();
        world.udp_out(home(1), inside(n), server(1)).unwrap();
    }
    world.wait(300);
    let mut rounds = 0;
    while world.flows() > 0 {
        let before = world.flows();
        world.nat.expire(world.now, 10, usize::MAX);
        assert!(before - world.flows() <= 20, "10 slots of each table");
        rounds += 1;
        assert!(rounds < 10_000);
    }
    world.assert_empty();
    assert_eq!(world.nat.admin().gauges().flow_expired_total, 2000);
}

/// However many flows run out at once, no more mappings end than the limit and one step of the
/// walk, 256 slots.
#[test]
fn no_sweep_ends_more_than_its_limit() {
    let mut world = World::new(NatConfig { quarantine_sec: 0, ..config() });
    for n in 0..1000 {
        world.udp_out(home(1), inside(n), server(0)).unwrap();
    }
    world.wait(300);
    let mut slots = 0;
    while world.flows() > 0 {
        let before = world.flows();
        let seen = world.nat.expire(world.now, 100_000, 10);
        let ended = before - world.flows();
        assert!((1..=10 + 256).contains(&ended), "{ended} ends");
        assert!(seen < 100_000, "slots that were not reached are not counted as seen");
        slots += seen;
    }
    assert!(slots >= 1000, "{slots} slots seen");
    world.assert_empty();
}

#[test]
fn events_name_the_home_of_each_port_block() {
    let mut world = World::new(config());
    let keyed = Home { gre_key: Some(5), ..home(1) };
    let public = world.udp_out(keyed, inside(0), server(0)).unwrap();
    let events = world.events();
    let [event] = events[..] else { panic!("{events:?}") };
    let BlockEventKind::Allocated(block) = event.kind else { panic!("{event:?}") };
    assert_eq!((event.shard, event.index), (ShardId(11), 1));
    assert_eq!((block.subscriber, block.public_address), (home(1).outer.into(), public.address));
    assert_eq!(block.gre_key, None, "a key that is only echoed is not logged");
    assert!((block.port_first..=block.port_last).contains(&public.port));
    assert_eq!(block.port_last - block.port_first, 255);
    let lane = u32::from(public.port) / 256 % 8;
    assert_eq!(u32::from(event.lane), lane, "the lane of the block's number");
    assert_eq!(world.nat.admin().events_lost(), 0);
}

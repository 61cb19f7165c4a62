//! Without translation: the firewall alone, on the same state.

mod world;

use weir_nat::*;
use world::*;

fn firewall() -> World {
    World::new(NatConfig { enabled: false, ..config() })
}

fn host(n: u32) -> Endpoint {
    Endpoint::new(address("203.0.113.0") + n, 5000)
}

#[test]
fn the_inside_endpoint_is_the_public_one() {
    let mut world = firewall();
    assert_eq!(world.tcp_out(home(1), host(1), server(0), SYN), Ok(host(1)));
    assert_eq!(world.tcp_back(host(1), server(0), SYN_ACK).unwrap().home, home(1));
    assert_eq!(world.tcp_back(host(1), server(1), SYN), Err(Refusal::Filtered));
    assert_eq!(world.tcp_back(host(2), server(0), SYN), Err(Refusal::NoMapping));
    assert_eq!(world.nat.subscriber(home(1).outer)[0].public_address, None);
}

#[test]
fn the_inside_address_must_be_the_shards() {
    let mut world = firewall();
    for foreign in ["192.168.1.1:5000", "198.51.100.1:5000"] {
        assert_eq!(world.udp_out(home(1), at(foreign), server(0)), Err(Refusal::InsideNotPublic));
    }
}

#[test]
fn two_homes_cannot_hold_one_endpoint() {
    let mut world = firewall();
    world.udp_out(home(1), host(1), server(0)).unwrap();
    assert_eq!(world.udp_out(home(2), host(1), server(0)), Err(Refusal::AddressConflict));
    // Another protocol is another endpoint; one that ran out is free, collected or not.
    world.tcp_out(home(2), host(1), server(0), SYN).unwrap();
    world.wait(300);
    assert_eq!(world.udp_out(home(2), host(1), server(0)), Ok(host(1)));
    assert_eq!(world.udp_back(host(1), server(0)).unwrap().home, home(2));
}

#[test]
fn nothing_is_quarantined_and_no_block_is_opened() {
    let mut world = firewall();
    for n in 0..4 {
        world.udp_out(home(n), host(n), server(0)).unwrap();
    }
    assert_eq!(world.nat.gauges().subscribers, 4);
    world.wait_and_collect(300);
    world.assert_empty();
    assert_eq!(world.events(), []);
}

#[test]
fn a_flush_ends_the_homes_flows_only() {
    let mut world = firewall();
    for n in 0..4 {
        world.udp_out(home(n), host(n), server(0)).unwrap();
        world.udp_out(home(n), host(n), server(1)).unwrap();
    }
    assert_eq!(world.nat.flush_subscriber(home(2).outer, world.now), 1);
    assert_eq!(world.flows(), 6);
    assert_eq!(world.udp_back(host(2), server(0)), Err(Refusal::NoMapping));
}

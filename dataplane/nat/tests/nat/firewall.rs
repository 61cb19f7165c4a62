//! Without translation: the firewall alone, on the same state.

use weir_nat::*;

use crate::world::*;

fn firewall() -> World {
    World::new(NatConfig { enabled: false, ..config() })
}

fn host(n: u32) -> Endpoint {
    Endpoint::new(address("203.0.113.0") + n, 5000)
}

/// Returns the addresses that the log reports as given or taken back.
fn blocks(world: &mut World) -> Vec<HomeBlock> {
    let block = |event: BlockEvent| match event.kind {
        BlockEventKind::Allocated(block) | BlockEventKind::Released(block) => block,
        other => panic!("{other:?}"),
    };
    world.events().into_iter().map(block).collect()
}

#[test]
fn the_inside_endpoint_is_the_public_one() {
    let mut world = firewall();
    assert_eq!(world.tcp_out(home(1), host(1), server(0), SYN), Ok(host(1)));
    assert_eq!(world.tcp_back(host(1), server(0), SYN_ACK).unwrap().home, home(1));
    assert_eq!(world.tcp_back(host(1), server(1), SYN), Err(Refusal::Filtered));
    assert_eq!(world.tcp_back(host(2), server(0), SYN), Err(Refusal::NoMapping));
    assert_eq!(world.nat.admin().subscriber(home(1).outer)[0].public_address, None);
}

#[test]
fn the_inside_address_must_belong_to_the_shard() {
    let mut world = firewall();
    for foreign in ["192.168.1.1:5000", "198.51.100.1:5000"] {
        assert_eq!(world.udp_out(home(1), at(foreign), server(0)), Err(Refusal::InsideNotPublic));
    }
}

/// Returns the n-th host on another port.
fn other_port(n: u32, port: u16) -> Endpoint {
    Endpoint { port, ..host(n) }
}

#[test]
fn an_address_belongs_to_the_home_that_opened_its_first_flow() {
    let mut world = firewall();
    world.udp_out(home(1), host(1), server(0)).unwrap();
    // Another home is refused its endpoint, and another port, protocol or server.
    let refused = Err(Refusal::AddressConflict);
    for inside in [host(1), other_port(1, 5001)] {
        assert_eq!(world.udp_out(home(2), inside, server(1)), refused);
        assert_eq!(world.tcp_out(home(2), inside, server(1), SYN), refused);
        assert_eq!(world.out(home(2), inside, server(1), Protocol::Icmp, 0), refused);
    }
    assert_eq!(world.nat.admin().gauges().subscribers, 1, "a refused home holds nothing");
    // The owner goes on, and may have more addresses.
    assert_eq!(
        world.tcp_out(home(1), other_port(1, 5001), server(1), SYN).map(|it| it.port),
        Ok(5001)
    );
    assert_eq!(world.udp_out(home(1), host(3), server(0)), Ok(host(3)));
    assert_eq!(world.udp_out(home(2), host(3), server(0)), refused);
    assert_eq!(world.udp_out(home(2), host(2), server(0)), Ok(host(2)));
}

#[test]
fn an_address_stays_with_its_home_for_quarantine_sec_after_its_last_flow() {
    let mut world = firewall();
    world.udp_out(home(1), host(1), server(0)).unwrap();
    world.tcp_out(home(1), host(1), server(0), SYN).unwrap();
    world.wait_and_collect(299);
    assert_eq!(world.flows(), 1, "UDP is left");
    world.wait_and_collect(1);
    assert_eq!(world.flows(), 0);
    world.wait_and_collect(119);
    assert_eq!(world.udp_out(home(2), host(1), server(0)), Err(Refusal::AddressConflict));
    // The owner comes back: its time begins again with the end of that flow.
    world.udp_out(home(1), host(1), server(0)).unwrap();
    world.wait_and_collect(300);
    world.wait_and_collect(119);
    assert_eq!(world.udp_out(home(2), host(1), server(0)), Err(Refusal::AddressConflict));
    world.wait_and_collect(1);
    assert_eq!(world.udp_out(home(2), host(1), server(0)), Ok(host(1)));
    assert_eq!(world.udp_back(host(1), server(0)).unwrap().home, home(2));
    assert_eq!(world.udp_out(home(1), host(1), server(0)), Err(Refusal::AddressConflict));
}

#[test]
fn the_log_says_which_home_had_an_address() {
    use BlockEventKind::{Allocated, Released};
    let mut world = firewall();
    let block = |n: u32| HomeBlock {
        subscriber: home(n).outer.into(),
        gre_key: None,
        public_address: host(1).address,
        port_first: 0,
        port_last: u16::MAX,
    };
    let event = |kind: fn(HomeBlock) -> BlockEventKind, n: u32, index| BlockEvent {
        shard: ShardId(11),
        lane: 0,
        epoch: Epoch(0),
        index,
        kind: kind(block(n)),
    };
    world.udp_out(home(1), host(1), server(0)).unwrap();
    world.udp_out(home(1), other_port(1, 9), server(0)).unwrap();
    world.udp_out(home(2), host(1), server(0)).unwrap_err();
    assert_eq!(world.events(), [event(Allocated, 1, 1)]);
    world.wait_and_collect(300);
    assert_eq!(world.events(), []);
    world.wait_and_collect(120);
    assert_eq!(world.events(), [event(Released, 1, 2)]);
    world.udp_out(home(2), host(1), server(0)).unwrap();
    assert_eq!(world.events(), [event(Allocated, 2, 3)]);
    world.wait_and_collect(10_000);
    world.wait_and_collect(120);
    assert_eq!(world.events(), [event(Released, 2, 4)]);
}

#[test]
fn homes_told_apart_by_key_do_not_share_an_address() {
    let config = NatConfig { enabled: false, gre_key_identifies_home: true, ..config() };
    let keyed = |key| Home { gre_key: Some(key), ..home(1) };
    let mut world = World::new(config);
    world.udp_out(keyed(1), host(1), server(0)).unwrap();
    let refused = Err(Refusal::AddressConflict);
    assert_eq!(world.udp_out(keyed(2), other_port(1, 9), server(0)), refused);
    assert_eq!(world.udp_out(home(1), other_port(1, 9), server(0)), refused);
    assert_eq!(blocks(&mut world)[0].gre_key, Some(1));
    // Without `gre_key_identifies_home` a key is only echoed.
    let mut world = firewall();
    world.udp_out(keyed(1), host(1), server(0)).unwrap();
    assert!(world.udp_out(keyed(2), other_port(1, 9), server(0)).is_ok());
}

/// A home owns an address only after it has opened a flow from it: a packet refused for another
/// reason claims nothing.
#[test]
fn a_refused_packet_owns_no_address() {
    let mut world = World::new(NatConfig { enabled: false, flows_max: 1, ..config() });
    world.udp_out(home(1), host(1), server(0)).unwrap();
    assert_eq!(world.udp_out(home(2), host(2), server(0)), Err(Refusal::TableFull));
    assert_eq!(world.tcp_out(home(2), host(2), server(0), ACK), Err(Refusal::TcpNotSyn));
    world.wait_and_collect(300);
    world.events();
    assert_eq!(world.udp_out(home(3), host(2), server(0)), Ok(host(2)));
}

/// More addresses than there is room for: those at rest go first, beginning with the one that rests
/// longest.
#[test]
fn a_full_table_of_owners_takes_the_address_that_rests_longest() {
    let mut world = World::new(NatConfig { enabled: false, flows_max: 2, ..config() });
    world.udp_out(home(0), host(0), server(0)).unwrap();
    world.wait_and_collect(300);
    world.udp_out(home(1), host(1), server(0)).unwrap();
    world.udp_out(home(2), host(2), server(0)).unwrap();
    let subscribers: Vec<OuterAddress> =
        blocks(&mut world).iter().map(|it| it.subscriber).collect();
    assert_eq!(subscribers, [0, 1, 0, 2].map(|n| home(n).outer.into()));
    assert_eq!(world.udp_out(home(0), host(0), server(0)), Err(Refusal::TableFull));
}

#[test]
fn nothing_is_quarantined_and_no_block_is_opened() {
    let mut world = firewall();
    for n in 0..4 {
        world.udp_out(home(n), host(n), server(0)).unwrap();
    }
    assert_eq!(world.nat.admin().gauges().subscribers, 4);
    world.wait_and_collect(300);
    world.assert_empty();
    assert!(blocks(&mut world).iter().all(|it| (it.port_first, it.port_last) == (0, 65_535)));
}

#[test]
fn a_flush_ends_the_homes_flows_only() {
    let mut world = firewall();
    for n in 0..4 {
        world.udp_out(home(n), host(n), server(0)).unwrap();
        world.udp_out(home(n), host(n), server(1)).unwrap();
    }
    assert_eq!(world.nat.admin_mut().flush_subscriber(home(2).outer, world.now), 1);
    assert_eq!(world.flows(), 6);
    assert_eq!(world.udp_back(host(2), server(0)), Err(Refusal::NoMapping));
}

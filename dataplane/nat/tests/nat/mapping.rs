//! Mappings: endpoint independence, separation of homes, pooling, quota, hairpinning.

use std::collections::HashSet;

use weir_nat::*;

use crate::world::*;

#[test]
fn u1_endpoint_independent_mapping() {
    let mut world = World::new(config());
    let public = world.udp_out(home(1), inside(0), at("192.0.2.1:53")).unwrap();
    for remote in ["192.0.2.1:54", "192.0.2.2:53", "192.0.2.3:5353"] {
        assert_eq!(world.udp_out(home(1), inside(0), at(remote)), Ok(public));
    }
}

#[test]
fn t1_endpoint_independent_mapping() {
    let mut world = World::new(config());
    let public = world.tcp_out(home(1), inside(0), at("192.0.2.1:80"), SYN).unwrap();
    for remote in ["192.0.2.1:81", "192.0.2.2:80"] {
        assert_eq!(world.tcp_out(home(1), inside(0), at(remote), SYN), Ok(public));
    }
}

#[test]
fn i1a_b12_query_identifiers_map_independently_of_the_host_asked() {
    let mut world = World::new(config());
    let query = Endpoint::new(address("192.168.1.10"), 77);
    let public = world.out(home(1), query, at("192.0.2.1:0"), Protocol::Icmp, 0).unwrap();
    assert_eq!(world.out(home(1), query, at("192.0.2.2:0"), Protocol::Icmp, 0), Ok(public));
    let reply = world.back(public, at("192.0.2.2:0"), Protocol::Icmp, 0).unwrap();
    assert_eq!(reply.inside, query);
}

#[test]
fn homes_with_the_same_inside_address_stay_apart_both_ways() {
    let mut world = World::new(config());
    let first = world.udp_out(home(1), inside(0), server(0)).unwrap();
    let second = world.udp_out(home(2), inside(0), server(0)).unwrap();
    assert_ne!(first, second);
    assert_eq!(world.udp_back(first, server(0)).unwrap().home, home(1));
    assert_eq!(world.udp_back(second, server(0)).unwrap().home, home(2));
}

#[test]
fn the_same_outer_address_in_two_shards_is_two_homes() {
    let mut world = World::new(config());
    let elsewhere = Home { shard: ShardIndex(1), ..home(1) };
    let first = world.udp_out(home(1), inside(0), server(0)).unwrap();
    let second = world.udp_out(elsewhere, inside(0), server(0)).unwrap();
    assert!(world.nat.is_public(first.address) && world.nat.is_public(second.address));
}

#[test]
fn u2_c2_all_flows_of_a_home_use_one_address() {
    let mut world = World::new(config());
    let mut addresses = HashSet::new();
    for n in 0..2000 {
        addresses.insert(world.udp_out(home(1), inside(n), server(0)).unwrap().address);
        let query = Endpoint::new(address("192.168.1.11"), n);
        addresses.insert(world.out(home(1), query, server(1), Protocol::Icmp, 0).unwrap().address);
    }
    assert_eq!(addresses.len(), 1);
    assert_eq!(
        world.nat.admin().subscriber(home(1).outer)[0].public_address,
        addresses.into_iter().next()
    );
}

#[test]
fn u2_homes_spread_over_the_addresses() {
    let mut world = World::new(config());
    let addresses: Vec<_> =
        (0..8).map(|n| world.udp_out(home(n), inside(0), server(0)).unwrap().address).collect();
    for address in addresses.iter().collect::<HashSet<_>>() {
        assert_eq!(addresses.iter().filter(|other| *other == address).count(), 2);
    }
}

#[test]
fn u3_c4_the_quota_refuses_and_never_shares() {
    let mut world = World::new(NatConfig { ports_per_subscriber: 500, ..config() });
    let mut publics = HashSet::new();
    // 500 ports are two blocks of 256.
    for n in 0..512 {
        assert!(publics.insert(world.udp_out(home(1), inside(n), server(0)).unwrap()));
    }
    assert_eq!(world.udp_out(home(1), inside(512), server(0)), Err(Refusal::PortsExhausted));
    // Old mappings, other protocols and other homes go on.
    assert!(world.udp_out(home(1), inside(0), server(9)).is_ok());
    assert!(world.tcp_out(home(1), inside(512), server(0), SYN).is_ok());
    assert!(world.udp_out(home(2), inside(512), server(0)).is_ok());
}

#[test]
fn c14_c15_ports_are_random_within_few_blocks() {
    let mut world = World::new(config());
    let ports: Vec<_> =
        (0..256).map(|n| world.udp_out(home(1), inside(n), server(0)).unwrap().port).collect();
    let events = world.events();
    assert_eq!(events.len(), 1, "256 mappings fit into one block");
    let BlockEventKind::Allocated(block) = events[0].kind else { panic!("{events:?}") };
    assert!(ports.iter().all(|port| (block.port_first..=block.port_last).contains(port)));
    let sequential = ports.windows(2).filter(|pair| pair[1] == pair[0].wrapping_add(1)).count();
    assert!(sequential < 64, "{sequential} of 255 follow each other");
}

/// One address of one shard, few large blocks.
fn tight(pooling: Pooling) -> World {
    World::new(NatConfig {
        port_block: 8192,
        ports_per_subscriber: 131_072,
        flows_max: 100_000,
        pooling,
        shards: vec![shard(11, "203.0.113.0/31")],
        ..config()
    })
}

#[test]
fn b4_hard_pooling_refuses_on_a_full_address() {
    let mut world = tight(Pooling::Hard);
    for n in 0..64_512u32 {
        let from = Endpoint::new(address("192.168.1.10") + n / 10_000, (n % 10_000) as u16);
        world.udp_out(home(1), from, server(0)).unwrap();
    }
    assert_eq!(
        world.udp_out(home(1), at("192.168.2.1:1"), server(0)),
        Err(Refusal::PortsExhausted)
    );
    assert_eq!(world.nat.admin().shard_gauges(SHARD).blocks_free, 8);
}

#[test]
fn b4_soft_pooling_goes_on_at_another_address() {
    let mut world = tight(Pooling::Soft);
    let paired = world.udp_out(home(1), at("192.168.2.1:1"), server(0)).unwrap().address;
    for n in 1..64_512u32 {
        let from = Endpoint::new(address("192.168.1.10") + n / 10_000, (n % 10_000) as u16);
        assert_eq!(world.udp_out(home(1), from, server(0)).unwrap().address, paired);
    }
    let other = world.udp_out(home(1), at("192.168.2.1:2"), server(0)).unwrap();
    assert_ne!(other.address, paired);
    assert_eq!(world.udp_back(other, server(0)).unwrap().inside, at("192.168.2.1:2"));
}

#[test]
fn u9_t8_b13_hairpinning_shows_the_public_source() {
    for (filtering, is_let_in) in
        [(Filtering::EndpointIndependent, true), (Filtering::AddressAndPortDependent, false)]
    {
        for protocol in Protocol::ALL {
            let mut world = World::new(NatConfig { filtering, ..config() });
            let called = world.out(home(2), inside(2), server(0), protocol, SYN).unwrap();
            let caller = world.out(home(1), inside(1), called, protocol, SYN).unwrap();
            assert!(world.nat.is_public(caller.address));
            let arrived = world.back(called, caller, protocol, SYN);
            assert_eq!(arrived.is_ok(), is_let_in, "{protocol} {filtering:?}");
            // The called side sends too: then both ways are open whatever the filtering.
            assert_eq!(world.out(home(2), inside(2), caller, protocol, SYN), Ok(called));
            assert_eq!(world.back(caller, called, protocol, SYN).unwrap().home, home(1));
            assert_eq!(world.back(called, caller, protocol, SYN).unwrap().home, home(2));
        }
    }
}

#[test]
fn a_stranger_takes_no_block() {
    let mut world = World::new(config());
    let stranger = Home { outer: address("10.201.0.1"), ..home(1) };
    assert_eq!(world.udp_out(stranger, inside(0), server(0)), Err(Refusal::NotSubscriber));
    assert_eq!(world.events(), []);
    world.assert_empty();
}

#[test]
fn a_shard_serves_no_more_than_its_subscribers_max() {
    let mut config = config();
    config.shards[0].subscribers_max = 3;
    let mut world = World::new(config);
    for n in 0..3 {
        world.udp_out(home(n), inside(0), server(0)).unwrap();
    }
    assert_eq!(world.udp_out(home(3), inside(0), server(0)), Err(Refusal::SubscribersMax));
    assert!(world.udp_out(home(2), inside(1), server(0)).is_ok());
    let elsewhere = Home { shard: ShardIndex(1), ..home(3) };
    assert!(world.udp_out(elsewhere, inside(0), server(0)).is_ok());
}

#[test]
fn the_key_used_last_is_echoed() {
    let mut world = World::new(config());
    let keyed = |gre_key| Home { gre_key, ..home(1) };
    let public = world.udp_out(keyed(Some(7)), inside(0), server(0)).unwrap();
    assert_eq!(world.udp_back(public, server(0)).unwrap().home.gre_key, Some(7));
    assert_eq!(world.udp_out(keyed(Some(8)), inside(0), server(0)), Ok(public));
    assert_eq!(world.udp_back(public, server(0)).unwrap().home.gre_key, Some(8));
    assert_eq!(world.udp_out(keyed(None), inside(0), server(0)), Ok(public));
    assert_eq!(world.udp_back(public, server(0)).unwrap().home.gre_key, None);
}

#[test]
fn a_key_that_identifies_separates_homes_behind_one_outer_address() {
    let mut world = World::new(NatConfig { gre_key_identifies_home: true, ..config() });
    let keys = [None, Some(0), Some(1)];
    let publics: Vec<_> = keys
        .iter()
        .map(|&gre_key| world.udp_out(Home { gre_key, ..home(1) }, inside(0), server(0)).unwrap())
        .collect();
    for (gre_key, public) in keys.iter().zip(&publics) {
        assert_eq!(world.udp_back(*public, server(0)).unwrap().home.gre_key, *gre_key);
    }
    assert_eq!(publics.iter().collect::<HashSet<_>>().len(), 3);
    assert_eq!(world.nat.admin().subscriber(home(1).outer).len(), 3);
}

#[test]
fn c11_a_full_table_refuses_and_leaves_the_others_alone() {
    let mut world = World::new(NatConfig { flows_max: 4, ..config() });
    let public = world.udp_out(home(1), inside(0), server(0)).unwrap();
    world.udp_out(home(1), inside(0), server(1)).unwrap();
    world.udp_out(home(1), inside(1), server(0)).unwrap();
    world.udp_out(home(2), inside(0), server(0)).unwrap();
    assert_eq!(world.flows(), 4);
    world.events();
    assert_eq!(world.udp_out(home(3), inside(0), server(0)), Err(Refusal::TableFull));
    assert_eq!(world.udp_out(home(1), inside(0), server(2)), Err(Refusal::TableFull));
    assert_eq!(world.events(), [], "a refused home fills no log");
    assert_eq!(world.udp_out(home(1), inside(0), server(1)), Ok(public));
    assert!(world.udp_back(public, server(0)).is_ok());
}

#[test]
fn c5_one_home_cannot_take_the_whole_table() {
    let mut world = World::new(NatConfig { flows_per_subscriber: 3, ..config() });
    for n in 0..3 {
        world.udp_out(home(1), inside(0), server(n)).unwrap();
    }
    assert_eq!(world.udp_out(home(1), inside(0), server(3)), Err(Refusal::FlowsPerSubscriber));
    assert_eq!(world.udp_out(home(1), inside(1), server(0)), Err(Refusal::FlowsPerSubscriber));
    assert!(world.udp_out(home(2), inside(0), server(0)).is_ok());
    world.wait_and_collect(300);
    assert!(world.udp_out(home(1), inside(1), server(0)).is_ok());
}

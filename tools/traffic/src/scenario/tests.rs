use std::collections::HashSet;

use super::*;

#[test]
fn no_two_flows_share_home_and_inside_endpoint() {
    for access in [Access::Gre, Access::GreOverIpv6, Access::Plain] {
        let scenario = Scenario::new(50_000, 64, 1).unwrap().with_access(access).unwrap();
        let seen: HashSet<_> = (0..50_000)
            .map(|created| scenario.flow(created))
            .map(|flow| (flow.home, flow.inside.address, flow.inside.port))
            .collect();
        assert_eq!(seen.len(), 50_000);
    }
}

#[test]
fn homes_use_the_same_private_addresses_behind_tunnels_and_their_own_without() {
    let gre = Scenario::new(128, 64, 1).unwrap();
    assert_eq!(gre.flow(0).inside, gre.flow(64).inside);
    assert_ne!(gre.flow(0).home, gre.flow(64).home);
    let plain = gre.with_access(Access::Plain).unwrap();
    assert_eq!(plain.flow(64).inside.address, plain.flow(64).home);
}

#[test]
fn each_outer_ipv6_address_stands_for_one_address_of_ipv4() {
    assert_eq!(outer6(u32::from_be_bytes([10, 128, 0, 5])).to_string(), "3fff:0:a80:5::1");
    let scenario = Scenario::new(50_000, 8, 1).unwrap();
    let over_ipv6 = scenario.with_access(Access::GreOverIpv6).unwrap();
    let mut addresses = HashSet::new();
    for created in (0..50_000).step_by(8) {
        let flow = over_ipv6.flow(created);
        assert_eq!(flow, scenario.flow(created));
        assert!(addresses.insert(outer6(flow.home)));
    }
    let endpoints: HashSet<_> = (0..over_ipv6.shards())
        .map(|shard| outer6(over_ipv6.tunnel_endpoint(shard).to_bits()))
        .collect();
    assert_eq!(endpoints.len() as u32, over_ipv6.shards());
    assert!(endpoints.is_disjoint(&addresses));
    // The inverse: octets 4 to 8 are the IPv4 address, all others are fixed.
    for bit in 0..32 {
        let difference = outer6(0).to_bits() ^ outer6(1 << bit).to_bits();
        assert_eq!(difference, 1 << (64 + bit));
    }
}

#[test]
fn tunnels_have_their_lengths_and_those_over_ipv6_need_it_on_the_link() {
    let of = |access: Access| {
        let has_ipv6 = |families| access.link_has_ipv6(families);
        (access.tunnel_len(), has_ipv6(Families::Ipv4), has_ipv6(Families::Both))
    };
    assert_eq!(of(Access::Gre), (24, false, false));
    assert_eq!(of(Access::GreOverIpv6), (44, true, true));
    assert_eq!(of(Access::Plain), (0, false, true));
}

#[test]
fn a_million_flows_need_sixty_two_shards() {
    let scenario = Scenario::new(1_000_000, 64, 1).unwrap();
    assert_eq!((scenario.subscribers(), scenario.shards()), (15_625, 62));
    let last = scenario.flow(999_999);
    assert_eq!(Ipv4Addr::from_bits(last.tunnel), scenario.tunnel_endpoint(61));
    let public = scenario.assumed_public(999_999).address;
    assert_eq!(public & !7, scenario.public_prefix(61).0.to_bits());
    assert_eq!(scenario.public_prefix(61).1, 29);
}

#[test]
fn every_home_lies_in_the_prefix_of_its_shard_and_no_prefix_in_another() {
    let scenario = Scenario::new(10_000, 10, 1).unwrap().with_subscribers_per_shard(100).unwrap();
    assert_eq!((scenario.subscribers(), scenario.shards()), (1000, 10));
    for created in (0..10_000).step_by(10) {
        let home = scenario.flow(created).home;
        let (network, length) = scenario.source_prefix(created / 10 / 100);
        assert_eq!(length, 25);
        assert_eq!(home >> 7, network.to_bits() >> 7);
    }
}

#[test]
fn scenarios_beside_each_other_share_no_address() {
    let of = |first_shard| {
        let scenario = Scenario::new(10_000, 10, 1).unwrap();
        let scenario = scenario.with_subscribers_per_shard(100).unwrap();
        scenario.with_first_shard(first_shard).unwrap()
    };
    let (all, second) = (of(0).with_new_flows(20_000).unwrap(), of(10));
    assert_eq!((second.first_shard(), second.shards()), (10, 10));
    for shard in 0..10 {
        assert_eq!(second.tunnel_endpoint(shard), all.tunnel_endpoint(10 + shard));
        assert_eq!(second.source_prefix(shard), all.source_prefix(10 + shard));
        assert_eq!(second.public_prefix(shard), all.public_prefix(10 + shard));
    }
    for created in 0..10_000 {
        let (flow, same) = (second.flow(created), all.flow(10_000 + created));
        assert_eq!((flow.home, flow.tunnel, flow.inside), (same.home, same.tunnel, same.inside));
        assert_eq!(second.assumed_public(created), all.assumed_public(10_000 + created));
    }
}

#[test]
fn sixty_million_flows_fit() {
    let scenario = Scenario::new(60_000_000, 64, 1).unwrap();
    assert_eq!(scenario.subscribers(), 937_500);
    Scenario::new(1_000_000, 64, 1).unwrap().with_new_flows(59_000_000).unwrap();
    Scenario::new(64_000, 4, 1).unwrap().with_subscribers_per_shard(16).unwrap();
}

#[test]
fn a_shard_of_many_flows_has_the_addresses_for_them() {
    let scenario = Scenario::new(1_000_000, 1000, 1).unwrap();
    let (_, length) = scenario.public_prefix(0);
    assert!(
        (1u64 << (32 - length)) * 64_512 >= 2 * 256 * u64::from(scenario.ports_per_subscriber())
    );
}

#[test]
fn new_flows_in_known_homes_are_further_flows_of_the_same_homes() {
    let scenario = Scenario::new(6_400, 64, 1).unwrap().with_new_flows(250).unwrap();
    assert_eq!(scenario.subscribers(), 104);
    let known = scenario.with_new_flows_in_known_homes().unwrap();
    assert_eq!((known.subscribers(), known.flows_total()), (100, 6_650));
    let homes: HashSet<_> = (0..6_400).map(|created| known.flow(created).home).collect();
    let mut flows = HashSet::new();
    for created in 0..6_650 {
        let flow = known.flow(created);
        assert!(homes.contains(&flow.home));
        assert!(flows.insert((flow.home, flow.inside.address, flow.inside.port)));
    }
    let many = Scenario::new(64, 64, 1).unwrap().with_new_flows(20_000).unwrap();
    assert_eq!(many.with_new_flows_in_known_homes(), Err(ScenarioError::Flows));
}

#[test]
fn the_spare_home_lies_in_the_last_shard_and_has_no_flow() {
    let scenario = Scenario::new(64 * 300, 64, 1).unwrap();
    let spare = scenario.spare_home().unwrap();
    assert_eq!(spare.tunnel, scenario.tunnel_endpoint(1).to_bits());
    assert_eq!(spare.home, scenario.flow(64 * 300 - 1).home + 1);
    assert!((0..64 * 300).all(|created| scenario.flow(created).home != spare.home));
    assert_eq!(Scenario::new(64 * 256, 64, 1).unwrap().spare_home(), None);
}

#[test]
fn plan_without_room_for_its_homes_is_refused() {
    assert_eq!(Scenario::new(0, 64, 1), Err(ScenarioError::Flows));
    assert_eq!(Scenario::new(1, 0, 1), Err(ScenarioError::Flows));
    assert!(matches!(Scenario::new(60_000_000, 1, 1), Err(ScenarioError::Homes { .. })));
    let small = Scenario::new(1_000_000, 1, 1).unwrap().with_subscribers_per_shard(8);
    assert!(matches!(small, Err(ScenarioError::PublicAddresses { .. })));
    let empty = Scenario::new(1, 1, 1).unwrap().with_subscribers_per_shard(0);
    assert_eq!(empty, Err(ScenarioError::Shard));
    let far = Scenario::new(64, 64, 1).unwrap().with_first_shard(1 << 13);
    assert!(matches!(far, Err(ScenarioError::PublicAddresses { .. })));
    let farther = Scenario::new(64, 64, 1).unwrap().with_first_shard(u32::MAX);
    assert!(matches!(farther, Err(ScenarioError::Homes { .. })));
}

#[test]
fn homes_have_an_ipv6_prefix_each_within_that_of_their_shard() {
    let scenario = Scenario::new(50_000, 64, 1).unwrap().with_families(Families::Both).unwrap();
    let mut seen = HashSet::new();
    for created in 0..50_000 {
        let flow = scenario.flow(created);
        let (network, length) = scenario.public6_prefix(created / 64 / 256);
        assert_eq!(length, 48);
        assert_eq!(flow.inside6 >> 80, network.to_bits() >> 80);
        assert!(seen.insert((flow.inside6, flow.inside.port)));
        assert_eq!(flow.remote6 >> 95, REMOTES6 >> 95);
    }
    let homes: HashSet<_> = seen.iter().map(|(inside, _)| inside >> HOME6_SHIFT).collect();
    assert_eq!(homes.len() as u32, scenario.subscribers());
}

#[test]
fn homes_of_both_families_need_ports_for_half_of_their_flows() {
    let ports = |families| {
        let scenario = Scenario::new(1_000_000, 1000, 1).unwrap();
        scenario.with_families(families).unwrap().ports_per_subscriber()
    };
    let of = [Families::Ipv4, Families::Both, Families::Ipv6].map(ports);
    assert_eq!(of, [2048, 1024, 256]);
    // Some homes have more flows of IPv4 than others.
    let scenario = Scenario::new(1_000_000, 1000, 1).unwrap();
    let numbers = scenario.creation_order();
    let most = numbers
        .chunks(1000)
        .map(|home| home.iter().filter(|number| !Families::Both.is_ipv6(**number)).count())
        .max();
    assert!(most.unwrap() < 600, "{most:?}");
}

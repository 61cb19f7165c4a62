//! Port forwards and one-to-one addresses: who reaches them, and what else may use their ports.

use std::collections::HashSet;
use std::sync::Arc;

use weir_nat::*;
use weir_rules::{FlowKind, FlowOrigin, PortRange, Prefix, RuleAction, RuleFilter, RuleSet};

use crate::world::pair::{pair, pair_config, replicate, worker};
use crate::world::*;

const PUBLIC: &str = "203.0.113.1:443";

fn forward(n: u32, inside: &str, public: &str, protocol: Protocol) -> StaticMapping {
    StaticMapping {
        outer: home(n).outer.into(),
        gre_key: None,
        inside: at(inside),
        public: at(public),
        scope: StaticScope::Port(protocol),
    }
}

fn one_to_one(n: u32, inside: &str, public: &str) -> StaticMapping {
    let scope = StaticScope::Address;
    StaticMapping {
        inside: Endpoint::new(address(inside), 0),
        public: Endpoint::new(address(public), 0),
        scope,
        ..forward(n, "0.0.0.0:0", "0.0.0.0:0", Protocol::Tcp)
    }
}

fn set(world: &mut World, mappings: &[StaticMapping]) {
    let statics = Arc::new(StaticMappings::new(mappings).unwrap());
    let _former = world.nat.admin_mut().swap_statics(statics);
    for _ in 0..2 {
        world.nat.expire(world.now, 1, 1);
    }
}

/// Sends a packet from the Internet as the engine does.
fn arrive(
    world: &mut World,
    public: Endpoint,
    remote: Endpoint,
    protocol: Protocol,
    tcp_flags: u8,
) -> Result<Delivery, Refusal> {
    match world.back(public, remote, protocol, tcp_flags) {
        Err(Refusal::NoMapping) => {
            let packet = Inbound { public, remote, protocol, tcp_flags };
            world.nat.inbound_static(&packet, world.now).map(|translated| translated.to)
        }
        known => known,
    }
}

fn with(mappings: &[StaticMapping]) -> World {
    let mut world = World::new(config());
    set(&mut world, mappings);
    world
}

#[test]
fn remote_opens_a_connection_to_a_forward_and_the_inside_answers() {
    let mut world = with(&[forward(1, "192.168.1.20:8443", PUBLIC, Protocol::Tcp)]);
    let inside = at("192.168.1.20:8443");
    for remote in 0..3 {
        let delivery = arrive(&mut world, at(PUBLIC), server(remote), Protocol::Tcp, SYN).unwrap();
        assert_eq!((delivery.home, delivery.inside), (home(1), inside));
        let public = world.tcp_out(home(1), inside, server(remote), SYN_ACK).unwrap();
        assert_eq!(public, at(PUBLIC));
        assert!(world.tcp_back(public, server(remote), ACK).is_ok());
    }
    assert_eq!(world.flows(), 3);
    let middle = arrive(&mut world, at(PUBLIC), server(9), Protocol::Tcp, ACK);
    assert_eq!(middle, Err(Refusal::TcpNotSyn));
    let other = arrive(&mut world, at("203.0.113.1:444"), server(1), Protocol::Tcp, SYN);
    assert_eq!(other, Err(Refusal::NoMapping));
    let udp = arrive(&mut world, at(PUBLIC), server(1), Protocol::Udp, 0);
    assert_eq!(udp, Err(Refusal::NoMapping), "only TCP is forwarded");
    world.nat.admin().audit();
}

#[test]
fn flow_of_the_inside_leaves_from_its_static_endpoint() {
    let console = forward(1, "192.168.1.10:10000", "203.0.113.2:3074", Protocol::Udp);
    let mut world = with(&[console]);
    let public = at("203.0.113.2:3074");
    assert_eq!(world.udp_out(home(1), inside(0), server(1)), Ok(public));
    assert_eq!(world.udp_out(home(1), inside(0), server(2)), Ok(public));
    let stranger = arrive(&mut world, public, server(7), Protocol::Udp, 0).unwrap();
    assert_eq!(stranger.inside, inside(0), "any remote may begin");
    assert_ne!(world.udp_out(home(1), inside(1), server(1)).unwrap().port, 3074);
    assert_ne!(world.udp_out(home(2), inside(0), server(1)).unwrap().port, 3074);
    world.nat.admin().audit();
    world.wait_and_collect(300);
    assert!(arrive(&mut world, public, server(7), Protocol::Udp, 0).is_ok(), "it is there again");
    world.wait_and_collect(300);
    world.wait_and_collect(300);
    world.assert_empty();
}

#[test]
fn packet_for_a_forward_whose_record_has_run_out_is_not_lost() {
    let mut world = with(&[forward(1, "192.168.1.20:53", "203.0.113.1:53", Protocol::Udp)]);
    let public = at("203.0.113.1:53");
    arrive(&mut world, public, server(1), Protocol::Udp, 0).unwrap();
    world.wait(301);
    assert!(arrive(&mut world, public, server(2), Protocol::Udp, 0).is_ok());
    let inside = at("192.168.1.20:53");
    assert_eq!(world.udp_out(home(1), inside, server(2)), Ok(public));
    assert!(world.udp_back(public, server(2)).is_ok());
    world.nat.admin().audit();
}

#[test]
fn home_with_an_address_of_its_own_has_all_its_ports() {
    let mut world = with(&[one_to_one(1, "192.168.1.10", "203.0.113.3")]);
    for n in 0..2000 {
        let public = world.udp_out(home(1), inside(n), server(1)).unwrap();
        assert_eq!(public, Endpoint::new(address("203.0.113.3"), inside(n).port));
    }
    let ping = world.out(home(1), at("192.168.1.10:77"), server(1), Protocol::Icmp, 0).unwrap();
    assert_eq!(ping, at("203.0.113.3:77"));
    let delivery = arrive(&mut world, at("203.0.113.3:22"), server(5), Protocol::Tcp, SYN);
    assert_eq!(delivery.unwrap().inside, at("192.168.1.10:22"));
    let others = (2..100).map(|n| world.udp_out(home(n), inside(0), server(1)).unwrap().address);
    assert!(!others.collect::<HashSet<_>>().contains(&address("203.0.113.3")));
    world.nat.admin().audit();
    assert!(world.nat.admin_mut().flush_subscriber(home(1).outer, world.now) >= 2002);
    world.nat.admin().audit();
}

/// 203.0.113.0/30 has four addresses, all of them one-to-one.
#[test]
fn homes_of_a_shard_without_dynamic_ports_are_served() {
    let addresses: Vec<StaticMapping> =
        (0..4).map(|n| one_to_one(n, "192.168.1.10", &format!("203.0.113.{n}"))).collect();
    let mut world = with(&addresses);
    for n in 0..4 {
        let public = world.udp_out(home(n), inside(0), server(1)).unwrap();
        assert_eq!(public.address, address("203.0.113.0") + n);
    }
    assert_eq!(world.udp_out(home(9), inside(0), server(1)), Err(Refusal::PortsExhausted));
    let other = at("192.168.1.11:5");
    assert_eq!(world.udp_out(home(1), other, server(1)), Err(Refusal::PortsExhausted));
    world.nat.admin().audit();
}

#[test]
fn no_home_gets_a_port_that_is_forwarded_and_a_block_in_use_is_waited_for() {
    let mut world = World::new(config());
    let taken = world.udp_out(home(5), inside(0), server(1)).unwrap();
    let text = format!("{}:{}", std::net::Ipv4Addr::from(taken.address), taken.port);
    set(&mut world, &[forward(1, "192.168.1.20:80", &text, Protocol::Udp)]);
    assert_eq!(world.nat.admin().shard_gauges(SHARD).blocks_awaited, 1);
    assert_eq!(arrive(&mut world, taken, server(2), Protocol::Udp, 0), Err(Refusal::Filtered));
    let instead = world.udp_out(home(1), at("192.168.1.20:80"), server(1)).unwrap();
    assert_ne!(instead, taken, "it has another port as long as the block is a home's");
    assert_eq!(world.udp_out(home(5), inside(0), server(1)), Ok(taken), "live flows go on");
    world.wait_and_collect(300);
    world.wait_and_collect(120);
    assert_eq!(world.nat.admin().shard_gauges(SHARD).blocks_awaited, 0);
    assert_eq!(world.udp_out(home(1), at("192.168.1.20:80"), server(1)), Ok(taken));
    let mut seen = HashSet::new();
    for n in 0..200 {
        for port in 0..20 {
            seen.insert(world.udp_out(home(10 + n), inside(port), server(1)).unwrap());
        }
    }
    let of_block = |it: &Endpoint| it.address == taken.address && it.port / 256 == taken.port / 256;
    assert!(!seen.iter().any(of_block));
    world.nat.admin().audit();
}

#[test]
fn forward_that_is_removed_or_moved_ends_its_flows() {
    let mut world = with(&[forward(1, "192.168.1.20:80", PUBLIC, Protocol::Tcp)]);
    let before = world.nat.admin().shard_gauges(SHARD);
    arrive(&mut world, at(PUBLIC), server(1), Protocol::Tcp, SYN).unwrap();
    set(&mut world, &[forward(2, "192.168.1.30:80", PUBLIC, Protocol::Tcp)]);
    let late = arrive(&mut world, at(PUBLIC), server(2), Protocol::Tcp, SYN);
    assert_eq!(late, Err(Refusal::Filtered), "two homes never share a public endpoint");
    world.wait_and_collect(1);
    let moved = arrive(&mut world, at(PUBLIC), server(2), Protocol::Tcp, SYN).unwrap();
    assert_eq!((moved.home, moved.inside), (home(2), at("192.168.1.30:80")));
    set(&mut world, &[]);
    world.wait_and_collect(1);
    assert_eq!(world.flows(), 0);
    assert!(arrive(&mut world, at(PUBLIC), server(2), Protocol::Tcp, SYN).is_err());
    let after = world.nat.admin().shard_gauges(SHARD);
    assert_eq!(after.blocks_total, before.blocks_total, "port 443 is in no block of homes");
    world.assert_empty();
}

#[test]
fn blocks_of_forwards_come_back_when_these_are_removed() {
    let mut world = World::new(config());
    let before = world.nat.admin().shard_gauges(SHARD);
    let text = ["203.0.113.1:5000", "203.0.113.1:5001", "203.0.113.2:60000", "203.0.113.2:80"];
    let forwards: Vec<StaticMapping> = (1..)
        .zip(text)
        .map(|(n, public)| forward(n, "192.168.1.20:80", public, Protocol::Tcp))
        .collect();
    set(&mut world, &forwards);
    let gauges = world.nat.admin().shard_gauges(SHARD);
    assert_eq!(gauges.blocks_total, before.blocks_total - 2);
    assert_eq!(gauges.blocks_free, before.blocks_free - 2);
    set(&mut world, &[]);
    assert_eq!(world.nat.admin().shard_gauges(SHARD), before);
}

#[test]
fn replica_serves_a_forward_after_a_failover_and_knows_its_connections() {
    let forwards = [
        forward(1, "192.168.1.20:80", "203.0.113.1:5000", Protocol::Tcp),
        forward(2, "192.168.1.20:80", "203.0.113.1:5001", Protocol::Tcp),
    ];
    let (mut primary, mut replica) = pair(&pair_config());
    set(&mut primary, &forwards);
    set(&mut replica, &forwards);
    let inside = at("192.168.1.20:80");
    for (n, forward) in (1..).zip(&forwards) {
        arrive(&mut primary, forward.public, server(1), Protocol::Tcp, SYN).unwrap();
        primary.tcp_out(home(n), inside, server(1), SYN_ACK).unwrap();
        primary.tcp_back(forward.public, server(1), ACK).unwrap();
    }
    replicate(&mut primary, &mut replica);
    assert_eq!(replica.nat.admin().mirror_gauges().changes_full_total, 0);
    assert_eq!(replica.flows(), 2);
    replica.nat.admin().audit();
    for (n, forward) in (1..).zip(&forwards) {
        assert_eq!(replica.tcp_out(home(n), inside, server(1), ACK), Ok(forward.public));
        let other = arrive(&mut replica, forward.public, server(2), Protocol::Tcp, SYN).unwrap();
        assert_eq!(other.home, home(n));
    }
    set(&mut primary, &[]);
    primary.wait_and_collect(1);
    replicate(&mut primary, &mut replica);
    assert_eq!(primary.flows(), 0);
    primary.nat.admin().audit();
    replica.nat.admin().audit();
}

/// A worker may be one generation behind: copies of mappings that it knows no forward for, and
/// blocks that another worker has given to a home while it has reserved them.
#[test]
fn copies_are_taken_whatever_generation_the_replica_has() {
    let (mut primary, mut replica) = pair(&pair_config());
    let forwards = [forward(1, "192.168.1.20:80", "203.0.113.1:5000", Protocol::Udp)];
    set(&mut primary, &forwards);
    arrive(&mut primary, at("203.0.113.1:5000"), server(1), Protocol::Udp, 0).unwrap();
    let taken = primary.udp_out(home(5), inside(0), server(1)).unwrap();
    let text = format!("{}:{}", std::net::Ipv4Addr::from(taken.address), taken.port);
    set(&mut replica, &[forward(9, "192.168.1.9:9", &text, Protocol::Udp)]);
    replicate(&mut primary, &mut replica);
    assert_eq!((primary.flows(), replica.flows()), (2, 2));
    replica.nat.admin().audit();
    primary.wait_and_collect(600);
    primary.wait_and_collect(600);
    replicate(&mut primary, &mut replica);
    assert_eq!((primary.flows(), replica.flows()), (0, 0));
    set(&mut replica, &[]);
    replica.nat.admin().audit();
    replica.assert_empty_but_lanes();
}

#[test]
fn worker_without_a_lane_makes_no_record_of_a_forward() {
    let mut config = pair_config();
    config.replicas = 1;
    let mut world = worker(config, 0);
    set(&mut world, &[forward(1, "192.168.1.20:80", PUBLIC, Protocol::Tcp)]);
    let refused = arrive(&mut world, at(PUBLIC), server(1), Protocol::Tcp, SYN);
    assert!(refused.is_err());
    world.nat.admin().audit();
}

#[test]
fn rule_decides_on_remotes_that_begin_a_flow_to_a_forward() {
    let mut world = with(&[forward(1, "192.168.1.20:443", PUBLIC, Protocol::Tcp)]);
    let of_internet = FlowKind::new(FlowOrigin::Internet, 6).into_iter().collect();
    let refused = RuleFilter {
        kinds: of_internet,
        remote: Prefix::new(server(2).address, 32),
        local_ports: PortRange { first: 443, last: 443 },
        ..RuleFilter::all(0)
    };
    let rest = RuleFilter { kinds: of_internet, ..RuleFilter::all(1) };
    let set = |actions| Arc::new(RuleSet::new(&[refused, rest], actions, Vec::new()).unwrap());
    let rules = ActiveRules::new(set(vec![RuleAction::Reject, RuleAction::Accept]));
    let _former = world.nat.admin_mut().swap_rules(Box::new(rules));
    let call = |world: &mut World, n| arrive(world, at(PUBLIC), server(n), Protocol::Tcp, SYN);
    assert_eq!(call(&mut world, 2), Err(Refusal::RuleReject));
    assert_eq!(world.flows(), 0, "a refused packet makes nothing");
    assert!(call(&mut world, 1).is_ok());
    assert_eq!(call(&mut world, 2), Err(Refusal::RuleReject), "nor in the record of another");
    assert_eq!(*world.nat.admin().active_rules().hits, [2, 1]);
    set_none(&mut world);
    assert_eq!(call(&mut world, 3), Err(Refusal::Filtered), "no rule revives a forward");
    world.nat.admin().audit();
}

/// Takes the forwards back, and leaves their records to the walk.
fn set_none(world: &mut World) {
    let _former = world.nat.admin_mut().swap_statics(Arc::new(StaticMappings::none()));
}

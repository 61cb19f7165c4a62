//! Homes with tunnels over IPv6: known by the whole outer address, which no record holds.

use weir_nat::*;

use crate::world::pair::{copy, pair_config, replicate, worker};
use crate::world::*;

fn over_ipv6(mut config: NatConfig) -> NatConfig {
    config.subscribers6 = vec!["2001:db8:e::/48".parse().unwrap()];
    config.delegation = Some(Delegation::Claim { hold_sec: 300 });
    config.shards[0].public6 = vec!["2001:db8:1000::/40".parse().unwrap()];
    config
}

fn outer(n: u64) -> [u64; 2] {
    [0x2001_0db8_000e_0000, n]
}

fn text(n: u64) -> String {
    format!("2001:db8:e::{n:x}")
}

fn selector(n: u64) -> HomeSelector {
    HomeSelector::Ipv6(format!("{}/128", text(n)).parse().unwrap())
}

/// Returns the n-th /64's host.
fn host6(n: u16, port: u16) -> Endpoint6 {
    Endpoint6::new(0x2001_0db8_1000_0000_0000_0000_0000_0007 | u128::from(n) << 64, port)
}

fn server6() -> Endpoint6 {
    Endpoint6::new(0x2001_0db8_9000_0000_0000_0000_0000_0001, 443)
}

impl World {
    /// Returns the home with the n-th outer address, as the packet that is in work names it.
    fn home6(&mut self, n: u64) -> Home {
        let outer = self.nat.intern_outer(outer(n)).unwrap();
        Home { shard: SHARD, outer, gre_key: None }
    }

    fn known(&self, n: u64) -> Option<Home> {
        let outer = self.nat.find_outer(outer(n))?;
        Some(Home { shard: SHARD, outer, gre_key: None })
    }

    fn send(&mut self, n: u64, port: u16) -> Result<Endpoint, Refusal> {
        let home = self.home6(n);
        let sent = self.udp_out(home, inside(port), server(1));
        self.nat.release_outers();
        sent
    }

    fn send6(&mut self, n: u64, port: u16) -> Result<FlowClass, Refusal> {
        let home = self.home6(n);
        let key = FlowKey6::new(host6(n as u16, port), server6(), Protocol::Udp, false);
        let packet = Packet6 { key, protocol: Protocol::Udp, tcp_flags: 0 };
        let hash = PacketKey::hash(&key, &self.nat);
        let sent = match self.nat.outbound6_known(hash, &home, &packet, self.now)? {
            Some(class) => Ok(class),
            None => {
                self.nat.open_outbound6(hash, (&home, LikelySubscriber::NONE), &packet, self.now)
            }
        };
        self.nat.release_outers();
        sent
    }

    fn outers(&self) -> u64 {
        self.nat.admin().audit();
        let uses = self.nat.admin().table_uses();
        uses.iter().find(|it| it.table == "outer-addresses").unwrap().used
    }
}

#[test]
fn homes_whose_outer_addresses_differ_in_one_bit_are_two_homes() {
    let mut world = World::new(over_ipv6(config()));
    for bit in [0, 31, 63] {
        let public = [1, 1 ^ 1 << bit].map(|n| world.send(n, 1).unwrap());
        assert_ne!(public[0], public[1], "bit {bit}");
        let homes = public.map(|public| world.udp_back(public, server(1)).unwrap().home);
        assert_eq!(world.nat.outer_address(&homes[0]), OuterAddress::Ipv6(outer(1)));
        assert_eq!(world.nat.outer_address(&homes[1]), OuterAddress::Ipv6(outer(1 ^ 1 << bit)));
    }
}

#[test]
fn home_of_both_families_is_one_subscriber_and_goes_with_its_last_flow() {
    let mut world = World::new(over_ipv6(config()));
    world.send(1, 1).unwrap();
    world.send6(1, 5000).unwrap();
    assert_eq!((world.outers(), world.nat.admin().gauges().subscribers), (1, 1));
    world.wait_and_collect(2000);
    assert_eq!(world.outers(), 1, "its port rests");
    world.wait_and_collect(200);
    world.nat.release_outers();
    assert_eq!(world.outers(), 0);
    world.assert_empty();
}

#[test]
fn sources_that_begin_no_flow_leave_no_handle_behind() {
    let mut world = World::new(over_ipv6(config()));
    for n in 0..5000 {
        let home = world.home6(n);
        let segment = world.tcp_out(home, inside(1), server(1), ACK);
        assert_eq!(segment, Err(Refusal::TcpNotSyn));
        if n % 64 == 63 {
            world.nat.release_outers();
            assert_eq!(world.outers(), 0);
        }
    }
    assert_eq!(world.nat.intern_outer([0x2001_0db8_000f_0000, 1]), None, "no home's address");
}

#[test]
fn home_that_is_refused_is_a_returning_one_under_another_handle() {
    let mut limited = over_ipv6(config());
    limited.new_homes_per_sec = Some(1);
    limited.shards[0].subscribers_max = 4;
    let mut world = World::new(limited);
    let admitted = |world: &mut World, from: u64| {
        (from..from + 40).filter(|&n| world.send(n, 1).is_ok()).count()
    };
    assert!(admitted(&mut world, 0) >= 1);
    let refused = (0..40).find(|&n| world.known(n).is_none()).unwrap();
    world.wait(11);
    admitted(&mut world, 100);
    world.send(refused, 1).unwrap();
    assert!(world.known(refused).is_some(), "it came again within a minute");
}

/// A lane's owner and its copy have handles of their own, whatever the order of the homes.
#[test]
fn replica_serves_homes_under_handles_of_its_own() {
    let config = over_ipv6(pair_config());
    let (mut primary, mut replica) = (worker(config.clone(), 0x7f), worker(config, 0x80));
    for n in [7, 8, 9] {
        replica.home6(n);
    }
    let publics: Vec<Endpoint> = (1..=3).map(|n| primary.send(n, 1).unwrap()).collect();
    (1..=3).for_each(|n| _ = primary.send6(n, 5000).unwrap());
    // A further session brings its mapping along.
    let home = primary.home6(1);
    primary.udp_out(home, inside(1), server(2)).unwrap();
    replicate(&mut primary, &mut replica);
    assert_eq!((primary.outers(), replica.outers()), (3, 3));
    for (n, &public) in (1..=3).zip(&publics) {
        let home = replica.udp_back(public, server(1)).unwrap().home;
        assert_eq!(replica.nat.outer_address(&home), OuterAddress::Ipv6(outer(n)));
        assert_ne!(Some(home.outer), primary.nat.find_outer(outer(n)));
        assert_eq!(replica.send(n, 1), Ok(public), "the mapping is the home's there, too");
        replica.send6(n, 5000).unwrap();
    }
    let sum = |world: &World, lane| world.nat.replica().sum_lane(SHARD, lane, 0..u32::MAX);
    for lane in 0..7 {
        assert_eq!(sum(&primary, lane), sum(&replica, lane), "lane {lane}");
    }
    for seconds in [4000, 200] {
        primary.wait_and_collect(seconds);
        replicate(&mut primary, &mut replica);
    }
    for world in [&mut primary, &mut replica] {
        world.nat.release_outers();
        assert_eq!(world.outers(), 0);
    }
}

#[test]
fn copy_of_a_lane_brings_the_outer_addresses() {
    let config = over_ipv6(pair_config());
    let (mut primary, mut replica) = (worker(config.clone(), 0x7f), worker(config, 0x80));
    for n in 1..=20 {
        primary.send(n, 1).unwrap();
        primary.send6(n, 5000).unwrap();
    }
    copy(&primary, &mut replica, false);
    assert_eq!((primary.flows(), replica.flows(), replica.outers()), (40, 40, 20));
    let sum = |world: &World, lane| world.nat.replica().sum_lane(SHARD, lane, 0..u32::MAX);
    assert!((0..7).all(|lane| sum(&primary, lane) == sum(&replica, lane)));
}

/// A change whose outer address is a handle, without the address, is about no home.
#[test]
fn handle_of_another_worker_is_never_taken_for_ones_own() {
    let config = over_ipv6(pair_config());
    let (mut primary, mut replica) = (worker(config.clone(), 0x7f), worker(config, 0x80));
    primary.send(1, 1).unwrap();
    primary.send6(1, 5000).unwrap();
    let mut body = [0; BODY_MAX];
    replica.send(1, 1).unwrap();
    let mut refused = 0;
    while let Some((change, len)) = primary.nat.replica_mut().next_change(&mut body) {
        /// Type and length of the part.
        const PART: usize = 18;
        let cut = &body[..len - PART];
        assert_eq!(replica.nat.replica_mut().apply(&change, cut, replica.now), Applied::Invalid);
        let (at, sent) = ((change.shard, change.lane), [(change.in_lane(), cut)]);
        replica.nat.replica_mut().apply_burst(at, sent.into_iter(), false, replica.now);
        refused += 1;
    }
    assert_eq!((refused, replica.flows()), (2, 1));
}

#[test]
fn replica_that_knows_no_such_homes_refuses_their_flows() {
    let (config, mut plain) = (over_ipv6(pair_config()), pair_config());
    plain.delegation = config.delegation;
    plain.shards = config.shards.clone();
    let (mut primary, mut replica) = (worker(config, 0x7f), worker(plain, 0x80));
    primary.send(1, 1).unwrap();
    primary.send6(1, 5000).unwrap();
    let mut body = [0; BODY_MAX];
    while let Some((change, len)) = primary.nat.replica_mut().next_change(&mut body) {
        let applied = replica.nat.replica_mut().apply(&change, &body[..len], replica.now);
        assert_eq!(applied, Applied::Invalid);
    }
}

#[test]
fn logs_and_listings_name_the_outer_address() {
    let mut logging = over_ipv6(config());
    logging.session_log = SessionLog::Destinations;
    let mut world = World::new(logging);
    world.nat.replica_mut().set_owned_lanes(SHARD, 0xff, Tick(1000));
    world.send(1, 1).unwrap();
    world.send(2, 1).unwrap();
    world.send6(1, 5000).unwrap();
    let address = OuterAddress::Ipv6(outer(1));
    let of_block = |event: &BlockEvent| match event.kind {
        BlockEventKind::Allocated(block) => Some(block.subscriber),
        BlockEventKind::Prefix(_, prefix) => Some(prefix.subscriber),
        _ => None,
    };
    let named: Vec<_> = world.events().iter().filter_map(of_block).collect();
    assert_eq!(named.iter().filter(|&&it| it == address).count(), 2, "{named:?}");
    let event = world.nat.admin_mut().next_session_event().unwrap();
    assert_eq!(event.subscriber, LoggedSubscriber::Address { address, gre_key: None });
    let view = HomeView::TunnelIpv6 { outer: text(1).parse().unwrap(), gre_key: None };
    let shown = world.nat.admin().subscriber(selector(1));
    assert_eq!((shown.len(), shown[0].home, shown[0].flows), (1, view, 2));
    assert_eq!(shown[0].claims.len(), 1);
    let inside: HomeSelector = HomeSelector::Ipv6("2001:db8:1000:1::7/128".parse().unwrap());
    assert_eq!(world.nat.admin().subscriber(inside)[0].home, view, "by an inside address");
    let of_home = SessionFilter { subscriber: Some(selector(1)), ..SessionFilter::default() };
    let listed = world.list(&of_home);
    assert_eq!((listed.len(), listed[0].home), (2, view));
    let of_none = SessionFilter { subscriber: Some(selector(9)), ..SessionFilter::default() };
    assert!(world.list(&of_none).is_empty());
    assert_eq!(world.nat.admin_mut().flush_subscriber(selector(1), world.now), 2);
    assert_eq!(world.flows(), 1);
    world.wait_and_collect(1000);
    let released = world.events();
    assert!(released.iter().any(|event| matches!(
        event.kind,
        BlockEventKind::Released(block) if block.subscriber == address
    )));
}

#[test]
fn home_with_a_delegated_prefix_is_its_outer_address() {
    let mut delegating = over_ipv6(config());
    delegating.delegation = Some(Delegation::Static);
    let mut world = World::new(delegating);
    let prefix = DelegatedPrefix {
        prefix: "2001:db8:1000:1::/64".parse().unwrap(),
        outer: OuterAddress::Ipv6(outer(1)),
        gre_key: None,
    };
    let mut list = std::sync::Arc::new(Delegations::new(&[prefix]).unwrap());
    world.nat.admin_mut().swap_delegations(&mut list);
    world.send6(1, 5000).unwrap();
    let home = world.home6(2);
    let key = FlowKey6::new(host6(1, 6000), server6(), Protocol::Udp, false);
    let packet = Packet6 { key, protocol: Protocol::Udp, tcp_flags: 0 };
    let hash = PacketKey::hash(&key, &world.nat);
    let taken = world.nat.open_outbound6(hash, (&home, LikelySubscriber::NONE), &packet, world.now);
    assert_eq!(taken, Err(Refusal::AddressConflict));
}

/// Puts homes into group 3 by their outer addresses.
fn group(world: &mut World, prefix: &str) {
    let net: ipnet::Ipv6Net = prefix.parse().unwrap();
    let groups = vec![(weir_rules::Prefix::new(net.addr().to_bits(), net.prefix_len()), 3)];
    let set = weir_rules::RuleSet::empty().with_ipv6(&[], groups).unwrap();
    let rules = Box::new(ActiveRules::new(std::sync::Arc::new(set)));
    drop(world.nat.admin_mut().swap_rules(rules));
}

/// Returns the configuration in which a home of group 3 may have so many flows.
fn with_group(mut config: NatConfig, flows: u32) -> NatConfig {
    let allowance = HomeAllowance {
        ports: config.ports_per_subscriber,
        flows,
        sessions: config.sessions_per_subscriber,
        new_flows_per_sec: config.new_flows_per_sec,
        new_flows_burst: config.new_flows_burst,
    };
    config.group_allowances = [(3, allowance)].into();
    config
}

#[test]
fn home_over_ipv6_has_the_limits_of_its_group() {
    let mut world = World::new(with_group(over_ipv6(config()), 10));
    group(&mut world, "2001:db8:e::/127");
    let begin = |world: &mut World, of: u64, from: u16| {
        (from..from + 50).filter(|&port| world.send(of, port).is_ok()).count()
    };
    assert_eq!([1, 2].map(|of| begin(&mut world, of, 1)), [10, 50]);
    assert!(world.send6(1, 5000).is_err(), "one sum of both families");
    // A change is in force from the next second on, and another handle makes no difference.
    group(&mut world, "2001:db8:e::2/127");
    world.wait(1);
    assert_eq!([1, 2].map(|of| begin(&mut world, of, 100)), [50, 0]);
}

#[test]
fn group_of_a_home_over_ipv6_is_the_same_on_a_replica_with_another_handle() {
    let config = with_group(over_ipv6(pair_config()), 4);
    let (mut primary, mut replica) = (worker(config.clone(), 0x7f), worker(config, 0x80));
    for world in [&mut primary, &mut replica] {
        group(world, "2001:db8:e::1/128");
    }
    (2..=9).for_each(|n| _ = replica.home6(n));
    for n in [1, 2] {
        (1..=4).for_each(|port| _ = primary.send(n, port).unwrap());
    }
    replicate(&mut primary, &mut replica);
    replica.wait(1);
    assert_ne!(primary.known(1), replica.known(1));
    assert_eq!(replica.send(1, 5), Err(Refusal::FlowsPerSubscriber));
    assert!(replica.send(2, 5).is_ok());
}

/// Gives the n-th home a public address of its own.
fn own_address(world: &mut World, n: u64) {
    let mapping = StaticMapping {
        outer: OuterAddress::Ipv6(outer(n)),
        gre_key: None,
        inside: Endpoint::new(inside(0).address, 0),
        public: Endpoint::new(address("203.0.113.2"), 0),
        scope: StaticScope::Address,
    };
    let statics = std::sync::Arc::new(StaticMappings::new(&[mapping]).unwrap());
    let _former = world.nat.admin_mut().swap_statics(statics);
    for _ in 0..2 {
        world.nat.expire(world.now, 1, 1);
    }
}

fn arrive(world: &mut World, tcp_flags: u8) -> Result<Home, Refusal> {
    let public = at("203.0.113.2:443");
    let known = match world.back(public, server(1), Protocol::Tcp, tcp_flags) {
        Err(Refusal::NoMapping) => {
            let remote = server(1);
            let packet = Inbound { public, remote, protocol: Protocol::Tcp, tcp_flags };
            world.nat.inbound_static(&packet, world.now).map(|translated| translated.to)
        }
        known => known,
    };
    world.nat.release_outers();
    known.map(|delivery| delivery.home)
}

#[test]
fn static_mapping_names_a_home_over_ipv6_that_holds_no_state() {
    let mut world = World::new(over_ipv6(config()));
    own_address(&mut world, 1);
    assert_eq!(arrive(&mut world, ACK), Err(Refusal::TcpNotSyn));
    assert_eq!(world.outers(), 0, "what begins no flow leaves no handle behind");
    // Each time under another handle.
    for round in 0..2 {
        let home = arrive(&mut world, SYN).unwrap();
        assert_eq!(world.nat.outer_address(&home), OuterAddress::Ipv6(outer(1)));
        let port = Endpoint::new(inside(0).address, 443);
        let answered = world.tcp_out(home, port, server(1), SYN_ACK);
        assert_eq!(answered, Ok(at("203.0.113.2:443")), "round {round}");
        let begun = world.send(1, 0).unwrap();
        assert_eq!(begun, Endpoint::new(address("203.0.113.2"), inside(0).port));
        assert_ne!(world.send(2, 0).unwrap().address, begun.address, "another home");
        let flushed = world.nat.admin_mut().flush_subscriber(selector(1), world.now);
        assert_eq!(flushed, 2);
        world.wait_and_collect(1000);
        world.wait_and_collect(1000);
        world.nat.release_outers();
        assert_eq!(world.outers(), 0);
    }
}

#[test]
fn static_flows_of_a_home_over_ipv6_are_the_homes_on_a_replica_and_end_with_the_mapping() {
    let config = over_ipv6(pair_config());
    let (mut primary, mut replica) = (worker(config.clone(), 0x7f), worker(config, 0x80));
    (2..=9).for_each(|n| _ = replica.home6(n));
    for world in [&mut primary, &mut replica] {
        own_address(world, 1);
    }
    let home = arrive(&mut primary, SYN).unwrap();
    replicate(&mut primary, &mut replica);
    let copied = arrive(&mut replica, ACK).unwrap();
    assert_ne!(copied.outer, home.outer);
    assert_eq!(replica.nat.outer_address(&copied), OuterAddress::Ipv6(outer(1)));
    // It takes the lanes over, and the walk ends nothing of what the settings still say.
    replica.nat.replica_mut().set_owned_lanes(SHARD, 0xff, replica.now);
    replica.wait_and_collect(1);
    assert_eq!(replica.flows(), 1);
    let port = Endpoint::new(inside(0).address, 443);
    let answered = replica.tcp_out(copied, port, server(1), SYN_ACK);
    assert_eq!(answered, Ok(at("203.0.113.2:443")));
    own_address(&mut replica, 2);
    replica.wait_and_collect(1);
    assert_eq!(replica.flows(), 0, "the address is another home's");
}

#[test]
fn reserved_addresses_are_no_ipv4_homes_beside_tunnels_over_ipv6() {
    let mut config = over_ipv6(config());
    config.subscribers.push("240.1.0.0/16".parse().unwrap());
    let error = Nat::new(config.clone()).unwrap_err().to_string();
    assert!(error.contains("240.1.0.0/16") && error.contains("240.0.0.0/4"), "{error}");
    config.subscribers6.clear();
    assert!(Nat::new(config).is_ok());
}

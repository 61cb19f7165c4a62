//! Port forwards and one-to-one addresses, as packets see them.

use std::sync::Arc;

use weir_engine::{AccessMode, DropReason, EngineConfig, Misses, Side};
use weir_nat::{Endpoint, Protocol, ShardIndex, StaticMapping, StaticMappings, StaticScope};
use weir_wire::build;
use weir_wire::tcp::{ACK, SYN};

use crate::world::*;

const PUBLIC: &str = "203.0.113.2";
const SHARD: ShardIndex = ShardIndex(0);

fn forward(home: &str, port: u16, public_port: u16, scope: StaticScope) -> StaticMapping {
    StaticMapping {
        outer: home.to_bits().into(),
        gre_key: None,
        inside: Endpoint::new(PC.to_bits(), port),
        public: Endpoint::new(PUBLIC.to_bits(), public_port),
        scope,
    }
}

fn with(config: EngineConfig, mappings: &[StaticMapping]) -> World {
    let mut world = World::new(config);
    let statics = Arc::new(StaticMappings::new(mappings).unwrap());
    let _former = world.engine.nat_mut().admin_mut().swap_statics(statics);
    world
}

fn web() -> StaticMapping {
    forward(HOME_A, 443, 8443, StaticScope::Port(Protocol::Tcp))
}

#[test]
fn connection_from_the_internet_reaches_the_home_of_a_forward_and_is_answered() {
    let mut world = with(config(), &[web()]);
    let syn = build::ipv4(SERVER, PUBLIC).tcp(build::tcp(5000, 8443).syn());
    let (to, _, inner) = world.down(&syn).into_home();
    assert_eq!((to, ends(&inner)), (HOME_A.to_bits(), (SERVER.to_bits(), 5000, PC.to_bits(), 443)));
    let answer = build::ipv4(PC, SERVER).tcp(build::tcp(443, 5000).flags(SYN | ACK));
    let sent = world.up(HOME_A, answer).into_internet();
    assert_eq!(ends(&sent), (PUBLIC.to_bits(), 8443, SERVER.to_bits(), 5000));
    for _ in 0..3 {
        let data = build::ipv4(SERVER, PUBLIC).tcp(build::tcp(5000, 8443).payload(b"data"));
        assert_eq!(ends(&world.down(&data).into_home().2).3, 443);
        let data = build::ipv4(PC, SERVER).tcp(build::tcp(443, 5000).payload(b"data"));
        assert_eq!(ends(&world.up(HOME_A, data).into_internet()).1, 8443);
    }
    assert_eq!(world.drops(), 0);
    let other = build::ipv4(SERVER, PUBLIC).tcp(build::tcp(5000, 8444).syn());
    assert!(world.down(&other).is_nothing());
    assert_eq!(world.counters.dropped(DropReason::NoMapping), 1);
}

#[test]
fn home_reaches_its_own_forward_and_that_of_another_home_by_the_public_address() {
    let forwards = [web(), forward(HOME_B, 80, 8080, StaticScope::Port(Protocol::Tcp))];
    let mut world = with(config(), &forwards);
    for (port, home, inside) in [(8080, HOME_B, 80), (8443, HOME_A, 443)] {
        let syn = build::ipv4(PC, PUBLIC).tcp(build::tcp(6000, port).syn());
        let (to, _, inner) = world.up(HOME_A, syn).into_home();
        let (_, public_port, _, reached) = ends(&inner);
        assert_eq!((to, reached), (home.to_bits(), inside));
        assert!(public_port != 6000 || ends(&inner).0 != PC.to_bits(), "the source is public");
    }
    assert_eq!(world.drops(), 0);
}

#[test]
fn one_to_one_address_passes_both_directions_with_its_ports() {
    let mut world = with(config(), &[forward(HOME_A, 0, 0, StaticScope::Address)]);
    let query = build::ipv4(PC, SERVER).udp(6000, 53, b"query");
    assert_eq!(ends(&world.up(HOME_A, query).into_internet()).0, PUBLIC.to_bits());
    let call = build::ipv4(SERVER_2, PUBLIC).udp(5060, 5060, b"call");
    let (to, _, inner) = world.down(&call).into_home();
    assert_eq!((to, ends(&inner).3), (HOME_A.to_bits(), 5060));
    assert_eq!(world.drops(), 0);
}

#[test]
fn forward_works_without_tunnels() {
    let mut config = config();
    config.mode = AccessMode::Plain;
    config.nat.subscribers = vec!["192.168.0.0/16".parse().unwrap()];
    for (shard, net) in config.shards.iter_mut().zip(["192.168.1.0/24", "192.168.2.0/24"]) {
        (shard.endpoint, shard.subscribers) = (None, vec![net.parse().unwrap()]);
    }
    let mut world = with(config, &[forward(PC, 443, 8443, StaticScope::Port(Protocol::Tcp))]);
    let syn = build::ipv4(SERVER, PUBLIC).tcp(build::tcp(5000, 8443).syn());
    let inner = world.down(&syn).into_access();
    assert_eq!(ends(&inner), (SERVER.to_bits(), 5000, PC.to_bits(), 443));
}

#[test]
fn worker_that_makes_no_flows_of_the_shard_leaves_forwards_to_the_one_that_does() {
    let mut world = with(config(), &[web()]);
    world.engine.setup().set_misses(SHARD, Misses::Refuse);
    let syn = build::ipv4(SERVER, PUBLIC).tcp(build::tcp(5000, 8443).syn());
    assert!(world.packet(Side::Internet, &syn).is_nothing());
    assert_eq!(world.engine.nat().admin().gauges().flows, 0);
}

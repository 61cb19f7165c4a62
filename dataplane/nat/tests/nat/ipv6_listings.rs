//! IPv6 flows and homes as operators list, filter and flush them.

use std::sync::Arc;

use weir_nat::*;

use crate::world::ipv6::*;
use crate::world::*;

/// Homes without tunnels, each a /56.
fn plain() -> World {
    World::new(with_ipv6(config(), Delegation::Prefix { home_length: 56 }))
}

fn net(text: &str) -> HomeSelector {
    HomeSelector::Ipv6(text.parse().unwrap())
}

fn range6(text: &str) -> FamilyRange {
    let HomeSelector::Ipv6(net) = net(text) else { unreachable!() };
    let (network, mask) = (net.network().to_bits(), net.netmask().to_bits());
    EndpointRange6 { network, mask, port: None }.into()
}

impl World {
    fn udp6(&mut self, home: Home, inside: Endpoint6, remote: Endpoint6) {
        self.udp_out6(home, inside, remote).unwrap();
    }

    /// As [`udp6`](Self::udp6), of the home that is the prefix of the address.
    fn plain_udp6(&mut self, inside: Endpoint6, remote: Endpoint6) {
        self.udp6(self.nat.home_of_inside6(SHARD, inside.address), inside, remote);
    }

    fn shown(&self, name: HomeSelector) -> Vec<SubscriberView> {
        self.nat.admin().subscriber(name)
    }
}

/// Two homes, with two flows of IPv4 and three of IPv6 each.
fn both_families() -> World {
    let mut world = claiming();
    for n in [1, 2] {
        for remote in 0..2 {
            world.udp_out(home(n), inside(0), server(remote)).unwrap();
        }
        for remote in 0..3 {
            world.udp6(home(n), host6(n as u16, 5000), server6(remote));
        }
    }
    world
}

#[test]
fn flows_of_both_families_are_listed_once_each_with_their_clock() {
    let mut world = both_families();
    world.wait_and_collect(7);
    let all = world.list(&SessionFilter::default());
    assert_eq!(all.len(), 10);
    let ends6 = SessionEnds6 { inside: host6(1, 5000), remote: server6(2) };
    let of_ends: Vec<_> = all.iter().filter(|view| view.ipv6() == Some(ends6)).collect();
    let expected = SessionView {
        shard: ShardId(11),
        home: HomeView::Ipv4 { outer: home(1).outer, gre_key: None },
        protocol: Protocol::Udp,
        ends: SessionEnds::Ipv6(ends6),
        state: "one-way",
        age_sec: 7,
        idle_sec: 7,
        timeout_sec: of_ends[0].timeout_sec,
        class: FlowClass::NONE,
    };
    assert_eq!(of_ends, [&expected]);
    let ipv4 = all.iter().find(|view| view.ipv4().is_some()).unwrap();
    assert_eq!(expected.timeout_sec, ipv4.timeout_sec, "the timers are those of IPv4");
    world.wait(expected.timeout_sec);
    world.nat.expire(world.now, 0, 0);
    assert!(world.list(&SessionFilter::default()).is_empty(), "what has run out is not listed");
}

#[test]
fn filters_select_by_family_home_and_ranges() {
    let world = both_families();
    let all = SessionFilter::default();
    let count = |filter: SessionFilter| world.list(&filter).len();
    assert_eq!(count(SessionFilter { family: Some(IpFamily::Ipv4), ..all }), 4);
    assert_eq!(count(SessionFilter { family: Some(IpFamily::Ipv6), ..all }), 6);
    let one = SessionFilter { subscriber: Some(home(1).outer.into()), ..all };
    assert_eq!(count(one), 5);
    assert_eq!(count(SessionFilter { family: Some(IpFamily::Ipv6), ..one }), 3);
    let by_address = SessionFilter { subscriber: Some(net("2001:db8:1000:1::99/128")), ..all };
    assert_eq!(world.list(&by_address), world.list(&one), "the home has claimed the /64");
    for strange in ["2001:db8:1000:3::/64", "2001:db8:1000::/56", "2001:db8:9::/64"] {
        assert_eq!(count(SessionFilter { subscriber: Some(net(strange)), ..all }), 0, "{strange}");
    }
    assert_eq!(count(SessionFilter { inside: Some(range6("2001:db8:1000:1::/64")), ..all }), 3);
    assert_eq!(count(SessionFilter { inside: Some(range6("2001:db8:1000::/48")), ..all }), 6);
    assert_eq!(count(SessionFilter { remote: Some(server6(1).into()), ..all }), 2);
    let port = EndpointRange6 { network: 0, mask: 0, port: Some(443) };
    assert_eq!(count(SessionFilter { remote: Some(port.into()), ..all }), 6);
    let port = EndpointRange6 { port: Some(444), ..port };
    assert_eq!(count(SessionFilter { remote: Some(port.into()), ..all }), 0);
    let tcp = SessionFilter { family: Some(IpFamily::Ipv6), protocol: Some(Protocol::Tcp), ..all };
    assert_eq!(count(tcp), 0);
}

#[test]
fn filter_that_no_family_satisfies_lists_nothing_at_once() {
    let world = both_families();
    let everything = EndpointRange { network: 0, mask: 0, port: None };
    for filter in [
        SessionFilter {
            family: Some(IpFamily::Ipv4),
            inside: Some(range6("::/0")),
            ..Default::default()
        },
        SessionFilter {
            public: Some(everything),
            remote: Some(range6("::/0")),
            ..Default::default()
        },
        SessionFilter {
            inside: Some(everything.into()),
            remote: Some(range6("::/0")),
            ..Default::default()
        },
    ] {
        let (mut cursor, mut found) = (PageCursor::default(), Vec::new());
        let has_more = world.nat.admin().sessions(&mut cursor, 1, &filter, &mut found);
        assert_eq!((has_more, found.len()), (false, 0), "{filter:?}");
    }
}

#[test]
fn flow_with_both_endpoints_given_is_found_by_index() {
    let mut world = both_families();
    world.out6(home(1), host6(1, 5000), server6(1), Protocol::Tcp, SYN).unwrap();
    let filter = SessionFilter {
        inside: Some(host6(1, 5000).into()),
        remote: Some(server6(1).into()),
        ..SessionFilter::default()
    };
    let page = |filter: &SessionFilter| {
        let (mut cursor, mut found) = (PageCursor::default(), Vec::new());
        let has_more = world.nat.admin().sessions(&mut cursor, 1, filter, &mut found);
        assert!(!has_more, "no table is walked");
        found.iter().map(|view| view.protocol).collect::<Vec<_>>()
    };
    assert_eq!(page(&filter), [Protocol::Tcp, Protocol::Udp]);
    let tcp = SessionFilter { protocol: Some(Protocol::Tcp), ..filter };
    assert_eq!(page(&tcp), [Protocol::Tcp]);
    let others = SessionFilter { subscriber: Some(home(2).outer.into()), ..filter };
    assert_eq!(page(&others), []);
    assert_eq!(page(&SessionFilter { remote: Some(server6(9).into()), ..filter }), []);
}

#[test]
fn home_is_shown_with_its_flows_by_family_and_the_prefixes_it_has_claimed() {
    let mut world = both_families();
    world.udp6(home(1), host6(9, 5000), server6(0));
    let views = world.shown(home(1).outer.into());
    let [view] = &views[..] else { panic!("{views:?}") };
    assert_eq!((view.flows, view.flows6, view.mappings), (6, 4, 1));
    let claim = |text: &str, flows| ClaimView { prefix: text.parse().unwrap(), flows };
    let claims = [claim("2001:db8:1000:1::/64", 3), claim("2001:db8:1000:9::/64", 1)];
    assert_eq!(view.claims, claims);
    assert_eq!(world.shown(net("2001:db8:1000:9::5/128")), views, "named by one of its addresses");
    assert!(world.shown(net("2001:db8:1000:3::/64")).is_empty());

    assert_eq!(world.nat.admin_mut().flush_subscriber(home(1).outer, world.now), 5);
    world.nat.admin().audit();
    let [view] = &world.shown(home(1).outer.into())[..] else { panic!("its port rests") };
    assert_eq!((view.flows, view.flows6), (0, 0));
    let resting = claims.map(|claim| ClaimView { flows: 0, ..claim });
    assert_eq!(view.claims, resting, "a claim rests after its last flow");
}

#[test]
fn claims_of_a_home_come_in_bounded_pieces() {
    let mut world = claiming();
    for n in 0..40 {
        world.udp6(home(u32::from(n % 2)), host6(n, 5000), server6(0));
    }
    let (mut cursor, mut parts, mut pieces) = (SubscriberCursor::default(), Vec::new(), 0);
    let mut has_more = true;
    while has_more {
        let mut page = Vec::with_capacity(64);
        let admin = world.nat.admin();
        has_more = admin.subscriber_parts(home(0).outer.into(), &mut cursor, 32, &mut page);
        assert!(page.len() <= 32 && page.capacity() == 64, "a piece does not allocate");
        parts.append(&mut page);
        pieces += 1;
    }
    assert!(pieces > 10_000 / 32, "{pieces} pieces");
    let views = subscriber_views(parts);
    assert_eq!((views.len(), views[0].claims.len()), (1, 20));
}

#[test]
fn home_that_is_a_prefix_is_named_by_it_and_by_its_addresses_alone() {
    let mut world = plain();
    world.plain_udp6(host6(0x0101, 5000), server6(0));
    world.plain_udp6(host6(0x01ff, 5000), server6(0));
    world.plain_udp6(host6(0x0200, 5000), server6(0));
    let views = world.shown(net("2001:db8:1000:100::/56"));
    let [view] = &views[..] else { panic!("{views:?}") };
    assert_eq!(view.home, HomeView::Ipv6("2001:db8:1000:100::/56".parse().unwrap()));
    assert_eq!((view.flows, view.flows6, view.public_address), (2, 2, None));
    assert!(view.claims.is_empty() && view.blocks.is_empty());
    for part in ["2001:db8:1000:1ab::7/128", "2001:db8:1000:101::/64", "2001:db8:1000:100::/57"] {
        assert_eq!(world.shown(net(part)), views, "{part}");
    }
    assert!(world.shown(net("2001:db8:1000::/48")).is_empty(), "several homes have it");
    let half = 0x2001_0db8;
    assert!(world.shown(HomeSelector::Ipv4(half)).is_empty(), "half of a prefix is no address");
    let all = SessionFilter::default();
    let count = |filter: SessionFilter| world.list(&filter).len();
    let of_home = SessionFilter { subscriber: Some(net("2001:db8:1000:100::/56")), ..all };
    assert_eq!(count(of_home), 2);
    assert!(world.list(&of_home).iter().all(|session| session.home == view.home));
    assert_eq!(count(SessionFilter { subscriber: Some(half.into()), ..all }), 0);
    let (mut cursor, mut homes) = (0, Vec::with_capacity(1024));
    while world.nat.admin().homes(&mut cursor, 256, None, &mut homes) {}
    let listed: Vec<_> = homes.iter().map(|home| (home.home, home.flows6)).collect();
    let other = HomeView::Ipv6("2001:db8:1000:200::/56".parse().unwrap());
    assert_eq!(listed, [(view.home, 2), (other, 1)]);
}

#[test]
fn flush_of_a_prefix_ends_the_flows_of_that_home_alone() {
    let mut world = plain();
    for n in [0x0101, 0x01ff, 0x0200] {
        world.plain_udp6(host6(n, 5000), server6(0));
    }
    let mut flush = |name: HomeSelector| world.nat.admin_mut().flush_subscriber(name, world.now);
    assert_eq!(flush(net("2001:db8:1000::/48")), 0, "it is no home");
    assert_eq!(flush(HomeSelector::Ipv4(0x2001_0db8)), 0);
    assert_eq!(flush(net("2001:db8:1000:100::/56")), 2);
    world.nat.admin().audit();
    let left = world.list(&SessionFilter::default());
    let insides: Vec<_> = left.iter().filter_map(|view| Some(view.ipv6()?.inside)).collect();
    assert_eq!(insides, [host6(0x0200, 5000)]);
}

#[test]
fn home_with_delegated_prefixes_is_named_by_them() {
    let mut world = World::new(with_ipv6(config(), Delegation::Static));
    let delegated = |prefix: &str, n| DelegatedPrefix {
        prefix: prefix.parse().unwrap(),
        outer: home(n).outer.into(),
        gre_key: None,
    };
    let list = [delegated("2001:db8:1000:100::/56", 1), delegated("2001:db8:1000:200::/56", 2)];
    let mut delegations = Arc::new(Delegations::new(&list).unwrap());
    world.nat.admin_mut().swap_delegations(&mut delegations);
    world.udp6(home(1), host6(0x0105, 5000), server6(0));
    let named = |text: &str| world.nat.admin().home_with(text.parse().unwrap());
    assert_eq!(named("2001:db8:1000:100::/56"), Some(home(1)));
    assert_eq!(named("2001:db8:1000:2ff::/64"), Some(home(2)));
    assert_eq!(named("2001:db8:1000::/48"), None);
    let views = world.shown(net("2001:db8:1000:142::/64"));
    assert_eq!(views[0].home.ipv4(), Some(home(1).outer));
    assert_eq!((views[0].flows6, views[0].claims.len()), (1, 0));
}

#[test]
fn table_of_claims_counts_them_and_has_no_room_where_none_is_made() {
    let claims = |world: &World| world.nat.admin().table_uses()[6];
    let mut world = claiming();
    assert_eq!(claims(&world), TableUse::new("claims", 0, 10_000));
    for n in 0..5 {
        world.udp6(home(1), host6(n, 5000), server6(0));
    }
    assert_eq!(claims(&world).used, 5);
    assert_eq!(claims(&plain()), TableUse::new("claims", 0, 0));
}

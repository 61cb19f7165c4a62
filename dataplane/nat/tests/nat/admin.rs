//! Listings, subscribers, flush, gauges.

use std::collections::HashSet;

use weir_nat::*;

use crate::world::*;

/// 20 homes with 30 mappings of three remotes each.
fn busy(filtering: Filtering) -> World {
    let mut world = World::new(NatConfig { filtering, ..config() });
    for h in 0..20 {
        for n in 0..30 {
            for remote in 0..3 {
                world.udp_out(home(h), inside(n), server(remote)).unwrap();
            }
        }
    }
    world
}

#[test]
fn pages_show_every_session_once() {
    for filtering in [Filtering::AddressDependent, Filtering::AddressAndPortDependent] {
        let world = busy(filtering);
        let sessions = world.list(&SessionFilter::default());
        assert_eq!(sessions.len(), 1800);
        let distinct: HashSet<_> =
            sessions.iter().map(|session| (session.home.ipv4(), session.ends)).collect();
        assert_eq!(distinct.len(), 1800);
    }
}

#[test]
fn a_page_is_bounded() {
    let world = busy(Filtering::AddressAndPortDependent);
    let (mut cursor, mut page) = (PageCursor::default(), Vec::new());
    assert!(world.nat.admin().sessions(&mut cursor, 64, &SessionFilter::default(), &mut page));
    assert!(page.len() <= 64);
}

#[test]
fn homes_are_listed_once_each_in_bounded_pieces() {
    let world = busy(Filtering::AddressAndPortDependent);
    let list = |shard| {
        let (mut cursor, mut all, mut has_more) = (0, Vec::new(), true);
        while has_more {
            let mut page = Vec::with_capacity(8);
            has_more = world.nat.admin().homes(&mut cursor, 5, shard, &mut page);
            assert!(page.len() <= 5 && page.capacity() == 8);
            all.append(&mut page);
        }
        all
    };
    let homes = list(None);
    assert_eq!(homes.len(), 20);
    let distinct: HashSet<_> = homes.iter().map(|home| home.home.ipv4()).collect();
    assert_eq!(distinct.len(), 20);
    for home in &homes {
        let alone = world.nat.admin().subscriber(home.home.ipv4().unwrap());
        let without_blocks = SubscriberView { blocks: Vec::new(), ..alone[0].clone() };
        assert_eq!(*home, without_blocks);
    }
    assert_eq!(list(Some(homes[0].shard)).len(), 20);
    assert!(list(Some(ShardId(homes[0].shard.0 + 1000))).is_empty());
}

#[test]
fn a_home_is_shown_with_the_flows_it_may_still_begin() {
    let config =
        NatConfig { flows_per_subscriber: 5, new_flows_per_sec: 2, new_flows_burst: 4, ..config() };
    let mut world = World::new(config);
    for n in 0..3 {
        world.udp_out(home(0), inside(n), server(0)).unwrap();
    }
    let shown = |world: &World| world.nat.admin().subscriber(home(0).outer).remove(0);
    let view = shown(&world);
    assert_eq!((view.flows, view.limits.flows), (3, 5));
    assert_eq!((view.blocks_held as usize, view.sessions), (view.blocks.len(), 0));
    assert!(view.limits.blocks >= view.blocks_held);
    assert_eq!((view.new_flows_left, view.limits.new_flows_per_sec), (1, 2));
    world.udp_out(home(0), inside(3), server(0)).unwrap();
    assert_eq!(shown(&world).new_flows_left, 0);
    world.udp_out(home(0), inside(4), server(0)).unwrap_err();
    world.wait(1);
    world.udp_out(home(0), inside(4), server(0)).unwrap();
    assert_eq!(shown(&world).new_flows_left, 1);
}

#[test]
fn filters_select_by_network_protocol_state_and_age() {
    let mut world = busy(Filtering::AddressAndPortDependent);
    let all = SessionFilter::default();
    let network = |endpoint: Endpoint, length: u32| EndpointRange {
        network: endpoint.address,
        mask: u32::MAX << (32 - length),
        port: None,
    };
    let count = |world: &World, filter: SessionFilter| world.list(&filter).len();
    let one = Some(inside(7).into());
    assert_eq!(count(&world, SessionFilter { inside: one, ..all }), 20 * 3);
    let any_port = network(inside(7), 32);
    let of_inside = world.list(&SessionFilter { inside: Some(any_port.into()), ..all });
    assert!(!of_inside.is_empty());
    assert!(
        of_inside.iter().all(|session| session.ipv4().unwrap().inside.address == inside(7).address)
    );
    let public = world.list(&all)[0].ipv4().unwrap().public;
    let of_public = world.list(&SessionFilter { public: Some(network(public, 32)), ..all });
    assert!(of_public.len() > 3);
    assert!(
        of_public.iter().all(|session| session.ipv4().unwrap().public.address == public.address)
    );
    let wide = SessionFilter { remote: Some(network(server(0), 8).into()), ..all };
    assert_eq!(count(&world, wide), 1800);
    let elsewhere = Endpoint::new(server(0).address ^ 1 << 31, 0);
    assert_eq!(
        count(&world, SessionFilter { remote: Some(network(elsewhere, 8).into()), ..all }),
        0
    );

    assert_eq!(count(&world, SessionFilter { protocol: Some(Protocol::Udp), ..all }), 1800);
    assert_eq!(count(&world, SessionFilter { protocol: Some(Protocol::Tcp), ..all }), 0);
    assert!(SESSION_STATES.contains(&"one-way") && SESSION_STATES.contains(&"established"));
    assert_eq!(count(&world, SessionFilter { state: Some("one-way"), ..all }), 1800);
    assert_eq!(count(&world, SessionFilter { state: Some("stream"), ..all }), 0);

    world.wait_and_collect(10);
    world.udp_out(home(1), inside(200), server(0)).unwrap();
    assert_eq!(count(&world, SessionFilter { age_max_sec: Some(9), ..all }), 1);
    assert_eq!(count(&world, SessionFilter { age_min_sec: Some(10), ..all }), 1800);
}

#[test]
fn filters_select() {
    let mut world = busy(Filtering::AddressAndPortDependent);
    let public = world.udp_out(home(3), inside(7), server(0)).unwrap();
    let all = SessionFilter::default();
    let of_home = world.list(&SessionFilter { subscriber: Some(home(3).outer.into()), ..all });
    assert_eq!(of_home.len(), 90);
    assert!(of_home.iter().all(|session| session.home.ipv4() == Some(home(3).outer)));
    let of_public = world.list(&SessionFilter { public: Some(public.into()), ..all });
    assert_eq!(of_public.len(), 3);
    assert!(of_public.iter().all(|session| session.ipv4().unwrap().inside == inside(7)));
    let of_remote = world.list(&SessionFilter { remote: Some(server(2).into()), ..all });
    assert_eq!(of_remote.len(), 600);
    let one = SessionFilter {
        subscriber: Some(home(3).outer.into()),
        public: Some(public.into()),
        remote: Some(server(2).into()),
        ..all
    };
    assert_eq!(world.list(&one).len(), 1);
    assert!(
        world
            .list(&SessionFilter { public: Some(at("203.0.113.1:1024").into()), ..one })
            .is_empty()
    );
}

#[test]
fn a_session_shows_its_clock_and_state() {
    let mut world = World::new(config());
    let public = world.connect(inside(0), server(0));
    world.wait_and_collect(100);
    world.tcp_out(home(1), inside(0), server(0), FIN_ACK).unwrap();
    world.wait_and_collect(20);
    let sessions = world.list(&SessionFilter::default());
    assert_eq!(
        sessions,
        [SessionView {
            shard: ShardId(11),
            home: HomeView::Ipv4 { outer: home(1).outer, gre_key: None },
            protocol: Protocol::Tcp,
            ends: SessionEnds::Ipv4(SessionEnds4 {
                inside: inside(0),
                public,
                remote: server(0),
                asked: None,
            }),
            state: "fin-wait",
            age_sec: 120,
            idle_sec: 20,
            timeout_sec: 7440,
            class: FlowClass::NONE,
        }]
    );
}

#[test]
fn a_subscriber_shows_its_blocks() {
    let mut world = World::new(NatConfig { port_block: 64, ..config() });
    let mut publics = Vec::new();
    for n in 0..100 {
        publics.push(world.udp_out(home(1), inside(n), server(0)).unwrap());
    }
    let views = world.nat.admin().subscriber(home(1).outer);
    let [view] = &views[..] else { panic!("{views:?}") };
    assert_eq!((view.shard, view.home.ipv4()), (ShardId(11), Some(home(1).outer)));
    assert_eq!(view.public_address, Some(publics[0].address));
    assert_eq!((view.ports_used, view.mappings, view.flows, view.blocks.len()), (100, 100, 100, 2));
    for public in publics {
        assert!(view.blocks.iter().any(|block| block.public_address == public.address
            && (block.port_first..=block.port_last).contains(&public.port)));
    }
    assert!(world.nat.admin().subscriber(home(2).outer).is_empty());
}

#[test]
fn a_flush_ends_one_home_and_its_ports_rest() {
    for filtering in [Filtering::AddressDependent, Filtering::AddressAndPortDependent] {
        let mut world = busy(filtering);
        let public = world.udp_out(home(3), inside(7), server(0)).unwrap();
        assert_eq!(world.nat.admin_mut().flush_subscriber(home(3).outer, world.now), 30);
        assert_eq!(world.udp_back(public, server(0)), Err(Refusal::NoMapping));
        assert_eq!((world.flows(), world.nat.admin().gauges().quarantined), (1710, 30));
        assert_eq!(world.nat.admin_mut().flush_subscriber(home(3).outer, world.now), 0);
        world.wait_and_collect(120);
        assert_eq!(world.nat.admin().gauges().subscribers, 19);
        assert!(world.nat.admin().subscriber(home(3).outer).is_empty());
    }
}

#[test]
fn gauges_count() {
    let world = busy(Filtering::AddressAndPortDependent);
    let gauges = world.nat.admin().gauges();
    assert_eq!((gauges.flows, gauges.flows_max, gauges.subscribers), (1800, 10_000, 20));
    assert_eq!((gauges.flow_creates_total, gauges.flow_expired_total), (1800, 0));
    assert!(gauges.memory_bytes > 10_000 * 64);
    let shard = world.nat.admin().shard_gauges(SHARD);
    assert_eq!((shard.subscribers, shard.ports_used), (20, 600));
    assert_eq!((shard.blocks_total, shard.blocks_free), (4 * 252, 4 * 252 - 20));
    assert_eq!(world.nat.admin().shard_gauges(ShardIndex(1)).subscribers, 0);
}

/// Asks for all pieces of an answer about an address, at most `budget` looks each, in pages of 64.
fn pieces(world: &World, outer: u32, budget: usize) -> (usize, Vec<SubscriberView>) {
    let (mut cursor, mut all, mut pieces) = (SubscriberCursor::default(), Vec::new(), 0);
    let mut has_more = true;
    while has_more {
        let mut page = Vec::with_capacity(64);
        has_more = world.nat.admin().subscriber_parts(outer.into(), &mut cursor, budget, &mut page);
        assert!(page.len() <= budget.min(64) && page.capacity() == 64, "a piece does not allocate");
        all.append(&mut page);
        pieces += 1;
    }
    (pieces, subscriber_views(all))
}

#[test]
fn a_piece_of_an_address_question_looks_at_a_bounded_number_of_slots() {
    let capacity = 4_000;
    let large = NatShardConfig { subscribers_max: capacity, ..shard(11, "203.0.113.0/30") };
    let mut world =
        World::new(NatConfig { gre_key_identifies_home: true, shards: vec![large], ..config() });
    let keys = [None, Some(1), Some(900)];
    for n in 0..300 {
        world.udp_out(home(n), inside(0), server(0)).unwrap();
        let key = keys.get(n as usize / 100).copied().flatten();
        world.udp_out(Home { gre_key: key, ..home(7) }, inside(0), server(0)).unwrap();
    }
    let (pieces, views) = pieces(&world, home(7).outer, 16);
    assert!(pieces >= capacity as usize / 16, "{pieces} pieces");
    let shown: HashSet<_> = views.iter().map(|view| view.home.gre_key()).collect();
    assert_eq!((views.len(), shown), (3, keys.into_iter().collect()));
    assert!(
        views.iter().all(|view| view.home.ipv4() == Some(home(7).outer) && view.blocks.len() == 1)
    );
}

#[test]
fn a_piece_of_an_address_question_shows_a_bounded_number_of_blocks() {
    let mut world = World::new(NatConfig { port_block: 64, ..config() });
    for n in 0..1_900 {
        world.udp_out(home(1), inside(n), server(0)).unwrap();
    }
    let at_once = world.nat.admin().subscriber(home(1).outer);
    assert!(at_once[0].blocks.len() >= 29);
    for budget in [2, 3, 7, 29, 30, 31, 1_000] {
        let (count, views) = pieces(&world, home(1).outer, budget);
        assert_eq!(views, at_once, "budget {budget}");
        assert!(count >= 30 / budget, "{count} pieces with {budget}");
    }
}

#[test]
fn a_home_removed_while_it_is_shown_hides_no_other_home() {
    let mut world = World::new(NatConfig { port_block: 64, ..config() });
    for n in 0..300 {
        world.udp_out(home(1), inside(n), server(0)).unwrap();
        let other = Home { shard: ShardIndex(1), ..home(1) };
        world.udp_out(other, inside(n), server(0)).unwrap();
    }
    let mut parts = Vec::with_capacity(64);
    let mut cursor = SubscriberCursor::default();
    assert!(world.nat.admin().subscriber_parts(home(1).outer.into(), &mut cursor, 3, &mut parts));
    assert_eq!(world.nat.admin_mut().flush_subscriber(home(1).outer, world.now), 600);
    world.wait_and_collect(130);
    // Another home in its slot, then the same address again in the other shard.
    world.udp_out(home(2), inside(0), server(0)).unwrap();
    world.udp_out(Home { shard: ShardIndex(1), ..home(1) }, inside(0), server(0)).unwrap();
    while world.nat.admin().subscriber_parts(home(1).outer.into(), &mut cursor, 3, &mut parts) {}
    let views = subscriber_views(parts);
    assert_eq!(views.iter().map(|view| view.shard).collect::<Vec<_>>(), [ShardId(11), ShardId(12)]);
    assert_eq!(views[1].blocks.len(), 1);
    assert!(views.iter().all(|view| view.home.ipv4() == Some(home(1).outer)));
}

#[test]
fn a_piece_of_a_flush_ends_a_bounded_number_of_mappings_and_sessions() {
    let filtering = Filtering::AddressAndPortDependent;
    let mut world = World::new(NatConfig { port_block: 4096, filtering, ..config() });
    for n in 0..1_500 {
        world.udp_out(home(1), inside(n), server(0)).unwrap();
    }
    // One mapping with many remotes, and a home that is to stay.
    for remote in 1..2_000 {
        world.udp_out(home(1), inside(0), server(remote)).unwrap();
    }
    world.udp_out(home(2), inside(0), server(0)).unwrap();
    let mut flush = world.nat.admin().begin_flush(home(1).outer);
    let (mut pieces, mut before) = (1, world.nat.admin().gauges().flows);
    while world.nat.admin_mut().flush(&mut flush, world.now) {
        let now = world.nat.admin().gauges().flows;
        assert!(before - now <= 256, "{} ended in one piece", before - now);
        (before, pieces) = (now, pieces + 1);
    }
    assert_eq!((flush.ended(), world.nat.admin().gauges().flows), (1_500, 1));
    assert!(pieces >= 4_096 * 3 / 256, "{pieces} pieces");
}

#[test]
fn a_flush_whose_mappings_end_meanwhile_spares_all_other_homes() {
    let mut world = World::new(NatConfig { quarantine_sec: 0, ..config() });
    for n in 0..256 {
        for remote in 0..3 {
            world.udp_out(home(1), inside(n), server(remote)).unwrap();
        }
    }
    let mut flush = world.nat.admin().begin_flush(home(1).outer);
    while flush.ended() == 0 {
        assert!(world.nat.admin_mut().flush(&mut flush, world.now));
    }
    // All that is left runs out, and another home gets the slot and the records.
    world.wait_and_collect(1_000);
    world.wait_and_collect(1_000);
    assert_eq!(world.nat.admin().gauges().subscribers, 0);
    for n in 0..256 {
        world.udp_out(home(2), inside(n), server(0)).unwrap();
    }
    while world.nat.admin_mut().flush(&mut flush, world.now) {}
    assert_eq!(world.nat.admin().gauges().flows, 256);
}

//! Lanes of two workers: which worker writes and copies a lane, and how a worker serves lanes that
//! it does not own.

use weir_nat::*;

use crate::world::pair::*;
use crate::world::*;

#[test]
fn each_worker_creates_in_its_own_lanes_and_serves_all_lanes() {
    let (mut primary, mut replica) = pair(&pair_config());
    let first = primary.udp_out(home(1), inside(1), server(1)).unwrap();
    assert_ne!(lane_of(first), 7);
    assert_eq!(replicate(&mut primary, &mut replica), [ChangeKind::Create]);
    assert_eq!(replica.udp_back(first, server(1)).unwrap().inside, inside(1));
    assert_eq!(replica.udp_out(home(1), inside(1), server(1)), Ok(first));
    // A new inside endpoint: on the home's address, in the replica's own lane.
    let second = replica.udp_out(home(1), inside(2), server(1)).unwrap();
    assert_eq!((lane_of(second), second.address), (7, first.address));
    assert_eq!(replicate(&mut replica, &mut primary), [ChangeKind::Create]);
    assert_eq!(primary.udp_back(second, server(1)).unwrap().inside, inside(2));
}

/// The block lists have room for each worker's blocks: the quota that the primary used up does not
/// count at the replica.
#[test]
fn a_home_at_its_quota_is_served_by_the_replica_at_once() {
    let (mut primary, mut replica) = pair(&pair_config());
    for n in 0..64 {
        primary.udp_out(home(1), inside(n), server(1)).unwrap();
    }
    let more = primary.udp_out(home(1), inside(64), server(1));
    assert_eq!(more, Err(Refusal::PortsExhausted));
    replicate(&mut primary, &mut replica);
    for n in 64..128 {
        replica.udp_out(home(1), inside(n), server(1)).unwrap();
    }
    let more = replica.udp_out(home(1), inside(128), server(1));
    assert_eq!(more, Err(Refusal::PortsExhausted));
    assert_eq!(replica.nat.admin().subscriber(home(1).outer)[0].blocks.len(), 2);
}

/// The timers of a copy run at the owner: nothing ends at the replica, however long it sees no
/// packet.
#[test]
fn a_copy_outlives_all_timers() {
    let (mut primary, mut replica) = pair(&pair_config());
    let public = primary.udp_out(home(1), inside(1), server(1)).unwrap();
    let tcp = primary.connect(inside(2), server(1));
    replicate(&mut primary, &mut replica);
    replica.wait_and_collect(100_000);
    assert_eq!(replica.udp_back(public, server(1)).unwrap().inside, inside(1));
    assert_eq!(replica.tcp_out(home(1), inside(2), server(1), ACK), Ok(tcp));
    assert_eq!(replica.list(&SessionFilter::default()).len(), 2);
    primary.wait_and_collect(100_000);
    assert_eq!(
        replicate(&mut primary, &mut replica),
        [ChangeKind::Change; 2],
        "both are in quarantine"
    );
    assert_eq!(replica.udp_back(public, server(1)), Err(Refusal::NoMapping));
    primary.wait_and_collect(120);
    assert_eq!(replicate(&mut primary, &mut replica), [ChangeKind::Delete; 2]);
    replica.assert_empty_but_lanes();
}

#[test]
fn a_lane_that_was_given_up_is_served_but_not_written() {
    let (mut primary, mut replica) = pair(&pair_config());
    let public = primary.udp_out(home(1), inside(1), server(1)).unwrap();
    replicate(&mut primary, &mut replica);
    primary.nat.replica_mut().set_owned_lanes(SHARD, 0, primary.now);
    replica.nat.replica_mut().set_owned_lanes(SHARD, 0xff, replica.now);
    assert_eq!(primary.nat.replica().owned_lanes(SHARD), 0);
    assert_eq!(primary.udp_out(home(1), inside(1), server(1)), Ok(public));
    let refused = primary.udp_out(home(1), inside(2), server(1));
    assert_eq!(refused, Err(Refusal::PortsExhausted));
    primary.wait_and_collect(10_000);
    assert_eq!(primary.udp_back(public, server(1)).unwrap().inside, inside(1));
    // The new owner goes on, in the same slot and in new ones.
    let second = replica.udp_out(home(1), inside(2), server(1)).unwrap();
    let third = replica.udp_out(home(2), inside(3), server(1)).unwrap();
    replicate(&mut replica, &mut primary);
    assert_eq!(primary.udp_back(second, server(1)).unwrap().inside, inside(2));
    assert_eq!(primary.udp_back(third, server(1)).unwrap().home.outer, home(2).outer);
    replica.wait_and_collect(300);
    replica.wait_and_collect(120);
    replicate(&mut replica, &mut primary);
    primary.assert_empty_but_lanes();
    // The lane goes back to its first owner.
    replica.nat.replica_mut().set_owned_lanes(SHARD, 0, replica.now);
    primary.nat.replica_mut().set_owned_lanes(SHARD, 0xff, primary.now);
    let fourth = primary.udp_out(home(1), inside(1), server(1)).unwrap();
    assert_eq!(replicate(&mut primary, &mut replica), [ChangeKind::Create], "its version is later");
    assert_eq!(replica.udp_back(fourth, server(1)).unwrap().inside, inside(1));
}

/// Timers and quarantines start again in full at the worker that takes a lane over.
#[test]
fn a_take_over_restarts_timers_and_keeps_the_tcp_state() {
    let (mut primary, mut replica) = pair(&pair_config());
    let tcp = primary.connect(inside(1), server(1));
    let udp = primary.udp_out(home(1), inside(2), server(1)).unwrap();
    let ended = primary.udp_out(home(1), inside(3), server(1)).unwrap();
    primary.wait_and_collect(250);
    primary.udp_out(home(1), inside(2), server(1)).unwrap();
    primary.wait_and_collect(60);
    replicate(&mut primary, &mut replica);
    assert_eq!(replica.flows(), 2);
    replica.wait_and_collect(50_000);
    replica.nat.replica_mut().set_owned_lanes(SHARD, 0xff, replica.now);
    assert_eq!(replica.nat.admin().gauges().quarantined, 1);
    let states: Vec<_> = replica
        .list(&SessionFilter { public: Some(tcp.into()), ..SessionFilter::default() })
        .iter()
        .map(|session| (session.state, session.idle_sec, session.timeout_sec))
        .collect();
    assert_eq!(states, [("established", 0, 7440)]);
    replica.wait_and_collect(119);
    assert_eq!(replica.nat.admin().gauges().quarantined, 1, "{ended} rests");
    replica.wait_and_collect(1);
    assert_eq!(replica.nat.admin().gauges().quarantined, 0);
    replica.wait_and_collect(179);
    assert_eq!(replica.udp_back(udp, server(1)).unwrap().inside, inside(2), "299 seconds");
    replica.wait_and_collect(1);
    assert_eq!(replica.flows(), 1);
    replica.wait_and_collect(7139);
    assert_eq!(replica.flows(), 1);
    replica.wait_and_collect(1);
    assert_eq!(replica.flows(), 0);
}

/// A TCP state that a non-owner saw is in its copy, and is what it continues with.
#[test]
fn a_handshake_across_a_failure_is_completed() {
    let (mut primary, mut replica) = pair(&pair_config());
    let public = primary.tcp_out(home(1), inside(1), server(1), SYN).unwrap();
    replicate(&mut primary, &mut replica);
    replica.tcp_back(public, server(1), SYN_ACK).unwrap();
    replica.tcp_out(home(1), inside(1), server(1), ACK).unwrap();
    replica.nat.replica_mut().set_owned_lanes(SHARD, 0xff, replica.now);
    assert_eq!(replica.list(&SessionFilter::default())[0].state, "established");
}

#[test]
fn changes_of_an_owned_lane_from_other_workers_are_refused() {
    let (mut primary, mut replica) = pair(&pair_config());
    let public = primary.udp_out(home(1), inside(1), server(1)).unwrap();
    let mut body = [0; BODY_MAX];
    let (create, len) = primary.nat.replica_mut().next_change(&mut body).unwrap();
    let update = SlotChange { kind: ChangeKind::OwnerUpdate, ..create };
    replica.nat.replica_mut().set_owned_lanes(SHARD, 0xff, replica.now);
    for kind in [ChangeKind::Create, ChangeKind::Change, ChangeKind::Delete] {
        let change = SlotChange { kind, ..create };
        assert_eq!(
            replica.nat.replica_mut().apply(&change, &body[..len], replica.now),
            Applied::Ours
        );
    }
    assert_eq!(primary.nat.replica_mut().apply(&create, &body[..len], primary.now), Applied::Ours);
    assert_eq!(
        replica.nat.replica_mut().apply(&update, &[4, 4, 0, 0, 0, 0], replica.now),
        Applied::Old
    );
    assert_eq!(replica.flows(), 0);
    assert_eq!(primary.udp_back(public, server(1)).unwrap().inside, inside(1));
    let elsewhere = SlotChange { shard: ShardIndex(2), ..create };
    assert_eq!(
        replica.nat.replica_mut().apply(&elsewhere, &body[..len], replica.now),
        Applied::Invalid
    );
}

/// A body that names a port of another lane, of another shard or of no shard is no record of this
/// lane.
#[test]
fn a_record_lies_in_the_lane_of_its_port() {
    let (mut primary, mut replica) = pair(&pair_config());
    primary.udp_out(home(1), inside(1), server(1)).unwrap();
    let mut body = [0; BODY_MAX];
    let (create, len) = primary.nat.replica_mut().next_change(&mut body).unwrap();
    let mut apply = |change: SlotChange, edit: fn(&mut [u8])| {
        let mut body = body;
        edit(&mut body);
        replica.nat.replica_mut().apply(&change, &body[..len], replica.now)
    };
    let other_lane = SlotChange { lane: (create.lane + 1) % 7, ..create };
    assert_eq!(apply(other_lane, |_| ()), Applied::Invalid);
    assert_eq!(apply(SlotChange { shard: ShardIndex(1), ..create }, |_| ()), Applied::Ours);
    assert_eq!(apply(create, |body| body[9] ^= 1), Applied::Invalid, "not the shard's address");
    assert_eq!(apply(create, |body| body[13] ^= 1), Applied::Invalid, "not a subscriber");
    assert_eq!(apply(create, |body| body[22] = 47), Applied::Invalid, "GRE has no ports");
    assert_eq!(apply(SlotChange { version: 0, ..create }, |_| ()), Applied::Invalid);
    assert_eq!(apply(create, |_| ()), Applied::Done);
    assert_eq!(replica.nat.admin().mirror_gauges().changes_invalid_total, 5);
}

#[test]
fn unread_changes_are_lost_and_their_lanes_are_reported() {
    let config = NatConfig {
        flows_max: 100_000,
        ports_per_subscriber: 65_536,
        port_block: 256,
        shards: vec![shard(11, "203.0.113.0/30"), shard(12, "198.51.100.0/30")],
        ..pair_config()
    };
    let mut world = worker(config, 0xff);
    for n in 0..90_000_u32 {
        let inside = Endpoint::new(address("192.168.0.0") + n / 50_000, (n % 50_000) as u16);
        world.udp_out(home(n % 4), inside, server(1)).unwrap();
    }
    let mut lost = Vec::new();
    while let Some((shard, lane)) = world.nat.replica_mut().take_lost() {
        assert_eq!(shard, SHARD);
        lost.push(lane);
    }
    assert_eq!(lost, [0, 1, 2, 3, 4, 5, 6, 7]);
    let mut body = [0; BODY_MAX];
    let sent = std::iter::from_fn(|| world.nat.replica_mut().next_change(&mut body)).count();
    assert_eq!(sent, 65_536);
}

/// A replica that is smaller than its primary reports a full copy, and serves the records that it
/// has.
#[test]
fn a_copy_that_does_not_fit_is_marked_full() {
    let config = NatConfig { ports_per_subscriber: 2048, ..pair_config() };
    let mut primary = worker(config.clone(), PRIMARY);
    let mut replica = worker(NatConfig { flows_max: 50, ..config }, RESERVE);
    let publics: Vec<_> =
        (0..80).map(|n| primary.udp_out(home(1), inside(n), server(1)).unwrap()).collect();
    let (mut body, mut full) = ([0; BODY_MAX], 0);
    while let Some((change, len)) = primary.nat.replica_mut().next_change(&mut body) {
        let applied = replica.nat.replica_mut().apply(&change, &body[..len], replica.now);
        full += u32::from(applied == Applied::Full);
    }
    assert_eq!(full, 30);
    assert!((0..7).any(|lane| replica.nat.replica().is_copy_full(SHARD, lane)));
    let served = publics.iter().filter(|&&public| replica.udp_back(public, server(1)).is_ok());
    assert_eq!(served.count(), 50);
    (0..7).for_each(|lane| replica.nat.replica_mut().begin_copy(SHARD, lane));
    assert!((0..7).all(|lane| !replica.nat.replica().is_copy_full(SHARD, lane)));
}

/// The firewall has no ports to deal, but lanes for its records.
#[test]
fn a_firewall_is_mirrored_and_taken_over() {
    let config = NatConfig { enabled: false, ..pair_config() };
    let (mut primary, mut replica) = pair(&config);
    let host = at("203.0.113.1:5000");
    primary.tcp_out(home(1), host, server(1), SYN).unwrap();
    primary.tcp_back(host, server(1), SYN_ACK).unwrap();
    replicate(&mut primary, &mut replica);
    assert_eq!(replica.tcp_back(host, server(1), ACK).unwrap().inside, host);
    assert_eq!(replica.tcp_out(home(1), host, server(1), ACK), Ok(host));
    let other = at("203.0.113.2:5000");
    assert_eq!(replica.udp_out(home(1), other, server(1)), Ok(other), "in a lane of its own");
    replicate(&mut replica, &mut primary);
    assert_eq!(primary.udp_back(other, server(1)).unwrap().inside, other);
    replica.nat.replica_mut().set_owned_lanes(SHARD, 0xff, replica.now);
    replica.wait_and_collect(7439);
    assert_eq!(replica.flows(), 1);
    replica.wait_and_collect(1);
    replica.assert_empty_but_lanes();
}

/// A replica that has to open flows itself knows from its copies which home owns an address.
#[test]
fn a_replica_knows_the_home_of_an_address_from_its_copies() {
    let config = NatConfig { enabled: false, ..pair_config() };
    let (mut primary, mut replica) = pair(&config);
    let (host, other) = (at("203.0.113.1:5000"), at("203.0.113.1:5001"));
    primary.udp_out(home(1), host, server(1)).unwrap();
    replicate(&mut primary, &mut replica);
    let refused = Err(Refusal::AddressConflict);
    assert_eq!(replica.udp_out(home(2), other, server(1)), refused);
    assert_eq!(replica.udp_out(home(1), other, server(1)), Ok(other));
    let lanes: Vec<u8> = replica.events().iter().map(|event| event.lane).collect();
    assert_eq!(lanes, [7], "its own flow is logged, and not the copy");
    // The primary's end arrives: only the replica's own flow is left, then the rest.
    primary.wait_and_collect(300);
    replicate(&mut primary, &mut replica);
    assert_eq!(replica.udp_out(home(2), host, server(1)), refused);
    replica.nat.replica_mut().set_owned_lanes(SHARD, 0xff, replica.now);
    replica.wait_and_collect(300);
    assert_eq!(replica.flows(), 0);
    replica.wait_and_collect(119);
    assert_eq!(replica.udp_out(home(2), host, server(1)), refused);
    replica.wait_and_collect(1);
    assert_eq!(replica.udp_out(home(2), host, server(1)), Ok(host));
}

/// Two workers that do not reach each other let in one home each. Later both agree on the home that
/// was first; the flows of both homes go on.
#[test]
fn the_first_of_two_homes_with_one_address_opens_flows() {
    let config = NatConfig { enabled: false, ..pair_config() };
    let (mut primary, mut replica) = pair(&config);
    let at = |port| Endpoint::new(address("203.0.113.1"), port);
    primary.udp_out(home(2), at(5000), server(1)).unwrap();
    for world in [&mut primary, &mut replica] {
        world.wait_and_collect(5);
    }
    replica.udp_out(home(1), at(5001), server(1)).unwrap();
    replicate(&mut primary, &mut replica);
    replicate(&mut replica, &mut primary);
    for world in [&mut primary, &mut replica] {
        let (first, second) = (home(2), home(1));
        assert_eq!(world.udp_back(at(5000), server(1)).unwrap().home, first);
        assert_eq!(world.udp_back(at(5001), server(1)).unwrap().home, second);
        assert_eq!(world.udp_out(second, at(5001), server(1)), Ok(at(5001)));
        assert_eq!(world.udp_out(second, at(5002), server(1)), Err(Refusal::AddressConflict));
        assert_eq!(world.udp_out(first, at(5003), server(1)), Ok(at(5003)));
    }
}

/// A relay may have missed a mapping's end, and the mapping's port or block may belong to another
/// home by then: its holder keeps it. A change from the lane's writer replaces the holder.
#[test]
fn a_relayed_mapping_takes_no_port_or_block_from_its_holder() {
    // Offsets of the home and of the inside port in the body of a mapping.
    const OUTER: usize = 10;
    const INSIDE: usize = 18;
    for (offset, by_writer) in [(INSIDE, inside(2)), (OUTER, inside(1))] {
        for is_relayed in [false, true] {
            let (mut primary, mut replica) = pair(&pair_config());
            let public = primary.udp_out(home(1), inside(1), server(1)).unwrap();
            let mut body = [0; BODY_MAX];
            let (change, len) = primary.nat.replica_mut().next_change(&mut body).unwrap();
            assert_eq!(
                replica.nat.replica_mut().apply(&change, &body[..len], replica.now),
                Applied::Done
            );
            // The same port for another home, or for another inside endpoint of the home.
            body[offset] += 1;
            let other = SlotChange { slot: change.slot + 1, ..change };
            let at = (other.shard, other.lane);
            let sent = std::iter::once((other.in_lane(), &body[..len]));
            replica.nat.replica_mut().apply_burst(at, sent, is_relayed, replica.now);
            let holder = replica.udp_back(public, server(1)).unwrap();
            let known = (holder.home.outer, holder.inside);
            let expected = match is_relayed {
                true => (home(1).outer, inside(1)),
                false => (home(1).outer + u32::from(offset == OUTER), by_writer),
            };
            assert_eq!(known, expected);
            assert_eq!(replica.flows(), 1);
            assert!(!replica.nat.replica().is_copy_full(SHARD, change.lane));
        }
    }
}

/// A clear of free slots may be late: a mapping that began in them may have arrived another way. It
/// comes back with its owner's next change.
#[test]
fn a_record_removed_by_a_late_clear_comes_back() {
    let (mut primary, mut replica) = pair(&pair_config());
    // One mapping has ended: as far as other workers know, the record of any slot may have ended.
    for n in 1..=2 {
        primary.udp_out(home(1), inside(n), server(1)).unwrap();
    }
    primary.wait(200);
    primary.udp_out(home(1), inside(1), server(1)).unwrap();
    primary.wait_and_collect(110);
    primary.wait_and_collect(120);
    assert_eq!(primary.flows(), 1);
    replicate(&mut primary, &mut replica);
    let mut sent = Vec::new();
    for lane in 0..7 {
        let slots = primary.nat.replica().lane_slots(SHARD, lane);
        primary.nat.replica().copy_lane(SHARD, lane, 0..slots, u32::MAX, |change, body| {
            sent.push((*change, body.to_vec()));
            true
        });
    }
    assert!(sent.iter().any(|(change, _)| change.kind == ChangeKind::Clear));
    let given: Vec<_> =
        (3..60).map(|n| primary.udp_out(home(1), inside(n), server(1)).unwrap()).collect();
    let mut body = [0; BODY_MAX];
    let next = || {
        primary.nat.replica_mut().next_change(&mut body).map(|(it, len)| (it, body[..len].to_vec()))
    };
    let begun: Vec<_> = std::iter::from_fn(next).collect();
    for (change, body) in begun.iter().chain(&sent).chain(&begun) {
        replica.nat.replica_mut().apply(change, body, replica.now);
    }
    for (n, public) in (3..).zip(given) {
        assert_eq!(replica.udp_back(public, server(1)).unwrap().inside, inside(n));
    }
}

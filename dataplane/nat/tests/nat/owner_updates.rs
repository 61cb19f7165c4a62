//! Owner updates: what the owner of a lane learns of flows that another worker serves, and that a
//! new copy takes none back.

use bolero::check;
use weir_nat::*;

use crate::world::pair::*;
use crate::world::*;

#[test]
fn packets_that_only_keep_a_session_alive_are_not_replicated() {
    let (mut primary, mut replica) = pair(&pair_config());
    let public = primary.udp_out(home(1), inside(1), server(1)).unwrap();
    let tcp = primary.connect(inside(2), server(1));
    replicate(&mut primary, &mut replica);
    primary.wait_and_collect(1);
    let kinds = replicate(&mut primary, &mut replica);
    assert_eq!(kinds, [ChangeKind::Change], "the first answer of the home is sent once");
    for _ in 0..20 {
        primary.wait_and_collect(10);
        primary.udp_back(public, server(1)).unwrap();
        primary.udp_out(home(1), inside(1), server(1)).unwrap();
        primary.tcp_back(tcp, server(1), ACK).unwrap();
    }
    assert_eq!(replicate(&mut primary, &mut replica), []);
    primary.tcp_back(tcp, server(1), FIN_ACK).unwrap();
    primary.tcp_out(home(1), inside(2), server(1), FIN_ACK).unwrap();
    assert_eq!(replicate(&mut primary, &mut replica), [ChangeKind::Change], "only its last state");
}

/// A flow whose packets all pass the other worker lives as long as if they passed its owner, and no
/// longer.
#[test]
fn owner_updates_keep_a_flow_alive_that_another_worker_serves() {
    let (mut primary, mut replica) = pair(&pair_config());
    let public = primary.udp_out(home(1), inside(1), server(1)).unwrap();
    replicate(&mut primary, &mut replica);
    let step = |primary: &mut World, replica: &mut World| {
        for world in [&mut *primary, &mut *replica] {
            world.wait_and_collect(5);
        }
        replicate(replica, primary).iter().filter(|&&kind| kind == ChangeKind::OwnerUpdate).count()
    };
    let mut updates = 0;
    for number in 0..400 {
        // A packet every 290 seconds: the longest pause that a timer of 300 allows, with 5 seconds
        // until the owner update.
        if number % 58 == 0 {
            assert_eq!(replica.udp_out(home(1), inside(1), server(1)), Ok(public));
        }
        updates += step(&mut primary, &mut replica);
        assert_eq!(primary.flows(), 1, "after {} seconds", 5 * number);
    }
    assert!((7..=27).contains(&updates), "{updates} in 2,000 seconds, 75 at least between two");
    // The last packet was 52 steps ago.
    let left = (0..).take_while(|_| {
        step(&mut primary, &mut replica);
        primary.flows() == 1
    });
    let left = left.count();
    assert!((7..=8).contains(&left), "ended {left} steps later");
}

/// A connection that ends where its lane's owner does not see it holds its port no longer than one
/// that the owner served.
#[test]
fn the_end_of_a_connection_is_reported_to_the_owner() {
    let (mut primary, mut replica) = pair(&pair_config());
    let (first, further) = (server(1), server(2));
    let public = primary.connect(inside(1), first);
    assert_eq!(primary.connect(inside(1), further), public);
    replicate(&mut primary, &mut replica);
    for remote in [further, first] {
        replica.tcp_out(home(1), inside(1), remote, FIN_ACK).unwrap();
        replica.tcp_back(public, remote, FIN_ACK).unwrap();
        replica.tcp_out(home(1), inside(1), remote, ACK).unwrap();
    }
    assert_eq!(replicate(&mut replica, &mut primary), [ChangeKind::OwnerUpdate; 6]);
    assert_eq!(states(&primary), ["time-wait"; 2]);
    assert_eq!(replicate(&mut primary, &mut replica), [ChangeKind::Change; 2], "to all copies");
    primary.wait_and_collect(240);
    replicate(&mut primary, &mut replica);
    replica.assert_empty_but_lanes();
    primary.assert_empty_but_lanes();
}

/// Whichever segments pass, and whichever worker they pass: the owner's state is as if all had
/// passed the owner. Also if each direction passes a worker of its own, if a reset was forged, or
/// if the connection is opened again.
#[test]
fn segments_through_two_workers_give_the_state_of_one() {
    const FLAGS: [u8; 6] = [SYN, SYN_ACK, ACK, FIN_ACK, RST, RST | ACK];
    check!().with_type::<(bool, Vec<(bool, bool, u8)>)>().for_each(|(is_further, segments)| {
        let (mut primary, mut replica) = pair(&pair_config());
        let mut alone = worker(pair_config(), 0xff);
        let remote = server(1 + u32::from(*is_further));
        let public = primary.connect(inside(1), server(1));
        let public_alone = alone.connect(inside(1), server(1));
        if *is_further {
            primary.connect(inside(1), remote);
            alone.connect(inside(1), remote);
        }
        replicate(&mut primary, &mut replica);
        for &(is_elsewhere, is_inbound, kind) in segments {
            let flags = FLAGS[usize::from(kind) % FLAGS.len()];
            let worker = if is_elsewhere { &mut replica } else { &mut primary };
            if is_inbound {
                worker.tcp_back(public, remote, flags).unwrap();
                alone.tcp_back(public_alone, remote, flags).unwrap();
            } else {
                worker.tcp_out(home(1), inside(1), remote, flags).unwrap();
                alone.tcp_out(home(1), inside(1), remote, flags).unwrap();
            }
            replicate(&mut replica, &mut primary);
            replicate(&mut primary, &mut replica);
            let states = [&primary, &replica, &alone].map(|world| {
                let sessions = world.list(&SessionFilter::default());
                let one =
                    sessions.into_iter().find(|session| session.ipv4().unwrap().remote == remote);
                one.map(|session| (session.state, session.timeout_sec))
            });
            assert!(states[0].is_some() && states.iter().all(|it| *it == states[0]), "{states:?}");
        }
    });
}

/// An owner update was lost, and the owner copies the lane again: the copy keeps what it has seen,
/// and reports it again.
#[test]
fn an_owner_that_missed_the_end_of_a_connection_gets_it_again() {
    let (mut primary, mut replica) = pair(&pair_config());
    let (first, further) = (server(1), server(2));
    let public = primary.connect(inside(1), first);
    primary.connect(inside(1), further);
    replicate(&mut primary, &mut replica);
    for remote in [further, first] {
        replica.tcp_out(home(1), inside(1), remote, FIN_ACK).unwrap();
        replica.tcp_back(public, remote, FIN_ACK).unwrap();
    }
    while replica.nat.replica_mut().next_change(&mut [0; BODY_MAX]).is_some() {}
    copy(&primary, &mut replica, false);
    assert_eq!(states(&replica), ["last-ack"; 2]);
    assert_eq!(replicate(&mut replica, &mut primary), [ChangeKind::OwnerUpdate; 2]);
    assert_eq!(states(&primary), ["last-ack"; 2]);
    assert_eq!(replicate(&mut primary, &mut replica), [ChangeKind::Change; 2]);
    copy(&primary, &mut replica, false);
    assert_eq!(replicate(&mut replica, &mut primary), [], "both have the same state");
}

/// When a connection goes on at its owner, a late owner update brings no earlier state back.
#[test]
fn a_late_owner_update_does_not_end_a_live_connection() {
    let (mut primary, mut replica) = pair(&pair_config());
    let public = primary.connect(inside(1), server(1));
    replicate(&mut primary, &mut replica);
    replica.tcp_back(public, server(1), RST).unwrap();
    let mut body = [0; BODY_MAX];
    let (update, len) = replica.nat.replica_mut().next_change(&mut body).unwrap();
    // As if the segment had been lost, and the owner had had a packet since.
    let state_alone = [&body[..6], &body[16..len]].concat();
    primary.wait(10);
    primary.tcp_out(home(1), inside(1), server(1), ACK).unwrap();
    primary.wait(10);
    let late = [&[4, 4, 0, 0, 0, 20], &state_alone[6..]].concat();
    assert_eq!(primary.nat.replica_mut().apply(&update, &late, primary.now), Applied::Done);
    assert_eq!(states(&primary), ["established"]);
    let in_time = [&[4, 4, 0, 0, 0, 10], &state_alone[6..]].concat();
    assert_eq!(primary.nat.replica_mut().apply(&update, &in_time, primary.now), Applied::Done);
    assert_eq!(states(&primary), ["reset"]);
}

/// The owner counts the sessions that a remote opened, whatever a peer reports of them.
#[test]
fn an_owner_update_leaves_the_session_accounting_unchanged() {
    let (mut primary, mut replica) = pair(&pair_config());
    let public = primary.connect(inside(1), server(1));
    replicate(&mut primary, &mut replica);
    replica.tcp_back(public, server(1), RST).unwrap();
    let mut body = [0; BODY_MAX];
    let (update, len) = replica.nat.replica_mut().next_change(&mut body).unwrap();
    body[len - 2] |= 0x08;
    assert_eq!(primary.nat.replica_mut().apply(&update, &body[..len], primary.now), Applied::Done);
    assert_eq!(states(&primary), ["reset"]);
    primary.wait_and_collect(1800);
    primary.wait_and_collect(1000);
    primary.assert_empty_but_lanes();
}

/// A relay may have received less of a lane.
#[test]
fn a_relayed_copy_takes_no_session_back() {
    let (mut primary, mut replica) = pair(&pair_config());
    let (_, mut third) = pair(&pair_config());
    let public = primary.connect(inside(1), server(1));
    let mut body = [0; BODY_MAX];
    let (create, len) = primary.nat.replica_mut().next_change(&mut body).unwrap();
    for copy in [&mut replica, &mut third] {
        copy.nat.replica_mut().apply(&create, &body[..len], copy.now);
    }
    primary.tcp_back(public, server(1), FIN_ACK).unwrap();
    replicate(&mut primary, &mut replica);
    copy(&third, &mut replica, true);
    assert_eq!(states(&replica), ["close-wait"]);
    copy(&replica, &mut third, true);
    assert_eq!(states(&third), ["close-wait"], "the copy that was behind");
    copy(&primary, &mut replica, false);
    assert_eq!(
        (states(&replica), replica.nat.replica().journal_end()),
        (vec!["close-wait"], 0),
        "no change to send"
    );
}

/// A segment counts only for the remote that it names: the owner may have another in its place by
/// then.
#[test]
fn a_segment_of_another_remote_ends_nothing() {
    let (mut primary, mut replica) = pair(&pair_config());
    let public = primary.connect(inside(1), server(1));
    let mut body = [0; BODY_MAX];
    let (create, len) = primary.nat.replica_mut().next_change(&mut body).unwrap();
    replica.nat.replica_mut().apply(&create, &body[..len], replica.now);
    replicate(&mut primary, &mut replica);
    replica.tcp_back(public, server(1), RST).unwrap();
    let (update, len) = replica.nat.replica_mut().next_change(&mut body).unwrap();
    assert_eq!((update.kind, len), (ChangeKind::OwnerUpdate, 26));
    let mut of_another = body;
    of_another[13] ^= 1;
    of_another[23] ^= 1;
    assert_eq!(
        primary.nat.replica_mut().apply(&update, &of_another[..len], primary.now),
        Applied::Done
    );
    assert_eq!(primary.list(&SessionFilter::default())[0].state, "established");
    let mut of_nobody = body;
    of_nobody[14] = 3;
    assert_eq!(
        primary.nat.replica_mut().apply(&update, &of_nobody[..len], primary.now),
        Applied::Invalid
    );
    assert_eq!(primary.nat.replica_mut().apply(&update, &body[..len], primary.now), Applied::Done);
    assert_eq!(primary.list(&SessionFilter::default())[0].state, "reset");
}

/// A copy is no traffic: the owner's changes do not come back as owner updates.
#[test]
fn a_copy_without_packets_sends_no_owner_update() {
    let (mut primary, mut replica) = pair(&pair_config());
    primary.udp_out(home(1), inside(1), server(1)).unwrap();
    primary.connect(inside(2), server(1));
    primary.udp_out(home(1), inside(1), server(2)).unwrap();
    replicate(&mut primary, &mut replica);
    for _ in 0..100 {
        replica.wait_and_collect(20);
        assert_eq!(replicate(&mut replica, &mut primary), []);
    }
}

/// With strict filtering an answer needs a session: the non-owner keeps one of its own.
#[test]
fn a_new_remote_of_another_workers_mapping_is_answered() {
    for filtering in [Filtering::AddressDependent, Filtering::AddressAndPortDependent] {
        let config = NatConfig { filtering, ..pair_config() };
        let (mut primary, mut replica) = pair(&config);
        let public = primary.udp_out(home(1), inside(1), server(1)).unwrap();
        replicate(&mut primary, &mut replica);
        assert_eq!(replica.udp_back(public, server(2)), Err(Refusal::Filtered));
        assert_eq!(replica.udp_out(home(1), inside(1), server(2)), Ok(public));
        assert_eq!(replica.udp_back(public, server(2)).unwrap().inside, inside(1));
        // It keeps the mapping alive at its owner, which knows nothing of the remote.
        for _ in 0..20 {
            primary.wait_and_collect(100);
            replica.wait_and_collect(100);
            replica.udp_out(home(1), inside(1), server(2)).unwrap();
            replica.wait_and_collect(0);
            replica.wait_and_collect(0);
            let kinds = replicate(&mut replica, &mut primary);
            assert!(kinds.iter().all(|&kind| kind == ChangeKind::OwnerUpdate), "{kinds:?}");
            assert_eq!(primary.flows(), 1);
        }
        assert_eq!(primary.udp_back(public, server(2)), Err(Refusal::Filtered));
        // Once its owner has sent it, the session is the owner's.
        primary.udp_out(home(1), inside(1), server(2)).unwrap();
        replicate(&mut primary, &mut replica);
        assert_eq!(replica.flows(), 2);
        // It ends where it began.
        replica.wait_and_collect(1000);
        assert_eq!(replica.flows(), 2);
        primary.wait_and_collect(1000);
        primary.wait_and_collect(120);
        replicate(&mut primary, &mut replica);
        replica.assert_empty_but_lanes();
    }
}

/// A session that only the non-owner has ends by the non-owner's timers.
#[test]
fn a_session_that_only_the_replica_has_ends_by_its_timer() {
    let (mut primary, mut replica) = pair(&pair_config());
    primary.udp_out(home(1), inside(1), server(1)).unwrap();
    replicate(&mut primary, &mut replica);
    replica.udp_out(home(1), inside(1), server(2)).unwrap();
    assert_eq!(replica.flows(), 2);
    replica.wait_and_collect(301);
    assert_eq!(replica.flows(), 1);
}

//! One node, driven by hand: shard roles, copies and routes.

use std::net::SocketAddrV4;
use std::sync::Arc;

use crate::hand::*;

#[test]
fn a_copy_is_awaited_from_a_member_whose_address_is_not_known_yet() {
    let mut hand = Hand::new();
    hand.entry(&copying());
    assert_eq!(hand.duties().sources, [Some(NOBODY); LANES]);
    assert_eq!(hand.count(|command| matches!(command, WorkerCommand::AddPeer { .. })), 0);
    hand.registered(1, 2);
    assert_eq!(hand.duties().sources, [Some(peer(1)); LANES]);
    assert_eq!(hand.count(|command| matches!(command, WorkerCommand::AddPeer { .. })), 1);
    // Nothing is written yet, so nothing is copied from here.
    assert_eq!(hand.duties().copies, []);
}

#[test]
fn no_role_begins_without_room() {
    let mut hand = Hand::new();
    hand.has_room = false;
    hand.entry(&ShardEntry::create(us()));
    assert_eq!(hand.role(), Role::None);
    assert_eq!(hand.metric(), None);
    assert_eq!(hand.trouble(), Some(Trouble::NoRoom("it is full".into())));
    assert_eq!(hand.count(|command| matches!(command, WorkerCommand::AddShard(_))), 1);
    hand.has_room = true;
    hand.ticks(4_990);
    assert_eq!(hand.role(), Role::None, "the worker is not asked all the time");
    hand.ticks(10);
    assert_eq!(hand.role(), Role::Primary);
    assert_eq!(hand.duties().lanes, LaneSet::ALL);
    assert_eq!(hand.duties().misses, Misses::Create);
    assert_eq!(hand.trouble(), None);
}

#[test]
fn room_is_asked_for_only_while_the_entry_names_the_worker() {
    let mut hand = Hand::new();
    hand.has_room = false;
    hand.entry(&copying());
    hand.has_room = true;
    hand.entry(&after(&copying(), Transition::Fence(us())));
    assert_eq!(hand.roles.statuses().count(), 0);
    hand.ticks(6_000);
    assert_eq!(hand.count(|command| matches!(command, WorkerCommand::AddShard(_))), 1);
}

#[test]
fn a_route_is_announced_to_other_members_when_it_is_out() {
    let mut hand = Hand::new();
    hand.registered(1, 2);
    let entry = after(&ShardEntry::create(us()), Transition::AddReplica(them()));
    hand.entry(&entry);
    assert_eq!(hand.metric(), Some(Metric::primary(Term(1))));
    assert_eq!(hand.duties().announced, None);
    hand.routes_are_out();
    let boot = BootId(2);
    assert_eq!(hand.duties().announced, Some((Term(1), vec![(peer(1), boot)])));
    let copies = &hand.duties().copies;
    assert_eq!((copies.len(), copies[0].peer, copies[0].boot), (1, peer(1), boot));
    assert_eq!(copies[0].lanes, LaneSet::ALL);
    // Half a path is all there is, and the route says so.
    let down = SidesUp { is_ready: true, is_access_up: true, is_internet_up: false };
    hand.on(RolesInput::Sides { worker: 0, sides: down });
    assert!(hand.roles.wanted_routes(0)[0].is_last_copy);
    hand.entry(&after(&entry, Transition::Synced(them())));
    assert_eq!(hand.metric(), None);
    assert_eq!(hand.duties().announced, None);
}

#[test]
fn a_lane_that_is_given_away_is_copied_to_its_end() {
    let mut hand = Hand::new();
    hand.registered(1, 2);
    let entry = after(&ShardEntry::create(us()), Transition::AddReplica(them()));
    hand.entry(&entry);
    let entry = after(&entry, Transition::Synced(them()));
    hand.entry(&entry);
    let duties = hand.duties();
    assert_eq!(duties.lanes, LaneSet(0b1111_1101));
    assert_eq!(duties.copies[0].lanes, LaneSet::ALL, "the end of lane 1 goes that way too");
    assert_eq!(duties.grants.len(), 1);
    assert_eq!((duties.grants[0].lane, duties.grants[0].to.0), (1, peer(1)));
    assert_eq!(duties.sources[1], Some(peer(1)), "later changes come from the new owner");
    hand.entry(&settled(&entry, &them()));
    assert_eq!(hand.duties().copies[0].lanes, LaneSet(0b1111_1101));
    assert_eq!(hand.duties().grants, []);
}

/// Otherwise our copy would count as full without it (seed 404887 of the simulator).
#[test]
fn a_giver_without_a_full_copy_awaits_the_rest_of_the_lane() {
    let mut hand = Hand::new();
    let (first, third) = (life(2, 3), life(3, 4));
    hand.registered(3, 4);
    let with = |entry: &ShardEntry, who: &Incarnation| {
        let entry = after(entry, Transition::AddReplica(who.clone()));
        settled(&after(&entry, Transition::Synced(who.clone())), who)
    };
    let entry = with(&ShardEntry::create(first.clone()), &them());
    let entry = with(&after(&entry, Transition::AddReplica(us())), &third);
    // n1 gets what n2 wrote, from n0 before n3, and n1 is gone too.
    let entry = after(&entry, Transition::Fence(first));
    let from_us = entry.lanes()[0].moving.is_some_and(|moving| moving.from == MemberSlot(2));
    assert!(from_us && entry.lanes()[0].owner == MemberSlot(1), "{entry:?}");
    hand.entry(&entry);
    let sources = hand.duties().sources;
    assert_eq!((sources[0], sources[1]), (Some(NOBODY), Some(peer(3))));
}

/// n1 has a full copy, and takes what n0 and n3 have received from n2, which has ended: from n3
/// now.
fn gathered_from_the_third() -> ShardEntry {
    let (first, third) = (life(2, 3), life(3, 4));
    let entry = ShardEntry::create(first.clone());
    let entry = after(&entry, Transition::AddReplica(them()));
    let entry = settled(&after(&entry, Transition::Synced(them())), &them());
    let entry = after(&entry, Transition::AddReplica(us()));
    let entry = after(&entry, Transition::AddReplica(third));
    let entry = settled(&after(&entry, Transition::Fence(first)), &them());
    let from = entry.lanes()[0].moving.map(|moving| moving.from);
    assert_eq!((from, entry.lanes()[0].owner), (Some(MemberSlot(3)), MemberSlot(1)), "{entry:?}");
    entry
}

/// Otherwise our copy would count as full without the rest (seeds 10137 and 13076 of the
/// simulator).
#[test]
fn a_relay_without_a_full_copy_is_not_the_source_of_a_whole_lane() {
    let mut hand = Hand::new();
    hand.registered(1, 2);
    hand.registered(3, 4);
    let entry = gathered_from_the_third();
    hand.entry(&entry);
    assert_eq!(hand.duties().sources[0], Some(NOBODY));
    hand.entry(&settled(&entry, &them()));
    assert_eq!(hand.duties().sources[0], Some(peer(1)));
}

/// Otherwise a copy is awaited until an operator fences the node that is lost.
#[test]
fn a_lane_that_is_gathered_from_a_member_that_is_gone_comes_from_a_full_copy() {
    let mut hand = Hand::new();
    hand.registered(1, 2);
    hand.entry(&gathered_from_the_third());
    assert_eq!(hand.duties().sources[0], Some(peer(1)));
}

#[test]
fn workers_know_the_public_addresses_of_all_shards_whenever_these_change() {
    let mut hand = Hand::new();
    let sent = |hand: &Hand| {
        let all = hand.commands.iter().filter_map(|command| match command {
            WorkerCommand::SetAllPublic(public) => Some(Arc::clone(public)),
            _ => None,
        });
        all.collect::<Vec<_>>()
    };
    let public =
        |shards: u32, at: usize| desired(shards)[at].setup.nat.public[0].network().to_bits();
    assert_eq!(sent(&hand).len(), 1);
    assert!(sent(&hand)[0].contains(public(1, 0)) && !sent(&hand)[0].contains(public(2, 1)));
    hand.desired(1);
    assert_eq!(sent(&hand).len(), 1, "nothing has changed");
    hand.desired(2);
    let all = sent(&hand);
    // The worker has a role for one of them at most.
    assert!(all.len() == 2 && [0, 1].iter().all(|&at| all[1].contains(public(2, at))));
    hand.desired(1);
    assert!(sent(&hand).len() == 3 && !sent(&hand)[2].contains(public(2, 1)));
}

#[test]
fn workers_are_notified_when_the_map_may_be_old() {
    let mut hand = Hand::synced();
    let sent = |hand: &Hand| {
        let commands = |is_stale| {
            hand.count(
                |command| matches!(command, WorkerCommand::SetMapStale(it) if *it == is_stale),
            )
        };
        (commands(true), commands(false))
    };
    hand.on(RolesInput::Fresh);
    assert_eq!(sent(&hand), (0, 1));
    hand.on(RolesInput::Stale);
    hand.on(RolesInput::Stale);
    assert_eq!(sent(&hand), (1, 1));
    hand.on(RolesInput::Fresh);
    assert_eq!(sent(&hand), (1, 2));
}

#[test]
fn a_leaving_member_is_copied_to_but_not_awaited() {
    let mut hand = Hand::new();
    hand.registered(1, 2);
    let entry = after(&ShardEntry::create(us()), Transition::AddReplica(them()));
    let entry = settled(&after(&entry, Transition::Synced(them())), &them());
    hand.entry(&entry);
    assert!(hand.duties().copies[0].is_awaited);
    hand.entry(&after(&entry, Transition::Retire(them())));
    assert!(!hand.duties().copies[0].is_awaited);
}

#[test]
fn a_stream_that_is_lost_for_a_moment_is_not_lost() {
    let mut hand = Hand::synced();
    hand.worker_event(WorkerEvent::StreamLost(SHARD));
    hand.ticks(40);
    hand.worker_event(WorkerEvent::CopyDone(SHARD));
    hand.ticks(1_000);
    assert_eq!(hand.role(), Role::Synced);
    assert!(hand.roles.take_changes(9).is_empty());
    hand.worker_event(WorkerEvent::StreamLost(SHARD));
    hand.ticks(50);
    assert_eq!(hand.role(), Role::OutOfSync);
    assert_eq!(hand.metric(), None);
    let change =
        EntryChange { shard: SHARD, at: pair().epoch(), transition: Transition::OutOfSync(us()) };
    assert_eq!(hand.roles.take_changes(9), [change]);
}

#[test]
fn a_copy_is_not_marked_synced_while_a_stream_of_it_is_lost() {
    let mut hand = Hand::new();
    hand.registered(1, 2);
    hand.entry(&copying());
    hand.met(1, 2);
    hand.worker_event(WorkerEvent::CopyDone(SHARD));
    hand.worker_event(WorkerEvent::StreamLost(SHARD));
    assert_eq!(hand.roles.take_changes(9), []);
    hand.ticks(40);
    assert_eq!(hand.roles.take_changes(9), []);
    hand.worker_event(WorkerEvent::CopyDone(SHARD));
    let change =
        EntryChange { shard: SHARD, at: copying().epoch(), transition: Transition::Synced(us()) };
    assert_eq!(hand.roles.take_changes(9), [change]);
}

#[test]
fn another_incarnation_at_the_same_peer_is_the_end_of_the_one_before() {
    let mut hand = Hand::synced();
    assert_eq!(hand.duties().sources[0], Some(peer(1)));
    // n1 is long silent, but registered: what it wrote is not awaited from any other member.
    hand.ticks(2_000);
    assert_eq!(hand.duties().sources[0], Some(peer(1)));
    assert_eq!(hand.duties().misses, Misses::Create, "n0 creates in its own lane: n1 is not heard");
    hand.met(1, 3);
    assert_eq!(hand.duties().sources, [None; LANES], "n0 relays n1's lanes");
    let CopyOrder { peer: to, boot, lanes, .. } = hand.duties().copies[0];
    assert_eq!((to, boot.0, lanes), (peer(1), 3, LaneSet::ALL), "its next incarnation is a guest");
    hand.worker_event(WorkerEvent::StreamLost(SHARD));
    hand.ticks(100);
    assert_eq!(hand.role(), Role::Synced, "nothing is awaited, so nothing is lost");
    // A member that is added gets everything from n0.
    hand.registered(2, 4);
    hand.entry(&after(&pair(), Transition::AddReplica(life(2, 4))));
    let copies: Vec<_> = hand.duties().copies.iter().map(|copy| (copy.peer, copy.lanes)).collect();
    assert_eq!(copies, [(peer(1), LaneSet::ALL), (peer(2), LaneSet::ALL)]);
}

#[test]
fn a_member_that_is_cut_from_the_store_but_heard_is_present() {
    let mut hand = Hand::synced();
    hand.on(RolesInput::Node { node: them().worker.node, workers: None });
    for _ in 0..300 {
        hand.on(RolesInput::Heartbeats { worker: 0, peer_index: PeerIndex(1), signs: signs(5) });
        hand.ticks(10);
    }
    assert_eq!(hand.duties().sources[0], Some(peer(1)));
    assert_eq!(hand.duties().misses, Misses::Redirect(peer(1)));
    assert_eq!(hand.roles.report(|_, _| 0).hears.values().copied().collect::<Vec<_>>(), [true]);
    hand.ticks(40);
    assert_eq!(hand.duties().misses, Misses::Create, "silent");
    assert_eq!(hand.duties().sources[0], Some(peer(1)), "but not gone");
    hand.ticks(1_000);
    assert_eq!(hand.duties().sources[0], None);
    assert_eq!(hand.roles.report(|_, _| 0).hears.values().copied().collect::<Vec<_>>(), [false]);
    // n1 is still sent what is written here.
    assert_eq!(hand.duties().copies[0].lanes, LaneSet(0b10));
}

#[test]
fn a_node_that_was_gone_before_this_one_began_is_not_heard() {
    let mut hand = Hand::new();
    hand.desired(1);
    hand.entry(&pair());
    assert_eq!(hand.roles.report(|_, _| 0).hears.values().copied().collect::<Vec<_>>(), [false]);
}

#[test]
fn a_silent_primary_is_replaced_only_where_packets_come() {
    let mut hand = Hand::synced();
    hand.ticks(500);
    assert_eq!(hand.role(), Role::Synced);
    for _ in 0..2 {
        hand.on(RolesInput::Traffic { worker: 0, shards: vec![SHARD] });
        hand.ticks(10);
    }
    hand.ticks(10);
    assert_eq!(hand.role(), Role::Synced, "two slots are strays");
    for _ in 0..3 {
        hand.on(RolesInput::Traffic { worker: 0, shards: vec![SHARD] });
        hand.ticks(10);
    }
    assert_eq!(hand.role(), Role::Acting);
    assert_eq!(hand.roles.counters().failovers_silence_total, 1);
    assert_eq!(hand.roles.report(|_, _| 0).acting, [(SHARD, us(), Term(1))]);
    assert!(hand.roles.has_to_hand_over());
}

#[test]
fn room_is_given_back_when_no_route_leads_here() {
    let mut hand = Hand::synced();
    hand.routes_are_out();
    let entry = after(&pair(), Transition::Retire(us()));
    let entry = settled(&entry, &them());
    hand.entry(&entry);
    hand.entry(&after(&entry, Transition::Remove(us())));
    assert_eq!(hand.role(), Role::Leaving);
    assert_eq!(hand.duties().misses, Misses::Redirect(peer(1)));
    assert!(hand.duties().serves_hits);
    hand.ticks(2_000);
    assert_eq!((hand.role(), hand.metric()), (Role::None, None));
    assert!(!hand.duties().serves_hits);
    let removals =
        |hand: &Hand| hand.count(|command| matches!(command, WorkerCommand::RemoveShard(_)));
    assert_eq!(removals(&hand), 0, "the route is still out");
    hand.routes_are_out();
    assert_eq!(removals(&hand), 1);
    hand.worker_event(WorkerEvent::ShardRemoved(SHARD));
    assert_eq!(hand.roles.statuses().count(), 0);
    hand.ticks(4_990);
    assert_eq!(hand.count(|command| matches!(command, WorkerCommand::RemovePeer(_))), 1);
    assert!(!hand.roles.has_settled(), "the store is not known in full");
    hand.on(RolesInput::Fresh);
    assert!(hand.roles.has_settled());
}

#[test]
fn a_member_that_comes_back_waits_until_its_tables_are_gone() {
    let mut hand = Hand::synced();
    hand.routes_are_out();
    let entry = after(&pair(), Transition::Retire(us()));
    let gone = after(&settled(&entry, &them()), Transition::Remove(us()));
    hand.entry(&gone);
    hand.ticks(2_000);
    hand.routes_are_out();
    let adds = |hand: &Hand| hand.count(|command| matches!(command, WorkerCommand::AddShard(_)));
    hand.entry(&after(&gone, Transition::AddReplica(us())));
    assert_eq!((adds(&hand), hand.role()), (1, Role::None));
    hand.worker_event(WorkerEvent::ShardRemoved(SHARD));
    assert_eq!((adds(&hand), hand.role()), (2, Role::Syncing));
}

#[test]
fn a_copy_that_was_complete_before_is_not_complete_again() {
    let mut hand = Hand::synced();
    let entry = after(&pair(), Transition::Retire(us()));
    let gone = after(&settled(&entry, &them()), Transition::Remove(us()));
    hand.entry(&gone);
    assert_eq!(hand.role(), Role::Leaving);
    hand.worker_event(WorkerEvent::CopyDone(SHARD));
    hand.entry(&after(&gone, Transition::AddReplica(us())));
    assert_eq!(hand.role(), Role::Syncing);
    assert!(hand.roles.take_changes(9).is_empty());
}

/// Lets time pass for a replica, whose primary is heard every 10 ms if `has_heartbeat`.
fn pass(hand: &mut Hand, ms: u64, has_heartbeat: bool) {
    for _ in 0..ms / 10 {
        if has_heartbeat {
            hand.on(RolesInput::Heartbeats {
                worker: 0,
                peer_index: PeerIndex(1),
                signs: signs(0),
            });
        }
        hand.ticks(10);
    }
}

fn is_held_off(hand: &Hand) -> bool {
    hand.roles.wanted_routes(0)[0].is_held_off
}

#[test]
fn routes_of_a_worker_fenced_three_times_in_ten_seconds_are_held_off_and_come_back() {
    let mut hand = Hand::synced();
    for _ in 0..2 {
        pass(&mut hand, 1_000, true);
        hand.on(RolesInput::Rejoined { worker: 0 });
        assert!(!is_held_off(&hand));
    }
    pass(&mut hand, 1_000, true);
    let before = hand.roles.routes_number(0);
    hand.on(RolesInput::Rejoined { worker: 0 });
    assert!(is_held_off(&hand));
    assert_eq!(hand.roles.held_off(0), Some((1_000, 1)));
    assert!(hand.roles.routes_number(0) > before, "the worker's routes are to be set again");
    pass(&mut hand, 990, true);
    assert!(is_held_off(&hand));
    pass(&mut hand, 10, true);
    assert!(!is_held_off(&hand));
    assert!(hand.roles.routes_number(0) > before + 1);
    // The next fence within a minute holds them off for twice as long.
    pass(&mut hand, 20_000, true);
    hand.on(RolesInput::Rejoined { worker: 0 });
    assert_eq!(hand.roles.held_off(0), Some((2_000, 1)));
    assert_eq!(hand.roles.counters().hold_offs_total, 2);
}

fn held_off() -> Hand {
    let mut hand = Hand::synced();
    pass(&mut hand, 100, true);
    (0..7).for_each(|_| hand.on(RolesInput::Rejoined { worker: 0 }));
    assert_eq!(hand.roles.held_off(0), Some((16_000, 1)));
    hand
}

#[test]
fn routes_are_held_off_while_other_members_stall_for_moments_only() {
    let mut hand = held_off();
    for _ in 0..20 {
        pass(&mut hand, 150, false);
        assert!(is_held_off(&hand));
        pass(&mut hand, 300, true);
    }
    pass(&mut hand, 300, false);
    assert!(!is_held_off(&hand), "no other member with a copy is heard");
    // The decision does not change with each stall of the other member.
    pass(&mut hand, 1_000, true);
    assert!(!is_held_off(&hand));
}

#[test]
fn the_only_full_copy_that_is_heard_is_never_held_off() {
    let mut hand = Hand::synced();
    pass(&mut hand, 2_000, false);
    (0..5).for_each(|_| hand.on(RolesInput::Rejoined { worker: 0 }));
    assert!(!is_held_off(&hand));
    // The same holds where the map names no other full copy.
    let mut hand = Hand::new();
    hand.registered(1, 2);
    hand.entry(&after(&ShardEntry::create(us()), Transition::AddReplica(them())));
    hand.met(1, 2);
    (0..5).for_each(|_| hand.on(RolesInput::Rejoined { worker: 0 }));
    assert!(!is_held_off(&hand));
    assert_eq!(hand.roles.held_off(0), None);
}

#[test]
fn a_member_that_becomes_the_last_copy_is_held_off_no_more() {
    let mut hand = held_off();
    let alone = after(&pair(), Transition::Fence(them()));
    hand.entry(&alone);
    assert_eq!(hand.role(), Role::Primary);
    assert!(!is_held_off(&hand));
}

#[test]
fn the_stake_of_a_worker_is_that_of_its_worst_shard() {
    let stake = |hand: &Hand| hand.roles.at_stake(0);
    let at_stake = |is_serving, is_only_copy| AtStake { is_serving, is_only_copy };
    let mut hand = Hand::new();
    assert_eq!(stake(&hand), at_stake(false, false));
    hand.registered(1, 2);
    let entry = after(&ShardEntry::create(us()), Transition::AddReplica(them()));
    hand.entry(&entry);
    assert_eq!(stake(&hand), at_stake(true, true), "n1 still copies");
    hand.entry(&after(&entry, Transition::Synced(them())));
    assert_eq!(stake(&hand), at_stake(true, false));
    assert_eq!(stake(&Hand::synced()), at_stake(false, false), "n1 serves");
}

/// The inputs are those that a full list of etcd repeats now and then. In a cluster at rest the
/// simulator looks for commands in every history.
#[test]
fn a_repeated_input_sends_no_command() {
    let ours = after(&ShardEntry::create(us()), Transition::AddReplica(them()));
    let ours = settled(&after(&ours, Transition::Synced(them())), &them());
    let mut primary = Hand::new();
    primary.registered(1, 2);
    primary.entry(&ours);
    primary.met(1, 2);
    for (mut hand, entry) in [(Hand::synced(), pair()), (primary, ours)] {
        hand.routes_are_out();
        hand.on(RolesInput::Fresh);
        let beat = |hand: &mut Hand| {
            for _ in 0..10 {
                hand.on(RolesInput::Heartbeats {
                    worker: 0,
                    peer_index: PeerIndex(1),
                    signs: signs(1),
                });
                hand.ticks(10);
            }
        };
        beat(&mut hand);
        hand.roles.take_changes(9);
        hand.roles.take_epochs();
        let (duties, commands) = (hand.duties.take(), hand.commands.len());
        let routes_number = hand.roles.routes_number(0);
        for _ in 0..3 {
            hand.registered(1, 2);
            hand.entry(&entry);
            hand.desired(1);
            hand.on(RolesInput::Fresh);
            beat(&mut hand);
            assert_eq!(hand.duties, None, "{duties:?} before");
            assert_eq!(hand.commands.len(), commands);
            assert_eq!(hand.roles.take_changes(9), []);
            assert!(hand.roles.take_epochs().is_empty());
            assert_eq!(hand.roles.routes_number(0), routes_number);
        }
    }
}

/// A worker of this node has a write out when another worker of it takes its place and has a write
/// out as well. The answers to both come as one.
#[test]
fn one_answer_for_the_writes_of_two_workers_leaves_neither_waiting() {
    let local = |index: u16| {
        let replication = SocketAddrV4::new([10, 0, 0, 1 + index as u8].into(), 7473);
        LocalWorker { boot_id: BootId(1 + u128::from(index)), replication, former: None }
    };
    let own = |index: u16| {
        let worker = WorkerId { node: us().worker.node, index };
        Incarnation { worker, boot_id: local(index).boot_id }
    };
    let mut roles = Roles::new(RolesConfig {
        node: us().worker.node,
        workers: vec![local(0), local(1)],
        known_epochs: BTreeMap::new(),
        options: RolesOptions::default(),
    });
    let fingerprint = Fingerprint::default();
    roles.on(1_000, RolesInput::Desired { shards: desired(1), fingerprint });
    let synced_copy = |roles: &mut Roles, entry: &ShardEntry, worker: usize| {
        roles.on(1_000, RolesInput::Entry { shard: SHARD, entry: Box::new(entry.clone()) });
        for event in [WorkerEvent::ShardAdded(SHARD), WorkerEvent::CopyDone(SHARD)] {
            roles.on(1_000, RolesInput::Worker { worker, event });
        }
        assert_eq!(roles.take_changes(9).len(), 1, "worker {worker} asks to be marked synced");
    };
    let entry = after(&ShardEntry::create(them()), Transition::AddReplica(own(0)));
    synced_copy(&mut roles, &entry, 0);
    let entry = after(&after(&entry, Transition::Retire(own(0))), Transition::Remove(own(0)));
    let entry = after(&entry, Transition::AddReplica(own(1)));
    synced_copy(&mut roles, &entry, 1);
    roles.on(1_010, RolesInput::Written { shard: SHARD, is_done: false });
    roles.on(2_000, RolesInput::Tick);
    assert_eq!(roles.take_changes(9).len(), 1, "the second worker's change is tried again");
}

//! Lanes of two workers: who writes, who mirrors, who serves what he does not own, and what an owner learns of it.

mod world;

use bolero::check;
use weir_nat::*;
use world::*;

const PRIMARY: u8 = 0x7f;
const RESERVE: u8 = 0x80;

fn pair_config() -> NatConfig {
    NatConfig { port_block: 64, ports_per_subscriber: 64, replicas: 1, ..config() }
}

/// A worker that owns these lanes of the first shard and tells of all.
fn worker(config: NatConfig, lanes: u8) -> World {
    let mut world = World::new(config);
    world.nat.set_owned_lanes(SHARD, lanes, world.now);
    world.nat.set_replicated_lanes(SHARD, 0xff);
    world
}

fn pair(config: &NatConfig) -> (World, World) {
    (worker(config.clone(), PRIMARY), worker(config.clone(), RESERVE))
}

/// Brings what one has to tell to the other; returns the kinds.
fn tell(from: &mut World, to: &mut World) -> Vec<ChangeKind> {
    let (mut body, mut kinds) = ([0; BODY_MAX], Vec::new());
    while let Some((change, len)) = from.nat.next_change(&mut body) {
        let applied = to.nat.apply(&change, &body[..len], to.now);
        assert!(matches!(applied, Applied::Done | Applied::Old), "{change:?}: {applied:?}");
        kinds.push(change.kind);
    }
    kinds
}

/// Copies the primary's lanes as one has them.
fn copy(from: &World, to: &mut World, is_passed_on: bool) {
    for lane in 0..7 {
        from.nat.copy_lane(SHARD, lane, 0..u32::MAX, u32::MAX, |change, body| {
            to.nat.apply_burst(std::iter::once((*change, body)), is_passed_on, to.now);
            true
        });
    }
}

/// Of all sessions, as a table shows them.
fn states(world: &World) -> Vec<&'static str> {
    world.list(&SessionFilter::default()).iter().map(|session| session.state).collect()
}

fn lane_of(public: Endpoint) -> u16 {
    public.port / 64 % 8
}

#[test]
fn each_creates_in_its_own_lanes_and_serves_the_others() {
    let (mut primary, mut replica) = pair(&pair_config());
    let first = primary.udp_out(home(1), inside(1), server(1)).unwrap();
    assert_ne!(lane_of(first), 7);
    assert_eq!(tell(&mut primary, &mut replica), [ChangeKind::Create]);
    assert_eq!(replica.udp_back(first, server(1)).unwrap().inside, inside(1));
    assert_eq!(replica.udp_out(home(1), inside(1), server(1)), Ok(first));
    // A new inside endpoint: on the home's address, in the lane that is ours.
    let second = replica.udp_out(home(1), inside(2), server(1)).unwrap();
    assert_eq!((lane_of(second), second.address), (7, first.address));
    assert_eq!(tell(&mut replica, &mut primary), [ChangeKind::Create]);
    assert_eq!(primary.udp_back(second, server(1)).unwrap().inside, inside(2));
}

/// The block lists hold what each worker gives: what a primary gave up to the quota refuses nothing to a replica.
#[test]
fn a_home_at_its_quota_is_served_by_the_replica_at_once() {
    let (mut primary, mut replica) = pair(&pair_config());
    for n in 0..64 {
        primary.udp_out(home(1), inside(n), server(1)).unwrap();
    }
    let more = primary.udp_out(home(1), inside(64), server(1));
    assert_eq!(more, Err(Refusal::PortsExhausted));
    tell(&mut primary, &mut replica);
    for n in 64..128 {
        replica.udp_out(home(1), inside(n), server(1)).unwrap();
    }
    let more = replica.udp_out(home(1), inside(128), server(1));
    assert_eq!(more, Err(Refusal::PortsExhausted));
    assert_eq!(replica.nat.subscriber(home(1).outer)[0].blocks.len(), 2);
}

#[test]
fn nothing_is_told_of_packets_that_only_keep_a_session_alive() {
    let (mut primary, mut replica) = pair(&pair_config());
    let public = primary.udp_out(home(1), inside(1), server(1)).unwrap();
    let tcp = primary.connect(inside(2), server(1));
    tell(&mut primary, &mut replica);
    for _ in 0..20 {
        primary.wait_and_collect(10);
        primary.udp_back(public, server(1)).unwrap();
        primary.udp_out(home(1), inside(1), server(1)).unwrap();
        primary.tcp_back(tcp, server(1), ACK).unwrap();
    }
    assert_eq!(tell(&mut primary, &mut replica), []);
    primary.tcp_back(tcp, server(1), FIN_ACK).unwrap();
    primary.tcp_out(home(1), inside(2), server(1), FIN_ACK).unwrap();
    assert_eq!(tell(&mut primary, &mut replica), [ChangeKind::Change], "told once, as it is");
}

/// The copy's timers are the owner's: at the replica nothing ends, however long it sees nothing.
#[test]
fn a_copy_outlives_all_timers() {
    let (mut primary, mut replica) = pair(&pair_config());
    let public = primary.udp_out(home(1), inside(1), server(1)).unwrap();
    let tcp = primary.connect(inside(2), server(1));
    tell(&mut primary, &mut replica);
    replica.wait_and_collect(100_000);
    assert_eq!(replica.udp_back(public, server(1)).unwrap().inside, inside(1));
    assert_eq!(replica.tcp_out(home(1), inside(2), server(1), ACK), Ok(tcp));
    assert_eq!(replica.list(&SessionFilter::default()).len(), 2);
    primary.wait_and_collect(100_000);
    assert_eq!(tell(&mut primary, &mut replica), [ChangeKind::Change; 2], "both are in quarantine");
    assert_eq!(replica.udp_back(public, server(1)), Err(Refusal::NoMapping));
    primary.wait_and_collect(120);
    assert_eq!(tell(&mut primary, &mut replica), [ChangeKind::Delete; 2]);
    replica.assert_empty_but_lanes();
}

impl World {
    fn assert_empty_but_lanes(&self) {
        let gauges = self.nat.gauges();
        assert_eq!((gauges.flows, gauges.quarantined, gauges.subscribers), (0, 0, 0));
        assert_eq!(self.nat.shard_gauges(SHARD).ports_used, 0);
    }
}

/// A flow whose packets all go through the other worker lives as long as if they came here, and no longer.
#[test]
fn touches_keep_a_flow_alive_that_another_worker_serves() {
    let (mut primary, mut replica) = pair(&pair_config());
    let public = primary.udp_out(home(1), inside(1), server(1)).unwrap();
    tell(&mut primary, &mut replica);
    let step = |primary: &mut World, replica: &mut World| {
        for world in [&mut *primary, &mut *replica] {
            world.wait_and_collect(5);
        }
        tell(replica, primary).iter().filter(|&&kind| kind == ChangeKind::Touch).count()
    };
    let mut touches = 0;
    for number in 0..400 {
        // A packet every 290 seconds: the longest pause that a timer of 300 allows, with 5 seconds until the touch.
        if number % 58 == 0 {
            assert_eq!(replica.udp_out(home(1), inside(1), server(1)), Ok(public));
        }
        touches += step(&mut primary, &mut replica);
        assert_eq!(primary.flows(), 1, "after {} seconds", 5 * number);
    }
    assert!((7..=27).contains(&touches), "{touches} in 2,000 seconds, 75 at least between two");
    // The last packet was 52 steps ago.
    let left = (0..).take_while(|_| {
        step(&mut primary, &mut replica);
        primary.flows() == 1
    });
    let left = left.count();
    assert!((7..=8).contains(&left), "ended {left} steps later");
}

/// A connection that ends where its lane's owner does not see it holds its port no longer than one that he served.
#[test]
fn the_end_of_a_connection_is_told_to_the_owner() {
    let (mut primary, mut replica) = pair(&pair_config());
    let (first, further) = (server(1), server(2));
    let public = primary.connect(inside(1), first);
    assert_eq!(primary.connect(inside(1), further), public);
    tell(&mut primary, &mut replica);
    for remote in [further, first] {
        replica.tcp_out(home(1), inside(1), remote, FIN_ACK).unwrap();
        replica.tcp_back(public, remote, FIN_ACK).unwrap();
        replica.tcp_out(home(1), inside(1), remote, ACK).unwrap();
    }
    assert_eq!(tell(&mut replica, &mut primary), [ChangeKind::Touch; 6]);
    assert_eq!(states(&primary), ["time-wait"; 2]);
    assert_eq!(tell(&mut primary, &mut replica), [ChangeKind::Change; 2], "to all copies");
    primary.wait_and_collect(240);
    tell(&mut primary, &mut replica);
    replica.assert_empty_but_lanes();
    primary.assert_empty_but_lanes();
}

/// Whatever segments come, and by whichever worker: the owner knows what it would know if all had come to it. Also if each
/// direction has its own way, if a reset was forged, or if the connection is opened anew.
#[test]
fn segments_by_two_workers_are_as_if_by_one() {
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
        tell(&mut primary, &mut replica);
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
            tell(&mut replica, &mut primary);
            tell(&mut primary, &mut replica);
            let states = [&primary, &replica, &alone].map(|world| {
                let sessions = world.list(&SessionFilter::default());
                let one = sessions.into_iter().find(|session| session.remote == remote);
                one.map(|session| (session.state, session.timeout_sec))
            });
            assert!(states[0].is_some() && states.iter().all(|it| *it == states[0]), "{states:?}");
        }
    });
}

/// What the owner was told was lost, and he copies the lane anew: the copy keeps what it has seen, and tells him.
#[test]
fn an_owner_that_missed_the_end_of_a_connection_is_told_again() {
    let (mut primary, mut replica) = pair(&pair_config());
    let (first, further) = (server(1), server(2));
    let public = primary.connect(inside(1), first);
    primary.connect(inside(1), further);
    tell(&mut primary, &mut replica);
    for remote in [further, first] {
        replica.tcp_out(home(1), inside(1), remote, FIN_ACK).unwrap();
        replica.tcp_back(public, remote, FIN_ACK).unwrap();
    }
    while replica.nat.next_change(&mut [0; BODY_MAX]).is_some() {}
    copy(&primary, &mut replica, false);
    assert_eq!(states(&replica), ["last-ack"; 2]);
    assert_eq!(tell(&mut replica, &mut primary), [ChangeKind::Touch; 2]);
    assert_eq!(states(&primary), ["last-ack"; 2]);
    assert_eq!(tell(&mut primary, &mut replica), [ChangeKind::Change; 2]);
    copy(&primary, &mut replica, false);
    assert_eq!(tell(&mut replica, &mut primary), [], "both know the same");
}

/// Of a connection that was opened anew at its owner nothing of before comes back, neither to him nor from him.
#[test]
fn a_touch_ends_nothing_that_has_begun_since() {
    let (mut primary, mut replica) = pair(&pair_config());
    let public = primary.connect(inside(1), server(1));
    tell(&mut primary, &mut replica);
    replica.tcp_back(public, server(1), RST).unwrap();
    let mut body = [0; BODY_MAX];
    let (touch, len) = replica.nat.next_change(&mut body).unwrap();
    // As if the segment had been lost, and the owner had had a packet since.
    let state_alone = [&body[..6], &body[16..len]].concat();
    primary.wait(10);
    primary.tcp_out(home(1), inside(1), server(1), ACK).unwrap();
    primary.wait(10);
    let late = [&[4, 4, 0, 0, 0, 20], &state_alone[6..]].concat();
    assert_eq!(primary.nat.apply(&touch, &late, primary.now), Applied::Done);
    assert_eq!(states(&primary), ["established"]);
    let in_time = [&[4, 4, 0, 0, 0, 10], &state_alone[6..]].concat();
    assert_eq!(primary.nat.apply(&touch, &in_time, primary.now), Applied::Done);
    assert_eq!(states(&primary), ["closed"]);
}

/// Sessions that a remote opened are counted by their owner, whatever a peer says of them.
#[test]
fn a_touch_changes_no_accounting() {
    let (mut primary, mut replica) = pair(&pair_config());
    let public = primary.connect(inside(1), server(1));
    tell(&mut primary, &mut replica);
    replica.tcp_back(public, server(1), RST).unwrap();
    let mut body = [0; BODY_MAX];
    let (touch, len) = replica.nat.next_change(&mut body).unwrap();
    body[len - 2] |= 0x08;
    assert_eq!(primary.nat.apply(&touch, &body[..len], primary.now), Applied::Done);
    assert_eq!(states(&primary), ["closed"]);
    primary.wait_and_collect(1000);
    primary.wait_and_collect(1000);
    primary.assert_empty_but_lanes();
}

/// Who passes a lane on may have heard less of it.
#[test]
fn what_is_passed_on_takes_no_session_back() {
    let (mut primary, mut replica) = pair(&pair_config());
    let (_, mut third) = pair(&pair_config());
    let public = primary.connect(inside(1), server(1));
    let mut body = [0; BODY_MAX];
    let (create, len) = primary.nat.next_change(&mut body).unwrap();
    for copy in [&mut replica, &mut third] {
        copy.nat.apply(&create, &body[..len], copy.now);
    }
    primary.tcp_back(public, server(1), FIN_ACK).unwrap();
    tell(&mut primary, &mut replica);
    copy(&third, &mut replica, true);
    assert_eq!(states(&replica), ["close-wait"]);
    copy(&replica, &mut third, true);
    assert_eq!(states(&third), ["close-wait"], "nor does who has heard less keep it");
    copy(&primary, &mut replica, false);
    assert_eq!(
        (states(&replica), replica.nat.journal_end()),
        (vec!["close-wait"], 0),
        "nothing to tell"
    );
}

/// What was seen is of the remote that it names, or of none: the owner may have another in its place by now.
#[test]
fn a_segment_of_another_remote_ends_nothing() {
    let (mut primary, mut replica) = pair(&pair_config());
    let public = primary.connect(inside(1), server(1));
    let mut body = [0; BODY_MAX];
    let (create, len) = primary.nat.next_change(&mut body).unwrap();
    replica.nat.apply(&create, &body[..len], replica.now);
    tell(&mut primary, &mut replica);
    replica.tcp_back(public, server(1), RST).unwrap();
    let (touch, len) = replica.nat.next_change(&mut body).unwrap();
    assert_eq!((touch.kind, len), (ChangeKind::Touch, 26));
    let mut of_another = body;
    of_another[13] ^= 1;
    of_another[23] ^= 1;
    assert_eq!(primary.nat.apply(&touch, &of_another[..len], primary.now), Applied::Done);
    assert_eq!(primary.list(&SessionFilter::default())[0].state, "established");
    let mut of_nobody = body;
    of_nobody[14] = 3;
    assert_eq!(primary.nat.apply(&touch, &of_nobody[..len], primary.now), Applied::Invalid);
    assert_eq!(primary.nat.apply(&touch, &body[..len], primary.now), Applied::Done);
    assert_eq!(primary.list(&SessionFilter::default())[0].state, "closed");
}

/// A copy is no traffic: what the owner tells does not come back as a touch.
#[test]
fn a_copy_without_packets_touches_nothing() {
    let (mut primary, mut replica) = pair(&pair_config());
    primary.udp_out(home(1), inside(1), server(1)).unwrap();
    primary.connect(inside(2), server(1));
    primary.udp_out(home(1), inside(1), server(2)).unwrap();
    tell(&mut primary, &mut replica);
    for _ in 0..100 {
        replica.wait_and_collect(20);
        assert_eq!(tell(&mut replica, &mut primary), []);
    }
}

/// With strict filtering an answer needs a session: the non-owner keeps one of his own.
#[test]
fn a_new_remote_of_anothers_mapping_is_answered() {
    for filtering in [Filtering::AddressDependent, Filtering::AddressAndPortDependent] {
        let config = NatConfig { filtering, ..pair_config() };
        let (mut primary, mut replica) = pair(&config);
        let public = primary.udp_out(home(1), inside(1), server(1)).unwrap();
        tell(&mut primary, &mut replica);
        assert_eq!(replica.udp_back(public, server(2)), Err(Refusal::Filtered));
        assert_eq!(replica.udp_out(home(1), inside(1), server(2)), Ok(public));
        assert_eq!(replica.udp_back(public, server(2)).unwrap().inside, inside(1));
        // It keeps the mapping alive at its owner, who knows nothing of the remote.
        for _ in 0..20 {
            primary.wait_and_collect(100);
            replica.wait_and_collect(100);
            replica.udp_out(home(1), inside(1), server(2)).unwrap();
            replica.wait_and_collect(0);
            replica.wait_and_collect(0);
            let told = tell(&mut replica, &mut primary);
            assert!(told.iter().all(|&kind| kind == ChangeKind::Touch), "{told:?}");
            assert_eq!(primary.flows(), 1);
        }
        assert_eq!(primary.udp_back(public, server(2)), Err(Refusal::Filtered));
        // Once told by its owner the session is the owner's.
        primary.udp_out(home(1), inside(1), server(2)).unwrap();
        tell(&mut primary, &mut replica);
        assert_eq!(replica.flows(), 2);
        // It ends where it began.
        replica.wait_and_collect(1000);
        assert_eq!(replica.flows(), 2);
        primary.wait_and_collect(1000);
        primary.wait_and_collect(120);
        tell(&mut primary, &mut replica);
        replica.assert_empty_but_lanes();
    }
}

/// A session that only the non-owner knows ends by his own timers.
#[test]
fn a_session_of_our_own_ends_by_itself() {
    let (mut primary, mut replica) = pair(&pair_config());
    primary.udp_out(home(1), inside(1), server(1)).unwrap();
    tell(&mut primary, &mut replica);
    replica.udp_out(home(1), inside(1), server(2)).unwrap();
    assert_eq!(replica.flows(), 2);
    replica.wait_and_collect(301);
    assert_eq!(replica.flows(), 1);
}

#[test]
fn a_lane_that_was_given_up_is_served_but_not_written() {
    let (mut primary, mut replica) = pair(&pair_config());
    let public = primary.udp_out(home(1), inside(1), server(1)).unwrap();
    tell(&mut primary, &mut replica);
    primary.nat.set_owned_lanes(SHARD, 0, primary.now);
    replica.nat.set_owned_lanes(SHARD, 0xff, replica.now);
    assert_eq!(primary.nat.owned_lanes(SHARD), 0);
    assert_eq!(primary.udp_out(home(1), inside(1), server(1)), Ok(public));
    let refused = primary.udp_out(home(1), inside(2), server(1));
    assert_eq!(refused, Err(Refusal::PortsExhausted));
    primary.wait_and_collect(10_000);
    assert_eq!(primary.udp_back(public, server(1)).unwrap().inside, inside(1));
    // The new owner goes on, in the same slot and in new ones.
    let second = replica.udp_out(home(1), inside(2), server(1)).unwrap();
    let third = replica.udp_out(home(2), inside(3), server(1)).unwrap();
    tell(&mut replica, &mut primary);
    assert_eq!(primary.udp_back(second, server(1)).unwrap().inside, inside(2));
    assert_eq!(primary.udp_back(third, server(1)).unwrap().home.outer, home(2).outer);
    replica.wait_and_collect(300);
    replica.wait_and_collect(120);
    tell(&mut replica, &mut primary);
    primary.assert_empty_but_lanes();
    // And back again.
    replica.nat.set_owned_lanes(SHARD, 0, replica.now);
    primary.nat.set_owned_lanes(SHARD, 0xff, primary.now);
    let fourth = primary.udp_out(home(1), inside(1), server(1)).unwrap();
    assert_eq!(tell(&mut primary, &mut replica), [ChangeKind::Create], "its version is later");
    assert_eq!(replica.udp_back(fourth, server(1)).unwrap().inside, inside(1));
}

/// Timers and quarantines start again in full at whoever takes a lane over.
#[test]
fn a_taker_restarts_timers_and_keeps_the_state_of_tcp() {
    let (mut primary, mut replica) = pair(&pair_config());
    let tcp = primary.connect(inside(1), server(1));
    let udp = primary.udp_out(home(1), inside(2), server(1)).unwrap();
    let ended = primary.udp_out(home(1), inside(3), server(1)).unwrap();
    primary.wait_and_collect(250);
    primary.udp_out(home(1), inside(2), server(1)).unwrap();
    primary.wait_and_collect(60);
    tell(&mut primary, &mut replica);
    assert_eq!(replica.flows(), 2);
    replica.wait_and_collect(50_000);
    replica.nat.set_owned_lanes(SHARD, 0xff, replica.now);
    assert_eq!(replica.nat.gauges().quarantined, 1);
    let states: Vec<_> = replica
        .list(&SessionFilter { public: Some(tcp), ..SessionFilter::default() })
        .iter()
        .map(|session| (session.state, session.idle_sec, session.timeout_sec))
        .collect();
    assert_eq!(states, [("established", 0, 7440)]);
    replica.wait_and_collect(119);
    assert_eq!(replica.nat.gauges().quarantined, 1, "{ended} rests");
    replica.wait_and_collect(1);
    assert_eq!(replica.nat.gauges().quarantined, 0);
    replica.wait_and_collect(179);
    assert_eq!(replica.udp_back(udp, server(1)).unwrap().inside, inside(2), "299 seconds");
    replica.wait_and_collect(1);
    assert_eq!(replica.flows(), 1);
    replica.wait_and_collect(7139);
    assert_eq!(replica.flows(), 1);
    replica.wait_and_collect(1);
    assert_eq!(replica.flows(), 0);
}

/// A state of TCP that a non-owner saw is in his copy, and is what he goes on with.
#[test]
fn a_handshake_across_a_failure_is_completed() {
    let (mut primary, mut replica) = pair(&pair_config());
    let public = primary.tcp_out(home(1), inside(1), server(1), SYN).unwrap();
    tell(&mut primary, &mut replica);
    replica.tcp_back(public, server(1), SYN_ACK).unwrap();
    replica.tcp_out(home(1), inside(1), server(1), ACK).unwrap();
    replica.nat.set_owned_lanes(SHARD, 0xff, replica.now);
    assert_eq!(replica.list(&SessionFilter::default())[0].state, "established");
}

#[test]
fn nobody_else_writes_in_our_lanes() {
    let (mut primary, mut replica) = pair(&pair_config());
    let public = primary.udp_out(home(1), inside(1), server(1)).unwrap();
    let mut body = [0; BODY_MAX];
    let (create, len) = primary.nat.next_change(&mut body).unwrap();
    let touch = Change { kind: ChangeKind::Touch, ..create };
    replica.nat.set_owned_lanes(SHARD, 0xff, replica.now);
    for kind in [ChangeKind::Create, ChangeKind::Change, ChangeKind::Delete] {
        let change = Change { kind, ..create };
        assert_eq!(replica.nat.apply(&change, &body[..len], replica.now), Applied::Ours);
    }
    assert_eq!(primary.nat.apply(&create, &body[..len], primary.now), Applied::Ours);
    assert_eq!(replica.nat.apply(&touch, &[4, 4, 0, 0, 0, 0], replica.now), Applied::Old);
    assert_eq!(replica.flows(), 0);
    assert_eq!(primary.udp_back(public, server(1)).unwrap().inside, inside(1));
    let elsewhere = Change { shard: ShardIndex(2), ..create };
    assert_eq!(replica.nat.apply(&elsewhere, &body[..len], replica.now), Applied::Invalid);
}

/// A body that names a port of another lane, another shard or nobody is no record of this lane.
#[test]
fn a_record_lies_in_the_lane_of_its_port() {
    let (mut primary, mut replica) = pair(&pair_config());
    primary.udp_out(home(1), inside(1), server(1)).unwrap();
    let mut body = [0; BODY_MAX];
    let (create, len) = primary.nat.next_change(&mut body).unwrap();
    let mut apply = |change: Change, edit: fn(&mut [u8])| {
        let mut body = body;
        edit(&mut body);
        replica.nat.apply(&change, &body[..len], replica.now)
    };
    let other_lane = Change { lane: (create.lane + 1) % 7, ..create };
    assert_eq!(apply(other_lane, |_| ()), Applied::Invalid);
    assert_eq!(apply(Change { shard: ShardIndex(1), ..create }, |_| ()), Applied::Ours);
    assert_eq!(apply(create, |body| body[19] ^= 1), Applied::Invalid, "not our public address");
    assert_eq!(apply(create, |body| body[5] ^= 1), Applied::Invalid, "not our subscriber");
    assert_eq!(apply(create, |body| body[3] = 47), Applied::Invalid, "GRE has no ports");
    assert_eq!(apply(Change { version: 0, ..create }, |_| ()), Applied::Invalid);
    assert_eq!(apply(create, |_| ()), Applied::Done);
    assert_eq!(replica.nat.mirror_gauges().changes_invalid_total, 5);
}

#[test]
fn changes_that_nobody_reads_are_lost_and_the_lane_says_so() {
    let config = NatConfig {
        flows_max: 100_000,
        ports_per_subscriber: 65_536,
        port_block: 256,
        shards: vec![shard(11, "203.0.113.0/30"), shard(12, "198.51.100.0/30")],
        ..pair_config()
    };
    let mut world = worker(config, 0xff);
    for n in 0..70_000_u32 {
        let inside = Endpoint::new(address("192.168.0.0") + n / 50_000, (n % 50_000) as u16);
        world.udp_out(home(n % 4), inside, server(1)).unwrap();
    }
    let mut lost = Vec::new();
    while let Some((shard, lane)) = world.nat.take_lost() {
        assert_eq!(shard, SHARD);
        lost.push(lane);
    }
    assert_eq!(lost, [0, 1, 2, 3, 4, 5, 6, 7]);
    let mut body = [0; BODY_MAX];
    let told = std::iter::from_fn(|| world.nat.next_change(&mut body)).count();
    assert_eq!(told, 65_536);
}

/// A replica that is smaller than its primary says what it lacks; what it has it serves.
#[test]
fn a_copy_that_does_not_fit_is_full() {
    let config = NatConfig { ports_per_subscriber: 2048, ..pair_config() };
    let mut primary = worker(config.clone(), PRIMARY);
    let mut replica = worker(NatConfig { flows_max: 50, ..config }, RESERVE);
    let publics: Vec<_> =
        (0..80).map(|n| primary.udp_out(home(1), inside(n), server(1)).unwrap()).collect();
    let (mut body, mut full) = ([0; BODY_MAX], 0);
    while let Some((change, len)) = primary.nat.next_change(&mut body) {
        let applied = replica.nat.apply(&change, &body[..len], replica.now);
        full += u32::from(applied == Applied::Full);
    }
    assert_eq!(full, 30);
    assert!((0..7).any(|lane| replica.nat.is_copy_full(SHARD, lane)));
    let served = publics.iter().filter(|&&public| replica.udp_back(public, server(1)).is_ok());
    assert_eq!(served.count(), 50);
    (0..7).for_each(|lane| replica.nat.begin_copy(SHARD, lane));
    assert!((0..7).all(|lane| !replica.nat.is_copy_full(SHARD, lane)));
}

/// The firewall has no ports to deal, but lanes for its records.
#[test]
fn a_firewall_is_mirrored_and_taken_over() {
    let config = NatConfig { enabled: false, ..pair_config() };
    let (mut primary, mut replica) = pair(&config);
    let host = at("203.0.113.1:5000");
    primary.tcp_out(home(1), host, server(1), SYN).unwrap();
    primary.tcp_back(host, server(1), SYN_ACK).unwrap();
    tell(&mut primary, &mut replica);
    assert_eq!(replica.tcp_back(host, server(1), ACK).unwrap().inside, host);
    assert_eq!(replica.tcp_out(home(1), host, server(1), ACK), Ok(host));
    let other = at("203.0.113.2:5000");
    assert_eq!(replica.udp_out(home(1), other, server(1)), Ok(other), "in a lane of its own");
    tell(&mut replica, &mut primary);
    assert_eq!(primary.udp_back(other, server(1)).unwrap().inside, other);
    replica.nat.set_owned_lanes(SHARD, 0xff, replica.now);
    replica.wait_and_collect(7439);
    assert_eq!(replica.flows(), 1);
    replica.wait_and_collect(1);
    replica.assert_empty_but_lanes();
}

/// A mapping made by the replica while the primary's was under way: each flow keeps the one it has.
#[test]
fn two_mappings_of_an_inside_endpoint_keep_their_flows() {
    let (mut primary, mut replica) = pair(&pair_config());
    let old = primary.udp_out(home(1), inside(1), server(1)).unwrap();
    let new = replica.udp_out(home(1), inside(1), server(2)).unwrap();
    assert_ne!(old, new);
    tell(&mut primary, &mut replica);
    tell(&mut replica, &mut primary);
    for world in [&mut primary, &mut replica] {
        for _ in 0..2 {
            assert_eq!(world.udp_out(home(1), inside(1), server(1)), Ok(old));
            assert_eq!(world.udp_out(home(1), inside(1), server(2)), Ok(new));
            assert_eq!(world.udp_back(old, server(1)).unwrap().inside, inside(1));
            assert_eq!(world.udp_back(new, server(2)).unwrap().inside, inside(1));
        }
    }
}

/// Who passes a lane on may have missed a mapping's end, and its port or its block be another's by now: that one keeps it.
/// What the lane's writer says replaces it.
#[test]
fn what_is_passed_on_takes_nothing_from_its_holder() {
    // Where in the body of a mapping its home and its inside port lie.
    const OUTER: usize = 8;
    const INSIDE: usize = 18;
    for (place, by_writer) in [(INSIDE, inside(2)), (OUTER, inside(1))] {
        for is_passed_on in [false, true] {
            let (mut primary, mut replica) = pair(&pair_config());
            let public = primary.udp_out(home(1), inside(1), server(1)).unwrap();
            let mut body = [0; BODY_MAX];
            let (change, len) = primary.nat.next_change(&mut body).unwrap();
            assert_eq!(replica.nat.apply(&change, &body[..len], replica.now), Applied::Done);
            // The same port of another home, or of another of its inside endpoints.
            body[place] += 1;
            let other = Change { slot: change.slot + 1, ..change };
            let told = std::iter::once((other, &body[..len]));
            replica.nat.apply_burst(told, is_passed_on, replica.now);
            let holder = replica.udp_back(public, server(1)).unwrap();
            let known = (holder.home.outer, holder.inside);
            let expected = match is_passed_on {
                true => (home(1).outer, inside(1)),
                false => (home(1).outer + u32::from(place == OUTER), by_writer),
            };
            assert_eq!(known, expected);
            assert_eq!(replica.flows(), 1);
            assert!(!replica.nat.is_copy_full(SHARD, change.lane));
        }
    }
}

/// Two workers that did not hear each other have each made mappings of the same inside endpoints, for the same server.
fn two_mappings_each(count: u16) -> (World, World, Vec<Endpoint>, Vec<Endpoint>) {
    let (mut primary, mut replica) = pair(&pair_config());
    let open = |world: &mut World| -> Vec<_> {
        (0..count).map(|n| world.udp_out(home(1), inside(n), server(1)).unwrap()).collect()
    };
    let (former, later) = (open(&mut primary), open(&mut replica));
    (primary, replica, former, later)
}

fn endpoints_of(world: &mut World, count: u16) -> Vec<Endpoint> {
    (0..count).map(|n| world.udp_out(home(1), inside(n), server(1)).unwrap()).collect()
}

/// Whose mapping has no packets any more gives it up, and whatever of both lies first in an index: who takes over then
/// goes on with the one that is in use.
#[test]
fn of_two_mappings_the_one_in_use_stays() {
    let (mut primary, mut replica, former, later) = two_mappings_each(50);
    for _ in 0..8 {
        primary.wait_and_collect(1);
        replica.wait_and_collect(1);
        assert_eq!(endpoints_of(&mut replica, 50), later);
    }
    // They hear each other again.
    tell(&mut primary, &mut replica);
    assert_eq!(endpoints_of(&mut replica, 50), later, "a copy changes nothing");
    tell(&mut replica, &mut primary);
    primary.wait_and_collect(1);
    replica.wait_and_collect(1);
    tell(&mut replica, &mut primary);
    tell(&mut primary, &mut replica);
    assert_eq!(primary.nat.gauges().flow_superseded_total, 50);
    assert_eq!(endpoints_of(&mut primary, 50), later);
    for (n, (&former, &later)) in (0..).zip(former.iter().zip(&later)) {
        assert_eq!(replica.udp_back(later, server(1)).unwrap().inside, inside(n));
        assert_eq!(replica.udp_back(former, server(1)), Err(Refusal::NoMapping));
    }
    assert_eq!((primary.flows(), replica.flows()), (50, 50));
}

/// As long as both are in use, both stay, and each worker goes on with its own.
#[test]
fn two_mappings_in_use_both_stay() {
    let (mut primary, mut replica, former, later) = two_mappings_each(20);
    for _ in 0..30 {
        tell(&mut primary, &mut replica);
        tell(&mut replica, &mut primary);
        assert_eq!(endpoints_of(&mut primary, 20), former);
        assert_eq!(endpoints_of(&mut replica, 20), later);
        primary.wait_and_collect(1);
        replica.wait_and_collect(1);
    }
    assert_eq!((primary.flows(), replica.flows()), (40, 40));
}

/// A third, which has seen packets of neither, decides as any other that has not.
#[test]
fn who_has_used_neither_of_two_mappings_takes_the_lower() {
    let (mut primary, mut replica, former, later) = two_mappings_each(50);
    let lower: Vec<_> = former.iter().zip(&later).map(|(&one, &other)| one.min(other)).collect();
    let changes = |world: &mut World| -> Vec<_> {
        let mut body = [0; BODY_MAX];
        let next =
            || world.nat.next_change(&mut body).map(|(change, len)| (change, body[..len].to_vec()));
        std::iter::from_fn(next).collect()
    };
    let told = [changes(&mut primary), changes(&mut replica)];
    for order in [[0, 1], [1, 0]] {
        let mut third = worker(pair_config(), 0);
        for (change, body) in order.iter().flat_map(|&from: &usize| &told[from]) {
            assert_eq!(third.nat.apply(change, body, third.now), Applied::Done);
        }
        assert_eq!(endpoints_of(&mut third, 50), lower);
        // And stays with it.
        third.wait_and_collect(1);
        assert_eq!(endpoints_of(&mut third, 50), lower);
    }
}

/// What a copy says of free slots may be late: by then what begins in them may have come another way. As its owner tells of
/// it after that, it comes again.
#[test]
fn what_is_cleared_by_an_earlier_word_comes_again() {
    let (mut primary, mut replica) = pair(&pair_config());
    // One has ended: as far as others know, so may have what was in any slot.
    for n in 1..=2 {
        primary.udp_out(home(1), inside(n), server(1)).unwrap();
    }
    primary.wait(200);
    primary.udp_out(home(1), inside(1), server(1)).unwrap();
    primary.wait_and_collect(110);
    primary.wait_and_collect(120);
    assert_eq!(primary.flows(), 1);
    tell(&mut primary, &mut replica);
    let mut said = Vec::new();
    for lane in 0..7 {
        let slots = primary.nat.lane_slots(SHARD, lane);
        primary.nat.copy_lane(SHARD, lane, 0..slots, u32::MAX, |change, body| {
            said.push((*change, body.to_vec()));
            true
        });
    }
    assert!(said.iter().any(|(change, _)| change.kind == ChangeKind::Clear));
    let given: Vec<_> =
        (3..60).map(|n| primary.udp_out(home(1), inside(n), server(1)).unwrap()).collect();
    let mut body = [0; BODY_MAX];
    let next = || primary.nat.next_change(&mut body).map(|(it, len)| (it, body[..len].to_vec()));
    let begun: Vec<_> = std::iter::from_fn(next).collect();
    for (change, body) in begun.iter().chain(&said).chain(&begun) {
        replica.nat.apply(change, body, replica.now);
    }
    for (n, public) in (3..).zip(given) {
        assert_eq!(replica.udp_back(public, server(1)).unwrap().inside, inside(n));
    }
}

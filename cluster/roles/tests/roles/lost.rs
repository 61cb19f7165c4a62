//! A primary whose node no other node hears: when its replicas act although no packets come to
//! them.

use crate::hand::*;

/// n1 is primary; n0, the node under test, and n2 have full copies, in this order or the other.
fn three(us_first: bool) -> ShardEntry {
    let third = life(2, 3);
    let (first, second) = if us_first { (us(), third) } else { (third, us()) };
    let steps = [
        Transition::AddReplica(first.clone()),
        Transition::Synced(first.clone()),
        Transition::AddReplica(second.clone()),
        Transition::Synced(second.clone()),
    ];
    let entry = steps.into_iter().fold(ShardEntry::create(them()), after);
    settled(&settled(&entry, &first), &second)
}

fn after(entry: ShardEntry, step: Transition) -> ShardEntry {
    crate::hand::after(&entry, step)
}

/// n0 as a member of a shard with these members, all of which it has met.
fn member_of(entry: &ShardEntry) -> Hand {
    let mut hand = Hand::new();
    for member in entry.members().iter().filter(|member| member.incarnation != us()) {
        let node = if member.incarnation == them() { 1 } else { 2 };
        hand.registered(node, member.incarnation.boot_id.0);
    }
    hand.entry(&crate::hand::after(&ShardEntry::create(them()), Transition::AddReplica(us())));
    hand.met(1, 2);
    hand.worker_event(WorkerEvent::CopyDone(SHARD));
    hand.entry(entry);
    if entry.members().len() > 2 {
        hand.met(2, 3);
    }
    assert_eq!(hand.role(), Role::Synced);
    hand
}

/// Slots in which the worker looks at its peers. `n1`, `n2`: how long each was silent at their
/// beginning; None: it is heard all the time. `is_seen`: n2 reports that it hears n1.
struct Slots {
    n1: Option<u64>,
    n2: Option<u64>,
    is_seen: bool,
    is_witness: bool,
}

const ALL_BEAT: Slots = Slots { n1: None, n2: None, is_seen: false, is_witness: true };

fn slots(hand: &mut Hand, ms: u64, of: &Slots) {
    for slot in 1..=ms / 10 {
        hand.now_ms += 10;
        let silent = |at_first: Option<u64>| at_first.map_or(5, |ms| ms + 10 * slot);
        let seen_ms = of.is_seen.then_some(8);
        let n1 = PeerSigns { silent_ms: silent(of.n1), seen_ms, is_witness: true };
        hand.on(RolesInput::Heartbeats { worker: 0, peer_index: PeerIndex(1), signs: n1 });
        let n2 = PeerSigns { silent_ms: silent(of.n2), seen_ms: None, is_witness: of.is_witness };
        hand.on(RolesInput::Heartbeats { worker: 0, peer_index: PeerIndex(2), signs: n2 });
        hand.on(RolesInput::Tick);
    }
}

#[test]
fn one_of_two_nodes_acts_after_200_ms_without_packets() {
    let mut hand = member_of(&pair());
    slots(&mut hand, 300, &ALL_BEAT);
    slots(&mut hand, 190, &Slots { n1: Some(0), ..ALL_BEAT });
    assert_eq!(hand.role(), Role::Synced);
    slots(&mut hand, 20, &Slots { n1: Some(190), ..ALL_BEAT });
    assert_eq!(hand.role(), Role::Acting);
    assert_eq!(hand.roles.counters().failovers_silence_total, 1);
}

#[test]
fn a_replica_acts_when_no_witness_hears_the_primary_either() {
    let mut hand = member_of(&three(true));
    slots(&mut hand, 300, &Slots { is_seen: true, ..ALL_BEAT });
    slots(&mut hand, 180, &Slots { n1: Some(0), ..ALL_BEAT });
    assert_eq!(hand.role(), Role::Synced);
    slots(&mut hand, 30, &Slots { n1: Some(180), ..ALL_BEAT });
    assert_eq!(hand.role(), Role::Acting);
}

#[test]
fn a_replica_does_not_act_while_a_witness_hears_the_primary() {
    let mut hand = member_of(&three(true));
    slots(&mut hand, 300, &ALL_BEAT);
    slots(&mut hand, 5_000, &Slots { n1: Some(0), is_seen: true, ..ALL_BEAT });
    assert_eq!(hand.role(), Role::Synced, "the cut is between n0 and n1 only");
    slots(&mut hand, 230, &Slots { n1: Some(5_000), ..ALL_BEAT });
    assert_eq!(hand.role(), Role::Acting, "no node hears n1");
}

#[test]
fn a_replica_that_hears_no_node_does_not_act() {
    let mut hand = member_of(&three(true));
    slots(&mut hand, 300, &ALL_BEAT);
    slots(&mut hand, 5_000, &Slots { n1: Some(0), n2: Some(0), ..ALL_BEAT });
    assert_eq!(hand.role(), Role::Synced, "it is this node that is cut off");
    // n2 has ended: two nodes are left.
    hand.on(RolesInput::Node { node: life(2, 3).worker.node, workers: None });
    slots(&mut hand, 110, &Slots { n1: Some(5_000), n2: Some(5_000), ..ALL_BEAT });
    assert_eq!(hand.role(), Role::Acting);
}

#[test]
fn a_replica_does_not_act_beside_a_peer_of_an_earlier_build() {
    let mut hand = member_of(&three(true));
    slots(&mut hand, 300, &Slots { is_witness: false, ..ALL_BEAT });
    slots(&mut hand, 5_000, &Slots { n1: Some(0), is_witness: false, ..ALL_BEAT });
    assert_eq!(hand.role(), Role::Synced, "the nodes that n2 hears are not known");
}

#[test]
fn a_witness_that_comes_back_has_to_listen_first() {
    let mut hand = member_of(&three(true));
    slots(&mut hand, 300, &ALL_BEAT);
    slots(&mut hand, 1_000, &Slots { n1: Some(0), n2: Some(0), ..ALL_BEAT });
    slots(&mut hand, 150, &Slots { n1: Some(1_000), ..ALL_BEAT });
    assert_eq!(hand.role(), Role::Synced);
    slots(&mut hand, 100, &Slots { n1: Some(1_150), ..ALL_BEAT });
    assert_eq!(hand.role(), Role::Acting);
}

#[test]
fn the_first_synced_replica_that_is_heard_acts_first() {
    let mut hand = member_of(&three(false));
    slots(&mut hand, 300, &ALL_BEAT);
    slots(&mut hand, 480, &Slots { n1: Some(0), ..ALL_BEAT });
    assert_eq!(hand.role(), Role::Synced, "n2 stands in front");
    slots(&mut hand, 40, &Slots { n1: Some(480), ..ALL_BEAT });
    assert_eq!(hand.role(), Role::Acting, "n2 had its time");
}

#[test]
fn a_stall_of_the_node_makes_the_count_start_over() {
    let mut hand = member_of(&pair());
    slots(&mut hand, 300, &ALL_BEAT);
    hand.now_ms += 3_000;
    slots(&mut hand, 180, &Slots { n1: Some(3_000), ..ALL_BEAT });
    assert_eq!(hand.role(), Role::Synced, "n0 stalled itself");
    slots(&mut hand, 50, &Slots { n1: Some(3_180), ..ALL_BEAT });
    assert_eq!(hand.role(), Role::Acting);
}

#[test]
fn a_stall_of_the_worker_makes_the_count_start_over() {
    let mut hand = member_of(&pair());
    slots(&mut hand, 300, &ALL_BEAT);
    hand.ticks(3_000);
    assert_eq!(hand.role(), Role::Synced, "n0's worker has not looked at its peers");
    slots(&mut hand, 180, &Slots { n1: Some(3_000), ..ALL_BEAT });
    assert_eq!(hand.role(), Role::Synced, "n0's worker has not looked for long enough");
    slots(&mut hand, 80, &Slots { n1: Some(3_180), ..ALL_BEAT });
    assert_eq!(hand.role(), Role::Acting);
}

#[test]
fn the_node_number_of_a_peer_is_sent_to_the_worker_once() {
    let hand = member_of(&three(true));
    assert_eq!(hand.count(|command| matches!(command, WorkerCommand::SetPeerNode { .. })), 2);
}

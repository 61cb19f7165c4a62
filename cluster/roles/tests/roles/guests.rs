//! One node, driven by hand: it starts while the store is unreachable.

use weir_stream::ComebackState;

use crate::hand::*;

/// An earlier incarnation of n0's worker.
fn former() -> Incarnation {
    life(0, 9)
}

/// n1 is primary, and a former incarnation of n0 had a full copy and lane 1.
fn kept() -> ShardEntry {
    let copying = after(&ShardEntry::create(them()), Transition::AddReplica(former()));
    settled(&after(&copying, Transition::Synced(former())), &former())
}

fn restarted(entry: &ShardEntry) -> ShardEntry {
    after(entry, Transition::Restart { ended: former(), boot_id: us().boot_id })
}

fn began(known: Epoch) -> Hand {
    let mut hand = Hand::with(RolesOptions::default(), &[(SHARD, known)]);
    hand.registered(1, 2);
    hand.on(RolesInput::Node { node: them().worker.node, workers: None });
    hand.on(RolesInput::Kept { shard: SHARD, entry: Box::new(kept()) });
    hand
}

/// A guest with full copies, whose route is out.
fn guest() -> Hand {
    let mut hand = began(kept().epoch());
    assert_eq!(hand.role(), Role::Syncing);
    hand.met(1, 2);
    assert_eq!(hand.duties().sources, [Some(peer(1)); LANES], "also its own former lane");
    hand.worker_event(WorkerEvent::CopyDone(SHARD));
    hand.routes_are_out();
    is_guest(&hand);
    hand
}

fn is_guest(hand: &Hand) {
    assert_eq!((hand.role(), hand.metric()), (Role::Synced, Some(Metric::GUEST)));
    assert_eq!(hand.trouble(), Some(Trouble::Guest));
    let duties = hand.duties();
    assert!(duties.serves_hits && duties.lanes.is_empty());
    assert!(duties.copies.is_empty() && duties.grants.is_empty());
}

fn removals(hand: &Hand) -> usize {
    hand.count(|command| matches!(command, WorkerCommand::RemoveShard(_)))
}

#[test]
fn a_guest_goes_on_with_its_copies_when_no_member_is_heard() {
    let mut hand = guest();
    assert_eq!(hand.duties().misses, Misses::Redirect(peer(1)));
    assert_eq!(hand.roles.at_stake(0), AtStake::default(), "n1 serves");
    hand.ticks(1_100);
    hand.worker_event(WorkerEvent::StreamLost(SHARD));
    hand.ticks(5_000);
    is_guest(&hand);
    assert_eq!(hand.duties().misses, Misses::Refuse);
    let all = AtStake { is_serving: true, is_only_copy: true };
    assert_eq!(hand.roles.at_stake(0), all, "no other member serves the shard");
    assert_eq!(hand.duties().sources, [None; LANES], "no source is awaited");
    hand.on(RolesInput::Traffic { worker: 0, shards: vec![SHARD] });
    hand.ticks(500);
    is_guest(&hand);
    assert_eq!(hand.roles.take_changes(9), []);
}

#[test]
fn an_entry_that_is_older_than_what_was_seen_makes_no_guest() {
    let hand = began(Epoch(kept().epoch().0 + 1));
    assert_eq!((hand.role(), removals(&hand)), (Role::None, 0));
    assert!(hand.commands.iter().all(|command| !matches!(command, WorkerCommand::AddShard(_))));
}

#[test]
fn a_guest_becomes_a_member_with_its_copies() {
    let mut hand = guest();
    hand.on(RolesInput::Joining);
    hand.entry(&kept());
    is_guest(&hand);
    hand.entry(&restarted(&kept()));
    assert_eq!((hand.role(), hand.trouble()), (Role::Syncing, None));
    let transition = Transition::Synced(us());
    let change = EntryChange { shard: SHARD, at: restarted(&kept()).epoch(), transition };
    assert_eq!(hand.roles.take_changes(9), [change]);
    hand.routes_are_out();
    assert_eq!(removals(&hand), 0);
    assert!(hand.duties().serves_hits);
}

/// The guest cannot know what has happened in the entry that it has not seen.
#[test]
fn a_guest_forgets_its_copies_before_it_is_a_member_after_a_gap() {
    let mut hand = guest();
    let others = after(&kept(), Transition::AddReplica(life(2, 4)));
    hand.entry(&restarted(&others));
    assert_eq!((hand.role(), hand.metric()), (Role::None, None));
    assert_eq!(hand.duties(), &ShardDuties::none(SHARD));
    assert_eq!(removals(&hand), 0, "not before its route is withdrawn");
    // Entries that come meanwhile do not bring the old tables back.
    let newer = after(&restarted(&others), Transition::Synced(life(2, 4)));
    hand.entry(&newer);
    assert_eq!(hand.duties(), &ShardDuties::none(SHARD));
    hand.routes_are_out();
    assert_eq!(removals(&hand), 1);
    hand.worker_event(WorkerEvent::ShardRemoved(SHARD));
    assert_eq!(hand.role(), Role::Syncing);
    assert_eq!(hand.roles.take_changes(9), [], "it has no copy");
}

#[test]
fn a_guest_whose_former_incarnation_is_gone_serves_nothing_any_more() {
    let mut hand = guest();
    hand.entry(&after(&kept(), Transition::Fence(former())));
    assert_eq!(hand.duties(), &ShardDuties::none(SHARD));
    hand.routes_are_out();
    hand.worker_event(WorkerEvent::ShardRemoved(SHARD));
    assert_eq!(hand.roles.statuses().count(), 0);
}

#[test]
fn a_registered_guest_that_does_not_hear_the_store_forgets_its_copies() {
    let mut hand = guest();
    hand.ticks(60_000);
    is_guest(&hand);
    hand.on(RolesInput::Joining);
    hand.on(RolesInput::Fresh);
    hand.ticks(60_000);
    is_guest(&hand);
    hand.on(RolesInput::Stale);
    hand.ticks(9_900);
    is_guest(&hand);
    hand.ticks(200);
    assert_eq!(hand.duties(), &ShardDuties::none(SHARD));
    hand.routes_are_out();
    hand.worker_event(WorkerEvent::ShardRemoved(SHARD));
    assert_eq!(hand.roles.statuses().count(), 0);
    hand.on(RolesInput::Fresh);
    hand.entry(&restarted(&kept()));
    assert_eq!(hand.role(), Role::Syncing, "as any member that begins");
}

#[test]
fn an_incarnation_of_a_member_without_a_lane_is_no_guest() {
    let mut hand = Hand::new();
    hand.registered(1, 2);
    hand.registered(2, 4);
    let ours = ShardEntry::create(us());
    hand.entry(&after(&ours, Transition::AddReplica(them())));
    hand.met(1, 2);
    assert_eq!(hand.duties().copies.len(), 1);
    hand.met(1, 3);
    assert_eq!(hand.duties().copies, [], "it may be removed unasked: no lane");
}

/// Reports the state of another member's incarnation that came back, too.
fn peer_reports(hand: &mut Hand, node: usize, state: ComebackState) {
    let epoch = kept().epoch();
    hand.worker_event(WorkerEvent::CameBack { peer: peer(node), shard: SHARD, epoch, state });
}

fn reported(hand: &Hand) -> Option<ComebackState> {
    let reported = hand.commands.iter().rev().find_map(|command| match command {
        WorkerCommand::SetComebacks(reported) => Some(reported.first().map(|it| it.state)),
        _ => None,
    });
    reported.flatten()
}

/// n1 has come back in another incarnation, which is heard.
fn they_are_back(hand: &mut Hand, state: ComebackState) {
    hand.met(1, 77);
    peer_reports(hand, 1, state);
}

fn beat_for(hand: &mut Hand, ms: u64) {
    for _ in 0..ms / 10 {
        hand.on(RolesInput::Heartbeats { worker: 0, peer_index: PeerIndex(1), signs: signs(1) });
        hand.ticks(10);
    }
}

/// A guest may have to forget its copies as a member, and becomes one soon if the store is heard.
#[test]
fn a_guest_is_awaited_while_the_store_is_not_heard() {
    let mut hand = Hand::new();
    let entry = after(&ShardEntry::create(us()), Transition::AddReplica(them()));
    let entry = settled(&after(&entry, Transition::Synced(them())), &them());
    let awaited = |hand: &Hand, boot_id: u128| {
        let [copy] = &hand.duties().copies[..] else { panic!("there is one copy") };
        assert_eq!(copy.boot, BootId(boot_id));
        (copy.is_guest, copy.is_awaited)
    };
    hand.registered(1, 2);
    hand.on(RolesInput::Fresh);
    hand.entry(&entry);
    hand.met(1, 2);
    assert_eq!(awaited(&hand, 2), (false, true));
    // n1 has restarted, and the store does not know of it yet.
    let next = life(1, 3);
    hand.met(1, 3);
    assert_eq!(awaited(&hand, 3), (true, false));
    hand.on(RolesInput::Stale);
    assert_eq!(awaited(&hand, 3), (true, true));
    hand.on(RolesInput::Fresh);
    hand.registered(1, 3);
    let entry = after(&entry, Transition::Restart { ended: them(), boot_id: next.boot_id });
    hand.entry(&entry);
    assert_eq!(awaited(&hand, 3), (false, false), "it has no copy as a member");
    hand.entry(&after(&entry, Transition::Synced(next)));
    assert_eq!(awaited(&hand, 3), (false, true));
}

const QUARANTINE_MS: u64 = 120_000;

#[test]
fn members_that_all_come_back_empty_open_after_the_quarantine() {
    let mut hand = began(kept().epoch());
    they_are_back(&mut hand, ComebackState::Empty);
    beat_for(&mut hand, QUARANTINE_MS - 1_000);
    assert_eq!((hand.role(), hand.duties().misses), (Role::Syncing, Misses::Refuse));
    assert!(matches!(hand.trouble(), Some(Trouble::Resumes { in_sec: 1 | 2 })));
    assert_eq!(reported(&hand), Some(ComebackState::Empty));
    assert!(!hand.roles.is_resuming());
    beat_for(&mut hand, 2_000);
    assert!(hand.roles.is_resuming());
    assert_eq!((hand.role(), hand.trouble()), (Role::Synced, None));
    assert_eq!(reported(&hand), Some(ComebackState::Resumed));
    assert_eq!(hand.duties().lanes, LaneSet::EMPTY.with(1), "the lane of its former incarnation");
    assert_eq!(hand.roles.take_changes(9), [], "there is no store");
    // n1 resumes, too, as the primary that it was.
    peer_reports(&mut hand, 1, ComebackState::Resumed);
    beat_for(&mut hand, 200);
    assert_eq!(hand.duties().misses, Misses::Redirect(peer(1)));
    let copy = CopyOrder {
        peer: peer(1),
        boot: BootId(77),
        lanes: LaneSet::EMPTY.with(1),
        is_awaited: true,
        is_guest: false,
    };
    assert_eq!(hand.duties().copies, [copy]);
    assert_eq!(hand.duties().sources[0], Some(peer(1)));
}

#[test]
fn a_resumed_guest_writes_the_entry_and_is_a_member_by_its_new_boot_id() {
    let mut hand = began(kept().epoch());
    they_are_back(&mut hand, ComebackState::Empty);
    beat_for(&mut hand, QUARANTINE_MS + 200);
    hand.on(RolesInput::Joining);
    hand.entry(&kept());
    hand.on(RolesInput::Fresh);
    assert_eq!(hand.roles.take_changes(9), [], "the store does not have the record yet");
    hand.on(RolesInput::Registered);
    let transition = Transition::Resume { ended: former(), boot_id: us().boot_id };
    let change = |entry: &ShardEntry| EntryChange {
        shard: SHARD,
        at: entry.epoch(),
        transition: transition.clone(),
    };
    assert_eq!(hand.roles.take_changes(9), [change(&kept())]);
    hand.on(RolesInput::Written { shard: SHARD, is_done: false });
    // n1 was faster; nothing of n0 changes with that.
    let theirs = Transition::Resume { ended: them(), boot_id: BootId(77) };
    let entry = after(&kept(), theirs);
    hand.entry(&entry);
    assert!(hand.roles.is_resuming());
    assert_eq!(hand.duties().lanes, LaneSet::EMPTY.with(1));
    assert_eq!(hand.roles.take_changes(9), [change(&entry)]);
    let entry = after(&entry, transition.clone());
    hand.entry(&entry);
    assert!(!hand.roles.is_resuming());
    hand.on(RolesInput::Resumed);
    assert_eq!((hand.role(), hand.trouble()), (Role::Synced, None));
    assert_eq!(hand.duties().lanes, LaneSet::EMPTY.with(1));
    assert_eq!(removals(&hand), 0);
    beat_for(&mut hand, 20_000);
    assert_eq!((hand.role(), reported(&hand)), (Role::Synced, None), "no comeback is reported");
}

#[test]
fn a_resumed_guest_that_was_fenced_meanwhile_forgets_all() {
    let mut hand = began(kept().epoch());
    they_are_back(&mut hand, ComebackState::Empty);
    beat_for(&mut hand, QUARANTINE_MS + 200);
    assert!(hand.roles.is_resuming());
    hand.entry(&after(&kept(), Transition::Fence(former())));
    assert_eq!(hand.duties(), &ShardDuties::none(SHARD));
    assert!(!hand.roles.is_resuming());
}

#[test]
fn no_guest_resumes_while_a_member_is_missing_or_knows_another_entry() {
    let resumes = |what: fn(&mut Hand)| {
        let mut hand = began(kept().epoch());
        what(&mut hand);
        beat_for(&mut hand, 3 * QUARANTINE_MS);
        hand.roles.is_resuming()
    };
    assert!(resumes(|hand| they_are_back(hand, ComebackState::Empty)));
    assert!(!resumes(|_| {}), "no peer was met");
    assert!(!resumes(|hand| hand.met(1, 77)), "n1 reports nothing");
    assert!(!resumes(|hand| they_are_back(hand, ComebackState::Copying)), "n1 has copies");
    assert!(!resumes(|hand| hand.met(1, 2)), "n1 runs on in its former incarnation");
    assert!(!resumes(|hand| {
        hand.met(1, 77);
        let epoch = Epoch(kept().epoch().0 + 1);
        let state = ComebackState::Empty;
        hand.worker_event(WorkerEvent::CameBack { peer: peer(1), shard: SHARD, epoch, state });
    }));
    assert!(!resumes(|hand| {
        they_are_back(hand, ComebackState::Empty);
        hand.met(1, 78);
    }));
    // The copy of what n1 has opened since is not complete.
    assert!(!resumes(|hand| they_are_back(hand, ComebackState::Resumed)));
    assert!(resumes(|hand| {
        they_are_back(hand, ComebackState::Resumed);
        hand.ticks(200);
        hand.worker_event(WorkerEvent::CopyDone(SHARD));
    }));
}

#[test]
fn a_member_that_is_not_heard_when_the_quarantine_ends_is_waited_for() {
    let mut hand = began(kept().epoch());
    they_are_back(&mut hand, ComebackState::Empty);
    hand.ticks(3 * QUARANTINE_MS);
    assert!(!hand.roles.is_resuming());
    assert_eq!(hand.trouble(), Some(Trouble::Guest));
}

#[test]
fn a_guest_with_copies_of_a_member_that_came_back_empty_resumes() {
    let mut hand = guest();
    hand.ticks(200);
    assert_eq!(reported(&hand), Some(ComebackState::Copying));
    they_are_back(&mut hand, ComebackState::Empty);
    beat_for(&mut hand, QUARANTINE_MS + 200);
    assert_eq!(hand.role(), Role::Synced);
    assert!(hand.roles.is_resuming());
    assert_eq!(reported(&hand), Some(ComebackState::Resumed));
    assert_eq!(removals(&hand), 0);
}

/// The node's record proves the end of the incarnation whose member slot was resumed.
#[test]
fn a_resumed_guest_ends_with_the_record_that_ends_its_former_incarnation() {
    let mut hand = began(kept().epoch());
    they_are_back(&mut hand, ComebackState::Empty);
    beat_for(&mut hand, QUARANTINE_MS + 200);
    assert!(hand.roles.is_resuming());
    hand.on(RolesInput::Resumed);
    assert_eq!(hand.duties(), &ShardDuties::none(SHARD));
}

/// The record that the node registers does not name the former incarnation.
#[test]
fn no_guest_resumes_once_the_store_is_sent_the_nodes_record() {
    let mut hand = began(kept().epoch());
    they_are_back(&mut hand, ComebackState::Empty);
    beat_for(&mut hand, QUARANTINE_MS - 1_000);
    hand.on(RolesInput::Joining);
    beat_for(&mut hand, 9_000);
    assert!(!hand.roles.is_resuming());
    assert_eq!(hand.duties().misses, Misses::Refuse);
}

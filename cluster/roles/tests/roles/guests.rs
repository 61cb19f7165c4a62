//! One node, told by hand: it begins while the store cannot be asked.

use weir_stream::ComebackState;

use crate::hand::*;

/// Another life of us, before.
fn former() -> Incarnation {
    life(0, 9)
}

/// They are primary, and a former life of ours had a full copy and lane 1.
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
    hand.on(Input::Node { node: them().worker.node, workers: None });
    hand.on(Input::Kept { shard: SHARD, entry: Box::new(kept()) });
    hand
}

/// A guest with full copies, and its route.
fn guest() -> Hand {
    let mut hand = began(kept().epoch());
    assert_eq!(hand.role(), Role::Syncing);
    hand.met(1, 2);
    assert_eq!(hand.duties().sources, [Some(peer(1)); LANES], "its own former lane, too");
    hand.news(News::CopyDone(SHARD));
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
    hand.count(|order| matches!(order, Order::RemoveShard(_)))
}

#[test]
fn a_guest_goes_on_with_its_copies_when_nobody_is_heard() {
    let mut hand = guest();
    assert_eq!(hand.duties().misses, Misses::Redirect(peer(1)));
    assert_eq!(hand.roles.at_stake(0), AtStake::default(), "another serves");
    hand.ticks(1_100);
    hand.news(News::StreamLost(SHARD));
    hand.ticks(5_000);
    is_guest(&hand);
    assert_eq!(hand.duties().misses, Misses::Refuse);
    let all = AtStake { is_serving: true, is_only_copy: true };
    assert_eq!(hand.roles.at_stake(0), all, "its guard has patience");
    assert_eq!(hand.duties().sources, [None; LANES], "nobody is awaited");
    hand.on(Input::Traffic { worker: 0, shards: vec![SHARD] });
    hand.ticks(500);
    is_guest(&hand);
    assert_eq!(hand.roles.take_changes(9), []);
}

#[test]
fn an_entry_that_is_older_than_what_was_seen_makes_no_guest() {
    let hand = began(Epoch(kept().epoch().0 + 1));
    assert_eq!((hand.role(), removals(&hand)), (Role::None, 0));
    assert!(hand.orders.iter().all(|order| !matches!(order, Order::AddShard(_))));
}

#[test]
fn a_guest_becomes_a_member_with_its_copies() {
    let mut hand = guest();
    hand.on(Input::Joining);
    hand.entry(&kept());
    is_guest(&hand);
    hand.entry(&restarted(&kept()));
    assert_eq!((hand.role(), hand.trouble()), (Role::Syncing, None));
    let transition = Transition::Synced(us());
    let change = Change { shard: SHARD, at: restarted(&kept()).epoch(), transition };
    assert_eq!(hand.roles.take_changes(9), [change]);
    hand.routes_are_out();
    assert_eq!(removals(&hand), 0);
    assert!(hand.duties().serves_hits);
}

/// What has happened in the entry that it has not seen, it cannot know.
#[test]
fn a_guest_forgets_its_copies_before_it_is_a_member_after_a_gap() {
    let mut hand = guest();
    let others = after(&kept(), Transition::AddReplica(life(2, 4)));
    hand.entry(&restarted(&others));
    assert_eq!((hand.role(), hand.metric()), (Role::None, None));
    assert_eq!(hand.duties(), &ShardDuties::none(SHARD));
    assert_eq!(removals(&hand), 0, "not before its route is withdrawn");
    // Whatever comes meanwhile does not bring the old tables back.
    let newer = after(&restarted(&others), Transition::Synced(life(2, 4)));
    hand.entry(&newer);
    assert_eq!(hand.duties(), &ShardDuties::none(SHARD));
    hand.routes_are_out();
    assert_eq!(removals(&hand), 1);
    hand.news(News::ShardRemoved(SHARD));
    assert_eq!(hand.role(), Role::Syncing);
    assert_eq!(hand.roles.take_changes(9), [], "it has no copy");
}

#[test]
fn a_guest_whose_former_life_is_gone_serves_nothing_any_more() {
    let mut hand = guest();
    hand.entry(&after(&kept(), Transition::Fence(former())));
    assert_eq!(hand.duties(), &ShardDuties::none(SHARD));
    hand.routes_are_out();
    hand.news(News::ShardRemoved(SHARD));
    assert_eq!(hand.roles.statuses().count(), 0);
}

#[test]
fn a_guest_that_has_registered_and_hears_nothing_of_the_store_forgets_its_copies() {
    let mut hand = guest();
    hand.ticks(60_000);
    is_guest(&hand);
    hand.on(Input::Joining);
    hand.on(Input::Fresh);
    hand.ticks(60_000);
    is_guest(&hand);
    hand.on(Input::Stale);
    hand.ticks(9_900);
    is_guest(&hand);
    hand.ticks(200);
    assert_eq!(hand.duties(), &ShardDuties::none(SHARD));
    hand.routes_are_out();
    hand.news(News::ShardRemoved(SHARD));
    assert_eq!(hand.roles.statuses().count(), 0);
    hand.on(Input::Fresh);
    hand.entry(&restarted(&kept()));
    assert_eq!(hand.role(), Role::Syncing, "as any member that begins");
}

#[test]
fn a_life_that_was_met_in_place_of_a_member_without_a_lane_is_no_guest() {
    let mut hand = Hand::new();
    hand.registered(1, 2);
    hand.registered(2, 4);
    let ours = ShardEntry::create(us());
    hand.entry(&after(&ours, Transition::AddReplica(them())));
    hand.met(1, 2);
    assert_eq!(hand.duties().copies.len(), 1);
    hand.met(1, 3);
    assert_eq!(hand.duties().copies, [], "it may be removed without its word");
}

/// What another member's life says that came back, too.
fn says(hand: &mut Hand, node: usize, state: ComebackState) {
    let epoch = kept().epoch();
    hand.news(News::CameBack { peer: peer(node), shard: SHARD, epoch, state });
}

fn told(hand: &Hand) -> Option<ComebackState> {
    let told = hand.orders.iter().rev().find_map(|order| match order {
        Order::SetComebacks(told) => Some(told.first().map(|it| it.state)),
        _ => None,
    });
    told.flatten()
}

/// They have come back in another life; it is heard.
fn they_are_back(hand: &mut Hand, state: ComebackState) {
    hand.met(1, 77);
    says(hand, 1, state);
}

fn heard_for(hand: &mut Hand, ms: u64) {
    for _ in 0..ms / 10 {
        hand.on(Input::Heard { worker: 0, place: PeerIndex(1), signs: signs(1) });
        hand.ticks(10);
    }
}

/// As a member it may have to forget its copies, and the store makes it one soon.
#[test]
fn a_guest_is_awaited_while_the_store_is_not_heard() {
    let mut hand = Hand::new();
    let entry = after(&ShardEntry::create(us()), Transition::AddReplica(them()));
    let entry = settled(&after(&entry, Transition::Synced(them())), &them());
    let awaited = |hand: &Hand, boot_id: u128| {
        let [copy] = &hand.duties().copies[..] else { panic!("one copy") };
        assert_eq!(copy.boot, BootId(boot_id));
        (copy.is_guest, copy.is_awaited)
    };
    hand.registered(1, 2);
    hand.on(Input::Fresh);
    hand.entry(&entry);
    hand.met(1, 2);
    assert_eq!(awaited(&hand, 2), (false, true));
    // It has restarted, and has not told the store of it yet.
    let next = life(1, 3);
    hand.met(1, 3);
    assert_eq!(awaited(&hand, 3), (true, false));
    hand.on(Input::Stale);
    assert_eq!(awaited(&hand, 3), (true, true));
    hand.on(Input::Fresh);
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
    heard_for(&mut hand, QUARANTINE_MS - 1_000);
    assert_eq!((hand.role(), hand.duties().misses), (Role::Syncing, Misses::Refuse));
    assert!(matches!(hand.trouble(), Some(Trouble::Resumes { in_sec: 1 | 2 })));
    assert_eq!(told(&hand), Some(ComebackState::Empty));
    assert!(!hand.roles.is_resuming());
    heard_for(&mut hand, 2_000);
    assert!(hand.roles.is_resuming());
    assert_eq!((hand.role(), hand.trouble()), (Role::Synced, None));
    assert_eq!(told(&hand), Some(ComebackState::Resumed));
    assert_eq!(hand.duties().lanes, LaneSet::EMPTY.with(1), "that of its former life");
    assert_eq!(hand.roles.take_changes(9), [], "there is no store");
    // They resume, too, as the primary that they were.
    says(&mut hand, 1, ComebackState::Resumed);
    heard_for(&mut hand, 200);
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
fn one_that_has_resumed_tells_the_store_and_is_a_member_under_its_new_name() {
    let mut hand = began(kept().epoch());
    they_are_back(&mut hand, ComebackState::Empty);
    heard_for(&mut hand, QUARANTINE_MS + 200);
    hand.on(Input::Joining);
    hand.entry(&kept());
    hand.on(Input::Fresh);
    assert_eq!(hand.roles.take_changes(9), [], "its record is not there");
    hand.on(Input::Registered);
    let transition = Transition::Resume { ended: former(), boot_id: us().boot_id };
    let change = |entry: &ShardEntry| Change {
        shard: SHARD,
        at: entry.epoch(),
        transition: transition.clone(),
    };
    assert_eq!(hand.roles.take_changes(9), [change(&kept())]);
    hand.on(Input::Written { shard: SHARD, is_done: false });
    // They were faster; nothing of ours changes with that.
    let theirs = Transition::Resume { ended: them(), boot_id: BootId(77) };
    let entry = after(&kept(), theirs);
    hand.entry(&entry);
    assert!(hand.roles.is_resuming());
    assert_eq!(hand.duties().lanes, LaneSet::EMPTY.with(1));
    assert_eq!(hand.roles.take_changes(9), [change(&entry)]);
    let entry = after(&entry, transition.clone());
    hand.entry(&entry);
    assert!(!hand.roles.is_resuming());
    hand.on(Input::Resumed);
    assert_eq!((hand.role(), hand.trouble()), (Role::Synced, None));
    assert_eq!(hand.duties().lanes, LaneSet::EMPTY.with(1));
    assert_eq!(removals(&hand), 0);
    heard_for(&mut hand, 20_000);
    assert_eq!((hand.role(), told(&hand)), (Role::Synced, None), "nothing more is said of it");
}

#[test]
fn one_that_has_resumed_and_was_fenced_meanwhile_forgets_all() {
    let mut hand = began(kept().epoch());
    they_are_back(&mut hand, ComebackState::Empty);
    heard_for(&mut hand, QUARANTINE_MS + 200);
    assert!(hand.roles.is_resuming());
    hand.entry(&after(&kept(), Transition::Fence(former())));
    assert_eq!(hand.duties(), &ShardDuties::none(SHARD));
    assert!(!hand.roles.is_resuming());
}

#[test]
fn nobody_resumes_while_a_member_is_missing_or_knows_another_entry() {
    let resumes = |what: fn(&mut Hand)| {
        let mut hand = began(kept().epoch());
        what(&mut hand);
        heard_for(&mut hand, 3 * QUARANTINE_MS);
        hand.roles.is_resuming()
    };
    assert!(resumes(|hand| they_are_back(hand, ComebackState::Empty)));
    assert!(!resumes(|_| {}), "nobody was met");
    assert!(!resumes(|hand| hand.met(1, 77)), "it says nothing");
    assert!(!resumes(|hand| they_are_back(hand, ComebackState::Copying)), "it has copies");
    assert!(!resumes(|hand| hand.met(1, 2)), "it lives on");
    assert!(!resumes(|hand| {
        hand.met(1, 77);
        let epoch = Epoch(kept().epoch().0 + 1);
        let state = ComebackState::Empty;
        hand.news(News::CameBack { peer: peer(1), shard: SHARD, epoch, state });
    }));
    assert!(!resumes(|hand| {
        they_are_back(hand, ComebackState::Empty);
        hand.met(1, 78);
    }));
    // Its copy of what they have opened since is not complete.
    assert!(!resumes(|hand| they_are_back(hand, ComebackState::Resumed)));
    assert!(resumes(|hand| {
        they_are_back(hand, ComebackState::Resumed);
        hand.ticks(200);
        hand.news(News::CopyDone(SHARD));
    }));
}

#[test]
fn one_that_is_not_heard_when_the_quarantine_ends_is_waited_for() {
    let mut hand = began(kept().epoch());
    they_are_back(&mut hand, ComebackState::Empty);
    hand.ticks(3 * QUARANTINE_MS);
    assert!(!hand.roles.is_resuming());
    assert_eq!(hand.trouble(), Some(Trouble::Guest));
}

#[test]
fn one_that_took_copies_of_a_member_that_came_back_empty_resumes_with_them() {
    let mut hand = guest();
    hand.ticks(200);
    assert_eq!(told(&hand), Some(ComebackState::Copying));
    they_are_back(&mut hand, ComebackState::Empty);
    heard_for(&mut hand, QUARANTINE_MS + 200);
    assert_eq!(hand.role(), Role::Synced);
    assert!(hand.roles.is_resuming());
    assert_eq!(told(&hand), Some(ComebackState::Resumed));
    assert_eq!(removals(&hand), 0);
}

/// Its record proves the end of the life whose seat that is.
#[test]
fn one_whose_seat_the_entry_gives_to_no_other_yet_is_over_with_the_record_that_says_so() {
    let mut hand = began(kept().epoch());
    they_are_back(&mut hand, ComebackState::Empty);
    heard_for(&mut hand, QUARANTINE_MS + 200);
    assert!(hand.roles.is_resuming());
    hand.on(Input::Resumed);
    assert_eq!(hand.duties(), &ShardDuties::none(SHARD));
}

/// The record that its node registers does not name the former life.
#[test]
fn nobody_resumes_who_had_not_when_the_store_was_told_of_the_node() {
    let mut hand = began(kept().epoch());
    they_are_back(&mut hand, ComebackState::Empty);
    heard_for(&mut hand, QUARANTINE_MS - 1_000);
    hand.on(Input::Joining);
    heard_for(&mut hand, 9_000);
    assert!(!hand.roles.is_resuming());
    assert_eq!(hand.duties().misses, Misses::Refuse);
}

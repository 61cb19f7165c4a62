//! One node, driven by hand: a store that is set back, loses entries or does not answer.

use crate::hand::*;

#[test]
fn a_store_that_was_set_back_is_not_obeyed() {
    let mut hand = Hand::synced();
    hand.on(RolesInput::Fresh);
    hand.on(RolesInput::Restored);
    hand.entry(&copying());
    let (known, stored) = (pair().epoch(), Some(copying().epoch()));
    assert_eq!(hand.trouble(), Some(Trouble::SetBack(SetBack { known, stored })));
    assert_eq!(hand.roles.counters().entries_refused_total, 1);
    // The entries that follow from there are another history, however far it goes.
    let entry = after(&copying(), Transition::OutOfSync(us()));
    let entry = after(&entry, Transition::Retire(us()));
    let entry = after(&entry, Transition::Remove(us()));
    assert!(entry.epoch() > pair().epoch());
    hand.entry(&entry);
    assert_eq!(hand.role(), Role::Synced);
    hand.worker_event(WorkerEvent::StreamLost(SHARD));
    hand.ticks(100);
    assert_eq!(hand.role(), Role::OutOfSync);
    assert!(hand.roles.take_changes(9).is_empty(), "nothing is written to that store");
    assert!(!hand.roles.has_settled());
    // The right entry is back.
    hand.on(RolesInput::Restored);
    hand.entry(&pair());
    hand.on(RolesInput::Fresh);
    assert_eq!(hand.trouble(), None);
    assert_eq!(hand.roles.take_changes(9).len(), 1);
}

#[test]
fn an_entry_that_was_rebased_above_all_that_was_seen_is_obeyed() {
    let mut hand = Hand::synced();
    hand.on(RolesInput::Restored);
    hand.entry(&copying());
    let doubts: Vec<_> = hand.roles.doubts().collect();
    assert_eq!(doubts, [(SHARD, pair().epoch(), Some(&pair()))]);
    let rebase = |epoch: u64| Transition::Rebase { epoch: Epoch(epoch), term: Term(1) };
    let below = after(&copying(), rebase(0));
    assert!(below.rebased() < Some(pair().epoch()));
    hand.entry(&after(&after(&below, Transition::OutOfSync(us())), Transition::Resync(us())));
    assert!(matches!(hand.trouble(), Some(Trouble::SetBack(_))), "it was rebased below");
    let rebased = after(&pair(), rebase(pair().epoch().0));
    // The rebased entry itself was missed.
    let next = after(&rebased, Transition::OutOfSync(us()));
    hand.entry(&next);
    assert_eq!((hand.trouble(), hand.role()), (None, Role::OutOfSync));
    assert_eq!(hand.roles.doubts().count(), 0);
    hand.entry(&after(&next, Transition::Resync(us())));
    assert_eq!(hand.role(), Role::Syncing);
}

#[test]
fn an_entry_that_was_deleted_comes_back_rebased() {
    let mut hand = Hand::synced();
    hand.on(RolesInput::EntryGone(SHARD));
    assert_eq!(hand.roles.doubts().count(), 1);
    let known = pair().epoch();
    hand.entry(&after(&pair(), Transition::Rebase { epoch: known, term: Term(1) }));
    assert_eq!((hand.trouble(), hand.roles.doubts().count()), (None, 0));
}

#[test]
fn a_store_that_has_lost_entries_is_reported() {
    let mut hand = Hand::synced();
    hand.on(RolesInput::Fresh);
    hand.on(RolesInput::Restored);
    hand.on(RolesInput::Fresh);
    let known = pair().epoch();
    assert_eq!(hand.trouble(), Some(Trouble::SetBack(SetBack { known, stored: None })));
    assert_eq!(hand.role(), Role::Synced);
}

#[test]
fn another_entry_of_the_same_epoch_is_another_history() {
    let mut hand = Hand::synced();
    hand.on(RolesInput::Restored);
    let other = after(&after(&copying(), Transition::OutOfSync(us())), Transition::Resync(us()));
    assert_eq!(other.epoch(), pair().epoch());
    hand.entry(&other);
    assert!(matches!(hand.trouble(), Some(Trouble::SetBack(_))));
    assert_eq!(hand.role(), Role::Synced);
}

#[test]
fn epochs_are_known_over_a_restart() {
    let mut hand = Hand::synced();
    let epoch = pair().epoch();
    assert_eq!(hand.roles.take_epochs(), BTreeMap::from([(SHARD, Some(epoch))]));
    assert_eq!(hand.roles.take_epochs(), BTreeMap::new());
    let mut again = Hand::with(RolesOptions::default(), &[(SHARD, epoch)]);
    again.entry(&copying());
    assert_eq!(again.roles.statuses().count(), 0);
    let set_back = SetBack { known: epoch, stored: Some(copying().epoch()) };
    assert_eq!(again.roles.set_back().collect::<Vec<_>>(), [(SHARD, set_back)]);
    again.entry(&pair());
    assert_eq!(again.role(), Role::OutOfSync, "it has no copy");
    assert_eq!(again.roles.set_back().count(), 0);
}

#[test]
fn a_shard_ends_only_when_it_is_not_desired_any_more() {
    let mut hand = Hand::new();
    hand.entry(&ShardEntry::create(us()));
    hand.routes_are_out();
    hand.on(RolesInput::EntryGone(SHARD));
    assert_eq!((hand.role(), hand.trouble()), (Role::Primary, Some(Trouble::EntryGone)));
    // The entry was created again, with other members: that is another history.
    hand.entry(&ShardEntry::create(them()));
    assert!(matches!(hand.trouble(), Some(Trouble::SetBack(_))));
    assert_eq!(hand.role(), Role::Primary);
    hand.on(RolesInput::EntryGone(SHARD));
    hand.desired(0);
    assert_eq!((hand.role(), hand.metric()), (Role::None, None));
    hand.routes_are_out();
    assert_eq!(hand.count(|command| matches!(command, WorkerCommand::RemoveShard(_))), 1);
    hand.worker_event(WorkerEvent::ShardRemoved(SHARD));
    assert_eq!(hand.roles.take_epochs(), BTreeMap::from([(SHARD, None)]));
    // A shard of the same number starts over.
    hand.desired(1);
    hand.entry(&ShardEntry::create(us()));
    assert_eq!(hand.role(), Role::Primary);
}

#[test]
fn a_shard_that_ended_while_the_node_was_away_may_start_over() {
    let other = ShardId(7);
    let mut hand = Hand::with(RolesOptions::default(), &[(SHARD, Epoch(9)), (other, Epoch(9))]);
    hand.on(RolesInput::Fresh);
    assert_eq!(hand.roles.take_epochs(), BTreeMap::from([(other, None)]), "it is not desired");
}

#[test]
fn a_node_that_the_restored_store_does_not_know_is_not_registered() {
    let mut hand = Hand::synced();
    hand.on(RolesInput::Restored);
    hand.entry(&pair());
    hand.ticks(2_000);
    assert_eq!(hand.duties().sources[0], Some(peer(1)));
    hand.on(RolesInput::Fresh);
    assert_eq!(hand.duties().sources[0], None);
}

#[test]
fn tables_stay_as_they_were_made() {
    let mut hand = Hand::new();
    hand.entry(&ShardEntry::create(us()));
    let mut shards = desired(1);
    shards[0].setup.nat.public = vec!["198.18.77.0/24".parse().expect("a prefix")];
    hand.on(RolesInput::Desired { shards, fingerprint: Fingerprint::default() });
    assert_eq!(hand.trouble(), Some(Trouble::OldSetup));
    let routes = hand.roles.wanted_routes(0);
    assert_eq!(routes[0].shard.setup.nat.public, desired(1)[0].setup.nat.public);
}

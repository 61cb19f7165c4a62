//! Rebases that are certain, that leave doubts, and that are refused whatever an operator says.

use super::*;
use crate::lane::LaneSet;

fn life(node: u8) -> Incarnation {
    let worker = format!("n{node}/0").parse().expect("a worker");
    Incarnation { worker, boot_id: BootId(u128::from(node)) }
}

fn apply(entry: &ShardEntry, transition: Transition) -> ShardEntry {
    entry.after(entry.epoch(), &transition).expect("it fits")
}

/// Lets every member that is to get a lane take it.
fn settled(mut entry: ShardEntry) -> ShardEntry {
    for node in 1..5 {
        let Some((_, member)) = entry.member(&life(node)) else { continue };
        let slot = member.slot;
        let taken = LaneSet::of(|lane| {
            let lane = entry.lanes()[lane];
            lane.owner == slot && lane.moving.is_some()
        });
        if !taken.is_empty() {
            entry = apply(&entry, Transition::Settle { by: life(node), lanes: taken });
        }
    }
    entry
}

/// n1 is primary, n2 has a copy.
fn pair() -> ShardEntry {
    let entry = apply(&ShardEntry::create(life(1)), Transition::AddReplica(life(2)));
    settled(apply(&entry, Transition::Synced(life(2))))
}

fn witness(node: u8, stand: Stand) -> Witness {
    let who = life(node);
    Witness { node: who.worker.node, boot_ids: vec![who.boot_id], stand }
}

fn holds(node: u8, entry: &ShardEntry) -> Witness {
    witness(node, Stand::InDoubt { known: entry.epoch(), held: Some(Box::new(entry.clone())) })
}

fn nobody(_: &Incarnation) -> bool {
    false
}

#[test]
fn the_newest_entry_goes_on_above_all_that_was_seen() {
    let old = pair();
    let moving = apply(&old, Transition::Promote(life(2)));
    // n1 has not seen the promotion.
    let nodes = [holds(1, &old), holds(2, &moving)];
    let rebased = rebase(Some(&ShardEntry::create(life(1))), &nodes, nobody).expect("a base");
    assert_eq!(rebased.doubts, []);
    let entry = rebased.entry;
    assert_eq!(entry.epoch(), Epoch(moving.epoch().0 + 1));
    assert_eq!(entry.rebased(), Some(entry.epoch()));
    assert_eq!((entry.term(), entry.members()), (moving.term(), moving.members()));
    for (before, after) in moving.lanes().iter().zip(entry.lanes()) {
        assert_eq!(before.owner, after.owner);
        let given = |lane: &LaneEntry| lane.moving.map(|moving| moving.from);
        assert_eq!(given(before), given(after));
        let is_anew = after.moving.is_none_or(|moving| moving.since == entry.epoch());
        assert!(is_anew, "a grant of the earlier move is void");
    }
    assert_eq!(ShardEntry::from_json(entry.to_json().as_bytes()).expect("read"), entry);
}

#[test]
fn a_node_that_has_not_read_the_rebased_entry_needs_no_second_rebase() {
    let entry = pair();
    let (old, nodes) = (ShardEntry::create(life(1)), [holds(1, &entry), holds(2, &entry)]);
    assert!(needs_rebase(Some(&old), &nodes) && needs_rebase(None, &nodes));
    let rebased = rebase(Some(&old), &nodes, nobody).expect("a base").entry;
    assert!(!needs_rebase(Some(&rebased), &nodes));
    let later = apply(&rebased, Transition::OutOfSync(life(2)));
    assert!(!needs_rebase(Some(&later), &nodes), "a node may miss the rebased entry itself");
}

#[test]
fn a_missing_member_is_a_doubt_until_it_is_fenced() {
    let entry = pair();
    let alone = [holds(1, &entry)];
    let old = ShardEntry::create(life(1));
    let rebased = rebase(Some(&old), &alone, nobody).expect("a base");
    assert_eq!(rebased.doubts, [Doubt::Missing(life(2))]);
    assert!(rebased.entry.member(&life(2)).is_some(), "a missing member keeps its lanes");
    let fenced = rebase(Some(&old), &alone, |who| *who == life(2)).expect("a base");
    assert_eq!(fenced.doubts, []);
    let silent = [holds(1, &entry), witness(2, Stand::Silent)];
    let rebased = rebase(Some(&old), &silent, nobody).expect("a base");
    assert_eq!(rebased.doubts, [Doubt::Unanswered(life(2).worker.node)]);
}

#[test]
fn an_epoch_that_was_seen_but_is_held_by_no_node_is_a_doubt() {
    let (old, entry) = (ShardEntry::create(life(1)), pair());
    let known = Epoch(entry.epoch().0 + 3);
    let anew =
        Witness { boot_ids: vec![BootId(99)], ..witness(2, Stand::InDoubt { known, held: None }) };
    let rebased = rebase(Some(&old), &[holds(1, &entry), anew.clone()], nobody).expect("a base");
    let node = life(2).worker.node;
    assert_eq!(rebased.doubts, [Doubt::Newer { node, known, held: entry.epoch() }]);
    assert_eq!(rebased.entry.epoch(), Epoch(known.0 + 1));
    assert_eq!(rebased.entry.term(), Term(entry.term().0 + 4), "three terms may have been begun");
    assert_eq!(rebase(None, &[anew], nobody), Err(NoBase::NoEntry));
}

#[test]
fn a_rebase_that_leaves_a_second_writer_is_refused() {
    let moved = settled(apply(&pair(), Transition::Promote(life(2))));
    // The store says that n1 owns nearly every lane, and n1 believes it, although it has given them
    // away.
    let believes = [witness(1, Stand::Follows), holds(2, &moved)];
    let refused = rebase(Some(&pair()), &believes, nobody);
    let worker = life(1).worker;
    assert_eq!(refused, Err(NoBase::TwoWriters { worker, lane: 2 }));
}

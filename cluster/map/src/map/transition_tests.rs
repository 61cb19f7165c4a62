//! The effect of each transition, by example; no sequence of them breaks an invariant; the JSON
//! form of an entry.

use bolero::{TypeGenerator, check};
use weir_ids::{BootId, Epoch, Incarnation, NodeId, Term, WorkerId};

use super::*;
use crate::lane::{LaneSet, MemberSlot};

fn boot(node: u8, boot_id: u128) -> Incarnation {
    let node = NodeId::new(&format!("n{node}")).expect("a name");
    Incarnation { worker: WorkerId { node, index: 0 }, boot_id: BootId(boot_id) }
}

fn a() -> Incarnation {
    boot(1, 10)
}

fn b() -> Incarnation {
    boot(2, 20)
}

fn c() -> Incarnation {
    boot(3, 30)
}

fn apply(entry: &ShardEntry, transition: Transition) -> ShardEntry {
    let next = entry.after(entry.epoch(), &transition).expect("it applies");
    assert_eq!(next.epoch().0, entry.epoch().0 + 1, "every transition takes an epoch");
    next
}

fn refused(entry: &ShardEntry, transition: Transition) -> TransitionRefusal {
    entry.after(entry.epoch(), &transition).expect_err("it is refused")
}

/// Lets every owner take the lanes that are on their way to it.
fn settled(mut entry: ShardEntry) -> ShardEntry {
    while let Some(lane) = entry.lanes().iter().find(|lane| lane.moving.is_some()) {
        let by = entry.at_slot(lane.owner).expect("the owner is a member").incarnation.clone();
        let is_due = |index: usize| {
            let other = entry.lanes()[index];
            other.owner == lane.owner && other.moving.is_some()
        };
        let lanes = LaneSet::of(is_due);
        entry = apply(&entry, Transition::Settle { by, lanes });
    }
    entry
}

fn owners(entry: &ShardEntry) -> [u8; 8] {
    entry.lanes().map(|lane| lane.owner.0)
}

/// Primary A on slot 0, synced replica B on slot 1, all lanes at rest.
fn pair() -> ShardEntry {
    let entry = apply(&ShardEntry::create(a()), Transition::AddReplica(b()));
    settled(apply(&entry, Transition::Synced(b())))
}

/// A pair and synced replica C on slot 2.
fn three() -> ShardEntry {
    let entry = apply(&pair(), Transition::AddReplica(c()));
    settled(apply(&entry, Transition::Synced(c())))
}

/// A lane whose writer ended at this entry: its new owner takes the copies of these slots.
fn taken(entry: &ShardEntry, owner: u8, from: u8, then: &[u8]) -> LaneEntry {
    let then = Some(then.iter().map(|&slot| MemberSlot(slot)).collect());
    LaneEntry {
        owner: MemberSlot(owner),
        moving: Some(Move { from: MemberSlot(from), since: entry.epoch(), then }),
    }
}

#[test]
fn a_replica_gets_its_lane_when_it_is_synced() {
    let entry = apply(&ShardEntry::create(a()), Transition::AddReplica(b()));
    assert_eq!(owners(&entry), [0; 8], "a member with an incomplete copy owns no lane");
    let entry = apply(&entry, Transition::Synced(b()));
    let moving = Some(Move { from: MemberSlot(0), since: entry.epoch(), then: None });
    assert_eq!(entry.lanes()[1], LaneEntry { owner: MemberSlot(1), moving });
    assert_eq!(owners(&settled(entry)), [0, 1, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn a_promotion_moves_all_lanes_but_the_reserve_lanes() {
    let entry = apply(&three(), Transition::Promote(b()));
    assert_eq!(entry.term(), Term(2));
    let order: Vec<_> = entry.members().iter().map(|member| &member.incarnation).collect();
    assert_eq!(order, [&b(), &a(), &c()]);
    assert_eq!(entry.lanes_of(MemberSlot(0)), LaneSet(0b1111_1001), "A gives five and keeps one");
    assert_eq!(owners(&settled(entry)), [0, 1, 2, 1, 1, 1, 1, 1]);
}

#[test]
fn a_fence_of_one_end_of_a_move_leaves_the_lane_with_the_other_end() {
    let moving = apply(&three(), Transition::Promote(b()));
    // The giver ends: B needs its grant no more, but C may have records that B lacks.
    let entry = apply(&moving, Transition::Fence(a()));
    for lane in [0, 3, 4, 5, 6, 7] {
        assert_eq!(entry.lanes()[lane], taken(&entry, 1, 2, &[]));
    }
    assert_eq!(owners(&entry), [1, 1, 2, 1, 1, 1, 1, 1]);
    assert_eq!(entry.term(), Term(2), "the primary is the same");
    // The new owner ends: it may have written, and C may have received that.
    let entry = apply(&moving, Transition::Fence(b()));
    assert_eq!(entry.primary().incarnation, a());
    assert_eq!(entry.lanes()[3], taken(&entry, 0, 2, &[]));
    assert_eq!(entry.lanes()[1], taken(&entry, 0, 2, &[]));
    assert_eq!(entry.lanes()[2], LaneEntry::at_rest(MemberSlot(2)));
    assert_eq!(owners(&entry), [0, 0, 2, 0, 0, 0, 0, 0]);
    assert_eq!(entry.term(), Term(3));
}

/// Each survivor may have received records that the others lack: the new owner takes all their
/// copies, one after another.
#[test]
fn a_lane_rests_when_all_survivors_have_given_their_copies() {
    let entry = apply(&three(), Transition::AddReplica(boot(4, 40)));
    let entry = settled(apply(&entry, Transition::Synced(boot(4, 40))));
    let entry = apply(&entry, Transition::Fence(a()));
    assert_eq!(entry.lanes()[5], taken(&entry, 1, 2, &[3]));
    assert_eq!(entry.lanes()[1], LaneEntry::at_rest(MemberSlot(1)), "B owned it already");
    let settle = |lanes| Transition::Settle { by: b(), lanes };
    let next = apply(&entry, settle(LaneSet(0b0010_0000)));
    assert_eq!(next.lanes()[5], taken(&next, 1, 3, &[]));
    let last = apply(&next, settle(LaneSet(0b0010_0000)));
    assert_eq!(last.lanes()[5], LaneEntry::at_rest(MemberSlot(1)));
    assert_eq!(last.lanes()[6], taken(&entry, 1, 2, &[3]), "lanes settle independently");
    // A member whose move was to follow ends: the others are asked as before.
    let fenced = apply(&entry, Transition::Fence(boot(4, 40)));
    assert_eq!(fenced.lanes()[5], taken(&entry, 1, 2, &[]));
    // The member whose copy is being taken ends: it may have sent records to any of the others.
    let fenced = apply(&next, Transition::Fence(boot(4, 40)));
    assert_eq!(fenced.lanes()[5], taken(&fenced, 1, 2, &[]));
    // A leaving member gives its copy before it is removed.
    let leaving = apply(&entry, Transition::Retire(boot(4, 40)));
    assert_eq!(
        refused(&leaving, Transition::Remove(boot(4, 40))),
        TransitionRefusal::HasLanes(boot(4, 40))
    );
    let gone = apply(&settled(leaving), Transition::Remove(boot(4, 40)));
    assert!(!gone.is_moving());
    // With one survivor no copy has to be taken.
    assert!(!apply(&pair(), Transition::Fence(a())).is_moving());
}

#[test]
fn a_silent_primary_keeps_its_lanes_until_it_is_fenced() {
    let entry = apply(&three(), Transition::Promote(b()));
    let entry = apply(&entry, Transition::OutOfSync(a()));
    // A double failure: the next promotion leaves the moves as they are.
    let entry = apply(&entry, Transition::Promote(c()));
    for lane in [3, 4, 5, 6, 7] {
        assert_eq!(entry.lanes()[lane].moving.map(|moving| moving.from), Some(MemberSlot(0)));
    }
    let entry = apply(&entry, Transition::Fence(a()));
    assert_eq!(entry.lanes()[3], taken(&entry, 2, 1, &[]), "B may write");
    assert_eq!(owners(&entry), [2, 1, 2, 2, 2, 2, 2, 2]);
    let entry = apply(&entry, Transition::Fence(b()));
    assert!(!entry.is_moving());
    assert_eq!(owners(&entry), [2; 8]);
}

#[test]
fn a_restarted_worker_begins_as_a_replica() {
    let again = boot(1, 11);
    let restart = Transition::Restart { ended: a(), boot_id: again.boot_id };
    let entry = apply(&pair(), restart.clone());
    assert_eq!(entry.primary().incarnation, b());
    assert_eq!(entry.members()[1].state, MemberState::Syncing);
    assert_eq!(owners(&entry), [1; 8]);
    assert_eq!(refused(&entry, restart), TransitionRefusal::NoMember(a()));
    // A worker that is the only member becomes the primary of an empty shard.
    let entry = ShardEntry::create(a());
    let entry = apply(&entry, Transition::Restart { ended: a(), boot_id: again.boot_id });
    assert_eq!((entry.primary().incarnation.clone(), entry.term()), (again, Term(2)));
    let entry = apply(&entry, Transition::TakeSlot { ended: boot(1, 11), to: c() });
    assert_eq!((entry.primary().incarnation.clone(), entry.term()), (c(), Term(3)));
}

#[test]
fn a_primary_whose_slot_was_taken_leaves_silent_members_their_lanes() {
    let moving = apply(&three(), Transition::Promote(b()));
    let entry = apply(&moving, Transition::TakeSlot { ended: b(), to: boot(4, 40) });
    assert_eq!(entry.primary().incarnation, boot(4, 40));
    assert_eq!(entry.primary().slot, MemberSlot(1));
    // A may not know of the move yet.
    assert_eq!(entry.lanes_of(MemberSlot(0)), LaneSet(0b1111_1011));
    assert_eq!(entry.lanes()[3], taken(&entry, 1, 0, &[2]), "the copies of both, A's first");
    assert_eq!(entry.lanes()[1], taken(&entry, 1, 0, &[2]));
    assert_eq!(entry.lanes()[2], moving.lanes()[2], "C keeps its own");
    assert_eq!(
        refused(&moving, Transition::TakeSlot { ended: c(), to: boot(4, 40) }),
        TransitionRefusal::WrongState(boot(4, 40))
    );
}

#[test]
fn the_first_unsynced_survivor_is_primary_when_none_is_synced() {
    let entry = apply(&three(), Transition::OutOfSync(b()));
    let entry = apply(&entry, Transition::Fence(a()));
    assert_eq!(entry.primary().incarnation, c(), "a synced survivor is preferred");
    let entry = apply(&entry, Transition::Fence(c()));
    assert_eq!(entry.primary().incarnation, b(), "a partial copy is better than none");
    assert_eq!(entry.primary().state, MemberState::Synced);
    assert_eq!(refused(&entry, Transition::Fence(b())), TransitionRefusal::NoSurvivor(b()));
}

#[test]
fn a_leaving_member_gives_its_lane_back_before_removal() {
    let entry = apply(&three(), Transition::Retire(b()));
    assert_eq!(refused(&entry, Transition::Remove(b())), TransitionRefusal::HasLanes(b()));
    let entry = apply(&settled(entry), Transition::Remove(b()));
    assert_eq!(owners(&entry), [0, 0, 2, 0, 0, 0, 0, 0]);
    // The slot is free for another member.
    let entry = apply(&entry, Transition::AddReplica(boot(4, 40)));
    assert_eq!(entry.members()[2].slot, MemberSlot(1));
}

#[test]
fn a_member_moves_to_another_worker_of_its_node() {
    let mut neighbour = boot(1, 11);
    neighbour.worker.index = 1;
    let twice = TransitionRefusal::Breaks(Violation::NodeTwice(a().worker.node));
    assert_eq!(refused(&pair(), Transition::AddReplica(neighbour.clone())), twice);
    let replace = |member| Transition::Replace { member, by: neighbour.clone() };
    assert_eq!(refused(&pair(), replace(b())), twice, "A does not yield");
    let entry = apply(&pair(), replace(a()));
    assert_eq!(ShardEntry::from_json(entry.to_json().as_bytes()).expect("read"), entry);
    let entry = settled(apply(&entry, Transition::Synced(neighbour.clone())));
    let entry = settled(apply(&entry, Transition::Promote(neighbour.clone())));
    let entry = settled(apply(&entry, Transition::Retire(a())));
    let entry = apply(&entry, Transition::Remove(a()));
    let left: Vec<_> = entry.members().iter().map(|member| &member.incarnation).collect();
    assert_eq!(left, [&neighbour, &b()]);
    let again = Incarnation { boot_id: BootId(12), ..neighbour.clone() };
    let replace = Transition::Replace { member: neighbour, by: again };
    assert_eq!(refused(&entry, replace), twice, "that is the same worker");
}

#[test]
fn a_yielding_member_that_is_kept_stays() {
    let entry = apply(&pair(), Transition::Replace { member: b(), by: boot(3, 30) });
    assert_eq!(refused(&entry, Transition::Keep(a())), TransitionRefusal::WrongState(a()));
    let entry = apply(&entry, Transition::Fence(boot(3, 30)));
    let entry = settled(apply(&entry, Transition::Keep(b())));
    assert_eq!(entry.members(), pair().members());
    let leaving = apply(&pair(), Transition::Replace { member: b(), by: boot(3, 30) });
    let leaving = apply(&leaving, Transition::Retire(b()));
    assert_eq!(refused(&leaving, Transition::Keep(b())), TransitionRefusal::WrongState(b()));
}

#[test]
fn transitions_that_do_not_fit_the_entry_are_refused() {
    let entry = pair();
    let stale = entry.after(Epoch(2), &Transition::Promote(b()));
    assert_eq!(stale, Err(TransitionRefusal::Stale { at: Epoch(2), now: entry.epoch() }));
    let same_node = Incarnation { boot_id: BootId(99), ..b() };
    let node = b().worker.node;
    let twice = TransitionRefusal::Breaks(Violation::NodeTwice(node));
    assert_eq!(refused(&entry, Transition::AddReplica(same_node.clone())), twice);
    assert_eq!(
        refused(&entry, Transition::Promote(same_node.clone())),
        TransitionRefusal::NoMember(same_node)
    );
    assert_eq!(refused(&entry, Transition::Promote(a())), TransitionRefusal::WrongState(a()));
    assert_eq!(refused(&entry, Transition::Retire(a())), TransitionRefusal::WrongState(a()));
    assert_eq!(refused(&entry, Transition::Remove(b())), TransitionRefusal::WrongState(b()));
    assert_eq!(refused(&entry, Transition::Synced(b())), TransitionRefusal::WrongState(b()));
    let settle = Transition::Settle { by: b(), lanes: LaneSet(0b10) };
    assert_eq!(refused(&entry, settle), TransitionRefusal::NotMoving(1));
    let lost = apply(&entry, Transition::OutOfSync(b()));
    assert_eq!(refused(&lost, Transition::Promote(b())), TransitionRefusal::WrongState(b()));
    let mut full = entry;
    for node in 3..6 {
        full = apply(&full, Transition::AddReplica(boot(node, 7)));
    }
    assert_eq!(refused(&full, Transition::AddReplica(boot(6, 7))), TransitionRefusal::Full);
}

/// No epoch follows the last one: an entry that has reached it cannot change.
#[test]
fn an_entry_at_the_last_epoch_cannot_change() {
    let json = pair().to_json();
    let from = format!("\"epoch\":{}", pair().epoch());
    let json = json.replacen(&from, &format!("\"epoch\":{}", Epoch::MAX), 1);
    let last = ShardEntry::from_json(json.as_bytes()).expect("the last one");
    let next = TransitionRefusal::Breaks(Violation::Epoch(Epoch(Epoch::MAX.0 + 1)));
    assert_eq!(refused(&last, Transition::Promote(b())), next);
    for epoch in [Epoch::MAX, Epoch(u64::MAX)] {
        let set_back = pair().after(pair().epoch(), &Transition::Rebase { epoch, term: Term(1) });
        assert!(
            matches!(set_back, Err(TransitionRefusal::Breaks(Violation::Epoch(_)))),
            "{set_back:?}"
        );
    }
}

/// Each invariant, broken alone in the JSON form, is refused by name.
#[test]
fn a_broken_entry_is_refused_by_name() {
    let good = pair().to_json();
    let broken = |from: &str, to: &str| {
        assert!(good.contains(from), "{from} in {good}");
        let text = good.replacen(from, to, 1);
        match ShardEntry::from_json(text.as_bytes()) {
            Err(EntryError::Breaks(violation)) => violation,
            other => panic!("{text}: {other:?}"),
        }
    };
    let node = a().worker.node;
    assert_eq!(broken("n2/0", "n1/1"), Violation::NodeTwice(node));
    assert_eq!(broken("\"seat\":1", "\"seat\":0"), Violation::SlotTwice(MemberSlot(0)));
    assert_eq!(broken("\"seat\":1", "\"seat\":8"), Violation::NoSuchSlot(MemberSlot(8)));
    assert_eq!(broken("\"state\":\"synced\"", "\"state\":\"syncing\""), Violation::Primary);
    let leaving = "\"state\":\"synced\",\"leaving\":true";
    assert_eq!(broken("\"state\":\"synced\"", leaving), Violation::Primary);
    assert!(matches!(broken("\"term\":1", "\"term\":0"), Violation::Term { .. }));
    assert!(matches!(broken("\"term\":1", "\"term\":9"), Violation::Term { .. }));
    let epoch = format!("\"epoch\":{}", pair().epoch());
    let last = format!("\"epoch\":{}", u64::MAX);
    assert_eq!(broken(&epoch, &last), Violation::Epoch(Epoch(u64::MAX)));
    let wrong = Violation::WrongOwner { lane: 2, owner: MemberSlot(1), rightful: MemberSlot(0) };
    assert_eq!(broken("[0,1,0", "[0,1,1"), wrong);
    let wrong = Violation::WrongOwner { lane: 1, owner: MemberSlot(0), rightful: MemberSlot(1) };
    assert_eq!(broken("[0,1,0", "[0,0,0"), wrong);
    let nobody = Violation::NobodyThere { lane: 2, slot: MemberSlot(5) };
    assert_eq!(broken("[0,1,0", "[0,1,5"), nobody);
    let moves = |moved: &str| broken("]}", &format!("],\"moves\":[{moved}]}}"));
    let itself = moves(r#"{"lane":3,"from":0,"since":1}"#);
    assert_eq!(itself, Violation::MoveToItself(3));
    let future = moves(r#"{"lane":3,"from":1,"since":99}"#);
    assert_eq!(future, Violation::MoveFromFuture(3));
    let twice = moves(r#"{"lane":3,"from":1,"since":1,"then":[1]}"#);
    assert_eq!(twice, Violation::GivesTwice(3));
    let no_such_slot = moves(r#"{"lane":3,"from":1,"since":1,"then":[9]}"#);
    assert_eq!(no_such_slot, Violation::NoSuchSlot(MemberSlot(9)));
    let nobody = moves(r#"{"lane":3,"from":7,"since":1}"#);
    assert_eq!(nobody, Violation::NobodyThere { lane: 3, slot: MemberSlot(7) });
    assert_eq!(broken("\"members\":[", "\"members\":[],\"x\":["), Violation::Members(0));
}

#[test]
fn json_that_is_not_an_entry_is_refused() {
    let good = pair().to_json();
    for (from, to) in [
        ("n2/0", "n2"),
        ("n2/0", "-n2/0"),
        ("n2/0", "n2/+1"),
        ("00014\"", "0014\""),
        ("[0,1,0", "[0,1"),
        ("synced", "sunk"),
        ("]}", "],\"moves\":[{\"lane\":8,\"from\":0,\"since\":1}]}"),
    ] {
        assert!(good.contains(from), "{from} in {good}");
        assert!(ShardEntry::from_json(good.replacen(from, to, 1).as_bytes()).is_err(), "{to}");
    }
}

#[test]
fn an_entry_is_small_and_fields_of_later_versions_are_skipped() {
    let entry = apply(&pair(), Transition::Promote(b()));
    let json = entry.to_json();
    assert!(json.len() < 1024, "{}: {json}", json.len());
    let later = json.replacen('{', "{\"colour\":{\"a\":[1]},", 1);
    let later = later.replace("\"since\"", "\"why\":\"drain\",\"since\"");
    let later = later.replace("\"state\"", "\"load\":3,\"state\"");
    assert_eq!(ShardEntry::from_json(later.as_bytes()).expect("read"), entry);
}

/// A transition about one of six workers, each with two boot ids.
#[derive(Clone, Copy, Debug, TypeGenerator)]
struct Step {
    #[generator(0..18_u8)]
    kind: u8,
    #[generator(1..7_u8)]
    node: u8,
    is_second_boot: bool,
    is_second_worker: bool,
    lanes: u8,
}

impl Step {
    fn transition(self, entry: &ShardEntry) -> Transition {
        let mut who = boot(self.node, u128::from(self.is_second_boot));
        who.worker.index = u16::from(self.is_second_worker);
        match self.kind {
            0 => Transition::AddReplica(who),
            1 => Transition::Replace { member: entry.primary().incarnation.clone(), by: who },
            2 => Transition::Resync(who),
            3 | 4 => Transition::Synced(who),
            5 => Transition::OutOfSync(who),
            6 => Transition::Settle { by: who, lanes: LaneSet(self.lanes) },
            7 | 8 => {
                let (_, member) = entry.member(&who).unwrap_or((crate::Rank(0), entry.primary()));
                let lanes = LaneSet::of(|index| {
                    let lane = entry.lanes()[index];
                    lane.owner == member.slot && lane.moving.is_some()
                });
                Transition::Settle { by: member.incarnation.clone(), lanes }
            }
            9 | 10 => Transition::Promote(who),
            11 => Transition::Retire(who),
            12 => Transition::Remove(who),
            13 => Transition::Fence(who),
            14 if self.lanes & 1 == 0 => {
                Transition::TakeSlot { ended: who, to: boot(self.lanes % 7 + 1, 2) }
            }
            14 if self.lanes & 2 == 0 => {
                Transition::Resume { boot_id: BootId(u128::from(!self.is_second_boot)), ended: who }
            }
            14 => Transition::Restart {
                boot_id: BootId(u128::from(!self.is_second_boot)),
                ended: who,
            },
            15 | 16 => Transition::Keep(who),
            _ => Transition::Rebase {
                epoch: Epoch(entry.epoch().0 + u64::from(self.lanes) / 2),
                term: Term(entry.term().0 + u32::from(self.lanes) / 4),
            },
        }
    }
}

#[test]
fn an_incarnation_that_resumes_a_slot_keeps_rank_lanes_and_term() {
    let entry = ShardEntry::create(boot(1, 0));
    let entry = entry.after(entry.epoch(), &Transition::AddReplica(boot(2, 0))).expect("added");
    let resume = |node| Transition::Resume { ended: boot(node, 0), boot_id: BootId(1) };
    let next = entry.after(entry.epoch(), &resume(1)).expect("resumed");
    assert_eq!(next.primary().incarnation, boot(1, 1));
    assert_eq!((next.lanes(), next.term()), (entry.lanes(), entry.term()));
    assert_eq!(next.members()[1], entry.members()[1]);
    assert_eq!(next.members(), entry.resumed_by(&[boot(1, 1)]).members());
    let again = next.after(next.epoch(), &resume(1));
    assert!(
        matches!(again, Err(TransitionRefusal::NoMember(_))),
        "a member slot is resumed only once"
    );
    let same = Transition::Resume { ended: boot(2, 0), boot_id: BootId(0) };
    assert!(matches!(entry.after(entry.epoch(), &same), Err(TransitionRefusal::WrongState(_))));
}

/// Every transition that applies leaves a valid entry that survives its JSON form, and every
/// possible writer of a lane before is named for the lane after, has granted it, or has ended.
#[test]
fn transitions_keep_the_invariants() {
    check!().with_type::<Vec<Step>>().with_iterations(3_000).for_each(|steps| {
        let mut entry = ShardEntry::create(boot(1, 0));
        for step in steps {
            let transition = step.transition(&entry);
            let next = match entry.after(entry.epoch(), &transition) {
                Ok(next) => next,
                Err(TransitionRefusal::Breaks(Violation::NodeTwice(_))) => continue,
                Err(TransitionRefusal::Breaks(violation)) => panic!("{transition:?}: {violation}"),
                Err(_) => continue,
            };
            let json = next.to_json();
            assert_eq!(ShardEntry::from_json(json.as_bytes()).expect("read"), next, "{json}");
            let term_step = next.term().0 - entry.term().0;
            let is_resumed = matches!(transition, Transition::Resume { .. });
            let is_same = is_resumed || next.primary().incarnation == entry.primary().incarnation;
            let is_rebase = matches!(transition, Transition::Rebase { .. });
            assert!(is_rebase || term_step == u32::from(!is_same), "a term is a change of primary");
            check_writers(&entry, &next, &transition);
            entry = next;
        }
    });
}

fn names(entry: &ShardEntry, lane: usize) -> Vec<Incarnation> {
    let lane = entry.lanes()[lane];
    let slots = [Some(lane.owner), lane.moving.map(|moving| moving.from)];
    let members = slots.into_iter().flatten().filter_map(|slot| entry.at_slot(slot));
    members.map(|member| member.incarnation.clone()).collect()
}

/// A possible writer disappears from a lane only by a grant that the owner took or by a fence.
fn check_writers(before: &ShardEntry, after: &ShardEntry, transition: &Transition) {
    for lane in 0..8 {
        let after_names = names(after, lane);
        for writer in names(before, lane) {
            let may_go = match transition {
                Transition::Settle { by, lanes } => lanes.contains(lane) && *by != writer,
                Transition::Fence(ended)
                | Transition::Restart { ended, .. }
                | Transition::Resume { ended, .. }
                | Transition::TakeSlot { ended, .. } => *ended == writer,
                _ => false,
            };
            // If the new owner ends, the giver stays named. A writer that stays named needs no
            // reason.
            let stays = after_names.contains(&writer);
            assert!(stays || may_go, "lane {lane}: {writer} by {transition:?}");
        }
    }
}

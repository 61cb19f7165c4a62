//! Floods of notices that are not read, stalls without room, and sources that take turns.

use super::*;

fn drain(notices: &mut Notices) -> Vec<Notice> {
    std::iter::from_fn(|| notices.pop()).collect()
}

#[test]
fn flood_of_states_leaves_the_newest_of_each() {
    let mut notices = Notices::default();
    for number in 0..20_000_u64 {
        let shard = ShardId((number % 5) as u32);
        let why = number.to_string();
        for notice in [
            Notice::Written { shard, how: WriteResult::Refused(why.clone()) },
            Notice::Saved(Ok(())),
            Notice::ClusterFound(Err(why.clone())),
            Notice::Guard(GuardReport::Set { worker: 0, number }),
            Notice::Guard(GuardReport::Set { worker: 1, number }),
            Notice::Guard(GuardReport::NotSet { worker: 1, number, why }),
            Notice::Registration(Registration::Held),
            Notice::Registration(Registration::Gone),
            Notice::Registration(Registration::Silent),
            Notice::HandOver,
        ] {
            assert!(!notices.push(notice), "a state that a newer one replaces is not lost");
        }
    }
    assert_eq!(notices.len(), 5 + 8);
    let is_last = |why: &str| why.parse::<u64>().is_ok_and(|number| number >= 20_000 - 5);
    for notice in drain(&mut notices) {
        let is_newest = match &notice {
            Notice::Written { how: WriteResult::Refused(why), .. } => is_last(why),
            Notice::ClusterFound(Err(why)) => why == "19999",
            Notice::Guard(GuardReport::Set { number, .. } | GuardReport::NotSet { number, .. }) => {
                *number == 19_999
            }
            Notice::Registration(registration) => {
                matches!(registration, Registration::Gone | Registration::Silent)
            }
            Notice::Saved(_) | Notice::HandOver => true,
            other => panic!("{other:?}"),
        };
        assert!(is_newest, "{notice:?}");
    }
    assert!(notices.is_empty());
}

#[test]
fn events_of_the_guard_above_the_bound_are_counted_and_the_newest_stay_in_order() {
    let mut notices = Notices::default();
    let line = |number: usize| Notice::Guard(GuardReport::Log { text: number.to_string() });
    let (beyond, mut lost) = (1000, 0);
    for number in 0..GUARD_EVENTS_MAX + beyond {
        // States between them do not count.
        assert!(!notices.push(Notice::Saved(Ok(()))));
        lost += usize::from(notices.push(line(number)));
    }
    lost += usize::from(notices.push(Notice::Guard(GuardReport::Silent)));
    assert_eq!(lost, beyond + 1);
    let mut left = drain(&mut notices);
    left.retain(|notice| notice.state().is_none());
    let newest = (beyond + 1..GUARD_EVENTS_MAX + beyond).map(line);
    let newest: Vec<Notice> = newest.chain([Notice::Guard(GuardReport::Silent)]).collect();
    assert_eq!(left, newest);
    assert!(!notices.push(Notice::Guard(GuardReport::Awake)), "room again");
    assert_eq!(drain(&mut notices).len(), 1);
}

#[test]
fn two_stalls_without_room_are_reported_as_one_with_the_packets_of_both() {
    let mut stall = StallEnd::default();
    assert!(!stall.add(Fence(1), 10));
    assert!(stall.add(Fence(2), 20), "the first stall is not reported by itself");
    assert!(stall.is_waiting());
    assert_eq!(stall.take(), Some((Fence(2), 30)));
    assert!(!stall.is_waiting() && stall.take().is_none());
}

#[test]
fn a_full_source_holds_up_no_other_and_an_empty_one_is_skipped() {
    let (mut in_turn, mut left) = (InTurn::default(), [5, 0, 2]);
    let mut next = || {
        in_turn.next(left.len(), |way| {
            left[way] = i32::checked_sub(left[way], 1).filter(|it| *it >= 0)?;
            Some(way)
        })
    };
    let order: Vec<usize> = std::iter::from_fn(&mut next).collect();
    assert_eq!(order, [2, 0, 2, 0, 0, 0, 0]);
}

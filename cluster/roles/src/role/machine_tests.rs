//! The role machine on examples: when a replica acts, routes, misses, hand-over, what is refused.

use weir_ids::{BootId, Epoch, Incarnation, NodeId, Term, WorkerId};

use super::*;
use weir_map::LaneSet;
use weir_map::Rank;
use weir_map::{ShardEntry, Transition};

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

fn after(entry: &ShardEntry, transition: Transition) -> ShardEntry {
    entry.after(entry.epoch(), &transition).expect("it applies")
}

/// Primary A, replica B that copies.
fn copying() -> ShardEntry {
    after(&ShardEntry::create(a()), Transition::AddReplica(b()))
}

/// Primary A, synced replica B with lane 1.
fn pair() -> ShardEntry {
    let entry = after(&copying(), Transition::Synced(b()));
    after(&entry, Transition::Settle { by: b(), lanes: LaneSet(0b10) })
}

fn machine(me: Incarnation) -> RoleMachine {
    let mut machine = RoleMachine::new(me, RoleOptions::default());
    machine.on(0, RoleEvent::Ports(PortHealth::Ready));
    machine
}

/// B as a synced replica at time 0.
fn replica() -> RoleMachine {
    let mut machine = machine(b());
    machine.on(0, RoleEvent::Entry(Box::new(copying())));
    machine.on(0, RoleEvent::CopyDone);
    machine.on(0, RoleEvent::Entry(Box::new(pair())));
    assert_eq!(machine.duties().role, Role::Synced);
    machine
}

/// B after its primary was silent while packets came.
fn acting() -> RoleMachine {
    let mut machine = replica();
    for slot in 1..=3 {
        machine.on(slot * 10, RoleEvent::Slot { packets: 1 });
    }
    assert_eq!(machine.duties().role, Role::Acting);
    machine
}

fn primary() -> RoleMachine {
    let mut machine = machine(a());
    machine.on(0, RoleEvent::Entry(Box::new(pair())));
    machine
}

#[test]
fn a_replica_copies_reports_and_follows() {
    let mut machine = machine(b());
    assert!(machine.on(0, RoleEvent::Entry(Box::new(copying()))));
    assert_eq!(machine.duties().role, Role::Syncing);
    assert_eq!(machine.duties().metric, None, "a partial copy is not announced");
    assert!(machine.on(5, RoleEvent::CopyDone));
    assert_eq!(machine.duties().write, Some(Transition::Synced(b())));
    let entry = after(&copying(), Transition::Synced(b()));
    assert!(machine.on(6, RoleEvent::Entry(Box::new(entry.clone()))));
    assert_eq!(machine.duties().metric, Some(Metric::replica(Rank(1))));
    assert_eq!(machine.duties().lanes, LaneSet::EMPTY, "its lane is not granted yet");
    let since = entry.epoch();
    machine.on(7, RoleEvent::Granted { lane: 1, since: Epoch(since.0 - 1) });
    assert_eq!(machine.duties().lanes, LaneSet::EMPTY, "the grant is of another move");
    assert!(machine.on(8, RoleEvent::Granted { lane: 1, since }));
    assert_eq!(machine.duties().lanes, LaneSet(0b10));
    let settle = Transition::Settle { by: b(), lanes: LaneSet(0b10) };
    assert_eq!(machine.duties().write, Some(settle));
}

#[test]
fn a_lane_that_is_granted_is_not_written() {
    let mut machine = machine(a());
    machine.on(0, RoleEvent::Entry(Box::new(copying())));
    assert_eq!(machine.duties().lanes, LaneSet::ALL);
    let entry = after(&copying(), Transition::Synced(b()));
    assert!(machine.on(1, RoleEvent::Entry(Box::new(entry.clone()))));
    assert_eq!(machine.duties().lanes, LaneSet(0b1111_1101));
    assert_eq!(machine.duties().grants, [Grant { lane: 1, since: entry.epoch(), to: b() }]);
}

#[test]
fn a_replica_acts_only_when_the_primary_is_silent_and_packets_come() {
    // Packets, but the primary is heard.
    let mut machine = replica();
    for slot in 1..20 {
        machine.on(slot * 10, RoleEvent::Heartbeat { from: a() });
        machine.on(slot * 10, RoleEvent::Slot { packets: 9 });
        assert_eq!(machine.duties().misses, Misses::Redirect(a()));
    }
    assert_eq!(machine.duties().role, Role::Synced);
    // Silence, but no packets, or strays.
    for slot in 20..61 {
        machine.on(slot * 10, RoleEvent::Slot { packets: u32::from(slot % 3 > 0) });
        assert_eq!(machine.duties().role, Role::Synced);
    }
    assert_eq!(machine.duties().misses, Misses::Create, "its own lane serves a stray at once");
    // Silence and packets.
    for slot in 61..63 {
        machine.on(slot * 10, RoleEvent::Slot { packets: 1 });
        assert_eq!(machine.duties().role, Role::Synced);
    }
    assert!(machine.on(630, RoleEvent::Slot { packets: 1 }));
    assert_eq!(machine.duties().role, Role::Acting);
    assert_eq!(machine.duties().metric, Some(Metric::acting(Term(1), Rank(1))));
}

#[test]
fn silence_begins_after_30_ms() {
    let mut machine = replica();
    machine.on(100, RoleEvent::Heartbeat { from: a() });
    for at_ms in [109, 119, 129] {
        machine.on(at_ms, RoleEvent::Slot { packets: 1 });
    }
    assert_eq!(machine.duties().role, Role::Synced);
    machine.on(130, RoleEvent::Tick);
    assert_eq!(machine.duties().role, Role::Acting);
}

#[test]
fn a_replica_without_packets_acts_if_no_node_hears_the_primary_for_200_ms() {
    let mut machine = replica();
    machine.on(100, RoleEvent::Heartbeat { from: a() });
    machine.on(299, RoleEvent::PrimaryLost);
    assert_eq!(machine.duties().role, Role::Synced, "199 ms");
    machine.on(300, RoleEvent::Tick);
    assert_eq!(machine.duties().role, Role::Synced, "time alone says nothing of others");
    assert!(machine.on(300, RoleEvent::PrimaryLost));
    assert_eq!(machine.duties().role, Role::Acting);
    assert_eq!(machine.duties().metric, Some(Metric::acting(Term(1), Rank(1))));
    assert_eq!(machine.duties().misses, Misses::Create);
    assert_eq!(machine.duties().lanes, LaneSet(0b10), "only its own lanes");
}

#[test]
fn a_primary_that_was_never_heard_in_its_term_is_not_replaced_without_packets() {
    let mut machine = replica();
    machine.on(5_000, RoleEvent::PrimaryLost);
    assert_eq!(machine.duties().role, Role::Synced);
    machine.on(5_010, RoleEvent::Heartbeat { from: a() });
    let promoted = after(&pair(), Transition::Promote(b()));
    machine.on(5_020, RoleEvent::Entry(Box::new(promoted.clone())));
    machine.on(5_030, RoleEvent::Entry(Box::new(after(&promoted, Transition::Promote(a())))));
    assert_eq!(machine.duties().role, Role::Synced);
    machine.on(9_000, RoleEvent::PrimaryLost);
    assert_eq!(machine.duties().role, Role::Synced, "a heartbeat of a former term does not count");
    machine.on(9_001, RoleEvent::Announced { term: Term(3) });
    machine.on(9_201, RoleEvent::PrimaryLost);
    assert_eq!(machine.duties().role, Role::Acting);
}

#[test]
fn a_repeated_announcement_is_no_heartbeat() {
    let mut machine = replica();
    machine.on(100, RoleEvent::Announced { term: Term(1) });
    for at_ms in (110..300).step_by(10) {
        machine.on(at_ms, RoleEvent::Announced { term: Term(1) });
    }
    machine.on(300, RoleEvent::PrimaryLost);
    assert_eq!(machine.duties().role, Role::Acting);
}

#[test]
fn a_replica_with_a_broken_side_does_not_act_without_packets() {
    let mut machine = replica();
    machine.on(0, RoleEvent::Heartbeat { from: a() });
    machine.on(10, RoleEvent::Ports(PortHealth::Broken));
    machine.on(500, RoleEvent::PrimaryLost);
    assert_eq!(machine.duties().role, Role::Synced);
    machine.on(510, RoleEvent::Ports(PortHealth::Ready));
    machine.on(510, RoleEvent::PrimaryLost);
    assert_eq!(machine.duties().role, Role::Acting);
}

#[test]
fn a_replica_without_a_full_copy_never_acts() {
    let mut machine = machine(b());
    machine.on(0, RoleEvent::Entry(Box::new(copying())));
    machine.on(0, RoleEvent::Heartbeat { from: a() });
    machine.on(500, RoleEvent::PrimaryLost);
    assert_eq!(machine.duties().role, Role::Syncing);
}

#[test]
fn a_late_heartbeat_counts_from_its_own_time() {
    let mut machine = replica();
    machine.on(40, RoleEvent::Heartbeat { from: a() });
    machine.on(200, RoleEvent::Tick);
    machine.on(42, RoleEvent::Heartbeat { from: a() });
    machine.on(242, RoleEvent::PrimaryLost);
    assert_eq!(machine.duties().role, Role::Acting);
}

#[test]
fn there_is_no_automatic_fail_back() {
    let mut machine = acting();
    machine.on(40, RoleEvent::Heartbeat { from: a() });
    (5..200).for_each(|slot| {
        machine.on(slot * 10, RoleEvent::Slot { packets: 0 });
    });
    assert_eq!(machine.duties().role, Role::Acting);
    assert_eq!(machine.duties().lanes, LaneSet(0b10), "two primaries: each has its own lanes");
    // An entry that leaves the primary as it is changes nothing.
    let entry = after(&pair(), Transition::AddReplica(boot(3, 30)));
    machine.on(2_000, RoleEvent::Entry(Box::new(entry.clone())));
    assert_eq!(machine.duties().role, Role::Acting);
    // An entry that confirms the acting primary makes it the primary.
    let promoted = after(&entry, Transition::Promote(b()));
    assert!(machine.on(2_010, RoleEvent::Entry(Box::new(promoted))));
    assert_eq!(machine.duties().metric, Some(Metric::primary(Term(2))));
    assert_eq!(machine.duties().misses, Misses::Create);
}

#[test]
fn an_acting_primary_gives_way_to_a_new_term() {
    let mut machine = acting();
    let entry = after(&pair(), Transition::AddReplica(boot(3, 30)));
    let entry = after(&entry, Transition::Synced(boot(3, 30)));
    machine.on(50, RoleEvent::Entry(Box::new(after(&entry, Transition::Promote(boot(3, 30))))));
    assert_eq!(machine.duties().role, Role::Synced);
    let kept = Some(Metric::acting(Term(1), Rank(1)));
    assert_eq!(machine.duties().metric, kept, "until the new route is out");
    machine.on(60, RoleEvent::Announced { term: Term(2) });
    assert_eq!(machine.duties().metric, Some(Metric::replica(Rank(1))));
}

#[test]
fn the_former_primary_serves_until_the_new_route_is_out() {
    let promoted = after(&pair(), Transition::Promote(b()));
    let mut machine = primary();
    assert!(machine.on(10, RoleEvent::Entry(Box::new(promoted.clone()))));
    assert_eq!(machine.duties().metric, Some(Metric::primary(Term(1))), "the route is kept");
    assert!(machine.duties().serves_hits());
    assert_eq!(machine.duties().misses, Misses::Redirect(b()));
    assert_eq!(machine.duties().lanes, LaneSet(0b1));
    assert_eq!(machine.duties().grants.len(), 6);
    machine.on(11, RoleEvent::Announced { term: Term(1) });
    assert_eq!(machine.duties().metric, Some(Metric::primary(Term(1))), "its own announcement");
    assert!(machine.on(12, RoleEvent::Announced { term: Term(2) }));
    assert_eq!(machine.duties().metric, Some(Metric::replica(Rank(1))));
    // Without a report of the new primary: after a second.
    let mut machine = primary();
    machine.on(10, RoleEvent::Entry(Box::new(promoted)));
    machine.on(1_009, RoleEvent::Tick);
    assert_eq!(machine.duties().metric, Some(Metric::primary(Term(1))));
    machine.on(1_010, RoleEvent::Tick);
    assert_eq!(machine.duties().metric, Some(Metric::replica(Rank(1))));
}

#[test]
fn a_removed_member_serves_until_its_switches_are_quiet() {
    let entry = after(&pair(), Transition::Retire(b()));
    let entry = after(&entry, Transition::Settle { by: a(), lanes: LaneSet(0b10) });
    let mut machine = replica();
    machine.on(10, RoleEvent::Entry(Box::new(after(&entry, Transition::Remove(b())))));
    assert_eq!(machine.duties().role, Role::Leaving);
    assert_eq!(machine.duties().metric, Some(Metric::LEAVING));
    assert_eq!(machine.duties().lanes, LaneSet::EMPTY);
    assert_eq!(machine.duties().misses, Misses::Redirect(a()));
    machine.on(900, RoleEvent::Slot { packets: 1 });
    for slot in 0..99 {
        machine.on(910 + slot * 10, RoleEvent::Slot { packets: 0 });
        assert_eq!(machine.duties().role, Role::Leaving);
    }
    assert!(machine.duties().serves_hits());
    assert!(machine.on(1_900, RoleEvent::Slot { packets: 0 }));
    assert_eq!(*machine.duties(), Duties::NONE);
}

#[test]
fn a_removed_member_serves_for_ten_seconds_at_most() {
    let mut machine = primary();
    machine.on(0, RoleEvent::Entry(Box::new(after(&pair(), Transition::Fence(a())))));
    for slot in 1..1_000 {
        machine.on(slot * 10, RoleEvent::Slot { packets: 5 });
        assert_eq!(machine.duties().role, Role::Leaving);
    }
    machine.on(10_000, RoleEvent::Slot { packets: 5 });
    assert_eq!(*machine.duties(), Duties::NONE);
}

#[test]
fn older_entries_and_other_incarnations_are_not_obeyed() {
    let mut machine = primary();
    assert!(!machine.on(1, RoleEvent::Entry(Box::new(copying()))));
    assert_eq!(machine.entry(), Some(&pair()));
    let mut again = RoleMachine::new(boot(1, 11), RoleOptions::default());
    again.on(0, RoleEvent::Entry(Box::new(pair())));
    assert_eq!(*again.duties(), Duties::NONE, "the entry names another incarnation of the worker");
}

#[test]
fn a_lost_stream_takes_the_route_away() {
    let mut machine = replica();
    assert!(machine.on(1, RoleEvent::StreamLost));
    assert_eq!((machine.duties().role, machine.duties().metric), (Role::OutOfSync, None));
    assert_eq!(machine.duties().write, Some(Transition::OutOfSync(b())));
    assert_eq!(machine.duties().lanes, LaneSet(0b10), "the writer of a lane needs no copy of it");
    let lost = after(&pair(), Transition::OutOfSync(b()));
    assert!(machine.on(2, RoleEvent::Entry(Box::new(lost.clone()))));
    assert_eq!(machine.duties().write, Some(Transition::Resync(b())));
    machine.on(3, RoleEvent::Entry(Box::new(after(&lost, Transition::Resync(b())))));
    assert_eq!(machine.duties().role, Role::Syncing);
    // A primary has nothing to lose; an acting primary goes on.
    let mut machine = primary();
    assert!(!machine.on(1, RoleEvent::StreamLost));
    let mut machine = acting();
    assert!(!machine.on(100, RoleEvent::StreamLost));
}

#[test]
fn both_sides_share_the_fate_of_one_unless_no_other_member_has_a_copy() {
    let mut machine = primary();
    assert!(machine.on(1, RoleEvent::Ports(PortHealth::Broken)));
    assert_eq!((machine.duties().role, machine.duties().metric), (Role::Primary, None));
    machine.on(2, RoleEvent::Entry(Box::new(after(&pair(), Transition::OutOfSync(b())))));
    assert_eq!(machine.duties().metric, Some(Metric::primary(Term(1))));
    machine.on(3, RoleEvent::Ports(PortHealth::NotReady));
    assert_eq!(machine.duties().metric, None);
}

#[test]
fn a_new_primary_without_a_lane_redirects_to_the_giver() {
    let entry = after(&copying(), Transition::Synced(b()));
    let mut machine = replica();
    let promoted = after(&after(&entry, Transition::OutOfSync(b())), Transition::Synced(b()));
    let promoted = after(&promoted, Transition::Promote(b()));
    let mut late = RoleMachine::new(b(), RoleOptions::default());
    late.on(0, RoleEvent::Entry(Box::new(promoted.clone())));
    assert_eq!(late.duties().misses, Misses::Redirect(a()));
    machine.on(0, RoleEvent::Entry(Box::new(promoted)));
    assert_eq!(machine.duties().misses, Misses::Redirect(a()));
}

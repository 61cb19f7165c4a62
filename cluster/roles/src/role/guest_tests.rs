//! A worker that restarts without the store, on examples.

use weir_ids::{BootId, Incarnation, NodeId, WorkerId};

use super::*;
use weir_map::LaneSet;
use weir_map::{ShardEntry, Transition};

fn life(node: u8, boot_id: u128) -> Incarnation {
    let node = NodeId::new(&format!("n{node}")).expect("a name");
    Incarnation { worker: WorkerId { node, index: 0 }, boot_id: BootId(boot_id) }
}

fn after(entry: &ShardEntry, transition: Transition) -> ShardEntry {
    entry.after(entry.epoch(), &transition).expect("it applies")
}

/// n1 is primary, n2 and n3 are replicas with their lanes.
fn three() -> ShardEntry {
    let mut entry = ShardEntry::create(life(1, 1));
    for node in [2, 3] {
        let who = life(node, 1);
        entry = after(&entry, Transition::AddReplica(who.clone()));
        entry = after(&entry, Transition::Synced(who.clone()));
        let lanes = LaneSet::EMPTY.with(usize::from(node) - 1);
        entry = after(&entry, Transition::Settle { by: who, lanes });
    }
    entry
}

/// n1 in its next incarnation, with all copies.
fn guest() -> RoleMachine {
    let mut machine = RoleMachine::new(life(1, 2), RoleOptions::default());
    machine.on(0, RoleEvent::Ports(PortHealth::Ready));
    machine.on(0, RoleEvent::Guest(Box::new(three())));
    assert_eq!(machine.duties().role, Role::Syncing);
    assert_eq!(machine.duties().metric, None, "a partial copy is not announced");
    machine.on(1_000, RoleEvent::CopyDone);
    machine
}

fn restarted(entry: &ShardEntry) -> ShardEntry {
    after(entry, Transition::Restart { ended: life(1, 1), boot_id: BootId(2) })
}

#[test]
fn a_guest_translates_copies_and_opens_nothing() {
    let mut machine = guest();
    let opens_nothing = |machine: &RoleMachine| {
        let duties = machine.duties();
        assert_eq!((duties.role, duties.metric), (Role::Synced, Some(Metric::GUEST)));
        assert!(duties.serves_hits() && duties.lanes.is_empty());
        assert!(duties.grants.is_empty() && duties.write.is_none());
    };
    opens_nothing(&machine);
    // The member that serves in its place is heard, and then no member is.
    machine.on(1_010, RoleEvent::Heartbeat { from: life(2, 1) });
    assert_eq!(machine.duties().misses, Misses::Redirect(life(2, 1)));
    for slot in 0..20 {
        machine.on(1_020 + slot * 10, RoleEvent::Slot { packets: 9 });
        opens_nothing(&machine);
    }
    assert_eq!(machine.duties().misses, Misses::Refuse);
    machine.on(1_900, RoleEvent::PrimaryLost);
    opens_nothing(&machine);
    for lane in 0..weir_ids::LANES {
        machine.on(2_000, RoleEvent::Granted { lane, since: three().epoch() });
    }
    opens_nothing(&machine);
    machine.on(3_000, RoleEvent::StreamLost);
    assert_eq!((machine.duties().role, machine.duties().metric), (Role::Syncing, None));
}

#[test]
fn a_guest_that_the_entry_makes_a_member_goes_on_with_its_copy() {
    let mut machine = guest();
    machine.on(1_010, RoleEvent::Entry(Box::new(three())));
    assert!(machine.is_guest(), "the entry is not new");
    let entry = restarted(&three());
    assert!(machine.keeps_copies_under(&entry));
    assert!(machine.on(1_020, RoleEvent::Entry(Box::new(entry))));
    assert_eq!(machine.duties().write, Some(Transition::Synced(life(1, 2))));
    assert!(!machine.is_guest());
    machine.on(1_030, RoleEvent::Guest(Box::new(three())));
    assert!(!machine.is_guest(), "a member stays a member");
}

#[test]
fn a_guest_follows_newer_entries_that_name_its_former_incarnation() {
    let mut machine = guest();
    let newer = after(&three(), Transition::Promote(life(2, 1)));
    machine.on(1_010, RoleEvent::Guest(Box::new(newer.clone())));
    assert_eq!(machine.stored_entry(), Some(&newer));
    assert_eq!(machine.duties().role, Role::Synced, "the guest keeps its copies");
    machine.on(1_020, RoleEvent::Guest(Box::new(three())));
    assert_eq!(machine.stored_entry(), Some(&newer), "an older entry is not followed");
}

/// Another member has been fenced: no member will ask the guest for records that the fenced one
/// sent to the guest alone.
#[test]
fn a_guest_loses_its_copy_once_a_member_that_sent_it_records_is_gone() {
    let mut machine = guest();
    let fenced = after(&three(), Transition::Fence(life(3, 1)));
    assert!(!machine.keeps_copies_under(&restarted(&fenced)));
    machine.on(1_010, RoleEvent::Guest(Box::new(fenced.clone())));
    assert!(machine.is_guest(), "no lane gets a new writer while the host is a member");
    assert!(!machine.keeps_copies_under(&restarted(&fenced)), "n3 may have sent it records");
    assert!(!machine.keeps_copies_under(&after(&fenced, Transition::Fence(life(1, 1)))));
}

//! Nodes register, are refused, lose their lease, and return.

use weir_etcd::{ClaimEvent, EtcdCluster, NodeSession};

use crate::bench::{cluster, next_of_session, node, node_record, wait};
use crate::etcd::{Etcd, wait_for};

/// Returns a process that has registered its node.
fn registered(etcd: &Etcd, boot_id: &str) -> (EtcdCluster, NodeSession) {
    let cluster = cluster(etcd.endpoint());
    let mut session = cluster.session("n1".parse().unwrap(), &node_record(boot_id));
    wait(&cluster, "registration", next_of_session(&mut session));
    (cluster, session)
}

#[test]
fn a_node_is_registered_until_it_closes_its_session() {
    let etcd = Etcd::start();
    let cluster = cluster(etcd.endpoint());
    let mut session = cluster.session("n1".parse().unwrap(), &node_record("b1"));
    assert_eq!(wait(&cluster, "contact", session.next_event()), Some(ClaimEvent::Connected));
    let event = wait(&cluster, "registration", next_of_session(&mut session));
    let create_revision = session.registered().expect("registered");
    assert_eq!(event, ClaimEvent::Held { create_revision });
    assert_eq!(
        etcd.control(&["get", "--print-value-only", "/weir/north/nodes/n1"]).trim(),
        r#"{"boot_id":"b1","version":"0.1.0","capacity":10}"#
    );
    wait(&cluster, "end", session.close()).unwrap();
    assert_eq!(wait(&cluster, "answer", cluster.store().get(&node())), Ok(None));
}

#[test]
fn a_changed_record_is_written_under_the_same_registration() {
    let etcd = Etcd::start();
    let (cluster, session) = registered(&etcd, "b1");
    let before = session.registered();
    session.update(&weir_etcd::NodeRecord { capacity: 25, ..node_record("b1") });
    let store = cluster.store();
    wait_for("new capacity", || {
        let found = wait(&cluster, "answer", store.get(&node())).unwrap().unwrap();
        String::from_utf8(found.value).unwrap().contains("\"capacity\":25")
    });
    assert_eq!(session.registered(), before);
}

#[test]
fn a_second_process_of_a_name_waits_for_the_end_of_the_first_lease() {
    let etcd = Etcd::start();
    let (first, session) = registered(&etcd, "b1");

    let second = cluster(etcd.endpoint());
    let mut successor = second.session("n1".parse().unwrap(), &node_record("b2"));
    let event = wait(&second, "refusal", next_of_session(&mut successor));
    assert_eq!(event, ClaimEvent::HeldByOther { boot_id: "b1".to_owned() });
    assert_eq!(successor.registered(), None);

    // The process is killed: no client closes its session.
    drop(session);
    drop(first);
    let event = wait(&second, "take-over", next_of_session(&mut successor));
    assert!(matches!(event, ClaimEvent::Held { .. }), "{event:?}");
}

#[test]
fn a_process_that_knows_of_the_first_ones_end_registers_at_once() {
    let etcd = Etcd::start();
    let (first, session) = registered(&etcd, "b2");

    let second = cluster(etcd.endpoint());
    let ended = vec!["b1".to_owned(), "b2".to_owned()];
    let mut successor = second.session_after("n1".parse().unwrap(), &node_record("b3"), ended);
    let event = wait(&second, "take-over", next_of_session(&mut successor));
    assert!(matches!(event, ClaimEvent::Held { .. }), "{event:?}");
    // The end of the first process's lease must not delete the key.
    wait(&first, "end", session.close()).unwrap();
    let found = wait(&second, "answer", second.store().get(&node())).unwrap().unwrap();
    assert!(String::from_utf8(found.value).unwrap().contains("\"boot_id\":\"b3\""));
}

#[test]
fn a_process_restarted_with_its_boot_id_takes_its_own_key_over() {
    let etcd = Etcd::start();
    let first = cluster(etcd.endpoint());
    let mut session = first.session("n1".parse().unwrap(), &node_record("b1"));
    let event = wait(&first, "registration", next_of_session(&mut session));
    let before = wait(&first, "answer", first.store().get(&node())).unwrap().unwrap();

    let second = cluster(etcd.endpoint());
    let mut again = second.session("n1".parse().unwrap(), &node_record("b1"));
    assert_eq!(wait(&second, "registration", next_of_session(&mut again)), event);
    let after = wait(&first, "answer", first.store().get(&node())).unwrap().unwrap();
    assert_ne!(before.lease, after.lease);
}

#[test]
fn a_node_that_lost_its_lease_registers_again() {
    let etcd = Etcd::start();
    let cluster = cluster(etcd.endpoint());
    let mut session = cluster.session("n1".parse().unwrap(), &node_record("b1"));
    let before = wait(&cluster, "registration", next_of_session(&mut session));
    let found = wait(&cluster, "answer", cluster.store().get(&node())).unwrap().unwrap();
    let lease = found.lease.expect("the key goes with a lease");
    etcd.control(&["lease", "revoke", &format!("{:x}", lease.0)]);
    assert_eq!(wait(&cluster, "loss", next_of_session(&mut session)), ClaimEvent::Expired);
    let after = wait(&cluster, "registration", next_of_session(&mut session));
    assert!(matches!(after, ClaimEvent::Held { .. }) && after != before);
    assert_eq!(cluster.counts().lease_losses_total, 1);
}

#[test]
fn a_key_that_is_deleted_comes_back() {
    let etcd = Etcd::start();
    let cluster = cluster(etcd.endpoint());
    let mut session = cluster.session("n1".parse().unwrap(), &node_record("b1"));
    wait(&cluster, "registration", next_of_session(&mut session));
    etcd.control(&["del", "/weir/north/nodes/n1"]);
    assert_eq!(wait(&cluster, "notice", next_of_session(&mut session)), ClaimEvent::TakenAway);
    let event = wait(&cluster, "registration", next_of_session(&mut session));
    assert!(matches!(event, ClaimEvent::Held { .. }));
}

#[test]
fn a_node_outlives_an_etcd_that_is_killed() {
    let mut etcd = Etcd::start();
    let cluster = cluster(etcd.endpoint());
    let mut session = cluster.session("n1".parse().unwrap(), &node_record("b1"));
    let before = wait(&cluster, "registration", next_of_session(&mut session));
    etcd.kill();
    let lost = wait(&cluster, "loss", session.next_event());
    assert!(matches!(lost, Some(ClaimEvent::Lost { .. })), "{lost:?}");
    assert_eq!(wait(&cluster, "expiry", session.next_event()), Some(ClaimEvent::Expired));
    assert_eq!(session.registered(), None);
    let error = cluster.last_error().expect("an error while etcd is down").to_string();
    assert!(error.contains(etcd.address()) && error.contains("check that etcd runs"), "{error}");

    etcd.run();
    // etcd kept its lease, so no other process can have held the key.
    assert_eq!(wait(&cluster, "contact", session.next_event()), Some(ClaimEvent::Connected));
    assert_eq!(wait(&cluster, "registration", session.next_event()), Some(before));
    assert!(cluster.counts().connects_total >= 2);
}

#[test]
fn a_node_outlives_an_etcd_that_is_stopped() {
    let etcd = Etcd::start();
    let cluster = cluster(etcd.endpoint());
    let mut session = cluster.session("n1".parse().unwrap(), &node_record("b1"));
    wait(&cluster, "registration", next_of_session(&mut session));
    etcd.pause();
    assert_eq!(wait(&cluster, "expiry", next_of_session(&mut session)), ClaimEvent::Expired);
    assert!(cluster.counts().last_contact_age.expect("etcd answered once") > crate::bench::TTL / 2);
    etcd.resume();
    let event = wait(&cluster, "registration", next_of_session(&mut session));
    assert!(matches!(event, ClaimEvent::Held { .. }), "{event:?}");
}

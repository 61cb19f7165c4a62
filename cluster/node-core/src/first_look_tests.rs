//! Looks at an etcd that answers or not, by a node that knows its cluster or not.

use super::*;
use crate::setup::tests::desired;

fn map(desired: Option<&str>) -> KnownMap {
    let mut map = KnownMap::default();
    map.set_cluster("c1");
    if let Some(desired) = desired {
        map.set_desired(desired);
    }
    map
}

fn silent() -> Result<(String, Desired), NotFound> {
    Err(NotFound::Silent("connection refused".into()))
}

fn missing() -> Result<(String, Desired), NotFound> {
    Err(NotFound::Missing(Awaited::ClusterFile, "no cluster file has been applied yet".into()))
}

#[test]
fn a_node_that_knows_its_cluster_starts_without_an_etcd_that_is_silent_for_five_seconds() {
    let map = map(Some(&desired().to_json()));
    let began = Duration::from_secs(7);
    let mut looks = FirstLook::new(began);
    let just_before = began + ETCD_PATIENCE - Duration::from_millis(1);
    assert!(looks.take(just_before, silent(), &map, "edge").is_none());
    let found = looks.take(began + ETCD_PATIENCE, silent(), &map, "edge").unwrap();
    assert!(found.is_without_etcd);
    assert_eq!((found.cluster_id.as_str(), found.desired), ("c1", desired()));
}

#[test]
fn an_etcd_that_answers_takes_precedence_over_the_disk() {
    let map = map(Some(&desired().to_json()));
    let began = Duration::from_secs(7);
    let mut looks = FirstLook::new(began);
    // etcd has lost everything: an operator has to look.
    for second in 0..100 {
        let now = began + Duration::from_secs(second);
        assert!(looks.take(now, missing(), &map, "edge").is_none());
    }
    let later = began + Duration::from_secs(100);
    assert!(looks.take(later, silent(), &map, "edge").is_none(), "etcd was heard just before");
    let found = looks.take(later, Ok(("c2".into(), desired())), &map, "edge").unwrap();
    assert!(!found.is_without_etcd && found.cluster_id == "c2");
}

#[test]
fn an_etcd_that_holds_another_cluster_than_the_node_knows_is_not_joined() {
    let holds = |id: &str| is_known(Ok((id.into(), desired())), "c1");
    assert_eq!(holds("c1"), Some(Ok(())));
    assert_eq!(holds("c2"), Some(Err("c2".into())));
    assert_eq!(is_known(silent(), "c1"), None);
    assert_eq!(is_known(missing(), "c1"), None);
}

#[test]
fn a_node_that_does_not_know_its_cluster_waits_for_etcd() {
    let of_other = desired().to_json().replace("\"edge\"", "\"north\"");
    assert_ne!(of_other, desired().to_json());
    for map in [map(None), map(Some(&of_other)), map(Some("{"))] {
        let began = Duration::from_secs(7);
        let mut looks = FirstLook::new(began);
        for second in 0..100 {
            let now = began + Duration::from_secs(second);
            assert!(looks.take(now, silent(), &map, "edge").is_none());
        }
        assert!(on_disk(&map, "edge").is_err());
    }
}

#[test]
fn a_wait_says_what_is_awaited_and_since_when() {
    let map = map(None);
    let at = Duration::from_secs;
    let mut looks = FirstLook::new(at(7));
    let waits = |looks: &FirstLook| (looks.wait().awaited, looks.wait().since);
    assert_eq!(waits(&looks), (Awaited::Etcd, at(7)), "before the first look has ended");
    for second in 8..20 {
        assert!(looks.take(at(second), silent(), &map, "edge").is_none());
    }
    assert_eq!(waits(&looks), (Awaited::Etcd, at(7)));
    assert!(looks.wait().why.starts_with("connection refused; it cannot start without etcd"));
    for second in 20..30 {
        assert!(looks.take(at(second), missing(), &map, "edge").is_none());
    }
    assert_eq!(waits(&looks), (Awaited::ClusterFile, at(20)));
    let no_controller = found(Some(desired().to_json().as_bytes()), None);
    assert!(looks.take(at(30), no_controller, &map, "edge").is_none());
    assert_eq!(waits(&looks), (Awaited::Controller, at(30)));
    assert!(looks.wait().why.contains("`weir controller`"), "{}", looks.wait().why);
}

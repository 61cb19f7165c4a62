use super::*;

fn put(path: &str, value: &str, lease: i64) -> Operation {
    let lease = (lease != 0).then_some(LeaseId(lease));
    Operation::Put { path: path.into(), value: value.into(), lease }
}

fn done(store: &mut Store, then: Vec<Operation>) -> i64 {
    let transaction = Transaction { then, ..Transaction::default() };
    store.transact(&transaction).unwrap().revision.0
}

fn paths(store: &Store, revision: Option<i64>) -> Vec<String> {
    let (found, _) = store.range("/", "0", 99, revision.map(Revision)).unwrap();
    found.into_iter().map(|(path, _)| path).collect()
}

#[test]
fn only_a_transaction_with_changes_makes_a_revision() {
    let mut store = Store::new();
    assert_eq!(done(&mut store, vec![put("/a", "1", 0), put("/b", "1", 0)]), 2);
    assert_eq!(done(&mut store, vec![Operation::Get("/a".into())]), 2);
    assert_eq!(done(&mut store, vec![Operation::Delete("/none".into())]), 2);
    assert_eq!(done(&mut store, vec![put("/a", "1", 0)]), 3, "the same value is a change");
    let a = store.get("/a").unwrap();
    assert_eq!(
        (a.create_revision, a.mod_revision, store.version("/a")),
        (Revision(2), Revision(3), 2)
    );
    done(&mut store, vec![Operation::Delete("/a".into())]);
    assert_eq!(done(&mut store, vec![put("/a", "2", 0)]), 5);
    let a = store.get("/a").unwrap();
    assert_eq!((a.create_revision, store.version("/a")), (Revision(5), 1), "a new key");
}

#[test]
fn a_transaction_does_one_branch_whole_or_nothing() {
    let mut store = Store::new();
    let claim = |lease| Transaction {
        compares: vec![Compare::CreateRevision("/a".into(), Revision(0))],
        then: vec![put("/a", "mine", lease), put("/b", "mine", 0)],
        otherwise: vec![Operation::Get("/a".into()), Operation::Get("/none".into())],
    };
    assert_eq!(store.transact(&claim(7)), Err(Refusal::NoSuchLease));
    assert_eq!((store.revision().0, store.get("/b")), (1, None), "no change is made");
    store.grant(LeaseId(7), 10, 0);
    let decided = store.transact(&claim(7)).unwrap();
    assert_eq!(decided, Decided { has_held: true, revision: Revision(2), found: Vec::new() });
    let decided = store.transact(&claim(8)).unwrap();
    assert!(!decided.has_held && decided.revision == Revision(2));
    assert_eq!(decided.found, [store.get("/a"), None]);
    let twice = vec![put("/a", "1", 0), put("/a", "2", 0)];
    let twice = Transaction { then: twice, ..Transaction::default() };
    assert_eq!(store.transact(&twice), Err(Refusal::Duplicate));
}

#[test]
fn comparisons_of_a_missing_key_are_with_0() {
    let mut store = Store::new();
    store.grant(LeaseId(7), 10, 0);
    done(&mut store, vec![put("/a", "1", 7)]);
    let holds = |compare| store.holds(&compare);
    for path in ["/none", "/never"] {
        assert!(holds(Compare::CreateRevision(path.into(), Revision(0))));
        assert!(holds(Compare::ModRevision(path.into(), Revision(0))));
        assert!(holds(Compare::Lease(path.into(), LeaseId(0))));
    }
    assert!(holds(Compare::CreateRevision("/a".into(), Revision(2))));
    assert!(holds(Compare::Lease("/a".into(), LeaseId(7))));
    assert!(!holds(Compare::ModRevision("/a".into(), Revision(0))));
}

#[test]
fn the_keys_of_a_lease_are_deleted_together_when_it_ends() {
    let mut store = Store::new();
    store.grant(LeaseId(7), 10, 0);
    done(&mut store, vec![put("/a", "1", 7)]);
    done(&mut store, vec![put("/b", "1", 7), put("/c", "1", 7)]);
    done(&mut store, vec![put("/c", "2", 0)]);
    assert!(!store.end_leases(9_999_999));
    store.keep_alive(LeaseId(7), 5_000_000).unwrap();
    assert!(!store.end_leases(14_999_999));
    assert_eq!(store.keep_alive(LeaseId(7), 15_000_000), Err(Refusal::NoSuchLease));
    assert!(store.end_leases(15_000_000));
    assert_eq!((store.revision().0, paths(&store, None)), (5, vec!["/c".to_owned()]));
    assert_eq!(store.revoke(LeaseId(7)), Err(Refusal::NoSuchLease));
    let changes = store.changes_from("/", 5).unwrap();
    assert_eq!(changes.len(), 1);
    assert!(changes[0].iter().all(|change| change.value.is_none()));
}

#[test]
fn compacted_revisions_are_refused_and_later_ones_are_unchanged() {
    let mut store = Store::new();
    for value in ["1", "2", "3"] {
        done(&mut store, vec![put("/a", value, 0)]);
    }
    done(&mut store, vec![Operation::Delete("/a".into()), put("/b", "1", 0)]);
    assert_eq!(paths(&store, Some(3)), ["/a"]);
    store.compact(Revision(3)).unwrap();
    assert_eq!(store.compact(Revision(3)), Err(Refusal::Compacted));
    assert_eq!(store.compact(Revision(6)), Err(Refusal::Future));
    assert_eq!(store.range("/", "0", 9, Some(Revision(2))), Err(Refusal::Compacted));
    assert_eq!(store.range("/", "0", 9, Some(Revision(6))), Err(Refusal::Future));
    assert_eq!(paths(&store, Some(4)), ["/a"]);
    assert_eq!(store.changes_from("/", 2), None);
    assert_eq!(store.changes_from("/", 3).unwrap().len(), 3);
    // The deletion of the very revision is lost, as in the etcd that is modelled here.
    store.compact(Revision(5)).unwrap();
    let changes = store.changes_from("/", 5).unwrap();
    assert_eq!(changes[0].iter().map(|it| it.path.as_str()).collect::<Vec<_>>(), ["/b"]);
}

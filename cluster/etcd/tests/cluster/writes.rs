//! Compare-and-swap, and the certainty about a write that failed.

use weir_etcd::{
    Cause, ClaimEvent, Key, KeyRange, Outcome, ShardId, Swap, SwapChange, TRANSACTION_KEYS_MAX,
};

use crate::bench::{cluster, done, next_of_session, node_record, options, start, wait, write};
use crate::etcd::{Etcd, wait_for};
use crate::proxy::Proxy;

#[test]
fn a_write_succeeds_only_on_the_value_its_writer_saw() {
    let etcd = Etcd::start();
    let cluster = cluster(etcd.endpoint());
    let store = cluster.store();
    let put = |expected, value: &str| {
        wait(&cluster, "outcome", store.put(Key::Meta, expected, value.into()))
    };
    let first = done(put(None, "1"));
    let Outcome::LostRace(current) = put(None, "2") else { panic!("the key was overwritten") };
    assert_eq!(current[0].as_ref().unwrap().mod_revision, first);
    let second = done(put(Some(first), "2"));
    assert!(matches!(put(Some(first), "3"), Outcome::LostRace(_)));
    let delete = [Swap { key: Key::Meta, expected: Some(second), change: SwapChange::Delete }];
    done(wait(&cluster, "outcome", store.transact(&delete, None)));
    assert_eq!(wait(&cluster, "answer", store.get(&Key::Meta)), Ok(None));
    assert_eq!(cluster.counts().conflicts_total, 2);
}

#[test]
fn a_transaction_is_written_completely_or_not_at_all() {
    let etcd = Etcd::start();
    let cluster = cluster(etcd.endpoint());
    let store = cluster.store();
    let seen = write(&cluster, 1, "a");
    let swaps = |expected| {
        vec![
            Swap { key: Key::Shard(ShardId(1)), expected, change: SwapChange::Keep },
            Swap {
                key: Key::Shard(ShardId(2)),
                expected: None,
                change: SwapChange::Put(b"b".to_vec()),
            },
        ]
    };
    let outcome = wait(&cluster, "outcome", store.transact(&swaps(None), None));
    let Outcome::LostRace(current) = outcome else { panic!("{outcome:?}") };
    assert!(current[0].is_some() && current[1].is_none());
    done(wait(&cluster, "outcome", store.transact(&swaps(Some(seen)), None)));
    let twice = [swaps(None), swaps(None)].concat();
    let outcome = wait(&cluster, "outcome", store.transact(&twice, None));
    assert!(matches!(&outcome, Outcome::Refused(error) if error.cause == Cause::Invalid));
}

#[test]
fn a_transaction_may_have_as_many_keys_as_etcd_takes() {
    let etcd = Etcd::start();
    let cluster = cluster(etcd.endpoint());
    let store = cluster.store();
    let swaps = |count: usize| -> Vec<Swap> {
        (0..count as u32)
            .map(|shard| Swap {
                key: Key::Shard(ShardId(shard)),
                expected: None,
                change: SwapChange::Put(b"{}".to_vec()),
            })
            .collect()
    };
    let too_many =
        wait(&cluster, "outcome", store.transact(&swaps(TRANSACTION_KEYS_MAX + 1), None));
    assert!(matches!(&too_many, Outcome::Refused(error) if error.cause == Cause::TooLarge));
    done(wait(&cluster, "outcome", store.transact(&swaps(TRANSACTION_KEYS_MAX), None)));
    // The keys take more than one page of a list, and the list excludes keys with a similar prefix.
    let more: Vec<Swap> = swaps(2 * TRANSACTION_KEYS_MAX).split_off(TRANSACTION_KEYS_MAX);
    done(wait(&cluster, "outcome", store.transact(&more, None)));
    for shard in 1000..1010 {
        write(&cluster, shard, "{}");
    }
    etcd.control(&["put", "/weir/north/shardz", "x"]);
    let (position, shards) = wait(&cluster, "list", store.list(KeyRange::Shards)).unwrap();
    assert_eq!(shards.len(), 2 * TRANSACTION_KEYS_MAX + 10);
    assert!(shards.iter().all(|(_, found)| found.mod_revision <= position.revision));
    assert_eq!(wait(&cluster, "list", store.list(KeyRange::Nodes)).unwrap().1, []);
}

#[test]
fn a_list_that_is_too_long_is_refused() {
    let etcd = Etcd::start();
    let mut options = options(&[etcd.endpoint()]);
    options.keys_max = 2;
    let cluster = start(options);
    for shard in 0..3 {
        write(&cluster, shard, "{}");
    }
    let error = wait(&cluster, "list", cluster.store().list(KeyRange::All)).unwrap_err();
    assert_eq!(error.cause, Cause::TooLarge);
}

#[test]
fn only_a_write_that_was_sent_can_have_an_unknown_outcome() {
    let mut etcd = Etcd::start();
    let proxy = Proxy::before(&etcd);
    let cluster = cluster(proxy.endpoint());
    let store = cluster.store();
    let seen = write(&cluster, 1, "before");
    proxy.swallow_answers();
    let outcome =
        wait(&cluster, "outcome", store.put(Key::Shard(ShardId(1)), Some(seen), "after".into()));
    assert!(matches!(&outcome, Outcome::Unknown(error) if error.cause == Cause::Timeout));
    // A read on another connection shows that it was written.
    wait_for("written value", || {
        let found = wait(&cluster, "answer", store.get(&Key::Shard(ShardId(1))));
        found.is_ok_and(|found| found.unwrap().value == b"after")
    });
    proxy.cut();
    etcd.kill();
    wait_for("a broken connection", || {
        match wait(&cluster, "outcome", store.put(Key::Shard(ShardId(2)), None, "x".into())) {
            Outcome::Unknown(_) => false,
            Outcome::Unavailable(error) => error.cause == Cause::Unreachable,
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn a_full_etcd_takes_no_writes_but_keeps_leases_alive() {
    let etcd = Etcd::start_with(&["--quota-backend-bytes", "2097152"]);
    let cluster = cluster(etcd.endpoint());
    let store = cluster.store();
    let mut session = cluster.session("n1".parse().unwrap(), &node_record("b1"));
    let event = wait(&cluster, "registration", next_of_session(&mut session));
    let mut seen = None;
    let full = loop {
        match wait(
            &cluster,
            "outcome",
            store.put(Key::Shard(ShardId(1)), seen, vec![b'x'; 100_000]),
        ) {
            Outcome::Done(revision) => seen = Some(revision),
            Outcome::Unavailable(error) => break error,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(full.cause, Cause::NoSpace);
    assert!(full.to_string().contains("etcdctl alarm disarm"), "{full}");
    // The node's key still exists when a whole lease has passed.
    let end = std::time::Instant::now() + crate::bench::TTL * 3 / 2;
    wait_for("one and a half leases", || {
        let is_there = session.registered();
        assert_eq!(
            is_there.map(|create_revision| ClaimEvent::Held { create_revision }),
            Some(event.clone())
        );
        std::time::Instant::now() > end
    });
    assert!(wait(&cluster, "answer", store.get(&crate::bench::node())).unwrap().is_some());

    etcd.control(&["compact", &etcd.revision().to_string()]);
    etcd.control(&["defrag"]);
    etcd.control(&["alarm", "disarm"]);
    done(wait(&cluster, "outcome", store.put(Key::Shard(ShardId(2)), None, "x".into())));
}

#[test]
fn the_next_member_is_used_when_one_does_not_answer() {
    let etcd = Etcd::start();
    // No process listens on port 9 of this address.
    let dead = format!("http://{}:9", etcd.address());
    let proxy = Proxy::before(&etcd);
    for first in [dead, proxy.endpoint()] {
        proxy.silence_all();
        let mut options = options(&[first, etcd.endpoint()]);
        options.seed = 2;
        let cluster = start(options);
        wait_for("a member that answers", || {
            wait(&cluster, "answer", cluster.store().get(&Key::Meta)).is_ok()
        });
    }
}

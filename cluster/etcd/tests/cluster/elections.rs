//! Two controllers, one leader.

use std::time::Instant;

use weir_etcd::{ClaimEvent, Key, Outcome, ShardId, Swap, SwapChange};

use crate::bench::{MARGIN, TTL, cluster, done, leader_record, next_of_election, wait};
use crate::etcd::{Etcd, wait_for};
use crate::proxy::Proxy;

fn swap(shard: u32) -> [Swap; 1] {
    [Swap {
        key: Key::Shard(ShardId(shard)),
        expected: None,
        change: SwapChange::Put(b"{}".to_vec()),
    }]
}

#[test]
fn a_second_controller_follows_until_the_leader_steps_down() {
    let etcd = Etcd::start();
    let (a, b) = (cluster(etcd.endpoint()), cluster(etcd.endpoint()));
    let mut first = a.election(&leader_record("a"));
    assert!(matches!(wait(&a, "election", next_of_election(&mut first)), ClaimEvent::Held { .. }));
    let mut second = b.election(&leader_record("b"));
    assert_eq!(
        wait(&b, "following", next_of_election(&mut second)),
        ClaimEvent::HeldByOther { boot_id: "a".to_owned() }
    );
    assert_eq!(second.leadership(), None);
    let old = first.leadership().expect("elected");
    done(wait(&a, "write", a.store().transact(&swap(1), Some(old))));

    wait(&a, "end", first.close()).unwrap();
    assert!(matches!(wait(&b, "election", next_of_election(&mut second)), ClaimEvent::Held { .. }));
    let new = second.leadership().expect("elected");
    assert_ne!(old.create_revision, new.create_revision);
    assert_eq!(wait(&a, "refusal", a.store().transact(&swap(2), Some(old))), Outcome::NotLeader);
    done(wait(&b, "write", b.store().transact(&swap(2), Some(new))));
    // A leader can lose a race, too.
    let outcome = wait(&b, "conflict", b.store().transact(&swap(2), Some(new)));
    let Outcome::LostRace(current) = outcome else { panic!("{outcome:?}") };
    assert_eq!(current[0].as_ref().unwrap().value, b"{}");
    assert_eq!(b.counts().conflicts_total, 1);
}

#[test]
fn a_leader_that_is_cut_off_stops_before_another_is_elected() {
    let etcd = Etcd::start();
    let proxy = Proxy::before(&etcd);
    let (a, b) = (cluster(proxy.endpoint()), cluster(etcd.endpoint()));
    let mut first = a.election(&leader_record("a"));
    wait(&a, "election", next_of_election(&mut first));
    let mut second = b.election(&leader_record("b"));
    wait(&b, "following", next_of_election(&mut second));

    let old = first.leadership().expect("elected");
    let cut_at = Instant::now();
    proxy.silence_all();
    let mut stopped_at = None;
    let mut elected_at = None;
    wait_for("another leader", || {
        let now = Instant::now();
        if first.leadership().is_none() {
            stopped_at.get_or_insert(now);
        }
        if second.leadership().is_some() {
            elected_at.get_or_insert(now);
        }
        elected_at.is_some()
    });
    let (stopped_at, elected_at) =
        (stopped_at.expect("the first has stopped"), elected_at.unwrap());
    assert!(stopped_at < elected_at);
    assert!(elected_at - cut_at >= MARGIN, "the old leader stops a margin before the new election");
    assert_eq!(wait(&a, "notice", next_of_election(&mut first)), ClaimEvent::Expired);
    // Even if its clock had failed, its writes would be refused.
    proxy.mend();
    wait_for("refusal", || match wait(&a, "outcome", a.store().transact(&swap(1), Some(old))) {
        Outcome::NotLeader => true,
        Outcome::Unavailable(_) | Outcome::Unknown(_) => false,
        other => panic!("{other:?}"),
    });
    let event = wait(&a, "following", next_of_election(&mut first));
    assert_eq!(event, ClaimEvent::HeldByOther { boot_id: "b".to_owned() });
}

#[test]
fn a_leader_leads_as_long_as_it_renews_its_lease() {
    let etcd = Etcd::start();
    let a = cluster(etcd.endpoint());
    let mut election = a.election(&leader_record("a"));
    wait(&a, "election", next_of_election(&mut election));
    let first = election.leadership().unwrap();
    // The leader outlasts its first lease with the same key.
    wait_for("renewals", || {
        let now = election.leadership().expect("still the leader");
        assert_eq!(now.create_revision, first.create_revision);
        now.valid_until > first.valid_until + TTL
    });
}

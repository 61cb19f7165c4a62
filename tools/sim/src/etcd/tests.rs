use weir_etcd::message::RequestFailure;
use weir_etcd::transaction::Compare;

use super::*;

const ME: ClientId = ClientId(1);
const SEC: u64 = 1_000_000;

struct World {
    etcd: Etcd,
    now_us: u64,
    delivered: Vec<(ClientId, TransportEvent)>,
}

impl World {
    fn new(seed: u64) -> Self {
        Self {
            etcd: Etcd::new(EtcdModelOptions::default(), seed),
            now_us: 0,
            delivered: Vec::new(),
        }
    }

    fn ask(&mut self, request: EtcdRequest) -> RequestId {
        self.etcd.request(self.now_us, ME, request)
    }

    fn run(&mut self, us: u64) {
        self.now_us += us;
        self.etcd.poll(self.now_us, &mut self.delivered);
    }

    fn answer(&mut self, id: RequestId) -> Option<Result<EtcdAnswer, RequestFailure>> {
        let delivered = std::mem::take(&mut self.delivered).into_iter();
        delivered.rev().find_map(|(_, event)| match event {
            TransportEvent::Answered { request, answer } if request == id => Some(answer),
            _ => None,
        })
    }

    fn asked(&mut self, request: EtcdRequest) -> Result<EtcdAnswer, RequestFailure> {
        let id = self.ask(request);
        self.run(SEC / 10);
        self.answer(id).expect("an answer")
    }

    fn put(&mut self, path: &str, value: &str) {
        self.asked(EtcdRequest::Transact(put(path, value, None))).unwrap();
    }

    fn grant(&mut self, ttl_sec: u64) -> LeaseId {
        match self.asked(EtcdRequest::Grant { ttl_sec }) {
            Ok(EtcdAnswer::Granted { lease, ttl_sec: granted }) => {
                assert_eq!(granted, ttl_sec.max(2));
                lease
            }
            other => panic!("{other:?}"),
        }
    }

    fn events(&mut self, watch: RequestId) -> Vec<WatchEvent> {
        let delivered = std::mem::take(&mut self.delivered).into_iter();
        delivered
            .filter_map(|(_, event)| match event {
                TransportEvent::Watched { watch: of, event } if of == watch => Some(event),
                _ => None,
            })
            .collect()
    }

    fn watch(&mut self, from: i64) -> RequestId {
        let watch = self.ask(EtcdRequest::Watch { prefix: "/".into(), from: Revision(from) });
        self.run(SEC / 10);
        watch
    }
}

fn put(path: &str, value: &str, lease: Option<LeaseId>) -> Transaction {
    let put = Operation::Put { path: path.into(), value: value.into(), lease };
    Transaction { then: vec![put], ..Transaction::default() }
}

fn values(events: &[WatchEvent]) -> Vec<String> {
    let changes = events.iter().filter_map(|events| match events {
        WatchEvent::Changes(changes) => Some(changes),
        _ => None,
    });
    let values = changes.flatten().map(|it| it.value.clone().unwrap_or_default());
    values.map(|value| String::from_utf8(value).unwrap()).collect()
}

#[test]
fn a_watch_sends_every_revision_in_order_from_the_requested_one() {
    for seed in 0..50 {
        let mut world = World::new(seed);
        world.etcd.slow((100, 50_000), (0, 400_000));
        ["1", "2", "3"].iter().for_each(|value| world.put("/a", value));
        let watch = world.watch(3);
        for value in ["4", "5", "6"] {
            world.ask(EtcdRequest::Transact(put("/a", value, None)));
            world.run(60_000);
        }
        world.run(SEC);
        let events = world.events(watch);
        assert_eq!(events[0], WatchEvent::Created);
        assert_eq!(values(&events), ["2", "3", "4", "5", "6"]);
    }
}

#[test]
fn a_watch_that_lags_behind_a_compaction_reports_it_and_ends() {
    let mut world = World::new(1);
    world.put("/a", "1");
    let watch = world.watch(3);
    world.etcd.slow((100, 100), (5 * SEC, 5 * SEC));
    world.put("/a", "2");
    world.put("/a", "3");
    world.put("/a", "4");
    world.etcd.compact(0);
    world.run(10 * SEC);
    let events = world.events(watch);
    assert_eq!(events, [WatchEvent::Compacted(Revision(5))]);
}

#[test]
fn a_stalled_watch_sends_nothing_until_another_is_opened() {
    let mut world = World::new(1);
    let watch = world.watch(2);
    assert_eq!(world.events(watch), [WatchEvent::Created]);
    world.ask(EtcdRequest::Progress(watch));
    world.run(SEC);
    assert_eq!(world.events(watch), [WatchEvent::Progress]);
    world.etcd.stall_watches(ME);
    world.put("/a", "1");
    world.ask(EtcdRequest::Progress(watch));
    world.run(10 * SEC);
    world.etcd.kill(world.now_us);
    world.run(SEC);
    assert_eq!(world.events(watch), []);
    world.etcd.start(world.now_us);
    let watch = world.watch(2);
    assert_eq!(values(&world.events(watch)), ["1"]);
}

#[test]
fn a_lease_ends_within_a_second_of_its_time_and_its_keys_with_it() {
    let mut world = World::new(3);
    let lease = world.grant(10);
    world.asked(EtcdRequest::Transact(put("/a", "1", Some(lease)))).unwrap();
    world.run(8 * SEC);
    assert_eq!(world.asked(EtcdRequest::KeepAlive(lease)), Ok(EtcdAnswer::KeptAlive));
    world.run(9 * SEC);
    assert!(world.etcd.get("/a").is_some());
    world.run(2 * SEC);
    assert!(world.etcd.get("/a").is_none());
    assert_eq!(world.asked(EtcdRequest::KeepAlive(lease)), Err(Refusal::NoSuchLease.into()));
    assert_eq!(world.grant(1), LeaseId(2));
}

#[test]
fn after_a_kill_an_unanswered_write_may_have_been_done() {
    let mut unknown = [0; 2];
    for seed in 0..100 {
        let mut world = World::new(seed);
        let id = world.ask(EtcdRequest::Transact(put("/a", "1", None)));
        world.run(seed * 60);
        world.etcd.kill(world.now_us);
        world.run(SEC);
        match world.answer(id) {
            Some(Ok(_)) => assert!(world.etcd.get("/a").is_some()),
            Some(Err(it)) if it == Refusal::Broken.into() => {
                unknown[usize::from(world.etcd.get("/a").is_some())] += 1
            }
            Some(Err(it)) if it == Refusal::Unreachable.into() => {
                assert!(world.etcd.get("/a").is_none())
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(unknown[1] > 10, "{unknown:?}");
}

#[test]
fn requests_that_wait_for_a_leader_are_done_late_or_never() {
    let mut was_done = [0; 2];
    for seed in 0..100 {
        let mut world = World::new(seed);
        let watch = world.watch(2);
        world.etcd.lose_leader(world.now_us);
        world.ask(EtcdRequest::Transact(put("/a", "1", None)));
        world.run(5 * SEC);
        assert_eq!(
            world.events(watch),
            [WatchEvent::Created, WatchEvent::Ended(Refusal::Broken.into())]
        );
        world.etcd.elect(world.now_us);
        world.run(SEC);
        was_done[usize::from(world.etcd.get("/a").is_some())] += 1;
    }
    assert!(was_done.iter().all(|&count| count > 10), "{was_done:?}");
}

#[test]
fn a_cut_may_be_one_way() {
    let mut world = World::new(1);
    world.etcd.cut(ME, false, true);
    let id = world.ask(EtcdRequest::Transact(put("/a", "1", None)));
    world.run(SEC);
    assert!(world.etcd.get("/a").is_some() && world.answer(id).is_none());
    world.etcd.cut(ME, true, false);
    world.ask(EtcdRequest::Transact(put("/b", "1", None)));
    world.run(SEC);
    assert!(world.etcd.get("/b").is_none());
}

#[test]
fn a_restored_etcd_reuses_revisions_and_has_the_leases_of_its_backup() {
    let mut world = World::new(1);
    let lease = world.grant(10);
    world.asked(EtcdRequest::Transact(put("/a", "old", Some(lease)))).unwrap();
    let backup = world.etcd.back_up();
    world.put("/a", "new");
    world.asked(EtcdRequest::Revoke(lease)).unwrap();
    let before = world.etcd.position();
    world.etcd.restore(world.now_us, &backup, true);
    let after = world.etcd.position();
    assert_ne!(before.cluster_id, after.cluster_id);
    assert_eq!(after.revision, Revision(2));
    assert_eq!(world.etcd.get("/a").unwrap().value, b"old");
    assert_eq!(world.asked(EtcdRequest::KeepAlive(lease)), Ok(EtcdAnswer::KeptAlive));
    world.put("/b", "other");
    assert_eq!(world.etcd.revision(), before.revision);
    assert_ne!(world.grant(10), lease, "a lease's number is not used again");
}

#[test]
fn an_etcd_without_space_refuses_puts_and_keeps_leases_alive() {
    let mut world = World::new(1);
    let lease = world.grant(10);
    world.put("/a", "1");
    world.etcd.set_space(false);
    let refused = Transaction {
        compares: vec![Compare::CreateRevision("/a".into(), Revision(9))],
        ..put("/a", "2", None)
    };
    assert_eq!(world.asked(EtcdRequest::Transact(refused)), Err(Refusal::NoSpace.into()));
    assert_eq!(world.asked(EtcdRequest::Grant { ttl_sec: 9 }), Err(Refusal::NoSpace.into()));
    assert_eq!(world.asked(EtcdRequest::KeepAlive(lease)), Ok(EtcdAnswer::KeptAlive));
    let delete = vec![Operation::Delete("/a".into())];
    let delete = Transaction { then: delete, ..Transaction::default() };
    assert!(world.asked(EtcdRequest::Transact(delete)).is_ok());
}

#[test]
fn equal_seeds_play_equal_histories() {
    let play = |seed| {
        let mut world = World::new(seed);
        world.watch(2);
        for value in 0..20 {
            world.ask(EtcdRequest::Transact(put("/a", &value.to_string(), None)));
            world.run(1_000);
        }
        world.run(SEC);
        world.delivered
    };
    assert_eq!(play(5), play(5));
    assert_ne!(play(5), play(6));
}

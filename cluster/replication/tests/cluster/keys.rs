//! Commands change the cluster keys, while two workers carry traffic and copy to each other.

use weir_replication::WorkerCommand;
use weir_stream::{ClusterKeys, DatagramRefusal};

use crate::cluster::Cluster;
use crate::member::keys;
use crate::network::Faults;
use crate::plan::Plan;

const OLD: &str = "5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a";
const NEW: &str = "c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3";

fn file(lines: &[&str]) -> ClusterKeys {
    ClusterKeys::parse(&lines.join("\n")).unwrap()
}

fn two(seed: u64, faults: Faults) -> Cluster {
    assert_eq!(keys().names(), file(&[OLD]).names());
    let mut cluster = Cluster::new(2, seed, faults);
    Plan::new(&[0, 1]).order(&mut cluster);
    cluster.run_until("both have copies", |cluster| (0..2).all(|one| cluster.is_done(one)));
    cluster
}

/// Begins flows at both workers for a while.
fn carry(cluster: &mut Cluster, port: &mut u16) {
    for turn in 0..400 {
        let worker = turn as usize % 2;
        assert!(cluster.up(worker, turn % 40 + 100 * worker as u32, *port).is_some());
        cluster.step();
    }
    *port += 1;
}

/// The steps of the operator's guide: each on one worker after the other, with traffic before,
/// between and after.
#[test]
fn cluster_keys_change_under_traffic_and_every_copy_stays() {
    for (seed, faults) in [(61, Faults::NONE), (62, Faults::MANY)] {
        let mut cluster = two(seed, faults);
        let mut port = 5_000;
        for step in [&[OLD, NEW][..], &[NEW, OLD], &[NEW]] {
            for worker in 0..2 {
                carry(&mut cluster, &mut port);
                cluster.order(worker, WorkerCommand::SetKeys(file(step)));
                carry(&mut cluster, &mut port);
            }
        }
        cluster.run(2_000_000);
        cluster.check_equal();
        cluster.check_unique();
        for worker in 0..2 {
            assert!(cluster.is_done(worker), "worker {worker} keeps its copies");
            let status = cluster.worker(worker).status();
            let counters = &status.peers[0].counters;
            assert_eq!((counters.resyncs, counters.restarts), (0, 0), "worker {worker}");
            assert!(counters.sessions >= 2, "a new session uses the new key");
            assert_eq!(
                counters.refused.of(DatagramRefusal::BadMac),
                0,
                "keys overlap at each step"
            );
        }
    }
}

/// A step is left out: the workers refuse each other until each accepts the key that the other
/// sends with; then all is as before.
#[test]
fn workers_without_a_common_key_refuse_each_other_until_they_have_one() {
    let mut cluster = two(63, Faults::NONE);
    let mut port = 5_000;
    carry(&mut cluster, &mut port);
    cluster.order(0, WorkerCommand::SetKeys(file(&[NEW])));
    cluster.run(3_000_000);
    let refused = cluster.worker(1).status().peers[0].counters.refused.of(DatagramRefusal::BadMac);
    assert!(refused > 0, "the worker with the old key refuses the new one");
    carry(&mut cluster, &mut port);
    // The worker accepts the new key, but sends with the old one, which the other does not accept.
    cluster.order(1, WorkerCommand::SetKeys(file(&[OLD, NEW])));
    cluster.run(1_000_000);
    let equal = |cluster: &mut Cluster| {
        let mut flows = (0..2).map(|one| cluster.worker(one).flows());
        flows.next() == flows.next()
    };
    assert!(!equal(&mut cluster));
    cluster.order(1, WorkerCommand::SetKeys(file(&[NEW, OLD])));
    cluster.run_until("both know all flows again", equal);
    cluster.run(3_000_000);
    cluster.check_equal();
    cluster.check_unique();
}

//! Workers of two protocol versions in one cluster: an earlier one has bodies of its own.

use crate::cluster::Cluster;
use crate::member::HOMES;
use crate::network::Faults;
use crate::plan::Plan;

/// The latest version whose bodies have no images.
const EARLIER: u8 = 2;

/// Of three workers one speaks an earlier version: the writer, or one of its two replicas. They get
/// its flows by the walk, then change by change. When the writer dies, both serve them as before.
#[test]
fn workers_of_two_versions_hold_copies_of_each_other() {
    for earlier in 0..3 {
        let mut cluster = Cluster::empty(3, 21 + earlier as u64, Faults::MANY);
        let present = cluster.make.options.clone();
        for worker in 0..3 {
            cluster.make.options = present.clone();
            if worker == earlier {
                cluster.make.options.versions = 1..=EARLIER;
            }
            cluster.start(worker);
            cluster.add_shard(worker);
        }
        let mut plan = Plan::new(&[0]);
        for members in [vec![0], vec![0, 1, 2]] {
            (plan.members, plan.epoch) = (members, plan.epoch + 1);
            plan.order(&mut cluster);
            let known = cluster.given.len();
            cluster.run_until("all copies are there", |cluster| {
                plan.members.iter().all(|&member| cluster.flows(member) == known)
            });
            for turn in 0..1_000 {
                let port = 5_000 + 100 * plan.members.len() as u16 + (turn / 60) as u16;
                cluster.up(0, turn % 60, port);
                cluster.step();
            }
            cluster.run(300_000);
        }
        let flows = cluster.given.clone();
        assert_eq!(flows.len(), 2_000);
        cluster.kill(0);
        for replica in [1, 2] {
            for flow in flows.values() {
                let sent = cluster.up(replica, flow.outer - HOMES, flow.inside_port);
                assert_eq!(sent, Some(*flow), "worker {replica}; {earlier} is the earlier one");
            }
        }
    }
}

//! Announcements, redirects, and what is told again when it is ordered again.

use std::net::Ipv4Addr;

use weir_member::order::{Misses, ShardDuties};
use weir_member::{News, Order};
use weir_replica::BootId;
use weir_shard::{ShardId, Term};

use crate::network::Faults;
use crate::plan::Plan;
use crate::worker::{Cluster, SHARD, address, no_duties, peer_id};

fn heard(cluster: &mut Cluster, worker: usize, term: u32) -> usize {
    let announced = News::Announced { shard: ShardId(SHARD), term: Term(term) };
    cluster.worker(worker).news.iter().filter(|&news| *news == announced).count()
}

fn announcing(cluster: &mut Cluster, term: u32, to: &[(usize, BootId)]) -> ShardDuties {
    let duties = Plan::new(&[0, 1, 2]).duties(cluster, 0);
    let to = to.iter().map(|&(worker, boot)| (peer_id(worker), boot)).collect();
    ShardDuties { announced: Some((Term(term), to)), ..duties }
}

/// Each of those named hears it, once, in the life that is named.
#[test]
fn an_announcement_is_heard_once() {
    let mut cluster = Cluster::new(3, 61, Faults::MANY);
    let boots = [1, 2].map(|worker| (worker, cluster.boot(worker)));
    let duties = announcing(&mut cluster, 5, &boots);
    cluster.duties(0, duties.clone());
    cluster
        .run_until("both have heard", |cluster| (1..3).all(|worker| heard(cluster, worker, 5) > 0));
    cluster.run(1_000_000);
    cluster.duties(0, duties);
    cluster.run(1_000_000);
    assert_eq!([1, 2].map(|worker| heard(&mut cluster, worker, 5)), [1, 1]);
    // Another life of the one is not meant, the other hears.
    let duties = announcing(&mut cluster, 6, &[(1, BootId(9)), boots[1]]);
    cluster.duties(0, duties);
    cluster.run_until("the other has heard", |cluster| heard(cluster, 2, 6) == 1);
    cluster.run(300_000);
    assert_eq!(heard(&mut cluster, 1, 6), 0);
    // What was heard is told again with new duties.
    cluster.duties(2, no_duties(SHARD));
    cluster.step();
    assert_eq!(heard(&mut cluster, 2, 6), 2);
}

#[test]
fn packets_go_where_it_is_ordered() {
    let mut cluster = Cluster::new(2, 62, Faults::NONE);
    assert!(!cluster.worker(0).site.serves(SHARD));
    assert_eq!(cluster.worker(0).site.misses(SHARD), Misses::Refuse);
    let redirect =
        ShardDuties { serves_hits: true, misses: Misses::Redirect(peer_id(1)), ..no_duties(SHARD) };
    cluster.duties(0, redirect.clone());
    assert!(cluster.worker(0).site.serves(SHARD));
    assert_eq!(cluster.worker(0).site.misses(SHARD), Misses::Redirect(*address(1).ip()));
    // Nobody to redirect to: refused, until he is known again.
    cluster.order(0, Order::RemovePeer(peer_id(1)));
    cluster.duties(0, redirect);
    assert_eq!(cluster.worker(0).site.misses(SHARD), Misses::Refuse);
    assert!(cluster.worker(0).site.peers.is_empty());
    let moved = std::net::SocketAddrV4::new(Ipv4Addr::new(10, 1, 0, 99), 7473);
    cluster.order(0, Order::AddPeer { peer: peer_id(1), address: moved });
    assert_eq!(cluster.worker(0).site.misses(SHARD), Misses::Redirect(*moved.ip()));
    // A peer that is known already gets its address replaced.
    cluster.order(0, Order::AddPeer { peer: peer_id(1), address: address(1) });
    assert_eq!(cluster.worker(0).site.peers.iter().collect::<Vec<_>>(), [address(1).ip()]);
    assert_eq!(cluster.worker(0).site.misses(SHARD), Misses::Redirect(*address(1).ip()));
}

/// Touches of a lane go to its owner, whose timer they keep from ending the flow.
#[test]
fn a_flow_that_another_serves_lives_on() {
    let mut cluster = Cluster::new(2, 63, Faults::MANY);
    let plan = Plan::new(&[0, 1]);
    plan.order(&mut cluster);
    let flow = cluster.up(0, 1, 5_000).expect("room");
    let idle = cluster.up(0, 2, 5_000).expect("room");
    cluster.run_until("it is there", |cluster| cluster.flows(1) == 2);
    // UDP ends after five minutes; packets come to the other alone.
    for _ in 0..700 * 8 {
        cluster.now_us += 125_000;
        (0..8).for_each(|_| cluster.step());
        assert_eq!(cluster.up(1, 1, 5_000), Some(flow));
    }
    assert_eq!(cluster.up(0, 1, 5_000), Some(flow));
    cluster.run(100_000);
    let known = cluster.worker(1).site.flows(SHARD);
    assert!(known.contains(&flow) && !known.contains(&idle), "the idle one has ended");
}

//! Heartbeats report which nodes their sender hears.

use weir_stream::{PeerSigns, StreamOptions};

use crate::network::{Cluster, Faults, small_options};

/// Returns workers that are each on a node of their own, whose number is the worker's plus 100.
fn cluster(workers: usize) -> Cluster {
    let faults = Faults { delay_us: 200, ..Faults::default() };
    let options = StreamOptions { peers_max: workers as u16, buffers: 1024, ..small_options() };
    let mut cluster = Cluster::new(workers, 13, faults, options);
    for node in &mut cluster.nodes {
        for (number, peer) in (100..).zip(&node.peers) {
            if let Some(peer) = *peer {
                node.endpoint.set_node(peer, number);
            }
        }
    }
    cluster.run(300_000);
    cluster
}

fn signs(cluster: &Cluster, at: usize, of: usize) -> PeerSigns {
    let node = &cluster.nodes[at];
    node.endpoint.signs(node.peers[of].unwrap(), cluster.now_us).unwrap()
}

#[test]
fn a_peer_cut_off_from_one_worker_is_seen_by_a_witness() {
    let mut cluster = cluster(3);
    cluster.network.parted = vec![(0, 1)];
    cluster.run(400_000);
    let of = signs(&cluster, 1, 0);
    assert!(of.silent_ms >= 390 && of.seen_ms.is_some_and(|ms| ms <= 25), "{of:?}");
    assert!(signs(&cluster, 1, 2).is_witness);
}

#[test]
fn a_peer_heard_by_no_node_is_seen_by_no_witness() {
    let mut cluster = cluster(3);
    cluster.network.parted = vec![(0, 1), (0, 2)];
    cluster.run(400_000);
    let of = signs(&cluster, 1, 0);
    assert!(of.silent_ms >= 390 && of.seen_ms.is_some_and(|ms| ms >= 380), "{of:?}");
}

/// Sightings of the peer by itself, and of workers of its node by each other, do not count.
#[test]
fn workers_of_one_node_are_no_witnesses_of_each_other() {
    let mut cluster = cluster(3);
    for node in &mut cluster.nodes {
        if let Some(peer) = node.peers[2] {
            node.endpoint.set_node(peer, 100);
        }
    }
    cluster.run(50_000);
    cluster.network.parted = vec![(0, 1)];
    cluster.run(400_000);
    let of = signs(&cluster, 1, 0);
    assert!(of.silent_ms >= 390 && of.seen_ms.is_none_or(|ms| ms >= 380), "{of:?}");
}

#[test]
fn nodes_beyond_one_heartbeat_are_reported_in_turn() {
    let mut cluster = cluster(24);
    cluster.network.parted = (0..23).map(|other| (other, 23)).filter(|it| it.0 == 5).collect();
    cluster.run(200_000);
    let late = (0..23).filter(|&of| signs(&cluster, 23, of).seen_ms.is_none_or(|ms| ms > 50));
    assert_eq!(late.collect::<Vec<_>>(), [0; 0], "seen by others within a few heartbeats");
}

#[test]
fn a_peer_that_is_removed_takes_its_node_with_it() {
    let mut cluster = cluster(3);
    let node = &mut cluster.nodes[1];
    let (gone, kept) = (node.peers[0].unwrap(), node.peers[2].unwrap());
    node.endpoint.remove_peer(gone);
    assert_eq!(node.endpoint.signs(gone, cluster.now_us), None);
    assert!(node.endpoint.signs(kept, cluster.now_us).unwrap().seen_ms.is_some());
}

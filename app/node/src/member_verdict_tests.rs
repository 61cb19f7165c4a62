//! Tests each risk by itself, and a member without risks.

use std::net::{Ipv4Addr, SocketAddr};

use weir_admin::api::{OutsideStatus, ReplicationStatus, RouteStatus};

use super::*;

fn shard(number: u32, role: &str, others_synced: usize) -> RoleStatus {
    RoleStatus {
        shard: number,
        worker: 0,
        role: role.into(),
        term: 1,
        epoch: 1,
        members: Vec::new(),
        others_synced,
        metric: Some(7),
        since_ms: 0,
        is_route_out: true,
        is_misdirected: false,
        is_set_back: false,
        trouble: None,
    }
}

fn peer(silent_ms: u64) -> PeerStatus {
    PeerStatus {
        worker: 0,
        peer: "n2/0".into(),
        address: SocketAddr::from(([10, 9, 0, 2], 7473)),
        version: Some(1),
        silent_ms,
        lag_records: 0,
        lag_ms: 0,
        resyncs_total: 0,
        gaps_total: 0,
        sent_bytes_total: 0,
        difference: None,
    }
}

fn route(is_set: bool) -> RouteStatus {
    RouteStatus {
        worker: 0,
        side: "access".into(),
        prefix: "10.100.0.1/32".into(),
        next_hop: Ipv4Addr::new(10, 9, 0, 1).into(),
        metric: 7,
        is_set,
    }
}

fn bird(state: &str, why: &str) -> BirdSideStatus {
    let (side, state, why) = ("internet".into(), state.into(), why.into());
    BirdSideStatus { side, state, why, ..BirdSideStatus::default() }
}

#[test]
fn a_side_that_bird_does_not_announce_is_a_risk_and_an_unwatched_one_is_not() {
    let risks = |state, why| risks_of(|member| member.bird = vec![bird(state, why)]);
    assert_eq!(
        risks("down", "no BGP session is established"),
        ["BIRD is down on the internet side: no BGP session is established"]
    );
    assert_eq!(
        risks("not-exporting", "x"),
        ["BIRD does not export all routes on the internet side: x"]
    );
    assert_eq!(
        risks("unknown", "no right"),
        ["BIRD cannot be asked on the internet side: no right"]
    );
    for state in ["up", "unknown", "not-watched"] {
        assert_eq!(risks(state, ""), [""; 0]);
    }
}

/// Returns a member without risks: primary of one shard, replica of another.
fn member() -> MemberStatus {
    MemberStatus {
        cluster: "north".into(),
        replicas: 1,
        is_registered: true,
        is_map_fresh: true,
        shards: vec![shard(1, "primary", 1), shard(2, "synced", 0)],
        peers: vec![peer(20)],
        replication: vec![ReplicationStatus {
            copies: [0, 0, 8],
            lanes_awaited: 8,
            lanes_followed: 8,
            ..ReplicationStatus::default()
        }],
        routes: vec![route(true), route(true)],
        ..MemberStatus::default()
    }
}

fn risks_of(change: impl FnOnce(&mut MemberStatus)) -> Vec<String> {
    let mut member = member();
    change(&mut member);
    membership(&member).risks
}

#[test]
fn a_member_that_is_well_is_counted_and_at_no_risk() {
    let seen = membership(&member());
    assert_eq!((seen.risks.len(), seen.cluster.as_str()), (0, "north"), "{seen:?}");
    assert_eq!(seen.shards, [("primary".to_owned(), 1), ("synced".to_owned(), 1)]);
    assert_eq!((seen.copies_missing, seen.copies_awaited), (0, 0));
    assert_eq!((seen.peers, seen.peers_silent), (1, 0));
    assert_eq!((seen.routes, seen.routes_not_set), (2, 0));
    assert!(troubles(&member()).is_empty());
}

#[test]
fn every_risk_is_named() {
    let bare = risks_of(|member| member.shards.push(shard(7, "acting", 0)));
    assert_eq!(bare, ["shard 7: served here, and no other member has a synced copy"]);
    let set_back = risks_of(|member| {
        member.shards.iter_mut().for_each(|shard| shard.is_set_back = true);
    });
    assert_eq!(set_back, ["shards 1 2: etcd was set back and has forgotten what was seen here"]);
    let unknown = risks_of(|member| member.is_registered = false);
    assert_eq!(unknown, ["not registered in etcd: the cluster counts this node as gone"]);
    let outside = |shards: &[u32], other_cluster: Option<&str>| {
        risks_of(|member| {
            let other_cluster = other_cluster.map(str::to_owned);
            member.is_registered = false;
            member.without_etcd = Some(OutsideStatus { shards: shards.to_vec(), other_cluster });
        })
    };
    assert_eq!(
        outside(&[1, 7], None),
        [
            "started without etcd: of shards 1 7, which its disk names it for, it translates what other members \
             give it and makes no new flows until etcd answers"
        ]
    );
    assert_eq!(outside(&[], None), ["started without etcd: it serves nothing until etcd answers"]);
    assert_eq!(
        outside(&[], Some("c2")),
        [
            "started without etcd: it serves nothing until it is restarted: etcd holds another cluster than the \
          node knows, of the id c2"
        ]
    );
    let refused = risks_of(|member| member.etcd_error = Some("connection refused".into()));
    assert_eq!(refused, ["etcd does not answer: connection refused"]);
    assert_eq!(risks_of(|member| member.etcd_silent_ms = 9_999), [""; 0]);
    let silent = risks_of(|member| member.etcd_silent_ms = 12_000);
    assert_eq!(silent, ["etcd has been silent for 12 s"]);
    let keys = risks_of(|member| member.key_file_error = Some("k: chmod 600 k".into()));
    assert_eq!(keys, ["the cluster keys are those of before: k: chmod 600 k"]);
    let full = risks_of(|member| member.epochs_error = Some("no storage space".into()));
    assert_eq!(full, ["epochs are not kept: no storage space"]);
    assert_eq!(risks_of(|member| member.epochs_unsaved_ms = 4_999), [""; 0]);
    let still = risks_of(|member| member.epochs_unsaved_ms = 7_000);
    assert_eq!(still, ["epochs are not kept: the disk has taken nothing for 7 s"]);
    let stopped = risks_of(|member| member.guard_trouble = Some("stands still".into()));
    assert_eq!(stopped, ["the guard of the routes stands still"]);
    let risks = risks_of(|member| member.peers.push(peer(3_500)));
    assert_eq!(risks, ["not heard: n2/0 for 3 s (by worker 0)"]);
    let unset = risks_of(|member| member.routes.push(route(false)));
    assert_eq!(unset, ["1 of 3 routes are not set in the kernel: `weir routes`"]);
    let unmade = risks_of(|member| member.shards[0].is_route_out = false);
    assert_eq!(unmade, ["shard 1: its routes are not out as wanted: `weir routes`"]);
}

#[test]
fn a_cluster_without_copies_misses_none() {
    let risks = risks_of(|member| {
        member.replicas = 0;
        member.shards[0].others_synced = 0;
    });
    assert_eq!(risks, [""; 0]);
}

#[test]
fn unfinished_copies_and_unset_routes_are_counted() {
    let mut member = member();
    member.replication[0].copies = [3, 2, 8];
    member.replication[0].lanes_followed = 1;
    member.peers.push(peer(1_000));
    member.routes[0].is_set = false;
    let seen = membership(&member);
    assert_eq!((seen.copies_missing, seen.copies_awaited), (5, 7));
    assert_eq!((seen.peers_silent, seen.routes_not_set), (1, 1));
}

#[test]
fn many_shards_are_one_sentence() {
    let bare = risks_of(|member| member.shards.extend((10..40).map(|id| shard(id, "primary", 0))));
    assert_eq!(bare.len(), 1);
    assert!(bare[0].starts_with("shards 10 11 12 13 14 15 16 17 18 19 and 20 more: "), "{bare:?}");
    let mut member = member();
    for shard in &mut member.shards {
        shard.trouble = Some("the cluster's file has changed".into());
    }
    member.shards.push(RoleStatus { trouble: Some("no room".into()), ..shard(9, "syncing", 1) });
    member.shards.push(RoleStatus {
        trouble: Some("set back".into()),
        is_set_back: true,
        ..shard(8, "synced", 1)
    });
    let troubles = troubles(&member);
    assert_eq!(troubles, ["shards 1 2: the cluster's file has changed", "shard 9: no room"]);
}

#[test]
fn a_worker_whose_routes_are_held_off_is_a_risk_and_named() {
    let held_off = vec![HeldOffStatus { worker: 3, shards: 2, left_ms: 3_100 }];
    let risks = risks_of(|member| member.held_off = held_off);
    let expected = "worker 3 stands still again and again: its routes are held off for 4 s";
    assert_eq!(risks, [expected]);
}

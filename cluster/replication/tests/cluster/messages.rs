//! Announcements and redirects, and events that a repeated command brings again.

use std::net::SocketAddrV4;

use weir_engine::{DropReason, Side};
use weir_map::{LaneSet, ShardId, Term};
use weir_replication::command::{Misses, ShardDuties};
use weir_replication::{WorkerCommand, WorkerEvent};
use weir_stream::BootId;
use weir_wire::build;

use crate::cluster::{Cluster, no_duties};
use crate::member::{SHARD, address, peer_id};
use crate::network::{Datagram, Faults};
use crate::plan::Plan;

fn announcements(cluster: &mut Cluster, worker: usize, term: u32) -> usize {
    let announced = WorkerEvent::Announced { shard: ShardId(SHARD), term: Term(term) };
    cluster.worker(worker).events.iter().filter(|&event| *event == announced).count()
}

fn announcing(cluster: &mut Cluster, term: u32, to: &[(usize, BootId)]) -> ShardDuties {
    let duties = Plan::new(&[0, 1, 2]).duties(cluster, 0);
    let to = to.iter().map(|&(worker, boot)| (peer_id(worker), boot)).collect();
    ShardDuties { announced: Some((Term(term), to)), ..duties }
}

/// Each named peer gets the announcement, once, in the incarnation that is named.
#[test]
fn an_announcement_is_heard_once() {
    let mut cluster = Cluster::new(3, 61, Faults::MANY);
    let boots = [1, 2].map(|worker| (worker, cluster.boot(worker)));
    let duties = announcing(&mut cluster, 5, &boots);
    cluster.duties(0, duties.clone());
    cluster.run_until("both have heard", |cluster| {
        (1..3).all(|worker| announcements(cluster, worker, 5) > 0)
    });
    cluster.run(1_000_000);
    cluster.duties(0, duties);
    cluster.run(1_000_000);
    assert_eq!([1, 2].map(|worker| announcements(&mut cluster, worker, 5)), [1, 1]);
    // Another incarnation of the first peer is not meant, the second peer gets it.
    let duties = announcing(&mut cluster, 6, &[(1, BootId(9)), boots[1]]);
    cluster.duties(0, duties);
    cluster.run_until("the other has heard", |cluster| announcements(cluster, 2, 6) == 1);
    cluster.run(300_000);
    assert_eq!(announcements(&mut cluster, 1, 6), 0);
    // New duties bring the same event again.
    cluster.duties(2, no_duties(SHARD));
    cluster.step();
    assert_eq!(announcements(&mut cluster, 2, 6), 2);
}

/// Returns the fate of a packet without a mapping: it opens a flow, goes to another worker, or is
/// dropped.
fn goes(cluster: &mut Cluster, port: u16) -> Result<Option<SocketAddrV4>, DropReason> {
    let reasons = DropReason::ALL.iter();
    let before: Vec<u64> = reasons.map(|&reason| cluster.worker(0).dropped(reason)).collect();
    if cluster.up(0, 1, port).is_some() {
        return Ok(None);
    }
    for (&reason, before) in DropReason::ALL.iter().zip(before) {
        if cluster.worker(0).dropped(reason) > before {
            return Err(reason);
        }
    }
    let sent = std::iter::from_fn(|| cluster.network.arrived(u64::MAX));
    let to: Vec<_> = sent.filter(Datagram::is_redirect).map(|datagram| datagram.to).collect();
    assert_eq!(to.len(), 1, "the packet goes to one worker");
    Ok(Some(to[0]))
}

#[test]
fn packets_without_a_mapping_go_where_the_duties_say() {
    let mut cluster = Cluster::new(3, 62, Faults::NONE);
    cluster.kill(2);
    cluster.run(300_000);
    assert_eq!(goes(&mut cluster, 5_000), Err(DropReason::NotServing));
    let refuse = ShardDuties { serves_hits: true, ..no_duties(SHARD) };
    cluster.duties(0, refuse);
    assert_eq!(goes(&mut cluster, 5_000), Err(DropReason::MissRefused));
    let redirect =
        ShardDuties { serves_hits: true, misses: Misses::Redirect(peer_id(1)), ..no_duties(SHARD) };
    cluster.duties(0, redirect.clone());
    assert_eq!(goes(&mut cluster, 5_000), Ok(Some(address(1))));
    // Without a peer to redirect to, packets are refused until the peer is known again. Its
    // datagrams are a stranger's.
    cluster.order(0, WorkerCommand::RemovePeer(peer_id(1)));
    cluster.duties(0, redirect);
    assert_eq!(goes(&mut cluster, 5_000), Err(DropReason::MissRefused));
    let before = cluster.worker(0).dropped(DropReason::NotPeer);
    cluster.run(100_000);
    assert!(cluster.worker(0).dropped(DropReason::NotPeer) > before);
    // The peer comes back at another address, and then at the former one: a known peer's address is
    // replaced.
    cluster.order(0, WorkerCommand::RemovePeer(peer_id(2)));
    for member in [2, 1] {
        cluster.kill(3 - member);
        cluster.start_as(member, peer_id(1));
        cluster.order(0, WorkerCommand::AddPeer { peer: peer_id(1), address: address(member) });
        assert_eq!(goes(&mut cluster, 5_000), Err(DropReason::PeerNoSession));
        cluster.run(1_000_000);
        assert_eq!(goes(&mut cluster, 5_000), Ok(Some(address(member))));
        let before = cluster.worker(0).dropped(DropReason::NotPeer);
        let packet = build::ipv4(address(3 - member).ip().to_bits(), address(0).ip().to_bits());
        let packet = packet.udp(address(0).port(), address(0).port(), b"from where it was");
        cluster.worker(0).packets(Side::Access, vec![packet]);
        cluster.turn(0);
        assert_eq!(cluster.worker(0).dropped(DropReason::NotPeer), before + 1);
    }
    let create = ShardDuties {
        lanes: LaneSet::ALL,
        misses: Misses::Create,
        serves_hits: true,
        ..no_duties(SHARD)
    };
    cluster.duties(0, create);
    assert_eq!(goes(&mut cluster, 5_000), Ok(None));
}

/// Owner updates keep the owner's timer from ending the flow.
#[test]
fn a_flow_served_by_a_replica_stays_alive_at_its_owner() {
    let mut cluster = Cluster::new(2, 63, Faults::MANY);
    let plan = Plan::new(&[0, 1]);
    plan.order(&mut cluster);
    let flow = cluster.up(0, 1, 5_000).expect("the NAT has room for the flow");
    let idle = cluster.up(0, 2, 5_000).expect("the NAT has room for the flow");
    cluster.run_until("it is there", |cluster| cluster.flows(1) == 2);
    // UDP flows end after five minutes; packets come to the other worker alone.
    for _ in 0..700 * 8 {
        cluster.now_us += 125_000;
        (0..8).for_each(|_| cluster.step());
        assert_eq!(cluster.up(1, 1, 5_000), Some(flow));
    }
    assert_eq!(cluster.up(0, 1, 5_000), Some(flow));
    cluster.run(100_000);
    let known = cluster.worker(1).flows();
    assert!(known.contains(&flow) && !known.contains(&idle), "the idle one has ended");
}

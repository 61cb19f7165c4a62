//! Flows of another worker that were copied here: a burst that uses them is translated at once.

use weir_engine::{DropReason, Side};
use weir_nat::{BODY_MAX, ShardIndex, Tick};
use weir_wire::build;
use weir_wire::frame::VecFrame;
use weir_wire::tcp::{ACK, SYN};

use crate::world::*;

const SHARD: ShardIndex = ShardIndex(0);

fn worker(lanes: u8) -> World {
    let mut config = config();
    config.nat.replicas = 1;
    let mut world = World::new(config);
    world.engine.nat_mut().replica_mut().set_owned_lanes(SHARD, lanes, Tick(1));
    world.engine.nat_mut().replica_mut().set_replicated_lanes(SHARD, 0xff);
    world
}

fn packet(port: u16, flags: Option<u8>) -> Vec<u8> {
    let head = build::ipv4(PC, SERVER).ttl(64);
    match flags {
        Some(flags) => head.tcp(build::tcp(port, 443).flags(flags)),
        None => head.udp(port, 443, b"query"),
    }
}

fn up(world: &mut World, packets: &[Vec<u8>]) -> Vec<(u32, u16, u32, u16)> {
    let frames = packets.iter().map(|inner| {
        let outer = build::ipv4(HOME_A, ENDPOINT).gre(build::gre(), inner);
        let frame = build::ethernet(worker_mac(Side::Access), gateway_mac(Side::Access), &outer);
        VecFrame::new(&frame)
    });
    let frames = frames.collect();
    let sent = world.frames(Side::Access, frames).internet;
    sent.iter().map(|packet| ends(packet)).collect()
}

/// TCP in the middle of its connection and UDP, the first packets that this worker sees, in one
/// burst with new flows.
#[test]
fn burst_uses_flows_that_were_copied_from_another_worker() {
    let (mut primary, mut replica) = (worker(0x7f), worker(0x80));
    let opening: Vec<_> = (0..20).map(|n| packet(5000 + n, (n % 2 == 0).then_some(SYN))).collect();
    let given = up(&mut primary, &opening);
    assert_eq!(given.len(), 20);
    let mut body = [0; BODY_MAX];
    while let Some((change, len)) = primary.engine.nat_mut().replica_mut().next_change(&mut body) {
        replica.engine.nat_mut().replica_mut().apply(&change, &body[..len], Tick(1));
    }
    let mut later: Vec<_> =
        (0..20).map(|n| packet(5000 + n, (n % 2 == 0).then_some(ACK))).collect();
    later.push(packet(6000, None));
    later.push(packet(6001, Some(ACK)));
    let sent = up(&mut replica, &later);
    assert_eq!(sent[..20], given, "as the primary translates them");
    assert_eq!(sent.len(), 21, "a new flow, and a stray segment that opens none");
    assert_eq!(replica.dropped(DropReason::TcpNotSyn), 1);
    assert_eq!(replica.engine.nat().admin().gauges().flows, 21);
}

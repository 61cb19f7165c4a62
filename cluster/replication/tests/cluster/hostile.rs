//! Datagrams of strangers, and of a peer that has the key and sends nonsense.

use std::net::SocketAddr;
use std::ops::Range;

use bolero::check;
use weir_stream::{
    CopyRoom, Fingerprint, Identity, Lane, Lineage, Origin, Provenance, RecordKind, ShardId, Sink,
    Source, StreamEndpoint, StreamRecord, Transmit,
};

use crate::cluster::{Cluster, options};
use crate::member::{SHARD, address, keys, peer_id};
use crate::network::{Faults, Random};
use crate::plan::Plan;

/// Datagrams from a peer's address or a stranger's, with a header or without, change nothing.
#[test]
fn forgeries_change_nothing() {
    let mut cluster = Cluster::new(2, 71, Faults::NONE);
    let plan = Plan::new(&[0, 1]);
    plan.order(&mut cluster);
    cluster.up(0, 1, 5_000);
    cluster.run_until("both have copies", |cluster| (0..2).all(|one| cluster.is_done(one)));
    let flows = cluster.worker(1).flows();
    let now_us = cluster.now_us;
    // Passes the engine by, so that each refusal is seen.
    let worker = std::panic::AssertUnwindSafe(std::cell::RefCell::new(cluster.worker(1)));
    check!().for_each(|bytes: &[u8]| {
        let mut worker = worker.borrow_mut();
        let sender = peer_id(0).0.to_be_bytes();
        for kind in [1, 2, 3, 0x82] {
            let mut datagram = [&[0x77, 0x52, 1, kind, 0, 0, 0, 0], &sender[..], bytes].concat();
            for (from, head) in [(address(0), 0), (address(0), 16), (address(7), 0)] {
                assert!(worker.receive(from, &mut datagram[head..], now_us).is_err());
            }
        }
    });
    cluster.run(100_000);
    assert!(cluster.is_done(1));
    assert_eq!(cluster.worker(1).flows(), flows);
}

/// A source without records that copies nonsense.
struct Mad {
    random: Random,
}

impl Mad {
    fn record<'a>(
        &mut self,
        shard: ShardId,
        lane: Lane,
        body: &'a mut [u8; 60],
    ) -> StreamRecord<'a> {
        let kinds = RecordKind::ALL;
        let kind = kinds[self.random.below(kinds.len() as u64) as usize];
        // A record that ends its copy is rare: few records behind it would make sense.
        let is_end = kind == RecordKind::Lineage && self.random.below(1_000) > 0;
        let kind = if is_end { RecordKind::Create } else { kind };
        for byte in body.iter_mut() {
            *byte = self.random.next() as u8;
        }
        let sane = self.random.below(4);
        if sane > 0 {
            // A roughly plausible mapping of the shard.
            (body[0], body[1], body[2], body[3]) = (1, 35, 1 + (body[2] & 1), 17);
            body[5..8].copy_from_slice(&[10, 200, 0]);
            body[19..22].copy_from_slice(&[203, 0, 113]);
            body[22] = 48 + body[22] % 16;
            // A port of a block of 64 in the lane, or in another.
            let is_right = self.random.below(8) > 0;
            let port = 1_024 + u16::from(body[23]) * 16 % 60_000;
            let port = if is_right { port & !0x1c0 | u16::from(lane.number()) << 6 } else { port };
            body[23..25].copy_from_slice(&port.to_be_bytes());
        }
        let length = if sane > 1 { 37 } else { self.random.below(60) as usize };
        let slots = [4, 3_000, u32::MAX][self.random.below(3) as usize];
        let slot = self.random.below(u64::from(slots)) as u32;
        let version = [self.random.below(8), self.random.next()][self.random.below(2) as usize];
        StreamRecord { kind, shard, slot, version: version as u32, body: &body[..length] }
    }
}

impl Source for Mad {
    fn lineage(&self, _: ShardId, lane: Lane) -> Lineage {
        let mut random = self.random.clone();
        let now = if random.below(4) > 0 { 9 } else { u64::from(lane.number()) };
        let words = [Provenance::Writer, Provenance::Relay, Provenance::PartialRelay];
        let provenance = words[random.below(3) as usize];
        Lineage { now, before: random.below(10), provenance }
    }

    fn slots(&self, _: ShardId, _: Lane) -> u32 {
        1_000
    }

    fn walk(
        &mut self,
        shard: ShardId,
        lane: Lane,
        slots: Range<u32>,
        _: u32,
        room: &mut CopyRoom<'_>,
    ) -> u32 {
        for _ in 0..20 {
            room.add(&self.record(shard, lane, &mut [0; 60]));
        }
        if slots.start > 100 { slots.end } else { slots.start + 20 }
    }

    fn sum(&self, _: ShardId, _: Lane, _: Range<u32>) -> u64 {
        self.random.clone().next()
    }
}

impl Sink for Mad {
    fn room(&self) -> usize {
        1_000
    }
    fn apply(&mut self, _: Origin, _: &[StreamRecord<'_>]) {}
    fn stream_reset(&mut self, _: Origin) {}
    fn copy_started(&mut self, _: Origin, _: ShardId, _: u32, _: Lineage) {}
    fn copy_finished(&mut self, _: Origin, _: ShardId) {}
    fn copy_stopped(&mut self, _: Origin, _: ShardId) {}
    fn sum(&self, _: Origin, _: ShardId, _: Range<u32>) -> u64 {
        0
    }
}

/// Datagrams to the one sane worker.
struct Wire(Vec<Vec<u8>>);

impl Transmit for Wire {
    fn send(&mut self, _: SocketAddr, datagram: &[u8]) -> bool {
        self.0.push(datagram.to_vec());
        true
    }
}

/// A peer with the right key sends arbitrary records. They change no lane of ours, and the worker
/// goes on.
#[test]
fn a_mad_peer_does_no_harm() {
    for seed in 0..6 {
        let mut cluster = Cluster::new(2, 80 + seed, Faults::NONE);
        let mut plan = Plan::new(&[0, 1]);
        plan.lanes[..4].iter_mut().for_each(|lane| lane.owner = 1);
        plan.order(&mut cluster);
        for home in 0..100 {
            cluster.up(0, home, 5_000);
        }
        let own = cluster.worker(0).flows();
        cluster.kill(1);
        let mut mad = Mad { random: Random(seed) };
        let boot = cluster.boot(0);
        let identity = Identity { worker: peer_id(1), boot, secret: [7; 32] };
        let fingerprint = Fingerprint::default();
        let mut endpoint = StreamEndpoint::new(options(), identity, fingerprint, keys()).unwrap();
        let peer = endpoint.add_peer(peer_id(0), address(0).into(), cluster.now_us).unwrap();
        for lane in Lane::ALL {
            for shard in [SHARD, 77] {
                endpoint.start_copy(peer, boot, ShardId(shard), lane);
            }
        }
        for turn in 0..8_000_u64 {
            cluster.now_us += 250;
            let now_us = cluster.now_us;
            let lane = Lane::ALL[(turn % 8) as usize];
            let shard = ShardId(if turn % 9 == 0 { 77 } else { SHARD });
            let mut body = [0; 60];
            endpoint.append(&[peer], lane, &mad.record(shard, lane, &mut body), now_us);
            let mut wire = Wire(Vec::new());
            endpoint.poll(now_us, &mut mad, &mut wire);
            wire.0.iter().for_each(|datagram| cluster.worker(0).datagram(address(1), datagram));
            cluster.turn(0);
            while let Some(mut back) = cluster.network.arrived(u64::MAX) {
                let _ = endpoint.receive(back.from.into(), &mut back.bytes, now_us, &mut mad);
            }
        }
        let applied =
            cluster.worker(0).engine().nat().admin().mirror_gauges().changes_applied_total;
        // Half of them have a state that only a redirected flow has, and not what its home asked.
        assert!(applied > 50, "{applied} of its records made sense");
        let flows = cluster.worker(0).flows();
        assert!(flows.is_superset(&own), "the worker's own flows stay");
        // Whatever the peer has sent of its lane, a worker that takes the lane over can use it.
        let alone = Plan::new(&[0]);
        alone.order(&mut cluster);
        for home in 0..100 {
            cluster.up(0, home, 6_000).expect("room");
        }
    }
}

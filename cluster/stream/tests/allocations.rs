//! Nothing is allocated per record or datagram: appending, sending, receiving, copying, sending
//! again.

use std::net::SocketAddr;
use std::ops::Range;

use allocation_counter::measure;
use weir_stream::{
    BootId, ClusterKeys, CopyRoom, DATAGRAM_MAX, Fingerprint, Identity, Lane, Lineage, Origin,
    PeerId, PeerIndex, RecordKind, ShardId, Sink, Source, StreamEndpoint, StreamOptions,
    StreamRecord, Transmit,
};

/// A slab of 10,000 equal records to copy from; counts what is applied.
#[derive(Default)]
struct Table {
    applied: u64,
}

const SLOTS: u32 = 10_000;
const BODY: [u8; 50] = [7; 50];

fn record(slot: u32) -> StreamRecord<'static> {
    StreamRecord { kind: RecordKind::Create, shard: ShardId(1), slot, version: 1, body: &BODY }
}

impl Source for Table {
    fn lineage(&self, _: ShardId, _: Lane) -> Lineage {
        Lineage::default()
    }
    fn slots(&self, _: ShardId, _: Lane) -> u32 {
        SLOTS
    }
    fn walk(
        &mut self,
        _: ShardId,
        _: Lane,
        slots: Range<u32>,
        budget: u32,
        room: &mut CopyRoom<'_>,
    ) -> u32 {
        let last = slots.start.saturating_add(budget).min(SLOTS);
        let stopped = (slots.start..last).find(|&slot| !room.add(&record(slot)));
        stopped.unwrap_or(if last == SLOTS { slots.end } else { last })
    }
    fn sum(&self, _: ShardId, _: Lane, _: Range<u32>) -> u64 {
        0
    }
}

impl Sink for Table {
    fn room(&self) -> usize {
        100_000
    }
    fn apply(&mut self, _: Origin, records: &[StreamRecord<'_>]) {
        self.applied += records.len() as u64;
    }
    fn stream_reset(&mut self, _: Origin) {}
    fn copy_started(&mut self, _: Origin, _: ShardId, _: u32, _: Lineage) {}
    fn copy_finished(&mut self, _: Origin, _: ShardId) {}
    fn copy_stopped(&mut self, _: Origin, _: ShardId) {}
    fn sum(&self, _: Origin, _: ShardId, _: Range<u32>) -> u64 {
        0
    }
}

/// Datagrams on their way, in buffers allocated before; each seventh is lost.
struct Wire {
    datagrams: Vec<([u8; DATAGRAM_MAX], usize)>,
    count: usize,
    sent: u64,
}

impl Transmit for Wire {
    fn send(&mut self, _: SocketAddr, datagram: &[u8]) -> bool {
        self.sent += 1;
        if !self.sent.is_multiple_of(7) && self.count < self.datagrams.len() {
            let (bytes, length) = &mut self.datagrams[self.count];
            bytes[..datagram.len()].copy_from_slice(datagram);
            *length = datagram.len();
            self.count += 1;
        }
        true
    }
}

fn address(worker: u64) -> SocketAddr {
    SocketAddr::from(([10, 9, 0, worker as u8], 4789))
}

fn endpoint(worker: u64, peer: u64) -> (StreamEndpoint, PeerIndex) {
    let identity = Identity {
        worker: PeerId(worker),
        boot: BootId(worker.into()),
        secret: [worker as u8; 32],
    };
    let keys = ClusterKeys::parse(&"1f".repeat(32)).unwrap();
    let mut endpoint =
        StreamEndpoint::new(StreamOptions::default(), identity, Fingerprint::default(), keys)
            .unwrap();
    let peer = endpoint.add_peer(PeerId(peer), address(peer), 0).unwrap();
    (endpoint, peer)
}

#[test]
fn streams_allocate_nothing_per_datagram() {
    let ((mut owner, replica), (mut other, _)) = (endpoint(1, 2), endpoint(2, 1));
    let (mut source, mut sink) = (Table::default(), Table::default());
    let wire = || Wire { datagrams: vec![([0; DATAGRAM_MAX], 0); 256], count: 0, sent: 0 };
    let (mut there, mut back) = (wire(), wire());
    let mut now_us = 0;
    let mut turn = |owner: &mut StreamEndpoint, sink: &mut Table| {
        now_us += 250;
        owner.poll(now_us, &mut source, &mut there);
        for (bytes, length) in &mut there.datagrams[..there.count] {
            let _ = other.receive(address(1), &mut bytes[..*length], now_us, sink);
        }
        there.count = 0;
        other.poll(now_us, sink, &mut back);
        for (bytes, length) in &mut back.datagrams[..back.count] {
            let _ = owner.receive(address(2), &mut bytes[..*length], now_us, &mut source);
        }
        back.count = 0;
        now_us
    };
    let lane = Lane::ALL[3];
    let mut turns = 0;
    while !owner.is_open(replica, lane) {
        turn(&mut owner, &mut sink);
        turns += 1;
        assert!(turns < 10_000);
    }
    owner.start_copy(replica, BootId(2), ShardId(1), lane).unwrap();
    let allocations = measure(|| {
        for _ in 0..2_000 {
            let now_us = turn(&mut owner, &mut sink);
            for slot in 0..20 {
                owner.append(&[replica], lane, &record(slot), now_us);
            }
        }
    });
    let counters = owner.peer_status(replica, 0).unwrap().counters;
    assert!(sink.applied >= 45_000 && counters.retransmissions > 50, "{counters:?}");
    assert_eq!(counters.resyncs, 0);
    assert_eq!(allocations.count_total, 0);
}

//! Two NATs that share a shard: the cost of a new flow's change in the journal, and of applying it
//! as a copy.

use std::hint::black_box;

use weir_nat::{
    BODY_MAX, ChangeKind, Endpoint, Home, Nat, NatConfig, NatShardConfig, Outbound, Protocol,
    ShardId, ShardIndex, SlotChange, Tick,
};

const FLOWS: u32 = 1000;
const BURST: usize = 32;
const HOMES: u32 = 100;
const NOW: Tick = Tick(1000);
const SHARD: ShardIndex = ShardIndex(0);
/// Lanes of the primary, seven of them; the eighth is the replica's reserve lane.
const PRIMARY: u8 = 0x7f;

/// A change with its body, as sent to a replica.
#[derive(Clone)]
struct SentChange {
    change: SlotChange,
    body: [u8; BODY_MAX],
    len: usize,
}

impl SentChange {
    const EMPTY: Self = Self {
        change: SlotChange { kind: ChangeKind::Delete, shard: SHARD, lane: 0, slot: 0, version: 0 },
        body: [0; BODY_MAX],
        len: 0,
    };
}

/// Takes all changes from the journal; counted like
/// [`measured_burst`](crate::world::measured_burst).
#[inline(never)]
fn measured_burst_sent(nat: &mut Nat, sent: &mut [SentChange]) {
    for place in sent.iter_mut() {
        let Some((change, len)) = nat.replica_mut().next_change(&mut place.body) else { break };
        (place.change, place.len) = (change, len);
    }
    black_box(sent.len());
}

/// Applies the changes of a datagram, which is of one lane; counted like
/// [`measured_burst`](crate::world::measured_burst).
#[inline(never)]
fn measured_burst_applied(nat: &mut Nat, lane: u8, sent: &[SentChange]) {
    nat.replica_mut().apply_burst(
        (SHARD, lane),
        sent.iter().map(|it| (it.change.in_lane(), &it.body[..it.len])),
        false,
        NOW,
    );
}

fn nat(lanes: u8) -> Nat {
    let net = |text: &str| text.parse().expect("a prefix");
    let mut nat = Nat::new(NatConfig {
        flows_max: 4096,
        subscribers: vec![net("10.200.0.0/16")],
        shards: vec![NatShardConfig {
            id: ShardId(1),
            public: vec![net("203.0.113.0/29")],
            public6: Vec::new(),
            subscribers_max: 256,
        }],
        replicas: 1,
        seed: [1, 2, 3, 4],
        ..NatConfig::default()
    })
    .expect("the configuration is valid");
    nat.replica_mut().set_owned_lanes(SHARD, lanes, NOW);
    nat.replica_mut().set_replicated_lanes(SHARD, 0xff);
    nat
}

/// Opens a burst of UDP flows.
fn open(nat: &mut Nat, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let outer = u32::from_be_bytes([10, 200, 0, 0]) + number * 613 % FLOWS % HOMES;
        let home = Home { shard: SHARD, outer, gre_key: None };
        let inside = Endpoint::new(u32::from_be_bytes([192, 168, 1, 10]), 10_000 + number as u16);
        let remote = Endpoint::new(u32::from_be_bytes([198, 51, 100, 1]) + number % 7, 443);
        let packet = Outbound { home, inside, remote, protocol: Protocol::Udp, tcp_flags: 0 };
        let hash = nat.outbound_hash(&home, inside, Protocol::Udp);
        nat.outbound(hash, &packet, NOW).expect("there is room");
    }
}

fn bursts() -> impl Iterator<Item = std::ops::Range<u32>> {
    (0..FLOWS).step_by(BURST).map(|first| first..(first + BURST as u32).min(FLOWS))
}

/// Measures reading the journal and writing the bodies; marking the changed records is part of
/// `replica-open`.
pub(crate) fn journal() -> usize {
    let mut primary = nat(PRIMARY);
    let mut sent = vec![SentChange::EMPTY; FLOWS as usize];
    let mut places = &mut sent[..];
    for burst in bursts() {
        let (own, behind) = places.split_at_mut(burst.len());
        open(&mut primary, burst);
        measured_burst_sent(&mut primary, own);
        places = behind;
    }
    assert!(sent.iter().all(|sent| sent.len > 0), "each flow is one change");
    sent.len()
}

pub(crate) fn apply() -> usize {
    let (mut primary, mut replica) = (nat(PRIMARY), nat(!PRIMARY));
    let mut sent = Vec::with_capacity(FLOWS as usize);
    open(&mut primary, 0..FLOWS);
    send_uncounted(&mut primary, &mut sent);
    sent.sort_by_key(|sent| sent.change.lane);
    for of_lane in sent.chunk_by(|one, next| one.change.lane == next.change.lane) {
        for burst in of_lane.chunks(BURST) {
            measured_burst_applied(&mut replica, burst[0].change.lane, burst);
        }
    }
    assert_eq!(replica.admin().gauges().flows, FLOWS, "the replica holds every flow");
    sent.len()
}

/// Takes the journal of all flows, not counted.
fn send_uncounted(nat: &mut Nat, sent: &mut Vec<SentChange>) {
    let mut body = [0; BODY_MAX];
    while let Some((change, len)) = nat.replica_mut().next_change(&mut body) {
        sent.push(SentChange { change, body, len });
    }
}

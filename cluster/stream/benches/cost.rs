//! The cost of replication: nanoseconds per record and per datagram, at the sender and at the
//! receiver.
//!
//! `cargo bench -p weir-stream`: two endpoints exchange datagrams in memory, in bursts of a turn;
//! the sink only counts. Each figure is the best of some rounds, since the machine's other load
//! only adds.

use std::net::SocketAddr;
use std::ops::Range;
use std::time::{Duration, Instant};

use weir_stream::{
    BootId, ClusterKeys, CopyRoom, DATAGRAM_MAX, Fingerprint, Identity, Lane, Lineage, Origin,
    PeerId, PeerIndex, RecordKind, ShardId, Sink, Source, StreamEndpoint, StreamOptions,
    StreamRecord, Transmit,
};

const ROUNDS: usize = 9;
const BURSTS: u64 = 2_000;
/// Records appended in a turn: some 40 full datagrams.
const RECORDS: u32 = 800;
const BODY: [u8; 50] = [7; 50];

struct Counting {
    applied: u64,
    versions: u64,
}

impl Source for Counting {
    fn lineage(&self, _: ShardId, _: Lane) -> Lineage {
        Lineage::default()
    }
    fn slots(&self, _: ShardId, _: Lane) -> u32 {
        0
    }
    fn walk(
        &mut self,
        _: ShardId,
        _: Lane,
        slots: Range<u32>,
        _: u32,
        _: &mut CopyRoom<'_>,
    ) -> u32 {
        slots.end
    }
    fn sum(&self, _: ShardId, _: Lane, _: Range<u32>) -> u64 {
        0
    }
}

impl Sink for Counting {
    fn room(&self) -> usize {
        1 << 20
    }
    fn apply(&mut self, _: Origin, records: &[StreamRecord<'_>]) {
        self.applied += records.len() as u64;
        self.versions += records.iter().map(|record| u64::from(record.version)).sum::<u64>();
    }
    fn stream_reset(&mut self, _: Origin) {}
    fn copy_started(&mut self, _: Origin, _: ShardId, _: u32, _: Lineage) {}
    fn copy_finished(&mut self, _: Origin, _: ShardId) {}
    fn copy_stopped(&mut self, _: Origin, _: ShardId) {}
    fn sum(&self, _: Origin, _: ShardId, _: Range<u32>) -> u64 {
        0
    }
}

struct Wire {
    datagrams: Vec<([u8; DATAGRAM_MAX], usize)>,
    count: usize,
}

impl Wire {
    fn new() -> Self {
        Self { datagrams: vec![([0; DATAGRAM_MAX], 0); 256], count: 0 }
    }
}

impl Transmit for Wire {
    fn send(&mut self, _: SocketAddr, datagram: &[u8]) -> bool {
        let (bytes, length) = &mut self.datagrams[self.count];
        bytes[..datagram.len()].copy_from_slice(datagram);
        *length = datagram.len();
        self.count += 1;
        true
    }
}

fn address(worker: u64) -> SocketAddr {
    SocketAddr::from(([10, 9, 0, worker as u8], 4789))
}

struct Pair {
    owner: StreamEndpoint,
    replica: StreamEndpoint,
    peer: PeerIndex,
    now_us: u64,
    there: Wire,
    back: Wire,
    world: Counting,
}

/// Time spent by the parts of a turn.
#[derive(Clone, Copy, Default)]
struct Spent {
    append: Duration,
    send: Duration,
    receive: Duration,
    answer: Duration,
    acknowledge: Duration,
    datagrams: u64,
}

fn endpoint(worker: u64, peer: u64, is_encrypted: bool) -> (StreamEndpoint, PeerIndex) {
    let secret = [worker as u8; 32];
    let identity = Identity { worker: PeerId(worker), boot: BootId(worker.into()), secret };
    let keys = ClusterKeys::parse(&"1f".repeat(32)).expect("a key");
    let options = StreamOptions { is_encrypted, ..StreamOptions::default() };
    let mut endpoint =
        StreamEndpoint::new(options, identity, Fingerprint::default(), keys).expect("good options");
    let peer = endpoint.add_peer(PeerId(peer), address(peer), 0).expect("room for a peer");
    (endpoint, peer)
}

impl Pair {
    fn new(is_encrypted: bool) -> Self {
        let (owner, peer) = endpoint(1, 2, is_encrypted);
        let (replica, _) = endpoint(2, 1, is_encrypted);
        let world = Counting { applied: 0, versions: 0 };
        let mut pair =
            Self { owner, replica, peer, now_us: 0, there: Wire::new(), back: Wire::new(), world };
        while !pair.owner.is_open(peer, Lane::ALL[0]) {
            pair.turn(0, &mut Spent::default());
        }
        pair
    }

    fn turn(&mut self, records: u32, spent: &mut Spent) {
        self.now_us += 100;
        let Self { owner, replica, peer, now_us, there, back, world } = self;
        let start = Instant::now();
        for slot in 0..records {
            let record = StreamRecord {
                kind: RecordKind::Create,
                shard: ShardId(1),
                slot,
                version: 1,
                body: &BODY,
            };
            std::hint::black_box(owner.append(&[*peer], Lane::ALL[0], &record, *now_us));
        }
        let appended = Instant::now();
        owner.poll(*now_us, world, there);
        let sent = Instant::now();
        for (bytes, length) in &mut there.datagrams[..there.count] {
            let _ = replica.receive(address(1), &mut bytes[..*length], *now_us, world);
        }
        let received = Instant::now();
        replica.poll(*now_us, world, back);
        let answered = Instant::now();
        for (bytes, length) in &mut back.datagrams[..back.count] {
            let _ = owner.receive(address(2), &mut bytes[..*length], *now_us, world);
        }
        let acknowledged = Instant::now();
        spent.append += appended - start;
        spent.send += sent - appended;
        spent.receive += received - sent;
        spent.answer += answered - received;
        spent.acknowledge += acknowledged - answered;
        spent.datagrams += there.count as u64;
        (there.count, back.count) = (0, 0);
    }

    fn round(&mut self, records: u32) -> Spent {
        let mut spent = Spent::default();
        (0..BURSTS).for_each(|_| self.turn(records, &mut spent));
        spent
    }
}

fn nanoseconds(durations: impl Iterator<Item = (Duration, u64)>) -> f64 {
    let per = |(duration, count): (Duration, u64)| duration.as_secs_f64() * 1e9 / count as f64;
    durations.map(per).fold(f64::INFINITY, f64::min)
}

fn report(name: &str, is_encrypted: bool) {
    let mut pair = Pair::new(is_encrypted);
    let rounds: Vec<Spent> = (0..ROUNDS).map(|_| pair.round(RECORDS)).collect();
    let records = BURSTS * u64::from(RECORDS);
    let best = |part: fn(&Spent) -> Duration, count: fn(&Spent) -> u64| {
        nanoseconds(rounds.iter().map(|spent| (part(spent), count(spent))))
    };
    println!("{name}: records of {} bytes, {RECORDS} a turn", BODY.len());
    let append = nanoseconds(rounds.iter().map(|spent| (spent.append, records)));
    println!("  append             {append:7.1} ns a record");
    let send = best(|spent| spent.send, |spent| spent.datagrams);
    let receive = best(|spent| spent.receive, |spent| spent.datagrams);
    println!("  send               {send:7.1} ns a datagram");
    println!("  receive, apply     {receive:7.1} ns a datagram");
    let answer = best(|spent| spent.answer, |_| BURSTS);
    let acknowledge = best(|spent| spent.acknowledge, |_| BURSTS);
    println!("  acknowledge        {answer:7.1} ns a turn at the replica");
    println!("  be acknowledged    {acknowledge:7.1} ns a turn at the owner");
    let owner = nanoseconds(
        rounds.iter().map(|spent| (spent.append + spent.send + spent.acknowledge, records)),
    );
    let replica = nanoseconds(rounds.iter().map(|spent| (spent.receive + spent.answer, records)));
    println!(
        "  all                {owner:7.1} ns a record at the owner, {replica:.1} at the replica"
    );
    let idle: Vec<Spent> = (0..ROUNDS).map(|_| pair.round(0)).collect();
    let idle = nanoseconds(idle.iter().map(|spent| (spent.send, BURSTS)));
    println!("  poll when idle     {idle:7.1} ns a turn of 100 us, heartbeats included");
    assert!(pair.world.applied >= records, "all appended records were applied");
}

fn main() {
    report("encrypted", true);
    report("authenticated", false);
}

//! Forged, recorded and stale datagrams: each is refused under its reason, and nothing changes.

use weir_stream::{DatagramRefusal, Lane, ShardId};

use crate::network::{Cluster, Faults, Random, address, small_options};

const SHARD: ShardId = ShardId(1);
const LANE: Lane = Lane::ALL[0];

/// Returns two workers in sync, and all that the first sent to the second meanwhile.
fn recorded() -> (Cluster, Vec<Vec<u8>>) {
    let mut cluster = Cluster::new(2, 21, Faults::default(), small_options());
    cluster.network.recorder = Some(Vec::new());
    cluster.copy(0, 1, SHARD, LANE);
    for _ in 0..200 {
        cluster.change(0, SHARD, LANE, 100);
        cluster.step();
    }
    cluster.settle(1_000_000);
    cluster.run(2_000);
    let sent = cluster.network.recorder.take().unwrap();
    let to_second = sent.into_iter().filter(|(_, to, _)| *to == address(1));
    (cluster, to_second.map(|(_, _, bytes)| bytes).collect())
}

/// Returns all state of the second worker that a datagram could change, except the counters of
/// refusals.
fn state(cluster: &Cluster) -> String {
    let node = &cluster.nodes[1];
    let mut status = node.endpoint.peer_status(node.peers[0].unwrap(), cluster.now_us).unwrap();
    status.counters.refused = Default::default();
    let window: Vec<_> = Lane::ALL
        .into_iter()
        .map(|lane| {
            let peer = node.peers[0].unwrap();
            (node.endpoint.acknowledged(peer, lane), node.endpoint.behind(peer, lane))
        })
        .collect();
    format!("{status:?} {window:?} {:?}", node.world)
}

fn inject(cluster: &mut Cluster, from: usize, datagram: &[u8]) -> Result<(), DatagramRefusal> {
    let node = &mut cluster.nodes[1];
    let mut bytes = datagram.to_vec();
    let received =
        node.endpoint.receive(address(from), &mut bytes, cluster.now_us, &mut node.world);
    received.map(|_| ())
}

fn refused(cluster: &Cluster, refusal: DatagramRefusal) -> u64 {
    let node = &cluster.nodes[1];
    let status = node.endpoint.peer_status(node.peers[0].unwrap(), cluster.now_us).unwrap();
    status.counters.refused.of(refusal) + node.endpoint.refused().of(refusal)
}

fn is_hello(datagram: &[u8]) -> bool {
    datagram[3] == 1
}

#[test]
fn replays_are_refused() {
    let (mut cluster, sent) = recorded();
    let before = state(&cluster);
    let mut count = 0;
    for datagram in sent.iter().filter(|datagram| !is_hello(datagram)) {
        assert_eq!(inject(&mut cluster, 0, datagram), Err(DatagramRefusal::Replayed));
        count += 1;
    }
    assert!(count > 100, "{count}");
    assert_eq!(refused(&cluster, DatagramRefusal::Replayed), count);
    assert_eq!(state(&cluster), before);
}

/// A recorded HELLO is authentic, but it answers no current challenge.
#[test]
fn a_replayed_hello_sets_nothing_up() {
    let (mut cluster, sent) = recorded();
    cluster.restart(1);
    cluster.settle(1_000_000);
    let before = state(&cluster);
    let hellos: Vec<_> = sent.iter().filter(|datagram| is_hello(datagram)).collect();
    assert!(hellos.len() >= 2);
    for hello in &hellos {
        let _ = inject(&mut cluster, 0, hello);
        assert_eq!(state(&cluster), before);
    }
    cluster.run(100_000);
    let node = &cluster.nodes[1];
    let status = node.endpoint.peer_status(node.peers[0].unwrap(), cluster.now_us).unwrap();
    assert_eq!((status.counters.sessions, status.counters.restarts), (1, 0));
    for _ in 0..100 {
        let _ = inject(&mut cluster, 0, hellos[0]);
    }
    assert!(refused(&cluster, DatagramRefusal::HelloRate) >= 84, "16 are checked in 10 ms");
}

#[test]
fn strangers_are_refused_before_all_else() {
    let (mut cluster, sent) = recorded();
    let before = state(&cluster);
    for datagram in &sent {
        assert_eq!(inject(&mut cluster, 7, datagram), Err(DatagramRefusal::NotAPeer));
        let mut other = datagram.clone();
        other[11] ^= 0x40;
        assert_eq!(inject(&mut cluster, 0, &other), Err(DatagramRefusal::NotAPeer));
    }
    assert_eq!(refused(&cluster, DatagramRefusal::NotAPeer), 2 * sent.len() as u64);
    assert_eq!(state(&cluster), before);
}

/// Every bit of some datagrams flipped, every shorter length, random bytes behind a right header.
#[test]
fn forgeries_are_refused() {
    let (mut cluster, sent) = recorded();
    let records = sent.iter().rfind(|datagram| datagram[3] == 0x82).unwrap();
    let control = sent.iter().rfind(|datagram| datagram[3] == 0x83).unwrap();
    let hello = sent.iter().rfind(|datagram| is_hello(datagram)).unwrap();
    let before = state(&cluster);
    for datagram in [records, control, hello] {
        for bit in 0..datagram.len() * 8 {
            let mut forged = datagram.to_vec();
            forged[bit / 8] ^= 1 << (bit % 8);
            // The clock does not advance: a HELLO must not exceed its rate.
            assert!(inject(&mut cluster, 0, &forged).is_err(), "bit {bit}");
        }
        for length in 0..datagram.len() {
            assert!(inject(&mut cluster, 0, &datagram[..length]).is_err(), "{length} bytes");
        }
        assert!(inject(&mut cluster, 0, &[datagram.as_slice(), &[0; 1400]].concat()).is_err());
    }
    assert_eq!(state(&cluster), before);
    for refusal in [
        DatagramRefusal::BadMac,
        DatagramRefusal::Truncated,
        DatagramRefusal::Malformed,
        DatagramRefusal::NoSession,
    ] {
        assert!(refused(&cluster, refusal) > 0, "{refusal:?}");
    }
}

#[test]
fn garbage_is_refused() {
    let (mut cluster, sent) = recorded();
    let before = state(&cluster);
    let mut random = Random(1);
    for round in 0..20_000 {
        let length = random.below(1_500) as usize;
        let mut bytes: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
        // Half of them have a correct header, with a number of the future.
        if round % 2 == 0 && length >= 24 {
            bytes[..24].copy_from_slice(&sent.last().unwrap()[..24]);
            bytes[16..24].copy_from_slice(&(u64::MAX - round).to_be_bytes());
        }
        assert!(inject(&mut cluster, 0, &bytes).is_err());
    }
    assert!(refused(&cluster, DatagramRefusal::BadMac) > 9_000);
    assert_eq!(state(&cluster), before);
}

/// Datagrams of an earlier incarnation of the peer come late.
#[test]
fn an_old_boot_is_refused() {
    let (mut cluster, sent) = recorded();
    cluster.restart(0);
    cluster.run(200_000);
    let before = state(&cluster);
    for datagram in sent.iter().filter(|datagram| !is_hello(datagram)) {
        assert_eq!(inject(&mut cluster, 0, datagram), Err(DatagramRefusal::OldBoot));
    }
    assert_eq!(state(&cluster), before);
}

/// The same incarnations of both, but a new session after a silence: its keys are new, so numbers
/// may start again.
#[test]
fn an_earlier_session_is_refused() {
    let (mut cluster, sent) = recorded();
    cluster.network.parted.push((0, 1));
    cluster.run(300_000);
    cluster.network.parted.clear();
    cluster.run(200_000);
    cluster.settle(1_000_000);
    let node = &cluster.nodes[1];
    let status = node.endpoint.peer_status(node.peers[0].unwrap(), cluster.now_us).unwrap();
    assert_eq!(status.counters.restarts, 0);
    assert!(status.counters.sessions >= 2);
    let before = state(&cluster);
    for datagram in sent.iter().filter(|datagram| !is_hello(datagram)) {
        assert_eq!(inject(&mut cluster, 0, datagram), Err(DatagramRefusal::OldBoot));
    }
    assert_eq!(state(&cluster), before);
}

/// A stream restarted; an earlier datagram was held up on the way, in a session that goes on.
#[test]
fn a_stale_epoch_is_refused() {
    let (mut cluster, _) = recorded();
    cluster.network.recorder = Some(Vec::new());
    cluster.network.parted.push((0, 1));
    for _ in 0..200 {
        (0..50).for_each(|_| cluster.change(0, SHARD, LANE, 100));
        cluster.step();
    }
    cluster.network.parted.clear();
    let sent = cluster.network.recorder.take().unwrap();
    cluster.settle(1_000_000);
    let before = cluster.nodes[1].world.copies.clone();
    let mut late = 0;
    for (from, _, datagram) in sent {
        if from == 0 && datagram[3] == 0x82 {
            assert_eq!(inject(&mut cluster, 0, &datagram), Err(DatagramRefusal::StaleEpoch));
            late += 1;
        }
    }
    assert!(late > 50);
    assert_eq!(refused(&cluster, DatagramRefusal::StaleEpoch), late);
    assert_eq!(cluster.nodes[1].world.copies, before);
}

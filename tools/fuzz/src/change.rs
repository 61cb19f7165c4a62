use std::sync::atomic::{AtomicU64, Ordering};

use bolero::{TypeGenerator, check};
use weir_nat::*;

/// A change as an attacker within the cluster would write it: arbitrary fields, and a body that is
/// valid up to some byte.
#[derive(Clone, Debug, TypeGenerator)]
struct Hostile {
    kind: u8,
    shard: u8,
    lane: u8,
    slot: u32,
    version: u8,
    body: Body,
    seconds: u8,
}

#[derive(Clone, Debug, TypeGenerator)]
enum Body {
    Bytes(Vec<u8>),
    /// A mapping of a home, at a port, with one byte changed.
    Mapping {
        home: u8,
        inside: u8,
        port: u16,
        kind: u8,
        at: u8,
        byte: u8,
    },
    /// The same, as versions before images have it.
    Earlier {
        home: u8,
        inside: u8,
        port: u16,
        kind: u8,
        at: u8,
        byte: u8,
    },
    /// A session of such a mapping.
    Session {
        home: u8,
        port: u16,
        slot: u16,
        version: u8,
        remote: u8,
        state: u16,
    },
    /// The same, as versions before images have it.
    EarlierSession {
        home: u8,
        port: u16,
        slot: u16,
        version: u8,
        remote: u8,
    },
    /// TCP segments seen of a connection of this worker, or of an unknown one.
    Segment {
        remote: u8,
        sender: u8,
        tcp_flags: u8,
        idle_sec: u8,
    },
    Provenance {
        part: u8,
        word: u32,
    },
}

/// Number of changes applied: what counts as an input.
static INPUTS: AtomicU64 = AtomicU64::new(0);

const PUBLIC: [u8; 4] = [203, 0, 113, 1];
/// RFC 9293 section 3.1.
const SYN: u8 = 0x02;

impl Body {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Bytes(bytes) => bytes[..bytes.len().min(BODY_MAX)].to_vec(),
            Self::Mapping { home, inside, port, kind, at, byte }
            | Self::Earlier { home, inside, port, kind, at, byte } => {
                let write = if matches!(self, Self::Mapping { .. }) { image } else { mapping };
                let mut bytes = write(*home, *inside, *port, 1 + kind % 2);
                // The body stays valid in half of the cases.
                if *at >= 128 {
                    let at = usize::from(*at) % bytes.len();
                    bytes[at] = *byte;
                }
                bytes
            }
            Self::Session { home, port, slot, version, remote, state } => {
                let mut bytes = vec![9, 16, version % 4, 0, 0, 0];
                bytes.extend(u32::from(slot % 2048).to_le_bytes());
                bytes.extend([remote % 4, 2, 0, 192]);
                // A state that is known in half of the cases.
                let state = if state & 1 << 15 == 0 { state & 0x0fff } else { *state };
                bytes.extend(state.to_le_bytes());
                bytes.extend([53, 0]);
                bytes.extend(image(*home, 0, *port, 1));
                bytes
            }
            Self::EarlierSession { home, port, slot, version, remote } => {
                let mut bytes = vec![2, 16, 0, 0];
                bytes.extend((slot % 2048).to_be_bytes());
                bytes.extend([0, 0, 0, version % 4]);
                bytes.extend([192, 0, 2, remote % 4, 0, 53, 6, 0]);
                bytes.extend(mapping(*home, 0, *port, 1));
                bytes
            }
            Self::Segment { remote, sender, tcp_flags, idle_sec } => {
                let mut bytes = vec![4, 4, 0, 0, 0, *idle_sec];
                bytes.extend([6, 8, 192, 0, 2, remote % 4, 0, 53, sender % 4, *tcp_flags]);
                bytes.extend([7, 8, 192, 0, 2, remote % 4, 0, 53, *sender, *tcp_flags]);
                bytes
            }
            Self::Provenance { part, word } => {
                let [a, b, c, d] = word.to_be_bytes();
                vec![3 + part % 3, 4, a, b, c, d]
            }
        }
    }
}

/// An image with the fields of [`mapping`].
fn image(home: u8, inside: u8, port: u16, kind: u8) -> Vec<u8> {
    let address = |[a, b, c, d]: [u8; 4]| [d, c, b, a];
    let mut bytes = vec![8, 32, 9, 0, 0, 0];
    bytes.extend(address(PUBLIC));
    bytes.extend(address([10, 200, 0, home % 8]));
    bytes.extend(address([192, 168, 1, 10]));
    bytes.extend([inside % 8, 39, 0, 0, 17, kind]);
    bytes.extend((1024 + port % 2048).to_le_bytes());
    bytes.extend(address([192, 0, 2, 1]));
    bytes.extend([0, 6, 53, 0]);
    bytes
}

fn mapping(home: u8, inside: u8, port: u16, kind: u8) -> Vec<u8> {
    let mut bytes = vec![1, 35, kind, 17, 0, 10, 200, 0, home % 8, 0, 0, 0, 0];
    bytes.extend([192, 168, 1, 10, 39, inside % 8]);
    bytes.extend(PUBLIC);
    bytes.extend((1024 + port % 2048).to_be_bytes());
    bytes.extend([192, 0, 2, 1, 0, 53, 6, 0, 0, 0, 0, 9]);
    bytes
}

impl Hostile {
    fn change(&self) -> SlotChange {
        SlotChange {
            kind: match self.kind % 5 {
                0 => ChangeKind::Create,
                1 => ChangeKind::Change,
                2 => ChangeKind::Delete,
                3 => ChangeKind::OwnerUpdate,
                _ => ChangeKind::Clear,
            },
            shard: ShardIndex(u16::from(self.shard >= 250)),
            lane: self.lane % 9,
            // Mostly slots that are in use.
            slot: if self.slot.is_multiple_of(4) { self.slot } else { self.slot % 4096 },
            version: u32::from(self.version % 4),
        }
    }
}

fn nat() -> Nat {
    let mut nat = Nat::new(NatConfig {
        flows_max: 2000,
        port_block: 64,
        ports_per_subscriber: 256,
        filtering: Filtering::AddressDependent,
        subscribers: vec!["10.200.0.0/16".parse().unwrap()],
        shards: vec![NatShardConfig {
            id: ShardId(1),
            public: vec!["203.0.113.0/31".parse().unwrap()],
            public6: Vec::new(),
            subscribers_max: 6,
        }],
        // A second shard index without a shard.
        room: ShardRoom { shards: 2, ..ShardRoom::default() },
        replicas: 1,
        seed: [1, 2, 3, 4],
        ..NatConfig::default()
    })
    .unwrap();
    nat.replica_mut().set_owned_lanes(ShardIndex(0), 0x80, Tick(1000));
    nat.replica_mut().set_replicated_lanes(ShardIndex(0), 0xff);
    nat
}

fn send(
    nat: &mut Nat,
    home: u8,
    inside: u16,
    protocol: Protocol,
    now: Tick,
) -> Result<Endpoint, Refusal> {
    let outer = u32::from_be_bytes([10, 200, 0, home]);
    let home = Home { shard: ShardIndex(0), outer, gre_key: None };
    let inside = Endpoint::new(0xc0a8_010a, inside);
    let remote = Endpoint::new(0xc000_0201, 53);
    let hash = nat.outbound_hash(&home, inside, protocol);
    let packet = Outbound { home, inside, remote, protocol, tcp_flags: SYN };
    nat.outbound(hash, &packet, now).map(|translated| translated.to)
}

/// Lets the remote answer a flow of [`send`].
fn answer(nat: &mut Nat, public: Endpoint, protocol: Protocol, now: Tick) {
    let remote = Endpoint::new(0xc000_0201, 53);
    let hash = nat.inbound_hash(public, protocol);
    let packet = Inbound { public, remote, protocol, tcp_flags: 0 };
    nat.inbound(hash, &packet, now).unwrap();
}

/// Whatever changes other workers send, the NAT stays consistent: an answered flow in a lane of
/// this worker stays, copied lanes can be taken over, and everything ends, by its timers or with
/// its shard.
#[test]
fn apply() {
    check!().with_type::<Vec<Hostile>>().for_each(|script| {
        let (mut nat, mut now) = (nat(), Tick(1000));
        let ours = send(&mut nat, 1, 1, Protocol::Udp, now).unwrap();
        answer(&mut nat, ours, Protocol::Udp, now);
        let mut body = [0; BODY_MAX];
        INPUTS.fetch_add(script.len() as u64, Ordering::Relaxed);
        for hostile in script {
            now = Tick(now.0 + u32::from(hostile.seconds / 64));
            nat.replica_mut().apply(&hostile.change(), &hostile.body.bytes(), now);
            if hostile.seconds.is_multiple_of(4) {
                nat.expire(now, 4096, usize::MAX);
                let protocol = Protocol::ALL[usize::from(hostile.lane % 3)];
                _ = send(&mut nat, hostile.version % 8, 2, protocol, now);
            }
            assert_eq!(send(&mut nat, 1, 1, Protocol::Udp, now), Ok(ours));
        }
        let mut applied = 0;
        while nat.replica_mut().next_change(&mut body).is_some() {
            applied += 1;
        }
        assert!(applied >= 1);
        for lane in 0..8 {
            let mut copied = 0;
            let end =
                nat.replica().copy_lane(ShardIndex(0), lane, 0..u32::MAX, u32::MAX, |_, body| {
                    copied += body.len();
                    true
                });
            assert!(
                end == u32::MAX && copied > 0 || nat.replica().lane_slots(ShardIndex(0), lane) == 0
            );
        }
        let is_removed = script.len().is_multiple_of(2);
        if is_removed {
            nat.replica_mut().begin_removal(ShardIndex(0));
            while !nat.replica().is_removed(ShardIndex(0)) {
                nat.expire(now, 64, 5);
            }
        } else {
            nat.replica_mut().set_owned_lanes(ShardIndex(0), 0xff, now);
            for _ in 0..4 {
                now = Tick(now.0 + 8000);
                nat.expire(now, usize::MAX, usize::MAX);
            }
        }
        let (gauges, shard) = (nat.admin().gauges(), nat.admin().shard_gauges(ShardIndex(0)));
        assert_eq!((gauges.flows, gauges.quarantined, gauges.subscribers), (0, 0, 0));
        assert_eq!((shard.ports_used, shard.blocks_free), (0, shard.blocks_total));
        assert_eq!(shard.blocks_total == 0, is_removed);
    });
    println!("inputs: {}", INPUTS.load(Ordering::Relaxed));
}

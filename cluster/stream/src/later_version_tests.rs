//! A peer of another protocol version, encoded by hand: its additions are skipped, and everything
//! known here works.

use std::net::SocketAddr;
use std::ops::Range;

use bolero::check;
use weir_ids::{BootId, Lane, PeerId, ShardId};

use crate::cluster_keys::ClusterKeys;
use crate::control::{Field, fields};
use crate::copy::CopyRoom;
use crate::datagram::{DATAGRAM_MAX, DatagramHeader, DatagramKind, HEADER_LEN, VERSION_MAX};
use crate::endpoint::StreamEndpoint;
use crate::fingerprint::Fingerprint;
use crate::hello::{Challenge, Hello};
use crate::identity::{Lineage, Origin, PeerIndex};
use crate::link::RedirectForm;
use crate::options::StreamOptions;
use crate::record::{Item, RECORD_HEADER_LEN, RecordKind, StreamRecord};
use crate::refusal::DatagramRefusal;
use crate::seal::SealKey;
use crate::session::{Identity, direction, hello_key};
use crate::traits::{Sink, Source, Transmit};

const OWN: PeerId = PeerId(1);
const PEER: PeerId = PeerId(2);
const OWN_BOOT: BootId = BootId(11);
const PEER_BOOT: BootId = BootId(22);
const PEER_CHALLENGE: Challenge = [7; 16];
fn peer_address() -> SocketAddr {
    SocketAddr::from(([10, 9, 0, 2], 4789))
}

fn keys() -> ClusterKeys {
    ClusterKeys::parse(&"3c".repeat(32)).unwrap()
}

/// A sink that notes what is applied, and a source without slabs.
#[derive(Default)]
struct Notes {
    applied: Vec<(u32, Vec<u8>)>,
}

impl Sink for Notes {
    fn room(&self) -> usize {
        1_000
    }
    fn apply(&mut self, _: Origin, records: &[StreamRecord<'_>]) {
        self.applied.extend(records.iter().map(|record| (record.slot, record.body.to_vec())));
    }
    fn stream_reset(&mut self, _: Origin) {}
    fn copy_started(&mut self, _: Origin, _: ShardId, _: u32, _: Lineage) {}
    fn copy_finished(&mut self, _: Origin, _: ShardId) {}
    fn copy_stopped(&mut self, _: Origin, _: ShardId) {}
    fn sum(&self, _: Origin, _: ShardId, _: Range<u32>) -> u64 {
        0
    }
}

impl Source for Notes {
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

struct Sent(Vec<Vec<u8>>);

impl Transmit for Sent {
    fn send(&mut self, _: SocketAddr, datagram: &[u8]) -> bool {
        self.0.push(datagram.to_vec());
        true
    }
}

/// Our endpoint, and the hand-made peer's numbers and keys.
struct Meeting {
    endpoint: StreamEndpoint,
    peer: PeerIndex,
    notes: Notes,
    now_us: u64,
    number: u64,
    keys: Option<(SealKey, u32, SealKey)>,
}

/// Returns the bytes of a HELLO: versions, our challenge as echo, and the additions of a later
/// version.
fn hello_body(versions: [u8; 2], echo: &Challenge, fixed_more: usize, parts: &[u8]) -> Vec<u8> {
    let mut body = vec![60 + fixed_more as u8, versions[0], versions[1], 0];
    body.extend(OWN.0.to_be_bytes());
    body.extend(PEER_BOOT.0.to_be_bytes());
    body.extend(PEER_CHALLENGE);
    body.extend(echo);
    body.extend(vec![0xEE; fixed_more]);
    body.extend(parts);
    body
}

impl Meeting {
    fn new() -> Self {
        Self::of(StreamOptions::default())
    }

    fn of(options: StreamOptions) -> Self {
        let identity = Identity { worker: OWN, boot: OWN_BOOT, secret: [9; 32] };
        let mut endpoint =
            StreamEndpoint::new(options, identity, Fingerprint::default(), keys()).unwrap();
        let peer = endpoint.add_peer(PEER, peer_address(), 0).unwrap();
        Self { endpoint, peer, notes: Notes::default(), now_us: 0, number: 0, keys: None }
    }

    fn poll(&mut self) -> Vec<Vec<u8>> {
        self.now_us += 1_000;
        let mut sent = Sent(Vec::new());
        self.endpoint.poll(self.now_us, &mut self.notes, &mut sent);
        sent.0
    }

    fn send(
        &mut self,
        version: u8,
        kind: DatagramKind,
        body: &[u8],
    ) -> Result<(), DatagramRefusal> {
        self.number += 1;
        let (cluster, number) = (keys(), self.number);
        let hello = hello_key(cluster.first(), PEER, PEER_BOOT, OWN);
        let (key, session) = match (&self.keys, kind) {
            (
                Some((key, session, _)),
                DatagramKind::Records | DatagramKind::Control | DatagramKind::Redirect,
            ) => (key, *session),
            _ => (&hello, 0),
        };
        let mut datagram = [0; DATAGRAM_MAX];
        let header =
            DatagramHeader { version, kind, is_encrypted: false, session, sender: PEER, number };
        header.emit(&mut datagram);
        datagram[HEADER_LEN..HEADER_LEN + body.len()].copy_from_slice(body);
        let length = key.seal(number, false, body.len(), &mut datagram);
        let from = peer_address();
        let datagram = &mut datagram[..length];
        self.endpoint.receive(from, datagram, self.now_us, &mut self.notes).map(|_| ())
    }

    /// Sends the peer's HELLO of these versions, in answer to ours.
    fn shake_hands(
        &mut self,
        versions: [u8; 2],
        more: usize,
        parts: &[u8],
    ) -> Result<(), DatagramRefusal> {
        let first = self.poll().remove(0);
        let ours = Hello::parse(&first[HEADER_LEN..], &Fingerprint::default()).unwrap();
        let body = hello_body(versions, &ours.challenge, more, parts);
        self.send(1, DatagramKind::Hello, &body)?;
        let (cluster, own) = (keys(), (OWN, OWN_BOOT, ours.challenge));
        let peer = (PEER, PEER_BOOT, PEER_CHALLENGE);
        let (send_key, session) = direction(cluster.first(), peer, own);
        self.keys = Some((send_key, session, direction(cluster.first(), own, peer).0));
        Ok(())
    }

    /// True if our answer is one that a peer of this version can read: its first datagram is
    /// acknowledged.
    fn is_acknowledged(&mut self, version: u8) -> bool {
        let sent = self.poll();
        let (_, _, key) = self.keys.as_ref().unwrap();
        sent.into_iter().any(|mut datagram| {
            let header = DatagramHeader::parse(&datagram).unwrap();
            if header.kind == DatagramKind::Hello {
                return false;
            }
            assert_eq!(header.version, version);
            let body = key.open(header.number, header.is_encrypted, &mut datagram).unwrap();
            fields(body)
                .any(|field| matches!(field, Field::Acknowledgement(ack) if ack.cumulative == 1))
        })
    }

    fn refused(&self, refusal: DatagramRefusal) -> u64 {
        let status = self.endpoint.peer_status(self.peer, self.now_us).unwrap();
        status.counters.refused.of(refusal)
    }
}

/// Returns items behind a stream header of `length` bytes.
fn records(length: u8, sequence: u64, items: &[u8]) -> Vec<u8> {
    let mut body = vec![length, 0, 0, 9];
    body.extend(1u32.to_be_bytes());
    body.extend(sequence.to_be_bytes());
    body.resize(usize::from(length), 0xEE);
    body.extend(items);
    body
}

fn item(kind: u8, fields: &[u8]) -> Vec<u8> {
    [&[kind, fields.len() as u8], fields].concat()
}

fn create(slot: u32, body: &[u8]) -> Vec<u8> {
    let mut fields = 5u32.to_be_bytes().to_vec();
    fields.extend(slot.to_be_bytes());
    fields.extend(1u32.to_be_bytes());
    fields.extend(body);
    item(1, &fields)
}

/// The next version speaks ours to us, with fields and types that we do not know.
#[test]
fn the_next_version_is_understood() {
    check_next_version_is_understood(Meeting::new(), VERSION_MAX);
}

fn check_next_version_is_understood(mut meeting: Meeting, own: u8) {
    meeting.shake_hands([own, own + 1], 12, &item(99, &[1, 2, 3])).unwrap();
    let items = [
        create(1, b"one"),
        item(120, b"a record of the next version"),
        create(2, b"two"),
        item(33, b"\0\0\0\x05and more"),
        item(7 + 1, &[]),
        create(3, b""),
    ];
    meeting.send(own, DatagramKind::Records, &records(24, 1, &items.concat())).unwrap();
    let applied = [(1, b"one".to_vec()), (2, b"two".to_vec()), (3, Vec::new())];
    assert_eq!(meeting.notes.applied, applied);
    assert!(meeting.is_acknowledged(own));
    let control = [item(77, &[1; 9]), item(1, &[0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 5, 1, 1])];
    meeting.send(own, DatagramKind::Control, &control.concat()).unwrap();
    assert_eq!(meeting.endpoint.behind(meeting.peer, Lane::ALL[0]), 4);
    let status = meeting.endpoint.peer_status(meeting.peer, meeting.now_us).unwrap();
    assert_eq!(status.counters.items_skipped, 2);
    assert_eq!(status.version, Some(own));
    // The session settled on our version.
    let refused = meeting.send(own + 1, DatagramKind::Control, &[]);
    assert_eq!(
        (refused, meeting.refused(DatagramRefusal::Version)),
        (Err(DatagramRefusal::Version), 1)
    );
}

/// The version before: the newest that both ends speak is used.
#[test]
fn the_version_before_is_understood() {
    let mut meeting = Meeting::new();
    meeting.shake_hands([0, 1], 0, &[]).unwrap();
    meeting.send(1, DatagramKind::Records, &records(16, 1, &create(1, b"x"))).unwrap();
    assert_eq!(meeting.notes.applied, [(1, b"x".to_vec())]);
}

/// A peer of an earlier build reports nothing of other nodes: it must not pass for one that hears
/// none.
#[test]
fn a_peer_without_sightings_is_no_witness() {
    let mut meeting = Meeting::new();
    meeting.shake_hands([1, 2], 0, &[]).unwrap();
    let signs = |meeting: &Meeting| meeting.endpoint.signs(meeting.peer, meeting.now_us).unwrap();
    let position = item(1, &[0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 5]);
    meeting.send(2, DatagramKind::Control, &position).unwrap();
    assert!(!signs(&meeting).is_witness);
    meeting.send(2, DatagramKind::Control, &[position, item(3, &[])].concat()).unwrap();
    assert!(signs(&meeting).is_witness, "a witness that hears no other node");
}

/// A rolling upgrade: a peer that speaks version 1 gets redirected packets in IPIP, and refuses
/// sealed ones.
#[test]
fn a_session_of_version_1_redirects_in_the_clear_and_one_of_version_2_seals() {
    let mut meeting = Meeting::new();
    assert_eq!(meeting.endpoint.redirects(meeting.peer), RedirectForm::Refused);
    assert!(!meeting.endpoint.seal_redirect(meeting.peer, 24, &mut [0; 100]));
    meeting.shake_hands([1, 1], 0, &[]).unwrap();
    assert_eq!(meeting.endpoint.redirects(meeting.peer), RedirectForm::Plain);
    assert!(!meeting.endpoint.seal_redirect(meeting.peer, 24, &mut [0; 100]));
    let sealed = meeting.send(1, DatagramKind::Redirect, b"packet");
    assert_eq!(sealed, Err(DatagramRefusal::Malformed));
    let mut meeting = Meeting::new();
    meeting.shake_hands([1, 2], 0, &[]).unwrap();
    let form = RedirectForm::Sealed { front: HEADER_LEN, behind: 16 };
    assert_eq!(meeting.endpoint.redirects(meeting.peer), form);
    assert!(!meeting.endpoint.seal_redirect(meeting.peer, HEADER_LEN + 1, &mut [0; 100]));
    assert!(!meeting.endpoint.seal_redirect(meeting.peer, HEADER_LEN, &mut [0; HEADER_LEN + 15]));
    let mut buffer = [7; HEADER_LEN + 60 + 16];
    assert!(meeting.endpoint.seal_redirect(meeting.peer, HEADER_LEN, &mut buffer));
    let header = DatagramHeader::parse(&buffer).unwrap();
    let (_, _, key) = meeting.keys.as_ref().unwrap();
    let opened = key.open(header.number, header.is_encrypted, &mut buffer).unwrap();
    assert_eq!((header.kind, header.version, opened), (DatagramKind::Redirect, 2, &[7; 60][..]));
    meeting.send(2, DatagramKind::Redirect, b"packet").unwrap();
    assert_eq!(meeting.send(1, DatagramKind::Redirect, b"packet"), Err(DatagramRefusal::Version));
}

/// A rolling upgrade: records for a peer that speaks an earlier version get the bodies that it
/// knows.
#[test]
fn bodies_are_rewritten_for_a_peer_of_an_earlier_version() {
    for (version, body_len) in [(1, 2), (2, 2), (3, 4)] {
        let mut meeting = Meeting::of(StreamOptions {
            earlier_body: |body, room| {
                room[..2].copy_from_slice(&body[2..4]);
                2
            },
            ..StreamOptions::default()
        });
        meeting.shake_hands([1, version], 0, &[]).unwrap();
        let StreamEndpoint { peers, buffers, .. } = &mut meeting.endpoint;
        let own = &mut peers[0].as_mut().unwrap().lanes[0];
        let (kind, shard) = (RecordKind::Create, ShardId(1));
        let record = StreamRecord { kind, shard, slot: 1, version: 1, body: b"body" };
        own.stream.append(buffers, 0, &Item::Record(record)).unwrap();
        let (items, bytes, _) = own.stream.lag();
        assert_eq!((items, bytes), (1, RECORD_HEADER_LEN as u64 + body_len), "version {version}");
    }
}

/// An endpoint next to one that does not speak its latest version: they use the earlier one only.
#[test]
fn a_mixed_pair_speaks_the_earlier_version() {
    let mut meeting = Meeting::new();
    meeting.shake_hands([1, 2], 0, &[]).unwrap();
    let body = records(16, 1, &create(1, b"x"));
    let later = meeting.send(3, DatagramKind::Records, &body);
    assert_eq!((later, meeting.notes.applied.len()), (Err(DatagramRefusal::Version), 0));
    meeting.send(2, DatagramKind::Records, &body).unwrap();
    assert_eq!(meeting.notes.applied, [(1, b"x".to_vec())]);
    assert!(meeting.is_acknowledged(2));
}

/// Two endpoints that speak the latest version: a datagram of the version before is refused.
#[test]
fn a_later_pair_speaks_the_later_version() {
    let mut meeting = Meeting::new();
    meeting.shake_hands([1, 3], 0, &[]).unwrap();
    let body = records(16, 1, &create(1, b"x"));
    let earlier = meeting.send(2, DatagramKind::Records, &body);
    assert_eq!((earlier, meeting.notes.applied.len()), (Err(DatagramRefusal::Version), 0));
    meeting.send(3, DatagramKind::Records, &body).unwrap();
    assert_eq!(meeting.notes.applied, [(1, b"x".to_vec())]);
    assert!(meeting.is_acknowledged(3));
}

#[test]
fn no_version_in_common_is_refused_by_name() {
    let cases = [(Meeting::new(), [VERSION_MAX + 1, VERSION_MAX + 2]), (Meeting::new(), [0, 0])];
    for (mut meeting, versions) in cases {
        assert_eq!(meeting.shake_hands(versions, 0, &[]), Err(DatagramRefusal::Version));
        assert_eq!(meeting.refused(DatagramRefusal::Version), 1);
    }
}

/// A peer that has the key sends nonsense: nothing panics, and memory stays within its bounds.
#[test]
fn authentic_nonsense_does_no_harm() {
    let inputs = std::panic::AssertUnwindSafe(std::cell::Cell::new(0));
    check!().with_type::<Vec<(u8, u8, Vec<u8>)>>().for_each(|bodies| {
        let mut meeting = Meeting::new();
        meeting.shake_hands([1, 1], 0, &[]).unwrap();
        for (kind, sequence, bytes) in bodies {
            let bytes = &bytes[..bytes.len().min(1_300)];
            let (kind, body) = match kind % 4 {
                0 => (DatagramKind::Hello, bytes.to_vec()),
                1 => (DatagramKind::Control, bytes.to_vec()),
                2 => (DatagramKind::Records, bytes.to_vec()),
                _ => (DatagramKind::Records, records(16, u64::from(*sequence), bytes)),
            };
            let _ = meeting.send(1, kind, &body);
            meeting.poll();
        }
        let (used, total) = meeting.endpoint.buffers_used();
        assert!(used < total / 4);
        inputs.set(inputs.get() + bodies.len());
    });
    println!("inputs: {}", inputs.get());
}

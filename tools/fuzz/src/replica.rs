use std::net::SocketAddr;

use bolero::check;
use weir_stream::{
    BootId, ClusterKeys, Fingerprint, Identity, Lineage, Origin, PeerId, PeerIndex, ShardId, Sink,
    StreamEndpoint, StreamOptions, StreamRecord, describe,
};

/// The first four bytes of a replication datagram, for each kind, encrypted or not.
const KINDS: [[u8; 4]; 4] =
    [[0x77, 0x52, 1, 1], [0x77, 0x52, 1, 2], [0x77, 0x52, 1, 3], [0x77, 0x52, 1, 0x82]];

/// A description is one line of bounded length, whatever the datagram: it calls all decoders.
#[test]
fn decode() {
    check!().for_each(|bytes: &[u8]| {
        one_line(bytes);
        for kind in KINDS {
            one_line(&[&kind, bytes].concat());
        }
    });
}

fn one_line(datagram: &[u8]) {
    let text = describe(datagram);
    assert!(!text.is_empty() && !text.contains(char::is_control), "{text:?}");
    // The shortest field of a control datagram has 15 bytes and prints no more than 60.
    assert!(text.len() < 200 + 4 * datagram.len(), "{} bytes of description", text.len());
}

/// Any text is a file of one or two keys, or is refused; no refusal shows a digit of a key.
#[test]
fn key_file() {
    type Case = (Vec<(u8, [u8; 32])>, Vec<(u16, u8)>, Vec<u8>);
    check!().with_type::<Case>().for_each(|(lines, edits, any)| {
        let mut text = Vec::new();
        for (kind, secret) in lines.iter().take(4) {
            let key: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
            let line = match kind % 8 {
                0 => format!("# {key}\n"),
                1 => "\r\n".to_owned(),
                2 => format!("  {key}\t\n"),
                _ => format!("{key}\n"),
            };
            text.extend(line.into_bytes());
        }
        for (at, value) in edits.iter().take(2) {
            let at = usize::from(*at) % text.len().max(1);
            text.get_mut(at).into_iter().for_each(|byte| *byte = *value);
        }
        for text in [text, any.clone()] {
            let text = String::from_utf8_lossy(&text);
            let refused = match ClusterKeys::parse(&text) {
                Ok(keys) => {
                    let count = ["ClusterKeys(1)", "ClusterKeys(2)"];
                    assert!(count.contains(&format!("{keys:?}").as_str()));
                    // The same key a second time.
                    let lines = text.lines().map(str::trim);
                    let key = lines.clone().find(|line| !line.is_empty() && !line.starts_with('#'));
                    let doubled = format!("{text}\n{}", key.expect("a key"));
                    ClusterKeys::parse(&doubled).expect_err("a repeated key is refused")
                }
                Err(error) => error,
            };
            let words = refused.to_string();
            let mut shown = words.split(|it: char| !it.is_ascii_hexdigit());
            assert!(shown.all(|digits| digits.len() < 16), "{words}");
        }
    });
}

/// A sender without the key has no effect: each datagram is refused and counted, and none is
/// answered with more than a HELLO.
#[test]
fn receive() {
    check!().for_each(|bytes: &[u8]| {
        let mut endpoint = endpoint();
        let from = SocketAddr::from(([192, 0, 2, 1], 4789));
        endpoint.add_peer(PeerId(2), from, 0).expect("there is room for a peer");
        let sender = 2u64.to_be_bytes();
        for (number, kind) in KINDS.into_iter().enumerate() {
            let mut datagram = [&kind, &[0; 4], &sender[..], bytes].concat();
            assert!(endpoint.receive(from, &mut datagram, 0, &mut Nothing).is_err());
            let peer = endpoint.peer_status(PeerIndex(0), 0).expect("the peer was added");
            let refused = peer.counters.refused.total() + endpoint.refused().total();
            assert_eq!(refused, number as u64 + 1);
            assert!(peer.version.is_none());
        }
    });
}

fn endpoint() -> StreamEndpoint {
    let options =
        StreamOptions { buffers: 128, peers_max: 2, copies_max: 2, ..StreamOptions::default() };
    let identity = Identity { worker: PeerId(1), boot: BootId(1), secret: [1; 32] };
    let keys = ClusterKeys::parse(&"42".repeat(32)).expect("64 hex digits are a key");
    StreamEndpoint::new(options, identity, Fingerprint::default(), keys)
        .expect("the options are valid")
}

/// A sink that holds no records; any call but `room` is a failure.
struct Nothing;

impl Sink for Nothing {
    fn room(&self) -> usize {
        usize::MAX
    }
    fn apply(&mut self, _: Origin, _: &[StreamRecord<'_>]) {
        panic!("a record was applied without the key");
    }
    fn stream_reset(&mut self, _: Origin) {
        panic!("a stream was reset without the key");
    }
    fn copy_started(&mut self, _: Origin, _: ShardId, _: u32, _: Lineage) {
        panic!("a copy was started without the key");
    }
    fn copy_finished(&mut self, _: Origin, _: ShardId) {
        panic!("a copy was finished without the key");
    }
    fn copy_stopped(&mut self, _: Origin, _: ShardId) {
        panic!("a copy was stopped without the key");
    }
    fn sum(&self, _: Origin, _: ShardId, _: std::ops::Range<u32>) -> u64 {
        panic!("a sum was asked for without the key");
    }
}

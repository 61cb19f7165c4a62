use std::io::Cursor;
use std::net::Ipv4Addr;
use std::time::{Duration, UNIX_EPOCH};

use bolero::{TypeGenerator, check};
use weir_records::{Answer, where_was};

const PUBLIC: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
const PORT: u16 = 1100;
/// Of 2026.
const START_SEC: u64 = 1_772_323_200;

/// A line that a node wrote, or nobody.
#[derive(Clone, Debug, TypeGenerator)]
enum Line {
    Block { second: u8, home: u8, block: u8, node: u8, is_release: bool },
    Start { second: u8, node: u8, is_end: bool },
    Lost(u64),
    Junk(Junk),
}

#[derive(Clone, Debug, TypeGenerator)]
enum Junk {
    Bytes(Vec<u8>),
    /// A record in which some byte is another.
    Damaged {
        at: u16,
        byte: u8,
    },
    /// A time that is none, in a line that is about another address.
    Time([u8; 10]),
    Long(u16),
}

fn record(second: u8, event: &str, rest: &str, node: u8) -> Vec<u8> {
    let (minute, second, node) = (second / 60, second % 60, node % 3);
    format!(
        "{{\"time\":\"2026-03-01T00:{minute:02}:{second:02}.000Z\",\"event\":\"{event}\",{rest}\"node\":\"n{node}\",\"sequence\":1}}\n"
    )
    .into_bytes()
}

fn block(second: u8, home: u8, block: u8, node: u8, is_release: bool) -> Vec<u8> {
    let event = if is_release { "block-released" } else { "block-allocated" };
    let (home, first) = (home % 4, 1024 + u16::from(block % 3) * 64);
    let address = if block > 200 { Ipv4Addr::new(203, 0, 113, 2) } else { PUBLIC };
    let rest = format!(
        "\"shard\":1,\"subscriber\":\"10.200.0.{home}\",\"public\":\"{address}\",\"ports\":\"{first}-{}\",",
        first + 63
    );
    record(second, event, &rest, node)
}

impl Junk {
    /// Its one line, never a record of a block in use.
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = match self {
            Self::Bytes(bytes) => bytes.clone(),
            Self::Damaged { at, byte } => {
                let mut bytes = block(1, 1, 1, 1, false);
                let at = usize::from(*at) % bytes.len();
                bytes[at] = *byte;
                bytes.truncate(bytes.len() - 1);
                // Without its end it is none, whatever the byte is.
                bytes.pop();
                bytes
            }
            Self::Time(time) => {
                let time: String = time.iter().map(|byte| char::from(byte % 94 + 33)).collect();
                let time = time.replace(['"', '\\'], "9");
                let rest = "\"public\":\"192.0.2.1\"";
                format!("{{\"time\":\"2026-03-01T{time}99Z\",\"event\":\"block-released\",{rest}}}")
                    .into_bytes()
            }
            Self::Long(len) => vec![b'x'; usize::from(*len)],
        };
        bytes.retain(|byte| *byte != b'\n');
        bytes.push(b'\n');
        bytes
    }
}

fn ask(log: &[u8]) -> Answer {
    let at = UNIX_EPOCH + Duration::from_secs(START_SEC + 100);
    where_was([Cursor::new(log)], PUBLIC, PORT, at).expect("memory is read")
}

/// Any bytes are searched; each line counts at most once as unreadable.
#[test]
fn bytes() {
    check!().for_each(|bytes: &[u8]| {
        let answer = ask(bytes);
        let lines = bytes.split(|byte| *byte == b'\n').count() as u64;
        assert!(answer.lines_unreadable <= lines);
        assert!(answer.holders.iter().all(|it| (it.ports.0..=it.ports.1).contains(&PORT)));
    });
}

/// What nobody can read changes nothing of what the readable lines say.
#[test]
fn junk_between() {
    check!().with_type::<Vec<Line>>().for_each(|lines| {
        let (mut clean, mut all, mut lost) = (Vec::new(), Vec::new(), 0_u64);
        for line in lines.iter().take(24) {
            let bytes = match line {
                Line::Block { second, home, block: at, node, is_release } => {
                    block(*second, *home, *at, *node, *is_release)
                }
                Line::Start { second, node, is_end } => {
                    let event = if *is_end { "log-closed" } else { "log-opened" };
                    record(*second, event, "", *node)
                }
                Line::Lost(count) => {
                    lost = lost.saturating_add(*count);
                    record(1, "records-lost", &format!("\"count\":{count},"), 1)
                }
                Line::Junk(junk) => {
                    all.extend(junk.bytes());
                    continue;
                }
            };
            all.extend(&bytes);
            clean.extend(&bytes);
        }
        let (answer, with_junk) = (ask(&clean), ask(&all));
        assert_eq!((answer.lines_unreadable, answer.records_lost), (0, lost));
        assert_eq!(with_junk.holders, answer.holders);
        assert_eq!(with_junk.records_lost, lost);
        // A line of a later version may be from another time, but none takes the times of others away.
        if let Some((first, last)) = answer.covered {
            let (from, to) = with_junk.covered.expect("as without");
            assert!(from <= first && last <= to, "{:?} {:?}", with_junk.covered, answer.covered);
        }
        for holder in &answer.holders {
            assert!((holder.ports.0..=holder.ports.1).contains(&PORT));
        }
    });
}

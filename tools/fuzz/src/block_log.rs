use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::{Duration, UNIX_EPOCH};

use bolero::{TypeGenerator, check};
use weir_nat_log::{About, Holding, LogAnswer, LogQuestion, LogVerdict, search_logs};

const PUBLIC: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
const PORT: u16 = 1100;
const INSIDE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 7);
/// Start of the records: a time in 2026, seconds since the epoch.
const START_SEC: u64 = 1_772_323_200;

/// A line of a block log: from a node, or junk.
#[derive(Clone, Debug, TypeGenerator)]
enum Line {
    Record(Record),
    Lost(u64),
    Junk(Junk),
}

/// A record of a stand-alone node (epoch 0) or of a cluster member, in this version's format or the
/// previous one's.
#[derive(Clone, Debug, TypeGenerator)]
struct Record {
    second: u8,
    node: u8,
    epoch: u8,
    index: u8,
    sequence: u8,
    event: u8,
    home: u8,
    block: u8,
    number: u8,
    is_old: bool,
}

#[derive(Clone, Debug, TypeGenerator)]
enum Junk {
    Bytes(Vec<u8>),
    /// A record in which one byte is changed.
    Damaged {
        at: u16,
        byte: u8,
    },
    /// An invalid time, in a line about another address.
    Time([u8; 10]),
    Long(u16),
}

impl Record {
    fn text(&self) -> Vec<u8> {
        let events = [
            "block-allocated",
            "block-released",
            "block-held",
            "prefix-claimed",
            "prefix-released",
            "prefix-held",
            "lane-taken",
            "lane-left",
            "lane-listed",
            "log-opened",
            "log-closed",
            "log-mark",
        ];
        let event = events[usize::from(self.event) % events.len()];
        let (number, node) = (self.number % 8, self.node % 3);
        let (lane, boot) = match self.is_old {
            true => ("\"shard\":1,".to_owned(), String::new()),
            false => (
                format!(
                    "\"shard\":1,\"lane\":{},\"epoch\":{},\"index\":{},",
                    self.block % 2,
                    self.epoch % 4,
                    u64::from(self.index % 16) + 1
                ),
                format!("\"boot\":\"{:031x}{node}\",", self.epoch % 2),
            ),
        };
        let (home, first) = (self.home % 4, 1024 + u16::from(self.block % 3) * 64);
        let address = if self.block > 200 { Ipv4Addr::new(203, 0, 113, 2) } else { PUBLIC };
        let block = format!(
            "\"subscriber\":\"10.200.0.{home}\",\"public\":\"{address}\",\"ports\":\"{first}-{}\",",
            first + 63
        );
        let fields = match event {
            "block-held" if number > 4 => {
                format!("{lane}{block}\"since\":\"2026-03-01T00:00:0{number}Z\",")
            }
            "block-allocated" | "block-released" | "block-held" => lane + &block,
            "prefix-claimed" | "prefix-released" | "prefix-held" => {
                let prefix = format!("2001:db8:{}::/64", 1 + self.block % 2);
                format!("{lane}\"subscriber\":\"10.200.0.{home}\",\"prefix\":\"{prefix}\",")
            }
            "lane-taken" => format!("{lane}\"before\":{number},"),
            "lane-left" => lane,
            "lane-listed" => {
                let by_lane = if self.home > 50 { "\"claims_by_lane\":true," } else { "" };
                format!("{lane}\"blocks\":1,\"from\":{number},{by_lane}")
            }
            "log-opened" => format!("\"clustered\":{},", self.home > 100),
            _ => String::new(),
        };
        record(self.second, event, &fields, node, &boot, self.sequence)
    }
}

fn record(second: u8, event: &str, rest: &str, node: u8, boot: &str, sequence: u8) -> Vec<u8> {
    let (minute, second) = (second / 60, second % 60);
    format!(
        "{{\"time\":\"2026-03-01T00:{minute:02}:{second:02}.000Z\",\"event\":\"{event}\",{rest}\"node\":\"n{node}\",{boot}\"sequence\":{sequence}}}\n"
    )
    .into_bytes()
}

impl Junk {
    /// Returns its one line, which is never a record of a block in use.
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = match self {
            Self::Bytes(bytes) => bytes.clone(),
            Self::Damaged { at, byte } => {
                let rest = "\"shard\":1,\"subscriber\":\"10.200.0.1\",\"public\":\"203.0.113.1\",\"ports\":\"1088-1151\",";
                let mut bytes = record(1, "block-allocated", rest, 1, "", 1);
                let at = usize::from(*at) % bytes.len();
                bytes[at] = *byte;
                // Without its end the line is not a record, whatever the changed byte is.
                bytes.truncate(bytes.len() - 2);
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

fn ask_about(log: &[u8], about: About) -> LogAnswer {
    let at = UNIX_EPOCH + Duration::from_secs(START_SEC + 100);
    let time = Some((at, at));
    let question = LogQuestion { about, time, clock_error: Duration::from_secs(1) };
    let answer = search_logs(&[log], &question).expect("reading from memory cannot fail");
    let at_end = search_logs(&[log], &LogQuestion { time: None, ..question })
        .expect("reading from memory cannot fail");
    assert!(at_end.verdict != LogVerdict::Held || !at_end.holders.is_empty());
    answer
}

fn ask(log: &[u8]) -> LogAnswer {
    ask_about(log, About::Port(PUBLIC, PORT))
}

/// Checks what holds for every answer.
fn is_sound(answer: &LogAnswer) {
    let is_of_port = |holding: Holding| matches!(holding, Holding::Ports { first, last, .. } if (first..=last).contains(&PORT));
    assert!(answer.holders.iter().all(|it| is_of_port(it.holding)));
    match answer.verdict {
        LogVerdict::Held => assert!(answer.missing.is_empty() && !answer.holders.is_empty()),
        LogVerdict::Nobody => assert!(answer.missing.is_empty() && answer.holders.is_empty()),
        LogVerdict::CannotSay => assert!(!answer.missing.is_empty() || answer.holders.len() > 1),
    }
}

/// Any bytes can be searched; each line counts at most once as unreadable.
#[test]
fn bytes() {
    check!().for_each(|bytes: &[u8]| {
        let answer = ask(bytes);
        let lines = bytes.split(|byte| *byte == b'\n').count() as u64;
        assert!(answer.lines_unreadable <= lines);
        is_sound(&answer);
    });
}

/// Unreadable lines do not change the answer that the readable lines give.
#[test]
fn junk_between() {
    check!().with_type::<Vec<Line>>().for_each(|lines| {
        let (mut clean, mut all, mut lost) = (Vec::new(), Vec::new(), 0_u64);
        for line in lines.iter().take(24) {
            let bytes = match line {
                Line::Record(record) => record.text(),
                Line::Lost(count) => {
                    lost = lost.saturating_add(*count);
                    record(1, "records-lost", &format!("\"count\":{count},"), 1, "", 1)
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
        assert_eq!(answer.records_lost, lost);
        assert_eq!(LogAnswer { lines_unreadable: answer.lines_unreadable, ..with_junk }, answer);
        is_sound(&answer);
        let home = Ipv4Addr::new(10, 200, 0, 1);
        for about in [About::Address(PUBLIC), About::Home(home.into(), None), About::Ipv6(INSIDE)] {
            ask_about(&clean, about);
        }
    });
}

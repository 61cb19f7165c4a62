//! A line of the block log.
//!
//! ```text
//! {"time":"2026-03-01T12:00:00.123Z","event":"block-allocated","shard":1,"subscriber":"10.200.0.1",
//!  "public":"203.0.113.1","ports":"1024-1279","node":"n1","sequence":7}
//! {"time":"2026-03-01T11:59:59.000Z","event":"log-opened","node":"n1","sequence":1}
//! {"time":"2026-03-01T12:00:01.000Z","event":"records-lost","count":3,"node":"n1","sequence":10}
//! ```
//!
//! `log-closed` stands at each clean end: all that the node had given out ends there.
//! `sequence` counts the records of a node since its start; the lost ones are counted too. `log-opened` stands at each
//! start: whatever the node had given out before has ended, since a restart loses all state.

use std::borrow::Cow;
use std::net::Ipv4Addr;
use std::time::{SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::event::{BlockEvent, BlockEventKind};

/// What a line says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// The node started.
    Opened,
    /// The node stopped.
    Closed,
    Block(BlockEvent),
    /// This many records are missing here.
    Lost(u64),
}

/// A line, read or to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// Milliseconds since 1970, UTC.
    pub(crate) time_ms: u64,
    pub(crate) node: String,
    pub(crate) sequence: u64,
    pub(crate) content: Content,
}

/// How every line begins; the time follows, always of the same length.
pub(crate) const PREFIX: &[u8] = b"{\"time\":\"";

const OPENED: &str = "log-opened";
const CLOSED: &str = "log-closed";
const ALLOCATED: &str = "block-allocated";
const RELEASED: &str = "block-released";
const LOST: &str = "records-lost";

/// The fields in the order they are written; unknown ones are skipped, so that a log of a newer version can be read.
#[derive(Serialize, Deserialize)]
struct Fields<'a> {
    #[serde(borrow)]
    time: Cow<'a, str>,
    #[serde(borrow)]
    event: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    shard: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subscriber: Option<Ipv4Addr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gre_key: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    public: Option<Ipv4Addr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ports: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
    #[serde(borrow)]
    node: Cow<'a, str>,
    sequence: u64,
}

impl Line {
    /// Appends the line with its newline.
    pub(crate) fn emit(&self, out: &mut Vec<u8>) {
        let mut fields = Fields {
            time: format!("{:.3}", timestamp(self.time_ms)).into(),
            event: LOST.into(),
            shard: None,
            subscriber: None,
            gre_key: None,
            public: None,
            ports: None,
            count: None,
            node: self.node.as_str().into(),
            sequence: self.sequence,
        };
        match &self.content {
            Content::Opened => fields.event = OPENED.into(),
            Content::Closed => fields.event = CLOSED.into(),
            Content::Lost(count) => fields.count = Some(*count),
            Content::Block(block) => {
                fields.event = match block.kind {
                    BlockEventKind::Allocated => ALLOCATED.into(),
                    BlockEventKind::Released => RELEASED.into(),
                };
                fields.shard = Some(block.shard);
                fields.subscriber = Some(block.subscriber);
                fields.gre_key = block.gre_key;
                fields.public = Some(block.public);
                fields.ports = Some(format!("{}-{}", block.port_first, block.port_last));
            }
        }
        // Writing to memory; strings and numbers always have a JSON form.
        serde_json::to_writer(&mut *out, &fields).expect("a line is plain JSON");
        out.push(b'\n');
    }

    /// Reads one line. `Ok(None)`: a kind of record this version does not know; `Err`: not a record, e.g. cut off.
    pub(crate) fn parse(text: &[u8]) -> Result<Option<Self>, NotARecord> {
        let fields: Fields<'_> = serde_json::from_slice(text).map_err(|_| NotARecord)?;
        let content = match &*fields.event {
            OPENED => Content::Opened,
            CLOSED => Content::Closed,
            LOST => Content::Lost(fields.count.ok_or(NotARecord)?),
            ALLOCATED => {
                Content::Block(block(&fields, BlockEventKind::Allocated).ok_or(NotARecord)?)
            }
            RELEASED => Content::Block(block(&fields, BlockEventKind::Released).ok_or(NotARecord)?),
            _ => return Ok(None),
        };
        let time_ms = time_ms(fields.time.as_bytes()).ok_or(NotARecord)?;
        Ok(Some(Self {
            time_ms,
            node: fields.node.into_owned(),
            sequence: fields.sequence,
            content,
        }))
    }
}

/// A line that is not a record of the block log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotARecord;

fn block(fields: &Fields<'_>, kind: BlockEventKind) -> Option<BlockEvent> {
    let (first, last) = fields.ports.as_deref()?.split_once('-')?;
    let (port_first, port_last) = (first.parse().ok()?, last.parse().ok()?);
    Some(BlockEvent {
        kind,
        shard: fields.shard?,
        subscriber: fields.subscriber?,
        gre_key: fields.gre_key,
        public: fields.public?,
        port_first,
        port_last,
    })
    .filter(|block| block.port_first <= block.port_last)
}

/// Milliseconds since 1970; a clock before that counts as 1970.
pub(crate) fn unix_ms(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Milliseconds since 1970 of an RFC 3339 time.
pub(crate) fn time_ms(text: &[u8]) -> Option<u64> {
    let time: Timestamp = std::str::from_utf8(text).ok()?.parse().ok()?;
    u64::try_from(time.as_millisecond()).ok()
}

/// The first instant of a millisecond since 1970; the end of jiff's calendar, the year 9999, at most.
fn timestamp(ms: u64) -> Timestamp {
    let ms = i64::try_from(ms).unwrap_or(i64::MAX);
    Timestamp::from_millisecond(ms).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOCATED_LINE: &str = concat!(
        r#"{"time":"2026-03-01T12:00:00.120Z","event":"block-allocated","shard":1,"subscriber":"10.200.0.1","#,
        r#""gre_key":9,"public":"203.0.113.1","ports":"1024-1279","node":"n\"1","sequence":7}"#,
        "\n"
    );

    fn allocated() -> Line {
        let block = BlockEvent {
            kind: BlockEventKind::Allocated,
            shard: 1,
            subscriber: Ipv4Addr::new(10, 200, 0, 1),
            gre_key: Some(9),
            public: Ipv4Addr::new(203, 0, 113, 1),
            port_first: 1024,
            port_last: 1279,
        };
        let node = "n\"1".to_owned();
        Line { time_ms: 1_772_366_400_120, node, sequence: 7, content: Content::Block(block) }
    }

    fn emitted(line: &Line) -> String {
        let mut out = Vec::new();
        line.emit(&mut out);
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn a_line_reads_as_documented() {
        assert_eq!(emitted(&allocated()), ALLOCATED_LINE);
        assert_eq!(Line::parse(ALLOCATED_LINE.as_bytes()), Ok(Some(allocated())));
    }

    #[test]
    fn whole_seconds_keep_their_milliseconds() {
        let opened =
            Line { time_ms: 1000, node: "n".into(), sequence: 1, content: Content::Opened };
        let text =
            r#"{"time":"1970-01-01T00:00:01.000Z","event":"log-opened","node":"n","sequence":1}"#;
        assert_eq!(emitted(&opened).trim_end(), text);
        assert_eq!(Line::parse(text.as_bytes()), Ok(Some(opened)));
    }

    #[test]
    fn lines_of_a_newer_version_are_read_as_far_as_they_are_known() {
        let more = ALLOCATED_LINE.replace("\"shard\"", "\"colour\":[\"blue\"],\"shard\"");
        assert_eq!(Line::parse(more.as_bytes()), Ok(Some(allocated())));
        let other = ALLOCATED_LINE.replace("block-allocated", "quota-reached");
        assert_eq!(Line::parse(other.as_bytes()), Ok(None));
    }

    #[test]
    fn a_line_cut_off_anywhere_is_not_a_record() {
        let text = ALLOCATED_LINE.trim_end();
        for end in 0..text.len() {
            assert_eq!(Line::parse(&text.as_bytes()[..end]), Err(NotARecord), "{end}");
        }
        for wrong in
            [("1024-1279", "1279-1024"), ("1024-1279", "1024"), ("2026", "1926"), (":7}", ":-7}")]
        {
            let text = ALLOCATED_LINE.replace(wrong.0, wrong.1);
            assert_eq!(Line::parse(text.as_bytes()), Err(NotARecord), "{text}");
        }
    }

    #[test]
    fn no_bytes_make_the_reader_panic_and_what_it_reads_it_can_write() {
        bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
            let _ = Line::parse(bytes);
        });
        bolero::check!().with_type::<(u64, u32, Option<u32>, u16, u16, String)>().for_each(
            |case| {
                let (time_ms, address, gre_key, port, more, node) = case.clone();
                let mut line = allocated();
                // Times end at 9999-12-30T22:00Z.
                line.time_ms = time_ms % 253_402_207_200_000;
                line.node = node;
                if let Content::Block(block) = &mut line.content {
                    (block.public, block.gre_key) = (address.into(), gre_key);
                    (block.port_first, block.port_last) = (port, port.saturating_add(more));
                }
                assert_eq!(Line::parse(emitted(&line).as_bytes()), Ok(Some(line)));
            },
        );
    }
}

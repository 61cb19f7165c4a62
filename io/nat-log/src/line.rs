//! A line of the block log.
//!
//! ```text
//! {"time":"2026-03-01T11:59:59.000Z","event":"log-opened","clustered":true,
//!  "node":"n1","boot":"4f..","sequence":1}
//! {"time":"2026-03-01T12:00:00.100Z","event":"lane-taken","shard":1,"lane":3,"epoch":17,
//!  "index":1,"before":12,"node":"n1","boot":"4f..","sequence":2}
//! {"time":"2026-03-01T12:00:00.123Z","event":"block-allocated","shard":1,"lane":3,"epoch":17,
//!  "index":2,"subscriber":"10.200.0.1","public":"203.0.113.1","ports":"1024-1279",
//!  "node":"n1","boot":"4f..","sequence":3}
//! {"time":"2026-03-01T12:00:00.456Z","event":"prefix-claimed","shard":1,"lane":0,"epoch":17,
//!  "index":5,"subscriber":"10.200.0.1","prefix":"2001:db8:1000:1::/64",
//!  "node":"n1","boot":"4f..","sequence":4}
//! {"time":"2026-03-01T12:00:01.000Z","event":"records-lost","count":3,
//!  "node":"n1","boot":"4f..","sequence":7}
//! ```
//!
//! docs/operations.md describes the meaning of each event. `sequence` counts the records of one
//! incarnation of a node, including lost ones. Lines without `boot`, `lane`, `epoch` and `index`
//! are those of an older version.
//!
//! There is no version number. A reader skips an event that it does not know, and the skipped
//! record leaves a gap in `index`: so a reader older than an event answers for the lane that it
//! cannot say, until a listing that it knows completely.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::event::{AssignedBlock, BlockRecord, BlockRecordKind, PrefixClaim};
use crate::holding::Prefix64;

/// Lanes of a shard.
pub(crate) const LANES: u8 = 8;
/// A standalone node owns all lanes. In this one are the flows without ports of its own: those from
/// IPv6 prefixes that homes have claimed, and without translation all.
pub(crate) const PORTLESS_LANE: u8 = 0;
/// How far a mark is dated back from the time at which the rings were empty: a worker sends
/// packets, then stamps the record of a new block, then hands it in.
pub(crate) const MARK_MARGIN_MS: u64 = 1000;

/// The content of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// The process started.
    Opened {
        is_clustered: bool,
        /// The incarnation that wrote the previous record in the same file.
        boot_before: Option<u128>,
    },
    /// The process ended in an orderly way.
    Closed,
    /// Every record from before this time is above this line.
    Mark,
    /// This many records are missing here.
    Lost(u64),
    Lane(BlockRecord),
    /// A block assigned or released, in a line without lane, epoch and index.
    Old {
        shard: u32,
        block: AssignedBlock,
        is_release: bool,
    },
}

/// A line, read or to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlockLogLine {
    /// Milliseconds since 1970, UTC.
    pub(crate) time_ms: u64,
    pub(crate) node: String,
    /// `None` in the lines of an older version.
    pub(crate) boot: Option<u128>,
    pub(crate) sequence: u64,
    pub(crate) content: Content,
}

/// The beginning of every line; the time follows, always of the same length.
pub(crate) const PREFIX: &[u8] = b"{\"time\":\"";

const OPENED: &str = "log-opened";
const CLOSED: &str = "log-closed";
const MARK: &str = "log-mark";
const LOST: &str = "records-lost";
const TAKEN: &str = "lane-taken";
const LEFT: &str = "lane-left";
const LISTED: &str = "lane-listed";
const ALLOCATED: &str = "block-allocated";
const RELEASED: &str = "block-released";
const HELD: &str = "block-held";
const PREFIX_CLAIMED: &str = "prefix-claimed";
const PREFIX_RELEASED: &str = "prefix-released";
const PREFIX_HELD: &str = "prefix-held";

/// The fields in the order in which they are written; unknown ones are skipped, so that the log of
/// a newer version can be read.
#[derive(Default, Serialize, Deserialize)]
struct Fields<'a> {
    #[serde(borrow)]
    time: Cow<'a, str>,
    #[serde(borrow)]
    event: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    clustered: Option<bool>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    boot_before: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    shard: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lane: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    epoch: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    blocks: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    claims_by_lane: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subscriber: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gre_key: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    public: Option<Ipv4Addr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ports: Option<String>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    prefix: Option<Cow<'a, str>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    since: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
    #[serde(borrow)]
    node: Cow<'a, str>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    boot: Option<Cow<'a, str>>,
    sequence: u64,
}

impl BlockLogLine {
    /// Appends the line with its newline.
    pub(crate) fn emit(&self, out: &mut Vec<u8>) {
        let mut fields = Fields {
            time: time_text(self.time_ms).into(),
            node: self.node.as_str().into(),
            boot: self.boot.map(|boot| boot_text(boot).into()),
            sequence: self.sequence,
            ..Fields::default()
        };
        match &self.content {
            Content::Opened { is_clustered, boot_before } => {
                fields.event = OPENED.into();
                fields.clustered = Some(*is_clustered);
                fields.boot_before = boot_before.map(|boot| boot_text(boot).into());
            }
            Content::Closed => fields.event = CLOSED.into(),
            Content::Mark => fields.event = MARK.into(),
            Content::Lost(count) => (fields.event, fields.count) = (LOST.into(), Some(*count)),
            Content::Lane(event) => fields.set_lane(event),
            Content::Old { shard, block, is_release } => {
                fields.event = if *is_release { RELEASED } else { ALLOCATED }.into();
                fields.shard = Some(*shard);
                fields.set_block(block);
            }
        }
        // This writes to memory; strings and numbers always have a JSON form.
        serde_json::to_writer(&mut *out, &fields).expect("a line is plain JSON");
        out.push(b'\n');
    }

    /// Parses one line. `Ok(None)`: a kind of record that this version does not know; `Err`: not a
    /// record, e.g. cut off.
    pub(crate) fn parse(text: &[u8]) -> Result<Option<Self>, NotARecord> {
        let fields: Fields<'_> = serde_json::from_slice(text).map_err(|_| NotARecord)?;
        let Some(content) = fields.content().transpose() else { return Ok(None) };
        let boot = fields.boot.as_deref().map(|boot| parse_boot(boot.as_bytes()).ok_or(NotARecord));
        Ok(Some(Self {
            time_ms: time_ms(fields.time.as_bytes()).ok_or(NotARecord)?,
            node: fields.node.into_owned(),
            boot: boot.transpose()?,
            sequence: fields.sequence,
            content: content?,
        }))
    }
}

/// A line that is not a record of the block log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotARecord;

impl Fields<'_> {
    fn set_lane(&mut self, event: &BlockRecord) {
        (self.shard, self.lane) = (Some(event.shard), Some(event.lane));
        (self.epoch, self.index) = (Some(event.epoch), Some(event.index));
        let name = match event.kind {
            BlockRecordKind::Taken { before } => {
                self.before = before;
                TAKEN
            }
            BlockRecordKind::Left => LEFT,
            BlockRecordKind::Listed { blocks, from, are_claims_by_lane } => {
                (self.blocks, self.from) = (Some(blocks), Some(from));
                self.claims_by_lane = are_claims_by_lane.then_some(true);
                LISTED
            }
            BlockRecordKind::Allocated(block) => {
                self.set_block(&block);
                ALLOCATED
            }
            BlockRecordKind::Released(block) => {
                self.set_block(&block);
                RELEASED
            }
            BlockRecordKind::Held { block, since } => {
                self.set_block(&block);
                self.since = since.map(|since| time_text(unix_ms(since)).into());
                HELD
            }
            BlockRecordKind::PrefixClaimed(claim) => {
                self.set_prefix(&claim);
                PREFIX_CLAIMED
            }
            BlockRecordKind::PrefixReleased(claim) => {
                self.set_prefix(&claim);
                PREFIX_RELEASED
            }
            BlockRecordKind::PrefixHeld(claim) => {
                self.set_prefix(&claim);
                PREFIX_HELD
            }
        };
        self.event = name.into();
    }

    fn set_block(&mut self, block: &AssignedBlock) {
        (self.subscriber, self.gre_key) = (Some(block.subscriber), block.gre_key);
        self.public = Some(block.public);
        self.ports = Some(format!("{}-{}", block.port_first, block.port_last));
    }

    fn set_prefix(&mut self, claim: &PrefixClaim) {
        (self.subscriber, self.gre_key) = (Some(claim.subscriber), claim.gre_key);
        self.prefix = Some(claim.prefix.to_string().into());
    }

    /// Returns the content; `None` for an event that this version does not know.
    fn content(&self) -> Result<Option<Content>, NotARecord> {
        let content = match &*self.event {
            OPENED => {
                let before = self.boot_before.as_deref();
                let boot_before =
                    before.map(|boot| parse_boot(boot.as_bytes()).ok_or(NotARecord)).transpose()?;
                Content::Opened { is_clustered: self.clustered.unwrap_or(false), boot_before }
            }
            CLOSED => Content::Closed,
            MARK => Content::Mark,
            LOST => Content::Lost(self.count.ok_or(NotARecord)?),
            ALLOCATED if self.is_old() => self.old(false)?,
            RELEASED if self.is_old() => self.old(true)?,
            TAKEN => self.lane(BlockRecordKind::Taken { before: self.before })?,
            LEFT => self.lane(BlockRecordKind::Left)?,
            LISTED => {
                let (blocks, from) = self.blocks.zip(self.from).ok_or(NotARecord)?;
                let are_claims_by_lane = self.claims_by_lane == Some(true);
                self.lane(BlockRecordKind::Listed { blocks, from, are_claims_by_lane })?
            }
            ALLOCATED => self.lane(BlockRecordKind::Allocated(self.block()?))?,
            RELEASED => self.lane(BlockRecordKind::Released(self.block()?))?,
            HELD => {
                let since = self.since.as_deref().map(|since| time_ms(since.as_bytes()));
                let since = since.map(|ms| ms.map(system_time).ok_or(NotARecord)).transpose()?;
                self.lane(BlockRecordKind::Held { block: self.block()?, since })?
            }
            PREFIX_CLAIMED => self.lane(BlockRecordKind::PrefixClaimed(self.claim()?))?,
            PREFIX_RELEASED => self.lane(BlockRecordKind::PrefixReleased(self.claim()?))?,
            PREFIX_HELD => self.lane(BlockRecordKind::PrefixHeld(self.claim()?))?,
            _ => return Ok(None),
        };
        Ok(Some(content))
    }

    fn is_old(&self) -> bool {
        self.boot.is_none() && self.lane.is_none() && self.epoch.is_none() && self.index.is_none()
    }

    fn old(&self, is_release: bool) -> Result<Content, NotARecord> {
        let shard = self.shard.ok_or(NotARecord)?;
        Ok(Content::Old { shard, block: self.block()?, is_release })
    }

    fn lane(&self, kind: BlockRecordKind) -> Result<Content, NotARecord> {
        let lane = self.lane.filter(|lane| *lane < LANES).ok_or(NotARecord)?;
        let index = self.index.filter(|index| *index > 0).ok_or(NotARecord)?;
        let (shard, epoch) = self.shard.zip(self.epoch).ok_or(NotARecord)?;
        self.boot.as_ref().ok_or(NotARecord)?;
        Ok(Content::Lane(BlockRecord { shard, lane, epoch, index, kind }))
    }

    fn claim(&self) -> Result<PrefixClaim, NotARecord> {
        let prefix = self.prefix.as_deref().and_then(Prefix64::parse);
        let (subscriber, prefix) = self.subscriber.zip(prefix).ok_or(NotARecord)?;
        Ok(PrefixClaim { subscriber, gre_key: self.gre_key, prefix })
    }

    fn block(&self) -> Result<AssignedBlock, NotARecord> {
        let ports = self.ports.as_deref().and_then(|ports| ports.split_once('-'));
        let (first, last) = ports.ok_or(NotARecord)?;
        let (first, last) = first.parse().ok().zip(last.parse().ok()).ok_or(NotARecord)?;
        let (subscriber, public) = self.subscriber.zip(self.public).ok_or(NotARecord)?;
        let block = AssignedBlock {
            subscriber,
            gre_key: self.gre_key,
            public,
            port_first: first,
            port_last: last,
        };
        if first <= last { Ok(block) } else { Err(NotARecord) }
    }
}

fn boot_text(boot: u128) -> String {
    format!("{boot:032x}")
}

/// Parses 32 hexadecimal digits.
pub(crate) fn parse_boot(text: &[u8]) -> Option<u128> {
    let digit = |boot: u128, byte: &u8| Some(boot << 4 | u128::from((*byte as char).to_digit(16)?));
    if text.len() == 32 { text.iter().try_fold(0, digit) } else { None }
}

/// Returns the milliseconds since 1970; a time before 1970 counts as 0.
pub(crate) fn unix_ms(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

pub(crate) fn system_time(ms: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(ms)
}

/// Parses an RFC 3339 time into milliseconds since 1970.
pub(crate) fn time_ms(text: &[u8]) -> Option<u64> {
    let time: Timestamp = std::str::from_utf8(text).ok()?.parse().ok()?;
    u64::try_from(time.as_millisecond()).ok()
}

/// Formats milliseconds since 1970 as RFC 3339; a time beyond jiff's calendar, the year 9999,
/// becomes the last one.
fn time_text(ms: u64) -> String {
    let ms = i64::try_from(ms).unwrap_or(i64::MAX);
    let time = Timestamp::from_millisecond(ms).unwrap_or(Timestamp::MAX);
    format!("{time:.3}")
}

#[cfg(test)]
#[path = "line_tests.rs"]
mod tests;

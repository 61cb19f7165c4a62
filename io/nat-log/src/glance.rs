//! Reads the fields that a search needs of every line without parsing it as JSON: many times
//! faster, for nearly all lines of a log.
//!
//! Only whole lines about blocks and prefixes, in the writer's own format, are read here; every
//! other line is left to [`crate::line`].

use memchr::memmem::Finder;

use crate::holding::Prefix64;
use crate::line::{LANES, PREFIX, parse_boot, time_ms};

/// `2026-03-01T12:00:00.123Z`.
const TIME_BYTES: usize = 24;
const DATE_BYTES: usize = 10;

/// The fields of every line about a block or a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Glimpse<'a> {
    pub(crate) time_ms: u64,
    pub(crate) shard: u32,
    /// Lane, epoch and index; `None` in a line of an older version.
    pub(crate) lane: Option<(u8, u64, u64)>,
    pub(crate) writer: WriterName<'a>,
    pub(crate) sequence: u64,
    is_of_prefix: bool,
    text: &'a [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriterName<'a> {
    Boot(u128),
    /// Name of the node, in a line of an older version.
    Node(&'a str),
}

/// Reads lines, and remembers the date of the last one and the time at which that day begins.
#[derive(Debug)]
pub(crate) struct Glance {
    public: Finder<'static>,
    prefix: Finder<'static>,
    date: [u8; DATE_BYTES],
    date_ms: u64,
}

impl Glance {
    pub(crate) fn new() -> Self {
        Self {
            public: Finder::new("\"public\":\""),
            prefix: Finder::new("\"prefix\":\""),
            date: [0; DATE_BYTES],
            date_ms: 0,
        }
    }

    /// Reads a line; `None` if it must be parsed as JSON.
    pub(crate) fn read<'a>(&mut self, text: &'a [u8]) -> Option<Glimpse<'a>> {
        let rest = text.strip_prefix(PREFIX)?;
        let (time, rest) = rest.split_first_chunk::<TIME_BYTES>()?;
        let (rest, is_of_prefix) = event(rest.strip_prefix(b"\",\"event\":\"")?)?;
        let (shard, rest) = number(rest.strip_prefix(b"\",\"shard\":")?)?;
        let (sequence, before) = last_number(text.strip_suffix(b"}\n")?)?;
        let before = before.strip_suffix(b"\",\"sequence\":")?;
        let (lane, writer) = match rest.strip_prefix(b",\"lane\":") {
            Some(rest) => {
                let (lane, rest) = number(rest)?;
                let (epoch, rest) = number(rest.strip_prefix(b",\"epoch\":")?)?;
                let (index, _) = number(rest.strip_prefix(b",\"index\":")?)?;
                let (before, boot) = before.split_last_chunk::<32>()?;
                before.strip_suffix(b"\",\"boot\":\"")?;
                let lane = u8::try_from(lane).ok().filter(|lane| *lane < LANES && index > 0)?;
                (Some((lane, epoch, index)), WriterName::Boot(parse_boot(boot)?))
            }
            None => {
                let quote = memchr::memrchr(b'"', before)?;
                before[..quote].strip_suffix(b",\"node\":")?;
                let node = std::str::from_utf8(&before[quote + 1..]).ok()?;
                (None, WriterName::Node(node).without_escapes()?)
            }
        };
        if is_of_prefix && lane.is_none() {
            return None;
        }
        let (time_ms, shard) = (self.time_ms(time)?, u32::try_from(shard).ok()?);
        Some(Glimpse { time_ms, shard, lane, writer, sequence, is_of_prefix, text })
    }

    /// Returns the public address or the prefix of a line, as it is written there; `None` if the
    /// line must be parsed as JSON.
    pub(crate) fn subject<'a>(&self, line: &Glimpse<'a>) -> Option<&'a [u8]> {
        let name = if line.is_of_prefix { &self.prefix } else { &self.public };
        let rest = &line.text[name.find(line.text)? + name.needle().len()..];
        let subject = &rest[..memchr::memchr(b'"', rest)?];
        let is_right = match line.is_of_prefix {
            true => std::str::from_utf8(subject).ok().and_then(Prefix64::parse).is_some(),
            false => subject.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.'),
        };
        is_right.then_some(subject)
    }

    /// Parses a time; a date is looked up in the calendar only once.
    fn time_ms(&mut self, time: &[u8; TIME_BYTES]) -> Option<u64> {
        let (date, clock) = time.split_first_chunk::<DATE_BYTES>()?;
        let clock_ms = clock_ms(clock)?;
        if self.date != *date {
            self.date_ms = time_ms(time)? - clock_ms;
            self.date = *date;
        }
        Some(self.date_ms + clock_ms)
    }
}

impl WriterName<'_> {
    /// Returns `None` for a node name with a backslash: the writer's names have none, and in a
    /// foreign line the quote before the name may be the end of an escape.
    fn without_escapes(self) -> Option<Self> {
        match self {
            Self::Node(name) if name.contains('\\') => None,
            writer => Some(writer),
        }
    }
}

/// Reads the event of a line about a block or a prefix; returns the text behind it, and whether it
/// is about a prefix.
fn event(text: &[u8]) -> Option<(&[u8], bool)> {
    let (rest, is_of_prefix, first) = match text.strip_prefix(b"block-") {
        Some(rest) => (rest, false, &b"allocated"[..]),
        None => (text.strip_prefix(b"prefix-")?, true, &b"claimed"[..]),
    };
    let rest = [first, b"released", b"held"].iter().find_map(|event| rest.strip_prefix(*event))?;
    Some((rest, is_of_prefix))
}

/// Returns the milliseconds of `T12:00:00.123Z`, a time that every day has.
fn clock_ms(text: &[u8]) -> Option<u64> {
    let form = b"T29:59:59.999Z";
    let fits = |(byte, most): (&u8, &u8)| match most {
        b'0'..=b'9' => (b'0'..=*most).contains(byte),
        _ => byte == most,
    };
    let is_clock = text.len() == form.len() && text.iter().zip(form).all(fits);
    if !is_clock || text[1..3] >= b"24"[..] {
        return None;
    }
    let digits = |range: std::ops::Range<usize>| {
        text[range].iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'))
    };
    Some(((digits(1..3) * 60 + digits(4..6)) * 60 + digits(7..9)) * 1000 + digits(10..13))
}

/// Parses a number of at most 19 digits in JSON format; returns it and the text behind it.
fn number(text: &[u8]) -> Option<(u64, &[u8])> {
    let count = text.iter().take(20).take_while(|byte| byte.is_ascii_digit()).count();
    Some((parse(&text[..count])?, &text[count..]))
}

/// Parses the number at the end; returns it and the text before it.
fn last_number(text: &[u8]) -> Option<(u64, &[u8])> {
    let count = text.iter().rev().take(20).take_while(|byte| byte.is_ascii_digit()).count();
    let (before, digits) = text.split_at(text.len() - count);
    Some((parse(digits)?, before))
}

fn parse(digits: &[u8]) -> Option<u64> {
    let is_canonical = matches!(digits, [b'0'] | [b'1'..=b'9', ..]) && digits.len() < 20;
    let sum = |sum: u64, digit: &u8| sum * 10 + u64::from(digit - b'0');
    is_canonical.then(|| digits.iter().fold(0, sum))
}

/// Finds lines that name an address or a prefix.
#[derive(Debug)]
pub(crate) struct Mention(Finder<'static>);

impl Mention {
    pub(crate) fn new(name: &str) -> Self {
        Self(Finder::new(&format!("\"{name}\"")).into_owned())
    }

    pub(crate) fn is_in(&self, text: &[u8]) -> bool {
        self.0.find(text).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{AssignedBlock, BlockRecord, BlockRecordKind, PrefixClaim};
    use crate::line::{BlockLogLine, Content};

    fn block(public: u32) -> AssignedBlock {
        AssignedBlock {
            subscriber: [10, 200, 0, 1].into(),
            gre_key: Some(4),
            public: public.into(),
            port_first: 1024,
            port_last: 1279,
        }
    }

    fn agrees(glance: &mut Glance, line: &BlockLogLine) {
        let mut text = Vec::new();
        line.emit(&mut text);
        let seen = glance.read(&text).unwrap_or_else(|| panic!("{line:?}"));
        let (shard, lane, subject) = match line.content {
            Content::Lane(event) => {
                let subject = match event.kind {
                    BlockRecordKind::Held { block, .. } => block.public.to_string(),
                    BlockRecordKind::PrefixHeld(claim) => claim.prefix.to_string(),
                    other => panic!("{other:?}"),
                };
                (event.shard, Some((event.lane, event.epoch, event.index)), subject)
            }
            Content::Old { shard, block, .. } => (shard, None, block.public.to_string()),
            _ => unreachable!(),
        };
        assert_eq!((seen.time_ms, seen.sequence), (line.time_ms, line.sequence));
        assert_eq!((seen.shard, seen.lane), (shard, lane));
        assert_eq!(glance.subject(&seen), Some(subject.as_bytes()));
        match seen.writer {
            WriterName::Boot(boot) => assert_eq!(line.boot, Some(boot)),
            WriterName::Node(node) => assert_eq!((line.boot, line.node.as_str()), (None, node)),
        }
    }

    #[test]
    fn a_glance_reads_the_same_fields_as_the_parser() {
        type Case = (u64, (u32, u64), u32, u8, u64, u64, u128, u64);
        bolero::check!().with_type::<Case>().for_each(|case| {
            let (time_ms, (public, bits), shard, lane, epoch, index, boot, sequence) = *case;
            // Times end in the year 9999; numbers of more than 19 digits are left to the parser.
            let time_ms = time_ms % 253_402_207_200_000;
            let (epoch, index, sequence) = (epoch >> 1, (index >> 1).max(1), sequence >> 1);
            let (lane, block) = (lane % LANES, block(public));
            let kind = BlockRecordKind::Held { block, since: None };
            let event = BlockRecord { shard, lane, epoch, index, kind };
            let content = Content::Lane(event);
            let node = "n-1".to_owned();
            let line = BlockLogLine { time_ms, node, boot: Some(boot), sequence, content };
            let mut glance = Glance::new();
            agrees(&mut glance, &line);
            let prefix = Prefix64::from_bits(bits);
            let claim = PrefixClaim {
                subscriber: std::net::Ipv4Addr::from(public).into(),
                gre_key: None,
                prefix,
            };
            let kind = BlockRecordKind::PrefixHeld(claim);
            let content = Content::Lane(BlockRecord { kind, ..event });
            agrees(&mut glance, &BlockLogLine { content, ..line.clone() });
            let content = Content::Old { shard, block, is_release: false };
            agrees(&mut glance, &BlockLogLine { boot: None, content, ..line });
        });
    }

    #[test]
    fn a_damaged_line_that_a_glance_reads_is_parsed_to_the_same() {
        let content = Content::Old { shard: 1, block: block(7), is_release: false };
        let old = BlockLogLine { time_ms: 1, node: "n".into(), boot: None, sequence: 1, content };
        let mut good = Vec::new();
        old.emit(&mut good);
        bolero::check!().with_type::<(Vec<(u16, u8)>, bool)>().for_each(|(changes, is_cut)| {
            let mut text = good.clone();
            for (at, byte) in changes.iter().take(3) {
                let at = usize::from(*at) % text.len();
                text[at] = *byte;
            }
            if *is_cut {
                text.truncate(text.len() / 2);
            }
            let Some(seen) = Glance::new().read(&text).map(|seen| (seen.time_ms, seen.sequence))
            else {
                return;
            };
            // A glance skips the middle of a line, which the parser may refuse.
            if let Ok(Some(line)) = BlockLogLine::parse(&text) {
                assert_eq!(seen, (line.time_ms, line.sequence));
            }
        });
    }
}

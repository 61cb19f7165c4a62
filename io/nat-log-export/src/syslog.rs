//! Messages of syslog (RFC 5424), each preceded by its length (RFC 6587, section 3.4.1; RFC 5425,
//! section 4.3).
//!
//! ```text
//! 223 <134>1 2026-03-01T12:00:00.123Z n1 weir - block-allocated [weir@32473 node="1" shard="1"
//!  lane="0" epoch="5" index="7" subscriber="10.200.0.1" public="203.0.113.1" ports="1024-1279"]
//! ```
//!
//! The names of the parameters are those of the block log. Without a private enterprise number
//! there is no name that the structured data may have (RFC 5424, section 7): the same parameters
//! are then the text of the message.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};

use crate::nat_event::{
    ExportedBlock, ExportedHome, ExportedPrefix, ExportedSession, NatEvent, NatEventKind, Quota,
};

/// Largest length of a host name (RFC 5424, section 6).
const HOST_CHARACTERS_MAX: usize = 255;
const APP_CHARACTERS_MAX: usize = 48;
const NIL: &str = "-";
const MS_PER_DAY: u64 = 86_400_000;
/// The end of the year 9999: a later time has no form in RFC 3339.
const TIME_MS_MAX: u64 = 253_402_300_799_999;

/// Options of the encoder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyslogOptions {
    /// Facility, 0 to 23 (RFC 5424, section 6.2.1).
    pub facility: u8,
    /// Severity, 0 to 7.
    pub severity: u8,
    /// HOSTNAME: the name of the node.
    pub host: String,
    /// APP-NAME.
    pub app: String,
    /// Private enterprise number of the structured data; `None`: the parameters are the text of the
    /// message.
    pub enterprise: Option<u32>,
}

/// Options that cannot be expressed in syslog.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SyslogError {
    #[error("facility {0}: give 0 to 23 (16 to 23 are local0 to local7)")]
    Facility(u8),
    #[error("severity {0}: give 0 (emergency) to 7 (debug)")]
    Severity(u8),
    #[error(
        "`{text}` cannot be the {what} of a syslog message: give 1 to {most} visible ASCII characters"
    )]
    Name { what: &'static str, text: String, most: usize },
}

/// Encodes events as messages.
#[derive(Debug)]
pub struct SyslogEncoder {
    /// `<PRI>1 `
    before_time: Vec<u8>,
    /// ` HOSTNAME APP-NAME - `
    after_time: Vec<u8>,
    /// Bytes that open and close the parameters.
    open: Vec<u8>,
    close: &'static [u8],
    message: Vec<u8>,
}

impl SyslogEncoder {
    /// # Errors
    /// Names the option that does not fit the grammar of RFC 5424.
    pub fn new(options: &SyslogOptions) -> Result<Self, SyslogError> {
        if options.facility > 23 {
            return Err(SyslogError::Facility(options.facility));
        }
        if options.severity > 7 {
            return Err(SyslogError::Severity(options.severity));
        }
        check("HOSTNAME", &options.host, HOST_CHARACTERS_MAX)?;
        check("APP-NAME", &options.app, APP_CHARACTERS_MAX)?;
        let priority = u16::from(options.facility) * 8 + u16::from(options.severity);
        let (open, close): (_, &[u8]) = match options.enterprise {
            Some(number) => (format!(" [weir@{number}"), b"]"),
            None => (format!(" {NIL}"), b""),
        };
        Ok(Self {
            before_time: format!("<{priority}>1 ").into_bytes(),
            after_time: format!(" {} {} {NIL} ", options.host, options.app).into_bytes(),
            open: open.into_bytes(),
            close,
            message: Vec::with_capacity(1024),
        })
    }

    /// Appends the message of the first event, if there is one, preceded by its length. Returns the
    /// number of events in it.
    pub fn next<'a>(
        &mut self,
        events: impl IntoIterator<Item = &'a NatEvent>,
        out: &mut Vec<u8>,
    ) -> usize {
        let Some(event) = events.into_iter().next() else { return 0 };
        let mut message = std::mem::take(&mut self.message);
        message.clear();
        self.put_message(event, &mut message);
        put_number(out, message.len() as u64);
        out.push(b' ');
        out.extend_from_slice(&message);
        self.message = message;
        1
    }

    fn put_message(&self, event: &NatEvent, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.before_time);
        put_time(out, event.time_ms);
        out.extend_from_slice(&self.after_time);
        out.extend_from_slice(message_id(&event.kind).as_bytes());
        out.extend_from_slice(&self.open);
        let mut parameters = Parameters(out);
        parameters.number("node", u64::from(event.node));
        if !matches!(event.kind, NatEventKind::RecordsLost { .. }) {
            parameters.number("shard", u64::from(event.shard));
        }
        if event.index > 0 {
            parameters.number("lane", u64::from(event.lane));
            parameters.number("epoch", event.epoch);
            parameters.number("index", event.index);
        }
        parameters.kind(&event.kind);
        out.extend_from_slice(self.close);
    }
}

fn check(what: &'static str, text: &str, most: usize) -> Result<(), SyslogError> {
    let is_visible = text.bytes().all(|byte| byte.is_ascii_graphic());
    if is_visible && (1..=most).contains(&text.len()) {
        return Ok(());
    }
    Err(SyslogError::Name { what, text: text.to_owned(), most })
}

/// Returns the MSGID.
fn message_id(kind: &NatEventKind) -> &'static str {
    match kind {
        NatEventKind::BlockAllocated(_) => "block-allocated",
        NatEventKind::BlockReleased(_) => "block-released",
        NatEventKind::BlockHeld { .. } => "block-held",
        NatEventKind::PrefixClaimed(_) => "prefix-claimed",
        NatEventKind::PrefixReleased(_) => "prefix-released",
        NatEventKind::PrefixHeld(_) => "prefix-held",
        NatEventKind::SessionBegun(_) => "session-begun",
        NatEventKind::SessionEnded(_) => "session-ended",
        NatEventKind::QuotaExceeded { .. } => "quota-exceeded",
        NatEventKind::PortsExhausted { .. } => "ports-exhausted",
        NatEventKind::AddressesExhausted { .. } => "addresses-exhausted",
        NatEventKind::RecordsLost { .. } => "records-lost",
    }
}

/// Writer of parameters `name="value"`, each preceded by a space. No value has a character that
/// must be escaped (RFC 5424, section 6.3.3).
struct Parameters<'a>(&'a mut Vec<u8>);

impl Parameters<'_> {
    fn kind(&mut self, kind: &NatEventKind) {
        if let Some(home) = kind.home() {
            self.home(&home);
        }
        match kind {
            NatEventKind::BlockAllocated(block) | NatEventKind::BlockReleased(block) => {
                self.block(block);
            }
            NatEventKind::BlockHeld { block, since_ms } => {
                self.block(block);
                if let Some(since_ms) = since_ms {
                    self.quoted("since", |out| put_time(out, *since_ms));
                }
            }
            NatEventKind::PrefixClaimed(prefix)
            | NatEventKind::PrefixReleased(prefix)
            | NatEventKind::PrefixHeld(prefix) => self.prefix(prefix),
            NatEventKind::SessionBegun(session) | NatEventKind::SessionEnded(session) => {
                self.session(session);
            }
            NatEventKind::QuotaExceeded { quota, limit, .. } => {
                let quota = match quota {
                    Quota::PortsPerHome => "ports",
                    Quota::SessionsPerHome => "sessions",
                };
                self.quoted("quota", |out| out.extend_from_slice(quota.as_bytes()));
                self.number("limit", u64::from(*limit));
            }
            NatEventKind::PortsExhausted { public, protocol, .. } => {
                self.address("public", *public);
                self.number("protocol", u64::from(*protocol));
            }
            NatEventKind::AddressesExhausted { .. } => {}
            NatEventKind::RecordsLost { count, total } => {
                self.number("count", *count);
                self.number("total", *total);
            }
        }
    }

    fn home(&mut self, home: &ExportedHome) {
        match home.address {
            IpAddr::V4(address) => self.address("subscriber", address),
            // Neither memory nor the formatting of an address fails.
            IpAddr::V6(address) => self.quoted("subscriber", |out| _ = write!(out, "{address}")),
        }
        if let Some(key) = home.gre_key {
            self.number("gre_key", u64::from(key));
        }
    }

    fn block(&mut self, block: &ExportedBlock) {
        self.address("public", block.public);
        self.quoted("ports", |out| {
            put_number(out, u64::from(block.port_first));
            out.push(b'-');
            put_number(out, u64::from(block.port_last));
        });
    }

    fn prefix(&mut self, prefix: &ExportedPrefix) {
        self.quoted("prefix", |out| {
            let (first, length) = (prefix.first(), ExportedPrefix::LENGTH);
            // Neither memory nor the formatting of an address fails.
            let _ = write!(out, "{first}/{length}");
        });
    }

    fn session(&mut self, session: &ExportedSession) {
        self.number("protocol", u64::from(session.protocol));
        self.endpoint("inside", session.inside);
        self.endpoint("public", session.public);
        if let Some(remote) = session.remote {
            self.endpoint("remote", remote);
        }
    }

    fn number(&mut self, name: &str, value: u64) {
        self.quoted(name, |out| put_number(out, value));
    }

    fn address(&mut self, name: &str, value: Ipv4Addr) {
        self.quoted(name, |out| put_address(out, value));
    }

    fn endpoint(&mut self, name: &str, value: SocketAddrV4) {
        self.quoted(name, |out| {
            put_address(out, *value.ip());
            out.push(b':');
            put_number(out, u64::from(value.port()));
        });
    }

    fn quoted(&mut self, name: &str, value: impl FnOnce(&mut Vec<u8>)) {
        self.0.push(b' ');
        self.0.extend_from_slice(name.as_bytes());
        self.0.extend_from_slice(b"=\"");
        value(self.0);
        self.0.push(b'"');
    }
}

/// Appends a decimal number.
fn put_number(out: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0; 20];
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[first..]);
}

/// Appends a decimal number with leading zeros.
fn put_padded(out: &mut Vec<u8>, mut value: u64, width: usize) {
    let begin = out.len();
    out.resize(begin + width, b'0');
    for digit in out[begin..].iter_mut().rev() {
        *digit = b'0' + (value % 10) as u8;
        value /= 10;
    }
}

fn put_address(out: &mut Vec<u8>, address: Ipv4Addr) {
    for (index, octet) in address.octets().into_iter().enumerate() {
        if index > 0 {
            out.push(b'.');
        }
        put_number(out, u64::from(octet));
    }
}

/// Appends a time in RFC 3339 form with milliseconds, UTC.
fn put_time(out: &mut Vec<u8>, unix_ms: u64) {
    let unix_ms = unix_ms.min(TIME_MS_MAX);
    let (year, month, day) = date(unix_ms / MS_PER_DAY);
    let ms = unix_ms % MS_PER_DAY;
    let parts = [
        (year, 4, b'-'),
        (month, 2, b'-'),
        (day, 2, b'T'),
        (ms / 3_600_000, 2, b':'),
        (ms / 60_000 % 60, 2, b':'),
        (ms / 1000 % 60, 2, b'.'),
        (ms % 1000, 3, b'Z'),
    ];
    for (value, width, end) in parts {
        put_padded(out, value, width);
        out.push(end);
    }
}

/// Returns year, month and day of a number of days since 1970. Years are counted from March on, so
/// the leap day is the last of its year; 400 of them have 146,097 days, and the months from March
/// on have 153 days in five.
fn date(days: u64) -> (u64, u64, u64) {
    /// Days from 0000-03-01 to 1970-01-01.
    const DAYS_TO_1970: u64 = 719_468;
    let days = days + DAYS_TO_1970;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
#[path = "syslog_tests.rs"]
mod tests;

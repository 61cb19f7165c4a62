//! Passes over lines that are about other addresses without reading them as JSON: nearly all of a log, several times faster.

use std::net::Ipv4Addr;

use memchr::memmem::Finder;

use crate::line::{PREFIX, time_ms};

/// `2026-03-01T12:00:00.123Z`; in this form the order of bytes is the order of time.
const TIME_BYTES: usize = 24;
type Time = [u8; TIME_BYTES];
const DATE_BYTES: usize = 10;

/// Tells lines about other addresses, and remembers their times.
#[derive(Debug)]
pub(crate) struct Glance {
    block: Finder<'static>,
    address: Finder<'static>,
    /// First and last of the lines passed over.
    times: Option<(Time, Time)>,
    /// The date of the last line, which is one.
    date: [u8; DATE_BYTES],
}

impl Glance {
    pub(crate) fn new(public: Ipv4Addr) -> Self {
        let address = format!("\"{public}\"");
        let (block, address) =
            (Finder::new("\"event\":\"block-"), Finder::new(&address).into_owned());
        Self { block, address, times: None, date: [0; DATE_BYTES] }
    }

    /// Whether the line is whole, in the form the writer gives it, and about a block of another address.
    pub(crate) fn passes_over(&mut self, text: &[u8]) -> bool {
        let rest = text.strip_prefix(PREFIX).filter(|_| text.ends_with(b"}\n"));
        let time = rest.and_then(|rest| rest.first_chunk::<TIME_BYTES>());
        let Some(time) = time.filter(|time| self.is_time(time)) else { return false };
        if self.address.find(text).is_some() || self.block.find(text).is_none() {
            return false;
        }
        let (first, last) = self.times.unwrap_or((*time, *time));
        self.times = Some((first.min(*time), last.max(*time)));
        true
    }

    /// A date is looked up in the calendar once.
    fn is_time(&mut self, time: &Time) -> bool {
        let (date, clock) = time.split_first_chunk().expect("a date is shorter");
        if !is_clock(clock) {
            return false;
        }
        if self.date != *date {
            if time_ms(time).is_none() {
                return false;
            }
            self.date = *date;
        }
        true
    }

    /// First and last time of the lines passed over, in milliseconds since 1970.
    pub(crate) fn covered_ms(&self) -> Option<(u64, u64)> {
        let (first, last) = self.times?;
        Some((time_ms(&first)?, time_ms(&last)?))
    }
}

/// `T12:00:00.123Z`, a time that every day has.
fn is_clock(text: &[u8]) -> bool {
    let form = b"T29:59:59.999Z";
    let fits = |(byte, most): (&u8, &u8)| match most {
        b'0'..=b'9' => (b'0'..=*most).contains(byte),
        _ => byte == most,
    };
    text.len() == form.len() && text.iter().zip(form).all(fits) && text[1..3] < b"24"[..]
}

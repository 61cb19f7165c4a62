//! Passes over lines that are about other addresses without reading them as JSON: nearly all of a log, several times faster.

use std::net::Ipv4Addr;

use memchr::memmem::Finder;

use crate::line::{PREFIX, time_ms};

/// `2026-03-01T12:00:00.123Z`; in this form the order of bytes is the order of time.
const TIME_BYTES: usize = 24;
type Time = [u8; TIME_BYTES];

/// Tells lines about other addresses, and remembers their times.
#[derive(Debug)]
pub(crate) struct Glance {
    block: Finder<'static>,
    address: Finder<'static>,
    /// First and last of the lines passed over.
    times: Option<(Time, Time)>,
}

impl Glance {
    pub(crate) fn new(public: Ipv4Addr) -> Self {
        let address = format!("\"{public}\"");
        let (block, address) =
            (Finder::new("\"event\":\"block-"), Finder::new(&address).into_owned());
        Self { block, address, times: None }
    }

    /// Whether the line is whole, in the form the writer gives it, and about a block of another address.
    pub(crate) fn passes_over(&mut self, text: &[u8]) -> bool {
        let rest = text.strip_prefix(PREFIX).filter(|_| text.ends_with(b"}\n"));
        let time = rest.and_then(|rest| rest.first_chunk::<TIME_BYTES>());
        let Some(time) = time.filter(|time| time[TIME_BYTES - 1] == b'Z') else { return false };
        if self.address.find(text).is_some() || self.block.find(text).is_none() {
            return false;
        }
        let (first, last) = self.times.unwrap_or((*time, *time));
        self.times = Some((first.min(*time), last.max(*time)));
        true
    }

    /// First and last time of the lines passed over, in milliseconds since 1970.
    pub(crate) fn covered_ms(&self) -> Option<(u64, u64)> {
        let (first, last) = self.times?;
        Some((time_ms(&first)?, time_ms(&last)?))
    }
}

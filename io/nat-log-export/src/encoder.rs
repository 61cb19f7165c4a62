//! Encodes events as bytes: IPFIX or syslog.

use crate::ipfix::IpfixEncoder;
use crate::nat_event::NatEvent;
use crate::syslog::SyslogEncoder;

/// Time for an encoder, which reads no clock itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExportTime {
    /// Milliseconds since 1970.
    pub unix_ms: u64,
    /// Milliseconds of a clock that is never set.
    pub steady_ms: u64,
}

/// The encoder of a collector.
#[derive(Debug)]
pub enum Encoder {
    Ipfix(IpfixEncoder),
    Syslog(SyslogEncoder),
}

impl Encoder {
    /// Begins a session: a new connection, or over UDP a new socket.
    pub fn begin_session(&mut self) {
        match self {
            Self::Ipfix(ipfix) => ipfix.begin_session(),
            Self::Syslog(_) => {}
        }
    }

    /// Appends one message and returns the number of events in it, from the first on: 0 if it has
    /// templates only.
    pub fn next<'a>(
        &mut self,
        events: impl IntoIterator<Item = &'a NatEvent>,
        now: ExportTime,
        out: &mut Vec<u8>,
    ) -> usize {
        match self {
            Self::Ipfix(ipfix) => ipfix.next(events, now, out),
            Self::Syslog(syslog) => syslog.next(events, out),
        }
    }
}

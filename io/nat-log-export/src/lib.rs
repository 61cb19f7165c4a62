//! The NAT log for external collectors: IPFIX (RFC 7011, RFC 8158) and syslog (RFC 5424).
//!
//! ```text
//!   worker 1: EventSender -ring-+-> thread of collector A: encoder -> UDP, TCP -> nfcapd, ...
//!   worker 2: EventSender -ring-+     |  ^
//!              |                      v  |  away, slow
//!              |                     spool
//!              +--------------ring--> thread of collector B: encoder -> TCP, TLS -> rsyslog, ...
//! ```
//!
//! - A sender never waits: an event that a full ring does not take is lost for that collector and
//!   counted, and the collector is sent the number of missing events.
//! - The encoders do no I/O: [`IpfixEncoder`], [`SyslogEncoder`].
//! - [`Exporter::start`] returns the senders and a handle.
//!
//! `docs/nat-log-export.md` describes what a collector receives.

mod back_off;
mod connection;
mod counters;
mod courier;
mod encoder;
mod exporter;
mod flight;
mod ipfix;
mod nat_event;
mod options;
mod pacing;
mod sender;
mod spool;
mod syslog;
mod tls;
mod unacknowledged;

pub use counters::CollectorCounters;
pub use encoder::{Encoder, ExportTime};
pub use exporter::{ExportHandle, Exporter};
pub use ipfix::{
    IpfixEncoder, IpfixOptions, MESSAGE_BYTES_MAX, MESSAGE_BYTES_MIN, TemplatesRepeat,
};
pub use nat_event::{
    ExportedBlock, ExportedHome, ExportedPrefix, ExportedSession, NatEvent, NatEventKind, Quota,
};
pub use options::{CollectorOptions, ExportError, ExportOptions, Format};
pub use pacing::Pacer;
pub use sender::EventSender;
pub use spool::{SpoolError, SpoolOptions};
pub use syslog::{SyslogEncoder, SyslogError, SyslogOptions};
pub use tls::{TlsError, TlsOptions};

//! The NAT log for collectors outside the box: IPFIX (RFC 7011, RFC 8158) and syslog (RFC 5424).
//!
//! The encoders do no I/O: [`IpfixEncoder`], [`SyslogEncoder`].

mod encoder;
mod ipfix;
mod nat_event;
mod pacing;
mod syslog;

pub use encoder::{Encoder, Now};
pub use ipfix::{
    IpfixEncoder, IpfixOptions, MESSAGE_BYTES_MAX, MESSAGE_BYTES_MIN, TemplatesRepeat,
};
pub use nat_event::{Block, Home, NatEvent, NatEventKind, Quota, Session};
pub use pacing::Pacer;
pub use syslog::{SyslogEncoder, SyslogError, SyslogOptions};

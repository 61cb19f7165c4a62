//! Options of an exporter: its collectors, how to reach them, what to send.

use std::time::Duration;

use crate::connection::{CollectorAddress, CollectorTransport};
use crate::encoder::Encoder;
use crate::ipfix::{IpfixEncoder, IpfixOptions, MESSAGE_BYTES_MIN, TemplatesRepeat};
use crate::spool::{SpoolError, SpoolOptions};
use crate::syslog::{SyslogEncoder, SyslogError, SyslogOptions};
use crate::tls::{self, TlsError, TlsOptions};

/// Length of the IPv6 and UDP headers, the longest ones, bytes.
const DATAGRAM_HEADERS_BYTES: usize = 48;
/// Largest message on a TCP connection, bytes.
const STREAM_MESSAGE_BYTES: usize = 16 << 10;

/// An exporter with its collectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportOptions {
    pub collectors: Vec<CollectorOptions>,
    /// Interval in which one refusal (quota, exhaustion) of each home and kind is sent.
    pub refusals_every: Duration,
}

/// A collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectorOptions {
    /// Name of the collector in log lines and counters, and of its thread.
    pub name: String,
    /// Host and port; a host name is resolved for each connection.
    pub address: String,
    pub format: Format,
    /// Whether events of IPv6 prefixes are sent: false for a collector that does not know their
    /// fields.
    pub has_prefixes: bool,
    /// `None`: events beyond the memory's room are lost while the collector is away.
    pub spool: Option<SpoolOptions>,
    /// Number of records that may wait between one sender and the thread of the collector.
    pub queue_records: usize,
    /// After a break, records that were acknowledged less than this long ago are sent again.
    pub resend: Duration,
    /// Longest wait of an event for others to fill its message.
    pub flush: Duration,
}

/// Format and transport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Format {
    IpfixUdp { enterprise: Option<u32>, mtu: usize, templates_repeat: TemplatesRepeat },
    IpfixTcp { enterprise: Option<u32> },
    SyslogTcp(SyslogOptions),
    SyslogTls(SyslogOptions, TlsOptions),
}

/// Reasons why the exporter does not start.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error(
        "collector {name}: address `{address}`: give host:port, as collector.example:4739 or [2001:db8::1]:4739"
    )]
    Address { name: String, address: String },
    #[error("collector {name}: mtu {mtu}: give at least {least}")]
    Mtu { name: String, mtu: usize, least: usize },
    #[error("collector {name}: a queue of {records} records: give 1 to 16777216")]
    Queue { name: String, records: usize },
    #[error("collector {name}: a spool of 0 megabytes: give at least 1, or no spool")]
    SpoolSize { name: String },
    #[error("collector {name}: {source}")]
    Syslog { name: String, source: SyslogError },
    #[error("collector {name}: {source}")]
    Tls { name: String, source: TlsError },
    #[error("collector {name}: {source}")]
    Spool { name: String, source: SpoolError },
    #[error("collector {name}: cannot start its thread: {source}")]
    Thread { name: String, source: std::io::Error },
}

const QUEUE_RECORDS_MAX: usize = 1 << 24;

impl CollectorOptions {
    /// Checks everything that can be checked without the collector.
    pub(crate) fn prepare(&self) -> Result<(CollectorAddress, Encoder), ExportError> {
        let name = || self.name.clone();
        if !is_host_and_port(&self.address) {
            let address = self.address.clone();
            return Err(ExportError::Address { name: name(), address });
        }
        if !(1..=QUEUE_RECORDS_MAX).contains(&self.queue_records) {
            return Err(ExportError::Queue { name: name(), records: self.queue_records });
        }
        if self.spool.as_ref().is_some_and(|spool| spool.megabytes_max == 0) {
            return Err(ExportError::SpoolSize { name: name() });
        }
        let syslog = |options: &SyslogOptions| {
            let encoder = SyslogEncoder::new(options);
            let failed = |source| ExportError::Syslog { name: name(), source };
            encoder.map(Encoder::Syslog).map_err(failed)
        };
        let ipfix = |enterprise, message_bytes_max, templates_repeat| {
            let has_prefixes = self.has_prefixes;
            let options =
                IpfixOptions { enterprise, has_prefixes, message_bytes_max, templates_repeat };
            Encoder::Ipfix(IpfixEncoder::new(options))
        };
        let (transport, encoder) = match &self.format {
            Format::IpfixUdp { enterprise, mtu, templates_repeat } => {
                let least = MESSAGE_BYTES_MIN + DATAGRAM_HEADERS_BYTES;
                if *mtu < least {
                    return Err(ExportError::Mtu { name: name(), mtu: *mtu, least });
                }
                let bytes = *mtu - DATAGRAM_HEADERS_BYTES;
                (CollectorTransport::Udp, ipfix(*enterprise, bytes, Some(*templates_repeat)))
            }
            Format::IpfixTcp { enterprise } => {
                (CollectorTransport::Tcp, ipfix(*enterprise, STREAM_MESSAGE_BYTES, None))
            }
            Format::SyslogTcp(options) => (CollectorTransport::Tcp, syslog(options)?),
            Format::SyslogTls(options, tls) => {
                let failed = |source| ExportError::Tls { name: name(), source };
                tls::client_config(tls).map_err(failed)?;
                tls::server_name(tls, &self.address).map_err(failed)?;
                (CollectorTransport::Tls(tls.clone()), syslog(options)?)
            }
        };
        Ok((CollectorAddress { address: self.address.clone(), transport }, encoder))
    }
}

fn is_host_and_port(address: &str) -> bool {
    let Some((host, port)) = address.rsplit_once(':') else { return false };
    let is_host = !host.is_empty() && (!host.contains(':') || host.starts_with('['));
    is_host && port.parse::<u16>().is_ok_and(|port| port > 0)
}

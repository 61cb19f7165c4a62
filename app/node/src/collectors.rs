//! Exports the NAT log to collectors: turns the file's settings into those of the exporter, and
//! reports its losses.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use weir_config::{CollectorFormat, CollectorSettings, NodeSettings, TlsSettings};
use weir_nat_log_export::{
    CollectorCounters, CollectorOptions, EventSender, ExportError, ExportHandle, ExportOptions,
    Exporter, Format, SpoolOptions, SyslogOptions, TemplatesRepeat, TlsOptions,
};

use crate::log_loss::LogLoss;

/// Records between a worker and the thread of a collector.
const QUEUE_RECORDS: usize = 65_536;
/// After a break, records acknowledged within this time are sent again: the collector may not have
/// read them.
const RESEND: Duration = Duration::from_secs(5);
/// Longest time that a record waits for others to fill its message.
const FLUSH: Duration = Duration::from_millis(500);
/// For each home and kind, one refusal in this time is sent.
const REFUSALS_EVERY: Duration = Duration::from_secs(60);
/// How often templates are repeated over UDP: a datagram may be lost, and a collector may have
/// restarted.
const TEMPLATES_REPEAT: TemplatesRepeat = TemplatesRepeat { messages: 1_000, ms: 60_000 };
/// Severity "informational" (RFC 5424, section 6.2.1).
const INFORMATIONAL: u8 = 6;

/// The threads of the collectors, and whether they have lost records lately.
#[derive(Debug, Default)]
pub(crate) struct Collectors {
    /// None once they are stopped.
    handle: Mutex<Option<ExportHandle>>,
    losses: Mutex<BTreeMap<String, LogLoss>>,
}

impl Collectors {
    /// Starts a thread for each collector, and returns one sender for each of `workers`. Without
    /// collectors there are no senders.
    ///
    /// # Errors
    /// When a collector cannot be served; the error names it and the cause.
    pub(crate) fn start(
        node: &NodeSettings,
        workers: usize,
    ) -> Result<(Self, Vec<EventSender>), ExportError> {
        if node.collectors.is_empty() {
            return Ok((Self::default(), Vec::new()));
        }
        let collectors = node.collectors.iter().map(|it| options(it, &node.name)).collect();
        let options = ExportOptions { collectors, refusals_every: REFUSALS_EVERY };
        let (senders, handle) = Exporter::start(&options, workers)?;
        let collectors = Self { handle: Mutex::new(Some(handle)), ..Self::default() };
        Ok((collectors, senders))
    }

    /// Returns the counters of each collector, in the order of the file.
    pub(crate) fn counters(&self) -> Vec<CollectorCounters> {
        let handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner);
        handle.as_ref().map(ExportHandle::counters).unwrap_or_default()
    }

    /// Notes losses since the last call, and logs them.
    pub(crate) fn look(&self, now: Instant) {
        let mut losses = self.losses.lock().unwrap_or_else(PoisonError::into_inner);
        for counters in self.counters() {
            let lost_total = counters.lost_total();
            let collector = counters.name;
            if losses.entry(collector.clone()).or_default().observe(now, lost_total) {
                tracing::error!(event = "export-losing", %collector, lost_total, "records are lost");
            }
        }
    }

    /// Returns one sentence for each collector that has lost records in the last minutes.
    pub(crate) fn troubles(&self, now: Instant) -> Vec<String> {
        let losses = self.losses.lock().unwrap_or_else(PoisonError::into_inner);
        let lately = losses.iter().filter(|(_, loss)| loss.is_recent(now));
        lately.map(|(name, _)| format!("collector {name} loses records of the NAT log")).collect()
    }

    /// Sends or spools what is left. Later calls do nothing.
    pub(crate) fn stop(&self) {
        let handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(handle) = handle {
            let _totals = handle.stop();
        }
    }
}

fn options(collector: &CollectorSettings, node: &str) -> CollectorOptions {
    let enterprise = collector.enterprise;
    let syslog = |facility: u8| SyslogOptions {
        facility,
        severity: INFORMATIONAL,
        host: node.to_owned(),
        app: "weir".to_owned(),
        enterprise,
    };
    let format = match &collector.format {
        CollectorFormat::IpfixUdp { mtu } => Format::IpfixUdp {
            enterprise,
            mtu: usize::from(*mtu),
            templates_repeat: TEMPLATES_REPEAT,
        },
        CollectorFormat::IpfixTcp => Format::IpfixTcp { enterprise },
        CollectorFormat::SyslogTcp { facility } => Format::SyslogTcp(syslog(*facility)),
        CollectorFormat::SyslogTls { facility, tls } => {
            Format::SyslogTls(syslog(*facility), tls_options(tls))
        }
    };
    let spool = collector.spool.as_ref().map(|spool| SpoolOptions {
        folder: spool.folder.clone(),
        megabytes_max: spool.megabytes_max,
    });
    CollectorOptions {
        name: collector.name.clone(),
        address: collector.address.clone(),
        format,
        spool,
        has_prefixes: collector.has_prefixes,
        queue_records: QUEUE_RECORDS,
        resend: RESEND,
        flush: FLUSH,
    }
}

fn tls_options(tls: &TlsSettings) -> TlsOptions {
    TlsOptions {
        ca: tls.ca.clone(),
        certificate: tls.client.clone(),
        server_name: tls.server_name.clone(),
    }
}

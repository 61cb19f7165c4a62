//! Metrics of the export of the NAT log to collectors, for Prometheus.

use std::fmt::Error;

use weir_nat_log_export::CollectorCounters;

use weir_process::metrics::{Family, Labels, NO_LABEL};

/// Writes the metrics of each collector of the NAT log.
pub(crate) fn collectors(
    family: &mut Family<'_, '_>,
    all: &[CollectorCounters],
) -> Result<(), Error> {
    let of = |value: fn(&CollectorCounters) -> u64| {
        let all = all.iter();
        all.map(move |it| {
            (Labels([("collector", it.name.as_str()), NO_LABEL, NO_LABEL]), value(it))
        })
    };
    let sent = of(|it| it.sent_total);
    family.counter("weir_export_records_sent", "Records written to the collector.", sent)?;
    let resent = of(|it| it.resent_total);
    let help = "Records written again after a break.";
    family.counter("weir_export_records_resent", help, resent)?;
    let lost = all.iter().flat_map(|it| {
        let reasons = [
            ("queue-full", it.lost_queue_full_total),
            ("spool-full", it.lost_spool_full_total),
            ("disk-error", it.lost_disk_error_total),
            ("end", it.lost_at_end_total),
        ];
        reasons.map(|(reason, count)| {
            (Labels([("collector", it.name.as_str()), ("reason", reason), NO_LABEL]), count)
        })
    });
    let help = "Records that the collector will not get, by reason.";
    family.counter("weir_export_records_lost", help, lost)?;
    let spooled = of(|it| it.spooled_total);
    family.counter("weir_export_records_spooled", "Records written to the spool.", spooled)?;
    let bytes = of(|it| it.bytes_total);
    family.counter("weir_export_bytes", "Bytes of messages to the collector.", bytes)?;
    let breaks = of(|it| it.breaks_total);
    family.counter("weir_export_breaks", "Connections to the collector that broke.", breaks)?;
    let gauge = |value: fn(&CollectorCounters) -> f64| {
        let all = all.iter();
        all.map(move |it| {
            (Labels([("collector", it.name.as_str()), NO_LABEL, NO_LABEL]), value(it))
        })
    };
    let up = gauge(|it| f64::from(u8::from(it.is_connected)));
    family.gauge("weir_export_up", "Whether the collector is connected.", up)?;
    let waiting = gauge(|it| (it.held_records + it.spool_records) as f64);
    let help = "Records that the collector does not have for sure, in memory and in the spool.";
    family.gauge("weir_export_records_waiting", help, waiting)
}

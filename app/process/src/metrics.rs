//! Numbers as OpenMetrics text, one family after the other.

use std::fmt::Error;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabel, EncodeLabelSet, EncodeMetric, LabelSetEncoder,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

/// Returns the text of all families that the collector writes.
pub fn encoded(collector: impl Collector) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(collector));
    let mut text = String::new();
    // Writing into a string does not fail.
    let _ = encode(&mut text, &registry);
    text
}

/// Up to three labels; unused ones have an empty name.
#[derive(Clone, Debug, Hash, PartialEq, Eq)]
pub struct Labels<'a>(pub [(&'static str, &'a str); 3]);

/// The place of a label that is not used.
pub const NO_LABEL: (&str, &str) = ("", "");

impl EncodeLabelSet for Labels<'_> {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> Result<(), Error> {
        self.0
            .iter()
            .filter(|(name, _)| !name.is_empty())
            .try_for_each(|label| EncodeLabel::encode(label, encoder.encode_label()))
    }
}

/// Writes metric families.
#[derive(Debug)]
pub struct Family<'a, 'b> {
    encoder: &'a mut DescriptorEncoder<'b>,
}

impl<'a, 'b> Family<'a, 'b> {
    /// Returns a writer of families to `encoder`.
    pub fn new(encoder: &'a mut DescriptorEncoder<'b>) -> Self {
        Self { encoder }
    }

    /// Writes a family of any kind.
    ///
    /// # Errors
    /// When the encoder fails, which one that writes into a string never does.
    pub fn write<'l, M: EncodeMetric>(
        &mut self,
        name: &str,
        help: &str,
        kind: MetricType,
        series: impl IntoIterator<Item = (Labels<'l>, M)>,
    ) -> Result<(), Error> {
        let mut family = self.encoder.encode_descriptor(name, help, None, kind)?;
        for (labels, metric) in series {
            metric.encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    /// Writes a family of counters.
    ///
    /// # Errors
    /// When the encoder fails, which one that writes into a string never does.
    pub fn counter<'l>(
        &mut self,
        name: &str,
        help: &str,
        series: impl IntoIterator<Item = (Labels<'l>, u64)>,
    ) -> Result<(), Error> {
        let series = series.into_iter().map(|(labels, value)| (labels, ConstCounter::new(value)));
        self.write(name, help, MetricType::Counter, series)
    }

    /// Writes a family of gauges.
    ///
    /// # Errors
    /// When the encoder fails, which one that writes into a string never does.
    pub fn gauge<'l>(
        &mut self,
        name: &str,
        help: &str,
        series: impl IntoIterator<Item = (Labels<'l>, f64)>,
    ) -> Result<(), Error> {
        let series = series.into_iter().map(|(labels, value)| (labels, ConstGauge::new(value)));
        self.write(name, help, MetricType::Gauge, series)
    }
}

/// Writes the family that names the version of the running program.
///
/// # Errors
/// When the encoder fails, which one that writes into a string never does.
pub fn build_info(family: &mut Family<'_, '_>) -> Result<(), Error> {
    let version = [("version", env!("CARGO_PKG_VERSION"))];
    let help = "The running program.";
    let mut encoder =
        family.encoder.encode_descriptor("weir_build", help, None, MetricType::Info)?;
    encoder.encode_info(&version)?;
    Ok(())
}

//! The formats of the metrics: OpenMetrics 1.0.0 for a scraper that asks for it, else Prometheus'
//! text format 0.0.4.

use axum::http::HeaderMap;
use axum::http::header::ACCEPT;

const OPEN_METRICS: &str = "application/openmetrics-text";

/// A format of the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScrapeFormat {
    OpenMetrics,
    Text,
}

impl ScrapeFormat {
    /// Returns the format that the `Accept` headers of a request ask for (RFC 9110 section 12.5.1).
    pub fn asked_for(headers: &HeaderMap) -> Self {
        let values = headers.get_all(ACCEPT).into_iter().filter_map(|value| value.to_str().ok());
        let mut ranges = values.flat_map(|value| value.split(','));
        if ranges.any(is_open_metrics) { Self::OpenMetrics } else { Self::Text }
    }

    /// Returns the content type for the header of the answer.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// Returns the metrics in this format, made of OpenMetrics text.
    pub fn of(self, open_metrics: String) -> String {
        match self {
            Self::OpenMetrics => open_metrics,
            Self::Text => text(&open_metrics),
        }
    }
}

/// Whether a media range of an `Accept` header is OpenMetrics, and not refused by a weight of 0.
fn is_open_metrics(range: &str) -> bool {
    let mut parts = range.split(';').map(str::trim);
    let is_named = parts.next().is_some_and(|name| name.eq_ignore_ascii_case(OPEN_METRICS));
    let weight = parts.find_map(|part| part.strip_prefix("q=").or(part.strip_prefix("Q=")));
    is_named && weight.and_then(|weight| weight.parse().ok()).unwrap_or(1.0_f32) > 0.0
}

/// Converts OpenMetrics text to Prometheus' text format: a family has the name of its series, with
/// `_total` or `_info`; an info is a gauge; nothing marks the end.
fn text(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    let mut help = "";
    for line in open_metrics.lines() {
        let Some(comment) = line.strip_prefix("# ") else {
            text.extend([line, "\n"]);
            continue;
        };
        let mut words = comment.splitn(3, ' ');
        let (word, name, rest) = (words.next(), words.next(), words.next().unwrap_or_default());
        match (word, name) {
            (Some("HELP"), Some(_)) => help = rest,
            (Some("TYPE"), Some(name)) => {
                let (suffix, kind) = match rest {
                    "counter" => ("_total", "counter"),
                    "info" => ("_info", "gauge"),
                    kind => ("", kind),
                };
                text.extend(["# HELP ", name, suffix, " ", help, "\n"]);
                text.extend(["# TYPE ", name, suffix, " ", kind, "\n"]);
            }
            _ => {}
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked_for(accept: &[&str]) -> ScrapeFormat {
        let mut headers = HeaderMap::new();
        for value in accept {
            headers.append(ACCEPT, value.parse().unwrap());
        }
        ScrapeFormat::asked_for(&headers)
    }

    #[test]
    fn open_metrics_are_for_a_scraper_that_asks_for_them() {
        // Prometheus 2.42, the same with OpenMetrics switched off, curl, a browser.
        let prometheus = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
            text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert_eq!(asked_for(&[prometheus]), ScrapeFormat::OpenMetrics);
        assert_eq!(asked_for(&["text/plain;version=0.0.4;q=0.5,*/*;q=0.1"]), ScrapeFormat::Text);
        assert_eq!(asked_for(&["*/*"]), ScrapeFormat::Text);
        assert_eq!(asked_for(&["text/html, application/xml;q=0.9"]), ScrapeFormat::Text);
        assert_eq!(asked_for(&[]), ScrapeFormat::Text);
        assert_eq!(
            asked_for(&["text/plain, Application/OpenMetrics-Text; q=0"]),
            ScrapeFormat::Text
        );
        let apart = ["text/plain;q=0.2", "Application/OpenMetrics-Text ; version=1.0.0"];
        assert_eq!(asked_for(&apart), ScrapeFormat::OpenMetrics);
    }

    #[test]
    fn families_of_the_text_format_have_the_names_of_their_series() {
        let open_metrics = "# HELP weir_build The running program.\n# TYPE weir_build info\n\
            weir_build_info{version=\"1\"} 1\n\
            # HELP weir_turn_seconds Turns.\n# TYPE weir_turn_seconds histogram\n\
            # UNIT weir_turn_seconds seconds\nweir_turn_seconds_sum 0.5\n\
            # HELP weir_drops Dropped, by reason.\n# TYPE weir_drops counter\n\
            weir_drops_total{reason=\"vlan\"} 3\n# EOF\n";
        let text = "# HELP weir_build_info The running program.\n# TYPE weir_build_info gauge\n\
            weir_build_info{version=\"1\"} 1\n\
            # HELP weir_turn_seconds Turns.\n# TYPE weir_turn_seconds histogram\n\
            weir_turn_seconds_sum 0.5\n\
            # HELP weir_drops_total Dropped, by reason.\n# TYPE weir_drops_total counter\n\
            weir_drops_total{reason=\"vlan\"} 3\n";
        assert_eq!(ScrapeFormat::Text.of(open_metrics.to_owned()), text);
        assert_eq!(ScrapeFormat::OpenMetrics.of(open_metrics.to_owned()), open_metrics);
    }
}

//! Reads the text of `/metrics`. Pure.

/// Returns the sum of a metric over its series whose labels contain `label`, such as
/// `cause="timeout"`. None if there is no such series.
pub fn metric_sum(text: &str, name: &str, label: &str) -> Option<u64> {
    let values = text.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        let (labels, value) = rest.rsplit_once(' ')?;
        let is_it = rest.starts_with(['{', ' ']) && labels.contains(label);
        value.parse::<f64>().ok().filter(|_| is_it)
    });
    values.reduce(|sum, value| sum + value).map(|sum| sum as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metric_is_summed_over_its_labels_without_longer_names() {
        let text = "# HELP weir_flows Flows.\nweir_flows{worker=\"0\"} 3\nweir_flows{worker=\"1\"} 4\n\
                    weir_flows_max{worker=\"0\"} 100\nweir_subscribers 2\n";
        assert_eq!(metric_sum(text, "weir_flows", ""), Some(7));
        assert_eq!(metric_sum(text, "weir_flows", "worker=\"1\""), Some(4));
        assert_eq!(metric_sum(text, "weir_flows", "worker=\"2\""), None);
        assert_eq!(metric_sum(text, "weir_subscribers", ""), Some(2));
        assert_eq!(metric_sum(text, "weir_blocks", ""), None);
    }
}

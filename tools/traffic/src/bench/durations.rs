//! A histogram of durations from weir's metrics, and the figures derived from it. Pure.

/// Upper bounds of the buckets in seconds, ascending, and the number of durations up to each bound,
/// all workers together.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Durations(Vec<(f64, f64)>);

impl Durations {
    /// Parses the text of `/metrics`; empty if it does not contain the histogram.
    pub(super) fn parse(metrics: &str, name: &str) -> Self {
        let start = format!("{name}_bucket{{");
        let mut buckets: Vec<(f64, f64)> = Vec::new();
        for line in metrics.lines().filter_map(|line| line.strip_prefix(&start)) {
            let Some((bound, count)) = bucket(line) else { continue };
            match buckets.iter_mut().find(|known| known.0 == bound) {
                Some(known) => known.1 += count,
                None => buckets.push((bound, count)),
            }
        }
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        Durations(buckets)
    }

    /// Returns the durations that were added since an earlier reading of the same histogram.
    pub(super) fn since(&self, earlier: &Durations) -> Durations {
        let before = |bound| earlier.0.iter().find(|known| known.0 == bound).map_or(0.0, |b| b.1);
        Durations(self.0.iter().map(|&(bound, count)| (bound, count - before(bound))).collect())
    }

    pub(super) fn count(&self) -> f64 {
        self.0.last().map_or(0.0, |&(_, count)| count)
    }

    /// Returns the percentage longer than `bound` seconds, a bound of a bucket; `None` without
    /// durations.
    pub(super) fn percent_above(&self, bound: f64) -> Option<f64> {
        let (_, within) = self.0.iter().find(|bucket| bucket.0 == bound)?;
        (self.count() > 0.0).then(|| 100.0 * (1.0 - within / self.count()))
    }

    /// Returns the bound that a share of the durations, 0 to 1, does not exceed; infinite if some
    /// of them exceed all bounds, `None` without durations.
    pub(super) fn bound_of(&self, share: f64) -> Option<f64> {
        let wanted = share * self.count();
        let found = self.0.iter().find(|&&(_, count)| count > 0.0 && count >= wanted);
        found.map(|&(bound, _)| bound)
    }
}

/// Returns bound and count of a line that begins with its first label.
fn bucket(line: &str) -> Option<(f64, f64)> {
    let (_, rest) = line.split_once("le=\"")?;
    let (bound, rest) = rest.split_once('"')?;
    Some((bound.parse().ok()?, rest.rsplit(' ').next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(counts: [u32; 3], worker: u32) -> String {
        let [a, b, c] = counts;
        format!(
            "weir_turn_seconds_sum{{worker=\"{worker}\"}} 7.5\n\
             weir_turn_seconds_bucket{{le=\"1e-5\",worker=\"{worker}\"}} {a}\n\
             weir_turn_seconds_bucket{{le=\"0.001\",worker=\"{worker}\"}} {b}\n\
             weir_turn_seconds_bucket{{le=\"+Inf\",worker=\"{worker}\"}} {c}\n"
        )
    }

    fn durations(counts: [u32; 3]) -> Durations {
        Durations::parse(&text(counts, 0), "weir_turn_seconds")
    }

    #[test]
    fn workers_are_summed_bucket_by_bucket() {
        let both = text([5, 7, 8], 0) + &text([1, 2, 2], 1);
        let all = Durations::parse(&both, "weir_turn_seconds");
        assert_eq!(all.0, [(1e-5, 6.0), (0.001, 9.0), (f64::INFINITY, 10.0)]);
        assert_eq!(Durations::parse(&both, "weir_tick_seconds"), Durations::default());
    }

    #[test]
    fn only_later_durations_count() {
        let since = durations([9_990, 10_989, 10_990]).since(&durations([0, 990, 990]));
        assert_eq!(since.count(), 10_000.0);
        assert!((since.percent_above(0.001).unwrap() - 0.01).abs() < 1e-9);
        assert!((since.percent_above(1e-5).unwrap() - 0.1).abs() < 1e-9);
        assert_eq!(since.percent_above(0.002), None);
    }

    #[test]
    fn a_share_keeps_the_bound_of_its_bucket() {
        let all = durations([990, 999, 1_000]);
        assert_eq!(all.bound_of(0.5), Some(1e-5));
        assert_eq!(all.bound_of(0.999), Some(0.001));
        assert_eq!(all.bound_of(1.0), Some(f64::INFINITY));
        assert_eq!(durations([0, 4, 4]).bound_of(0.0), Some(0.001));
    }

    #[test]
    fn empty_histogram_has_no_figure() {
        let nothing = durations([5, 5, 5]).since(&durations([5, 5, 5]));
        assert_eq!((nothing.percent_above(0.001), nothing.bound_of(0.5)), (None, None));
    }
}

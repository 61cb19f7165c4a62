//! Rewrites a log as a node would have written it whose clock is ahead. Pure.

use jiff::Timestamp;

/// Start of a line, up to its time; and the key of another time that a line may have.
const TIME: &str = "{\"time\":\"";
const SINCE: &str = ",\"since\":\"";

/// Returns the log with all its times moved by `ahead_ms`. A line that is cut off within its time
/// stays unchanged.
pub fn moved(log: &str, ahead_ms: u32) -> String {
    log.split_inclusive('\n')
        .map(|line| later(&later(line, TIME, ahead_ms), SINCE, ahead_ms))
        .collect()
}

/// Returns the line with the time after `key` moved.
fn later(line: &str, key: &str, ahead_ms: u32) -> String {
    let parts = line.split_once(key).and_then(|(before, rest)| {
        let (time, after) = rest.split_once('"')?;
        let ms = time_ms(time)? + i64::from(ahead_ms);
        let time = Timestamp::from_millisecond(ms).ok()?;
        Some(format!("{before}{key}{time:.3}\"{after}"))
    });
    parts.unwrap_or_else(|| line.to_owned())
}

/// Returns the milliseconds since 1970 of a time in a log.
pub(super) fn time_ms(text: &str) -> Option<i64> {
    Some(text.parse::<Timestamp>().ok()?.as_millisecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_times_of_a_line_are_moved_and_nothing_else() {
        let log = "{\"time\":\"2026-03-01T23:59:59.600Z\",\"event\":\"block-held\",\"since\":\"2026-03-01T12:00:00.000Z\",\"sequence\":3}\n\
                   {\"time\":\"2026-03-01T23:59:59.700Z\",\"event\":\"log-mark\",\"sequence\":4}\n\
                   {\"time\":\"2026-03-0";
        let expected = "{\"time\":\"2026-03-02T00:00:00.100Z\",\"event\":\"block-held\",\"since\":\"2026-03-01T12:00:00.500Z\",\"sequence\":3}\n\
                        {\"time\":\"2026-03-02T00:00:00.200Z\",\"event\":\"log-mark\",\"sequence\":4}\n\
                        {\"time\":\"2026-03-0";
        assert_eq!(moved(log, 500), expected);
        assert_eq!(moved(log, 0), log);
    }
}

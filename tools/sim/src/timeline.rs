//! What happened, in words: recorded only if a history is played to be read.

/// Lines with their times.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    lines: Option<Vec<(u64, String)>>,
}

impl Timeline {
    /// Creates a timeline that keeps its lines, or drops them.
    pub(crate) fn new(is_kept: bool) -> Self {
        Self { lines: is_kept.then(Vec::new) }
    }

    pub(crate) fn add(&mut self, at_us: u64, line: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            lines.push((at_us, line()));
        }
    }

    /// Returns one line per event: seconds, and what happened.
    pub(crate) fn lines(&self) -> impl Iterator<Item = String> + '_ {
        let lines = self.lines.iter().flatten();
        lines.map(|(at_us, line)| {
            format!("{:>4}.{:06}  {line}", at_us / 1_000_000, at_us % 1_000_000)
        })
    }
}

//! What happened, in words: written only when a history is played to be read.

/// Lines with their times.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    lines: Option<Vec<(u64, String)>>,
}

impl Timeline {
    /// One that keeps what it is told, or not.
    pub(crate) fn new(is_kept: bool) -> Self {
        Self { lines: is_kept.then(Vec::new) }
    }

    pub(crate) fn say(&mut self, at_us: u64, line: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            lines.push((at_us, line()));
        }
    }

    /// A line each: seconds, and what happened.
    pub(crate) fn lines(&self) -> impl Iterator<Item = String> + '_ {
        let lines = self.lines.iter().flatten();
        lines.map(|(at_us, line)| {
            format!("{:>4}.{:06}  {line}", at_us / 1_000_000, at_us % 1_000_000)
        })
    }
}

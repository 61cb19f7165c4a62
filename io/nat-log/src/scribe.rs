//! Formats the records of a node's incarnation as lines: counts them, does no I/O.

use crate::event::{BlockRecord, NodeLife};
use crate::line::{BlockLogLine, Content};

/// Writes the lines of one incarnation of a node. Times are milliseconds since 1970.
#[derive(Debug)]
pub struct Scribe {
    node: String,
    boot: u128,
    is_clustered: bool,
    /// Records of this incarnation, including lost ones.
    sequence: u64,
}

impl Scribe {
    pub fn new(life: NodeLife<'_>) -> Self {
        let NodeLife { node, boot, is_clustered } = life;
        Self { node: node.to_owned(), boot, is_clustered, sequence: 0 }
    }

    /// Records the start of the process. `boot_before`: the incarnation that wrote the last record
    /// of the same file.
    pub fn opened(&mut self, out: &mut Vec<u8>, time_ms: u64, boot_before: Option<u128>) {
        let content = Content::Opened { is_clustered: self.is_clustered, boot_before };
        self.append(out, time_ms, content);
    }

    pub fn record(&mut self, out: &mut Vec<u8>, time_ms: u64, event: BlockRecord) {
        self.append(out, time_ms, Content::Lane(event));
    }

    /// Records that every record from before this time is above.
    pub fn mark(&mut self, out: &mut Vec<u8>, time_ms: u64) {
        self.append(out, time_ms, Content::Mark);
    }

    /// Records that `count` records, at least one, are missing here.
    pub fn lost(&mut self, out: &mut Vec<u8>, time_ms: u64, count: u64) {
        self.sequence += count - 1;
        self.append(out, time_ms, Content::Lost(count));
    }

    /// Records the orderly end of the process.
    pub fn closed(&mut self, out: &mut Vec<u8>, time_ms: u64) {
        self.append(out, time_ms, Content::Closed);
    }

    fn append(&mut self, out: &mut Vec<u8>, time_ms: u64, content: Content) {
        self.sequence += 1;
        let (node, boot) = (self.node.clone(), Some(self.boot));
        BlockLogLine { time_ms, node, boot, sequence: self.sequence, content }.emit(out);
    }
}

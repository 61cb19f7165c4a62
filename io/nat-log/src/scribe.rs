//! Puts the records of a node's life into lines: counts them, does no I/O.

use crate::event::{BlockEvent, NodeLife};
use crate::line::{Content, Line};

/// Writes the lines of one life of a node. Times are milliseconds since 1970.
#[derive(Debug)]
pub struct Scribe {
    node: String,
    boot: u128,
    is_clustered: bool,
    /// Records of this life, lost ones included.
    sequence: u64,
}

impl Scribe {
    pub fn new(life: NodeLife<'_>) -> Self {
        let NodeLife { node, boot, is_clustered } = life;
        Self { node: node.to_owned(), boot, is_clustered, sequence: 0 }
    }

    /// The process started. `boot_before`: the life that wrote the last record of the same file.
    pub fn opened(&mut self, out: &mut Vec<u8>, time_ms: u64, boot_before: Option<u128>) {
        let content = Content::Opened { is_clustered: self.is_clustered, boot_before };
        self.append(out, time_ms, content);
    }

    pub fn record(&mut self, out: &mut Vec<u8>, time_ms: u64, event: BlockEvent) {
        self.append(out, time_ms, Content::Lane(event));
    }

    /// Every record from before this time stands above.
    pub fn mark(&mut self, out: &mut Vec<u8>, time_ms: u64) {
        self.append(out, time_ms, Content::Mark);
    }

    /// So many records, at least one, are missing here.
    pub fn lost(&mut self, out: &mut Vec<u8>, time_ms: u64, count: u64) {
        self.sequence += count - 1;
        self.append(out, time_ms, Content::Lost(count));
    }

    /// The process ended in order.
    pub fn closed(&mut self, out: &mut Vec<u8>, time_ms: u64) {
        self.append(out, time_ms, Content::Closed);
    }

    fn append(&mut self, out: &mut Vec<u8>, time_ms: u64, content: Content) {
        self.sequence += 1;
        let (node, boot) = (self.node.clone(), Some(self.boot));
        Line { time_ms, node, boot, sequence: self.sequence, content }.emit(out);
    }
}

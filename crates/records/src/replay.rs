//! Plays the records of one public address and port back into intervals: who held it from when to when.

use std::collections::HashMap;

use crate::event::{BlockEvent, BlockEventKind};
use crate::line::{Content, Line};
use crate::search::End;

/// A time in which a subscriber held a block with the port. Milliseconds since 1970, both ends included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tenancy {
    pub(crate) block: BlockEvent,
    pub(crate) node: String,
    pub(crate) begin: Begin,
    pub(crate) end_ms: Option<u64>,
    pub(crate) end: End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begin {
    Allocated(u64),
    /// The allocation is not in the log; it was not before this.
    NotBefore(u64),
}

/// What one node has given out, as far as the log has been read.
#[derive(Debug, Default)]
struct NodeState {
    /// The holder of the port now: a node gives a port to one subscriber at a time.
    open: Option<(BlockEvent, u64)>,
    /// Until here the port's history is known.
    known_ms: u64,
}

/// Feeds on records in order and hands out tenancies as they end.
#[derive(Debug, Default)]
pub(crate) struct Replay {
    nodes: HashMap<String, NodeState>,
}

impl Replay {
    /// Takes a record of the port, or one of its node's start or stop; gives the tenancies it ends.
    pub(crate) fn apply(&mut self, line: &Line, done: &mut Vec<Tenancy>) {
        if !self.nodes.contains_key(&line.node) {
            self.nodes.insert(line.node.clone(), NodeState::default());
        }
        let Some(state) = self.nodes.get_mut(&line.node) else { return };
        let mut close = |(block, begin_ms): (BlockEvent, u64), end: End| {
            let begin = Begin::Allocated(begin_ms);
            done.push(Tenancy {
                block,
                node: line.node.clone(),
                begin,
                end_ms: Some(line.time_ms),
                end,
            });
        };
        match &line.content {
            Content::Lost(_) => return,
            Content::Opened => {
                if let Some(open) = state.open.take() {
                    close(open, End::NodeRestarted);
                }
            }
            Content::Closed => {
                if let Some(open) = state.open.take() {
                    close(open, End::NodeStopped);
                }
            }
            Content::Block(block) if block.kind == BlockEventKind::Allocated => {
                // Its release is missing: it was over by now.
                if let Some(open) = state.open.replace((*block, line.time_ms)) {
                    close(open, End::GivenToAnother);
                }
            }
            Content::Block(block) => match state.open.take() {
                Some(open) if is_same_holder(&open.0, block) => close(open, End::Released),
                before => {
                    if let Some(open) = before {
                        close(open, End::GivenToAnother);
                    }
                    let begin = Begin::NotBefore(state.known_ms);
                    let node = line.node.clone();
                    done.push(Tenancy {
                        block: *block,
                        node,
                        begin,
                        end_ms: Some(line.time_ms),
                        end: End::Released,
                    });
                }
            },
        }
        state.known_ms = line.time_ms;
    }

    /// The tenancies that go on at the end of the log.
    pub(crate) fn finish(self, done: &mut Vec<Tenancy>) {
        for (node, state) in self.nodes {
            if let Some((block, begin_ms)) = state.open {
                let begin = Begin::Allocated(begin_ms);
                done.push(Tenancy { block, node, begin, end_ms: None, end: End::Open });
            }
        }
    }
}

fn is_same_holder(open: &BlockEvent, released: &BlockEvent) -> bool {
    (open.subscriber, open.gre_key, open.shard, open.port_first)
        == (released.subscriber, released.gre_key, released.shard, released.port_first)
}

impl Tenancy {
    /// A clock that was set back may have put the end before the beginning: the time between counts either way.
    pub(crate) fn contains(&self, at_ms: u64) -> bool {
        let begin_ms = match self.begin {
            Begin::Allocated(ms) | Begin::NotBefore(ms) => ms,
        };
        match self.end_ms {
            Some(end_ms) => (begin_ms.min(end_ms)..=begin_ms.max(end_ms)).contains(&at_ms),
            None => begin_ms <= at_ms,
        }
    }
}

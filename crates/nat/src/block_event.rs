//! Blocks opened and released, for the log: a ring of fixed size between the data path and whoever
//! reads it.

use std::collections::VecDeque;

use weir_ids::ShardId;

/// Events that can wait to be read. Reading once per burst, the ring never fills: a packet opens
/// one block at most.
const EVENTS_MAX: usize = 16_384;

/// What happened to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockEventKind {
    Allocated,
    Released,
}

/// A block was given to a subscriber or came back. The pair of events answers who had a public
/// endpoint at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockEvent {
    pub kind: BlockEventKind,
    pub shard: ShardId,
    /// Outer address of the home.
    pub subscriber: u32,
    /// The home's GRE key when it became a subscriber.
    pub gre_key: Option<u32>,
    pub public_address: u32,
    /// First and last port, both included, for TCP, UDP and ICMP identifiers alike.
    pub port_first: u16,
    pub port_last: u16,
}

#[derive(Debug)]
pub(crate) struct BlockEvents {
    ring: VecDeque<BlockEvent>,
    lost_total: u64,
}

impl BlockEvents {
    pub(crate) fn new() -> Self {
        Self { ring: VecDeque::with_capacity(EVENTS_MAX), lost_total: 0 }
    }

    /// Keeps the event, or counts it as lost: the data path does not wait for a reader.
    pub(crate) fn push(&mut self, event: BlockEvent) {
        if self.ring.len() == EVENTS_MAX {
            self.lost_total += 1;
        } else {
            self.ring.push_back(event);
        }
    }

    pub(crate) fn pop(&mut self) -> Option<BlockEvent> {
        self.ring.pop_front()
    }

    pub(crate) fn lost_total(&self) -> u64 {
        self.lost_total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_ring_counts_what_it_loses_and_keeps_the_order() {
        let mut events = BlockEvents::new();
        for number in 0..EVENTS_MAX as u32 + 3 {
            events.push(BlockEvent {
                kind: BlockEventKind::Allocated,
                shard: ShardId(1),
                subscriber: number,
                gre_key: None,
                public_address: 0,
                port_first: 1024,
                port_last: 1279,
            });
        }
        assert_eq!(events.lost_total(), 3);
        for number in 0..EVENTS_MAX as u32 {
            assert_eq!(events.pop().map(|event| event.subscriber), Some(number));
        }
        assert_eq!(events.pop(), None);
    }
}

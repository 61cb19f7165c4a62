//! Block events of the NAT in the words of the block log.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::SystemTime;

use weir_records::{Block, BlockEvent, BlockEventKind, BlockLogSender};

/// The lane and epoch of every statement, as a node of its own has it: one owner of everything, for its whole life.
const LANE: u8 = 0;
const EPOCH: u64 = 0;

/// A worker's end of the block log. It numbers the statements of each shard.
#[derive(Debug)]
pub(crate) struct BlockEventLog {
    sender: BlockLogSender,
    /// Of each shard, the index of the last statement.
    indexes: BTreeMap<u32, u64>,
    /// Events that the NAT has lost, as far as the indexes know.
    lost_total: u64,
}

impl BlockEventLog {
    pub(crate) fn new(sender: BlockLogSender) -> Self {
        Self { sender, indexes: BTreeMap::new(), lost_total: 0 }
    }

    /// The NAT has lost so many events in all. Of which shard they were is not known: every shard has a gap.
    pub(crate) fn note_lost(&mut self, lost_total: u64) {
        let lost = lost_total - self.lost_total;
        if lost > 0 {
            self.lost_total = lost_total;
            self.sender.lose(lost);
            self.indexes.values_mut().for_each(|index| *index += lost);
        }
    }

    /// A full ring is counted by the log itself, and the gap in the indexes tells its reader.
    pub(crate) fn push(&mut self, event: &weir_nat::BlockEvent, at: SystemTime) {
        let index = self.indexes.entry(event.shard.0).or_default();
        *index += 1;
        let block = Block {
            subscriber: Ipv4Addr::from(event.subscriber),
            gre_key: event.gre_key,
            public: Ipv4Addr::from(event.public_address),
            port_first: event.port_first,
            port_last: event.port_last,
        };
        let kind = match event.kind {
            weir_nat::BlockEventKind::Allocated => BlockEventKind::Allocated(block),
            weir_nat::BlockEventKind::Released => BlockEventKind::Released(block),
        };
        let event =
            BlockEvent { shard: event.shard.0, lane: LANE, epoch: EPOCH, index: *index, kind };
        let _ = self.sender.push(event, at);
    }
}

//! Converts block events of the NAT to those of the block log.

use std::net::Ipv4Addr;

use weir_nat_log::{AssignedBlock, BlockRecord, BlockRecordKind};

/// Returns the same event, with addresses as the log writes them.
pub fn to_log(event: &weir_nat::BlockEvent) -> BlockRecord {
    use weir_nat::BlockEventKind;
    let block = |block: weir_nat::HomeBlock| AssignedBlock {
        subscriber: Ipv4Addr::from(block.subscriber),
        gre_key: block.gre_key,
        public: Ipv4Addr::from(block.public_address),
        port_first: block.port_first,
        port_last: block.port_last,
    };
    let kind = match event.kind {
        BlockEventKind::Taken { before } => {
            BlockRecordKind::Taken { before: before.map(|epoch| epoch.0) }
        }
        BlockEventKind::Left => BlockRecordKind::Left,
        BlockEventKind::Allocated(it) => BlockRecordKind::Allocated(block(it)),
        BlockEventKind::Released(it) => BlockRecordKind::Released(block(it)),
        BlockEventKind::Held(it) => BlockRecordKind::Held { block: block(it), since: None },
        BlockEventKind::Listed { blocks, from } => BlockRecordKind::Listed { blocks, from },
    };
    let (shard, epoch) = (event.shard.0, event.epoch.0);
    BlockRecord { shard, lane: event.lane, epoch, index: event.index, kind }
}

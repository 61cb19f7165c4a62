//! Converts block events of the NAT to those of the block log.

use std::net::Ipv4Addr;

use weir_nat::HoldingChange;
use weir_nat_log::{AssignedBlock, BlockRecord, BlockRecordKind, Prefix64, PrefixClaim};

/// Returns the same event, with addresses as the log writes them.
pub fn to_log(event: &weir_nat::BlockEvent) -> BlockRecord {
    use weir_nat::BlockEventKind;
    let block = |block: weir_nat::HomeBlock| AssignedBlock {
        subscriber: block.subscriber.into(),
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
        BlockEventKind::Prefix(change, it) => {
            let claim = PrefixClaim {
                subscriber: it.subscriber.into(),
                gre_key: it.gre_key,
                prefix: Prefix64::from_bits(it.prefix64),
            };
            match change {
                HoldingChange::Taken => BlockRecordKind::PrefixClaimed(claim),
                HoldingChange::Released => BlockRecordKind::PrefixReleased(claim),
                HoldingChange::Listed => BlockRecordKind::PrefixHeld(claim),
            }
        }
        BlockEventKind::Listed { blocks, from } => {
            BlockRecordKind::Listed { blocks, from, are_claims_by_lane: true }
        }
    };
    let (shard, epoch) = (event.shard.0, event.epoch.0);
    BlockRecord { shard, lane: event.lane, epoch, index: event.index, kind }
}

#[cfg(test)]
mod tests {
    use weir_nat::{BlockEvent, BlockEventKind, Epoch, HomePrefix, OuterAddress, ShardId};

    use super::*;

    #[test]
    fn each_change_of_a_prefix_is_a_record_of_its_home() {
        let (subscriber, prefix64) = (0x0ac8_0001, 0x2001_0db8_1000_0001);
        let prefix =
            HomePrefix { subscriber: OuterAddress::Ipv4(subscriber), gre_key: Some(7), prefix64 };
        let record = |change| {
            let kind = BlockEventKind::Prefix(change, prefix);
            to_log(&BlockEvent { shard: ShardId(3), lane: 0, epoch: Epoch(5), index: 9, kind })
        };
        let claim = PrefixClaim {
            subscriber: Ipv4Addr::new(10, 200, 0, 1).into(),
            gre_key: Some(7),
            prefix: Prefix64::of("2001:db8:1000:1::7".parse().expect("an address")),
        };
        let claimed = record(HoldingChange::Taken);
        let kind = BlockRecordKind::PrefixClaimed(claim);
        assert_eq!(claimed, BlockRecord { shard: 3, lane: 0, epoch: 5, index: 9, kind });
        let kind = record(HoldingChange::Released).kind;
        assert_eq!(kind, BlockRecordKind::PrefixReleased(claim));
        assert_eq!(record(HoldingChange::Listed).kind, BlockRecordKind::PrefixHeld(claim));
    }
}

//! A block event of the NAT in the words of the block log.

use std::net::Ipv4Addr;

/// The same event, its addresses as the log writes them.
pub(crate) fn to_log(event: &weir_nat::BlockEvent) -> weir_records::BlockEvent {
    weir_records::BlockEvent {
        kind: match event.kind {
            weir_nat::BlockEventKind::Allocated => weir_records::BlockEventKind::Allocated,
            weir_nat::BlockEventKind::Released => weir_records::BlockEventKind::Released,
        },
        shard: event.shard.0,
        subscriber: Ipv4Addr::from(event.subscriber),
        gre_key: event.gre_key,
        public: Ipv4Addr::from(event.public_address),
        port_first: event.port_first,
        port_last: event.port_last,
    }
}

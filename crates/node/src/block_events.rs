//! Block events of the NAT on their way out: to the block log and to collectors, in the words of each.

use std::net::Ipv4Addr;
use std::time::{SystemTime, UNIX_EPOCH};

use weir_export::{EventSender, Home, NatEvent, NatEventKind};
use weir_nat::{BlockEvent, BlockEventKind, Nat};
use weir_records::BlockLogSender;
use weir_worker::to_log;

/// Blocks looked at for a listing per turn. Between two pieces of it the events of both are handed on.
const LISTED_PER_TURN: u32 = 64;

/// A worker's end of the block log and of the collectors.
#[derive(Debug)]
pub(crate) struct BlockEventLog {
    file: Option<BlockLogSender>,
    collectors: Option<EventSender>,
    /// Its observation domain of IPFIX.
    domain: u32,
    /// Events that the NAT has lost, as far as the log was told.
    lost_total: u64,
}

impl BlockEventLog {
    /// Of the worker with this number in the file; `None` if nobody is to be told.
    pub(crate) fn new(
        file: Option<BlockLogSender>,
        collectors: Option<EventSender>,
        worker: usize,
    ) -> Option<Self> {
        let is_any = file.is_some() || collectors.is_some();
        is_any.then_some(Self { file, collectors, domain: worker as u32 + 1, lost_total: 0 })
    }

    /// Lets the NAT tell a piece of what its lanes hold, if that is due and the threads of the logs keep up.
    pub(crate) fn list(&self, nat: &mut Nat) {
        let has_room = self.file.as_ref().is_none_or(BlockLogSender::has_room)
            && self.collectors.as_ref().is_none_or(EventSender::has_room);
        if has_room {
            nat.list_blocks(LISTED_PER_TURN);
        }
    }

    /// The NAT has lost so many events in all; gaps in the indexes tell the reader where.
    pub(crate) fn note_lost(&mut self, lost_total: u64) {
        let lost = lost_total - self.lost_total;
        if lost > 0 {
            self.lost_total = lost_total;
            if let Some(file) = &mut self.file {
                file.lose(lost);
            }
        }
    }

    /// What finds no room is counted by the log and by each collector, and their readers are told.
    pub(crate) fn push(&mut self, event: &BlockEvent, at: SystemTime) {
        if let Some(file) = &mut self.file {
            let _ = file.push(to_log(event), at);
        }
        if let Some(collectors) = &mut self.collectors
            && let Some(event) = to_collectors(event, at, self.domain)
        {
            let _ = collectors.push(event);
        }
    }
}

/// The same event for collectors, which hear of blocks alone.
fn to_collectors(event: &BlockEvent, at: SystemTime, domain: u32) -> Option<NatEvent> {
    let block = |block: weir_nat::Block| weir_export::Block {
        home: Home { address: Ipv4Addr::from(block.subscriber), gre_key: block.gre_key },
        public: Ipv4Addr::from(block.public_address),
        port_first: block.port_first,
        port_last: block.port_last,
    };
    let kind = match event.kind {
        BlockEventKind::Allocated(it) => NatEventKind::BlockAllocated(block(it)),
        BlockEventKind::Released(it) => NatEventKind::BlockReleased(block(it)),
        BlockEventKind::Held(it) => NatEventKind::BlockHeld { block: block(it), since_ms: None },
        BlockEventKind::Taken { .. } | BlockEventKind::Left | BlockEventKind::Listed { .. } => {
            return None;
        }
    };
    Some(NatEvent {
        time_ms: at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64),
        node: domain,
        shard: event.shard.0,
        lane: event.lane,
        epoch: event.epoch.0,
        index: event.index,
        kind,
    })
}

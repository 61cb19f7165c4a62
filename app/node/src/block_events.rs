//! Hands block events of the NAT to the block log and to collectors, in the format of each.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{SystemTime, UNIX_EPOCH};

use weir_nat::{
    AdminMut, BlockEvent, BlockEventKind, Endpoint, HoldingChange, HomeLimit, HomeRefused,
    LoggedSubscriber, OuterAddress, SessionEvent,
};
use weir_nat_log::BlockLogSender;
use weir_nat_log_export::{
    EventSender, ExportedHome, ExportedPrefix, ExportedSession, NatEvent, NatEventKind, Quota,
};
use weir_worker::to_log;

/// Blocks visited for a listing per turn. Events are handed on between two pieces of a listing.
const LISTED_PER_TURN: u32 = 64;

/// A worker's end of the block log and of the collectors.
#[derive(Debug)]
pub(crate) struct BlockEventLog {
    file: Option<BlockLogSender>,
    collectors: Option<EventSender>,
    /// The worker's observation domain of IPFIX.
    domain: u32,
    /// Events lost by the NAT, as far as the loss has been reported to the log.
    lost_total: u64,
    /// Session events lost by the NAT, as far as reported to the collectors.
    sessions_lost_total: u64,
}

impl BlockEventLog {
    /// Creates the log of the worker with this number in the file; `None` without a block log and
    /// collectors.
    pub(crate) fn new(
        file: Option<BlockLogSender>,
        collectors: Option<EventSender>,
        worker: usize,
    ) -> Option<Self> {
        let is_any = file.is_some() || collectors.is_some();
        is_any.then_some(Self {
            file,
            collectors,
            domain: worker as u32 + 1,
            lost_total: 0,
            sessions_lost_total: 0,
        })
    }

    /// Lets the NAT list a piece of what its lanes hold, if that is due and the threads of the logs
    /// keep up.
    pub(crate) fn list(&self, nat: &mut AdminMut<'_>) {
        if nat.is_listing_due()
            && self.file.as_ref().is_none_or(BlockLogSender::has_room)
            && self.collectors.as_ref().is_none_or(EventSender::has_room)
        {
            nat.list_blocks(LISTED_PER_TURN);
        }
    }

    /// Notes that the NAT has lost so many events in all; gaps in the indexes show the reader
    /// where.
    pub(crate) fn note_lost(&mut self, lost_total: u64) {
        let lost = lost_total - self.lost_total;
        if lost > 0 {
            self.lost_total = lost_total;
            if let Some(file) = &mut self.file {
                file.lose(lost);
            }
            if let Some(collectors) = &mut self.collectors {
                collectors.lose(lost);
            }
        }
    }

    /// Hands on an event. The log and each collector count the events that find no room, and report
    /// the loss to their readers.
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

    /// Hands the NAT's session events and refusals since the last call to the collectors.
    pub(crate) fn log_sessions(&mut self, mut nat: AdminMut<'_>) {
        let Some(collectors) = &mut self.collectors else { return };
        let lost = nat.read().session_events_lost() - self.sessions_lost_total;
        if lost > 0 {
            self.sessions_lost_total += lost;
            collectors.lose(lost);
        }
        let mut time = None;
        let mut time_ms = || *time.get_or_insert_with(|| unix_ms(SystemTime::now()));
        while let Some(event) = nat.next_session_event() {
            if let Some(event) = session_to_collectors(&event, time_ms(), self.domain) {
                let _ = collectors.push(event);
            }
        }
        while let Some(refused) = nat.next_refusal() {
            if let Some(event) = refusal_to_collectors(&refused, time_ms(), self.domain) {
                let _ = collectors.push(event);
            }
        }
    }
}

fn unix_ms(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Converts an event for collectors.
fn session_to_collectors(event: &SessionEvent, time_ms: u64, domain: u32) -> Option<NatEvent> {
    let address = |it: Endpoint| SocketAddrV4::new(Ipv4Addr::from(it.address), it.port);
    let session = ExportedSession {
        home: home(event.subscriber)?,
        inside: address(event.inside),
        public: address(event.public),
        remote: event.remote.map(address),
        protocol: event.protocol as u8,
    };
    Some(NatEvent {
        time_ms,
        node: domain,
        shard: event.shard.0,
        lane: event.lane,
        epoch: event.epoch.0,
        index: 0,
        kind: match event.is_begin {
            true => NatEventKind::SessionBegun(session),
            false => NatEventKind::SessionEnded(session),
        },
    })
}

/// Converts a refusal for collectors.
fn refusal_to_collectors(refused: &HomeRefused, time_ms: u64, domain: u32) -> Option<NatEvent> {
    let home = home(refused.subscriber)?;
    let quota = |quota, limit| NatEventKind::QuotaExceeded { home, quota, limit };
    let kind = match refused.why {
        HomeLimit::Ports { limit } => quota(Quota::PortsPerHome, limit),
        HomeLimit::Sessions { limit } => quota(Quota::SessionsPerHome, limit),
        HomeLimit::AddressPorts { public_address } => NatEventKind::PortsExhausted {
            home,
            public: Ipv4Addr::from(public_address),
            protocol: refused.protocol as u8,
        },
        HomeLimit::Addresses => NatEventKind::AddressesExhausted { home },
    };
    let shard = refused.shard.0;
    Some(NatEvent { time_ms, node: domain, shard, lane: 0, epoch: 0, index: 0, kind })
}

/// Returns the home as records name it; `None` for one that is a prefix.
fn home(subscriber: LoggedSubscriber) -> Option<ExportedHome> {
    match subscriber {
        LoggedSubscriber::Address { address, gre_key } => Some(exported_home(address, gre_key)),
        LoggedSubscriber::Prefix { .. } => None,
    }
}

fn exported_home(outer: OuterAddress, gre_key: Option<u32>) -> ExportedHome {
    ExportedHome { address: outer.into(), gre_key }
}

/// Converts an event for collectors, which receive only events about blocks and prefixes.
fn to_collectors(event: &BlockEvent, at: SystemTime, domain: u32) -> Option<NatEvent> {
    let block = |block: weir_nat::HomeBlock| weir_nat_log_export::ExportedBlock {
        home: exported_home(block.subscriber, block.gre_key),
        public: Ipv4Addr::from(block.public_address),
        port_first: block.port_first,
        port_last: block.port_last,
    };
    let kind = match event.kind {
        BlockEventKind::Allocated(it) => NatEventKind::BlockAllocated(block(it)),
        BlockEventKind::Released(it) => NatEventKind::BlockReleased(block(it)),
        BlockEventKind::Held(it) => NatEventKind::BlockHeld { block: block(it), since_ms: None },
        BlockEventKind::Prefix(change, it) => {
            let home = exported_home(it.subscriber, it.gre_key);
            let prefix = ExportedPrefix { home, prefix64: it.prefix64 };
            match change {
                HoldingChange::Taken => NatEventKind::PrefixClaimed(prefix),
                HoldingChange::Released => NatEventKind::PrefixReleased(prefix),
                HoldingChange::Listed => NatEventKind::PrefixHeld(prefix),
            }
        }
        BlockEventKind::Taken { .. } | BlockEventKind::Left | BlockEventKind::Listed { .. } => {
            return None;
        }
    };
    Some(NatEvent {
        time_ms: unix_ms(at),
        node: domain,
        shard: event.shard.0,
        lane: event.lane,
        epoch: event.epoch.0,
        index: event.index,
        kind,
    })
}

//! The thread that brings events to one collector.
//!
//! ```text
//!   rings -> take -> accept --+--> flight -----> encoder -> outgoing -> connection -> collector
//!                             |      ^  |
//!               away or slow: |      |  | spill: what memory has and the spool has not
//!                             v      |  v
//!                            spool --+ read, before new events
//! ```
//!
//! - Events keep the order of the rings. While something in the spool is unread, new events are
//!   appended to the spool.
//! - An event leaves the flight when the collector's kernel has acknowledged its bytes and `resend`
//!   has passed since; until then a break makes it wait again. So a collector may get an event
//!   twice, equal in every field.
//! - Lost events are counted, and the next event that the collector gets states how many are
//!   missing before it.

mod delivery;
mod intake;
mod link;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::back_off::ConnectBackOff;
use crate::connection::CollectorAddress;
use crate::counters::{Loss, SharedCounters};
use crate::encoder::Encoder;
use crate::flight::Flight;
use crate::nat_event::NatEvent;
use crate::sender::EventInlet;
use crate::spool::{Spool, SpoolPosition};
use link::CollectorLink;

/// Largest number of events taken from one ring before the next ring has its turn.
const TURN_EVENTS: usize = 1024;
/// Pause after a turn without anything to do.
const IDLE_PAUSE: Duration = Duration::from_millis(5);
/// Pause after a turn that sent datagrams.
const DATAGRAMS_PAUSE: Duration = Duration::from_millis(1);
const HOUSEKEEPING_INTERVAL: Duration = Duration::from_millis(500);
/// Time that the collector has at the end to acknowledge.
const END_PATIENCE: Duration = Duration::from_secs(2);
/// Shortest interval of log lines about a disk that fails.
const DISK_LOG_INTERVAL: Duration = Duration::from_secs(60);

/// State shared by the thread and its handle.
#[derive(Debug, Default)]
pub(crate) struct CourierShared {
    pub(crate) counters: SharedCounters,
    pub(crate) is_stop_asked: AtomicBool,
}

/// Configuration of a courier.
pub(crate) struct CourierConfig {
    pub(crate) name: String,
    pub(crate) target: CollectorAddress,
    pub(crate) encoder: Encoder,
    /// Whether the collector gets events of IPv6 prefixes.
    pub(crate) has_prefixes: bool,
    pub(crate) spool: Option<Spool>,
    pub(crate) inlets: Vec<EventInlet>,
    pub(crate) resend: Duration,
    pub(crate) flush: Duration,
}

pub(crate) struct Courier {
    orders: CourierConfig,
    shared: Arc<CourierShared>,
    began: Instant,
    link: CollectorLink,
    back_off: ConnectBackOff,
    flight: Flight,
    /// Events taken from the rings and not accepted yet.
    fresh: Vec<NatEvent>,
    /// Events read from the spool.
    read: Vec<(NatEvent, SpoolPosition)>,
    outgoing: OutgoingBytes,
    /// Numbers of acknowledged bytes, each with the time of its acknowledgement.
    acknowledged: VecDeque<(u64, Instant)>,
    /// Time since which events have been waiting for their message to fill.
    waiting_since: Option<Instant>,
    /// Lost events that have not been reported to the collector yet.
    unreported: u64,
    /// Node of the last event, for the courier's own statements.
    node: u32,
    kept_house_at: Instant,
    disk_logged_at: Option<Instant>,
}

/// Bytes of messages that are to be written to the connection.
#[derive(Debug, Default)]
struct OutgoingBytes {
    bytes: Vec<u8>,
    written: usize,
    events: usize,
    events_again: usize,
}

impl Courier {
    pub(crate) fn new(orders: CourierConfig, shared: Arc<CourierShared>) -> Self {
        let now = Instant::now();
        Self {
            orders,
            shared,
            began: now,
            link: CollectorLink::Waiting { until: now },
            back_off: ConnectBackOff::new(),
            flight: Flight::default(),
            fresh: Vec::with_capacity(TURN_EVENTS),
            read: Vec::new(),
            outgoing: OutgoingBytes::default(),
            acknowledged: VecDeque::new(),
            waiting_since: None,
            unreported: 0,
            node: 0,
            kept_house_at: now,
            disk_logged_at: None,
        }
    }

    pub(crate) fn run(mut self) {
        self.show();
        loop {
            // Read before the rings: events passed in before the stop are then taken.
            let is_stop_asked = self.shared.is_stop_asked.load(Ordering::Acquire);
            let is_anything_new = self.take();
            self.turn_link();
            let is_progress = self.pump(is_stop_asked);
            self.keep_house();
            if is_stop_asked {
                return self.end();
            }
            if !is_anything_new && !is_progress {
                self.rest(IDLE_PAUSE);
            } else if is_progress && self.is_datagram() {
                self.rest(DATAGRAMS_PAUSE);
            }
        }
    }

    fn is_datagram(&self) -> bool {
        matches!(&self.link, CollectorLink::Up(connection) if connection.is_datagram())
    }

    fn rest(&self, pause: Duration) {
        match &self.link {
            CollectorLink::Up(connection) => {
                connection.wait(!self.outgoing.bytes.is_empty(), pause)
            }
            CollectorLink::Connecting(_) | CollectorLink::Waiting { .. } => {
                std::thread::park_timeout(pause)
            }
        }
    }

    /// Does the work that is due twice a second.
    fn keep_house(&mut self) {
        if self.kept_house_at.elapsed() < HOUSEKEEPING_INTERVAL {
            return;
        }
        self.kept_house_at = Instant::now();
        if let Some(spool) = &mut self.orders.spool {
            spool.save_taken();
        }
        self.show();
    }

    fn show(&mut self) {
        let counters = &self.shared.counters;
        counters.held_records.store(self.flight.len() as u64, Ordering::Relaxed);
        let Some(spool) = &mut self.orders.spool else { return };
        counters.spool_records.store(spool.records(), Ordering::Relaxed);
        counters.spool_bytes.store(spool.bytes(), Ordering::Relaxed);
        let Some(error) = spool.take_error() else { return };
        if self.disk_logged_at.is_none_or(|at| at.elapsed() >= DISK_LOG_INTERVAL) {
            self.disk_logged_at = Some(Instant::now());
            counters.spool_failed(error.to_string());
            let collector = &self.orders.name;
            tracing::error!(event = "export-spool-failing", %collector, %error, "the spool cannot be used; trying again");
        }
    }

    /// Sends what the collector accepts within a short time; the rest is left in the spool for the
    /// next process.
    fn end(mut self) {
        let end = Instant::now() + END_PATIENCE;
        // Senders may continue without end: only the events that wait at this point are taken, and
        // then the statement of what is missing.
        let waiting = self.orders.inlets.iter().map(EventInlet::waiting).max().unwrap_or(0);
        let mut takes = waiting.div_ceil(TURN_EVENTS) + 1;
        while Instant::now() < end && self.is_worth_waiting(takes) {
            let is_anything_new = takes > 0 && self.take();
            takes = takes.saturating_sub(1);
            if !self.pump(true) && !is_anything_new {
                self.rest(IDLE_PAUSE);
            } else if self.is_datagram() {
                self.rest(DATAGRAMS_PAUSE);
            }
        }
        for _ in 0..takes {
            self.take();
        }
        if let CollectorLink::Up(connection) = &mut self.link {
            let acknowledged = connection.acknowledged().unwrap_or(0);
            self.let_go(acknowledged);
        }
        self.spill();
        // Without a spool, or where the spool refuses them, these events are never sent.
        let alone = self.flight.without_position().count() as u64;
        self.shared.counters.lost(Loss::AtEnd, alone);
        if let Some(spool) = &mut self.orders.spool {
            spool.save_taken();
        }
        self.show();
        if let CollectorLink::Up(connection) = self.link {
            connection.close();
        }
        self.shared.counters.is_connected.store(false, Ordering::Relaxed);
    }

    /// Whether the collector is connected and has not acknowledged everything, with `takes` further
    /// takes from the rings to come.
    fn is_worth_waiting(&mut self, takes: usize) -> bool {
        let is_all_sent = takes == 0 && self.flight.waiting() == 0 && !self.has_unread();
        let is_all_out = is_all_sent && self.outgoing.bytes.is_empty();
        let CollectorLink::Up(connection) = &mut self.link else { return false };
        !is_all_out || connection.acknowledged().is_ok_and(|bytes| bytes < connection.taken())
    }
}

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

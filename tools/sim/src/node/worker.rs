//! A worker: the production turn (`weir_worker`) over rings instead of ports, and the time of its
//! next turn.

use std::collections::VecDeque;
use std::time::Duration;

use weir_engine::{Engine, LiveSettings, Side};
use weir_nat::BlockEvent;
use weir_node_core::StallEnd;
use weir_replication::{Replication, WorkerCommand, WorkerEvent};
use weir_routes::Fence;
use weir_wire::frame::{VecFrame, VecPool};
use weir_worker::{ClusterMember, LocalLink, Rings};

/// As for a worker of `app/node`.
const LISTED_PER_TURN: u32 = 64;

#[derive(Debug)]
pub(crate) struct Worker {
    core: weir_worker::Worker<VecFrame, LocalLink>,
    ports: Rings<VecPool>,
    /// Commands on their way, with their arrival times.
    commands: VecDeque<(u64, WorkerCommand)>,
    /// Settings on their way, with their arrival times.
    settings: VecDeque<(u64, Box<LiveSettings>)>,
    pub(crate) orders_total: u64,
    /// Its next turn, in virtual time.
    pub(crate) turn_due_us: u64,
    /// It stalls until this time.
    pub(crate) stalled_until_us: u64,
    /// A stall after which it continues under a new fence, not yet reported to the core.
    pub(crate) stall: StallEnd,
}

/// The results of a turn.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    pub(crate) worker_events: Vec<WorkerEvent>,
    /// The fence under which the worker continues after a stall, and how many packets had waited.
    pub(crate) rejoined: Option<(Fence, usize)>,
    pub(crate) packets: usize,
    /// True if work is left that can be done at once.
    pub(crate) is_busy: bool,
    /// True if packets wait for copies.
    pub(crate) is_holding: bool,
    /// Events for the block log.
    pub(crate) events: Vec<BlockEvent>,
}

impl Worker {
    pub(crate) fn new(engine: Engine<VecFrame>, replication: Replication) -> Self {
        let member = Box::new(ClusterMember::new(replication, LocalLink::default()));
        Self {
            core: weir_worker::Worker::new(engine, Some(member)),
            ports: Rings::new(VecPool::new()),
            commands: VecDeque::new(),
            settings: VecDeque::new(),
            orders_total: 0,
            turn_due_us: 0,
            stalled_until_us: 0,
            stall: StallEnd::default(),
        }
    }

    fn member(&self) -> &ClusterMember<LocalLink> {
        self.core.member.as_deref().expect("each worker here is a member")
    }

    pub(crate) fn engine(&self) -> &Engine<VecFrame> {
        &self.core.engine
    }

    /// Returns the number of the settings in force.
    pub(crate) fn generation(&self) -> u64 {
        self.core.engine.admin().generation()
    }

    pub(crate) fn replication(&self) -> &Replication {
        &self.member().replication
    }

    /// Returns the state that the worker shows to its node's roles and guard.
    pub(crate) fn link(&self) -> &LocalLink {
        &self.member().link
    }

    pub(crate) fn link_mut(&mut self) -> &mut LocalLink {
        &mut self.core.member.as_deref_mut().expect("each worker here is a member").link
    }

    /// Starts the worker, with its ports up.
    pub(crate) fn start(&mut self, clock_us: u64) {
        self.core.engine.setup().watch_gateways();
        self.core.start(Duration::from_micros(clock_us), &mut self.ports);
    }

    /// Takes a frame that has arrived at a port.
    pub(crate) fn arrive(&mut self, side: Side, frame: VecFrame) {
        self.ports.arrive(side, frame);
    }

    pub(crate) fn command(&mut self, due_us: u64, command: WorkerCommand) {
        self.orders_total += 1;
        self.commands.push_back((due_us, command));
    }

    /// Gives the worker its settings before it starts.
    pub(crate) fn begin_with(&mut self, settings: Box<LiveSettings>) {
        drop(self.core.engine.setup().swap_live(settings));
    }

    pub(crate) fn take_settings(&mut self, due_us: u64, settings: Box<LiveSettings>) {
        self.settings.push_back((due_us, settings));
    }

    /// Passes the frames that were sent to `sink`, with their sides.
    pub(crate) fn take_frames(&mut self, mut sink: impl FnMut(Side, VecFrame)) {
        for side in Side::ALL {
            self.ports.sent[side as usize].drain(..).for_each(|frame| sink(side, frame));
        }
    }

    /// Makes one turn of the loop. `fence` is the guard's fence word, `room` how many events the
    /// worker may report.
    pub(crate) fn turn(&mut self, now_us: u64, clock_us: u64, fence: Fence, room: usize) -> Turn {
        while self.commands.front().is_some_and(|(due_us, _)| *due_us <= now_us) {
            let (_, command) = self.commands.pop_front().expect("the first command is due");
            self.link_mut().commands.push_back(command);
        }
        while self.settings.front().is_some_and(|(due_us, _)| *due_us <= now_us) {
            let (_, settings) = self.settings.pop_front().expect("the first settings are due");
            drop(self.core.engine.setup().swap_live(settings));
        }
        (self.link_mut().fence, self.link_mut().room) = (fence.0, room);
        let now = Duration::from_micros(clock_us);
        self.ports.now = now;
        let turn = self.core.turn(now, &mut self.ports);
        let events = self.block_events();
        let mut nat = self.core.engine.nat_mut().admin_mut();
        if events.is_empty() && nat.is_listing_due() {
            nat.list_blocks(LISTED_PER_TURN);
        }
        let is_left = !self.ports.is_empty();
        let link = self.link_mut();
        Turn {
            worker_events: std::mem::take(&mut link.events),
            rejoined: link.rejoined.take().map(|(fence, waited)| (Fence(fence), waited)),
            packets: turn.packets + turn.late,
            is_busy: turn.is_busy || is_left,
            is_holding: turn.is_holding,
            events,
        }
    }

    fn block_events(&mut self) -> Vec<BlockEvent> {
        std::iter::from_fn(|| self.core.engine.nat_mut().admin_mut().next_event()).collect()
    }

    /// Ends the worker in an orderly way: no packet waits for copies any longer. Returns the
    /// remaining events for the block log.
    pub(crate) fn let_go(&mut self, clock_us: u64) -> Vec<BlockEvent> {
        self.core.let_go(Duration::from_micros(clock_us), &mut self.ports);
        self.block_events()
    }
}

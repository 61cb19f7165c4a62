//! The cluster, its networks and its users in virtual time: one queue of events, handled one after
//! the other.
//!
//! ```text
//!   homes --> access switch --> [ring] worker [ring] <-- internet switch <-- servers, strangers
//!                   ^           events |   ^ commands           ^
//!                   |                  v   |                    |
//!                   |                  Core <--> control: etcd, controllers
//!                   |                   | lists                 |
//!                   |                   v                       |
//!                   +---- routes ---- Guard ---- routes --------+
//! ```
//!
//! A worker has an `Engine` and a `Replication`. All decisions are made by production code; delays,
//! losses and faults are drawn at random. Messages on their way to a process that has ended are
//! lost with it.

mod block_logs;
mod checks;
mod claims;
mod commit;
mod control;
mod faults;
mod frames;
mod lanes;
mod losses;
mod messages;
mod prefixes;
mod processes;
mod promises;
mod routes;
#[cfg(test)]
mod scenarios;
mod tally;
mod written;

use std::collections::BTreeMap;

use weir_engine::Side;
use weir_map::ShardId;
use weir_node_core::KnownMap;
use weir_routes::Route;
use weir_wire::frame::{Frame, VecFrame, VecPool};

use crate::clock::Clock;
use crate::dice::Dice;
use crate::fault::{Fault, Timed};
use crate::node::Node;
use crate::options::Options;
use crate::queue::Queue;
use crate::site::{CompiledPolicy, Station, WorkerPosition};
use crate::switch::Switch;
use crate::timeline::Timeline;
pub use crate::traffic::Counts;
use crate::traffic::Traffic;
use block_logs::BlockLogs;
pub use block_logs::LogCounts;
use checks::Checks;
use commit::Commits;
use control::Control;
use lanes::LastWriters;
use messages::Expected;
use promises::Promises;
pub use tally::RoleCounts;
use tally::Tally;

/// An event that is due.
#[derive(Debug)]
pub(crate) enum Event {
    Frame {
        to: Station,
        side: Side,
        frame: VecFrame,
    },
    Turn {
        position: WorkerPosition,
        life: u64,
    },
    /// Messages for the roles have arrived.
    Messages {
        node: usize,
        life: u64,
    },
    /// The slot of the roles ends.
    Slot {
        node: usize,
        life: u64,
    },
    Guard {
        node: usize,
        life: u64,
    },
    /// A list of routes reaches the guard.
    Routes {
        node: usize,
        life: u64,
        order: Box<crate::node::RouteOrder>,
    },
    /// A switch learns the routes of a worker.
    Learn {
        side: Side,
        from: WorkerPosition,
        routes: Vec<Route>,
    },
    /// A switch checks whether the state of a link has lasted.
    Detect {
        node: usize,
        side: Side,
    },
    /// A link passes frames again: announcements that were sent into the cut are repeated.
    Resend {
        node: usize,
        side: Side,
    },
    Flow(usize),
    ShortFlow {
        shard: u32,
        home: u32,
    },
    Probe,
    Control,
    Strike(usize),
    Mend(usize),
    Start(usize),
    /// A machine has power again.
    PowerOn(usize),
    /// A worker stalls until the given time.
    StandStill {
        position: WorkerPosition,
        until_us: u64,
    },
    /// Checks whether a node has sent its shutdown notice.
    Leave {
        node: usize,
        life: u64,
        began_us: u64,
    },
    /// A save of a node's map ends.
    Saved {
        node: usize,
        life: u64,
        map: Box<KnownMap>,
    },
    Check,
    /// Checks whether other nodes serve the shards of a node whose routing daemon is gone.
    Emptied {
        node: usize,
        number: u64,
    },
    /// Checks whether a site without etcd serves its shards.
    SiteServes {
        number: u64,
    },
    /// Checks where the switches lead after a process stalled together with its guard.
    Taken {
        node: usize,
        number: u64,
    },
}

impl Event {
    /// Returns the number by which two runs are compared, besides the time.
    fn kind(&self) -> u64 {
        match self {
            Self::Frame { to: Station::Worker(position), frame, .. } => {
                1 << 40 | (position.node as u64) << 32 | frame.data().len() as u64
            }
            Self::Frame { frame, .. } => 2 << 40 | frame.data().len() as u64,
            Self::Turn { position, .. } => {
                3 << 40 | (position.node as u64) << 8 | position.worker as u64
            }
            Self::Messages { node, .. } | Self::Slot { node, .. } => 4 << 40 | *node as u64,
            Self::Control => 5 << 40,
            _ => 6 << 40,
        }
    }
}

/// The whole simulated world.
pub(crate) struct World {
    pub(crate) options: Options,
    pub(crate) now_us: u64,
    queue: Queue<Event>,
    /// Number of events handled.
    pub(crate) events: u64,
    /// A hash of the events, to compare two runs.
    pub(crate) digest: u64,
    pool: VecPool,
    network_dice: Dice,
    node_dice: Dice,
    nodes: Vec<Node>,
    switches: [Switch; 2],
    links: Vec<[LinkState; 2]>,
    traffic: Traffic,
    control: Control,
    policy: CompiledPolicy,
    faults: Vec<Timed>,
    /// Faults that last, by their index in the list.
    active: BTreeMap<usize, Fault>,
    checks: Checks,
    promises: Promises,
    last_writers: LastWriters,
    tally: Tally,
    commits: Commits,
    block_logs: BlockLogs,
    /// The notices that must wait for the core of each node.
    expected: Vec<Expected>,
    pub(crate) timeline: Timeline,
    /// Why the history has failed.
    pub(crate) violation: Option<String>,
    is_traffic_on: bool,
    /// When each fault struck.
    struck_us: Vec<u64>,
}

/// A node's link to a switch, as the switch can detect it.
#[derive(Clone, Copy, Debug)]
struct LinkState {
    is_good: bool,
    since_us: u64,
}

impl World {
    /// Creates the world of a seed, with these faults to come. `keeps_timeline`: it keeps a
    /// timeline.
    pub(crate) fn new(
        seed: u64,
        options: &Options,
        faults: &[Timed],
        keeps_timeline: bool,
    ) -> Self {
        let restores = |timed: &Timed| matches!(timed.fault, Fault::Restore { .. });
        let keeps_backups = faults.iter().any(restores);
        let mut dice = Dice::stream(seed, 3);
        let mut nodes = Vec::new();
        for number in 0..options.nodes {
            let skew = options.skew_ppm;
            let skew_ppm = dice.below(2 * skew + 1) as i64 - skew as i64;
            let clock = Clock::new(dice.between((1_000_000, 1 << 40)), skew_ppm);
            nodes.push(Node::new(number, options.workers_per_node, clock));
        }
        let switch = |side| Switch::new(side, options.nodes);
        let mut world = Self {
            options: options.clone(),
            now_us: 0,
            queue: Queue::default(),
            events: 0,
            digest: 0,
            pool: VecPool::new(),
            network_dice: Dice::stream(seed, 4),
            node_dice: Dice::stream(seed, 5),
            nodes,
            switches: Side::ALL.map(switch),
            links: vec![[LinkState { is_good: true, since_us: 0 }; 2]; options.nodes],
            traffic: Traffic::new(options, Dice::stream(seed, 6)),
            control: Control::new(options, Dice::stream(seed, 7), keeps_backups),
            policy: CompiledPolicy::default(),
            faults: faults.to_vec(),
            active: BTreeMap::new(),
            checks: Checks::default(),
            promises: Promises::default(),
            last_writers: LastWriters::default(),
            tally: Tally::default(),
            commits: Commits::default(),
            block_logs: BlockLogs::new(options.nodes, Dice::stream(seed, 13)),
            expected: (0..options.nodes).map(|_| Expected::default()).collect(),
            timeline: Timeline::new(keeps_timeline),
            violation: None,
            is_traffic_on: true,
            struck_us: vec![0; faults.len()],
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        for node in 0..self.nodes.len() {
            let at_us = self.node_dice.below(50_000);
            self.queue.push(at_us, Event::Start(node));
        }
        if !self.options.is_one_by_one {
            for (number, timed) in self.faults.iter().enumerate() {
                self.queue.push(self.options.start_us + timed.after_us, Event::Strike(number));
            }
        }
        let first_us = self.options.start_us / 2;
        for flow in 0..self.traffic.flows.len() {
            self.queue.push(first_us + 97 * flow as u64, Event::Flow(flow));
        }
        for shard in 1..=self.options.shards {
            for home in 0..self.options.homes_per_shard {
                self.queue.push(first_us, Event::ShortFlow { shard, home });
            }
        }
        self.queue.push(first_us, Event::Probe);
        self.queue.push(0, Event::Check);
        self.wake_control();
    }

    /// Schedules a fault.
    pub(crate) fn strike_after(&mut self, number: usize, after_us: u64) {
        self.queue.push(self.now_us + after_us, Event::Strike(number));
    }

    /// Runs until the time has come or the history has failed.
    pub(crate) fn run_to(&mut self, until_us: u64) {
        while self.violation.is_none() {
            let Some((at_us, event)) = self.queue.pop(until_us) else { break };
            self.now_us = at_us;
            self.events += 1;
            self.note(event.kind());
            self.handle(event);
        }
        self.now_us = self.now_us.max(until_us);
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Frame { to, side, frame } => self.arrive(to, side, frame),
            Event::Turn { position, life } => self.turn(position, life),
            Event::Messages { node, life } => self.messages(node, life),
            Event::Slot { node, life } => self.slot(node, life),
            Event::Guard { node, life } => self.guard(node, life),
            Event::Routes { node, life, order } => self.routes_ordered(node, life, *order),
            Event::Learn { side, from, routes } => self.learn(side, from, &routes),
            Event::Detect { node, side } => self.detect(node, side),
            Event::Resend { node, side } => self.resend(node, side),
            Event::Flow(flow) => self.flow(flow),
            Event::ShortFlow { shard, home } => self.short_flow(shard, home),
            Event::Probe => self.probe(),
            Event::Control => self.control(),
            Event::Strike(number) => self.strike(number),
            Event::Mend(number) => self.mend(number),
            Event::Start(node) => self.start(node),
            Event::PowerOn(node) => self.power_on(node),
            Event::StandStill { position, until_us } => self.stand_still(position, until_us),
            Event::Leave { node, life, began_us } => self.leave(node, life, began_us),
            Event::Saved { node, life, map } => self.saved(node, life, map),
            Event::Check => self.check(),
            Event::Taken { node, number } => self.check_taken(node, number),
            Event::Emptied { node, number } => self.check_emptied(node, number),
            Event::SiteServes { number } => self.check_site(number),
        }
    }

    /// Adds a number to the hash by which two runs are compared.
    fn note(&mut self, number: u64) {
        self.digest =
            (self.digest ^ number ^ self.now_us).wrapping_mul(0x0100_0000_01b3).rotate_left(29);
    }

    /// Marks the history as failed.
    pub(crate) fn fail(&mut self, why: String) {
        self.timeline.add(self.now_us, || format!("FAILED: {why}"));
        self.violation.get_or_insert(why);
    }

    pub(crate) fn stop_traffic(&mut self) {
        self.is_traffic_on = false;
    }

    pub(crate) fn counts(&self) -> Counts {
        self.traffic.counts
    }

    pub(crate) fn role_counts(&self) -> RoleCounts {
        self.tally.counts
    }

    fn shards(&self) -> impl Iterator<Item = ShardId> + use<> {
        (1..=self.options.shards).map(ShardId)
    }
}
